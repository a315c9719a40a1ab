//! The kinds of Stoa: for each its definition as served, and its strategy, the admission and validation of writes.
//!
//! Start at [`register`]. One module per kind, named after it; what a Kubernetes apiserver calls `rest.Storage` and
//! `rest.CreateStrategy` is the generic registry of `stoa-machinery` with one of these strategies.
//!
//! The kinds share:
//!
//! - [`lookup`]: reads of other objects, and the permissions that a reference to them takes; [`references`]: the references
//!   between kinds that keep an object from being deleted;
//! - [`validation`]: validation of common shapes; [`deletion`]: deletion policies; [`deployed`]: the deployments of a stack;
//! - [`run_status`], [`run_view`], [`pull_request`], [`readiness`]: statuses of Runs and Stacks as others read them;
//! - [`cluster`]: namespaces, role bindings, Secrets and Events of the cluster around the server.
//!
//! Elsewhere: controllers and the execution of Runs act on the objects; handlers of subresources are attached from outside.

use std::sync::Arc;

use stoa_machinery::{ResourceDefinition, registry::RegistryBuilder};

mod access;
pub mod approval;
pub mod backend;
pub mod changes;
pub mod cluster;
pub mod core_v1;
pub mod deletion;
pub mod deployed;
pub mod destroyed;
pub mod event_types;
mod import;
pub mod lookup;
pub mod notification_sink;
pub mod organization;
pub mod plan_summary;
pub mod preview_plan;
pub mod project;
pub mod pull_request;
pub mod readiness;
mod ready;
mod records;
pub mod references;
pub mod release;
pub mod resource;
pub mod run;
pub mod run_status;
pub mod run_view;
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
pub mod workflow;
pub mod workspace;

use crate::{cluster::Cluster, lookup::Lookup};

/// Registers the kinds of Stoa's own groups.
///
/// `complete` adds to each definition what the kinds do not know, such as the handlers of subresources.
pub fn register(
    builder: RegistryBuilder,
    lookup: &Lookup,
    cluster: &Arc<dyn Cluster>,
    complete: impl Fn(ResourceDefinition) -> ResourceDefinition,
) -> RegistryBuilder {
    let records = records::Records { lookup: lookup.clone(), cluster: cluster.clone() };
    builder
        .register(
            complete(organization::definition()),
            organization::OrganizationStrategy { lookup: lookup.clone(), cluster: cluster.clone() },
        )
        .register(
            complete(project::definition()),
            project::ProjectStrategy { lookup: lookup.clone(), cluster: cluster.clone() },
        )
        .register(
            complete(stack::definition()),
            stack::StackStrategy { lookup: lookup.clone(), cluster: cluster.clone() },
        )
        .register(
            complete(source::definition()),
            source::SourceStrategy { lookup: lookup.clone(), cluster: cluster.clone() },
        )
        .register(complete(workspace::definition()), workspace::WorkspaceStrategy { lookup: lookup.clone() })
        .register(
            complete(backend::definition()),
            backend::BackendStrategy { lookup: lookup.clone(), cluster: cluster.clone() },
        )
        .register(complete(notification_sink::definition()), notification_sink::NotificationSinkStrategy)
        .register(complete(run::definition()), run::RunStrategy { lookup: lookup.clone() })
        .register(complete(workflow::definition()), workflow::WorkflowStrategy { lookup: lookup.clone() })
        .register(complete(release::definition()), release::ReleaseStrategy { records: records.clone() })
        .register(complete(resource::definition()), resource::ResourceStrategy { records })
}
