//! Template: texts that become the files of assignments.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
};
use stoa_types::scheduler::Template;

use super::owned::{self, OwnedStrategy};
use crate::{
    kind::Kind,
    rights::{OBJECTS, OWNED, READ, READERS, right},
};

/// The kind Template.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, OwnedStrategy::<Template>::of(&surroundings))
    },
    rights: &[right(READERS, OBJECTS, READ), OWNED],
    ..Kind::of::<Template>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Template>().columns(&[
        Column::new("Type", Cell::Path(&["spec", "type"]), "The purpose: reconciler, namespace or config."),
        Column::new("Content", Cell::Path(&["spec", "contentType"]), "The type of the result: sh, else YAML."),
        Column::age(),
        owned::column(),
    ])
}
