//! Compares two versions of an object by field.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;
use serde_json::Value;
use stoa_engine::FieldPath;

use super::{ListTypes, Sides, as_text};

/// A field that differs. A list of named items differs by item.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDifference {
    /// The field, such as `spec.containers[name=web].image`.
    #[serde(serialize_with = "as_text")]
    pub field: FieldPath,
    /// The value before; `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value after; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The fields in which two versions differ.
pub(crate) fn differences(lists: &ListTypes, before: &Value, after: &Value) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    compare(lists, &FieldPath::default(), (Some(before), Some(after)), &mut found);
    found
}

fn compare(
    lists: &ListTypes,
    at: &FieldPath,
    (before, after): (Option<&Value>, Option<&Value>),
    found: &mut Vec<FieldDifference>,
) {
    match (before, after) {
        _ if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            keys.into_iter().for_each(|key| compare(lists, &at.key(key), (before.get(key), after.get(key)), found));
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) if items(lists, at, (before, after), found) => {}
        _ => found.push(FieldDifference { field: at.clone(), before: before.cloned(), after: after.cloned() }),
    }
}

/// Compares lists by item. Whether that is possible: the items have identities, and those in both lists the same order.
fn items(
    lists: &ListTypes,
    at: &FieldPath,
    (before, after): (&[Value], &[Value]),
    found: &mut Vec<FieldDifference>,
) -> bool {
    let Some(identity) = lists.identity(at, Sides { origin: before, upstream: after, local: &[] }) else {
        return false;
    };
    let keys = [before, after].map(|items| identity.of_all(items).unwrap_or_default());
    let [old, new] = [(&keys[0], before), (&keys[1], after)]
        .map(|(keys, items)| keys.iter().zip(items).collect::<HashMap<&Vec<String>, &Value>>());
    let common = |keys: &[Vec<String>], other: &HashMap<&Vec<String>, &Value>| -> Vec<Vec<String>> {
        keys.iter().filter(|key| other.contains_key(key)).cloned().collect()
    };
    if common(&keys[0], &new) != common(&keys[1], &old) {
        return false;
    }
    let all: BTreeSet<&Vec<String>> = keys.iter().flatten().collect();
    for key in all {
        compare(lists, &at.join(identity.step(key)), (old.get(key).copied(), new.get(key).copied()), found);
    }
    true
}
