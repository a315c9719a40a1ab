//! Execution of a plan: recovery of lost calls, the walk, and the health check at its end.
//!
//! Start at [`execute`].
//!
//! Elsewhere: `walk` runs the actions, `recovery` finds the results of lost calls, `verify` waits for health.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use stoa_engine::{
    Action, DigestKeys, Plan, PlannedAction, Problem, Resource, ResourceId, ResourceType, Sensitive, Spec, State,
    StateResource, import::Selection, owner::LeftAlone, problem::reason,
};
use stoa_runtime::{Grant, Proposal, Runtime, RuntimeError};
use tokio_util::sync::CancellationToken;

use crate::{
    call::Caller,
    commit_order::{self, Parts},
    health,
    hooks::{self, Ended, FailedHook, Hooks},
    observer::{Abandoned, Observer, ResourceOutcome, ResourceResult},
    permits::Permits,
    planning::{PlanError, runtime_problem},
    providers,
    recovery::{self, Undecided},
    results::{not_deleted, report},
    retry::{Unfinished, finish},
    values::Values,
    verify::verify,
    walk::Walk,
};

/// A plan to carry out, with the state that it changes.
#[derive(Clone, Debug)]
pub struct Execution<'a> {
    /// The Spec that the plan was made from.
    pub spec: &'a Spec,
    /// The digest of the stored Spec document, `sha256:<hex>`.
    pub spec_digest: &'a str,
    /// The plan.
    pub plan: &'a Plan,
    /// The recorded state, with the results of an earlier try.
    pub state: &'a State,
    /// The resources that an earlier try of the same run finished. Unchanged resources may be missing, and are checked again.
    pub done: &'a [ResourceId],
    /// The hooks whose failure an earlier try of the same run recorded. They do not run again.
    pub failed_hooks: &'a [FailedHook],
    /// Resources whose health is not known since their last change. The run waits for their health even if they are Unchanged.
    pub owed: &'a [ResourceId],
    /// The keys of the digests of sensitive values in the state.
    pub keys: &'a DigestKeys,
    /// The selection of an import.
    pub import: Option<&'a Selection>,
    /// The uid of the run, by which it knows the hooks that an earlier try of it has created.
    pub run: &'a str,
}

/// Limits of an execution.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many resources are called at once. A resource that only waits, such as for its deletion, does not count.
    pub parallelism: usize,
    /// How long one resource may take.
    pub resource_timeout: Duration,
    /// The same of a resource whose provider decides about its changes. A Run has a limit of its own, by default a shorter
    /// one.
    pub provider_timeout: Duration,
    /// How long all resources together may take to become healthy at the end.
    pub health_timeout: Duration,
    /// How long calls in flight may continue after the walk was stopped, and how long the end of a runtime may take.
    pub grace: Duration,
    /// The same of calls of providers, which leave an unknown result when they are dropped.
    pub provider_grace: Duration,
    /// Fires when the process ends, so that no grace is longer than `grace`.
    pub shutdown: CancellationToken,
    /// The lease for calls. After it expires, no call starts, the walk stops, and calls in flight are dropped with unknown results.
    pub grant: Grant,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            parallelism: 16,
            resource_timeout: Duration::from_secs(300),
            provider_timeout: Duration::from_secs(2 * 60 * 60),
            health_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(30),
            provider_grace: Duration::from_secs(5 * 60),
            shutdown: CancellationToken::new(),
            grant: Grant::unlimited(),
        }
    }
}

/// The result of an execution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Everything was done and is healthy.
    pub succeeded: bool,
    /// It was stopped before its end, such as by an expired call lease.
    pub canceled: bool,
    /// The commit that a GitOps runtime wrote or found written for this run.
    pub commit: Option<String>,
    /// The pull request of a GitOps runtime. Nothing was changed yet; executing the same plan again finds its result.
    pub proposal: Option<Proposal>,
    /// The problems, sorted by id.
    pub problems: Vec<Problem>,
}

