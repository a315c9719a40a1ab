//! What is done about one resource, by what is wanted, recorded and live of it.
//!
//! Start at [`decide_place`] for what is wanted, and at [`remove`] for what no longer is. Neither looks at other resources:
//! which records are of which object is settled before.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::PlanInput;
use crate::conflict::{FieldConflict, masked};
use crate::diff::{Comparison, against_preview, of_new, three_way};
use crate::ignore::Ignored;
use crate::import::is_to_be_left;
use crate::object::{is_going, uid_of};
use crate::owner::{Owner, is_marked};
use crate::plan::{Action, FieldChange, Live, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;
use crate::unrecorded;

/// What is done about a resource; the fields are those of a [`PlannedAction`].
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
        Self {
            action,
            changes: Vec::new(),
            drift: false,
            unverified: None,
            recreated: false,
            takes_over: false,
            taken: Vec::new(),
            refused: None,
            owned_by: None,
            imported: false,
        }
    }

    /// To make what is not there, or is not known to be.
    pub(super) fn create(changes: Vec<FieldChange>, drift: bool, unverified: Option<String>) -> Self {
        Self { changes, drift, unverified, ..Self::new(Action::Create) }
    }
}

/// The cluster that an object is recorded in, where that is another than it goes to, or its namespace is. A cluster may have
/// got another name: what has the uid that is recorded is where it was.
pub(super) fn moved_from<'a>(input: &PlanInput<'a>, resource: &Resource, prior: &'a StateResource) -> Option<&'a str> {
    let is_there = match input.live.get(&resource.id)? {
        Live::Present(live) => prior.uid().is_some() && uid_of(live) == prior.uid(),
        Live::Absent | Live::Unverified(_) => false,
    };
    let is_object = [resource.kind, prior.kind] == [ResourceType::Kubernetes; 2];
    let has_moved = is_object && !input.clusters.is_in_place(prior, resource) && !is_there;
    has_moved.then(|| input.clusters.of_recorded(prior))
}

/// Whether somebody made what is live of a resource in place of what is recorded of it, under whatever id. What is being
/// deleted is as good as gone.
fn is_recreated(input: &PlanInput<'_>, id: &ResourceId, records: [Option<&StateResource>; 2]) -> bool {
    let Some(Live::Present(live)) = input.live.get(id).filter(|_| records.iter().any(Option::is_some)) else {
        return false;
    };
    !is_going(live) && records.into_iter().flatten().all(|prior| input.owner.is_recreated(prior, live))
}

/// What to do, also about an object that is in another cluster or namespace than it is to be: it is made anew in this one, and
/// goes there. One that is never removed stays there. `records` has what is recorded under its id, then what is under another.
pub(super) fn decide_place(
    input: &PlanInput<'_>,
    resource: &Resource,
    records: [Option<&StateResource>; 2],
    resolved: &Resolved<'_>,
    ignored: &Ignored,
) -> Result<Decision, Problem> {
    let prior = records.into_iter().flatten().next();
    let Some((prior, from)) = prior.and_then(|prior| Some((prior, moved_from(input, resource, prior)?))) else {
        let recreated = is_recreated(input, &resource.id, records);
        let decision = decide(input, resource, records, prior.filter(|_| !recreated), resolved, ignored);
        return Ok(Decision { recreated, drift: decision.drift || recreated, ..decision });
    };
    let decision = decide(input, resource, records, None, resolved, ignored);
    if is_to_be_left(&prior.extensions) {
        return Ok(decision);
    }
    let (to, namespaces) = (input.clusters.of_wanted(resource), input.clusters.namespaces(prior, resource));
    if let Some(Live::Unverified(why)) = input.live.get(&resource.id) {
        let way = match &namespaces {
            Some([before, after]) if from == to => format!("namespace {before} to {after}"),
            Some(_) | None => format!("cluster {from} to {to}"),
        };
        let message =
            format!("it is to go from {way}, and stays where it is while cluster {to} cannot be looked at: {why}");
        return Err(Problem::new(reason::UNAVAILABLE, message).of(&resource.id).at("extensions.cluster"));
    }
    if !input.clusters.has(from) {
        let message = format!(
            "it is recorded in cluster {from}, which the workspace does not have; it cannot be removed there before the \
             workspace has a cluster of that name, or, if it is gone for good, spec.forgetClusters of a Run names it"
        );
        return Err(Problem::new(reason::NO_RUNTIME, message).of(&resource.id).at("extensions.cluster"));
    }
    let moved = |path: &str, [before, after]: [String; 2]| FieldChange {
        path: path.to_owned(),
        before: Some(before.into()),
        after: Some(after.into()),
        drift: false,
    };
    let cluster = (from != to).then(|| moved("cluster", [from, to].map(str::to_owned)));
    let namespace = namespaces.map(|namespaces| moved("metadata.namespace", namespaces));
    let changes = cluster.into_iter().chain(namespace).chain(decision.changes).collect();
    let takes_over = decision.action == Action::Adopt;
    Ok(Decision { action: Action::Replace, changes, drift: false, takes_over, ..decision })
}

