//! Walks a plan: as parallel as its order allows, and only ever forward.
//!
//! Failure stops what comes after the failed resource, and nothing else. Cancellation starts nothing
//! more and waits for the calls in flight. So does the end of the grant, and drops them. What is only waited for, as for an
//! object to be gone, keeps nothing else from being called for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
    stream::FuturesUnordered,
};
use stoa_engine::{
    Action, DigestKeys, Plan, PlannedAction, Problem, Resource, ResourceId, Sensitive, Spec, State, StateResource,
    owner::LeftAlone, problem::reason, record::Place,
};
use stoa_runtime::{Grant, Proposal, Runtime, RuntimeError};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    call::{Caller, finish, left, skipped},
    early,
    leave::Leaving,
    lost::{self, Undecided},
    observer::{Abandoned, Intended, Observer, ResourceOutcome, ResourceResult},
    permits::Permits,
    planning::said,
    values::Values,
    verify::verify,
};

/// How many changes a deferred runtime is given at once.
const GATHERED: usize = 512;

/// How many records of what is left alone are brought up to date at once.
const TOLD: usize = 1024;

/// How many resources may be waited for at once in whose place others are begun: each takes some memory.
const WAITED_FOR: usize = 1024;

/// What to carry out.
#[derive(Clone, Debug)]
pub struct Execution<'a> {
    /// The Spec that the plan was made from.
    pub spec: &'a Spec,
    /// The digest of the document that the Spec is kept as.
    pub spec_digest: &'a str,
    /// The plan.
    pub plan: &'a Plan,
    /// What is recorded now, results of an earlier try included.
    pub state: &'a State,
    /// What an earlier try of the same run finished. What is left as it is need not be among it, and is looked at again.
    pub done: &'a [ResourceId],
    /// What was not healthy after it was last changed, or nobody has looked since: it has to be, though it stays as it
    /// is now.
    pub owed: &'a [ResourceId],
    /// What the digests of sensitive values in the state are made with.
    pub keys: &'a DigestKeys,
}

/// How to carry it out.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many resources are called for at once. Those that are only waited for, as until they are gone, do not count.
    pub parallelism: usize,
    /// How long one resource may take.
    pub resource_timeout: Duration,
    /// How long resources may take, all together, to become healthy at the end.
    pub health_timeout: Duration,
    /// How long calls in flight may go on after the walk was stopped.
    pub grace: Duration,
    /// Until when calls may be under way. Nothing is called for once it is over, and the walk is stopped: a call in flight
    /// is dropped, and nobody knows what became of it.
    pub grant: Grant,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parallelism: 16,
            resource_timeout: Duration::from_secs(300),
            health_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(30),
            grant: Grant::unlimited(),
        }
    }
}

/// What came of it all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Everything was done and is healthy.
    pub succeeded: bool,
    /// It was stopped before its end, as when its grant was over.
    pub canceled: bool,
    /// The commit that a GitOps runtime wrote or found written for this run.
    pub commit: Option<String>,
    /// What a runtime proposed to people: nothing was done, and the same plan carried out again finds what they did.
    pub proposal: Option<Proposal>,
    /// What is wrong, by id.
    pub problems: Vec<Problem>,
}

/// Why nothing can be told of how a plan was carried out. Nothing is in flight any more.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Interrupted {
    /// The observer went away.
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    /// What is there could not be looked at, and nothing was called for: the same may be done later. What is wrong.
    #[error("the infrastructure cannot be read: {0}")]
    Unreadable(Box<Problem>),
}

impl Interrupted {
    /// What it means that something could not be looked at before anything was called for.
    fn before_a_call(error: &RuntimeError) -> Result<Outcome, Self> {
        let problem = said(error, &Sensitive::default());
        if error.is_retryable() {
            return Err(Self::Unreadable(Box::new(problem)));
        }
        Ok(Outcome { problems: vec![problem], ..Outcome::default() })
    }
}

