//! The action of a resource whose provider makes the plan.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::PlanInput;
use super::decision::Decision;
use crate::diff::{Comparison, Deployed, moved, of_new, three_way};
use crate::import::{IMPORT_ID, is_never_deleted};
use crate::path::FieldPath;
use crate::plan::{Action, FieldChange, Live, ProviderPlan};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::secret_digest::DigestKeys;
use crate::sensitive::UNKNOWN;
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;

/// Decides by the plan of the provider. An object without a record was found by its import id, and is adopted.
///
/// # Errors
///
/// The object to import does not exist, or the plan would delete it to replace it.
pub(super) fn decide(
    input: &PlanInput<'_>,
    resource: &Resource,
    prior: Option<&StateResource>,
    resolved: &Resolved<'_>,
    plan: &ProviderPlan,
) -> Result<Decision, Problem> {
    let live = match input.live.get(&resource.id) {
        Some(Live::Present(live)) => Some(live),
        Some(Live::Absent | Live::Unverified(_)) | None => None,
    };
    // A record of another resource type is of another object, which the replacement deletes.
    let is_other = prior.is_some_and(|prior| prior.kind != resource.kind);
    let action = match (prior, live) {
        _ if is_other => Action::Replace,
        (_, None) => Action::Create,
        (None, Some(_)) => Action::Adopt,
        (Some(_), Some(_)) => plan.action,
    };
    let prior = prior.filter(|_| !is_other);
    if prior.is_none() && live.is_none() && is_never_deleted(&resource.extensions) {
        let id = resource.extensions.get(IMPORT_ID).and_then(Value::as_str).unwrap_or_default();
        let message = format!("there is no object {id} to import; remove {IMPORT_ID} to create an object");
        return Err(Problem::new(reason::NOT_THERE, message).of(&resource.id).at(format!("extensions.{IMPORT_ID}")));
    }
    if live.is_some() && plan.action == Action::Replace && is_never_deleted(&resource.extensions) {
        let paths: Vec<String> = plan.replaced_by.iter().map(FieldPath::to_string).collect();
        let why = if paths.is_empty() { String::new() } else { format!(" because of {}", paths.join(", ")) };
        let message = format!(
            "the change needs another object{why}, and an imported object is not deleted; restore the values, or \
             remove {IMPORT_ID} to replace the object"
        );
        return Err(Problem::new(reason::REJECTED, message).of(&resource.id).at("attributes"));
    }
    // A lost call may have set sensitive values that the Spec no longer has.
    let unsure = input.state.open.iter().any(|call| call.id == resource.id);
    let planned = Planned { plan, live, prior, sensitive: &resolved.sensitive, keys: input.keys };
    let mut changes = changes_of(&resource.id, &planned, unsure);
    let drifted: HashSet<String> = match (prior, live) {
        (Some(record), Some(live)) => {
            let deployed = Deployed { record, released: None, unsure: false, live, keys: input.keys, schema: None };
            moved(&deployed).into_iter().map(|change| change.path).collect()
        }
        _ => HashSet::new(),
    };
    for change in &mut changes {
        change.drift = drifted.contains(&change.path);
    }
    let is_covered = resolved.unknown.is_subset(&plan.config_unknown);
    Ok(Decision {
        drift: changes.iter().any(|change| change.drift) || (prior.is_some() && live.is_none()),
        unverified: resolved.waits().filter(|_| !is_covered),
        changes,
        takes_over: is_other && live.is_some(),
        ..Decision::new(action)
    })
}

/// The plan of a provider, and what it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// The plan.
    pub plan: &'a ProviderPlan,
    /// The object before.
    pub live: Option<&'a Map<String, Value>>,
    /// Its record.
    pub prior: Option<&'a StateResource>,
    /// The sensitive paths.
    pub sensitive: &'a BTreeSet<FieldPath>,
    /// The keys of the digests of sensitive values.
    pub keys: &'a DigestKeys,
}

/// The fields that a plan of a provider changes, with sensitive values masked.
pub fn changes(id: &ResourceId, planned: &Planned<'_>) -> Vec<FieldChange> {
    changes_of(id, planned, false)
}