/// The table of DESIGN: what to do, by whether it is recorded, wanted and live. `prior` is what counts of the `records`.
fn decide(
    input: &PlanInput<'_>,
    resource: &Resource,
    records: [Option<&StateResource>; 2],
    prior: Option<&StateResource>,
    resolved: &Resolved<'_>,
    ignored: &Ignored,
) -> Decision {
    let waits = resolved.waits();
    let told = input.previews.get(&resource.id);
    let (preview, unverified) = match told {
        Some(Preview::Unverified(why) | Preview::MissingNamespace(why) | Preview::Lifted(why, _)) => {
            (None, Some(why.clone()))
        }
        // It turned out not to be known, and the infrastructure was asked about other values.
        Some(_) if waits.is_some() => (None, waits.clone()),
        Some(_) | None => (told, None),
    };
    // A Job that has finished is not made again before its manifest changes.
    let is_done = |prior: &StateResource| prior.finished && is_as_wanted(input, prior, None, (resolved, ignored));
    let changes_of_new = || of_new(&resource.id, resource.kind, resolved, input.keys);
    let live = match input.live.get(&resource.id) {
        // What is being deleted is as good as gone.
        Some(Live::Present(live)) if !is_going(live) => live,
        Some(Live::Present(_) | Live::Absent) if prior.is_some_and(is_done) => return Decision::new(Action::Unchanged),
        Some(Live::Present(_) | Live::Absent) => {
            return Decision::create(changes_of_new(), prior.is_some(), unverified);
        }
        // What is recorded was there before, as far as anybody knows.
        Some(Live::Unverified(why)) if prior.is_some() => {
            return Decision { action: Action::Update, ..Decision::create(Vec::new(), false, Some(why.clone())) };
        }
        Some(Live::Unverified(why)) => {
            return Decision::create(changes_of_new(), false, Some(why.clone()));
        }
        // Nothing was: what changes is not asked for.
        None => {
            return Decision::create(Vec::new(), false, Some("it was not read".to_owned()));
        }
    };
    // It may not have been asked at all, since nothing seemed to change.
    let unverified = unverified.or(waits);
    let unsure = may_hold_unrecorded(input, &resource.id, records, live);
    let records: Vec<&Map<String, Value>> = records.into_iter().flatten().flat_map(StateResource::objects).collect();
    let comparison = Comparison {
        // It may be recorded under another.
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
    let changes = match preview {
        Some(Preview::Changed(made) | Preview::Replaced(Some(made)) | Preview::Contested(made, _)) => {
            against_preview(&comparison, &ignored.as_live(made.clone(), live))
        }
        Some(
            Preview::Replaced(None)
            | Preview::Unverified(_)
            | Preview::MissingNamespace(_)
            | Preview::Lifted(..)
            | Preview::Refused(_),
        )
        | None => three_way(&comparison),
    };
    // What was only recorded has no field of ours yet, and no mark.
    let imported = prior.is_some_and(|prior| prior.is_only_found() && !is_marked(live));
    // What is here is not what is recorded then.
    let takes_over = prior.is_some_and(|prior| prior.kind != resource.kind);
    // Something else cannot be changed in place where a value is another than the one that was asked about.
    let replaced = matches!(told, Some(Preview::Replaced(_))) || takes_over;
    let action = match prior {
        _ if replaced => Action::Replace,
        None => Action::Adopt,
        Some(prior) if changes.is_empty() && !imported && !is_of_another(input.owner, prior, live) => Action::Unchanged,
        Some(_) => Action::Update,
    };
    let drift = changes.iter().any(|change| change.drift);
    let taken = match preview {
        Some(Preview::Contested(_, conflicts)) if action != Action::Unchanged => {
            masked(conflicts, &Sensitive::of(&resolved.attributes, &resolved.sensitive))
        }
        Some(_) | None => Vec::new(),
    };
    Decision { changes, drift, unverified, takes_over, taken, imported, ..Decision::new(action) }
}

/// Whether what is live of a resource may hold [what no record tells of](unrecorded).
pub(super) fn may_hold_unrecorded(
    input: &PlanInput<'_>,
    id: &ResourceId,
    records: [Option<&StateResource>; 2],
    live: &Map<String, Value>,
) -> bool {
    let is_open = input.state.open.iter().any(|call| call.id == *id);
    unrecorded::may_be_in(input.owner.has(live), is_open, records.into_iter().flatten())
}

/// Whether what is recorded of a resource is what is wanted of it, so that the infrastructure can be asked about it.
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

/// Whether the record is of an object that was there before this one of ours, as where that was made under another id. It
/// has to be brought up to date, or else this one could not be removed.
fn is_of_another(owner: &Owner, prior: &StateResource, live: &Map<String, Value>) -> bool {
    owner.has(live) && matches!((prior.uid(), uid_of(live)), (Some(recorded), Some(uid)) if recorded != uid)
}

/// What is done about a resource that is recorded and no longer wanted.
pub(super) fn remove(owner: &Owner, prior: &StateResource, live: Option<&Live>, taken_over: bool) -> PlannedAction {
    let owned_by = match live {
        Some(Live::Present(live)) if !taken_over => owner.other(live),
        Some(Live::Present(_) | Live::Absent | Live::Unverified(_)) | None => None,
    };
    let may_be_there = !matches!(live, Some(Live::Absent));
    let imported = may_be_there && !taken_over && owned_by.is_none() && is_to_be_left(&prior.extensions);
    let recreated = match live {
        Some(Live::Present(live)) => !taken_over && owned_by.is_none() && !imported && owner.is_recreated(prior, live),
        Some(Live::Absent | Live::Unverified(_)) | None => false,
    };
    let (action, unverified) = match live {
        _ if taken_over || owned_by.is_some() || imported || recreated => (Action::Forget, None),
        Some(Live::Absent) => (Action::Forget, None),
        Some(Live::Present(_)) => (Action::Delete, None),
        Some(Live::Unverified(why)) => (Action::Delete, Some(why.clone())),
        None => (Action::Delete, Some("it was not read".to_owned())),
    };
    PlannedAction {
        depends_on: prior.depends_on.clone(),
        unverified,
        owned_by,
        recreated,
        imported,
        ..PlannedAction::new(prior.id.clone(), prior.kind, action)
    }
}