/// Carries out a plan.
///
/// May be called again with the same plan after it was interrupted; what is done is not done twice.
///
/// # Errors
///
/// [`Interrupted`] when nothing can be told of how it went.
pub async fn execute(
    execution: Execution<'_>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    options: &Options,
    cancel: CancellationToken,
) -> Result<Outcome, Interrupted> {
    if execution.spec_digest != execution.plan.spec_digest {
        let message = "the plan was made from another Spec";
        let problems = vec![Problem::new(reason::STALE_PLAN, message)];
        return Ok(Outcome { problems, ..Outcome::default() });
    }
    let deferred = runtime.is_deferred();
    let mut state = execution.state.clone();
    // What the plan gives up is on record where nobody can look.
    state.give_up(&execution.plan.given_up());
    let state = match lost::decide(&*runtime, execution.spec, &state).await {
        Ok(state) => state,
        Err(Undecided::Problems(problems)) => return Ok(Outcome { problems, ..Outcome::default() }),
        Err(Undecided::Runtime(error)) => return Interrupted::before_a_call(&error),
    };
    let imported: HashSet<&ResourceId> =
        execution.plan.actions.iter().filter(|it| it.action == Action::Import).map(|it| &it.id).collect();
    let is_import = !imported.is_empty() && imported.len() == execution.plan.actions.len();
    let mut state = if is_import { lost::for_import(state, |id| imported.contains(id)) } else { state };
    let problems = lost::unknown(&state);
    if !problems.is_empty() {
        return Ok(Outcome { problems, ..Outcome::default() });
    }
    let finished: HashSet<&ResourceId> = if deferred { HashSet::new() } else { execution.done.iter().collect() };
    let open: HashSet<ResourceId> =
        state.open.iter().map(|call| &call.id).chain(found(&state, execution.state)).cloned().collect();
    if !deferred {
        let early = early::records(&execution, runtime.clusters(), &state, &finished);
        early.tell(&*observer).await?;
        early.take_effect(&mut state);
    }
    let recorded: HashMap<&ResourceId, &StateResource> =
        state.resources.iter().map(|resource| (&resource.id, resource)).collect();
    let called: HashSet<&ResourceId> = execution
        .plan
        .actions
        .iter()
        .filter(|planned| planned.action.is_call() && !finished.contains(&planned.id))
        .map(|planned| &planned.id)
        .collect();
    // What is recorded under these ids is of others.
    let swapped: HashSet<&ResourceId> = execution
        .plan
        .actions
        .iter()
        .filter(|planned| planned.action == Action::Unchanged && planned.kept_as.is_some())
        .map(|planned| &planned.id)
        .collect();
    let values = Arc::new(Values::new(execution.spec));
    let is_left = |id: &ResourceId| !called.contains(id) && !swapped.contains(id);
    // What is waited for is waited for as it is wanted, and what has another id goes on record so.
    let is_wanted = !(execution.owed.is_empty() && finished.is_empty())
        || execution
            .plan
            .actions
            .iter()
            .any(|planned| planned.action == Action::Unchanged && planned.recorded_as.is_some());
    if let Err(error) = values.read_left(&*runtime, is_left, is_wanted, &recorded).await {
        return Interrupted::before_a_call(&error);
    }
    let may_be_unsure = !open.is_empty() || state.resources.iter().any(StateResource::is_only_found);
    if may_be_unsure && !deferred && !is_import {
        values.read_secrets(&*runtime, &state.resources).await;
    }
    let parallelism = options.parallelism.max(1);
    let caller = Caller {
        runtime: runtime.clone(),
        values: values.clone(),
        permits: Permits::new(parallelism),
        timeout: options.resource_timeout,
        stop: cancel.clone(),
        grace: options.grace,
        grant: options.grant.clone(),
        keys: execution.keys.clone(),
        open,
        made_anew: lost::made_anew(runtime.clusters(), execution.spec, &state, execution.state),
        on_the_way: Arc::default(),
    };
    let mut walk = Walk {
        plan: execution.plan,
        recorded,
        before: execution.state.resources.iter().map(|it| (&it.id, it)).collect(),
        open: state.open.iter().map(|call| (&call.id, &call.place)).collect(),
        caller,
        observer: observer.clone(),
        // While some are called, the intents and results of others are being kept. What a deferred
        // runtime gathers costs nothing, so that one intent may be for all.
        window: if deferred { GATHERED } else { parallelism * 2 },
        deferred,
        held: Vec::new(),
        problems: Vec::new(),
        abandoned: false,
    };
    walk.run(&finished).await;
    // Whoever hears that this is over may have somebody else begin at once.
    walk.caller.settle().await;
    let (held, mut problems, abandoned) = (walk.held, walk.problems, walk.abandoned);
    if abandoned {
        return Err(Abandoned.into());
    }
    let grant = &options.grant;
    let mut outcome = Outcome { canceled: cancel.is_cancelled() || grant.check().is_err(), ..Outcome::default() };
    // A deferred runtime writes nothing of a walk that failed or was stopped: half of a change is
    // not what anybody asked for.
    let is_whole = problems.is_empty() && !outcome.canceled;
    let mut others = BTreeMap::new();
    let mut written = if is_whole { Written::All } else { Written::Nothing };
    if is_whole || !(deferred || grant.is_over()) {
        match finish(&*runtime, &cancel, grant).await {
            Ok(finished) => {
                outcome.commit = finished.commit;
                others = finished.left;
                if finished.proposal.is_some() {
                    written = Written::Proposed;
                }
                outcome.proposal = finished.proposal;
            }
            Err(error) => {
                written = if error.is_unanswered() { Written::Perhaps } else { Written::Nothing };
                problems.push(said(&error, &Sensitive::default()));
            }
        }
        outcome.canceled |= grant.is_over();
    }
    if deferred {
        tell_held(&*observer, held, written, &others).await?;
    }
    if problems.is_empty() && !outcome.canceled && outcome.proposal.is_none() {
        let owed: HashSet<&ResourceId> = execution.owed.iter().collect();
        // It may be on record under its own id since an earlier try.
        let is_owed = |planned: &PlannedAction| {
            [planned.recorded_id(), Some(&planned.id)].into_iter().flatten().any(|id| owed.contains(id))
        };
        // How something fares that was only recorded is not this run's doing; the one that applies it waits for it.
        let kept = |planned: &&PlannedAction| planned.action.keeps() && planned.action != Action::Import;
        let kept = execution.plan.actions.iter().filter(kept);
        let brought = kept.filter(|planned| planned.action.is_call() || is_owed(planned));
        let mut ready = Vec::new();
        for planned in brought {
            match values.ready(&planned.id) {
                Ok(wanted) => ready.push((planned.id.clone(), wanted)),
                // Nobody can say how it fares.
                Err(problem) => problems.push(problem),
            }
        }
        let check = verify(&*runtime, &*observer, &ready, options.health_timeout);
        match cancel.run_until_cancelled(check).await {
            Some(found) => problems.extend(found),
            None => problems.push(Problem::new(reason::UNHEALTHY, "stopped while waiting for health")),
        }
        outcome.canceled = cancel.is_cancelled() && !problems.is_empty();
    }
    problems.sort();
    outcome.succeeded = problems.is_empty() && !outcome.canceled && outcome.proposal.is_none();
    outcome.problems = problems;
    Ok(outcome)
}