impl Outcome {
    /// Takes in the end of hooks.
    fn add(&mut self, ended: Ended) {
        match ended {
            Ended::Completed => {}
            Ended::Stopped => self.canceled = true,
            Ended::Failed(problem) => self.problems.push(*problem),
        }
    }
}

/// Why the result of an execution cannot be reported. No call is in flight any more.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Interrupted {
    /// The observer cannot record results any more.
    #[error(transparent)]
    Abandoned(#[from] Abandoned),
    /// The infrastructure could not be read, and nothing was called. The caller may try again later.
    #[error("the infrastructure cannot be read: {0}")]
    Unreadable(Box<Problem>),
}

/// Carries out a plan.
///
/// A caller may repeat it with the same plan after an interruption; finished actions are not repeated.
///
/// # Errors
///
/// [`Interrupted`] when the result cannot be reported.
pub async fn execute(
    execution: Execution<'_>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    options: &Options,
    cancel: CancellationToken,
) -> Result<Outcome, Interrupted> {
    let ended = Steps { execution, runtime: Arc::clone(&runtime), observer, options, cancel }.run().await;
    if tokio::time::timeout(options.grace, runtime.close()).await.is_err() {
        tracing::warn!(grace = ?options.grace, "not all that the run had opened was closed in time");
    }
    match ended {
        Ok(outcome) | Err(Stop::Ended(outcome)) => Ok(*outcome),
        Err(Stop::Interrupted(why)) => Err(why),
    }
}

/// Why the steps of an execution end before the last one.
enum Stop {
    /// Nothing was called.
    Ended(Box<Outcome>),
    Interrupted(Interrupted),
}

impl Stop {
    /// The run was stopped before the first call.
    fn canceled() -> Self {
        Self::Ended(Box::new(Outcome { canceled: true, ..Outcome::default() }))
    }

    fn with_problems(problems: Vec<Problem>) -> Self {
        Self::Ended(Box::new(Outcome { problems, ..Outcome::default() }))
    }

    /// A read before the first call failed.
    fn unreadable(error: &RuntimeError) -> Self {
        let problem = runtime_problem(error, &Sensitive::default());
        if error.is_retryable() {
            return Self::Interrupted(Interrupted::Unreadable(Box::new(problem)));
        }
        Self::with_problems(vec![problem])
    }
}

impl From<Abandoned> for Stop {
    fn from(abandoned: Abandoned) -> Self {
        Self::Interrupted(abandoned.into())
    }
}

struct Steps<'e> {
    execution: Execution<'e>,
    runtime: Arc<dyn Runtime>,
    observer: Arc<dyn Observer>,
    options: &'e Options,
    cancel: CancellationToken,
}

