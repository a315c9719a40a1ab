//! The walk of a plan: runs its actions as parallel as their order allows.
//!
//! A failure stops the dependents of the failed resource and all later stages, so that deletions are left for the next
//! Run. Cancellation starts nothing more and waits for the calls in flight, but not for deletions to complete. An
//! expired call lease drops the calls in flight as well.
//!
//! Elsewhere: `schedule` decides which actions may start, `permits` limits the calls.

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
    Action, Plan, PlannedAction, Problem, ResourceId, Stage, StateResource,
    moved::{MOVED_FROM, unmarked},
    problem::reason,
    record::CallTarget,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    call::Caller,
    observer::{Abandoned, Intended, Observer, ResourceOutcome, ResourceResult},
    recovery,
    results::{done, report, skipped},
    schedule::Schedule,
    verify_unchanged::Unchanged,
};

/// The number of parallel record updates of Unchanged resources.
const RECORD_UPDATES: usize = 1024;

/// The maximum number of waiting resources whose permits others use, since each needs memory.
const MAX_WAITING: usize = 1024;

/// How many actions of a deferred runtime run at once: it only collects them, so that one intent may be for all.
const DEFERRED_WINDOW: usize = 512;

/// How many postponed deletions a problem names.
const NAMED: usize = 20;

type Gate = Shared<BoxFuture<'static, Result<(), Abandoned>>>;
/// The result of a resource, if any, and whether it was recorded.
type Reported = (Option<ResourceResult>, Result<(), Abandoned>);
type Ended = (ResourceId, Reported);
type Running = FuturesUnordered<BoxFuture<'static, Ended>>;

/// A walk in progress.
pub(crate) struct Walk<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) recorded: HashMap<&'a ResourceId, &'a StateResource>,
    /// The same before the recovery of lost calls.
    pub(crate) before: HashMap<&'a ResourceId, &'a StateResource>,
    /// The records that this walk wrote with the mark of another id, which has their objects too.
    pub(crate) marked: HashMap<ResourceId, StateResource>,
    /// The targets of lost calls.
    pub(crate) open: HashMap<&'a ResourceId, &'a CallTarget>,
    pub(crate) caller: Caller,
    pub(crate) observer: Arc<dyn Observer>,
    /// The maximum number of started and unfinished resources, without waiting and deferred ones.
    pub(crate) window: usize,
    /// Results of a deferred runtime, reported when it has finished.
    pub(crate) deferred_results: Vec<ResourceResult>,
    pub(crate) problems: Vec<Problem>,
    /// Deletions that were not begun, since something that comes first did not succeed.
    pub(crate) undeleted: BTreeSet<ResourceId>,
    pub(crate) abandoned: bool,
    /// Whether a health check needs resources without a call.
    pub(crate) checks_others: bool,
}