/// What is recorded otherwise since it was looked for.
fn found<'a>(looked: &'a State, recorded: &'a State) -> impl Iterator<Item = &'a ResourceId> {
    let before: HashMap<&ResourceId, &StateResource> = recorded.resources.iter().map(|it| (&it.id, it)).collect();
    looked.resources.iter().filter(move |it| before.get(&it.id) != Some(it)).map(|it| &it.id)
}

/// What became of the changes that a deferred runtime gathered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    All,
    Nothing,
    /// People are asked to.
    Proposed,
    /// Nobody knows: the answer was lost.
    Perhaps,
}

/// Tells the results that were held back until the changes were really made. What is in `others` was left to those.
async fn tell_held(
    observer: &dyn Observer,
    held: Vec<ResourceResult>,
    written: Written,
    others: &BTreeMap<ResourceId, String>,
) -> Result<(), Abandoned> {
    let mut telling: FuturesUnordered<_> = held
        .into_iter()
        .map(|mut result| {
            if written != Written::All && result.outcome == ResourceOutcome::Done {
                (result.outcome, result.message) = match written {
                    Written::Perhaps => {
                        (ResourceOutcome::Unknown, "nobody knows whether the changes were written".to_owned())
                    }
                    Written::Proposed => (ResourceOutcome::Skipped, "proposed, and not merged yet".to_owned()),
                    Written::All | Written::Nothing => {
                        let why = "nothing was written, because not everything could be";
                        (ResourceOutcome::Skipped, why.to_owned())
                    }
                };
                result.resource = None;
            } else if let Some(owner) = others.get(&result.id) {
                result = left(result, LeftAlone::Owned(owner.clone()).to_string());
            }
            observer.result(result)
        })
        .collect();
    while let Some(told) = telling.next().await {
        told?;
    }
    Ok(())
}