impl<'e> Steps<'e> {
    /// Recovers lost calls, reads the values of references, walks, finishes, and waits for health.
    async fn run(self) -> Result<Box<Outcome>, Stop> {
        let Self { execution, runtime, observer, options, cancel } = &self;
        if execution.spec_digest != execution.plan.spec_digest {
            let message = "the plan was made from another Spec; plan again";
            return Err(Stop::with_problems(vec![Problem::new(reason::STALE_PLAN, message)]));
        }
        let actions = &execution.plan.actions;
        let kept: HashSet<&ResourceId> =
            actions.iter().filter(|planned| planned.action.keeps()).map(|planned| &planned.id).collect();
        let resources = execution.spec.resources.iter().filter(|resource| kept.contains(&resource.id));
        match self.unless_stopped(providers::prepare(&**runtime, resources)).await? {
            Ok(()) => {}
            Err(PlanError::Problems(problems)) => return Err(Stop::with_problems(problems)),
            Err(PlanError::Runtime(error)) => return Err(Stop::unreadable(&error)),
        }
        let state = self.unless_stopped(self.recover()).await??;
        // A deferred runtime collects its changes again.
        let deferred_ids: HashSet<&ResourceId> = execution
            .plan
            .actions
            .iter()
            .filter(|planned| runtime.is_deferred(planned.kind))
            .map(|planned| &planned.id)
            .collect();
        let finished: HashSet<&ResourceId> = execution.done.iter().filter(|id| !deferred_ids.contains(id)).collect();
        let open: HashSet<ResourceId> =
            state.open.iter().map(|call| &call.id).chain(changed(&state, execution.state)).cloned().collect();
        let recorded: HashMap<&ResourceId, &StateResource> =
            state.resources.iter().map(|resource| (&resource.id, resource)).collect();
        let reads = self.read_values(&state, &recorded, &finished, !open.is_empty());
        let values = self.unless_stopped(reads).await??;
        let parallelism = options.parallelism.max(1);
        let caller = Caller {
            runtime: runtime.clone(),
            values: values.clone(),
            permits: Permits::new(parallelism),
            timeout: options.resource_timeout,
            provider_timeout: options.provider_timeout,
            stop: cancel.clone(),
            grace: options.grace,
            provider_grace: options.provider_grace,
            shutdown: options.shutdown.clone(),
            grant: options.grant.clone(),
            keys: execution.keys.clone(),
            import: execution.import.cloned().map(Arc::new),
            open,
            may_accept: runtime
                .kubernetes()
                .rules()
                .may_accept(
                    &mut execution.plan.actions.iter(),
                    &|id| values.wanted(id),
                    &|id| recorded.get(id).copied(),
                    runtime.kubernetes().clusters(),
                )
                .into(),
            made_anew: recovery::made_anew(runtime.kubernetes().clusters(), execution.spec, &state, execution.state),
            on_the_way: Arc::default(),
        };
        let hooks = Hooks {
            plan: execution.plan,
            runtime: &**runtime,
            observer: &**observer,
            values: &values,
            done: execution.done,
            failed: execution.failed_hooks,
            run: execution.run,
            limit: options.health_timeout,
            stop: cancel,
            grant: &options.grant,
        };
        let is_ephemeral = |id: &ResourceId| values.wanted(id).is_some_and(Resource::is_ephemeral);
        let is_deferred = |kind| runtime.is_deferred(kind);
        let parts = hooks::prerequisites(execution.plan, &values);
        let (early, changes) = match &parts {
            Some((early, changes)) => (Some(early), changes),
            None => (None, execution.plan),
        };
        let Parts { first, second } = commit_order::split(changes, is_deferred, is_ephemeral);
        let walk = |plan| Walk {
            plan,
            recorded: recorded.clone(),
            before: execution.state.resources.iter().map(|it| (&it.id, it)).collect(),
            marked: HashMap::new(),
            open: state.open.iter().map(|call| (&call.id, &call.place)).collect(),
            caller: caller.clone(),
            observer: observer.clone(),
            window: window(&**runtime, execution.plan, parallelism),
            deferred_results: Vec::new(),
            problems: Vec::new(),
            undeleted: BTreeSet::new(),
            abandoned: false,
            checks_others: !execution.owed.is_empty(),
        };
        let mut outcome = Box::new(Outcome::default());
        if let Some(early) = early {
            let others = self.walked(walk(early), Part::Begins(&finished), &mut outcome).await?;
            report(&**observer, others).await?;
        }
        if outcome.problems.is_empty() && !outcome.canceled {
            outcome.add(hooks.run(true).await?);
        } else {
            hooks.skip_all(true, NOT_BEGUN).await?;
        }
        let part = match outcome.problems.is_empty() && !outcome.canceled {
            true => Part::Begins(&finished),
            false => Part::IsLeft(&finished, NOT_BEGUN),
        };
        let deferred_results = self.walked(walk(&first), part, &mut outcome).await?;
        self.finish(deferred_results, &mut outcome).await?;
        if let Some(second) = &second {
            let part = match &outcome.proposal {
                Some(_) => Part::IsLeft(&finished, "it comes after changes that are proposed but not merged yet"),
                None if outcome.problems.is_empty() && !outcome.canceled => Part::Begins(&finished),
                None => Part::IsLeft(&finished, "it comes after the commit, which was not made"),
            };
            // Only records are dropped here, and nothing has to be written for that.
            let others = self.walked(walk(second), part, &mut outcome).await?;
            report(&**observer, others).await?;
        }
        if outcome.problems.is_empty() && !outcome.canceled && outcome.proposal.is_none() {
            self.check_health(&state, &values, &mut outcome).await;
        }
        if outcome.problems.is_empty() && !outcome.canceled && outcome.proposal.is_none() {
            outcome.add(hooks.run(false).await?);
        } else {
            hooks.skip_all(false, NOT_BEGUN).await?;
        }
        outcome.problems.sort();
        outcome.succeeded = outcome.problems.is_empty() && !outcome.canceled && outcome.proposal.is_none();
        Ok(outcome)
    }

