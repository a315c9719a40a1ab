//! What moved away from what was applied, for a look that changes nothing.
//!
//! What is recorded is what was applied last, which the Spec of the last release need not be: a run that failed got some of the
//! way to another one, and what an import released was never applied. So what is live is held against the record of it, and a
//! plan decides only where what is wanted is what is recorded, and in its place. What is recorded elsewhere is looked at there.

use super::PlanInput;
use super::decision::{Decision, is_as_wanted, may_hold_unrecorded, moved_from};
use crate::cluster::Clusters;
use crate::diff::{Deployed, moved};
use crate::ignore::Ignored;
use crate::object::{is_going, uid_of};
use crate::owner::{Standing, taken_from};
use crate::plan::{Action, Live, PlannedAction, Preview};
use crate::resolve::Resolved;
use crate::spec::{Resource, ResourceType};
use crate::state::StateResource;

/// Whether an object is recorded in another cluster or namespace than it is wanted in, and somebody can look there. Where nothing
/// is to be changed, what is live of it is what is there.
pub fn is_recorded_elsewhere(clusters: &Clusters, prior: &StateResource, resource: &Resource) -> bool {
    let is_object = [resource.kind, prior.kind] == [ResourceType::Kubernetes; 2];
    is_object && !clusters.is_in_place(prior, resource) && clusters.has(clusters.of_recorded(prior))
}

/// What is decided of a wanted resource that is recorded elsewhere, where nothing is to be changed; `None` of all others.
pub(super) fn of_elsewhere(
    input: &PlanInput<'_>,
    (resource, [own, _]): (&Resource, [Option<&StateResource>; 2]),
    resolved: &Resolved<'_>,
) -> Option<Decision> {
    let prior = own.filter(|own| input.refresh && is_recorded_elsewhere(input.clusters, own, resource))?;
    Some(of_record(input, prior, input.live.get(&resource.id), Some((resource, resolved))))
}

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
    if let Some(from) = moved_from(input, resource, prior) {
        return unseen(&format!("it is recorded in cluster {from}, where nobody looked"));
    }
    let refused = match input.previews.get(&resource.id) {
        Some(Preview::Refused(why)) => Some(why.clone()),
        _ => None,
    };
    let is_others = object.is_some_and(|object| input.owner.other(object).is_some());
    if refused.is_none() && !is_others && is_as_wanted(input, prior, object, (resolved, ignored)) {
        return decision;
    }
    let mut found = of_record(input, prior, live, Some((resource, resolved)));
    if found.drift {
        found.refused = found.refused.or(refused);
    }
    found
}

/// What is said of what is recorded and not wanted.
pub(super) fn of_unwanted(input: &PlanInput<'_>, prior: &StateResource) -> PlannedAction {
    let found = of_record(input, prior, input.live.get(&prior.id), None);
    PlannedAction {
        changes: found.changes,
        depends_on: prior.depends_on.clone(),
        drift: found.drift,
        unverified: found.unverified,
        recreated: found.recreated,
        refused: found.refused,
        owned_by: found.owned_by,
        ..PlannedAction::new(prior.id.clone(), prior.kind, found.action)
    }
}

/// Nobody could look at what is recorded.
fn unseen(why: &str) -> Decision {
    Decision { unverified: Some(why.to_owned()), ..Decision::new(Action::Update) }
}

/// What it would take to bring back what was applied, as far as the record and what is live tell; and how it is wanted, if it is.
fn of_record(
    input: &PlanInput<'_>,
    prior: &StateResource,
    live: Option<&Live>,
    wanted: Option<(&Resource, &Resolved<'_>)>,
) -> Decision {
    let object = match live {
        Some(Live::Present(object)) if !is_going(object) => object,
        Some(Live::Present(_) | Live::Absent) if prior.finished => return Decision::new(Action::Unchanged),
        Some(Live::Present(_) | Live::Absent) => return Decision::create(Vec::new(), true, None),
        Some(Live::Unverified(why)) => return unseen(why),
        None => return unseen("it was not read"),
    };
    match input.owner.standing(wanted.and_then(|(resource, _)| taken_from(resource)), object) {
        Standing::Free => {}
        Standing::TakesOver(owner) => {
            // What is not wanted any more is left to whoever has it.
            let action = if wanted.is_some() { Action::Adopt } else { Action::Forget };
            return Decision { drift: true, owned_by: Some(owner), ..Decision::new(action) };
        }
        Standing::Refused(_) => {
            let refused = input.owner.other(object).map(|owner| format!("it belongs to {owner} now"));
            return Decision { drift: true, refused, ..Decision::new(Action::Update) };
        }
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
    let changes = moved(&Deployed {
        record: prior,
        released: wanted.map(|(_, resolved)| resolved),
        unsure: may_hold_unrecorded(input, &prior.id, [Some(prior), None], object),
        live: object,
        keys: input.keys,
        schema: input.schemas.get(&prior.id).map(AsRef::as_ref),
    });
    let drift = !changes.is_empty();
    Decision { changes, drift, ..Decision::new(if drift { Action::Update } else { Action::Unchanged }) }
}
