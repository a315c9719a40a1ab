//! The modes of impersonation, each with its permission.

use std::{collections::BTreeMap, time::Instant};

use stoa_meta::{
    authorizer::{Attributes, Authorizer, Decision, forbidden},
    content,
    request::UserInfo,
    service_account,
    status::{ApiError, quote},
};

use super::{
    super::{
        MASTERS,
        authenticator::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED},
    },
    metrics::Metrics,
};

const NODE_PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";
/// Where a service account's token says on which node it is used.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What an authorizer is told in place of the extras of a service account that acts as its node.
const NODE_KEYS: &str = "authentication.kubernetes.io/associated-node-keys";
/// From so many groups or extras on, all of them are asked for at once before each is.
const MANY: usize = 4;

pub(super) struct Wanted<'a> {
    /// Whom the headers name.
    pub(super) requested: &'a UserInfo,
    pub(super) user: &'a UserInfo,
    pub(super) attributes: &'a Attributes,
    pub(super) authorizer: &'a dyn Authorizer,
    /// Count what it is asked.
    pub(super) metrics: &'a Metrics,
}

/// A way in which impersonation can be allowed, in the order in which they are tried. All but the last are
/// constrained: they need a permission to be somebody, and one to do this as somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A service account acts as the node that its pod runs on.
    AssociatedNode,
    /// Somebody acts as any node.
    ArbitraryNode,
    /// Somebody acts as a service account.
    ServiceAccount,
    /// Somebody acts as another user, who is neither.
    UserInfo,
    /// The verb `impersonate`, whatever is done then.
    Legacy,
}

impl Mode {
    pub(super) const ALL: [Self; 5] =
        [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// What it is called where it is counted.
    pub(super) fn label(self) -> &'static str {
        if self.is_constrained() { self.name() } else { "legacy" }
    }

    fn is_constrained(self) -> bool {
        self != Self::Legacy
    }

    /// The verb that a constrained mode asks for; empty for the other one.
    pub(super) fn constraint(self) -> String {
        if self.is_constrained() { self.verb() } else { String::new() }
    }

    fn verb(self) -> String {
        match self {
            Self::Legacy => "impersonate".to_owned(),
            constrained => format!("impersonate:{}", constrained.name()),
        }
    }

    /// Whether this is about such users at all.
    pub(super) fn applies(self, wanted: &Wanted<'_>) -> bool {
        let UserInfo { name, uid, groups, extra } = wanted.requested;
        let only_name = uid.is_empty() && groups.is_empty() && extra.is_empty();
        match self {
            Self::AssociatedNode => only_name && node(name).is_some_and(|node| runs_on(wanted.user, node)),
            Self::ArbitraryNode => only_name && node(name).is_some(),
            Self::ServiceAccount => only_name && service_account::of_user(name).is_some(),
            Self::UserInfo => node(name).is_none() && service_account::of_user(name).is_none(),
            Self::Legacy => true,
        }
    }

