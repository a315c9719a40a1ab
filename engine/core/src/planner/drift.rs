//! What moved away from what was applied, for a look that changes nothing.
//!
//! What is recorded is what was applied last, which the Spec of the last release need not be: a run that failed got some of the
//! way to another one, and what an import released was never applied. So what is live is held against the record of it, and a
//! plan decides only where what is wanted is what is recorded.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Decision, PlanInput, moved_from};
use crate::diff::moved;
use crate::ignore::Ignored;
use crate::object::{is_going, uid_of};
use crate::plan::{Action, Live, PlannedAction, Preview};
use crate::resolve::Resolved;
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceType};
use crate::state::StateResource;

/// What is decided of a wanted resource, for which a plan decides as told. `records` has what is recorded under its id, then
/// what is under another.
pub(super) fn of_wanted(
    input: &PlanInput<'_>,
    (resource, records): (&Resource, [Option<&StateResource>; 2]),
    (resolved, ignored): (&Resolved<'_>, &Ignored),
    decision: Decision,
) -> Decision {
    let live = input.live.get(&resource.id);
    let object = match live {
        Some(Live::Present(object)) => Some(object),
        Some(Live::Absent | Live::Unverified(_)) | None => None,
    };
    let recorded = || records.into_iter().flatten();
    let is_of_live = |prior: &&StateResource| prior.uid().is_some() && prior.uid() == object.and_then(uid_of);
    let Some(prior) = recorded().find(is_of_live).or_else(|| recorded().next()) else { return decision };
    // Nobody looked where it is recorded.
    if moved_from(input, resource, prior).is_some() {
        return decision;
    }
    let refused = match input.previews.get(&resource.id) {
        Some(Preview::Refused(why)) => Some(why.clone()),
        _ => None,
    };
    let is_others = object.is_some_and(|object| input.owner.other(object).is_some());
    if refused.is_none() && !is_others && is_as_wanted(input, prior, object, (resolved, ignored)) {
        return decision;
    }
    let mut found = of_record(input, prior, live);
    if found.drift {
        found.refused = found.refused.or(refused);
    }
    found
}

/// What is said of what is recorded and not wanted.
pub(super) fn of_unwanted(input: &PlanInput<'_>, prior: &StateResource) -> PlannedAction {
    let found = of_record(input, prior, input.live.get(&prior.id));
    PlannedAction {
        changes: found.changes,
        depends_on: prior.depends_on.clone(),
        drift: found.drift,
        unverified: found.unverified,
        recreated: found.recreated,
        refused: found.refused,
        ..PlannedAction::new(prior.id.clone(), prior.kind, found.action)
    }
}

/// What it would take to bring back what was applied, as far as the record and what is live tell.
fn of_record(input: &PlanInput<'_>, prior: &StateResource, live: Option<&Live>) -> Decision {
    let unseen = |why: &str| Decision { unverified: Some(why.to_owned()), ..Decision::new(Action::Update) };
    let object = match live {
        Some(Live::Present(object)) if !is_going(object) => object,
        Some(Live::Present(_) | Live::Absent) => return Decision::create(Vec::new(), true, None),
        Some(Live::Unverified(why)) => return unseen(why),
        None => return unseen("it was not read"),
    };
    if let Some(owner) = input.owner.other(object) {
        let refused = Some(format!("it belongs to {owner} now"));
        return Decision { drift: true, refused, ..Decision::new(Action::Update) };
    }
    if input.owner.is_recreated(prior, object) {
        return Decision { drift: true, recreated: true, ..Decision::new(Action::Adopt) };
    }
    // In another version fields have other names.
    let is_comparable =
        prior.kind != ResourceType::Kubernetes || prior.attributes.get("apiVersion") == object.get("apiVersion");
    if !is_comparable {
        return Decision::new(Action::Unchanged);
    }
    let schema = input.schemas.get(&prior.id).map(AsRef::as_ref);
    let changes = moved(prior, object, input.keys, schema);
    let drift = !changes.is_empty();
    Decision { changes, drift, ..Decision::new(if drift { Action::Update } else { Action::Unchanged }) }
}

/// Whether what is recorded of a resource is what is wanted of it, so that the infrastructure can be asked about it.
fn is_as_wanted(
    input: &PlanInput<'_>,
    prior: &StateResource,
    live: Option<&Map<String, Value>>,
    (resolved, ignored): (&Resolved<'_>, &Ignored),
) -> bool {
    let mut sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
    let mut recorded = Cow::Borrowed(&prior.attributes);
    if let Some(live) = live {
        sensitive.extend(&Sensitive::of(live, &resolved.sensitive));
        if !ignored.is_empty() {
            recorded = Cow::Owned(ignored.as_live(recorded.into_owned(), live));
        }
    }
    let wanted = sensitive.recorded_ways(&prior.id, &resolved.attributes, input.keys);
    resolved.unknown.is_empty() && wanted.contains(&recorded)
}
