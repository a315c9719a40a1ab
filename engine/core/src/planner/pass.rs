//! One pass over all resources of a plan: decides the action of each, and what references to it resolve to.
//!
//! Start at [`decide`]. A plan takes two passes: a [sketch](Pass::Sketch) without dry runs, and a second one with their results.
//!
//! Elsewhere: `decision` and `drift` decide about one resource, `identities` finds the records of one object.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::decision::{Decision, decide_placed, remove};
use super::identities::{WantedObjects, duplicates, exchanged, renamed, superseded};
use super::object_names::disagreement;
use super::{Outline, PlanInput, drift, unknown_state};
use crate::bounds::Budget;
use crate::declared::declared;
use crate::ignore::Ignored;
use crate::kind_rules::Decisions;
use crate::lookup::{DryRun, Settled};
use crate::object::is_terminating;
use crate::owner::{Ownership, take_over_from};
use crate::plan::{Action, Live, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::reference::Reference;
use crate::resolve::{Lookup, Resolved, resolve};
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;
use crate::validate::reference_problem;

/// What a pass knows of dry runs.
pub(super) enum Pass<'s> {
    /// None was made yet.
    Sketch,
    /// There is one pass only, with all results.
    Whole,
    /// Resources of a sketch were dry-run: its actions, and the resolved attributes that were sent.
    Sketched(BTreeMap<ResourceId, PlannedAction>, &'s BTreeMap<ResourceId, Resolved<'s>>),
}

/// The result of a pass. Actions are in no order yet.
pub(super) struct Decided<'s> {
    pub(super) actions: BTreeMap<ResourceId, PlannedAction>,
    /// What references to resources of the Spec resolve to.
    pub(super) settled: HashMap<&'s ResourceId, Settled<'s>>,
    /// Recorded ids whose objects the Spec has under other ids, each with the other id.
    pub(super) moved: Vec<(&'s ResourceId, &'s ResourceId)>,
    pub(super) superseded: HashMap<&'s ResourceId, &'s ResourceId>,
    /// Ids with another id whose action comes first: it takes over a record, releases a claim, or is an admission dependency.
    pub(super) later: Vec<(ResourceId, ResourceId)>,
}

/// Decides about every resource of an outline.
pub(super) fn decide<'s>(
    outline: &'s Outline<'_>,
    input: &PlanInput<'s>,
    pass: Pass<'s>,
) -> Result<Decided<'s>, Vec<Problem>> {
    let mut decider = Decider::new(outline, input, pass);
    for id in &outline.order {
        match decider.decide_wanted(id) {
            Ok(()) | Err(Stop::Resource) => {}
            Err(Stop::Plan) => return Err(decider.problems),
        }
    }
    let superseded = superseded(input.clusters, &outline.unwanted, input.live);
    let moved = decider.decide_unwanted(&superseded);
    decider.forget_records();
    decider.finish(moved, superseded)
}

/// Why a decision ends early. Its problems are recorded by then.
enum Stop {
    /// Nothing can be decided about this resource.
    Resource,
    /// The references of the Spec expand to too much, so that nothing more is resolved.
    Plan,
}

/// A resource of the Spec, with its records and live object.
struct Subject<'s> {
    id: &'s ResourceId,
    resource: &'s Resource,
    live: Option<&'s Map<String, Value>>,
    /// Whether the live object was read.
    is_read: bool,
    /// The record under its own id.
    own: Option<&'s StateResource>,
    /// Another id under which its object is recorded.
    recorded_as: Option<&'s ResourceId>,
    /// The record under its own id, then the one under another id.
    records: [Option<&'s StateResource>; 2],
}

/// A pass in progress.
struct Decider<'s> {
    outline: &'s Outline<'s>,
    input: PlanInput<'s>,
    is_sketch: bool,
    /// The resolved attributes that a sketch was dry-run with.
    sketched: Option<&'s BTreeMap<ResourceId, Resolved<'s>>>,
    kept: WantedObjects<'s>,
    renamed: HashMap<&'s ResourceId, &'s ResourceId>,
    budget: Budget,
    actions: BTreeMap<ResourceId, PlannedAction>,
    settled: HashMap<&'s ResourceId, Settled<'s>>,
    problems: Vec<Problem>,
}

