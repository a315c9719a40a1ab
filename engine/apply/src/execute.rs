//! Walks a plan: as parallel as its order allows, and only ever forward.
//!
//! Failure stops what comes after the failed resource, and nothing else. Cancellation starts nothing
//! more and waits for the calls in flight.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream::FuturesUnordered,
};
use stoa_engine::{Action, Plan, PlannedAction, Problem, Resource, ResourceId, Spec, State, problem::reason};
use stoa_runtime::{Finished, Health, Runtime, RuntimeError};
use tokio_util::sync::CancellationToken;

use crate::{
    call::{Caller, skipped},
    observer::{Abandoned, Observer, ResourceOutcome, ResourceResult},
    values::Values,
};

/// What to carry out.
#[derive(Clone, Debug)]
pub struct Execution<'a> {
    /// The Spec that the plan was made from.
    pub spec: &'a Spec,
    /// The plan.
    pub plan: &'a Plan,
    /// What is recorded now, results of an earlier try included.
    pub state: &'a State,
    /// What an earlier try of the same run finished.
    pub done: &'a [ResourceId],
}

/// How to carry it out.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many resources are worked on at once.
    pub parallelism: usize,
    /// How long one resource may take.
    pub resource_timeout: Duration,
    /// How long resources may take, all together, to become healthy at the end.
    pub health_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { parallelism: 16, resource_timeout: Duration::from_secs(300), health_timeout: Duration::from_secs(300) }
    }
}

/// What came of it all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Everything was done and is healthy.
    pub succeeded: bool,
    /// It was stopped before its end.
    pub canceled: bool,
    /// The commit that a GitOps runtime wrote or found written for this run.
    pub commit: Option<String>,
    /// What is wrong, by id.
    pub problems: Vec<Problem>,
}

/// Carries out a plan.
///
/// May be called again with the same plan after it was interrupted; what is done is not done twice.
///
/// # Errors
///
/// [`Abandoned`] when the observer went away. What was in flight has ended by then.
pub async fn execute(
    execution: Execution<'_>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    options: &Options,
    cancel: CancellationToken,
) -> Result<Outcome, Abandoned> {
    if execution.spec.digest() != execution.plan.spec_digest {
        let message = "the plan was made from another Spec";
        let problems = vec![Problem::new(reason::STALE_PLAN, message)];
        return Ok(Outcome { problems, ..Outcome::default() });
    }
    let deferred = runtime.is_deferred();
    let finished: BTreeSet<&ResourceId> = if deferred { BTreeSet::new() } else { execution.done.iter().collect() };
    let values = Arc::new(Values::new(execution.spec));
    if let Err(error) = values.settle_rest(&*runtime, execution.plan, execution.state, &finished).await {
        let problems = vec![Problem::new(reason::UNAVAILABLE, error.to_string())];
        return Ok(Outcome { problems, ..Outcome::default() });
    }
    let caller = Caller {
        runtime: runtime.clone(),
        values: values.clone(),
        timeout: options.resource_timeout,
        stop: cancel.clone(),
    };
    let mut walk = Walk {
        execution: &execution,
        caller,
        observer: observer.clone(),
        parallelism: options.parallelism.max(1),
        cancel: cancel.clone(),
        deferred,
        held: Vec::new(),
        problems: Vec::new(),
        abandoned: false,
    };
    walk.run(&finished).await;
    let (held, mut problems, abandoned) = (walk.held, walk.problems, walk.abandoned);
    if abandoned {
        return Err(Abandoned);
    }
    let mut outcome = Outcome { canceled: cancel.is_cancelled(), ..Outcome::default() };
    // A deferred runtime writes nothing of a walk that failed or was stopped: half of a change is
    // not what anybody asked for.
    let is_whole = problems.is_empty() && !outcome.canceled;
    if !deferred || is_whole {
        match finish(&*runtime, &cancel).await {
            Ok(Finished { commit }) => outcome.commit = commit,
            Err(error) => problems.push(Problem::new(reason::UNAVAILABLE, error.to_string())),
        }
    }
    if deferred {
        tell_held(&*observer, held, &problems, is_whole).await?;
    }
    if problems.is_empty() && !outcome.canceled {
        verify(&execution, &*runtime, &*observer, &values, options, &cancel, &mut problems).await;
        outcome.canceled = cancel.is_cancelled() && !problems.is_empty();
    }
    problems.sort();
    outcome.succeeded = problems.is_empty() && !outcome.canceled;
    outcome.problems = problems;
    Ok(outcome)
}

/// Finishes, tried again while that may help.
async fn finish(runtime: &dyn Runtime, cancel: &CancellationToken) -> Result<Finished, RuntimeError> {
    let mut wait = Duration::from_millis(250);
    for _ in 0..6 {
        match runtime.finish().await {
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, ?wait, "finishing is tried again");
                if cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                    return Err(error);
                }
                wait *= 2;
            }
            other => return other,
        }
    }
    runtime.finish().await
}

