//! Names the fields that a decision changed, for the history in which it is read.

use std::collections::BTreeSet;

use serde_json::Value;

use super::layout::is_authored_annotation;

/// How many fields are named; of the others, only how many they are.
const NAMED: usize = 3;
/// How far down in the spec fields are told apart, so that what is free in its form is named as a whole.
const DEPTH: usize = 2;

/// The authored fields in which two versions of an object differ, such as `spec.desiredVersion, metadata.labels`
/// or `spec.a, spec.b, spec.c and 2 more`. Values are never told; empty when nothing differs.
pub(super) fn changed(before: &[u8], after: &[u8]) -> String {
    let read = |json: &[u8]| serde_json::from_slice::<Value>(json).unwrap_or_default();
    let (before, after) = (read(before), read(after));
    let mut fields = Vec::new();
    differing("spec".to_owned(), &before["spec"], &after["spec"], DEPTH, &mut fields);
    if is_other(&before["metadata"]["labels"], &after["metadata"]["labels"]) {
        fields.push("metadata.labels".to_owned());
    }
    if is_other(&annotations(&before), &annotations(&after)) {
        fields.push("metadata.annotations".to_owned());
    }
    let named = fields[..fields.len().min(NAMED)].join(", ");
    match fields.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// What people write of the annotations.
fn annotations(object: &Value) -> Value {
    let all = object["metadata"]["annotations"].as_object().into_iter().flatten();
    all.filter(|(name, _)| is_authored_annotation(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether two values differ in more than one being left out and the other empty.
fn is_other(before: &Value, after: &Value) -> bool {
    let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    before != after && !(is_empty(before) && is_empty(after))
}

fn differing(path: String, before: &Value, after: &Value, depth: usize, fields: &mut Vec<String>) {
    if !is_other(before, after) {
        return;
    }
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return fields.push(path) };
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    if depth == 0 || !keys.iter().all(|key| is_word(key)) {
        return fields.push(path);
    }
    for key in keys {
        let side = |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or_default();
        differing(format!("{path}.{key}"), &side(old), &side(new), depth - 1, fields);
    }
}

/// Whether a key reads well in a path.
fn is_word(key: &str) -> bool {
    (1..=63).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: Value, after: Value, expected: &str) {
        assert_eq!(changed(before.to_string().as_bytes(), after.to_string().as_bytes()), expected);
    }

    #[test]
    fn fields_are_named_and_values_are_not() {
        check(
            json!({"metadata": {"labels": {"env": "dev"}}, "spec": {"desiredVersion": "v1", "project": "web"}}),
            json!({"metadata": {}, "spec": {"desiredVersion": "v2", "project": "web"}}),
            "spec.desiredVersion, metadata.labels",
        );
        check(json!({"spec": {"a": {"b": {"c": 1}}}}), json!({"spec": {"a": {"b": {"c": 2}}}}), "spec.a.b");
        check(json!({"spec": {"a": [1]}}), json!({"spec": {"a": [1, 2]}}), "spec.a");
        check(json!({"spec": {"a": {"x y": 1}}}), json!({"spec": {"a": {"x y": 2}}}), "spec.a");
        check(json!({"spec": {"a": "x"}}), json!({"spec": {"b": "x"}}), "spec.a, spec.b");
    }

    #[test]
    fn what_people_do_not_write_is_no_change() {
        let note = |last: &str| json!({"kubectl.kubernetes.io/last-applied-configuration": last});
        check(
            json!({"metadata": {"annotations": note("1"), "labels": {}, "generation": 1}, "status": 1}),
            json!({"metadata": {"annotations": note("2"), "generation": 2}, "status": 2}),
            "",
        );
    }

    #[test]
    fn many_fields_are_counted() {
        let spec = |value: u32| json!({"spec": {"a": value, "b": value, "c": value, "d": value, "e": value}});
        check(spec(1), spec(2), "spec.a, spec.b, spec.c and 2 more");
    }
}
