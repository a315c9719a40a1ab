//! DeploymentTarget: one variant of a workload for one environment.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
};
use stoa_types::scheduler::DeploymentTarget;

use super::owned::{self, OwnedStrategy};
use crate::{
    kind::Kind,
    rights::{OBJECTS, OWNED, READ, READERS, right},
};

/// The kind DeploymentTarget.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, OwnedStrategy::<DeploymentTarget>::of(&surroundings))
    },
    rights: &[right(READERS, OBJECTS, READ), OWNED],
    ..Kind::of::<DeploymentTarget>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<DeploymentTarget>().columns(&[
        Column::new("Workload", Cell::Path(&["metadata", "labels", "workload"]), "The Workload."),
        Column::new("Workspace", Cell::Path(&["metadata", "labels", "workspace"]), "The workspace of the team."),
        Column::new("Environment", Cell::Path(&["spec", "environment"]), "The environment."),
        Column::age(),
        owned::column(),
    ])
}
