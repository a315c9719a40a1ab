//! Whether what is live is still what a plan was made from, as far as the plan changes it.

use std::collections::HashMap;

use serde_json::Value;

use crate::masks::contains_mask;
use crate::plan::FieldChange;
use crate::sensitive::MASK;

/// The paths of the fields that are not what they were when a plan was made: of what the plan changes, and of what it leaves
/// alone and would be changed by now. `planned` and `now` are the changes of one resource, then and now. What is as it is
/// wanted by now is none of them, whoever brought that about.
///
/// Nothing is known of a plan that does not show what was there ([`MASK`]), and nothing is told of it.
pub fn moved(planned: &[FieldChange], now: &[FieldChange]) -> Vec<String> {
    if planned.iter().any(is_hidden) {
        return Vec::new();
    }
    let mut known: HashMap<&str, Vec<Option<&Value>>> = HashMap::new();
    for change in planned {
        known.entry(&change.path).or_default().push(change.before.as_ref());
    }
    let is_as_planned = |change: &&FieldChange| {
        let before = known.get(change.path.as_str());
        before.is_some_and(|before| before.contains(&change.before.as_ref()))
    };
    let mut moved: Vec<String> =
        now.iter().filter(|change| !is_as_planned(change)).map(|change| change.path.clone()).collect();
    moved.dedup();
    moved
}

fn is_hidden(change: &FieldChange) -> bool {
    change.path.contains(MASK) || change.before.as_ref().is_some_and(|before| contains_mask(before) || has_mask(before))
}

/// Whether something in a value that is shown is not.
fn has_mask(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MASK),
        Value::Object(map) => map.values().any(has_mask),
        Value::Array(items) => items.iter().any(has_mask),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Changes by path, with what was there; `null` where nothing was.
    fn changes(of: &[(&str, Value)]) -> Vec<FieldChange> {
        let change = |(path, before): &(&str, Value)| FieldChange {
            path: (*path).to_owned(),
            before: Some(before.clone()).filter(|before| !before.is_null()),
            after: Some(json!("wanted")),
            drift: false,
        };
        of.iter().map(change).collect()
    }

    #[test]
    fn what_has_another_value_or_would_be_changed_besides_has_moved() {
        let planned =
            changes(&[("a", json!(1)), ("b", json!(null)), ("list[0]", json!("x")), ("list[0]", json!(null))]);
        for (now, expected) in [
            (planned.clone(), vec![]),
            // Somebody brought about what is wanted.
            (changes(&[("a", json!(1))]), vec![]),
            (changes(&[("a", json!(2)), ("b", json!(null))]), vec!["a"]),
            (changes(&[("a", json!(null)), ("b", json!(1))]), vec!["a", "b"]),
            (changes(&[("a", json!(1)), ("c", json!(null)), ("c", json!(null))]), vec!["c"]),
            (changes(&[("list[0]", json!(null)), ("list[0]", json!("y"))]), vec!["list[0]"]),
        ] {
            assert_eq!(moved(&planned, &now), expected, "{now:?}");
        }
    }

    #[test]
    fn nothing_has_moved_as_far_as_is_known_where_a_plan_does_not_show_what_was_there() {
        let now = changes(&[("a", json!(2))]);
        for (path, before) in
            [("a", json!(MASK)), ("a", json!({"b": [format!("user:{MASK}")]})), ("list[name=(sensitive)]", json!(1))]
        {
            assert_eq!(moved(&changes(&[(path, before.clone())]), &now), [""; 0], "{path} {before}");
        }
        assert_eq!(moved(&changes(&[("a", json!(1))]), &now), ["a"]);
    }
}