impl Walk<'_> {
    /// Walks to the end. What is `finished` is not begun again.
    pub(crate) async fn run(&mut self, finished: &HashSet<&ResourceId>) {
        let plan = self.plan;
        let mut schedule = Schedule::of(plan);
        let deferred: HashSet<&ResourceId> =
            plan.actions.iter().filter(|planned| self.is_deferred(planned)).map(|planned| &planned.id).collect();
        let mut running = Running::new();
        let mut ended: BTreeSet<ResourceId> = BTreeSet::new();
        // Unchanged resources whose records are updated or read, and data sources that are read.
        let mut telling: HashSet<ResourceId> = HashSet::new();
        // The number of deferred changes that are being collected.
        let mut collected = 0;
        loop {
            let mut batch: Vec<&PlannedAction> = Vec::new();
            while let Some(action) = schedule.first() {
                let id = &action.id;
                if self.caller.is_stopped() || self.abandoned {
                    break;
                }
                if action.action == Action::Read {
                    if telling.len() >= RECORD_UPDATES {
                        break;
                    }
                    schedule.begin();
                    ended.insert(id.clone());
                    if !self.is_needed(id, &schedule, finished) {
                        schedule.succeeded(id);
                        continue;
                    }
                    telling.insert(id.clone());
                    let (caller, planned) = (self.caller.clone(), action.clone());
                    running.push(self.aside(action, async move { Some(caller.call(&planned, &[]).await) }));
                    continue;
                }
                // An Unchanged resource may be checked again: an earlier try may have recorded it before its turn.
                let is_left = action.action == Action::Unchanged;
                if is_left || finished.contains(id) {
                    if telling.len() >= RECORD_UPDATES {
                        break;
                    }
                    schedule.begin();
                    ended.insert(id.clone());
                    match self.check_unchanged(action, !is_left) {
                        None => schedule.succeeded(id),
                        // Many records are written together, while other actions start.
                        Some(leaving) => {
                            telling.insert(id.clone());
                            running.push(leaving);
                        }
                    }
                    continue;
                }
                let is_full = if deferred.contains(id) {
                    collected >= DEFERRED_WINDOW
                } else {
                    let waiting = self.caller.permits.released().min(MAX_WAITING);
                    running.len() - telling.len() + batch.len() - collected >= self.window + waiting
                };
                if is_full {
                    break;
                }
                schedule.begin();
                collected += usize::from(deferred.contains(id));
                batch.push(action);
            }
            self.start(batch, &running);
            let ended_next = tokio::select! {
                biased;
                next = running.next() => next,
                // Other actions may start with its permit.
                () = self.caller.permits.wait_for_release() => continue,
            };
            let Some((id, (result, told))) = ended_next else { break };
            self.abandoned |= told.is_err();
            if !telling.remove(&id) && deferred.contains(&id) {
                collected -= 1;
            }
            let why = result.as_ref().and_then(|result| match (result.outcome, &result.problem) {
                (ResourceOutcome::Done, None) => None,
                (ResourceOutcome::Done, Some(_)) => Some("is not healthy"),
                (ResourceOutcome::Failed | ResourceOutcome::Skipped, _) => Some("was not done"),
                (ResourceOutcome::Unknown, _) => Some("may not have been done"),
            });
            if let Some(result) = result {
                self.note_result(result, deferred.contains(&id));
            }
            ended.insert(id.clone());
            match why {
                None => schedule.succeeded(&id),
                Some(why) => self.skip_after(&id, why, &schedule, &mut ended).await,
            }
        }
        self.skip_stages(&schedule, &ended).await;
    }

    /// Whether a value that is only read is needed. An ephemeral one may be made anew by each read, so that only a call
    /// needs it.
    fn is_needed(&self, id: &ResourceId, schedule: &Schedule<'_>, finished: &HashSet<&ResourceId>) -> bool {
        let is_ephemeral = self.caller.values.wanted(id).is_some_and(|wanted| wanted.is_ephemeral());
        if !is_ephemeral || self.checks_others {
            return true;
        }
        let (mut seen, mut open) = (HashSet::from([id]), vec![id]);
        while let Some(id) = open.pop() {
            for next in schedule.successors(id) {
                if next.action.is_call() && !finished.contains(&next.id) {
                    return true;
                }
                if seen.insert(&next.id) {
                    open.push(&next.id);
                }
            }
        }
        false
    }

    /// The record of a resource, perhaps under a former id. A record under its own id is of an earlier try.
    fn prior(&self, planned: &PlannedAction) -> Option<&StateResource> {
        self.records(planned).next()
    }

    fn records(&self, planned: &PlannedAction) -> impl Iterator<Item = &StateResource> {
        let ids = [Some(&planned.id), planned.recorded_as.as_ref()];
        // The deletion reports an object with a new owner: that it stays, and why.
        let before = |id| self.before.get(id).filter(|_| planned.action == Action::Delete);
        let records = ids.into_iter().flatten().filter_map(move |id| self.recorded.get(id).or_else(|| before(id)));
        records.copied()
    }

    /// Handles an Unchanged resource: its record may need an update, which is reported.
    fn check_unchanged(&self, planned: &PlannedAction, is_finished: bool) -> Option<BoxFuture<'static, Ended>> {
        let own = self.recorded.get(&planned.id).copied();
        let prior = if is_finished { own } else { self.prior(planned) };
        self.caller.values.settle_uncalled(&planned.id, prior);
        let prior = prior.filter(|_| !is_finished)?;
        match self.caller.check_unchanged(planned, prior) {
            Unchanged::AsRecorded => None,
            Unchanged::Report(result) => Some(self.aside(planned, std::future::ready(Some(*result)))),
            Unchanged::Read(unseen) => {
                let (caller, planned, prior) = (self.caller.clone(), planned.clone(), prior.clone());
                let action = planned.clone();
                Some(self.aside(&action, async move { caller.read_unchanged(&planned, &prior, &unseen).await }))
            }
        }
    }

    /// Runs work without a call, and reports its result.
    fn aside(
        &self,
        planned: &PlannedAction,
        work: impl Future<Output = Option<ResourceResult>> + Send + 'static,
    ) -> BoxFuture<'static, Ended> {
        let (observer, deferred) = (self.observer.clone(), self.is_deferred(planned));
        spawned(planned.id.clone(), async move { report_result(&*observer, deferred, work.await).await })
    }

    /// Begins a batch: one intent for all resources of the same action.
    fn start(&self, batch: Vec<&PlannedAction>, running: &Running) {
        let mut by_action: BTreeMap<Action, Vec<Intended>> = BTreeMap::new();
        for planned in &batch {
            let (wanted, open) = (self.caller.values.wanted(&planned.id), self.open.get(&planned.id).copied());
            let place = recovery::call_target(
                self.caller.runtime.kubernetes().clusters(),
                planned,
                wanted,
                self.prior(planned),
                open,
            );
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
            let deferred = self.is_deferred(&planned);
            let (id, unmarked) = (planned.id.clone(), self.unmarked(&planned));
            running.push(spawned(id, async move {
                if gate.await.is_err() {
                    return (Some(skipped(&planned, "its intent could not be recorded")), Err(Abandoned));
                }
                let result = caller.call(&planned, &records).await;
                let unmarked = unmarked.filter(|_| result.outcome == ResourceOutcome::Done);
                let (result, mut told) = report_result(&*observer, deferred, Some(result)).await;
                if let (Ok(()), Some(unmarked)) = (&told, unmarked) {
                    told = observer.result(unmarked).await;
                }
                (result, told)
            }));
        }
    }

    /// Once a former id is forgotten, another object may have it. So the record of the object has its mark no more; the
    /// result of its action is reported again, with that record.
    fn unmarked(&self, forgotten: &PlannedAction) -> Option<ResourceResult> {
        if forgotten.action != Action::Forget {
            return None;
        }
        let is_moved = |it: &&PlannedAction| it.action.keeps() && it.recorded_as.is_some();
        let mut moved = self.plan.actions.iter().filter(is_moved);
        let stays = moved.find(|it| forgotten.after.contains(&it.id))?;
        let record = self.marked.get(&stays.id).or_else(|| self.recorded.get(&stays.id).copied())?;
        Some(done(stays, Some(unmarked(record.clone(), &forgotten.id)?), None))
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
                    self.skip(next, &format!("{id} comes first, but {why}")).await;
                }
            }
        }
    }

    /// Reports the actions whose stages were not reached, and postponed deletions of a stopped run.
    async fn skip_stages(&mut self, schedule: &Schedule<'_>, ended: &BTreeSet<ResourceId>) {
        // Once the grant is over, another runner may report.
        if self.caller.grant.check().is_err() {
            return;
        }
        let is_stopped = self.caller.is_stopped();
        let plan = self.plan;
        let (mut results, mut deferred) = (Vec::new(), Vec::new());
        for action in plan.actions.iter().filter(|it| it.action.is_call() && !ended.contains(&it.id)) {
            let why = match action.stage() {
                _ if is_stopped && (action.action == Action::Delete || schedule.is_blocked(action)) => {
                    "the run was stopped before its turn"
                }
                _ if !schedule.is_blocked(action) => continue,
                Stage::Changes | Stage::Exchanges | Stage::Admission => {
                    "it is applied after all other changes, and some of these failed"
                }
                Stage::AdmissionDeletions | Stage::CustomResourceDeletions | Stage::Deletions => {
                    "deletions wait for all changes, and controllers for custom resources; some of these failed"
                }
            };
            let result = self.skipped(action, why);
            if self.is_deferred(action) { deferred.push(result) } else { results.push(result) }
        }
        self.deferred_results.extend(deferred);
        if !self.abandoned {
            self.abandoned = report(&*self.observer, results).await.is_err();
        }
    }

    /// Reports that no action is begun, for this reason, apart from `finished` ones.
    pub(crate) async fn skip_all(&mut self, finished: &HashSet<&ResourceId>, why: &str) {
        if self.caller.grant.check().is_err() {
            return;
        }
        let plan = self.plan;
        for action in plan.actions.iter().filter(|it| it.action.is_call() && !finished.contains(&it.id)) {
            self.skip(action, why).await;
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
        if self.is_deferred(action) {
            self.deferred_results.push(result);
        } else if !self.abandoned && self.observer.result(result).await.is_err() {
            self.abandoned = true;
        }
    }

    /// Names the deletions that were left, after a walk that was not stopped.
    pub(crate) fn undeleted_problem(&self) -> Option<Problem> {
        let named: Vec<&str> = self.undeleted.iter().take(NAMED).map(|id| id.0.as_str()).collect();
        let rest = self.undeleted.len() - named.len();
        let more = if rest > 0 { format!(" and {rest} more, see runs/log") } else { String::new() };
        (!named.is_empty()).then(|| {
            let message =
                format!("the next run makes these deletions, because earlier steps failed: {}{more}", named.join(", "));
            Problem::new(reason::DELETIONS_LEFT, message)
        })
    }

    /// Whether an action is only collected. An import changes nothing, so that its result is reported at once.
    fn is_deferred(&self, planned: &PlannedAction) -> bool {
        planned.action != Action::Import && self.caller.runtime.is_deferred(planned.kind)
    }

    fn note_result(&mut self, result: ResourceResult, is_deferred: bool) {
        self.problems.extend(result.problem.clone());
        if let Some(record) = result.resource.as_ref().filter(|record| record.extensions.contains_key(MOVED_FROM)) {
            self.marked.insert(result.id.clone(), record.clone());
        }
        if is_deferred {
            self.deferred_results.push(result);
        }
    }
}

/// Runs work in a task of its own, so that it continues while results are recorded.
fn spawned(id: ResourceId, work: impl Future<Output = Reported> + Send + 'static) -> BoxFuture<'static, Ended> {
    let task = AbortOnDropHandle::new(tokio::spawn(work));
    async move { (id, task.await.expect("calls do not panic")) }.boxed()
}

/// Tells a result, unless it `is_held` back.
async fn report_result(observer: &dyn Observer, is_held: bool, result: Option<ResourceResult>) -> Reported {
    let told = match &result {
        Some(result) if !is_held => observer.result(result.clone()).await,
        Some(_) | None => Ok(()),
    };
    (result, told)
}
