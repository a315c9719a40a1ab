//! Decides what has to change: compares what is wanted, what is recorded and what is live.
//!
//! Start at [`plan`]. Whoever can ask the infrastructure makes an [`Outline`], sketches twice, before and after a look at what is
//! live, previews what the [`Sketch`] would change, and plans with the answers.
//!
//! Elsewhere: `decision` says what is done about one resource, `names` checks what objects are called, `objects` tells which
//! ids are of one object, `drift` what moved away from what was applied, `order` what comes after what, `freed` what has to be
//! free first, `diff` compares fields, `contents` knows what goes with what is deleted.

mod decision;
mod drift;
mod freed;
mod names;
mod objects;
mod order;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use crate::bounds::Budget;
use crate::cluster::{Clusters, Identity};
use crate::contents;
use crate::dependencies::{Before, dependencies};
use crate::given_up::GivenUp;
use crate::graph::Graph;
use crate::ignore::Ignored;
use crate::lookup::{Made, Settled};
use crate::masks::DigestKeys;
use crate::object::{is_going, uid_of};
use crate::owner::{Owner, Standing, taken_from};
use crate::plan::{Action, Live, Plan, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::reference::Reference;
use crate::resolve::{Looked, Resolved, refers, resolve};
use crate::schema::Schemas;
use crate::spec::{Resource, ResourceId, ResourceType, Spec};
use crate::stage;
use crate::state::{State, StateResource};
use crate::validate::reference_problem;
use decision::{decide_place, remove};
pub use drift::is_recorded_elsewhere;
use freed::freed;
pub use names::{disagreement, is_unnamed};
pub use objects::of_unknown_scope;
use objects::{Kept, duplicates, given, renamed, superseded};
use order::{group, ordered};

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
    /// [`Live::Unverified`], and what goes with something that is being deleted is marked as
    /// [being deleted](crate::going::spread). Where nothing is to be changed, what is
    /// [recorded elsewhere](is_recorded_elsewhere) is what is there.
    pub live: &'a BTreeMap<ResourceId, Live>,
    /// What the infrastructure says it would make, of whatever it was asked about.
    pub previews: &'a BTreeMap<ResourceId, Preview>,
    /// What servers say of the kinds of those wanted resources whose kinds are not built in.
    pub schemas: &'a Schemas,
    /// Whether everything recorded is to go, whatever the Spec says.
    pub destroy: bool,
    /// Whether nothing is to be changed: of all that is recorded it is told how it moved away from what was applied.
    pub refresh: bool,
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
        static CLUSTERS: Clusters = Clusters::NONE;
        Self {
            spec,
            state,
            given_up: &GIVEN_UP,
            live: &LIVE,
            previews: &PREVIEWS,
            schemas: &SCHEMAS,
            destroy: false,
            refresh: false,
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
    pub desired: BTreeMap<ResourceId, Resolved<'static>>,
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
    let outline = Outline::of(input)?;
    let mut decided = outline.decide(input, Stage::Whole)?;
    let desired = resolved(std::mem::take(&mut decided.settled));
    let desired = desired.into_iter().map(|(id, resolved)| (id, resolved.into_owned())).collect();
    Ok(Draft { plan: outline.ordered(input, decided), desired })
}

/// What is decided before the infrastructure is asked what it would make.
#[derive(Clone, Debug)]
pub struct Sketch<'s> {
    /// What is done about each resource, as far as the engine can tell by itself.
    pub actions: BTreeMap<ResourceId, PlannedAction>,
    /// As in a [`Draft`].
    pub desired: BTreeMap<ResourceId, Resolved<'s>>,
}

/// When something is decided.
enum Stage<'s> {
    /// Before the infrastructure is asked what it would make.
    Sketch,
    /// Once, with all that is known.
    Whole,
    /// After it was asked, with the actions that were sketched and what was meant to be applied.
    Sketched(BTreeMap<ResourceId, PlannedAction>, &'s BTreeMap<ResourceId, Resolved<'s>>),
}

/// What is decided, in no order yet.
struct Decided<'s> {
    actions: BTreeMap<ResourceId, PlannedAction>,
    /// What references to what is wanted lead to.
    settled: HashMap<&'s ResourceId, Settled<'s>>,
    /// The ids of objects that are wanted under other ids, and these.
    moved: Vec<(&'s ResourceId, &'s ResourceId)>,
    superseded: HashMap<&'s ResourceId, &'s ResourceId>,
    /// Ids that wait for others, which want the objects on record under them or may turn out to, give up what these claim, or
    /// lift their rejection.
    later: Vec<(&'s ResourceId, &'s ResourceId)>,
}

