//! SchedulingPolicy: which deployment targets run on which cluster types.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
};
use stoa_types::scheduler::SchedulingPolicy;

use super::owned::{self, OwnedStrategy};
use crate::{
    kind::Kind,
    ready,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The kind SchedulingPolicy.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, OwnedStrategy::<SchedulingPolicy>::of(&surroundings))
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED],
    ..Kind::of::<SchedulingPolicy>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<SchedulingPolicy>().columns(&[
        Column::new(
            "Workspace",
            Cell::Path(&["spec", "deploymentTargetSelector", "workspace"]),
            "The workspace of the targets.",
        ),
        ready::status("Whether its assignments exist."),
        Column::age(),
        ready::reason(),
        ready::message(),
        owned::column(),
    ])
}
