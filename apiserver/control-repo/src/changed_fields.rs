//! Names the fields that a write changed, for the subject of its commit.

use std::collections::BTreeSet;

use serde_json::Value;

/// How many fields are named; of the others, only how many they are.
const NAMED: usize = 3;
/// How far down in the spec fields are told apart, so that what is free in its form is named as a whole.
const DEPTH: usize = 2;

/// The fields in which two versions of what was authored differ, such as `spec.desiredVersion, metadata.labels`
/// or `spec.a, spec.b, spec.c and 2 more`. It never contains values; empty when nothing differs.
pub(super) fn changed(before: &Value, after: &Value) -> String {
    let mut fields = Vec::new();
    differing("spec".to_owned(), &before["spec"], &after["spec"], DEPTH, &mut fields);
    for name in ["labels", "annotations"] {
        if is_other(&before["metadata"][name], &after["metadata"][name]) {
            fields.push(format!("metadata.{name}"));
        }
    }
    let named = fields[..fields.len().min(NAMED)].join(", ");
    match fields.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
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
        assert_eq!(changed(&before, &after), expected);
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
    fn what_is_empty_is_as_if_left_out() {
        check(json!({"metadata": {"labels": {}}, "spec": {"a": null}}), json!({"metadata": {}, "spec": {}}), "");
    }

    #[test]
    fn many_fields_are_counted() {
        let spec = |value: u32| json!({"spec": {"a": value, "b": value, "c": value, "d": value, "e": value}});
        check(spec(1), spec(2), "spec.a, spec.b, spec.c and 2 more");
    }
}
