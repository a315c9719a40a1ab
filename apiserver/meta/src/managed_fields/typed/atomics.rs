//! The atomic lists and maps that a configuration would replace as a whole.

use serde_json::{Map, Value};

use super::super::{
    path::PathElement,
    schema::{ListRelationship, Reading, Schema, TypeId, View},
};

/// The paths of all lists and maps in a configuration that change as a whole, such as `.spec.command`.
///
/// Follows `findAtomics` of `pkg/admission/plugin/policy/mutating/patch`: only fields that the schema names are looked
/// into, not the entries of other maps.
pub(in super::super) fn atomics(schema: &Schema, configuration: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    if let View::Map(map) = schema.atom(schema.root()).view(Reading::Map) {
        for (key, value) in configuration {
            if let Some(field) = map.fields.get(&**key) {
                walk(schema, field.id, value, PathElement::field(key).to_string(), &mut found);
            }
        }
    }
    found
}

fn walk(schema: &Schema, id: TypeId, value: &Value, path: String, found: &mut Vec<String>) {
    let atom = schema.atom(id);
    match (value, &atom.map, &atom.list) {
        (Value::Object(entries), Some(map), _) => {
            if map.atomic {
                found.push(path.clone());
            }
            for (key, value) in entries {
                if let Some(field) = map.fields.get(&**key) {
                    walk(schema, field.id, value, format!("{path}{}", PathElement::field(key)), found);
                }
            }
        }
        (Value::Array(items), _, Some(list)) => {
            if list.relationship == ListRelationship::Atomic {
                found.push(path.clone());
            }
            for (index, item) in items.iter().enumerate() {
                let element = PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX));
                walk(schema, list.element, item, format!("{path}{element}"), found);
            }
        }
        _ => {}
    }
}