impl<'s> Decider<'s> {
    fn new(outline: &'s Outline<'s>, input: &PlanInput<'s>, pass: Pass<'s>) -> Self {
        let is_sketch = matches!(pass, Pass::Sketch);
        let (actions, sketched) = match pass {
            Pass::Sketch | Pass::Whole => (BTreeMap::new(), None),
            Pass::Sketched(actions, desired) => (actions, Some(desired)),
        };
        let unknown = outline.recorded.values().filter(|resource| resource.unknown);
        let mut problems: Vec<Problem> = unknown.map(|resource| unknown_state(&resource.id)).collect();
        problems.extend(duplicates(input, outline));
        let kept = WantedObjects::of(input, outline);
        problems.extend(exchanged(input, outline, &kept));
        let renamed = renamed(input, outline);
        Self {
            outline,
            input: *input,
            is_sketch,
            sketched,
            kept,
            renamed,
            budget: Budget::default(),
            actions,
            settled: HashMap::with_capacity(outline.order.len()),
            problems,
        }
    }

    /// Decides about a resource of the Spec, after those that it depends on.
    ///
    /// The action of a sketch stays if the resource was not dry-run and refers to no other.
    fn decide_wanted(&mut self, id: &'s ResourceId) -> Result<(), Stop> {
        let subject = self.subject(id);
        let is_referring = self.outline.referring.contains(id);
        let sketched = self.sketched.filter(|_| !is_referring && !self.input.previews.contains_key(id));
        if let Some((resolved, planned)) = sketched.and_then(|it| Some((it.get(id)?, self.actions.get(id)?))) {
            let settled = self.settle(&subject, Cow::Borrowed(resolved), planned.action, planned.recreated);
            self.settled.insert(id, settled);
            return Ok(());
        }
        let (resolved, ignored) = self.resolve(&subject, is_referring)?;
        let previous_owner = self.previous_owner(&subject)?;
        let decision = self.decision(&subject, (&resolved, &ignored), previous_owner.is_some())?;
        let settled = self.settle(&subject, Cow::Owned(resolved), decision.action, decision.recreated);
        self.settled.insert(id, settled);
        self.actions.insert(id.clone(), self.planned(&subject, decision, previous_owner));
        Ok(())
    }

