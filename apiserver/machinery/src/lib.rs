//! Serves the Kubernetes API for any resource definition, the way Go's `k8s.io/apiserver` does.
//!
//! A server is made of [`ResourceDefinition`]s (what a resource looks like), a [`Strategy`] for
//! each (what its writes mean), and one [`Log`] (where every write is ordered and kept). The
//! [`registry`] joins the three and is what controllers in the same process call; [`http`] puts
//! it on the wire; [`serve`] puts that behind TLS with authentication and authorization.
//!
//! This crate knows no kind: everything it serves is described to it.

pub mod admission;
mod alarms;
pub mod audit;
pub mod auth;
mod cache;
pub mod content;
pub mod definition;
pub mod discovery;
mod document;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod http;
pub mod log;
mod managed_fields;
pub mod object;
pub mod openapi;
#[cfg(test)]
mod oracle;
pub mod profile;
pub mod registry;
pub mod request;
mod row;
pub mod schema;
pub mod selector;
pub mod serve;
pub mod status;
mod strategic_patch;
pub mod strategy;

pub use definition::{ResourceDefinition, Scope};
pub use log::{Key, Log, Version};
pub use object::Object;
pub use registry::Registry;
pub use request::RequestContext;
pub use status::ApiError;
pub use stoa_outbound as outbound;
pub use strategy::Strategy;