type Gate = Shared<BoxFuture<'static, Result<(), Abandoned>>>;
/// What came of a resource, if there is anything to tell, and whether somebody heard of it.
type Kept = (Option<ResourceResult>, Result<(), Abandoned>);
type Ended = (ResourceId, Kept);
type Running = FuturesUnordered<BoxFuture<'static, Ended>>;

struct Walk<'a> {
    plan: &'a Plan,
    recorded: HashMap<&'a ResourceId, &'a StateResource>,
    /// The same before lost calls were looked for.
    before: HashMap<&'a ResourceId, &'a StateResource>,
    /// Where calls may have left something behind that nobody knows the results of.
    open: HashMap<&'a ResourceId, &'a Place>,
    caller: Caller,
    observer: Arc<dyn Observer>,
    /// How many resources are begun and not ended at once, without those that are only waited for.
    window: usize,
    deferred: bool,
    /// Results of a deferred runtime, told when it has finished.
    held: Vec<ResourceResult>,
    problems: Vec<Problem>,
    abandoned: bool,
}

impl Walk<'_> {
    async fn run(&mut self, finished: &HashSet<&ResourceId>) {
        let plan = self.plan;
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
        // What is left alone and whose record is brought up to date, or is looked at for that.
        let mut telling: HashSet<ResourceId> = HashSet::new();
        loop {
            let mut batch: Vec<&PlannedAction> = Vec::new();
            while let Some(id) = ready.front().copied() {
                let action = planned[id];
                if self.caller.is_stopped() || self.abandoned {
                    break;
                }
                // What is left as it is can be left again: a try before may have had its record told before it was its turn.
                let is_left = action.action == Action::Unchanged;
                if is_left || finished.contains(id) {
                    if telling.len() >= TOLD {
                        break;
                    }
                    ready.pop_front();
                    ended.insert(id.clone());
                    match self.leave(action, !is_left) {
                        None => release(&later, &mut waits, &mut ready, id),
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
                ready.pop_front();
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
                None => release(&later, &mut waits, &mut ready, &id),
                Some(why) => self.skip_after(&id, why, &planned, &later, &mut ended).await,
            }
        }
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

    /// Tells of everything that comes after a resource which is not as it should be, and why it was not begun.
    async fn skip_after(
        &mut self,
        id: &ResourceId,
        why: &str,
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
                let result = skipped(action, &format!("{id} comes first and {why}"));
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