    fn subject(&self, id: &'s ResourceId) -> Subject<'s> {
        let Outline { by_id, recorded, .. } = self.outline;
        let (live, is_read) = match self.input.live.get(id) {
            Some(Live::Present(live)) => (Some(live), true),
            Some(Live::Absent) => (None, true),
            Some(Live::Unverified(_)) | None => (None, false),
        };
        let recorded_as = self.renamed.get(id).copied();
        let own = recorded.get(id).copied();
        let records = [own, recorded_as.and_then(|id| recorded.get(id).copied())];
        Subject { id, resource: by_id[id.0.as_str()], live, is_read, own, recorded_as, records }
    }

    /// Replaces the references of a resource, and reads its ignored fields.
    fn resolve(&mut self, subject: &Subject<'s>, is_referring: bool) -> Result<(Resolved<'s>, Ignored), Stop> {
        let Subject { id, resource, live, .. } = *subject;
        let by_id = &self.outline.by_id;
        let is_known = |id: &str| by_id.contains_key(id);
        let mut lookup = |reference: &Reference| match self.settled.get(&reference.id) {
            Some(target) => target.lookup(reference),
            // The resource that it refers to has a problem of its own.
            None => Ok(Lookup::Unknown),
        };
        let resolved = match is_referring.then(|| resolve(resource, &is_known, &mut lookup, &mut self.budget)) {
            None => Resolved::plain(&resource.attributes),
            Some(Ok(resolved)) => resolved,
            Some(Err(errors)) => {
                self.problems.extend(errors.iter().map(|(field, err)| reference_problem(id, field, err)));
                return Err(if self.budget.is_spent() { Stop::Plan } else { Stop::Resource });
            }
        };
        let mut resolved = resolved;
        resolved.sensitive.extend(self.input.sensitive.get(id).into_iter().flatten().cloned());
        resolved.sensitive.extend(declared(resource));
        if let Some(problem) = disagreement(resource, &resolved) {
            return Err(self.stop(problem));
        }
        let ignored = Ignored::of(resource).map_err(|problem| self.stop(problem.of(id)))?;
        let resolved = match live {
            Some(live) => ignored.resolved(resolved, live),
            None => resolved,
        };
        Ok((resolved, ignored))
    }

    /// The other deployment that a live object is taken over from, if any.
    fn previous_owner(&mut self, subject: &Subject<'s>) -> Result<Option<String>, Stop> {
        let Some(live) = subject.live else { return Ok(None) };
        match self.input.owner.ownership(take_over_from(subject.resource), live) {
            Ownership::Free => Ok(None),
            // A refresh takes nothing over, and `drift` reports the owner.
            Ownership::TakesOver(_) | Ownership::Refused(_) if self.input.refresh => Ok(None),
            // The object that replaces a terminating one is new.
            Ownership::TakesOver(_) if is_terminating(live) => Ok(None),
            Ownership::TakesOver(owner) => Ok(Some(owner)),
            Ownership::Refused(message) => {
                Err(self.stop(Problem::new(reason::OWNED_BY_ANOTHER, message).of(subject.id)))
            }
        }
    }

    fn decision(
        &mut self,
        subject: &Subject<'s>,
        (resolved, ignored): (&Resolved<'s>, &Ignored),
        is_taken_over: bool,
    ) -> Result<Decision, Stop> {
        let Subject { resource, records, .. } = *subject;
        let elsewhere = drift::of_elsewhere(&self.input, (resource, records), resolved);
        let is_elsewhere = elsewhere.is_some();
        let decided = elsewhere.map_or_else(|| decide_placed(&self.input, resource, records, resolved, ignored), Ok);
        let mut decision = decided.map_err(|problem| self.stop(problem))?;
        if is_taken_over && decision.action != Action::Replace {
            // The owner annotation changes even if nothing else does.
            decision.action = Action::Adopt;
        }
        if self.input.refresh && !is_elsewhere && decision.action != Action::Read {
            decision = drift::of_wanted(&self.input, (resource, records), (resolved, ignored), decision);
        }
        Ok(decision)
    }

    fn planned(&self, subject: &Subject<'s>, decision: Decision, previous_owner: Option<String>) -> PlannedAction {
        let Subject { id, resource, own, recorded_as, .. } = *subject;
        PlannedAction {
            drift: decision.drift,
            changes: decision.changes,
            depends_on: self.outline.before[id].iter().cloned().collect(),
            unverified: decision.unverified,
            // A replacement deletes the recorded object first, so it needs the record.
            recorded_as: recorded_as.filter(|_| own.is_none() || decision.action == Action::Replace).cloned(),
            owned_by: previous_owner.or(decision.owned_by),
            recreated: decision.recreated,
            takes_over: decision.takes_over,
            taken: decision.taken,
            refused: decision.refused,
            imported: decision.imported,
            ..PlannedAction::new(id.clone(), resource.kind, decision.action)
        }
    }

    /// What references to a resource resolve to, once its action is decided.
    fn settle(
        &self,
        subject: &Subject<'s>,
        resolved: Cow<'s, Resolved<'s>>,
        action: Action,
        recreated: bool,
    ) -> Settled<'s> {
        let Subject { id, resource, live, is_read, records, .. } = *subject;
        let dry_run = self.dry_run(id, &resolved);
        let settled = Settled::new(resource, resolved, action, live.map(Cow::Borrowed)).dry_run(dry_run);
        let settled = match self.input.previews.get(id) {
            Some(Preview::Planned(plan)) => settled.planned(plan),
            Some(_) | None => settled,
        };
        // A refresh reports a missing field, and not a dangling reference to it.
        let settled = if is_read && !self.input.refresh { settled.seen(resource) } else { settled };
        // An object that others created in place of the recorded one has nothing of the record.
        match records.into_iter().flatten().next().filter(|_| !recreated) {
            Some(prior) => settled.after(prior),
            None => settled,
        }
    }

    /// The result of the dry run of a resource.
    fn dry_run(&self, id: &ResourceId, resolved: &Resolved<'_>) -> DryRun<'s> {
        match self.input.previews.get(id) {
            _ if self.is_sketch => DryRun::Pending,
            // The dry run was made with other values.
            Some(_) if !resolved.unknown.is_empty() => DryRun::Unavailable,
            preview => preview.and_then(Preview::made).map_or(DryRun::Unavailable, DryRun::Object),
        }
    }

    fn stop(&mut self, problem: Problem) -> Stop {
        self.problems.push(problem);
        Stop::Resource
    }

    /// Decides about recorded resources that the Spec does not have. Returns those whose objects it has under other ids.
    fn decide_unwanted(
        &mut self,
        superseded: &HashMap<&'s ResourceId, &'s ResourceId>,
    ) -> Vec<(&'s ResourceId, &'s ResourceId)> {
        let mut moved = Vec::new();
        for prior in self.outline.unwanted.iter().copied() {
            let id = &prior.id;
            // Deleting the object would delete one that the Spec has under another id. An earlier run may have recorded it
            // under that id already, and have left the old record.
            let kept_as = self.kept.as_what(&self.input, prior);
            let is_other_id = kept_as.is_some() || superseded.contains_key(id);
            let mut action = match self.input.refresh && !is_other_id {
                true => drift::of_unwanted(&self.input, prior),
                false => remove(self.input.owner, prior, self.input.live.get(id), is_other_id),
            };
            if let Some(wanted) = kept_as {
                moved.push((id, wanted));
                // A recreated object is another one.
                let stays = |it: &PlannedAction| !matches!(it.action, Action::Create | Action::Replace);
                action.kept_as = self.actions.get(wanted).is_some_and(stays).then(|| wanted.clone());
            }
            self.actions.insert(id.clone(), action);
        }
        moved
    }

    /// Forgets the records of open calls that left nothing behind, and those in forgotten clusters.
    fn forget_records(&mut self) {
        let Outline { by_id, recorded, .. } = self.outline;
        let forget = |id: &ResourceId, kind| PlannedAction::new(id.clone(), kind, Action::Forget);
        let is_left = |id: &ResourceId| !by_id.contains_key(id.0.as_str()) && !recorded.contains_key(id);
        for call in self.input.state.open.iter().filter(|call| is_left(&call.id)) {
            self.actions.insert(call.id.clone(), forget(&call.id, call.place.kind));
        }
        for (id, clusters) in self.input.forgotten_clusters {
            let action = self.actions.entry(id.clone()).or_insert_with(|| forget(id, ResourceType::Kubernetes));
            action.forgotten_clusters.clone_from(clusters);
        }
    }

    fn finish(
        mut self,
        moved: Vec<(&'s ResourceId, &'s ResourceId)>,
        superseded: HashMap<&'s ResourceId, &'s ResourceId>,
    ) -> Result<Decided<'s>, Vec<Problem>> {
        let (input, outline) = (&self.input, self.outline);
        let Outline { wanted, recorded, before, .. } = outline;
        let (settled, actions) = (&self.settled, &self.actions);
        let decisions = Decisions { input, wanted, recorded, before, settled, actions };
        if !input.refresh {
            self.problems.extend(input.rules.lost(&decisions));
        }
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let unclear = self.kept.unclear(input, outline, actions).into_iter();
        let admitted = input.previews.iter().flat_map(|(id, preview)| match preview {
            Preview::RejectedUntil(_, by) => by.iter().map(|by| (id, by)).collect(),
            _ => Vec::new(),
        });
        let released = input.rules.released(&decisions);
        let later = unclear.chain(admitted).map(|(id, first)| (id.clone(), first.clone())).chain(released).collect();
        Ok(Decided { actions: self.actions, settled: self.settled, moved, superseded, later })
    }
}
