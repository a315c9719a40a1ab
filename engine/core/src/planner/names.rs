//! What objects are called, once references are replaced: a name may have been made of several.

use crate::object::ObjectRef;
use crate::path::{FieldPath, Segment};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::spec::{Resource, ResourceType};
use crate::validate::check_id;

/// Checks what an object is called, and its id again, now that references are replaced. What is not known yet is not looked at.
pub fn disagreement(resource: &Resource, resolved: &Resolved<'_>) -> Option<Problem> {
    if resource.kind != ResourceType::Kubernetes {
        return None;
    }
    if let Some(path) = resolved.sensitive.iter().find(|path| is_of_name(path)) {
        let message = "a sensitive value cannot be part of what an object is called";
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
            let message = "a reference in apiVersion, kind or name leads to something that is not text";
            Some(Problem::new(reason::INVALID_REFERENCE, message).of(&resource.id).at("attributes"))
        }
    }
}

/// Whether what tells an object from others is not known yet.
pub fn is_unnamed(resolved: &Resolved<'_>) -> bool {
    resolved.unknown.iter().any(is_of_name)
}

/// Whether the path is, or holds, a part of what an object is called.
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