    /// The user that results, each part of it allowed.
    /// Fails with 403 for what is not allowed; what the authorizer fails with.
    pub(super) async fn check(self, wanted: &Wanted<'_>) -> Result<UserInfo, ApiError> {
        if self.is_constrained() {
            let verb = format!("impersonate-on:{}:{}", self.name(), wanted.attributes.verb);
            self.may(wanted, Attributes { verb, ..wanted.attributes.clone() }).await?;
        }
        let mut actual = wanted.requested.clone();
        self.may_be_named(wanted, &mut actual.groups).await?;
        if !actual.uid.is_empty() {
            self.may(wanted, self.asks(AUTHENTICATION, "uids", &actual.uid)).await?;
        }
        self.may_have_groups(wanted).await?;
        self.may_have_extra(wanted).await?;

        let has = |group: &str| actual.groups.iter().any(|g| g == group);
        if actual.name == ANONYMOUS {
            if !has(UNAUTHENTICATED) {
                actual.groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
            actual.groups.push(AUTHENTICATED.to_owned());
        }
        Ok(actual)
    }

    /// Asks for the name, and sets the groups that go with it.
    async fn may_be_named(self, wanted: &Wanted<'_>, groups: &mut Vec<String>) -> Result<(), ApiError> {
        let name = &wanted.requested.name;
        let mut asked = self.asks(self.names_in(), "users", name);
        if let Some(node) = node(name).filter(|_| self.is_constrained()) {
            "nodes".clone_into(&mut asked.resource);
            node.clone_into(&mut asked.name);
            *groups = vec![NODES.to_owned()];
        }
        if let Some((namespace, account)) = service_account::of_user(name) {
            "serviceaccounts".clone_into(&mut asked.resource);
            namespace.clone_into(&mut asked.namespace);
            account.clone_into(&mut asked.name);
            if groups.is_empty() {
                *groups = service_account::groups(namespace);
            }
        }
        self.may(wanted, asked).await
    }

    async fn may_have_groups(self, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        let groups = &wanted.requested.groups;
        let asked = |group: &str| self.asks(self.names_in(), "groups", group);
        if self.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(self.refused(wanted, asked(""), "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.refused(wanted, asked(MASTERS), why));
            }
            if groups.len() >= MANY && self.may(wanted, asked("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.may(wanted, asked(group)).await?;
        }
        Ok(())
    }

    async fn may_have_extra(self, wanted: &Wanted<'_>) -> Result<(), ApiError> {
        let extra = &wanted.requested.extra;
        let asked = |key: &str, value: &str| Attributes {
            subresource: key.to_owned(),
            ..self.asks(AUTHENTICATION, "userextras", value)
        };
        if self.is_constrained() {
            if let Some(complaint) = complaint_of_extra(extra) {
                return Err(self.refused(wanted, asked("", ""), &complaint));
            }
            let count: usize = extra.values().map(Vec::len).sum();
            if (extra.len() >= MANY || count >= MANY) && self.may(wanted, asked("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.may(wanted, asked(key, value)).await?;
            }
        }
        Ok(())
    }

    /// The group and version that names and groups are asked for in.
    fn names_in(self) -> (&'static str, &'static str) {
        if self.is_constrained() { AUTHENTICATION } else { ("", "v1") }
    }

    fn asks(self, (group, version): (&str, &str), resource: &str, name: &str) -> Attributes {
        Attributes {
            verb: self.verb(),
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        }
    }

    async fn may(self, wanted: &Wanted<'_>, attributes: Attributes) -> Result<(), ApiError> {
        let (user, attributes) = self.as_told(wanted.user, attributes);
        let began = Instant::now();
        let decision = wanted.authorizer.authorize(&user, &attributes).await;
        wanted.metrics.asked(self.label(), decision.as_ref().is_ok_and(Decision::is_allowed), began.elapsed());
        match decision {
            Ok(Decision::Allow(_)) => Ok(()),
            Ok(Decision::Deny(reason)) => Err(forbidden(&user, &attributes, &reason)),
            Err(error) if error.code() == 403 => Err(error),
            // As long as nobody says that it may, it may not.
            Err(error) => Err(forbidden(&user, &attributes, error.message())),
        }
    }

    fn refused(self, wanted: &Wanted<'_>, attributes: Attributes, reason: &str) -> ApiError {
        forbidden(wanted.user, &attributes, reason)
    }

    /// What an authorizer is told. Which node it is has been seen to already when a service account acts as its own,
    /// so that one decision holds for all pods of the account.
    fn as_told(self, user: &UserInfo, mut attributes: Attributes) -> (UserInfo, Attributes) {
        let mut user = user.clone();
        if self == Self::AssociatedNode {
            let keys: Vec<String> = user.extra.keys().cloned().collect();
            user.extra = BTreeMap::from([(NODE_KEYS.to_owned(), keys)]);
            if attributes.verb == self.verb() {
                "*".clone_into(&mut attributes.name);
            }
        }
        (user, attributes)
    }
}

const AUTHENTICATION: (&str, &str) = ("authentication.k8s.io", "v1");

fn node(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| content::dns_subdomain(name).is_empty())
}

/// Whether a service account says that it runs on a node.
fn runs_on(user: &UserInfo, node: &str) -> bool {
    let on = user.extra.get(NODE_NAME).map(Vec::as_slice);
    service_account::of_user(&user.name).is_some() && matches!(on, Some([name]) if name == node)
}

/// What is wrong with extras, which the verb `impersonate` alone does not look at.
fn complaint_of_extra(extra: &BTreeMap<String, Vec<String>>) -> Option<String> {
    extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            return Some("impersonating the empty string key in extra is not allowed".to_owned());
        }
        if let Some(complaint) = complaint_of_path(key) {
            return Some(format!("impersonating an invalid key in extra is not allowed: {complaint}"));
        }
        if key.chars().any(char::is_uppercase) {
            return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
        }
        if values.is_empty() {
            return Some("impersonating empty values in extra is not allowed".to_owned());
        }
        let empty = values.iter().any(String::is_empty);
        empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
    })
}

/// What is wrong with a key that is to be a domain and a path.
///
/// Follows `IsDomainPrefixedPath` in `k8s.io/apimachinery/pkg/util/validation`.
fn complaint_of_path(key: &str) -> Option<String> {
    let invalid = |value: &str, why: &str| format!("extra.key: Invalid value: {}: {why}", quote(value));
    let Some((host, path)) = key.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty()) else {
        return Some(invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    let mut complaints: Vec<String> = content::dns_subdomain(host).iter().map(|why| invalid(host, why)).collect();
    if !path.chars().all(allowed) {
        let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
        complaints.push(invalid(path, why));
    }
    match complaints.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}
