//! Walks a plan: as parallel as its order allows, and only ever forward.
//!
//! Failure stops what comes after the failed resource, and the later stages of the plan: deletions are left and reported.
//! Cancellation starts nothing more and waits for the calls in flight, but not for objects to be gone that are being deleted.
//! So does the end of the grant, and drops them. What is only waited for, as for an object to be gone, keeps nothing else
//! from being called for.
//!
//! Elsewhere: `schedule` says which actions may begin.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream::FuturesUnordered,
};
use stoa_engine::{
    Action, Plan, PlannedAction, Problem, Resource, ResourceId, Stage, StateResource, problem::reason, record::Place,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    call::Caller,
    leave::Leaving,
    lost,
    observer::{Abandoned, Intended, Observer, ResourceOutcome, ResourceResult},
    results::{skipped, tell},
    schedule::Schedule,
};

/// How many records of what is left alone are brought up to date at once.
const TOLD: usize = 1024;

/// How many resources may be waited for at once in whose place others are begun: each takes some memory.
const WAITED_FOR: usize = 1024;

/// How many deletions that were left are named in a problem.
const NAMED: usize = 20;

type Gate = Shared<BoxFuture<'static, Result<(), Abandoned>>>;
/// What came of a resource, if there is anything to tell, and whether somebody heard of it.
type Kept = (Option<ResourceResult>, Result<(), Abandoned>);
type Ended = (ResourceId, Kept);
type Running = FuturesUnordered<BoxFuture<'static, Ended>>;

/// A walk, and what came of it so far.
pub(crate) struct Walk<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) recorded: HashMap<&'a ResourceId, &'a StateResource>,
    /// The same before lost calls were looked for.
    pub(crate) before: HashMap<&'a ResourceId, &'a StateResource>,
    /// Where calls may have left something behind that nobody knows the results of.
    pub(crate) open: HashMap<&'a ResourceId, &'a Place>,
    pub(crate) caller: Caller,
    pub(crate) observer: Arc<dyn Observer>,
    /// How many resources are begun and not ended at once, without those that are only waited for.
    pub(crate) window: usize,
    pub(crate) deferred: bool,
    /// Results of a deferred runtime, told when it has finished.
    pub(crate) held: Vec<ResourceResult>,
    pub(crate) problems: Vec<Problem>,
    /// Deletions that were not begun, since something that comes first did not succeed.
    pub(crate) undeleted: BTreeSet<ResourceId>,
    pub(crate) abandoned: bool,
}