/// Tells the results that were held back until the changes were really made.
async fn tell_held(
    observer: &dyn Observer,
    held: Vec<ResourceResult>,
    problems: &[Problem],
    is_whole: bool,
) -> Result<(), Abandoned> {
    let is_written = is_whole && problems.is_empty();
    let mut telling: FuturesUnordered<_> = held
        .into_iter()
        .map(|mut result| {
            if !is_written && result.outcome == ResourceOutcome::Done {
                result.outcome = ResourceOutcome::Skipped;
                result.message = "nothing was written, because not everything could be".to_owned();
                result.resource = None;
            }
            observer.result(result)
        })
        .collect();
    while let Some(told) = telling.next().await {
        told?;
    }
    Ok(())
}

/// Waits until everything that this run brought is healthy.
async fn verify(
    execution: &Execution<'_>,
    runtime: &dyn Runtime,
    observer: &dyn Observer,
    values: &Values,
    options: &Options,
    cancel: &CancellationToken,
    problems: &mut Vec<Problem>,
) {
    let brought = execution.plan.actions.iter().filter(|p| p.action.is_call() && p.action.keeps());
    let ready: Vec<(ResourceId, Resource)> =
        brought.filter_map(|p| Some((p.id.clone(), values.ready(&p.id).ok()?.desired))).collect();
    let checks = ready.iter().map(|(id, desired)| {
        let check: BoxFuture<'_, Option<Problem>> = Box::pin(async move {
            let (reports, mut heard) = tokio::sync::mpsc::unbounded_channel::<(Health, String)>();
            let report = move |health: Health, message: &str| {
                // The receiver lives as long as the wait does.
                let _ = reports.send((health, message.to_owned()));
            };
            let wait = tokio::time::timeout(options.health_timeout, runtime.wait_healthy(desired, &report));
            let mut wait = std::pin::pin!(wait);
            let mut last = String::new();
            let ended = loop {
                tokio::select! {
                    Some((health, message)) = heard.recv() => {
                        last.clone_from(&message);
                        observer.health(id, health, &message).await;
                    }
                    ended = &mut wait => break ended,
                }
            };
            let problem = match ended {
                Ok(Ok(Health::Failed)) => {
                    Some(Problem::new(reason::UNHEALTHY, format!("it was applied and failed: {last}")))
                }
                Ok(Ok(health)) => {
                    observer.health(id, health, "").await;
                    None
                }
                Ok(Err(error)) => Some(Problem::new(reason::UNAVAILABLE, error.to_string())),
                Err(_) => {
                    let limit = options.health_timeout;
                    Some(Problem::new(
                        reason::TIMED_OUT,
                        format!("it was applied and is not healthy after {limit:?}: {last}"),
                    ))
                }
            };
            problem.map(|p| p.of(id))
        });
        check
    });
    let checks = futures_util::stream::iter(checks.collect::<Vec<_>>()).buffer_unordered(64);
    let all = checks.filter_map(std::future::ready).collect::<Vec<_>>();
    if let Some(found) = cancel.run_until_cancelled(all).await {
        problems.extend(found);
    } else {
        problems.push(Problem::new(reason::UNHEALTHY, "stopped while waiting for health"));
    }
}

type Gate = Shared<BoxFuture<'static, Result<(), Abandoned>>>;
type Running = FuturesUnordered<BoxFuture<'static, (ResourceId, ResourceResult, Result<(), Abandoned>)>>;

struct Walk<'a> {
    execution: &'a Execution<'a>,
    caller: Caller,
    observer: Arc<dyn Observer>,
    parallelism: usize,
    cancel: CancellationToken,
    deferred: bool,
    /// Results of a deferred runtime, told when it has finished.
    held: Vec<ResourceResult>,
    problems: Vec<Problem>,
    abandoned: bool,
}

