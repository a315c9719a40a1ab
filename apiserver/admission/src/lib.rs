//! The plugins of admission that a cluster configures: webhooks, and policies in CEL.
//!
//! Start at [`of_cluster`], which makes the plugins that [`PLUGINS`] names. [`webhook`] calls servers, [`policy`] evaluates
//! rules, and [`cluster`] follows their configuration and looks up namespaces and Services. Follows
//! `k8s.io/apiserver/pkg/admission/plugin`.
//!
//! Elsewhere: the chain that calls plugins is `stoa_registry::admission`, the language is `stoa-cel`.
//!
//! **Invariant:** this crate is a client of a cluster and of webhooks, and serves nothing.

mod cel;
pub mod cluster;
mod cluster_namespaces;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod plugins;
pub mod policy;
mod rules;
mod selector;
#[cfg(test)]
mod tests;
pub mod webhook;

pub use cluster_namespaces::ClusterNamespaces;
pub use plugins::{PLUGINS, UnknownPlugin, of_cluster};
