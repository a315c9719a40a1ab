//! Authorizers that decide here, and the union of several.

use std::sync::Arc;

use async_trait::async_trait;
use stoa_meta::{
    authorizer::{Attributes, Authorizer, Decision},
    request::UserInfo,
    status::ApiError,
};

use super::AUTHENTICATED;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The paths that everybody may get, so that probes need no credentials; what upstream always allows.
///
/// A single check (`/livez/<check>`) says why it fails and is not among them.
pub const ALWAYS_ALLOWED_PATHS: [&str; 3] = ["/healthz", "/livez", "/readyz"];

/// Allows members of `system:masters` everything.
#[derive(Clone, Copy, Debug)]
pub struct Masters;

#[async_trait]
impl Authorizer for Masters {
    async fn authorize(&self, user: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
        Ok(Decision::of(user.in_group(MASTERS)))
    }
}

/// Allows members of `system:masters` everything and tells everybody else why they may do nothing.
#[derive(Clone, Copy, Debug)]
pub struct MastersOnly;

#[async_trait]
impl Authorizer for MastersOnly {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        Ok(match Masters.authorize(user, attributes).await? {
            allowed @ Decision::Allow(_) => allowed,
            Decision::Deny(_) => Decision::Deny(format!("a standalone server serves only members of {MASTERS:?}")),
        })
    }
}

/// Allows whoever is known what the ClusterRoles `system:basic-user` and `system:discovery` allow: to ask who one is and
/// what one may do, and to read what the API looks like.
#[derive(Clone, Copy, Debug)]
pub struct BasicUser;

#[async_trait]
impl Authorizer for BasicUser {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let Attributes { verb, group, resource, subresource, path, .. } = attributes;
        let reviews = matches!(
            (group.as_str(), resource.as_str()),
            ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | ("authentication.k8s.io", "selfsubjectreviews")
        );
        let below =
            |prefix: &str| path == prefix || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
        let documents = ["/api", "/apis", "/openapi", "/version"].into_iter().any(below);
        let allowed = user.in_group(AUTHENTICATED)
            && match resource.as_str() {
                "" => verb == "get" && documents,
                _ => verb == "create" && subresource.is_empty() && reviews,
            };
        Ok(Decision::of(allowed))
    }
}

/// Allows everybody some paths, whatever the verb.
#[derive(Clone, Debug)]
pub struct AllowPaths(Vec<String>);

impl AllowPaths {
    /// Allows these paths exactly; a last `*` stands for any rest.
    pub fn new<P: Into<String>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self(paths.into_iter().map(Into::into).collect())
    }
}

impl Default for AllowPaths {
    /// [`ALWAYS_ALLOWED_PATHS`].
    fn default() -> Self {
        Self::new(ALWAYS_ALLOWED_PATHS)
    }
}

#[async_trait]
impl Authorizer for AllowPaths {
    async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let allowed = attributes.resource.is_empty()
            && self.0.iter().any(|path| match path.strip_suffix('*') {
                Some(prefix) => attributes.path.starts_with(prefix),
                None => attributes.path == *path,
            });
        Ok(Decision::of(allowed))
    }
}

/// Several authorizers, asked in order: what one allows is allowed.
#[derive(Clone, Debug)]
pub struct AnyOf(Vec<Arc<dyn Authorizer>>);

impl AnyOf {
    /// Asks in this order.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(authorizers)
    }

    /// What upstream's delegating servers ask: masters, then the always-allowed paths, then `last`.
    pub fn delegating(last: Arc<dyn Authorizer>) -> Self {
        Self(vec![Arc::new(Masters), Arc::new(AllowPaths::default()), last])
    }
}

#[async_trait]
impl Authorizer for AnyOf {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let mut reasons = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(user, attributes).await? {
                allowed @ Decision::Allow(_) => return Ok(allowed),
                Decision::Deny(reason) if reason.is_empty() => {}
                Decision::Deny(reason) => reasons.push(reason),
            }
        }
        Ok(Decision::Deny(reasons.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn decide(groups: &[&str], resource: &str, path: &str) -> Decision {
        let user = UserInfo {
            name: "ann".to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..UserInfo::default()
        };
        let attributes = Attributes { resource: resource.to_owned(), path: path.to_owned(), ..Attributes::default() };
        AnyOf::delegating(Arc::new(MastersOnly)).authorize(&user, &attributes).await.unwrap()
    }

    #[tokio::test]
    async fn masters_may_everything() {
        assert!(decide(&["dev", MASTERS], "stacks", "").await.is_allowed());
    }

    #[tokio::test]
    async fn everybody_may_probe_but_not_look_closer() {
        assert!(decide(&[], "", "/readyz").await.is_allowed());
        assert!(!decide(&[], "", "/readyz/log").await.is_allowed());
        assert!(!decide(&[], "", "/readyzz").await.is_allowed());
        assert!(!decide(&[], "stacks", "/readyz").await.is_allowed());
    }

    #[tokio::test]
    async fn authenticated_user_reviews_self_and_reads_documents() {
        let decide = async |group: &str, verb: &str, resource: (&str, &str), path: &str| {
            let user = UserInfo { groups: vec![group.to_owned()], ..UserInfo::default() };
            let attributes = Attributes {
                verb: verb.to_owned(),
                group: resource.0.to_owned(),
                resource: resource.1.to_owned(),
                path: path.to_owned(),
                ..Attributes::default()
            };
            BasicUser.authorize(&user, &attributes).await.unwrap().is_allowed()
        };
        let own = ("authorization.k8s.io", "selfsubjectaccessreviews");
        assert!(decide(AUTHENTICATED, "create", own, "").await);
        assert!(decide(AUTHENTICATED, "create", ("authentication.k8s.io", "selfsubjectreviews"), "").await);
        assert!(decide(AUTHENTICATED, "get", ("", ""), "/apis/g.io/v1").await);
        assert!(decide(AUTHENTICATED, "get", ("", ""), "/version").await);
        assert!(!decide("system:unauthenticated", "create", own, "").await);
        assert!(!decide(AUTHENTICATED, "list", own, "").await);
        assert!(!decide(AUTHENTICATED, "create", ("authorization.k8s.io", "subjectaccessreviews"), "").await);
        assert!(!decide(AUTHENTICATED, "create", ("g.io", "selfsubjectaccessreviews"), "").await);
        assert!(!decide(AUTHENTICATED, "get", ("", ""), "/apisx").await);
        assert!(!decide(AUTHENTICATED, "get", ("", ""), "/metrics").await);
    }

    #[tokio::test]
    async fn everybody_else_is_told_why_not() {
        let reason = "a standalone server serves only members of \"system:masters\"";
        assert_eq!(decide(&["system:authenticated"], "stacks", "").await, Decision::Deny(reason.to_owned()));
    }
}
