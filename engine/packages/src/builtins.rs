//! The functions of kpt's catalog that run in this process, written from its documents, and `validate-cel`.
//!
//! Start at [`find`]. Each function has a file of its own. `budget`, `config`, `fields`, `scalars`
//! and `validation` have what several functions share.

mod apply_replacements;
mod apply_setters;
mod budget;
mod config;
mod ensure_name_substring;
mod fields;
mod kubeconform;
mod scalars;
mod search_replace;
mod set_annotations;
mod set_image;
mod set_labels;
mod set_namespace;
mod validate_cel;
mod validation;

use crate::{files::Limits, function_metadata::FunctionDescription, resources::Resource, results::Finding};

/// Changes the objects by a configuration, within limits, and reports findings.
pub type Builtin = fn(&mut [Resource], Option<&Resource>, &Limits) -> Result<Vec<Finding>, Failure>;

/// A function that failed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// The message, as a program would write it to standard error.
    pub message: String,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { findings: vec![Finding::error(message.clone())], message }
    }
}

/// A function that is built in.
struct Entry {
    /// The name in the catalog.
    name: &'static str,
    /// mutator or validator.
    kind: &'static str,
    /// A short description.
    description: &'static str,
    /// Runs the current version.
    run: Builtin,
    /// The beginnings of tags of old versions that differ, and the function that runs them.
    old: Option<(&'static [&'static str], Builtin)>,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "apply-replacements",
        kind: "mutator",
        description: "Copies values of fields to other fields.",
        run: apply_replacements::run,
        old: None,
    },
    Entry {
        name: "apply-setters",
        kind: "mutator",
        description: "Sets the fields that have a comment kpt-set.",
        run: apply_setters::run,
        old: None,
    },
    Entry {
        name: "ensure-name-substring",
        kind: "mutator",
        description: "Adds a prefix or suffix to names that lack it.",
        run: ensure_name_substring::run,
        old: None,
    },
    Entry {
        name: "kubeconform",
        kind: "validator",
        description: "Validates objects by the schemas of Kubernetes.",
        run: kubeconform::run,
        old: None,
    },
    Entry {
        name: "kubeval",
        kind: "validator",
        description: "Validates objects by the schemas of Kubernetes.",
        run: kubeconform::run,
        old: None,
    },
    Entry {
        name: "search-replace",
        kind: "mutator",
        description: "Finds fields by value or path, and replaces their values.",
        run: search_replace::run,
        old: None,
    },
    Entry {
        name: "set-annotations",
        kind: "mutator",
        description: "Sets annotations of all objects.",
        run: set_annotations::run,
        old: None,
    },
    Entry {
        name: "set-image",
        kind: "mutator",
        description: "Sets the name, tag or digest of images.",
        run: set_image::run,
        old: None,
    },
    Entry {
        name: "set-labels",
        kind: "mutator",
        description: "Sets labels of all objects, and of selectors and templates.",
        run: set_labels::run,
        old: Some((&["v0.0", "v0.1"], set_labels::run_old)),
    },
    Entry {
        name: "set-namespace",
        kind: "mutator",
        description: "Sets the namespace of all objects.",
        run: set_namespace::run,
        old: Some((&["v0.0", "v0.1", "v0.2"], set_namespace::run_by_fields)),
    },
    Entry {
        name: "validate-cel",
        kind: "validator",
        description: "Validates objects by expressions of CEL.",
        run: validate_cel::run,
        old: None,
    },
];

/// The registries and folders of the catalog, now and before.
const CATALOGS: [&str; 2] = ["ghcr.io/kptdev/krm-functions-catalog/", "gcr.io/kpt-fn/"];

/// The name and the tag of a function of the catalog, by its image with the registry. An image with a digest has none, since it
/// names exact bytes.
pub fn catalog_name(image: &str) -> Option<(&str, &str)> {
    let name = CATALOGS.iter().find_map(|catalog| image.strip_prefix(catalog))?;
    if name.contains('@') {
        return None;
    }
    Some(name.split_once(':').unwrap_or((name, "")))
}

/// The image of a function of the catalog, without tag.
pub fn catalog_image(name: &str) -> String {
    format!("{}{name}", CATALOGS[0])
}

/// The built-in function of an image with its registry.
pub fn find(image: &str) -> Option<Builtin> {
    let (name, tag) = catalog_name(image)?;
    let entry = ENTRIES.iter().find(|entry| entry.name == name)?;
    let is_of = |version: &str| tag.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    Some(match entry.old {
        Some((versions, run)) if versions.iter().any(|version| is_of(version)) => run,
        _ => entry.run,
    })
}

/// The functions that are built in.
pub fn offered() -> Vec<FunctionDescription> {
    let described = |entry: &Entry| FunctionDescription {
        image: catalog_image(entry.name),
        types: vec![entry.kind.to_owned()],
        description: entry.description.to_owned(),
        keywords: entry.name.split('-').map(str::to_owned).collect(),
        // All of them set values, and none adds to what it finds.
        idempotent: Some(true),
        ..FunctionDescription::default()
    };
    ENTRIES.iter().map(described).collect()
}

#[cfg(test)]
mod tests;
