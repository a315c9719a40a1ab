//! ClusterType: a group of clusters that share a folder of the GitOps repository.

use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column},
};
use stoa_types::scheduler::ClusterType;

use super::owned::{self, OwnedStrategy};
use crate::{
    kind::Kind,
    rights::{OBJECTS, OWNED, READ, READERS, right},
};

/// The kind ClusterType.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, OwnedStrategy::<ClusterType>::of(&surroundings))
    },
    rights: &[right(READERS, OBJECTS, READ), OWNED],
    ..Kind::of::<ClusterType>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<ClusterType>().columns(&[
        Column::new("Reconciler", Cell::Path(&["spec", "reconciler"]), "The Template of the reconciler."),
        Column::new("Namespace", Cell::Path(&["spec", "namespaceService"]), "The Template of the namespace."),
        Column::new("Config", Cell::Path(&["spec", "configType"]), "The Template of the configuration."),
        Column::age(),
        owned::column(),
    ])
}