fn resolved<'s>(settled: HashMap<&ResourceId, Settled<'s>>) -> BTreeMap<ResourceId, Resolved<'s>> {
    settled.into_iter().map(|(id, settled)| (id.clone(), settled.into_resolved())).collect()
}

/// What the Spec and the state alone say, which is looked at once for all that is decided on the way to one plan.
#[derive(Debug)]
pub struct Outline<'a> {
    wanted: Vec<&'a Resource>,
    by_id: HashMap<&'a str, &'a Resource>,
    /// Which objects are wanted, as far as that is known before anything is looked up.
    objects: HashMap<&'a ResourceId, Identity>,
    recorded: BTreeMap<&'a ResourceId, &'a StateResource>,
    /// What is recorded under ids that are not wanted.
    unwanted: Vec<&'a StateResource>,
    /// What is recorded under wanted ids in another cluster or namespace than it is wanted in.
    elsewhere: Vec<&'a StateResource>,
    /// The wanted resources that may refer to others.
    referring: HashSet<&'a ResourceId>,
    before: Before,
    /// What is wanted, after what it depends on.
    order: Vec<ResourceId>,
}

impl<'a> Outline<'a> {
    /// Checks the Spec and puts it into its order.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the Spec.
    pub fn of(input: &PlanInput<'a>) -> Result<Self, Vec<Problem>> {
        let written = if input.destroy { Before::new() } else { input.spec.checked()? };
        let wanted: Vec<&Resource> = if input.destroy { Vec::new() } else { input.spec.resources.iter().collect() };
        let before = dependencies(written, &wanted, input.clusters);
        let order = Graph::new(&before).order().unwrap_or_default();
        let object = |resource: &&'a Resource| Some((&resource.id, input.clusters.wanted(resource)?));
        let by_id: HashMap<&str, &Resource> =
            wanted.iter().map(|resource| (resource.id.0.as_str(), *resource)).collect();
        let recorded: BTreeMap<&ResourceId, &StateResource> =
            input.state.resources.iter().map(|resource| (&resource.id, resource)).collect();
        let is_unwanted = |prior: &&StateResource| !by_id.contains_key(prior.id.0.as_str());
        let is_elsewhere = |prior: &&StateResource| {
            let wanted = by_id.get(prior.id.0.as_str());
            wanted.is_some_and(|resource| !input.clusters.is_in_place(prior, resource))
        };
        Ok(Self {
            unwanted: recorded.values().copied().filter(is_unwanted).collect(),
            elsewhere: recorded.values().copied().filter(is_elsewhere).collect(),
            by_id,
            objects: wanted.iter().filter_map(object).collect(),
            recorded,
            referring: wanted.iter().filter(|it| refers(&it.attributes)).map(|resource| &resource.id).collect(),
            wanted,
            before,
            order,
        })
    }

    /// Decides what to do, and tells what it means to apply. `input` is what the outline was made of, with what is known of
    /// it by now.
    ///
    /// # Errors
    ///
    /// Everything that is in the way of carrying it out.
    pub fn sketch<'s>(&'s self, input: &PlanInput<'s>) -> Result<Sketch<'s>, Vec<Problem>> {
        let Decided { actions, settled, .. } = self.decide(input, Stage::Sketch)?;
        Ok(Sketch { actions, desired: resolved(settled) })
    }

    /// The plan once the infrastructure was asked: `sketch` is of the same `input`, but for the previews.
    ///
    /// # Errors
    ///
    /// As [`sketch`](Self::sketch).
    pub fn plan(&self, input: &PlanInput<'_>, sketch: Sketch<'_>) -> Result<Plan, Vec<Problem>> {
        let Sketch { actions, desired } = sketch;
        let decided = self.decide(input, Stage::Sketched(actions, &desired))?;
        Ok(self.ordered(input, decided))
    }

    fn ordered(&self, input: &PlanInput<'_>, decided: Decided<'_>) -> Plan {
        let Decided { actions, moved, superseded, later, .. } = decided;
        let mut actions = ordered(self.before.clone(), actions, &self.recorded, &moved, &superseded, &later);
        stage::assign(&mut actions, |id| match self.by_id.get(id.0.as_str()) {
            Some(wanted) => group(wanted.kind, &wanted.attributes),
            None => self.recorded.get(id).and_then(|record| group(record.kind, &record.attributes)),
        });
        Plan { actions, ..Plan::of(input.spec_digest) }
    }

