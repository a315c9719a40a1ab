//! PorchPackage: a package with its newest revision, written by the server.

use serde_json::Value;
use stoa_machinery::{
    ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    object::Object,
};
use stoa_types::porch::PorchPackage;

use crate::{
    kind::Kind,
    rights::{OBJECTS, READ, READERS, right},
};

/// The kind PorchPackage.
pub static KIND: Kind = Kind { definition, rights: &[right(READERS, OBJECTS, READ)], ..Kind::of::<PorchPackage>() };

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<PorchPackage>()
        .columns(&[
            Column::name(),
            Column::new("Package", Cell::Path(&["spec", "packageName"]), "The path of the package."),
            Column::new("Repository", Cell::Path(&["spec", "repository"]), "The repository of the package."),
            Column::new("Latest Revision", Cell::Compute(latest), "The number of the newest published revision.")
                .kind("integer"),
        ])
        .selectable(&[
            SelectableField { name: "spec.packageName", path: &["spec", "packageName"] },
            SelectableField { name: "spec.repository", path: &["spec", "repository"] },
        ])
        .limited_to(READ)
}

fn latest(object: &Object) -> Value {
    object.get_path(&["status", "latestRevision"]).cloned().unwrap_or_else(|| 0.into())
}
