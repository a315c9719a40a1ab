//! Stale-plan check: compares the live fields of a resource with those that its plan was made from.
//!
//! Start at [`stale_fields`].

use std::collections::HashMap;

use serde_json::Value;

use crate::plan::FieldChange;
use crate::secret_digest::contains_mask;
use crate::sensitive::MASK;

/// The paths of fields that differ from those of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaleFields {
    /// Fields that other writers changed since the plan.
    pub live: Vec<String>,
    /// Fields that are as they were applied last, but whose references resolve to another value now.
    pub referenced: Vec<String>,
}

/// The fields of one resource that changed since its plan was made.
///
/// `planned` and `now` are the changes that the plan has, and that a plan would have now. `since_applied` are the changes that a
/// plan would have now if the object were as it was applied last. Fields that already have their wanted value are not stale.
///
/// Returns nothing for a plan with masked values ([`MASK`]), since these cannot be compared.
pub fn stale_fields(planned: &[FieldChange], now: &[FieldChange], since_applied: &[FieldChange]) -> StaleFields {
    let mut stale = StaleFields::default();
    if planned.iter().any(is_hidden) {
        return stale;
    }
    let mut known: HashMap<&str, Vec<Option<&Value>>> = HashMap::new();
    for change in planned {
        known.entry(&change.path).or_default().push(change.before.as_ref());
    }
    for change in now {
        let is_as_applied = || since_applied.iter().any(|it| it.path == change.path && it.before == change.before);
        let paths = match known.get(change.path.as_str()) {
            Some(before) if before.contains(&change.before.as_ref()) => continue,
            None if is_as_applied() => &mut stale.referenced,
            Some(_) | None => &mut stale.live,
        };
        if paths.last() != Some(&change.path) {
            paths.push(change.path.clone());
        }
    }
    stale
}

fn is_hidden(change: &FieldChange) -> bool {
    change.path.contains(MASK) || change.before.as_ref().is_some_and(|before| contains_mask(before) || has_mask(before))
}

/// Whether a shown value has a mask in it.
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
            ..FieldChange::default()
        };
        of.iter().map(change).collect()
    }

    #[test]
    fn changed_fields_are_stale() {
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
            let told = stale_fields(&planned, &now, &[]);
            assert_eq!(told.live, expected, "{now:?}");
            assert!(told.referenced.is_empty(), "{now:?}");
        }
    }

    #[test]
    fn changed_reference_is_stale() {
        let planned = changes(&[("a", json!(1))]);
        let now = changes(&[("a", json!(0)), ("b", json!(1)), ("c", json!(2)), ("d", json!(null))]);
        // What the plan changes was something else when it was made.
        let since_applied = changes(&[("a", json!(0)), ("b", json!(1)), ("c", json!(1)), ("d", json!(null))]);
        let told = stale_fields(&planned, &now, &since_applied);
        assert_eq!(told.live, ["a", "c"]);
        assert_eq!(told.referenced, ["b", "d"]);
    }

    #[test]
    fn masked_plan_has_no_stale_fields() {
        let now = changes(&[("a", json!(2))]);
        for (path, before) in
            [("a", json!(MASK)), ("a", json!({"b": [format!("user:{MASK}")]})), ("list[name=(sensitive)]", json!(1))]
        {
            let told = stale_fields(&changes(&[(path, before.clone())]), &now, &[]);
            assert_eq!(told, StaleFields::default(), "{path} {before}");
        }
        assert_eq!(stale_fields(&changes(&[("a", json!(1))]), &now, &[]).live, ["a"]);
    }
}