impl Walk<'_> {
    async fn run(&mut self, finished: &BTreeSet<&ResourceId>) {
        let plan = self.execution.plan;
        let planned: BTreeMap<&ResourceId, &PlannedAction> = plan.actions.iter().map(|p| (&p.id, p)).collect();
        let mut waits: HashMap<&ResourceId, usize> = HashMap::new();
        let mut later: HashMap<&ResourceId, Vec<&ResourceId>> = HashMap::new();
        for action in &plan.actions {
            let before = action.after.iter().filter(|id| planned.contains_key(id));
            waits.insert(&action.id, before.clone().count());
            before.for_each(|id| later.entry(id).or_default().push(&action.id));
        }
        // The order of the plan keeps walks alike.
        let mut ready: VecDeque<&ResourceId> =
            plan.actions.iter().map(|p| &p.id).filter(|id| waits[*id] == 0).collect();
        let mut running = Running::new();
        let mut ended: BTreeSet<ResourceId> = BTreeSet::new();
        loop {
            let mut batch: Vec<&PlannedAction> = Vec::new();
            while let Some(id) = ready.front().copied() {
                let action = planned[id];
                let is_free = action.action == Action::Unchanged || finished.contains(id);
                if is_free {
                    ready.pop_front();
                    self.leave(action, finished.contains(id)).await;
                    ended.insert(id.clone());
                    release(&later, &mut waits, &mut ready, id);
                    continue;
                }
                let is_full = running.len() + batch.len() >= self.parallelism;
                if is_full || self.cancel.is_cancelled() || self.abandoned {
                    break;
                }
                ready.pop_front();
                batch.push(action);
            }
            self.start(batch, &running);
            let Some((id, result, told)) = running.next().await else { break };
            self.abandoned |= told.is_err();
            let outcome = result.outcome;
            self.take(result);
            ended.insert(id.clone());
            if outcome == ResourceOutcome::Done {
                release(&later, &mut waits, &mut ready, &id);
            } else {
                self.skip_after(&id, &planned, &later, &mut ended).await;
            }
        }
    }

    /// What is left alone: only its record may have to be brought up to date.
    async fn leave(&mut self, planned: &PlannedAction, is_finished: bool) {
        if is_finished {
            return;
        }
        let prior = self.execution.state.get(&planned.id);
        let Some(result) = self.caller.leave(planned, prior) else { return };
        if self.deferred {
            self.held.push(result);
        } else if self.observer.result(result).await.is_err() {
            self.abandoned = true;
        }
    }

    /// Begins a batch: one intent for all resources of the same action.
    fn start(&self, batch: Vec<&PlannedAction>, running: &Running) {
        let mut by_action: BTreeMap<Action, Vec<ResourceId>> = BTreeMap::new();
        for planned in &batch {
            by_action.entry(planned.action).or_default().push(planned.id.clone());
        }
        let gates: BTreeMap<Action, Gate> = by_action
            .into_iter()
            .map(|(action, ids)| {
                let observer = self.observer.clone();
                (action, async move { observer.intent(&ids, action).await }.boxed().shared())
            })
            .collect();
        for planned in batch {
            let gate = gates[&planned.action].clone();
            let (caller, observer) = (self.caller.clone(), self.observer.clone());
            let planned = planned.clone();
            let prior = self.execution.state.get(planned.recorded_as.as_ref().unwrap_or(&planned.id)).cloned();
            let deferred = self.deferred;
            let id = planned.id.clone();
            // A task of its own, so that calls go on while results are being kept.
            let task = tokio::spawn(async move {
                if gate.await.is_err() {
                    return (skipped(&planned, &planned.id), Err(Abandoned));
                }
                let result = caller.call(&planned, prior.as_ref()).await;
                let told = if deferred { Ok(()) } else { observer.result(result.clone()).await };
                (result, told)
            });
            running.push(
                async move {
                    let (result, told) = task.await.expect("calls do not panic");
                    (id, result, told)
                }
                .boxed(),
            );
        }
    }

    /// Tells of everything that comes after a resource which was not done.
    async fn skip_after(
        &mut self,
        id: &ResourceId,
        planned: &BTreeMap<&ResourceId, &PlannedAction>,
        later: &HashMap<&ResourceId, Vec<&ResourceId>>,
        ended: &mut BTreeSet<ResourceId>,
    ) {
        let mut open = vec![id.clone()];
        while let Some(before) = open.pop() {
            for next in later.get(&before).into_iter().flatten() {
                if !ended.insert((*next).clone()) {
                    continue;
                }
                open.push((*next).clone());
                let action = planned[*next];
                if !action.action.is_call() {
                    continue;
                }
                let result = skipped(action, id);
                if self.deferred {
                    self.held.push(result);
                } else if !self.abandoned && self.observer.result(result).await.is_err() {
                    self.abandoned = true;
                }
            }
        }
    }

    fn take(&mut self, result: ResourceResult) {
        self.problems.extend(result.problem.clone());
        if self.deferred {
            self.held.push(result);
        }
    }
}

fn release<'p>(
    later: &HashMap<&'p ResourceId, Vec<&'p ResourceId>>,
    waits: &mut HashMap<&'p ResourceId, usize>,
    ready: &mut VecDeque<&'p ResourceId>,
    id: &ResourceId,
) {
    for next in later.get(id).into_iter().flatten() {
        let left = waits.get_mut(next).expect("every action of the plan is counted");
        *left -= 1;
        if *left == 0 {
            ready.push_back(next);
        }
    }
}
