//! Decides what has to change: compares what is wanted, what is recorded and what is live.
//!
//! Start at [`plan`]. Whoever can ask the infrastructure calls [`draft`] first, previews what the
//! draft would change, and drafts again with the answers.
//!
//! Elsewhere: `dependencies` and `graph` decide the order, `diff` compares fields.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::cluster::{Clusters, Identity};
use crate::conflict::FieldConflict;
use crate::dependencies::{Before, break_cycles, dependencies};
use crate::diff::{Comparison, against_preview, three_way};
use crate::document::Document as _;
use crate::given_up::GivenUp;
use crate::graph::Graph;
use crate::ignore::Ignored;
use crate::import::is_to_be_left;
use crate::lookup::Settled;
use crate::masks::DigestKeys;
use crate::object::{ObjectRef, is_going, uid_of};
use crate::owner::{Owner, Standing, is_marked, taken_from};
use crate::plan::{Action, FieldChange, Live, Plan, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::reference::Reference;
use crate::resolve::{Looked, Resolved, resolve};
use crate::schema::Schemas;
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::state::{State, StateResource};
use crate::validate::{check_id, reference_problem};

/// All that a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// What is wanted.
    pub spec: &'a Spec,
    /// What is recorded, without what is given up.
    pub state: &'a State,
    /// What is on record in clusters that are given up.
    pub given_up: &'a GivenUp,
    /// What is live, of everything that is wanted or recorded. What is missing counts as
    /// [`Live::Unverified`].
    pub live: &'a BTreeMap<ResourceId, Live>,
    /// What the infrastructure says it would make, of whatever it was asked about.
    pub previews: &'a BTreeMap<ResourceId, Preview>,
    /// What servers say of the kinds of those wanted resources whose kinds are not built in.
    pub schemas: &'a Schemas,
    /// Whether everything recorded is to go, whatever the Spec says.
    pub destroy: bool,
    /// For whom it is made: what others own is neither changed nor removed.
    pub owner: &'a Owner,
    /// The digest of the document that the Spec is kept as. The Spec's own would tell what guesses at its sensitive
    /// values are right.
    pub spec_digest: &'a str,
    /// What the digests of sensitive values are made with.
    pub keys: &'a DigestKeys,
    /// The clusters that resources go to.
    pub clusters: &'a Clusters,
}

impl<'a> PlanInput<'a> {
    /// For what is wanted and recorded alone: nobody has looked at anything, and there are no clusters.
    pub const fn blind(spec: &'a Spec, state: &'a State, owner: &'a Owner, keys: &'a DigestKeys) -> Self {
        static GIVEN_UP: GivenUp = GivenUp::new();
        static LIVE: BTreeMap<ResourceId, Live> = BTreeMap::new();
        static PREVIEWS: BTreeMap<ResourceId, Preview> = BTreeMap::new();
        static SCHEMAS: Schemas = Schemas::new();
        static CLUSTERS: Clusters = Clusters(Vec::new());
        Self {
            spec,
            state,
            given_up: &GIVEN_UP,
            live: &LIVE,
            previews: &PREVIEWS,
            schemas: &SCHEMAS,
            destroy: false,
            owner,
            spec_digest: "",
            keys,
            clusters: &CLUSTERS,
        }
    }
}

/// A plan, and what is wanted of each resource with all references replaced that can be.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The plan.
    pub plan: Plan,
    /// Every wanted resource with its references replaced. Holds sensitive values in clear.
    pub desired: BTreeMap<ResourceId, Resolved>,
}

/// Makes the plan.
///
/// # Errors
///
/// Everything that is wrong with the Spec, or in the way of carrying it out.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan, Vec<Problem>> {
    draft(input).map(|draft| draft.plan)
}

