//! Workload: an application or service with its deployment targets.

use serde_json::Value;
use stoa_machinery::{
    Object, ResourceDefinition,
    definition::{Cell, Column},
};
use stoa_types::scheduler::Workload;

use super::owned::{self, OwnedStrategy};
use crate::{
    kind::Kind,
    ready,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The kind Workload.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, OwnedStrategy::<Workload>::of(&surroundings))
    },
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED],
    ..Kind::of::<Workload>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Workload>().columns(&[
        Column::new("Targets", Cell::Compute(targets), "The number of deployment targets in all environments.")
            .kind("integer"),
        ready::status("Whether its deployment targets exist."),
        Column::age(),
        ready::reason(),
        ready::message(),
        owned::column(),
    ])
}

fn targets(object: &Object) -> Value {
    object.get_path(&["spec", "deploymentTargets"]).and_then(Value::as_array).map_or(0, Vec::len).into()
}
