//! One module per kind: its definition as served, and its strategy.
//!
//! Start at [`register`]. What the kinds share is in [`lookup`] (other objects and permissions that
//! an object refers to), [`check`] (validation of common shapes) and [`ready`] (whether an object is as it should be, in tables).

use stoa_machinery::{ResourceDefinition, registry::RegistryBuilder};

pub(crate) mod access;
pub(crate) mod approval;
pub(crate) mod backend;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod core;
pub(crate) mod deletion;
pub(crate) mod import;
pub(crate) mod live;
pub(crate) mod lookup;
pub(crate) mod notification_sink;
pub(crate) mod organization;
pub(crate) mod previewed;
pub(crate) mod project;
mod ready;
pub(crate) mod records;
pub(crate) mod references;
pub(crate) mod release;
pub(crate) mod resource;
pub(crate) mod run;
pub(crate) mod run_parts;
pub(crate) mod source;
pub(crate) mod stack;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod trigger;
pub(crate) mod workflow;
pub(crate) mod workspace;

use crate::{cluster::Cluster, kinds::lookup::Lookup};

/// Registers the kinds of Stoa's own groups.
///
/// `complete` adds to each definition what the kinds do not know, such as the handlers of subresources.
pub(crate) fn register(
    builder: RegistryBuilder,
    lookup: &Lookup,
    cluster: &std::sync::Arc<dyn Cluster>,
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
        .register(complete(source::definition()), source::SourceStrategy { lookup: lookup.clone(), cluster: cluster.clone() })
        .register(complete(workspace::definition()), workspace::WorkspaceStrategy { lookup: lookup.clone() })
        .register(complete(backend::definition()), backend::BackendStrategy { lookup: lookup.clone(), cluster: cluster.clone() })
        .register(complete(notification_sink::definition()), notification_sink::NotificationSinkStrategy)
        .register(complete(run::definition()), run::RunStrategy { lookup: lookup.clone() })
        .register(complete(workflow::definition()), workflow::WorkflowStrategy { lookup: lookup.clone() })
        .register(complete(release::definition()), release::ReleaseStrategy { records: records.clone() })
        .register(complete(resource::definition()), resource::ResourceStrategy { records })
}

#[cfg(test)]
mod tests;