/// The same, where a lost call may have set values without a record, if `unsure`.
fn changes_of(id: &ResourceId, planned: &Planned<'_>, unsure: bool) -> Vec<FieldChange> {
    let Planned { plan, live, prior, sensitive, keys } = *planned;
    let after = Resolved {
        attributes: Cow::Borrowed(&plan.after),
        unknown: plan.unknown.clone(),
        sensitive: sensitive.union(&plan.sensitive).cloned().collect(),
    };
    let records: Vec<_> = prior.into_iter().flat_map(StateResource::objects).collect();
    let kind = ResourceType::Terraform;
    let mut changes = match live {
        Some(_) if plan.action == Action::Unchanged => Vec::new(),
        Some(live) => three_way(&Comparison {
            id: prior.map_or(id, StateResource::digest_id),
            kind,
            // All attributes are the provider's: one that the plan does not have goes.
            prior: Some(live),
            records: &records,
            unsure,
            desired: &after,
            live,
            keys,
            schema: None,
        }),
        None => of_new(id, kind, &after, keys),
    };
    let replaced_by: Vec<String> = plan.replaced_by.iter().map(FieldPath::to_string).collect();
    for change in &mut changes {
        [&mut change.before, &mut change.after].into_iter().flatten().for_each(drop_nulls);
        let is_it = |path: &String| is_in(&change.path, path) || is_in(path, &change.path);
        change.forces_replacement = replaced_by.iter().any(is_it);
    }
    changes
}

/// Removes attributes without a value from a value that is shown as a whole.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a shown path is another one, or below it.
fn is_in(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// What an apply compares with its own plan: the planned values, without those that may differ.
pub fn disagreements(planned: &[FieldChange], now: &[FieldChange]) -> Vec<String> {
    let is_unknown = |change: &FieldChange| change.after.as_ref().is_some_and(|after| after == UNKNOWN);
    let is_known_later = |path: &str| planned.iter().any(|change| is_unknown(change) && is_in(path, &change.path));
    let of = |changes: &[FieldChange], path: &str| changes.iter().find(|change| change.path == path).cloned();
    let mut paths: Vec<&str> = planned.iter().chain(now).map(|change| change.path.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    let differs = |path: &&str| {
        let agrees = match (of(planned, path), of(now, path)) {
            (Some(planned), Some(now)) => match (planned.after, now.after) {
                (Some(planned), Some(now)) => may_become(&planned, &now),
                (planned, now) => planned == now,
            },
            (Some(_), None) | (None, Some(_)) | (None, None) => false,
        };
        !agrees && !is_known_later(path)
    };
    paths.into_iter().filter(differs).map(str::to_owned).collect()
}

/// Whether a planned value may turn out to be another one: its unknown parts are known later.
fn may_become(planned: &Value, now: &Value) -> bool {
    match (planned, now) {
        _ if planned == now || planned == UNKNOWN => true,
        (Value::Object(planned), Value::Object(now)) => {
            let keys: BTreeSet<&String> = planned.keys().chain(now.keys()).collect();
            keys.into_iter().all(|key| match (planned.get(key), now.get(key)) {
                (Some(planned), now) => may_become(planned, now.unwrap_or(&Value::Null)),
                (None, now) => now == Some(&Value::Null),
            })
        }
        (Value::Array(planned), Value::Array(now)) => {
            planned.len() == now.len() && planned.iter().zip(now).all(|(planned, now)| may_become(planned, now))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn later_plan_may_know_more() {
        let change = |path: &str, after: serde_json::Value| FieldChange {
            path: path.to_owned(),
            after: Some(after),
            ..FieldChange::default()
        };
        let planned = [change("a", json!(1)), change("id", json!(UNKNOWN)), change("tags", json!(UNKNOWN))];
        assert!(disagreements(&planned, &planned).is_empty());
        let known = [change("a", json!(1)), change("id", json!("x")), change("tags[0]", json!("y"))];
        assert!(disagreements(&planned, &known).is_empty());
        let parts = [change("m", json!({"a": UNKNOWN, "b": [1, UNKNOWN]}))];
        assert!(disagreements(&parts, &[change("m", json!({"a": "x", "b": [1, 2]}))]).is_empty());
        for other in [json!({"a": "x", "b": [2, 2]}), json!({"a": "x", "b": [1]}), json!({"b": [1, 2], "c": 1})] {
            assert_eq!(disagreements(&parts, &[change("m", other)]), ["m"]);
        }
        let other = [change("a", json!(2)), change("b", json!(3))];
        assert_eq!(disagreements(&planned, &other), ["a", "b"]);
        assert_eq!(disagreements(&planned, &[]), ["a"]);
        let map = |value: &str| [change("map", json!({"k": value, "same": 1}))];
        assert!(disagreements(&map(UNKNOWN), &map("x")).is_empty());
        assert_eq!(disagreements(&map("y"), &map("x")), ["map"]);
    }
}
