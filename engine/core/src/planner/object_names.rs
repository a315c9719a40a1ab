//! Names of objects after their references are replaced.

use crate::object::ObjectRef;
use crate::path::{FieldPath, Segment};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::spec::{Resource, ResourceType};
use crate::validate::check_id;

/// Checks the name and the id of an object with resolved references. Unknown parts are skipped.
pub fn disagreement(resource: &Resource, resolved: &Resolved<'_>) -> Option<Problem> {
    if resource.kind != ResourceType::Kubernetes {
        return None;
    }
    if let Some(path) = resolved.sensitive.iter().find(|path| is_of_name(path)) {
        let message = "a sensitive value cannot be part of apiVersion, kind, name or namespace";
        return Some(
            Problem::new(reason::INVALID_REFERENCE, message).of(&resource.id).at(format!("attributes.{path}")),
        );
    }
    if is_unnamed(resolved) {
        return None;
    }
    match ObjectRef::of(&resolved.attributes) {
        Some(object) => check_id(&resource.id, &object, None).map(|problem| problem.of(&resource.id)),
        None => {
            let message = "a reference in apiVersion, kind or metadata.name resolves to a value that is not text";
            Some(Problem::new(reason::INVALID_REFERENCE, message).of(&resource.id).at("attributes"))
        }
    }
}

/// Whether the identity of an object is not known yet.
pub fn is_unnamed(resolved: &Resolved<'_>) -> bool {
    resolved.unknown.iter().any(is_of_name)
}

/// Whether the path is, or contains, a part of the identity.
fn is_of_name(path: &FieldPath) -> bool {
    match path.0.as_slice() {
        [Segment::Key(key), rest @ ..] => match (key.as_str(), rest) {
            ("apiVersion" | "kind", _) | ("metadata", []) => true,
            ("metadata", [Segment::Key(key), ..]) => matches!(key.as_str(), "name" | "namespace"),
            _ => false,
        },
        _ => true,
    }
}
