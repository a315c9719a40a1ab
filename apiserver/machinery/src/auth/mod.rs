//! Who may come in and what they may do: the two questions every request answers first.
//!
//! Permission is here: [`Authorizer`], with the ways to decide in `authorizers` (made here) and `access_review` (asked
//! of the kube-apiserver). Identity is [`Authenticator`], with the ways to show it in `certificates`, `request_header`
//! and `token_review`; [`ClusterAuthentication`] keeps what the cluster trusts up to date. [`Impersonation`] is asked
//! between the two.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{request::UserInfo, status::ApiError};

mod access_review;
mod authenticator;
mod authorizers;
mod cache;
mod certificates;
mod cluster;
mod delegate;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod impersonation;
mod metrics;
mod request_header;
mod review_selectors;
mod reviews;
pub(crate) mod service_account;
mod token_review;

pub use access_review::{DecisionsKept, SubjectAccessReviewer};
pub(crate) use authenticator::has_blank_before_token;
pub use authenticator::{
    ANONYMOUS, AUTHENTICATED, AuthenticationError, Authenticator, Credentials, OrAnonymous, UNAUTHENTICATED, Union,
};
pub use authorizers::{ALWAYS_ALLOWED_PATHS, AllowPaths, AnyOf, BasicUser, MASTERS, Masters, MastersOnly};
pub use certificates::{CaError, ClientCertificates, DynamicCa, PeerCertificates};
pub use cluster::{ClusterAuthentication, ClusterError};
pub use delegate::DelegateError;
pub use impersonation::{Impersonated, Impersonation};
pub use metrics::Metrics;
pub(crate) use request_header::clear_standard_headers;
pub use request_header::{RequestHeader, RequestHeaderConfig};
pub use reviews::register_reviews;
/// What somebody wants to do.
#[doc(inline)]
pub use stoa_cel::Question as Attributes;
pub use token_review::TokenReviewer;

/// An authorizer's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on, for a reason that may be empty.
    Allow(String),
    /// No, for a reason that may be empty.
    Deny(String),
}

impl Decision {
    /// Whether it is a permission.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }
}

/// Decides what a user may do.
#[async_trait]
pub trait Authorizer: fmt::Debug + Send + Sync + 'static {
    /// Decides one request.
    ///
    /// # Errors
    ///
    /// When no decision could be made, such as an unreachable delegate: 500 `InternalError`.
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
/// API group "config.stoa.dev" in the namespace "shop"`.
///
/// # Errors
///
/// 403 `Forbidden`, or the authorizer's own failure.
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

/// An error and its causes in one line, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
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