/// Makes the plan, and tells what it means to apply.
///
/// # Errors
///
/// As [`plan`].
pub fn draft(input: &PlanInput<'_>) -> Result<Draft, Vec<Problem>> {
    let wanted: Vec<&Resource> = if input.destroy { Vec::new() } else { input.spec.resources.iter().collect() };
    if !input.destroy {
        input.spec.validate()?;
    }
    let recorded: BTreeMap<&ResourceId, &StateResource> =
        input.state.resources.iter().map(|resource| (&resource.id, resource)).collect();
    let mut problems: Vec<Problem> =
        recorded.values().filter(|resource| resource.unknown).map(|resource| unknown_state(&resource.id)).collect();
    problems.extend(duplicates(input, &wanted));
    let before = dependencies(&wanted, input.clusters)?;
    let order = Graph::new(&before).order().unwrap_or_default();
    let kept = Kept::of(input, &wanted, &recorded);
    let renamed = renamed(input, &wanted, &recorded);

    let by_id: HashMap<&str, &Resource> = wanted.iter().map(|resource| (resource.id.0.as_str(), *resource)).collect();
    let known = |id: &str| by_id.contains_key(id);
    let mut settled: HashMap<ResourceId, Settled<'_>> = HashMap::with_capacity(order.len());
    let mut actions: BTreeMap<ResourceId, PlannedAction> = BTreeMap::new();
    for id in &order {
        let resource = by_id[id.0.as_str()];
        let mut lookup = |reference: &Reference| match settled.get(&reference.id) {
            Some(target) => target.look(reference),
            // What it refers to is wrong itself, and told already.
            None => Ok(Looked::Unknown),
        };
        let resolved = match resolve(&resource.attributes, &known, &mut lookup) {
            Ok(resolved) => resolved,
            Err(errors) => {
                problems.extend(errors.iter().map(|(field, err)| reference_problem(id, field, err)));
                continue;
            }
        };
        if let Some(problem) = disagreement(resource, &resolved) {
            problems.push(problem);
            continue;
        }
        let ignored = match Ignored::of(resource) {
            Ok(ignored) => ignored,
            Err(problem) => {
                problems.push(problem.of(id));
                continue;
            }
        };
        let resolved = match input.live.get(id) {
            Some(Live::Present(live)) => ignored.resolved(resolved, live),
            Some(Live::Absent | Live::Unverified(_)) | None => resolved,
        };
        let standing = match input.live.get(id) {
            Some(Live::Present(live)) => input.owner.standing(taken_from(resource), live),
            Some(Live::Absent | Live::Unverified(_)) | None => Standing::Free,
        };
        let owned_by = match standing {
            Standing::Free => None,
            Standing::TakesOver(owner) => Some(owner),
            Standing::Refused(message) => {
                problems.push(Problem::new(reason::OWNED_BY_ANOTHER, message).of(id));
                continue;
            }
        };
        let recorded_as = renamed.get(id).copied();
        let own = recorded.get(id).copied();
        let prior = own.or_else(|| recorded.get(recorded_as?).copied());
        let mut decision = match decide_place(input, resource, prior, &resolved, &ignored) {
            Ok(decision) => decision,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        if owned_by.is_some() && decision.action != Action::Replace {
            // Whatever is recorded is not ours any more, and the mark changes though nothing else may.
            decision.action = Action::Adopt;
        }
        actions.insert(
            id.clone(),
            PlannedAction {
                drift: decision.drift,
                changes: decision.changes,
                depends_on: before[id].iter().cloned().collect(),
                unverified: decision.unverified,
                // What is made anew has to go first, by the record that says which object is there.
                recorded_as: recorded_as.filter(|_| own.is_none() || decision.action == Action::Replace).cloned(),
                owned_by,
                taken: decision.taken,
                imported: decision.imported,
                ..PlannedAction::new(id.clone(), resource.kind, decision.action)
            },
        );
        let live = match input.live.get(id) {
            Some(Live::Present(live)) => Some(Cow::Borrowed(live)),
            Some(Live::Absent | Live::Unverified(_)) | None => None,
        };
        settled.insert(id.clone(), Settled::new(resource, resolved, decision.action, live));
    }
    let unwanted: Vec<&StateResource> = recorded.values().filter(|prior| !known(&prior.id.0)).copied().collect();
    let superseded = superseded(input.clusters, &unwanted, input.live);
    for prior in unwanted {
        let id = &prior.id;
        // Removing an object that is wanted would remove the wanted one, also where that is recorded under its new id
        // already and the old record is left from a run that did not get to its end.
        let is_other_id = kept.has(input, prior) || superseded.contains_key(id);
        let action = remove(input.owner, prior, input.live.get(id), is_other_id);
        actions.insert(id.clone(), action);
    }
    // Calls that left nothing behind, of what is no longer wanted: only their record goes.
    for call in input.state.open.iter().filter(|call| !known(&call.id.0) && !recorded.contains_key(&call.id)) {
        let nothing = PlannedAction::new(call.id.clone(), ResourceType::Kubernetes, Action::Forget);
        actions.insert(call.id.clone(), nothing);
    }
    for (id, clusters) in input.given_up {
        let forget = || PlannedAction::new(id.clone(), ResourceType::Kubernetes, Action::Forget);
        actions.entry(id.clone()).or_insert_with(forget).given_up.clone_from(clusters);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let unclear = kept.unclear(input, &recorded, &actions);
    let actions = ordered(before, actions, &recorded, &renamed, &superseded, &unclear);
    let plan = Plan { schema_version: Plan::SCHEMA_VERSION, spec_digest: input.spec_digest.to_owned(), actions };
    let desired = settled.into_iter().map(|(id, settled)| (id, settled.into_resolved())).collect();
    Ok(Draft { plan, desired })
}

/// A call may have made a resource, nobody can find out, and another might make a second one.
pub fn unknown_state(id: &ResourceId) -> Problem {
    let message = "an earlier call may or may not have been made, and nobody can find out; look for the resource yourself: \
                   import it if it is there, or name its id in spec.retry of a Run if it is not";
    Problem::new(reason::UNKNOWN_STATE, message).of(id)
}

/// Records of objects that are recorded under several ids, none of which is wanted, as where a run was stopped that was
/// to bring an object to a new id; and under which id each is removed: the one that says which object is live.
fn superseded<'a>(
    clusters: &Clusters,
    unwanted: &[&'a StateResource],
    live: &BTreeMap<ResourceId, Live>,
) -> HashMap<&'a ResourceId, &'a ResourceId> {
    let mut of_object: BTreeMap<Identity, Vec<&StateResource>> = BTreeMap::new();
    for prior in unwanted {
        if let Some(object) = clusters.recorded(prior) {
            of_object.entry(object).or_default().push(prior);
        }
    }
    let is_live = |prior: &&&StateResource| match live.get(&prior.id) {
        Some(Live::Present(live)) => prior.uid().is_some() && uid_of(live) == prior.uid(),
        Some(Live::Absent | Live::Unverified(_)) | None => false,
    };
    let several = of_object.values().filter(|records| records.len() > 1);
    several
        .flat_map(|records| {
            let last = records.iter().rfind(is_live).or(records.last()).map(|last| &last.id);
            records.iter().filter_map(move |prior| Some((&prior.id, last.filter(|last| **last != prior.id)?)))
        })
        .collect()
}

/// Wanted ids of objects that are recorded under another id, as when only the version in `apiVersion` changed, or when
/// another name of a cluster leads to the same server: that alone, or that rather than under their own, as where an object
/// was made anew under the other id since.
fn renamed<'a>(
    input: &PlanInput<'_>,
    wanted: &[&Resource],
    recorded: &BTreeMap<&'a ResourceId, &'a StateResource>,
) -> HashMap<ResourceId, &'a ResourceId> {
    let ids: HashSet<&ResourceId> = wanted.iter().map(|resource| &resource.id).collect();
    let left = || recorded.iter().filter(|(id, _)| !ids.contains(*id)).map(|(_, prior)| *prior);
    let objects: HashMap<_, &StateResource> =
        left().filter_map(|prior| Some((input.clusters.recorded(prior)?, prior))).collect();
    let uids: HashMap<_, &StateResource> = left().filter_map(|prior| Some((prior.uid()?, prior))).collect();
    let is_live =
        |id: &ResourceId, record: &StateResource| record.uid().is_some() && live_uid(input, id) == record.uid();
    wanted
        .iter()
        .filter_map(|resource| {
            let id = &resource.id;
            let by_uid = || uids.get(live_uid(input, id)?);
            let other = *objects.get(&input.clusters.wanted(resource)?).or_else(by_uid)?;
            let is_other = recorded.get(id).is_none_or(|own| is_live(id, other) && !is_live(id, own));
            is_other.then(|| (id.clone(), &other.id))
        })
        .collect()
}

