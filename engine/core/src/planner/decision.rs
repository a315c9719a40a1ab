//! The action of one resource, decided by what is wanted, recorded and live.
//!
//! Start at [`decide_placed`] for a resource of the Spec, and at [`remove`] for a recorded one outside of it. Neither reads other
//! resources: `identities` has found the records of each object by then.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{PlanInput, data_source, provider};
use crate::conflict::{FieldConflict, masked};
use crate::diff::{Comparison, against_preview, of_new, three_way};
use crate::hook;
use crate::ignore::Ignored;
use crate::import::is_never_deleted;
use crate::object::{is_terminating, uid_of};
use crate::owner::{Owner, is_marked};
use crate::plan::{Action, FieldChange, Live, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;
use crate::untracked;

/// The action of a resource; the fields are those of a [`PlannedAction`].
#[derive(Default)]
pub(super) struct Decision {
    pub(super) action: Action,
    pub(super) changes: Vec<FieldChange>,
    pub(super) drift: bool,
    pub(super) unverified: Option<String>,
    pub(super) recreated: bool,
    pub(super) takes_over: bool,
    pub(super) taken: Vec<FieldConflict>,
    pub(super) refused: Option<String>,
    pub(super) owned_by: Option<String>,
    pub(super) imported: bool,
}

impl Decision {
    pub(super) fn new(action: Action) -> Self {
        Self { action, ..Self::default() }
    }

    /// Creates an object that does not exist, as far as is known.
    pub(super) fn create(changes: Vec<FieldChange>, drift: bool, unverified: Option<String>) -> Self {
        Self { changes, drift, unverified, ..Self::new(Action::Create) }
    }
}

/// The recorded cluster of an object that moves to another cluster or namespace. An object with the recorded uid in the target
/// cluster does not move: the cluster has a new name.
pub(super) fn moved_from<'a>(input: &PlanInput<'a>, resource: &Resource, prior: &'a StateResource) -> Option<&'a str> {
    let is_there = match input.live.get(&resource.id)? {
        Live::Present(live) => prior.uid().is_some() && uid_of(live) == prior.uid(),
        Live::Absent | Live::Unverified(_) => false,
    };
    let is_object = [resource.kind, prior.kind] == [ResourceType::Kubernetes; 2];
    let has_moved = is_object && !input.clusters.is_at_target(prior, resource) && !is_there;
    has_moved.then(|| input.clusters.of_recorded(prior))
}

/// Whether others created the live object in place of the recorded one, under whichever id it is recorded. A terminating object
/// counts as absent.
fn is_recreated(input: &PlanInput<'_>, id: &ResourceId, records: [Option<&StateResource>; 2]) -> bool {
    let Some(Live::Present(live)) = input.live.get(id).filter(|_| records.iter().any(Option::is_some)) else {
        return false;
    };
    !is_terminating(live) && records.into_iter().flatten().all(|prior| input.owner.is_recreated(prior, live))
}

/// Decides about a resource of the Spec. An object that moves to another cluster or namespace is created there, and deleted in
/// its former location unless it was imported. `records` has the record under its own id, then the one under another id.
pub(super) fn decide_placed(
    input: &PlanInput<'_>,
    resource: &Resource,
    records: [Option<&StateResource>; 2],
    resolved: &Resolved<'_>,
    ignored: &Ignored,
) -> Result<Decision, Problem> {
    let prior = records.into_iter().flatten().next();
    if resource.is_only_read() {
        return data_source::decide(input, resource, prior, resolved);
    }
    if let Some(Preview::Planned(plan)) = input.previews.get(&resource.id) {
        return provider::decide(input, resource, prior, resolved, plan);
    }
    let Some((prior, from)) = prior.and_then(|prior| Some((prior, moved_from(input, resource, prior)?))) else {
        let recreated = is_recreated(input, &resource.id, records);
        let decision = decide(input, resource, records, prior.filter(|_| !recreated), resolved, ignored);
        // The object of a record of another resource type is deleted first.
        let is_other = prior.is_some_and(|prior| prior.kind != resource.kind);
        let action = if is_other && decision.action == Action::Create { Action::Replace } else { decision.action };
        return Ok(Decision { action, recreated, drift: decision.drift || recreated, ..decision });
    };
    let decision = decide(input, resource, records, None, resolved, ignored);
    if is_never_deleted(&prior.extensions) {
        return Ok(decision);
    }
    let (to, namespaces) = (input.clusters.of_wanted(resource), input.clusters.namespaces(prior, resource));
    if let Some(Live::Unverified(why)) = input.live.get(&resource.id) {
        let way = match &namespaces {
            Some([before, after]) if from == to => format!("namespace {before} to {after}"),
            Some(_) | None => format!("cluster {from} to {to}"),
        };
        let message = format!("it cannot move from {way} while cluster {to} cannot be read: {why}");
        return Err(Problem::new(reason::UNAVAILABLE, message).of(&resource.id).at("extensions.cluster"));
    }
    if !input.clusters.has(from) {
        let message = format!(
            "it is recorded in cluster {from}, which the workspace does not have; add a cluster of that name; if the \
             cluster no longer exists, name it in spec.forgetClusters of a Run"
        );
        return Err(Problem::new(reason::NO_RUNTIME, message).of(&resource.id).at("extensions.cluster"));
    }
    let moved = |path: &str, [before, after]: [String; 2]| FieldChange {
        path: path.to_owned(),
        before: Some(before.into()),
        after: Some(after.into()),
        ..FieldChange::default()
    };
    let cluster = (from != to).then(|| moved("cluster", [from, to].map(str::to_owned)));
    let namespace = namespaces.map(|namespaces| moved("metadata.namespace", namespaces));
    let changes = cluster.into_iter().chain(namespace).chain(decision.changes).collect();
    let takes_over = decision.action == Action::Adopt;
    Ok(Decision { action: Action::Replace, changes, drift: false, takes_over, ..decision })
}

/// Decides by whether the resource is recorded, wanted and live. `prior` is the record that counts of the `records`.
fn decide(
    input: &PlanInput<'_>,
    resource: &Resource,
    records: [Option<&StateResource>; 2],
    prior: Option<&StateResource>,
    resolved: &Resolved<'_>,
    ignored: &Ignored,
) -> Decision {
    let waits = resolved.waits();
    let dry_run = input.previews.get(&resource.id);
    let (preview, unverified) = match dry_run {
        Some(Preview::Unverified(why) | Preview::MissingNamespace(why) | Preview::RejectedUntil(why, _)) => {
            (None, Some(why.clone()))
        }
        // A value turned out to be unknown, and the dry run was made with another one.
        Some(_) if waits.is_some() => (None, waits.clone()),
        Some(_) | None => (dry_run, None),
    };
    let live = match live_object(input, resource, prior, &unverified, (resolved, ignored)) {
        Ok(live) => live,
        Err(decision) => return *decision,
    };
    let changes = changes(input, resource, records, prior, preview, (resolved, ignored, live));
    // An imported object has no field and no owner annotation of ours yet.
    let imported = prior.is_some_and(|prior| prior.is_only_found() && !is_marked(live));
    // An object in a file has no managers of fields either, and gets its annotation with its next change.
    let needs_apply = imported && uid_of(live).is_some();
    // A record of another resource type is of another object.
    let takes_over = prior.is_some_and(|prior| prior.kind != resource.kind);
    // The dry run decides even if it was made with other values.
    let is_replaced = matches!(dry_run, Some(Preview::Replaced(_))) || takes_over;
    let action = match prior {
        _ if is_replaced => Action::Replace,
        None => Action::Adopt,
        Some(prior) if changes.is_empty() && !needs_apply && !is_of_another(input.owner, prior, live) => {
            Action::Unchanged
        }
        Some(_) => Action::Update,
    };
    let taken = match preview {
        Some(Preview::Contested(_, conflicts)) if action != Action::Unchanged => {
            masked(conflicts, &Sensitive::of(&resolved.attributes, &resolved.sensitive))
        }
        Some(_) | None => Vec::new(),
    };
    Decision {
        drift: changes.iter().any(|change| change.drift),
        changes,
        // An unchanged resource is not dry-run, so that its unknown values count only here.
        unverified: unverified.or(waits),
        takes_over,
        taken,
        imported,
        ..Decision::new(action)
    }
}

/// The live object of a resource, or the decision where none can be compared.
fn live_object<'a>(
    input: &PlanInput<'a>,
    resource: &Resource,
    prior: Option<&StateResource>,
    unverified: &Option<String>,
    (resolved, ignored): (&Resolved<'_>, &Ignored),
) -> Result<&'a Map<String, Value>, Box<Decision>> {
    // A finished Job is not created again before its manifest changes.
    let is_done = |prior: &StateResource| prior.finished && is_as_wanted(input, prior, None, (resolved, ignored));
    let all_fields = || of_new(&resource.id, resource.kind, resolved, input.keys);
    let decision = match input.live.get(&resource.id) {
        // A terminating object counts as absent.
        Some(Live::Present(live)) if !is_terminating(live) => return Ok(live),
        Some(Live::Present(_) | Live::Absent) if prior.is_some_and(is_done) => Decision::new(Action::Unchanged),
        Some(Live::Present(_) | Live::Absent) => Decision::create(all_fields(), prior.is_some(), unverified.clone()),
        // A recorded object probably still exists.
        Some(Live::Unverified(why)) if prior.is_some() => {
            Decision { action: Action::Update, ..Decision::create(Vec::new(), false, Some(why.clone())) }
        }
        Some(Live::Unverified(why)) => Decision::create(all_fields(), false, Some(why.clone())),
        // A plan without reads needs no changes.
        None => Decision::create(Vec::new(), false, Some("the live object was not read".to_owned())),
    };
    Err(Box::new(decision))
}

