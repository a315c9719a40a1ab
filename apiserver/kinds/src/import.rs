//! Validation of the resources that a Run imports.

use std::collections::{BTreeMap, BTreeSet};

use stoa_machinery::status::FieldError;
use stoa_storage::documents::file_segments;
use stoa_types::delivery::{Import, KusionRelease};

/// So many resources are named at most; with more, all are meant.
const MOST: usize = 1000;
/// The longest id.
pub(super) const LONGEST: usize = 1024;

/// Finds what is wrong with it.
pub(super) fn validate(import: &Import, errors: &mut Vec<FieldError>) {
    if import.resources.len() > MOST {
        let message = format!("must have at most {MOST} items");
        errors.push(FieldError::invalid("spec.import.resources", import.resources.len(), message));
    }
    let mut ids = BTreeSet::new();
    for (position, resource) in import.resources.iter().enumerate() {
        let path = format!("spec.import.resources[{position}]");
        let id = resource.id.as_str();
        if id.trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.id"), ""));
        } else if !ids.insert(id) {
            errors.push(FieldError::duplicate(format!("{path}.id"), id));
        }
        for (field, text) in [("id", Some(id)), ("infrastructureId", resource.infrastructure_id.as_deref())] {
            if text.is_some_and(|text| text.len() > LONGEST) {
                let message = format!("may not be longer than {LONGEST} bytes");
                errors.push(FieldError::invalid(format!("{path}.{field}"), "<value omitted>", message));
            }
        }
    }
    if let Some(terraform) = &import.terraform {
        if !import.resources.is_empty() || import.kusion.is_some() {
            let message = "may not be set together with resources or kusion; a state is imported as a whole";
            errors.push(FieldError::forbidden("spec.import.terraform", message));
        }
        if file_segments(&terraform.path).is_err() {
            errors.push(FieldError::invalid("spec.import.terraform.path", &terraform.path, NO_PATH));
        }
    }
    let Some(kusion) = &import.kusion else { return };
    if !import.resources.is_empty() {
        let message = "may not be set together with resources; a release is imported as a whole";
        errors.push(FieldError::forbidden("spec.import.kusion", message));
    }
    validate_kusion(kusion, errors);
}

const NO_PATH: &str = "must be a relative path whose parts are letters, digits, '-', '_', '.', '+', '@', '=' and ' ', \
                       and do not begin with a dot";

/// Whether both ask for the same, in whatever order they name it.
pub(super) fn is_same(a: &Import, b: &Import) -> bool {
    by_id(a) == by_id(b) && a.kusion == b.kusion && a.terraform == b.terraform
}

fn by_id(import: &Import) -> BTreeMap<&str, Option<&str>> {
    import.resources.iter().map(|of| (of.id.as_str(), of.infrastructure_id.as_deref())).collect()
}

fn validate_kusion(kusion: &KusionRelease, errors: &mut Vec<FieldError>) {
    let wrong = "must be letters, digits, '-', '_', '.', '+', '@', '=' and ' ', and not begin with a dot";
    for (field, name) in [("project", &kusion.project), ("workspace", &kusion.workspace)] {
        let is_wrong = |name: &&String| name.contains('/') || file_segments(name).is_err();
        if let Some(name) = name.as_ref().filter(is_wrong) {
            errors.push(FieldError::invalid(format!("spec.import.kusion.{field}"), name, wrong));
        }
    }
    if let Some(path) = kusion.path.as_ref().filter(|path| file_segments(path).is_err()) {
        let message = format!("must be a relative path whose parts {}", wrong.replace("must be", "are"));
        errors.push(FieldError::invalid("spec.import.kusion.path", path, message));
    }
    if let Some(revision) = kusion.revision.filter(|revision| *revision < 1) {
        errors.push(FieldError::invalid("spec.import.kusion.revision", revision, "must be at least 1"));
    }
}