/// The uid of the object that is live of a resource.
fn live_uid<'a>(input: &PlanInput<'a>, id: &ResourceId) -> Option<&'a str> {
    match input.live.get(id)? {
        Live::Present(live) => uid_of(live),
        Live::Absent | Live::Unverified(_) => None,
    }
}

/// The objects that are wanted, under whatever id, which nothing may remove.
struct Kept<'a> {
    /// By where they are to be.
    objects: HashSet<Identity>,
    /// By their uids, as far as these are known: two names of clusters may lead to one server, and two groups to one object.
    uids: HashSet<&'a str>,
    /// What may be the same object as what has its kind and name in another cluster, since nobody can look.
    unseen: BTreeMap<[String; 4], Vec<&'a ResourceId>>,
}

impl<'a> Kept<'a> {
    fn of(
        input: &PlanInput<'a>,
        wanted: &[&'a Resource],
        recorded: &BTreeMap<&'a ResourceId, &'a StateResource>,
    ) -> Self {
        let mut kept = Self { objects: HashSet::new(), uids: HashSet::new(), unseen: BTreeMap::new() };
        for resource in wanted.iter().filter(|resource| resource.kind == ResourceType::Kubernetes) {
            let identity = input.clusters.wanted(resource);
            let prior = || recorded.get(&resource.id).and_then(|prior| prior.uid());
            match input.live.get(&resource.id) {
                Some(Live::Present(live)) => kept.uids.extend(uid_of(live)),
                Some(Live::Absent) => {}
                Some(Live::Unverified(_)) | None => match (prior(), &identity) {
                    (Some(uid), _) => drop(kept.uids.insert(uid)),
                    (None, Some((_, object))) => kept.unseen.entry(object.clone()).or_default().push(&resource.id),
                    (None, None) => {}
                },
            }
            kept.objects.extend(identity);
        }
        kept
    }

    /// Whether a record is of one of them.
    fn has(&self, input: &PlanInput<'_>, prior: &StateResource) -> bool {
        let uids = [prior.uid(), live_uid(input, &prior.id)];
        input.clusters.recorded(prior).is_some_and(|object| self.objects.contains(&object))
            || uids.into_iter().flatten().any(|uid| self.uids.contains(uid))
    }

    /// What is removed only after something else that may turn out to be the same object.
    fn unclear(
        &self,
        input: &PlanInput<'_>,
        recorded: &BTreeMap<&'a ResourceId, &'a StateResource>,
        actions: &BTreeMap<ResourceId, PlannedAction>,
    ) -> Vec<(&'a ResourceId, &'a ResourceId)> {
        if self.unseen.is_empty() {
            return Vec::new();
        }
        let is_removed = |id: &ResourceId| actions.get(id).is_some_and(|action| action.action == Action::Delete);
        let removed = recorded.values().filter(|prior| is_removed(&prior.id));
        removed
            .filter_map(|prior| Some((prior, self.unseen.get(&input.clusters.recorded(prior)?.1)?)))
            .flat_map(|(prior, unseen)| unseen.iter().map(|wanted| (&prior.id, *wanted)))
            .collect()
    }
}

/// Checks the id again now that references are replaced.
fn disagreement(resource: &Resource, resolved: &Resolved) -> Option<Problem> {
    if resource.kind != ResourceType::Kubernetes {
        return None;
    }
    let named = ["apiVersion", "kind", "metadata"].iter().any(|key| {
        resolved.unknown.iter().any(|path| {
            path.first_key() == Some(key) && (path.0.len() < 2 || matches!(&path.0[1], crate::path::Segment::Key(second) if second == "name" || second == "namespace"))
        })
    });
    if named {
        return None;
    }
    match ObjectRef::of(&resolved.attributes) {
        Some(object) => check_id(&resource.id, &object, None).map(|problem| problem.of(&resource.id)),
        None => {
            let message = "a reference in apiVersion, kind or name leads to something that is not text";
            Some(Problem::new(reason::INVALID_REFERENCE, message).of(&resource.id).at("attributes"))
        }
    }
}

/// Objects that are wanted under two ids, as where one names the cluster that the other goes to unnamed, or where two names
/// lead to one server.
fn duplicates(input: &PlanInput<'_>, wanted: &[&Resource]) -> Vec<Problem> {
    let clusters = input.clusters;
    let mut objects: HashMap<Identity, &ResourceId> = HashMap::new();
    let mut uids: HashMap<&str, &Resource> = HashMap::new();
    let mut problems = Vec::new();
    let mut tell = |resource: &Resource, message: String, field: &str| {
        problems.push(Problem::new(reason::DUPLICATE_RESOURCE, message).of(&resource.id).at(field));
    };
    for resource in wanted {
        let Some(object) = clusters.wanted(resource) else { continue };
        if let Some(first) = objects.insert(object, &resource.id) {
            tell(resource, format!("this is the same object as {first}"), "attributes");
        } else if let Some(first) = live_uid(input, &resource.id).and_then(|uid| uids.insert(uid, resource)) {
            let (one, other) = (clusters.of_wanted(first), clusters.of_wanted(resource));
            if one != other {
                let same = format!("this is the same object as {}: clusters {one} and {other} are one", first.id);
                tell(resource, same, "extensions.cluster");
            }
        }
    }
    problems
}

/// The cluster that an object is recorded in, where that is another than it goes to. A cluster may have got another name:
/// what has the uid that is recorded is where it was.
fn moved_from<'a>(input: &PlanInput<'a>, resource: &Resource, prior: &'a StateResource) -> Option<&'a str> {
    let is_there = match input.live.get(&resource.id)? {
        Live::Present(live) => prior.uid().is_some() && uid_of(live) == prior.uid(),
        Live::Absent | Live::Unverified(_) => false,
    };
    let (from, to) = (input.clusters.of_recorded(prior), input.clusters.of_wanted(resource));
    let is_object = [resource.kind, prior.kind] == [ResourceType::Kubernetes; 2];
    (is_object && from != to && !is_there).then_some(from)
}

/// What to do, also about an object that is in another cluster than it is to be: it is made anew in this one, and goes
/// there. One that is never removed stays there.
fn decide_place(
    input: &PlanInput<'_>,
    resource: &Resource,
    prior: Option<&StateResource>,
    resolved: &Resolved,
    ignored: &Ignored,
) -> Result<Decision, Problem> {
    let Some((prior, from)) = prior.and_then(|prior| Some((prior, moved_from(input, resource, prior)?))) else {
        return Ok(decide(input, resource, prior, resolved, ignored));
    };
    let decision = decide(input, resource, None, resolved, ignored);
    if is_to_be_left(&prior.extensions) {
        return Ok(decision);
    }
    if let Some(Live::Unverified(why)) = input.live.get(&resource.id) {
        let to = input.clusters.of_wanted(resource);
        let message = format!(
            "it is to go from cluster {from} to {to}, and stays where it is while {to} cannot be looked at: {why}"
        );
        return Err(Problem::new(reason::UNAVAILABLE, message).of(&resource.id).at("extensions.cluster"));
    }
    if !input.clusters.has(from) {
        let message = format!(
            "it is recorded in cluster {from}, which the workspace does not have; it cannot be removed there before the \
             workspace has a cluster of that name, or, if it is gone for good, spec.forgetClusters of a Run names it"
        );
        return Err(Problem::new(reason::NO_RUNTIME, message).of(&resource.id).at("extensions.cluster"));
    }
    let moved = FieldChange {
        path: "cluster".to_owned(),
        before: Some(from.into()),
        after: Some(input.clusters.of_wanted(resource).into()),
        drift: false,
    };
    let changes = std::iter::once(moved).chain(decision.changes).collect();
    Ok(Decision { action: Action::Replace, changes, drift: false, ..decision })
}

struct Decision {
    action: Action,
    changes: Vec<FieldChange>,
    drift: bool,
    unverified: Option<String>,
    taken: Vec<FieldConflict>,
    imported: bool,
}

impl Decision {
    /// To make what is not there, or is not known to be.
    fn create(drift: bool, unverified: Option<String>) -> Self {
        Self { action: Action::Create, changes: Vec::new(), drift, unverified, taken: Vec::new(), imported: false }
    }
}

/// The table of DESIGN: what to do, by whether it is recorded, wanted and live.
fn decide(
    input: &PlanInput<'_>,
    resource: &Resource,
    prior: Option<&StateResource>,
    resolved: &Resolved,
    ignored: &Ignored,
) -> Decision {
    let preview = input.previews.get(&resource.id);
    let unverified = match preview {
        Some(Preview::Unverified(why)) => Some(why.clone()),
        _ => None,
    };
    let live = match input.live.get(&resource.id) {
        // What is being deleted is as good as gone.
        Some(Live::Present(live)) if !is_going(live) => live,
        Some(Live::Present(_) | Live::Absent) => {
            return Decision::create(prior.is_some(), unverified);
        }
        // What is recorded was there before, as far as anybody knows.
        Some(Live::Unverified(why)) => {
            let action = if prior.is_some() { Action::Update } else { Action::Create };
            return Decision { action, ..Decision::create(false, Some(why.clone())) };
        }
        None => {
            return Decision::create(false, Some("it was not read".to_owned()));
        }
    };
    let comparison = Comparison {
        id: &resource.id,
        kind: resource.kind,
        prior: prior.map(|prior| &prior.attributes),
        desired: resolved,
        live,
        keys: input.keys,
        schema: input.schemas.get(&resource.id).map(AsRef::as_ref),
    };
    let changes = match preview {
        Some(Preview::Changed(made) | Preview::Replaced(Some(made)) | Preview::Contested(made, _)) => {
            against_preview(&comparison, &ignored.as_live(made.clone(), live))
        }
        Some(Preview::Replaced(None) | Preview::Unverified(_)) | None => three_way(&comparison),
    };
    // What was only recorded has no field of ours yet, and no mark.
    let imported = prior.is_some_and(|prior| prior.is_only_found() && !is_marked(live));
    let replaced =
        matches!(preview, Some(Preview::Replaced(_))) || prior.is_some_and(|prior| prior.kind != resource.kind);
    let action = match prior {
        _ if replaced => Action::Replace,
        None => Action::Adopt,
        Some(prior) if changes.is_empty() && !imported && !is_of_another(input.owner, prior, live) => Action::Unchanged,
        Some(_) => Action::Update,
    };
    let drift = changes.iter().any(|change| change.drift);
    let taken = match preview {
        Some(Preview::Contested(_, conflicts)) if action != Action::Unchanged => conflicts.clone(),
        Some(_) | None => Vec::new(),
    };
    Decision { action, changes, drift, unverified, taken, imported }
}

/// Whether the record is of an object that was there before this one of ours, as where that was made under another id. It
/// has to be brought up to date, or else this one could not be removed.
fn is_of_another(owner: &Owner, prior: &StateResource, live: &Map<String, Value>) -> bool {
    owner.has(live) && matches!((prior.uid(), uid_of(live)), (Some(recorded), Some(uid)) if recorded != uid)
}

/// What is done about a resource that is recorded and no longer wanted.
fn remove(owner: &Owner, prior: &StateResource, live: Option<&Live>, taken_over: bool) -> PlannedAction {
    let owned_by = match live {
        Some(Live::Present(live)) if !taken_over => owner.other(live),
        Some(Live::Present(_) | Live::Absent | Live::Unverified(_)) | None => None,
    };
    let may_be_there = !matches!(live, Some(Live::Absent));
    let imported = may_be_there && !taken_over && owned_by.is_none() && is_to_be_left(&prior.extensions);
    let (action, unverified) = match live {
        _ if taken_over || owned_by.is_some() || imported => (Action::Forget, None),
        Some(Live::Absent) => (Action::Forget, None),
        Some(Live::Present(_)) => (Action::Delete, None),
        Some(Live::Unverified(why)) => (Action::Delete, Some(why.clone())),
        None => (Action::Delete, Some("it was not read".to_owned())),
    };
    PlannedAction {
        depends_on: prior.depends_on.clone(),
        unverified,
        owned_by,
        imported,
        ..PlannedAction::new(prior.id.clone(), prior.kind, action)
    }
}

/// Puts the actions into their order: what is kept after what it depends on, what goes after all
/// that were recorded to depend on it, whether these go too or are only changed.
fn ordered(
    mut before: Before,
    mut actions: BTreeMap<ResourceId, PlannedAction>,
    recorded: &BTreeMap<&ResourceId, &StateResource>,
    renamed: &HashMap<ResourceId, &ResourceId>,
    superseded: &HashMap<&ResourceId, &ResourceId>,
    unclear: &[(&ResourceId, &ResourceId)],
) -> Vec<PlannedAction> {
    let mut deletions = BTreeSet::new();
    for id in actions.values().filter(|action| !action.action.keeps()).map(|action| &action.id) {
        before.entry(id.clone()).or_default();
    }
    // The record of an object under an id that it has no more goes last: what is done about the object may fail, and then
    // no record may be missing. Whoever depends on that id depends on the object.
    let last_id = |id| superseded.get(id).copied();
    let dependents = recorded
        .values()
        .flat_map(|prior| prior.depends_on.iter().map(|dependency| (dependency, &prior.id)))
        .flat_map(|(gone, dependent)| [Some(gone), last_id(gone)].into_iter().flatten().map(move |it| (it, dependent)))
        .chain(renamed.iter().map(|(new, old)| (*old, new)))
        .chain(superseded.iter().map(|(old, last)| (*old, *last)))
        .chain(unclear.iter().copied());
    for (gone, dependent) in dependents {
        if gone != dependent
            && actions.get(gone).is_some_and(|action| !action.action.keeps())
            && actions.contains_key(dependent)
            && before.get_mut(gone).is_some_and(|first| first.insert(dependent.clone()))
        {
            deletions.insert((gone.clone(), dependent.clone()));
        }
    }
    // Records of different runs may contradict each other; the deletions still have to happen.
    break_cycles(&mut before, &deletions);
    let graph = Graph::new(&before).reduced().expect("wanted resources form no cycle, and others were broken");
    let order = graph.order().expect("a reduced graph has the cycles of the whole one: none");
    order
        .into_iter()
        .filter_map(|id| {
            let mut action = actions.remove(&id)?;
            action.after = graph.before(&id);
            Some(action)
        })
        .collect()
}

/// The attributes that a preview or an apply would send: those wanted, with references replaced.
pub fn with_attributes(resource: &Resource, attributes: Map<String, Value>) -> Resource {
    Resource { attributes, ..resource.clone() }
}

#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod tests;
