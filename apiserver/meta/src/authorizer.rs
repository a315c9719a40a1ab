//! Permission: the attributes of a request, and the authorizer that decides on them.
//!
//! Start at [`Authorizer`]. Follows `k8s.io/apiserver/pkg/authorization/authorizer`; the authorizers themselves are in
//! `stoa-serving`. Strategies and admission ask the one of their request.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{request::UserInfo, status::ApiError};

/// The attributes of a request that an authorizer decides on.
#[doc(inline)]
pub use stoa_cel::Question as Attributes;

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on, for a reason that may be empty.
    Allow(String),
    /// No, for a reason that may be empty.
    Deny(String),
}

impl Decision {
    /// A permission or a refusal without a reason.
    pub fn of(is_allowed: bool) -> Self {
        if is_allowed { Self::Allow(String::new()) } else { Self::Deny(String::new()) }
    }

    /// Whether it is a permission.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }
}

/// Decides what a user may do.
#[async_trait]
pub trait Authorizer: fmt::Debug + Send + Sync + 'static {
    /// Decides one request. Fails when no decision could be made, such as an unreachable delegate: 500 `InternalError`.
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError>;
}

/// Allows everything: for calls of the server to itself, and for tests.
#[derive(Clone, Copy, Debug)]
pub struct AllowAll;

#[async_trait]
impl Authorizer for AllowAll {
    async fn authorize(&self, _: &UserInfo, _: &Attributes) -> Result<Decision, ApiError> {
        Ok(Decision::Allow(String::new()))
    }
}

/// Asks `authorizer`, and turns a refusal into the 403 that Go servers give:
/// `stacks.config.stoa.dev "web" is forbidden: User "ann" cannot create resource "stacks/apply" in
/// API group "config.stoa.dev" in the namespace "shop"`. Fails with 403 `Forbidden`, or the authorizer's own failure.
pub async fn require(
    authorizer: &Arc<dyn Authorizer>,
    user: &UserInfo,
    attributes: &Attributes,
) -> Result<(), ApiError> {
    match authorizer.authorize(user, attributes).await? {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) => Err(forbidden(user, attributes, &reason)),
    }
}

/// The 403 for attributes that were refused.
pub fn forbidden(user: &UserInfo, attributes: &Attributes, reason: &str) -> ApiError {
    let mut detail = format!("User {:?} cannot {}", user.name, attributes.verb);
    if attributes.resource.is_empty() {
        detail.push_str(&format!(" path {:?}", attributes.path));
    } else {
        let resource = if attributes.subresource.is_empty() {
            attributes.resource.clone()
        } else {
            format!("{}/{}", attributes.resource, attributes.subresource)
        };
        detail.push_str(&format!(" resource {resource:?} in API group {:?}", attributes.group));
        if attributes.namespace.is_empty() {
            detail.push_str(" at the cluster scope");
        } else {
            detail.push_str(&format!(" in the namespace {:?}", attributes.namespace));
        }
    }
    if !reason.is_empty() {
        detail.push_str(&format!(": {reason}"));
    }
    if attributes.resource.is_empty() {
        let mut error = ApiError::new(403, "Forbidden", format!("forbidden: {detail}"));
        error.0.details = Some(Default::default());
        return error;
    }
    ApiError::forbidden(&attributes.group, &attributes.resource, &attributes.name, detail)
}
