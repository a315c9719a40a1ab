//! Drift: differences of live objects from what was applied, for a refresh that changes nothing.
//!
//! The record has what was applied last. The Spec of the last release may differ from it: a failed Run applied a part
//! of another Spec, and a released import was never applied. Therefore live objects are compared with their records.
//! The ordinary decision is used where the Spec equals the record and the object does not move. An object that moves is
//! read in its recorded location.

use super::PlanInput;
use super::decision::{Decision, is_as_wanted, may_hold_untracked, moved_from};
use crate::cluster::Clusters;
use crate::diff::{Deployed, moved};
use crate::ignore::Ignored;
use crate::object::{is_terminating, uid_of};
use crate::owner::{Ownership, take_over_from};
use crate::plan::{Action, Live, PlannedAction, Preview};
use crate::resolve::Resolved;
use crate::spec::{Resource, ResourceType};
use crate::state::StateResource;

/// Whether an object is recorded in another cluster or namespace than it is wanted in, and can be read there. A refresh
/// reads it there.
pub fn is_recorded_elsewhere(clusters: &Clusters, prior: &StateResource, resource: &Resource) -> bool {
    let is_object = [resource.kind, prior.kind] == [ResourceType::Kubernetes; 2];
    is_object && !clusters.is_at_target(prior, resource) && clusters.has(clusters.of_recorded(prior))
}

/// Decides about a wanted resource that is recorded elsewhere, in a refresh; `None` for any other one.
pub(super) fn of_elsewhere(
    input: &PlanInput<'_>,
    (resource, [own, _]): (&Resource, [Option<&StateResource>; 2]),
    resolved: &Resolved<'_>,
) -> Option<Decision> {
    let prior = own.filter(|own| input.refresh && is_recorded_elsewhere(input.clusters, own, resource))?;
    Some(of_record(input, prior, input.live.get(&resource.id), Some((resource, resolved))))
}

/// Adjusts the decision about a wanted resource in a refresh. `records` has the record under its id, then the one under
/// another.
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
        return unreadable(&format!("it is recorded in cluster {from}, which was not read"));
    }
    let refused = match input.previews.get(&resource.id) {
        Some(Preview::Refused(why)) => Some(why.clone()),
        _ => None,
    };
    let is_others = object.is_some_and(|object| input.owner.other(object).is_some());
    // A provider may have converted the wanted values, so that its objects are compared with their records alone.
    let is_comparable = resource.kind == ResourceType::Kubernetes && refused.is_none() && !is_others;
    if is_comparable && is_as_wanted(input, prior, object, (resolved, ignored)) {
        return decision;
    }
    let mut found = of_record(input, prior, live, Some((resource, resolved)));
    if found.drift {
        found.refused = found.refused.or(refused);
    }
    found
}

/// Decides about a recorded resource outside of the Spec, in a refresh.
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

/// The decision about a resource that could not be read.
fn unreadable(why: &str) -> Decision {
    Decision { unverified: Some(why.to_owned()), ..Decision::new(Action::Update) }
}

/// Decides what would restore the applied object, by its record and its live object; `wanted` is its resource in the Spec,
/// if any.
fn of_record(
    input: &PlanInput<'_>,
    prior: &StateResource,
    live: Option<&Live>,
    wanted: Option<(&Resource, &Resolved<'_>)>,
) -> Decision {
    let object = match live {
        Some(Live::Present(object)) if !is_terminating(object) => object,
        Some(Live::Present(_) | Live::Absent) if prior.finished => return Decision::new(Action::Unchanged),
        Some(Live::Present(_) | Live::Absent) => return Decision::create(Vec::new(), true, None),
        Some(Live::Unverified(why)) => return unreadable(why),
        None => return unreadable("the live object was not read"),
    };
    match input.owner.ownership(wanted.and_then(|(resource, _)| take_over_from(resource)), object) {
        Ownership::Free => {}
        Ownership::TakesOver(owner) => {
            // The new owner keeps an object that the Spec does not have.
            let action = if wanted.is_some() { Action::Adopt } else { Action::Forget };
            return Decision { drift: true, owned_by: Some(owner), ..Decision::new(action) };
        }
        Ownership::Refused(_) => {
            let refused = input.owner.other(object).map(|owner| format!("{owner} owns it now"));
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
        unsure: may_hold_untracked(input, &prior.id, [Some(prior), None], object),
        live: object,
        keys: input.keys,
        schema: input.schemas.get(&prior.id).map(AsRef::as_ref),
    });
    let drift = !changes.is_empty();
    Decision { changes, drift, ..Decision::new(if drift { Action::Update } else { Action::Unchanged }) }
}
