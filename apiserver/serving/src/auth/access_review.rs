//! Permission by SubjectAccessReviews, which the kube-apiserver decides.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use k8s_openapi::api::authorization::v1::{
    FieldSelectorAttributes, LabelSelectorAttributes, NonResourceAttributes, ResourceAttributes, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::Client;
use stoa_meta::{
    authorizer::{Attributes, Authorizer, Decision},
    errors::chain,
    request::UserInfo,
    status::ApiError,
};

use super::{
    cache::ExpiringCache,
    delegate::{DelegateError, reviewed},
    metrics::Metrics,
};

/// How many decisions are remembered; as many as upstream remembers.
const REMEMBERED: usize = 8192;
/// Attributes longer than this are asked for each time, so that nobody fills the memory; as upstream.
const LARGEST_KEPT: usize = 10_000;

/// Asks the kube-apiserver, by `SubjectAccessReview`; decisions are kept for some time.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct SubjectAccessReviewer {
    #[educe(Debug(ignore))]
    client: Client,
    kept: DecisionsKept,
    decisions: ExpiringCache<(UserInfo, Attributes), Decision>,
    metrics: Metrics,
}

/// How long decisions of the kube-apiserver are believed without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionsKept {
    /// When it allowed something.
    pub allowed: Duration,
    /// When it did not.
    pub denied: Duration,
}

impl Default for DecisionsKept {
    /// Ten seconds either way: `AllowCacheTTL` and `DenyCacheTTL` of upstream's delegating options.
    fn default() -> Self {
        Self { allowed: Duration::from_secs(10), denied: Duration::from_secs(10) }
    }
}

impl DecisionsKept {
    fn longest(self) -> Duration {
        self.allowed.max(self.denied)
    }

    fn of(self, decision: &Decision) -> Duration {
        match decision {
            Decision::Allow(_) => self.allowed,
            Decision::Deny(_) => self.denied,
        }
    }
}

impl SubjectAccessReviewer {
    /// Asks with `client`, whose user needs the ClusterRole `system:auth-delegator`.
    pub fn new(client: Client) -> Self {
        Self::keeping(client, DecisionsKept::default())
    }

    /// As [`new`](Self::new), with other times for which decisions are kept.
    pub fn keeping(client: Client, kept: DecisionsKept) -> Self {
        let decisions = ExpiringCache::new(kept.longest(), REMEMBERED);
        Self { client, kept, decisions, metrics: Metrics::default() }
    }

    /// Counts in these metrics.
    #[must_use]
    pub fn counted(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.clone(), ..self }
    }

    async fn review(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, DelegateError> {
        let review = SubjectAccessReview { spec: spec(user, attributes), ..SubjectAccessReview::default() };
        let answer = reviewed(&self.client, &review, &self.metrics.access_reviews).await?;
        let status = answer.status.unwrap_or_default();
        // Both at once is a contradiction, and a contradiction is no permission.
        let is_allowed = status.allowed && status.denied != Some(true);
        let decision = if is_allowed { Decision::Allow } else { Decision::Deny };
        Ok(decision(status.reason.unwrap_or_default()))
    }
}

#[async_trait]
impl Authorizer for SubjectAccessReviewer {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let decided = if attributes.size() > LARGEST_KEPT {
            self.review(user, attributes).await
        } else {
            let key = (user.clone(), attributes.clone());
            let kept = |decision: &Decision| self.kept.of(decision);
            self.decisions.get_or_ask(&key, Instant::now(), kept, || self.review(user, attributes)).await
        };
        decided.map_err(|error| {
            tracing::error!(
                user = user.name,
                verb = attributes.verb,
                error = chain(&error),
                "no authorization decision"
            );
            ApiError::internal("the authorization decision could not be made")
        })
    }
}

fn spec(user: &UserInfo, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let set = |text: &String| (!text.is_empty()).then(|| text.clone());
    let mut spec = SubjectAccessReviewSpec {
        user: set(&user.name),
        uid: set(&user.uid),
        groups: (!user.groups.is_empty()).then(|| user.groups.clone()),
        extra: (!user.extra.is_empty()).then(|| user.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    if attributes.resource.is_empty() {
        spec.non_resource_attributes =
            Some(NonResourceAttributes { path: set(&attributes.path), verb: set(&attributes.verb) });
        return spec;
    }
    spec.resource_attributes = Some(ResourceAttributes {
        verb: set(&attributes.verb),
        group: set(&attributes.group),
        version: set(&attributes.version),
        resource: set(&attributes.resource),
        subresource: set(&attributes.subresource),
        namespace: set(&attributes.namespace),
        name: set(&attributes.name),
        // The kube-apiserver parses a raw selector itself; one that does not parse limits nothing.
        field_selector: set(&attributes.field_selector)
            .map(|raw| FieldSelectorAttributes { raw_selector: Some(raw), requirements: None }),
        label_selector: set(&attributes.label_selector)
            .map(|raw| LabelSelectorAttributes { raw_selector: Some(raw), requirements: None }),
    });
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn review_carries_every_resource_attribute() {
        let user = UserInfo {
            name: "ann".to_owned(),
            uid: "1".to_owned(),
            groups: vec!["dev".to_owned()],
            extra: [("scope".to_owned(), vec!["a".to_owned()])].into(),
        };
        let attributes = Attributes {
            verb: "list".to_owned(),
            group: "config.stoa.dev".to_owned(),
            version: "v1alpha1".to_owned(),
            resource: "stacks".to_owned(),
            subresource: "status".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            path: "/apis/x".to_owned(),
            field_selector: "spec.project=web".to_owned(),
            label_selector: "a in (b)".to_owned(),
        };
        assert_eq!(
            serde_json::to_value(spec(&user, &attributes)).unwrap(),
            json!({
                "user": "ann", "uid": "1", "groups": ["dev"], "extra": {"scope": ["a"]},
                "resourceAttributes": {
                    "verb": "list", "group": "config.stoa.dev", "version": "v1alpha1", "resource": "stacks",
                    "subresource": "status", "namespace": "shop", "name": "web",
                    "fieldSelector": {"rawSelector": "spec.project=web"},
                    "labelSelector": {"rawSelector": "a in (b)"},
                },
            })
        );
    }

    #[test]
    fn a_path_is_asked_for_as_a_path() {
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        let attributes = Attributes { verb: "get".to_owned(), path: "/apis".to_owned(), ..Attributes::default() };
        assert_eq!(
            serde_json::to_value(spec(&user, &attributes)).unwrap(),
            json!({"user": "ann", "nonResourceAttributes": {"path": "/apis", "verb": "get"}})
        );
    }
}