    /// Waits for work before the first call, which changes nothing. A stop drops it, however long an answer takes.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        match self.cancel.run_until_cancelled(self.options.grant.during(work)).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) | None => Err(Stop::canceled()),
        }
    }

    /// Walks a part of the plan, and adds its problems to the outcome. Returns the results that wait for the finishing
    /// step.
    async fn walked(
        &self,
        mut walk: Walk<'_>,
        part: Part<'_>,
        outcome: &mut Outcome,
    ) -> Result<Vec<ResourceResult>, Abandoned> {
        match part {
            Part::Begins(finished) => walk.run(finished).await,
            Part::IsLeft(finished, why) => walk.skip_all(finished, why).await,
        }
        // After the result is reported, another runner may start at once.
        walk.caller.settle().await;
        let undeleted = walk.undeleted_problem();
        if walk.abandoned {
            return Err(Abandoned);
        }
        outcome.problems.extend(walk.problems);
        // A stopped run reports itself.
        outcome.problems.extend(undeleted.filter(|_| !outcome.problems.is_empty()));
        outcome.canceled |= self.cancel.is_cancelled() || self.options.grant.check().is_err();
        Ok(walk.deferred_results)
    }

    /// The actions of an import plan; `None` for any other plan.
    fn imported(&self) -> Option<HashSet<&'e ResourceId>> {
        let actions = &self.execution.plan.actions;
        let is_import = !actions.is_empty() && actions.iter().all(|planned| planned.action == Action::Import);
        is_import.then(|| actions.iter().map(|planned| &planned.id).collect())
    }

    /// The recorded state with the results of lost calls, and without forgotten clusters.
    async fn recover(&self) -> Result<State, Stop> {
        let execution = &self.execution;
        let mut state = execution.state.clone();
        // Forgotten clusters cannot be read.
        state.forget_clusters(&execution.plan.forgotten_clusters());
        let state = match recovery::decide(&*self.runtime, execution.spec, &state).await {
            Ok(state) => state,
            Err(Undecided::Problems(problems)) => return Err(Stop::with_problems(problems)),
            Err(Undecided::Runtime(error)) => return Err(Stop::unreadable(&error)),
        };
        let state = match self.imported() {
            Some(imported) => recovery::for_import(state, |id| imported.contains(id)),
            None => state,
        };
        let problems = recovery::unknown(&state);
        if problems.is_empty() { Ok(state) } else { Err(Stop::with_problems(problems)) }
    }

    /// Reads the live values that references of the walk need, and the texts of Secrets if fields may be untracked.
    async fn read_values(
        &self,
        state: &State,
        recorded: &HashMap<&ResourceId, &StateResource>,
        finished: &HashSet<&ResourceId>,
        has_open_calls: bool,
    ) -> Result<Arc<Values>, Stop> {
        let (execution, runtime) = (&self.execution, &*self.runtime);
        let actions = &execution.plan.actions;
        let called: HashSet<&ResourceId> = actions
            .iter()
            .filter(|planned| planned.action.is_call() && !finished.contains(&planned.id))
            .map(|planned| &planned.id)
            .collect();
        let is_unchanged = |planned: &&PlannedAction| planned.action == Action::Unchanged;
        let values = Arc::new(Values::new(execution.spec, Arc::clone(&self.runtime)));
        let is_left = |id: &ResourceId| !called.contains(id);
        // A data source is read without a call, and a record has no sensitive values for its arguments.
        let is_read = |planned: &PlannedAction| {
            let is_ephemeral = values.wanted(&planned.id).is_some_and(Resource::is_ephemeral);
            planned.action == Action::Read && !is_ephemeral && values.refers(&planned.id)
        };
        // The health check and a record under a new id need the resolved resource.
        let is_wanted = !(execution.owed.is_empty() && finished.is_empty())
            || actions.iter().any(is_read)
            || actions.iter().filter(is_unchanged).any(|planned| planned.recorded_as.is_some());
        // The object of a provider is found by its record alone, also under its former id.
        let mut records = recorded.clone();
        for planned in actions.iter().filter(|planned| runtime.providers().decides(planned.kind)) {
            if let Some(former) = planned.recorded_as.as_ref().and_then(|former| recorded.get(former)) {
                records.entry(&planned.id).or_insert(former);
            }
        }
        values.read_uncalled(runtime, is_left, is_wanted, &records).await.map_err(|error| Stop::unreadable(&error))?;
        let may_be_unsure = has_open_calls || state.resources.iter().any(StateResource::is_only_found);
        // A repository has no untracked fields.
        let has_untracked = || {
            !runtime.is_deferred(ResourceType::Kubernetes)
                || state.resources.iter().any(|record| runtime.providers().decides(record.kind))
        };
        if may_be_unsure && has_untracked() && self.imported().is_none() {
            values.read_secrets(runtime, &state.resources).await;
        }
        Ok(values)
    }

    /// Ends the walk of the runtime: a deferred one writes its changes now. Reports the results that waited for that.
    async fn finish(&self, deferred_results: Vec<ResourceResult>, outcome: &mut Outcome) -> Result<(), Abandoned> {
        if self.imported().is_some() {
            return Ok(());
        }
        let (deferred, grant) = (self.runtime.is_deferred(ResourceType::Kubernetes), &self.options.grant);
        // A deferred runtime writes nothing of a walk that failed or was stopped: a Git commit has all changes or none.
        let is_whole = outcome.problems.is_empty() && !outcome.canceled;
        let mut others = BTreeMap::new();
        let mut written = if is_whole { Written::All } else { Written::Nothing };
        if is_whole || !(deferred || grant.is_over()) {
            match finish(&*self.runtime, &self.cancel, grant).await {
                Ok(finished) => {
                    outcome.commit = finished.commit;
                    others = finished.left;
                    if finished.proposal.is_some() {
                        written = Written::Proposed;
                    }
                    outcome.proposal = finished.proposal;
                }
                Err(Unfinished { error, is_unanswered }) => {
                    written = if is_unanswered { Written::Unknown } else { Written::Nothing };
                    outcome.problems.push(runtime_problem(&error, &Sensitive::default()));
                }
            }
            outcome.canceled |= grant.is_over();
        }
        if deferred {
            report_deferred(&*self.observer, deferred_results, written, &others).await?;
        }
        Ok(())
    }

    /// Waits until the changed resources, and those that `owed` names, are healthy. Adds the problems to the outcome.
    async fn check_health(&self, state: &State, values: &Values, outcome: &mut Outcome) {
        let Self { execution, runtime, observer, options, cancel } = self;
        let actions = &execution.plan.actions;
        let owed: HashSet<&ResourceId> = execution.owed.iter().collect();
        // An earlier try may have recorded it under its own id.
        let is_owed =
            |planned: &PlannedAction| [planned.recorded_id(), &planned.id].into_iter().any(|id| owed.contains(id));
        // An imported resource is checked by the run that applies it.
        let kept = actions.iter().filter(|planned| planned.action.keeps() && planned.action != Action::Import);
        let mut ready = Vec::new();
        for planned in kept.filter(|planned| planned.action.is_call() || is_owed(planned)) {
            match values.ready(&planned.id) {
                Ok(wanted) => ready.push((planned.id.clone(), wanted)),
                Err(problem) => outcome.problems.push(problem),
            }
        }
        let is_left = |planned: &&PlannedAction| planned.action == Action::Unchanged && !is_owed(planned);
        let unchanged: HashSet<&ResourceId> = actions.iter().filter(is_left).map(|planned| &planned.id).collect();
        let unchanged = state.resources.iter().filter(|recorded| unchanged.contains(&recorded.id));
        let secrets = values.secrets();
        let check = async {
            health::report_finished(&**runtime, &**observer, unchanged).await;
            verify(&**runtime, &**observer, &ready, &secrets, options.health_timeout).await
        };
        match cancel.run_until_cancelled(check).await {
            Some(found) => outcome.problems.extend(found),
            None => {
                let message = "the run was stopped while it waited for health";
                outcome.problems.push(Problem::new(reason::UNHEALTHY, message));
            }
        }
        outcome.canceled = cancel.is_cancelled() && !outcome.problems.is_empty();
    }
}

