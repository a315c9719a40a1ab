//! Pruned fields: fields of an applied object that a server dropped, because the schema of the kind does not have them.

use serde_json::{Map, Value};

/// Fields of every object, and `status`, which has a subresource of its own.
const OF_ALL: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// Whether the server dropped a `wanted` field from the object that it `made`.
///
/// Values may differ, since admission may change them, and lists may have items of others. A field that admission removed
/// cannot be distinguished. A null may be absent.
pub fn is_pruned(wanted: &Map<String, Value>, made: &Map<String, Value>) -> bool {
    let is_of_kind = |key: &str| !OF_ALL.contains(&key);
    !wanted.iter().filter(|(key, _)| is_of_kind(key)).all(|(key, value)| has_field(made, key, value, Values::Any))
}

/// Which values count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Any,
    Same,
}

fn has_field(made: &Map<String, Value>, key: &str, wanted: &Value, values: Values) -> bool {
    wanted.is_null() || made.get(key).is_some_and(|made| contains(wanted, made, values))
}

fn contains(wanted: &Value, made: &Value, values: Values) -> bool {
    match (wanted, made) {
        (Value::Object(wanted), Value::Object(made)) => {
            wanted.iter().all(|(key, wanted)| has_field(made, key, wanted, values))
        }
        (Value::Array(wanted), Value::Array(made)) => {
            let are_in_place = || wanted.iter().zip(made).all(|(wanted, made)| contains(wanted, made, values));
            (wanted.len() == made.len() && are_in_place()) || are_among(wanted, made)
        }
        _ => values == Values::Any || wanted == made,
    }
}

/// Whether each item is in a list, by its values.
fn are_among(wanted: &[Value], made: &[Value]) -> bool {
    let mut next = 0;
    wanted.iter().all(|wanted| {
        let mut places = (next..made.len()).chain(0..next);
        let found = places.find(|place| contains(wanted, &made[*place], Values::Same));
        next = found.map_or(next, |place| place + 1);
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(wanted: Value, made: Value) -> bool {
        let object = |spec: Value| json!({"kind": "Widget", "spec": spec}).as_object().unwrap().clone();
        is_pruned(&object(wanted), &object(made))
    }

    #[test]
    fn pruned_field_is_found_at_any_depth() {
        for (wanted, made) in [
            (json!({"a": 1, "b": 2}), json!({"a": 1})),
            (json!({"a": {"b": {"c": 1}}}), json!({"a": {"b": {}}})),
            (json!({"a": {}}), json!({})),
            (json!([{"name": "a", "b": 1}]), json!([{"name": "a"}])),
            // Of the items there, the one of another that has such a field is not ours.
            (json!([{"name": "a", "b": 1}]), json!([{"name": "c", "b": 2}, {"name": "a"}])),
            (json!([["a", {"b": 1}]]), json!([["a", {}]])),
        ] {
            assert!(check(wanted.clone(), made.clone()), "{wanted} {made}");
        }
    }

    #[test]
    fn admission_changes_are_not_pruning() {
        for (wanted, made) in [
            (json!({"a": "1"}), json!({"a": 1, "b": 2})),
            (json!({"a": null, "b": {}}), json!({"b": {"c": 1}})),
            (json!({"a": {"b": 1}}), json!({"a": "b"})),
            (json!([{"name": "a", "b": "0.5"}]), json!([{"name": "a", "b": "500m", "c": 1}])),
            (json!([{"name": "a"}, {"name": "b", "c": 1}]), json!([{"name": "b", "c": 1}, {"name": "a"}])),
            (json!([{"name": "b"}, {"name": "a"}]), json!([{"name": "a"}, {"name": "theirs"}, {"name": "b"}])),
            (json!(["a", "a"]), json!(["a"])),
        ] {
            assert!(!check(wanted.clone(), made.clone()), "{wanted} {made}");
        }
        // What is said of all objects no definition leaves out, and a status is written by another way.
        let of = |object: Value| object.as_object().unwrap().clone();
        assert!(!is_pruned(&of(json!({"metadata": {"name": "a"}, "status": {"a": 1}})), &of(json!({}))));
    }
}