    /// What is done about everything, and what references to it lead to. What is sketched stays as it is where the
    /// infrastructure was not asked and nothing is referred to.
    fn decide<'s>(&'s self, input: &PlanInput<'s>, stage: Stage<'s>) -> Result<Decided<'s>, Vec<Problem>> {
        let is_sketch = matches!(stage, Stage::Sketch);
        let (mut actions, sketched) = match stage {
            Stage::Sketch | Stage::Whole => (BTreeMap::new(), None),
            Stage::Sketched(actions, desired) => (actions, Some(desired)),
        };
        let Self { wanted, by_id, recorded, unwanted, before, order, .. } = self;
        let mut problems: Vec<Problem> =
            recorded.values().filter(|resource| resource.unknown).map(|resource| unknown_state(&resource.id)).collect();
        problems.extend(duplicates(input, self));
        let kept = Kept::of(input, self);
        let given = given(input, self, &kept);
        let renamed = renamed(input, self, &given);
        let known = |id: &str| by_id.contains_key(id);
        let mut settled: HashMap<&ResourceId, Settled<'_>> = HashMap::with_capacity(order.len());
        let mut budget = Budget::default();
        for id in order {
            let resource = by_id[id.0.as_str()];
            let (present, is_seen) = match input.live.get(id) {
                Some(Live::Present(live)) => (Some(live), true),
                Some(Live::Absent) => (None, true),
                Some(Live::Unverified(_)) | None => (None, false),
            };
            let recorded_as = renamed.get(id).copied();
            let given_to = given.get(id).copied();
            let own = recorded.get(id).copied().filter(|_| given_to.is_none());
            let records = [own, recorded_as.and_then(|id| recorded.get(id).copied())];
            let settle = |resolved: Cow<'s, Resolved<'s>>, action: Action, recreated: bool| {
                let made = made(input, id, &resolved, is_sketch);
                let settled = Settled::new(resource, resolved, action, present.map(Cow::Borrowed)).making(made);
                // Where nothing is changed, that something is missing is what is to be told.
                let settled = if is_seen && !input.refresh { settled.seen(resource) } else { settled };
                // What somebody made in place of what is recorded has nothing of that.
                match records.into_iter().flatten().next().filter(|_| !recreated) {
                    Some(prior) => settled.after(prior),
                    None => settled,
                }
            };
            let is_referring = self.referring.contains(id);
            let as_sketched = sketched.filter(|_| !is_referring && !input.previews.contains_key(id));
            if let Some((resolved, planned)) = as_sketched.and_then(|it| Some((it.get(id)?, actions.get(id)?))) {
                settled.insert(id, settle(Cow::Borrowed(resolved), planned.action, planned.recreated));
                continue;
            }
            let mut lookup = |reference: &Reference| match settled.get(&reference.id) {
                Some(target) => target.look(reference),
                // What it refers to is wrong itself, and told already.
                None => Ok(Looked::Unknown),
            };
            let resolved = match is_referring.then(|| resolve(resource, &known, &mut lookup, &mut budget)) {
                None => Resolved::plain(&resource.attributes),
                Some(Ok(resolved)) => resolved,
                Some(Err(errors)) => {
                    problems.extend(errors.iter().map(|(field, err)| reference_problem(id, field, err)));
                    if budget.is_spent() {
                        return Err(problems);
                    }
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
            let resolved = match present {
                Some(live) => ignored.resolved(resolved, live),
                None => resolved,
            };
            let standing = present.map_or(Standing::Free, |live| input.owner.standing(taken_from(resource), live));
            let owned_by = match standing {
                Standing::Free => None,
                // Nothing is taken from anybody, and whose it is by now is told.
                Standing::TakesOver(_) | Standing::Refused(_) if input.refresh => None,
                // What is made in its place is new.
                Standing::TakesOver(_) if present.is_some_and(is_going) => None,
                Standing::TakesOver(owner) => Some(owner),
                Standing::Refused(message) => {
                    problems.push(Problem::new(reason::OWNED_BY_ANOTHER, message).of(id));
                    continue;
                }
            };
            let elsewhere = drift::of_elsewhere(input, (resource, records), &resolved);
            let is_elsewhere = elsewhere.is_some();
            let decided = elsewhere.map_or_else(|| decide_place(input, resource, records, &resolved, &ignored), Ok);
            let mut decision = match decided {
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
            if input.refresh && !is_elsewhere {
                decision = drift::of_wanted(input, (resource, records), (&resolved, &ignored), decision);
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
                    kept_as: given_to.cloned(),
                    owned_by: owned_by.or(decision.owned_by),
                    recreated: decision.recreated,
                    takes_over: decision.takes_over,
                    taken: decision.taken,
                    refused: decision.refused,
                    imported: decision.imported,
                    ..PlannedAction::new(id.clone(), resource.kind, decision.action)
                },
            );
            settled.insert(id, settle(Cow::Owned(resolved), decision.action, decision.recreated));
        }
        let superseded = superseded(input.clusters, unwanted, input.live);
        let mut moved = Vec::new();
        for prior in unwanted.iter().copied() {
            let id = &prior.id;
            // Removing an object that is wanted would remove the wanted one, also where that is recorded under its new id
            // already and the old record is left from a run that did not get to its end.
            let kept_as = kept.as_what(input, prior);
            let is_other_id = kept_as.is_some() || superseded.contains_key(id);
            let mut action = match input.refresh && !is_other_id {
                true => drift::of_unwanted(input, prior),
                false => remove(input.owner, prior, input.live.get(id), is_other_id),
            };
            if let Some(wanted) = kept_as {
                moved.push((id, wanted));
                // What is made anew is another object then.
                let stays = |it: &PlannedAction| !matches!(it.action, Action::Create | Action::Replace);
                action.kept_as = actions.get(wanted).is_some_and(stays).then(|| wanted.clone());
            }
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
        if !input.refresh {
            problems.extend(contents::check(input, wanted, &settled, &actions, (recorded, before)));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        // The record of an object goes to the id that has it now before another object takes its place.
        let unclear = kept.unclear(input, self, &actions).into_iter();
        let lifted = input.previews.iter().flat_map(|(id, preview)| match preview {
            Preview::Lifted(_, by) => by.iter().map(|by| (id, by)).collect(),
            _ => Vec::new(),
        });
        let later = unclear.chain(given).chain(freed(input, self, &actions)).chain(lifted).collect();
        Ok(Decided { actions, settled, moved, superseded, later })
    }
}

/// A call may have made a resource, nobody can find out, and another might make a second one.
pub fn unknown_state(id: &ResourceId) -> Problem {
    let message = "an earlier call may or may not have been made, and nobody can find out; look for the resource yourself: \
                   import it if it is there, or name its id in spec.retry of a Run if it is not";
    Problem::new(reason::UNKNOWN_STATE, message).of(id)
}

/// What the infrastructure said that it would make of a resource.
fn made<'a>(input: &PlanInput<'a>, id: &ResourceId, resolved: &Resolved<'_>, is_sketch: bool) -> Made<'a> {
    match input.previews.get(id) {
        _ if is_sketch => Made::Later,
        // It was asked with other values.
        Some(_) if !resolved.unknown.is_empty() => Made::Untold,
        Some(Preview::Changed(made) | Preview::Contested(made, _) | Preview::Replaced(Some(made))) => {
            Made::Object(made)
        }
        Some(
            Preview::Replaced(None)
            | Preview::Unverified(_)
            | Preview::MissingNamespace(_)
            | Preview::Lifted(..)
            | Preview::Refused(_),
        )
        | None => Made::Untold,
    }
}

/// The uid of the object that is live of a resource.
pub(crate) fn live_uid<'a>(input: &PlanInput<'a>, id: &ResourceId) -> Option<&'a str> {
    match input.live.get(id)? {
        Live::Present(live) => uid_of(live),
        Live::Absent | Live::Unverified(_) => None,
    }
}

/// The attributes that a preview or an apply would send: those wanted, with references replaced.
pub fn with_attributes(resource: &Resource, attributes: Map<String, Value>) -> Resource {
    let Resource { id, kind, attributes: _, depends_on, extensions } = resource;
    let (id, depends_on, extensions) = (id.clone(), depends_on.clone(), extensions.clone());
    Resource { id, kind: *kind, attributes, depends_on, extensions }
}

#[cfg(test)]
mod scenario_tests;
#[cfg(test)]
mod tests;