/// The fields of a live object that change: as a dry run shows, else by a three-way comparison.
fn changes(
    input: &PlanInput<'_>,
    resource: &Resource,
    records: [Option<&StateResource>; 2],
    prior: Option<&StateResource>,
    preview: Option<&Preview>,
    (resolved, ignored, live): (&Resolved<'_>, &Ignored, &Map<String, Value>),
) -> Vec<FieldChange> {
    let unsure = may_hold_untracked(input, &resource.id, records, live);
    let records: Vec<&Map<String, Value>> = records.into_iter().flatten().flat_map(StateResource::objects).collect();
    let comparison = Comparison {
        // It may be recorded under another id.
        id: prior.map_or(&resource.id, StateResource::digest_id),
        kind: resource.kind,
        prior: prior.map(|prior| &prior.attributes),
        records: &records,
        unsure,
        desired: resolved,
        live,
        keys: input.keys,
        schema: input.schemas.get(&resource.id).map(AsRef::as_ref),
    };
    match preview.and_then(Preview::made) {
        Some(made) => against_preview(&comparison, &ignored.as_live(made.clone(), live)),
        None => three_way(&comparison),
    }
}

/// Whether the live object of a resource may have [untracked fields](untracked).
pub(super) fn may_hold_untracked(
    input: &PlanInput<'_>,
    id: &ResourceId,
    records: [Option<&StateResource>; 2],
    live: &Map<String, Value>,
) -> bool {
    let is_open = input.state.open.iter().any(|call| call.id == *id);
    if records.into_iter().flatten().any(|prior| prior.kind != ResourceType::Kubernetes) {
        return is_open;
    }
    untracked::may_be_in(input.owner.has(live), is_open, records.into_iter().flatten())
}

/// Whether the record of a resource is as the Spec wants it, so that a dry run shows only drift.
pub(super) fn is_as_wanted(
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
    let wanted = sensitive.recorded_ways(prior.digest_id(), &resolved.attributes, input.keys);
    resolved.unknown.is_empty() && wanted.contains(&recorded)
}

/// Whether the record is of an earlier object than this live one of ours, such as one that was created under another id. The
/// record has to be updated, or the live object could not be deleted later.
fn is_of_another(owner: &Owner, prior: &StateResource, live: &Map<String, Value>) -> bool {
    owner.has(live) && matches!((prior.uid(), uid_of(live)), (Some(recorded), Some(uid)) if recorded != uid)
}

/// Decides about a recorded resource that the Spec does not have.
pub(super) fn remove(owner: &Owner, prior: &StateResource, live: Option<&Live>, taken_over: bool) -> PlannedAction {
    let owned_by = match live {
        Some(Live::Present(live)) if !taken_over => owner.other(live),
        Some(Live::Present(_) | Live::Absent | Live::Unverified(_)) | None => None,
    };
    let may_be_there = !matches!(live, Some(Live::Absent));
    let imported = may_be_there && !taken_over && owned_by.is_none() && is_never_deleted(&prior.extensions);
    let recreated = match live {
        Some(Live::Present(live)) => !taken_over && owned_by.is_none() && !imported && owner.is_recreated(prior, live),
        Some(Live::Absent | Live::Unverified(_)) | None => false,
    };
    let kept_by_policy = may_be_there
        && !taken_over
        && owned_by.is_none()
        && !imported
        && !recreated
        && prior.kind == ResourceType::Kubernetes
        && is_kept_by_policy(prior, live);
    let (action, unverified) = match live {
        _ if taken_over || owned_by.is_some() || imported || recreated || kept_by_policy => (Action::Forget, None),
        Some(Live::Absent) => (Action::Forget, None),
        Some(Live::Present(_)) => (Action::Delete, None),
        Some(Live::Unverified(why)) => (Action::Delete, Some(why.clone())),
        None => (Action::Delete, Some("the live object was not read".to_owned())),
    };
    PlannedAction {
        depends_on: prior.depends_on.clone(),
        unverified,
        owned_by,
        recreated,
        imported,
        kept_by_policy,
        ..PlannedAction::new(prior.id.clone(), prior.kind, action)
    }
}

/// Whether the resource policy of an object keeps it, as it was applied or as it is.
fn is_kept_by_policy(prior: &StateResource, live: Option<&Live>) -> bool {
    let is_kept_live = match live {
        Some(Live::Present(live)) => hook::is_kept(live),
        Some(Live::Absent | Live::Unverified(_)) | None => false,
    };
    is_kept_live || hook::is_kept(&prior.attributes)
}
