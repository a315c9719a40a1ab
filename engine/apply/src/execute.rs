//! Carries out a plan: what has to be known before anything is called for, the walk, and how all fares at its end.
//!
//! Start at [`execute`]. The walk itself is in `walk`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use stoa_engine::{
    Action, DigestKeys, Lifting, Plan, PlannedAction, Problem, ResourceId, Sensitive, Spec, State, StateResource,
    owner::LeftAlone, problem::reason,
};
use stoa_runtime::{Grant, Proposal, Runtime, RuntimeError};
use tokio_util::sync::CancellationToken;

use crate::{
    call::Caller,
    early, health,
    lost::{self, Undecided},
    observer::{Abandoned, Observer, ResourceOutcome, ResourceResult},
    permits::Permits,
    planning::said,
    results::{left, tell},
    retry::{Unfinished, finish},
    values::Values,
    verify::verify,
    walk::Walk,
};

/// How many changes a deferred runtime is given at once.
const GATHERED: usize = 512;

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
        lifting: Arc::new(Lifting::of(
            &execution.plan.actions,
            |id| values.wanted(id),
            |id| recorded.get(id).copied(),
            runtime.clusters(),
        )),
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
        undeleted: BTreeSet::new(),
        abandoned: false,
    };
    walk.run(&finished).await;
    // Whoever hears that this is over may have somebody else begin at once.
    walk.caller.settle().await;
    let undeleted = walk.left();
    let (held, mut problems, abandoned) = (walk.held, walk.problems, walk.abandoned);
    if abandoned {
        return Err(Abandoned.into());
    }
    let grant = &options.grant;
    // A run that was stopped says so itself.
    problems.extend(undeleted.filter(|_| !problems.is_empty()));
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
            Err(Unfinished { error, is_unanswered }) => {
                written = if is_unanswered { Written::Perhaps } else { Written::Nothing };
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
        let is_left = |planned: &&PlannedAction| planned.action == Action::Unchanged && !is_owed(planned);
        let unchanged: HashSet<&ResourceId> =
            execution.plan.actions.iter().filter(is_left).map(|planned| &planned.id).collect();
        let unchanged = state.resources.iter().filter(|recorded| unchanged.contains(&recorded.id));
        let secrets = values.secrets();
        let check = async {
            health::report_finished(&*runtime, &*observer, unchanged).await;
            verify(&*runtime, &*observer, &ready, &secrets, options.health_timeout).await
        };
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
    let results = held.into_iter().map(|mut result| {
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
        result
    });
    tell(observer, results).await
}
