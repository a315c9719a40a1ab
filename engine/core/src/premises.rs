//! Whether what is live is still what a plan was made from, as far as the plan changes it.

use std::collections::HashMap;

use serde_json::Value;

use crate::masks::contains_mask;
use crate::plan::FieldChange;
use crate::sensitive::MASK;

/// The paths of the fields that do not fit a plan any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Those that others changed.
    pub live: Vec<String>,
    /// Those that are as they were applied last, and are wanted otherwise: what they refer to has another value by now.
    pub wanted: Vec<String>,
}

/// The fields that are not what they were when a plan was made: of what the plan changes, and of what it leaves alone and would
/// be changed by now. `planned` and `now` are the changes of one resource, then and now, and `since_applied` is what would be
/// changed by now if what was applied last were there. What is as it is wanted by now is none of them, whoever brought that
/// about.
///
/// Nothing is known of a plan that does not show what was there ([`MASK`]), and nothing is told of it.
pub fn moved(planned: &[FieldChange], now: &[FieldChange], since_applied: &[FieldChange]) -> Moved {
    let mut moved = Moved::default();
    if planned.iter().any(is_hidden) {
        return moved;
    }
    let mut known: HashMap<&str, Vec<Option<&Value>>> = HashMap::new();
    for change in planned {
        known.entry(&change.path).or_default().push(change.before.as_ref());
    }
    for change in now {
        let is_as_applied = || since_applied.iter().any(|it| it.path == change.path && it.before == change.before);
        let paths = match known.get(change.path.as_str()) {
            Some(before) if before.contains(&change.before.as_ref()) => continue,
            None if is_as_applied() => &mut moved.wanted,
            Some(_) | None => &mut moved.live,
        };
        if paths.last() != Some(&change.path) {
            paths.push(change.path.clone());
        }
    }
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
            let told = moved(&planned, &now, &[]);
            assert_eq!(told.live, expected, "{now:?}");
            assert!(told.wanted.is_empty(), "{now:?}");
        }
    }

    #[test]
    fn what_is_as_it_was_applied_and_wanted_otherwise_refers_to_something_that_moved() {
        let planned = changes(&[("a", json!(1))]);
        let now = changes(&[("a", json!(0)), ("b", json!(1)), ("c", json!(2)), ("d", json!(null))]);
        // What the plan changes was something else when it was made.
        let since_applied = changes(&[("a", json!(0)), ("b", json!(1)), ("c", json!(1)), ("d", json!(null))]);
        let told = moved(&planned, &now, &since_applied);
        assert_eq!(told.live, ["a", "c"]);
        assert_eq!(told.wanted, ["b", "d"]);
    }

    #[test]
    fn nothing_has_moved_as_far_as_is_known_where_a_plan_does_not_show_what_was_there() {
        let now = changes(&[("a", json!(2))]);
        for (path, before) in
            [("a", json!(MASK)), ("a", json!({"b": [format!("user:{MASK}")]})), ("list[name=(sensitive)]", json!(1))]
        {
            let told = moved(&changes(&[(path, before.clone())]), &now, &[]);
            assert_eq!(told, Moved::default(), "{path} {before}");
        }
        assert_eq!(moved(&changes(&[("a", json!(1))]), &now, &[]).live, ["a"]);
    }
}
