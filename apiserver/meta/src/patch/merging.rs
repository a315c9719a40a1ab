//! Merge patches as upstream's `json-patch.v4` applies them: RFC 7386, and besides, where no map was before, nulls go from
//! the maps that are in lists.

use serde_json::{Map, Value};

/// Merges a patch into a document.
pub(super) fn merge(document: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            document.remove(key);
            continue;
        }
        match (document.get_mut(key), value) {
            (Some(Value::Object(before)), Value::Object(patch)) => merge(before, patch),
            (before, value) => {
                let mut value = value.clone();
                // What takes the place of a map is left as it was sent.
                if !matches!(before, Some(Value::Object(_))) {
                    prune(&mut value);
                }
                document.insert(key.clone(), value);
            }
        }
    }
}

/// Takes the nulls out of all maps; in lists they stay.
pub(super) fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|_, value| {
            prune(value);
            !value.is_null()
        }),
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
