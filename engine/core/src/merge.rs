//! Merge of an applied object into the live one, as server-side apply does it.
//!
//! Start at [`merged`]. Maps are merged by field, lists by their keys or values where the [`Schema`] says so, and
//! atomic lists and maps are replaced. Nothing is removed: a server removes fields by their managers, which
//! `managedFields` lists.
//!
//! Follows `merge` of sigs.k8s.io/structured-merge-diff/v6/typed.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::path::FieldPath;
use crate::schema::{ListKey, Merge, Schema};

/// The live object with the `wanted` one applied over it. Fields that are null in `wanted` are left out, since a server reads
/// null as if the field were missing.
pub fn merged(schema: &Schema, live: &Map<String, Value>, wanted: &Map<String, Value>) -> Map<String, Value> {
    let mut object = live.clone();
    merge_maps(schema, &FieldPath::default(), &mut object, wanted);
    object
}

fn merge_maps(schema: &Schema, path: &FieldPath, live: &mut Map<String, Value>, wanted: &Map<String, Value>) {
    for (key, wanted) in wanted {
        if wanted.is_null() {
            live.remove(key);
            continue;
        }
        let merged = merged_value(schema, &path.key(key), live.remove(key), wanted);
        live.insert(key.clone(), merged);
    }
}

fn merged_value(schema: &Schema, path: &FieldPath, live: Option<Value>, wanted: &Value) -> Value {
    match (live, wanted) {
        (Some(Value::Object(mut live)), Value::Object(wanted)) if !schema.is_atomic_map(path) => {
            merge_maps(schema, path, &mut live, wanted);
            live.into()
        }
        (Some(Value::Array(live)), Value::Array(wanted)) => match schema.list(path) {
            Some(Merge::ByKeys(keys)) => merged_items(schema, path, keys, live, wanted),
            Some(Merge::Set) => {
                let known: HashSet<&Value> = live.iter().collect();
                let new: Vec<Value> = wanted.iter().filter(|item| !known.contains(item)).cloned().collect();
                live.into_iter().chain(new).collect()
            }
            Some(Merge::AtomicMap) | None => wanted.clone().into(),
        },
        (_, wanted) => wanted.clone(),
    }
}

/// The wanted items in their order, each merged with its live item. The other live items stay in front of the item that
/// follows them.
fn merged_items(schema: &Schema, path: &FieldPath, keys: &[ListKey], live: Vec<Value>, wanted: &[Value]) -> Value {
    let key_of = |item: &Value| keys.iter().map(|key| key.of(item)).collect::<Option<Vec<String>>>();
    let is_wanted: HashSet<Vec<String>> = wanted.iter().filter_map(key_of).collect();
    let mut shared: HashMap<Vec<String>, Value> = HashMap::new();
    // Live items that are not wanted, by the key of the wanted item that follows them.
    let mut others: HashMap<Option<Vec<String>>, Vec<Value>> = HashMap::new();
    let mut before = Vec::new();
    for item in live {
        match key_of(&item).filter(|key| is_wanted.contains(key)) {
            Some(key) => {
                others.entry(Some(key.clone())).or_default().append(&mut before);
                shared.insert(key, item);
            }
            None => before.push(item),
        }
    }
    let mut items = Vec::new();
    for (index, item) in wanted.iter().enumerate() {
        let key = key_of(item);
        items.extend(others.remove(&key).unwrap_or_default());
        let live = key.and_then(|key| shared.remove(&key));
        items.push(merged_value(schema, &path.index(index), live, item));
    }
    items.extend(before);
    items.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(api_version: &str, kind: &str, live: Value, wanted: Value, expected: Value) {
        let object = |rest: &Value| {
            let mut object = json!({"apiVersion": api_version, "kind": kind}).as_object().unwrap().clone();
            object.extend(rest.as_object().unwrap().clone());
            object
        };
        let (live, wanted, expected) = (object(&live), object(&wanted), object(&expected));
        assert_eq!(merged(Schema::built_in(&wanted).unwrap(), &live, &wanted), expected);
    }

    #[test]
    fn maps_merge_and_atomic_values_replace() {
        check(
            "v1",
            "Service",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"selector": {"app": "a"}, "clusterIP": "10.0.0.1"}}),
            json!({"metadata": {"labels": {"b": "3", "c": "4"}}, "spec": {"selector": {"role": "b"}, "clusterIP": null}}),
            json!({"metadata": {"labels": {"a": "1", "b": "3", "c": "4"}}, "spec": {"selector": {"role": "b"}}}),
        );
    }

    #[test]
    fn keyed_items_merge_in_wanted_order() {
        let ports = |ports: Value| json!({"spec": {"ports": ports}});
        check(
            "v1",
            "Service",
            ports(json!([
                {"port": 53, "protocol": "UDP", "nodePort": 1},
                {"port": 80, "protocol": "TCP", "nodePort": 2},
                {"port": 90, "protocol": "TCP", "nodePort": 3},
                {"port": 99, "protocol": "TCP", "nodePort": 4},
            ])),
            // The protocol of an item that says none is TCP.
            ports(json!([{"port": 90, "name": "b"}, {"port": 80}, {"port": 53}])),
            ports(json!([
                {"port": 90, "protocol": "TCP", "nodePort": 3, "name": "b"},
                {"port": 53, "protocol": "UDP", "nodePort": 1},
                {"port": 80, "protocol": "TCP", "nodePort": 2},
                {"port": 53},
                {"port": 99, "protocol": "TCP", "nodePort": 4},
            ])),
        );
    }

    #[test]
    fn sets_unite_and_atomic_lists_replace() {
        check(
            "apps/v1",
            "Deployment",
            json!({"metadata": {"finalizers": ["a/x", "b/x"]},
                "spec": {"template": {"spec": {"containers": [{"name": "a", "args": ["1", "2"]}, {"name": "b"}]}}}}),
            json!({"metadata": {"finalizers": ["c/x", "a/x"]},
                "spec": {"template": {"spec": {"containers": [{"name": "a", "args": ["3"]}]}}}}),
            json!({"metadata": {"finalizers": ["a/x", "b/x", "c/x"]},
                "spec": {"template": {"spec": {"containers": [{"name": "a", "args": ["3"]}, {"name": "b"}]}}}}),
        );
    }
}
