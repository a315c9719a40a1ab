//! Serves a registry over HTTPS, as the generic server of `k8s.io/apiserver` does.
//!
//! Start at [`extension::ExtensionServer`] for a server behind a cluster, and at [`serve::Server`] for any other. A request
//! passes the filters of [`serve`], with the users of [`auth`] and the trail of [`audit`], to the routes of [`http`], which
//! call the registry. [`discovery`] and [`openapi`] describe the API, [`options`] are the flags.
//!
//! The modules depend on each other in one direction: `http`, then `auth`, `audit`, `discovery` and `openapi`, then `serve`,
//! then `options` and `extension`.
//!
//! Elsewhere: `stoa-registry` stores objects, `stoa-admission` has the plugins that a cluster configures.

pub mod audit;
pub mod auth;
pub mod discovery;
mod document;
mod duration;
pub mod extension;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod http;
#[cfg(test)]
mod metrics_tests;
pub mod openapi;
pub mod options;
pub mod profile;
pub mod serve;

// Tests of the encodings of `/metrics` name it by `crate`.
#[cfg(test)]
use stoa_registry::metrics;
