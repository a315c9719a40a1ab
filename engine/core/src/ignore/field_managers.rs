//! Managers of a field, by the `managedFields` of the live object.

use serde_json::{Map, Value};

use super::paths::{get, index, step};
use crate::path::{FieldPath, Segment};

/// Whether and how an entry of `managedFields` has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Managed {
    No,
    /// The field itself, or something in it.
    Exact,
    /// Something around it that has one owner.
    ByParent,
}

/// Whether a manager applies a field that no other manager has.
pub(super) fn is_managed_alone(entries: &[Value], live: &Map<String, Value>, path: &FieldPath, manager: &str) -> bool {
    let is_ours = |entry: &&Value| {
        entry["manager"] == manager && entry["operation"] == "Apply" && entry.get("subresource").is_none()
    };
    let hold = |entry: &Value| managed(&entry["fieldsV1"], live, path);
    match entries.iter().find(is_ours).map_or(Managed::No, hold) {
        Managed::No => false,
        Managed::ByParent => true,
        // An apply without a list would remove items of other managers too.
        Managed::Exact if get(live, path).is_some_and(Value::is_array) => true,
        Managed::Exact => !entries.iter().filter(|entry| !is_ours(entry)).any(|entry| hold(entry) == Managed::Exact),
    }
}

/// Follows a path into a set of fields, `f:<key>`, `k:<keys of an item>`, `v:<value>`, `i:<index>`, along what is live.
pub(super) fn managed(fields: &Value, live: &Map<String, Value>, path: &FieldPath) -> Managed {
    let (mut fields, mut at): (&Value, Option<&Value>) = (fields, None);
    for (depth, segment) in path.0.iter().enumerate() {
        let Some(set) = fields.as_object() else { return Managed::No };
        if set.is_empty() && depth > 0 {
            return Managed::ByParent;
        }
        let next = match (at, segment) {
            (Some(Value::Array(items)), segment) => {
                let Some(index) = index(items, segment) else { return Managed::No };
                set.iter().find(|(step, _)| is_item(step, index, &items[index])).map(|(_, below)| below)
            }
            (_, Segment::Key(key)) => set.get(&format!("f:{key}")),
            (_, Segment::Index(_) | Segment::Item { .. }) => None,
        };
        match next {
            Some(next) => fields = next,
            None => return Managed::No,
        }
        at = match segment {
            Segment::Key(key) if depth == 0 => live.get(key),
            segment => at.and_then(|value| step(value, segment)),
        };
    }
    Managed::Exact
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
