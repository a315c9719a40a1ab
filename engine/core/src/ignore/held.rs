//! Who has a field, by the `managedFields` of what is live.

use serde_json::{Map, Value};

use super::paths::{get, index, step};
use crate::path::{FieldPath, Segment};

/// How an entry of `managedFields` has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    No,
    /// The field itself, or something in it.
    Exact,
    /// Something around it that has one owner.
    Around,
}

/// Whether a manager has a field that nobody else has, by what it applied.
pub(super) fn is_held_alone(entries: &[Value], live: &Map<String, Value>, path: &FieldPath, manager: &str) -> bool {
    let is_ours = |entry: &&Value| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry.get("subresource").is_none()
    };
    let hold = |entry: &Value| held(&entry["fieldsV1"], live, path);
    match entries.iter().find(is_ours).map_or(Hold::No, hold) {
        Hold::No => false,
        Hold::Around => true,
        // Of a list, others may have other items than we, which would go.
        Hold::Exact if get(live, path).is_some_and(Value::is_array) => true,
        Hold::Exact => !entries.iter().filter(|entry| !is_ours(entry)).any(|entry| hold(entry) == Hold::Exact),
    }
}

/// Follows a path into a set of fields, `f:<key>`, `k:<keys of an item>`, `v:<value>`, `i:<index>`, along what is live.
pub(super) fn held(fields: &Value, live: &Map<String, Value>, path: &FieldPath) -> Hold {
    let (mut fields, mut at): (&Value, Option<&Value>) = (fields, None);
    for (depth, segment) in path.0.iter().enumerate() {
        let Some(set) = fields.as_object() else { return Hold::No };
        if set.is_empty() && depth > 0 {
            return Hold::Around;
        }
        let next = match (at, segment) {
            (Some(Value::Array(items)), segment) => {
                let Some(index) = index(items, segment) else { return Hold::No };
                set.iter().find(|(step, _)| is_item(step, index, &items[index])).map(|(_, below)| below)
            }
            (_, Segment::Key(key)) => set.get(&format!("f:{key}")),
            (_, Segment::Index(_) | Segment::Item { .. }) => None,
        };
        match next {
            Some(next) => fields = next,
            None => return Hold::No,
        }
        at = match segment {
            Segment::Key(key) if depth == 0 => live.get(key),
            segment => at.and_then(|value| step(value, segment)),
        };
    }
    Hold::Exact
}

fn is_item(step: &str, position: usize, item: &Value) -> bool {
    let (kind, text) = step.split_once(':').unwrap_or_default();
    match (kind, serde_json::from_str::<Value>(text)) {
        ("k", Ok(Value::Object(keys))) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
        ("v", Ok(value)) => *item == value,
        ("i", _) => text == position.to_string(),
        _ => false,
    }
}
