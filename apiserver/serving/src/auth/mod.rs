//! Authentication and authorization of requests.
//!
//! Permission is here: [`Authorizer`], with the ways to decide in `authorizers` (made here) and `access_review` (asked
//! of the kube-apiserver). Identity is [`Authenticator`], with the ways to show it in `certificates`, `request_header`
//! and `token_review`; [`ClusterAuthentication`] keeps what the cluster trusts up to date. [`Impersonation`] is asked
//! between the two.

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
mod reviews;
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
#[doc(inline)]
pub use stoa_meta::authorizer::{AllowAll, Attributes, Authorizer, Decision, forbidden, require};
pub use token_review::TokenReviewer;
