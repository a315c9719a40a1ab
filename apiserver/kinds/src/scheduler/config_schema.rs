//! ConfigSchema: a JSON Schema for the configuration of assignments.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
};
use stoa_types::scheduler::ConfigSchema;

use super::owned::{self, OwnedStrategy};
use crate::{
    kind::Kind,
    rights::{OBJECTS, OWNED, READ, READERS, right},
};

/// The kind ConfigSchema.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, OwnedStrategy::<ConfigSchema>::of(&surroundings))
    },
    rights: &[right(READERS, OBJECTS, READ), OWNED],
    ..Kind::of::<ConfigSchema>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<ConfigSchema>().columns(&[
        Column::new(
            "Workload",
            Cell::Path(&["metadata", "labels", "workload"]),
            "The Workload that it is for, if any.",
        ),
        Column::age(),
        owned::column(),
    ])
}
