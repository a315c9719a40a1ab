//! The functions of kpt's catalog that run in this process, written from its documents.
//!
//! Start at [`find`]. Each function has a file of its own. `budget`, `config`, `fields` and `scalars`
//! have what several functions share.

mod apply_replacements;
mod apply_setters;
mod budget;
mod config;
mod ensure_name_substring;
mod fields;
mod scalars;
mod search_replace;
mod set_annotations;
mod set_image;
mod set_labels;
mod set_namespace;

use crate::{files::Limits, resources::Resource, results::Finding};

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
    /// Runs the current version.
    run: Builtin,
    /// The beginnings of tags of old versions that differ, and the function that runs them.
    old: Option<(&'static [&'static str], Builtin)>,
}

const ENTRIES: &[Entry] = &[
    Entry { name: "apply-replacements", run: apply_replacements::run, old: None },
    Entry { name: "apply-setters", run: apply_setters::run, old: None },
    Entry { name: "ensure-name-substring", run: ensure_name_substring::run, old: None },
    Entry { name: "search-replace", run: search_replace::run, old: None },
    Entry { name: "set-annotations", run: set_annotations::run, old: None },
    Entry { name: "set-image", run: set_image::run, old: None },
    Entry { name: "set-labels", run: set_labels::run, old: Some((&["v0.0", "v0.1"], set_labels::run_old)) },
    Entry {
        name: "set-namespace",
        run: set_namespace::run,
        old: Some((&["v0.0", "v0.1", "v0.2"], set_namespace::run_by_fields)),
    },
];

/// The registries and folders of the catalog, now and before.
const CATALOGS: [&str; 2] = ["ghcr.io/kptdev/krm-functions-catalog/", "gcr.io/kpt-fn/"];

/// The built-in function of an image with its registry. An image with a digest is none, since it names exact bytes.
pub fn find(image: &str) -> Option<Builtin> {
    let name = CATALOGS.iter().find_map(|catalog| image.strip_prefix(catalog))?;
    if name.contains('@') {
        return None;
    }
    let (name, tag) = name.split_once(':').unwrap_or((name, ""));
    let entry = ENTRIES.iter().find(|entry| entry.name == name)?;
    let is_of = |version: &str| tag.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    Some(match entry.old {
        Some((versions, run)) if versions.iter().any(|version| is_of(version)) => run,
        _ => entry.run,
    })
}

#[cfg(test)]
mod tests;
