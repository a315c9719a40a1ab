//! The findings of functions that validate.

use super::Failure;
use crate::{
    resources::Resource,
    results::{Field, FileRef, Finding, ResourceRef},
};

/// An error about a field of an object; an empty field is the whole object.
pub(super) fn about(item: &Resource, field: &str, message: impl Into<String>) -> Finding {
    Finding {
        resource_ref: Some(ResourceRef {
            api_version: item.api_version().to_owned(),
            kind: item.kind().to_owned(),
            name: item.name().to_owned(),
            namespace: item.namespace().to_owned(),
        }),
        field: (!field.is_empty()).then(|| Field { path: field.to_owned(), ..Field::default() }),
        file: Some(FileRef { path: item.path.clone(), index: item.index.unwrap_or_default() }),
        ..Finding::error(message)
    }
}

/// The outcome of a function with these errors.
pub(super) fn outcome(findings: Vec<Finding>) -> Result<Vec<Finding>, Failure> {
    match findings.len() {
        0 => Ok(findings),
        count => Err(Failure { message: format!("{count} errors"), findings }),
    }
}