/// Why changes and hooks are not begun after a failure.
const NOT_BEGUN: &str = "what comes first failed or was stopped";

/// A part of a plan.
enum Part<'a> {
    /// It begins, without the finished resources.
    Begins(&'a HashSet<&'a ResourceId>),
    /// Its unfinished resources are left, for this reason.
    IsLeft(&'a HashSet<&'a ResourceId>, &'static str),
}

/// How many resources are begun at once: the intents and results of some are recorded while others are called. An intent
/// without a call is no harm where the object can be found, which that of a provider cannot.
fn window(runtime: &dyn Runtime, plan: &Plan, parallelism: usize) -> usize {
    let is_decided = plan.actions.iter().any(|planned| runtime.providers().decides(planned.kind));
    if is_decided { parallelism } else { parallelism * 2 }
}

/// The ids whose records differ after the recovery of lost calls.
fn changed<'a>(recovered: &'a State, recorded: &'a State) -> impl Iterator<Item = &'a ResourceId> {
    let before: HashMap<&ResourceId, &StateResource> = recorded.resources.iter().map(|it| (&it.id, it)).collect();
    recovered.resources.iter().filter(move |it| before.get(&it.id) != Some(it)).map(|it| &it.id)
}

/// What a deferred runtime wrote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    All,
    Nothing,
    /// A pull request is open.
    Proposed,
    /// The answer was lost.
    Unknown,
}

/// Reports the results that waited until the changes were written. `others` has the owners of resources that were not deleted.
async fn report_deferred(
    observer: &dyn Observer,
    results: Vec<ResourceResult>,
    written: Written,
    others: &BTreeMap<ResourceId, String>,
) -> Result<(), Abandoned> {
    let results = results.into_iter().map(|mut result| {
        if written != Written::All && result.outcome == ResourceOutcome::Done {
            (result.outcome, result.message) = match written {
                Written::Unknown => {
                    (ResourceOutcome::Unknown, "it is unknown whether the changes were written".to_owned())
                }
                Written::Proposed => (ResourceOutcome::Skipped, "proposed but not merged yet".to_owned()),
                Written::All | Written::Nothing => {
                    let why = "nothing was written because some changes failed";
                    (ResourceOutcome::Skipped, why.to_owned())
                }
            };
            result.resource = None;
        } else if let Some(owner) = others.get(&result.id) {
            result = not_deleted(result, LeftAlone::Owned(owner.clone()).to_string());
        }
        result
    });
    report(observer, results).await
}
