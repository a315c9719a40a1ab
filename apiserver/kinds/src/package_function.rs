//! Function: a function for packages, written by the server.

use serde_json::Value;
use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    object::Object,
};
use stoa_types::porch::Function;

use crate::{
    kind::Kind,
    rights::{OBJECTS, READ, READERS, right},
};

/// The kind Function.
pub static KIND: Kind = Kind { definition, rights: &[right(READERS, OBJECTS, READ)], ..Kind::of::<Function>() };

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Function>()
        .columns(&[
            Column::name(),
            Column::new("Image", Cell::Path(&["spec", "image"]), "The image of the function."),
            Column::new("Types", Cell::Compute(types), "The types of the function."),
            Column::new("Repository", Cell::Path(&["spec", "repositoryRef", "name"]), "The repository that offers it."),
            Column::new("Description", Cell::Path(&["spec", "description"]), "A description of the function."),
        ])
        .selectable(&[
            SelectableField { name: "spec.image", path: &["spec", "image"] },
            SelectableField { name: "spec.repositoryRef.name", path: &["spec", "repositoryRef", "name"] },
        ])
        .limited_to(READ)
}

fn types(object: &Object) -> Value {
    let types = object.get_path(&["spec", "functionTypes"]).and_then(Value::as_array);
    let types: Vec<&str> = types.into_iter().flatten().filter_map(Value::as_str).collect();
    types.join(",").into()
}
