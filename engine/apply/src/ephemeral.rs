//! Values that nothing may store: those of ephemeral resources, and of write-only attributes.
//!
//! A plan and a record have neither. So a value of an ephemeral resource may be used only where it is not stored: in a
//! write-only attribute, or in an argument of another ephemeral resource.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};
use stoa_engine::{FieldPath, Problem, Resource, path::Segment, problem::reason, resolve::references_at};
use stoa_runtime::Runtime;

/// The problems of resources that would store a value of an ephemeral resource. They are
/// [prepared](stoa_runtime::ProviderChecks::prepare).
pub(crate) fn problems<'r>(runtime: &dyn Runtime, resources: impl Iterator<Item = &'r Resource>) -> Vec<Problem> {
    let resources: HashMap<&str, &Resource> = resources.map(|it| (it.id.0.as_str(), it)).collect();
    if !resources.values().any(|resource| resource.is_ephemeral()) {
        return Vec::new();
    }
    let known = |id: &str| resources.contains_key(id);
    let of = |resource: &Resource| {
        let write_only = runtime.providers().write_only_paths(resource, &resource.attributes);
        let is_stored = |at: &FieldPath| !write_only.iter().any(|path| at.0.starts_with(&path.0));
        let problem = |(at, reference): (FieldPath, stoa_engine::reference::Reference)| {
            let is_ephemeral = resources.get(reference.id.0.as_str()).is_some_and(|it| it.is_ephemeral());
            let message = format!(
                "{reference} is ephemeral, and would be stored here; use it in a write-only attribute, or in an \
                 ephemeral resource"
            );
            let problem = Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id);
            (is_ephemeral && is_stored(&at)).then(|| problem.at(format!("attributes.{at}")))
        };
        references_at(&resource.attributes, &known).into_iter().filter_map(problem).collect::<Vec<_>>()
    };
    let mut problems: Vec<Problem> =
        resources.values().filter(|resource| !resource.is_ephemeral()).flat_map(|resource| of(resource)).collect();
    problems.sort();
    problems
}

/// Attributes without the values at some paths.
pub(crate) fn without(mut attributes: Map<String, Value>, paths: &BTreeSet<FieldPath>) -> Map<String, Value> {
    for path in paths {
        if let Some((Segment::Key(first), rest)) = path.0.split_first() {
            if rest.is_empty() {
                attributes.remove(first);
            } else if let Some(value) = attributes.get_mut(first) {
                remove(value, rest);
            }
        }
    }
    attributes
}

fn remove(value: &mut Value, path: &[Segment]) {
    let Some((first, rest)) = path.split_first() else {
        *value = Value::Null;
        return;
    };
    let inner = match (first, value) {
        (Segment::Key(key), Value::Object(members)) if rest.is_empty() => return drop(members.remove(key)),
        (Segment::Key(key), Value::Object(members)) => members.get_mut(key),
        (Segment::Index(index), Value::Array(elements)) => elements.get_mut(*index),
        _ => None,
    };
    if let Some(inner) = inner {
        remove(inner, rest);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_removed_at_their_paths() {
        let attributes = json!({"a": 1, "b": {"c": 2, "d": [{"e": 3, "f": 4}]}, "g": [5, 6]});
        let paths = [
            FieldPath::of_keys(["a"]),
            FieldPath::of_keys(["b", "c"]),
            FieldPath::of_keys(["b", "d"]).index(0).key("e"),
            FieldPath::of_keys(["g"]).index(1),
            FieldPath::of_keys(["x", "y"]),
        ];
        let left = without(attributes.as_object().unwrap().clone(), &paths.into());
        assert_eq!(Value::Object(left), json!({"b": {"d": [{"f": 4}]}, "g": [5, null]}));
    }
}