impl Walk<'_> {
    /// Walks to the end. What is `finished` is not begun again.
    pub(crate) async fn run(&mut self, finished: &HashSet<&ResourceId>) {
        let plan = self.plan;
        let mut schedule = Schedule::of(plan);
        let mut running = Running::new();
        let mut ended: BTreeSet<ResourceId> = BTreeSet::new();
        // What is left alone and whose record is brought up to date, or is looked at for that.
        let mut telling: HashSet<ResourceId> = HashSet::new();
        loop {
            let mut batch: Vec<&PlannedAction> = Vec::new();
            while let Some(action) = schedule.first() {
                let id = &action.id;
                if self.caller.is_stopped() || self.abandoned {
                    break;
                }
                // What is left as it is can be left again: a try before may have had its record told before it was its turn.
                let is_left = action.action == Action::Unchanged;
                if is_left || finished.contains(id) {
                    if telling.len() >= TOLD {
                        break;
                    }
                    schedule.begin();
                    ended.insert(id.clone());
                    match self.leave(action, !is_left) {
                        None => schedule.succeeded(id),
                        // So that many records are kept together, and others are begun meanwhile.
                        Some(leaving) => {
                            telling.insert(id.clone());
                            running.push(leaving);
                        }
                    }
                    continue;
                }
                let waited_for = self.caller.permits.given_back().min(WAITED_FOR);
                if running.len() - telling.len() + batch.len() >= self.window + waited_for {
                    break;
                }
                schedule.begin();
                batch.push(action);
            }
            self.start(batch, &running);
            let ended_next = tokio::select! {
                biased;
                next = running.next() => next,
                // Others may begin in its place.
                () = self.caller.permits.one_given_back() => continue,
            };
            let Some((id, (result, told))) = ended_next else { break };
            self.abandoned |= told.is_err();
            telling.remove(&id);
            let why = result.as_ref().and_then(|result| match (result.outcome, &result.problem) {
                (ResourceOutcome::Done, None) => None,
                (ResourceOutcome::Done, Some(_)) => Some("is not healthy"),
                (ResourceOutcome::Failed | ResourceOutcome::Skipped, _) => Some("was not done"),
                (ResourceOutcome::Unknown, _) => Some("may not have been done"),
            });
            if let Some(result) = result {
                self.take(result);
            }
            ended.insert(id.clone());
            match why {
                None => schedule.succeeded(&id),
                Some(why) => self.skip_after(&id, why, &schedule, &mut ended).await,
            }
        }
        self.skip_stages(&schedule, &ended).await;
    }

    /// What is recorded of a resource, perhaps under an id that it had before. What is recorded under its own is of an
    /// earlier try.
    fn prior(&self, planned: &PlannedAction) -> Option<&StateResource> {
        self.records(planned).next()
    }

    fn records(&self, planned: &PlannedAction) -> impl Iterator<Item = &StateResource> {
        let ids = [Some(&planned.id), planned.recorded_as.as_ref()];
        // What a look found to be others' by now is theirs to say when it is to be deleted: that it stays, and why.
        let before = |id| self.before.get(id).filter(|_| planned.action == Action::Delete);
        let records = ids.into_iter().flatten().filter_map(move |id| self.recorded.get(id).or_else(|| before(id)));
        records.copied().filter(move |record| !self.is_of_another(planned, record))
    }

    /// Whether a record is of another wanted object: by the plan, which leaves that to the other, or since another was brought
    /// to that id, or put on record under it.
    fn is_of_another(&self, planned: &PlannedAction, record: &StateResource) -> bool {
        let wanted = self.caller.values.wanted(&record.id);
        let is_in_place = |wanted: &Resource| self.caller.runtime.clusters().is_in_place(record, wanted);
        if record.id != planned.id {
            let settled = record.uid().and_then(|uid| self.caller.values.of_uid(uid));
            return wanted.is_some_and(is_in_place) || settled.is_some_and(|id| id != planned.id);
        }
        let is_given = planned.kept_as.is_some() && planned.action.keeps();
        is_given && wanted.is_some_and(|wanted| !is_in_place(wanted))
    }

    /// What is left alone: only its record may have to be brought up to date, of which somebody has to be told then.
    fn leave(&self, planned: &PlannedAction, is_finished: bool) -> Option<BoxFuture<'static, Ended>> {
        let own = self.recorded.get(&planned.id).copied();
        let prior = if is_finished { own } else { self.prior(planned) };
        let is_lost = prior.is_none() && planned.recorded_as.is_some() && !is_finished && !self.deferred;
        if is_lost {
            let (caller, planned) = (self.caller.clone(), planned.clone());
            return Some(self.aside(planned.id.clone(), async move { caller.find(&planned).await }));
        }
        self.caller.values.settle_left(&planned.id, prior);
        let prior = prior.filter(|_| !is_finished)?;
        match self.caller.leave(planned, prior) {
            Leaving::AsRecorded => None,
            Leaving::Told(result) => Some(self.aside(planned.id.clone(), std::future::ready(Some(*result)))),
            Leaving::Unseen(unseen) => {
                let (caller, planned, prior) = (self.caller.clone(), planned.clone(), prior.clone());
                let id = planned.id.clone();
                Some(self.aside(id, async move { caller.look(&planned, &prior, &unseen).await }))
            }
        }
    }

    /// Work on what is not called for, and what is told of it.
    fn aside(
        &self,
        id: ResourceId,
        work: impl Future<Output = Option<ResourceResult>> + Send + 'static,
    ) -> BoxFuture<'static, Ended> {
        let (observer, deferred) = (self.observer.clone(), self.deferred);
        spawned(id, async move { keep(&*observer, deferred, work.await).await })
    }

    /// Begins a batch: one intent for all resources of the same action.
    fn start(&self, batch: Vec<&PlannedAction>, running: &Running) {
        let mut by_action: BTreeMap<Action, Vec<Intended>> = BTreeMap::new();
        for planned in &batch {
            let (wanted, open) = (self.caller.values.wanted(&planned.id), self.open.get(&planned.id).copied());
            let place = lost::place(self.caller.runtime.clusters(), planned, wanted, self.prior(planned), open);
            by_action.entry(planned.action).or_default().push(Intended { id: planned.id.clone(), place });
        }
        let gates: BTreeMap<Action, Gate> = by_action
            .into_iter()
            .map(|(action, calls)| {
                let observer = self.observer.clone();
                (action, async move { observer.intent(&calls, action).await }.boxed().shared())
            })
            .collect();
        for planned in batch {
            let gate = gates[&planned.action].clone();
            let (caller, observer) = (self.caller.clone(), self.observer.clone());
            let planned = planned.clone();
            let records: Vec<StateResource> = self.records(&planned).cloned().collect();
            let deferred = self.deferred;
            let id = planned.id.clone();
            running.push(spawned(id, async move {
                if gate.await.is_err() {
                    return (Some(skipped(&planned, "its intent could not be kept")), Err(Abandoned));
                }
                keep(&*observer, deferred, Some(caller.call(&planned, &records).await)).await
            }));
        }
    }

    /// Reports everything that comes after a resource which is not as it should be, and why it was not begun.
    async fn skip_after(
        &mut self,
        id: &ResourceId,
        why: &str,
        schedule: &Schedule<'_>,
        ended: &mut BTreeSet<ResourceId>,
    ) {
        let mut open = vec![id.clone()];
        while let Some(before) = open.pop() {
            for next in schedule.successors(&before) {
                if !ended.insert(next.id.clone()) {
                    continue;
                }
                open.push(next.id.clone());
                if next.action.is_call() {
                    self.skip(next, &format!("{id} comes first and {why}")).await;
                }
            }
        }
    }

    /// Reports the actions whose stage was not reached, and deletions that were not begun because the run was stopped.
    async fn skip_stages(&mut self, schedule: &Schedule<'_>, ended: &BTreeSet<ResourceId>) {
        // Once the grant is over, another runner may report.
        if self.caller.grant.check().is_err() {
            return;
        }
        let is_stopped = self.caller.is_stopped();
        let plan = self.plan;
        let mut results = Vec::new();
        for action in plan.actions.iter().filter(|it| it.action.is_call() && !ended.contains(&it.id)) {
            let why = match action.stage() {
                _ if is_stopped && (action.action == Action::Delete || schedule.is_held(action)) => {
                    "the run was stopped before its turn"
                }
                _ if !schedule.is_held(action) => continue,
                Stage::Changes | Stage::Exchanges | Stage::Admission => {
                    "it comes after all other changes, and not all of them succeeded"
                }
                Stage::AdmissionDeletions | Stage::CustomResourceDeletions | Stage::Deletions => {
                    "deletions come after all changes, controllers after custom resources; not all of these succeeded"
                }
            };
            results.push(self.skipped(action, why));
        }
        if self.deferred {
            self.held.extend(results);
        } else if !self.abandoned {
            self.abandoned = tell(&*self.observer, results).await.is_err();
        }
    }

    fn skipped(&mut self, action: &PlannedAction, why: &str) -> ResourceResult {
        if action.action == Action::Delete {
            self.undeleted.insert(action.id.clone());
        }
        skipped(action, why)
    }

    async fn skip(&mut self, action: &PlannedAction, why: &str) {
        let result = self.skipped(action, why);
        if self.deferred {
            self.held.push(result);
        } else if !self.abandoned && self.observer.result(result).await.is_err() {
            self.abandoned = true;
        }
    }

    /// Names the deletions that were left, after a walk that was not stopped.
    pub(crate) fn left(&self) -> Option<Problem> {
        let named: Vec<&str> = self.undeleted.iter().take(NAMED).map(|id| id.0.as_str()).collect();
        let rest = self.undeleted.len() - named.len();
        let more = if rest > 0 { format!(" and {rest} more, see runs/log") } else { String::new() };
        (!named.is_empty()).then(|| {
            let message = format!(
                "deletions are left for the next run, because not everything that comes first succeeded: {}{more}",
                named.join(", ")
            );
            Problem::new(reason::DELETIONS_LEFT, message)
        })
    }

    fn take(&mut self, result: ResourceResult) {
        self.problems.extend(result.problem.clone());
        if self.deferred {
            self.held.push(result);
        }
    }
}

/// Work in a task of its own, so that it goes on while results are being kept.
fn spawned(id: ResourceId, work: impl Future<Output = Kept> + Send + 'static) -> BoxFuture<'static, Ended> {
    let task = AbortOnDropHandle::new(tokio::spawn(work));
    async move { (id, task.await.expect("calls do not panic")) }.boxed()
}

/// Tells a result, unless it `is_held` back.
async fn keep(observer: &dyn Observer, is_held: bool, result: Option<ResourceResult>) -> Kept {
    let told = match &result {
        Some(result) if !is_held => observer.result(result.clone()).await,
        Some(_) | None => Ok(()),
    };
    (result, told)
}
