//! The kinds of Stoa: for each its definition as served, and its strategy, the admission and validation of writes.
//!
//! Start at [`GROUPS`], which lists every kind as one [`Kind`]. A kind with rules is a module named after it; a Kubernetes
//! apiserver's `rest.Storage` and `rest.CreateStrategy` are the generic registry of `stoa-machinery` with its strategy.
//!
//! The kinds share:
//!
//! - [`lookup`]: reads of other objects, and the permissions that a reference to them takes; [`references`]: the references
//!   between kinds that keep an object from being deleted;
//! - [`validation`]: validation of common shapes; [`deletion`]: deletion policies; [`deployed`]: the deployments of a stack;
//! - `columns`, `ready`: columns of tables; `computed`: pages of computed objects;
//! - [`run_status`], [`run_view`], [`pull_request`], [`readiness`]: statuses of Runs and Stacks as others read them;
//! - [`package_repositories`]: the effects of writes to package revisions;
//! - [`cluster`]: namespaces, role bindings, Secrets and Events of the cluster around the server.
//!
//! Elsewhere: controllers and the execution of Runs act on the objects; handlers of subresources are attached from outside.

use std::sync::LazyLock;

use stoa_git_path::GitPaths;
use stoa_machinery::{ResourceDefinition, registry::RegistryBuilder};

mod access;
pub mod approval;
pub mod backend;
pub mod changes;
pub mod cluster;
mod columns;
mod computed;
mod config;
pub mod core_v1;
pub mod cron;
pub mod deletion;
mod delivery;
pub mod deployed;
pub mod destroyed;
pub mod errors;
pub mod event_types;
pub mod hub;
mod import;
pub mod kind;
pub mod lookup;
pub mod module;
pub mod notification_sink;
pub mod organization;
pub mod package;
pub mod package_access;
mod package_evaluation;
pub mod package_function;
pub mod package_names;
pub mod package_objects;
pub mod package_operation;
pub mod package_repositories;
pub mod package_resources;
pub mod package_revision;
pub mod package_source;
mod package_upstream;
pub mod package_variant;
pub mod package_variant_set;
pub mod plan_summary;
mod platform;
mod porch;
mod porchconfig;
pub mod preview_plan;
pub mod project;
pub mod promotion;
pub mod pull_request;
pub mod readiness;
mod ready;
mod records;
pub mod references;
pub mod release;
pub mod repository;
pub mod resource;
pub mod rights;
pub mod run;
pub mod run_status;
pub mod run_view;
pub mod scheduler;
pub mod source;
pub mod source_path;
pub mod stack;
pub mod state_records;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod text;
pub mod trigger;
pub mod validation;
pub mod values;
pub mod variable_set;
pub mod workflow;
pub mod workspace;

use crate::kind::{Group, Kind, Surroundings};

/// The API groups, in the order of their priority.
pub static GROUPS: [&Group; 7] = [
    &config::GROUP,
    &platform::GROUP,
    &delivery::GROUP,
    &porch::GROUP,
    &porchconfig::GROUP,
    &scheduler::GROUP,
    &hub::GROUP,
];

/// The kinds of all groups.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    GROUPS.into_iter().flat_map(|group| group.kinds).copied()
}

/// The kinds that people author, as the control repository knows them.
///
/// Elsewhere: the files `organizations/<org>/destroyed/…`, which stand for no object, are in [`destroyed`].
pub static GIT_PATHS: LazyLock<GitPaths> =
    LazyLock::new(|| GitPaths(kinds().filter_map(Kind::git_path).collect::<Vec<_>>().leak()));

/// Registers the kinds of Stoa's own groups.
///
/// `complete` adds to each definition what the kinds do not know, such as the handlers of subresources.
pub fn register(
    builder: RegistryBuilder,
    surroundings: &Surroundings,
    complete: impl Fn(&'static Kind, ResourceDefinition) -> ResourceDefinition,
) -> RegistryBuilder {
    kinds().fold(builder, |builder, kind| {
        let definition = complete(kind, (kind.definition)());
        (kind.register)(builder, definition, surroundings.clone())
    })
}
