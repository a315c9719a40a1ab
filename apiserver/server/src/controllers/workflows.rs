//! Workflows: starts their runs, one step after the other, and says how far they are.
//!
//! A look reads the workflow and the runs that its status names, decides ([`machine`]), starts runs, and writes the
//! status, in this order. The name of a run follows from what it is for, and what it is from what was recorded before: the
//! commits, the selected workspaces. So whoever goes on after a crash between the two last creates the same run again, and
//! finds it. Elsewhere: runs are created in [`starts`], which commits are deployed is found in [`versions`], whether what was
//! deployed is healthy in [`gates`], hooks are called in [`calls`], and Events are in [`events`]. Whoever may not answer is asked
//! by a task of its own (`stoa_controller::probes`), so that no look waits for them.

mod calls;
mod events;
mod gates;
mod machine;
mod starts;
mod templates;
mod timers;
mod versions;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::Deserialize;
use stoa_controller::{
    conditions::set_condition,
    finalizers::{remove_finalizer, update_same},
    object::ObjectKey,
    probes::{AGAIN, ProbeSlots, Probes, Requeue},
    queue::{self, FirstError, Trigger},
};
use stoa_kinds::{
    run_status::{status as status_of_run, user},
    run_view::OfRunMetadata,
    workflow::{effective, hook, stack_of, waves},
};
use stoa_machinery::{ApiError, RequestContext};
use stoa_runs::{Services, StepError};
use stoa_types::{
    Run, Stack, Workflow,
    common::condition,
    delivery::{
        HookPhase, HookStatus, PinnedVersion, ResolvedTemplate, StepPhase, StepStatus, WorkflowPhase, WorkflowStatus,
        WorkflowTemplate,
    },
    labels, reason,
};
use tokio_util::sync::CancellationToken;

use self::{
    calls::Calls,
    gates::Gates,
    machine::{Seen, Situation, Which},
    starts::Tries,
    timers::Timers,
};
use super::references;

/// As whom workflows are looked after.
const COMPONENT: &str = "workflow";
/// How many workflows are looked at at once.
const AT_ONCE: usize = 8;
/// What the garbage collector has on an object whose dependents are to stay.
const ORPHAN: &str = "orphan";

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(workflows), Ok(runs)) = (services.lookup.api::<Workflow>(), services.lookup.api::<Run>()) else { return };
    let (requeue, poked) = Requeue::triggering();
    let memory = Arc::new(Memory { requeue, ..Memory::default() });
    let triggers = vec![
        poked,
        Trigger::on(&workflows, |workflow: &Workflow| vec![queue::key_of(workflow)]),
        Trigger::on_part(&runs, |run: &OfRun| {
            let OfRunMetadata { namespace, labels } = &run.metadata;
            labels.get(labels::WORKFLOW).map(|name| (namespace.clone(), name.clone())).into_iter().collect()
        }),
    ];
    queue::drive_some(services.queues.of("workflows"), AT_ONCE, triggers, end, |key| {
        look(services.clone(), memory.clone(), key)
    })
    .await;
}

/// What of a run says whose it is: this is read with every change of every run.
#[derive(Deserialize)]
struct OfRun {
    metadata: OfRunMetadata,
}

fn status(workflow: &Workflow) -> WorkflowStatus {
    workflow.status.clone().unwrap_or_default()
}

/// What is known of workflows besides what is in the log: nothing that cannot be found out again.
#[derive(Debug, Default)]
struct Memory {
    /// The uids of those that were looked at, since one that is gone does not tell its own.
    uids: Mutex<HashMap<ObjectKey, String>>,
    timers: Timers,
    gates: Gates,
    calls: Calls,
    tries: Tries,
    /// What was found in repositories for those that have not begun, by uid.
    templates: Probes<String, ResolvedTemplate, StepError>,
    versions: Probes<String, Vec<PinnedVersion>, StepError>,
    turns: ProbeSlots,
    requeue: Requeue,
}

impl Memory {
    /// Forgets what belongs to another one that had this name before.
    fn meet(&self, key: &ObjectKey, uid: &str) {
        let before = self.uids.lock().insert(key.clone(), uid.to_owned());
        if let Some(before) = before.filter(|before| before != uid) {
            self.drop_of(&before);
        }
    }

    fn forget(&self, key: &ObjectKey) {
        let uid = self.uids.lock().remove(key);
        if let Some(uid) = uid {
            self.drop_of(&uid);
        }
    }

    fn drop_of(&self, uid: &str) {
        self.timers.forget(uid);
        self.leave(uid);
    }

    /// Looks at nothing, calls nothing and starts nothing any longer for a workflow.
    fn leave(&self, uid: &str) {
        self.gates.forget(uid);
        self.calls.forget(uid);
        self.tries.forget(uid);
        self.leave_repositories(uid);
    }

    /// Asks no repository any longer for a workflow that has begun or is not to begin.
    fn leave_repositories(&self, uid: &str) {
        self.templates.forget(uid);
        self.versions.forget(uid);
    }
}

struct Ending {
    phase: WorkflowPhase,
    reason: &'static str,
    message: String,
}

/// How a workflow ends and what it waits for, as far as its steps do not tell.
struct Ends {
    ending: Option<Ending>,
    is_over: bool,
    /// Which hook of the whole failed, and which did without harm.
    failure: Option<String>,
    ignored: Option<String>,
    uncreated: Vec<String>,
}

async fn look(services: Services, memory: Arc<Memory>, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let workflows = services.lookup.api::<Workflow>()?;
    let Some(workflow) = workflows.get_opt(&key.0, &key.1).await? else {
        memory.forget(&key);
        return Ok(None);
    };
    memory.meet(&key, &workflow.uid().unwrap_or_default());
    if status(&workflow).phase.is_terminal() {
        memory.forget(&key);
        return keep(&services, &workflow).await;
    }
    let mut next = workflow.clone();
    let again = Box::pin(go_on(&services, &memory, &mut next)).await?;
    if next.status == workflow.status {
        return Ok(again);
    }
    match workflows.replace_status(&next).await {
        Ok(_) => events::tell(&services, &workflow, &next),
        // Somebody wrote meanwhile, such as an approval: what was started is found again.
        Err(error) if error.code() == 409 => return Ok(Some(Duration::ZERO)),
        Err(error) if error.code() == 404 => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(again)
}

/// Takes a workflow as far as it goes; when to look again, if nothing happens before.
async fn go_on(services: &Services, memory: &Memory, workflow: &mut Workflow) -> Result<Option<Duration>, ApiError> {
    let now = Time(services.now());
    let mut state = status(workflow);
    let uid = workflow.uid().unwrap_or_default();
    let elapsed = |of: &str, at: &Time| memory.timers.elapsed(&uid, of, at.0, now.0);
    let (ending, until_end) = ending(workflow, &state, &elapsed);
    let may_begin = state.start_time.is_none() && ending.is_none() && !workflow.spec.paused;
    if !may_begin {
        memory.leave_repositories(&uid);
    }
    if let Some(template) = workflow.spec.template.clone().filter(|_| may_begin && state.template.is_none()) {
        // Whoever answers has it looked at.
        let Some(read) = read(services, memory, workflow, template) else { return Ok(Some(AGAIN)) };
        let read = read.map(|read| state.template = Some(read));
        // It is recorded before anything else is decided.
        let again = read.map_or_else(|halt| put_off(workflow, &mut state, halt, &now), |()| Some(Duration::ZERO));
        workflow.status = Some(state);
        return Ok(again);
    }
    workflow.spec = effective(workflow);
    if may_begin {
        // This, too, is recorded first: what a branch points to may be something else at the next look.
        let Some(found) = find(services, memory, workflow) else { return Ok(Some(AGAIN)) };
        let mut again = Some(Duration::ZERO);
        match found {
            Ok(versions) => (state.versions, state.start_time) = (versions, Some(now)),
            Err(halt) => again = put_off(workflow, &mut state, halt, &now),
        }
        workflow.status = Some(state);
        return Ok(again);
    }
    let is_paused = workflow.spec.paused || state.start_time.is_none();
    let (runs, waves) = (runs_of(services, workflow, &state).await?, waves_of(services, workflow, &state).await?);
    let (mut gates, mut hooks) = (HashMap::new(), HashMap::new());
    if ending.is_none() {
        gates = memory.gates.look(services, workflow, &state, &waves, &memory.requeue);
        let age = |of: &HookStatus, which: &Which| {
            let (step, name, wave) = which;
            let moment = format!("{step}/{name}/{}", wave.unwrap_or_default());
            of.start_time.as_ref().map_or(Duration::ZERO, |start| elapsed(&moment, start))
        };
        hooks = memory.calls.look(services, workflow, &state, &waves, age, &memory.requeue);
    } else {
        memory.leave(&uid);
    }
    let whole = hook::whole(&workflow.spec);
    let situation = Situation {
        name: &workflow.name_any(),
        uid: &uid,
        steps: &workflow.spec.steps,
        whole: whole.as_ref(),
        is_paused,
        is_ending: ending.is_some(),
        runs: &runs,
        waves: &waves,
        gates: &gates,
        hooks: &hooks,
        now: &now,
        elapsed: &elapsed,
    };
    let decided = machine::advance(&mut state, &situation);
    let started = starts::create_all(services, &memory.tries, workflow, &mut state, &decided.starts).await;
    let again = decided.again.into_iter().chain(until_end).chain(started.again).min();
    let is_active = ending.is_some() && cancel_runs(services, workflow, &state).await?;
    let ends = Ends {
        ending,
        is_over: decided.is_over,
        failure: machine::failure_of_whole(&state, whole.as_ref()),
        ignored: machine::ignored_of_whole(&state, whole.as_ref()),
        uncreated: started.put_off,
    };
    conclude(workflow, &mut state, ends, is_active, &now);
    workflow.status = Some(state);
    Ok(again)
}

/// The steps of a template, once they are read.
fn read(
    services: &Services,
    memory: &Memory,
    workflow: &Workflow,
    template: WorkflowTemplate,
) -> Option<Result<ResolvedTemplate, StepError>> {
    let (uid, key) = (workflow.uid().unwrap_or_default(), queue::key_of(workflow));
    memory.templates.answer(uid, (&memory.requeue, &key), || {
        let (services, turns, workflow) = (services.clone(), memory.turns.of(&key.0), workflow.clone());
        let context = context(&services, &status(&workflow));
        async move { Box::pin(templates::read(&services, &turns, &context, &workflow, &template)).await }
    })
}

/// The commits that are deployed, once they are found.
fn find(services: &Services, memory: &Memory, workflow: &Workflow) -> Option<Result<Vec<PinnedVersion>, StepError>> {
    let (uid, key) = (workflow.uid().unwrap_or_default(), queue::key_of(workflow));
    memory.versions.answer(uid, (&memory.requeue, &key), || {
        let (services, turns, workflow) = (services.clone(), memory.turns.of(&key.0), workflow.clone());
        async move { Box::pin(versions::find(&services, &turns, &workflow)).await }
    })
}

/// Ends a workflow that cannot begin, or says what it waits for; when to look again.
fn put_off(workflow: &Workflow, state: &mut WorkflowStatus, halt: StepError, now: &Time) -> Option<Duration> {
    let generation = workflow.metadata.generation;
    let is_final = halt.is_final();
    let (why, message) = halt.into_reason(reason::WAITING);
    if is_final {
        finish(state, now, WorkflowPhase::Failed, why, &message, generation);
        return None;
    }
    set_condition(&mut state.conditions, reason::WAITING, true, why, message, generation);
    Some(AGAIN)
}

fn context(services: &Services, state: &WorkflowStatus) -> RequestContext {
    let mut context = RequestContext::new(user(&state.requester), services.authorizer.clone());
    context.field_manager = format!("stoa-{COMPONENT}");
    context
}

/// Why a workflow is to end now, and if it is not, when its time is up.
fn ending(
    workflow: &Workflow,
    state: &WorkflowStatus,
    elapsed: &impl Fn(&str, &Time) -> Duration,
) -> (Option<Ending>, Option<Duration>) {
    let canceled = |message: &str| {
        let ending = Ending { phase: WorkflowPhase::Canceled, reason: reason::CANCELED, message: message.to_owned() };
        (Some(ending), None)
    };
    if workflow.spec.cancel {
        return canceled("the workflow was cancelled");
    }
    if workflow.metadata.deletion_timestamp.is_some() {
        return canceled("the workflow was deleted before it ended");
    }
    let limit = workflow.spec.timeout.as_ref().and_then(|text| text.parse().ok()).zip(state.start_time.as_ref());
    let Some((limit, start)) = limit else { return (None, None) };
    let left = limit.saturating_sub(elapsed("start", start));
    if left.is_zero() {
        return (Some(timed_out(workflow)), None);
    }
    (None, Some(left))
}

fn timed_out(workflow: &Workflow) -> Ending {
    let limit = workflow.spec.timeout.as_ref().map(ToString::to_string).unwrap_or_default();
    let message = format!("the workflow took longer than {limit}");
    Ending { phase: WorkflowPhase::Failed, reason: reason::TIMED_OUT, message }
}

fn is_own(run: &Run, workflow: &Workflow) -> bool {
    run.owner_references().iter().any(|owner| Some(&owner.uid) == workflow.metadata.uid.as_ref())
}

/// What is seen of the runs that are under way.
async fn runs_of(
    services: &Services,
    workflow: &Workflow,
    state: &WorkflowStatus,
) -> Result<HashMap<String, Seen>, ApiError> {
    let runs = services.lookup.api::<Run>()?;
    let namespace = workflow.namespace().unwrap_or_default();
    let mut seen = HashMap::new();
    let active = state.steps.iter().flat_map(|step| &step.runs).filter(|run| !run.phase.is_terminal());
    for run in active {
        let is_it = |found: &Run| match run.uid.as_str() {
            "" => is_own(found, workflow),
            uid => found.metadata.uid.as_deref() == Some(uid),
        };
        if let Some(found) = runs.get_opt(&namespace, &run.name).await?.filter(is_it) {
            let status = status_of_run(&found);
            let why = condition(&status.conditions, reason::FAILED).map(|failed| failed.message.clone());
            let (uid, message) = (found.uid().unwrap_or_default(), why.unwrap_or_default());
            seen.insert(run.name.clone(), Seen { uid, phase: status.phase, message });
        }
    }
    Ok(seen)
}

/// The workspaces of the steps that have not ended; those that are selected stay what they were when the step began.
async fn waves_of(
    services: &Services,
    workflow: &Workflow,
    state: &WorkflowStatus,
) -> Result<HashMap<String, Vec<Vec<String>>>, ApiError> {
    let namespace = workflow.namespace().unwrap_or_default();
    let mut all = HashMap::new();
    for step in &workflow.spec.steps {
        let Some(run) = &step.run else { continue };
        let of_step = state.steps.iter().find(|of_step| of_step.name == step.name);
        if of_step.is_some_and(|of_step| of_step.phase.is_terminal()) {
            continue;
        }
        let selected = of_step.map(|of_step| of_step.selected.as_slice()).unwrap_or_default();
        let found = if !selected.is_empty() {
            selected.iter().map(|wave| wave.workspaces.clone()).collect()
        } else if run.waves.iter().any(|wave| wave.workspace_selector.is_some()) {
            let stack = stack_of(&workflow.spec, run);
            match services.lookup.api::<Stack>()?.get_opt(&namespace, stack).await? {
                Some(stack) => waves(&services.lookup, run, &stack).await?,
                None => Vec::new(),
            }
        } else if run.waves.is_empty() {
            vec![run.workspaces.clone()]
        } else {
            run.waves.iter().map(|wave| wave.workspaces.clone()).collect()
        };
        all.insert(step.name.clone(), found);
    }
    Ok(all)
}

async fn labelled_runs(services: &Services, workflow: &Workflow) -> Result<Vec<Run>, ApiError> {
    let selector = format!("{}={}", labels::WORKFLOW, workflow.name_any());
    services.lookup.api::<Run>()?.list(workflow.namespace().as_deref(), &selector).await
}

/// Cancels the runs under way, also unnoted ones of before a crash; whether there are any.
async fn cancel_runs(services: &Services, workflow: &Workflow, state: &WorkflowStatus) -> Result<bool, ApiError> {
    let known: HashSet<&str> = state
        .steps
        .iter()
        .flat_map(|step| &step.runs)
        .map(|run| run.uid.as_str())
        .filter(|uid| !uid.is_empty())
        .collect();
    let runs = services.lookup.api::<Run>()?;
    let (mut is_active, mut failed) = (false, FirstError::default());
    for run in labelled_runs(services, workflow).await? {
        let is_known = run.metadata.uid.as_deref().is_some_and(|uid| known.contains(uid));
        if !(is_known || is_own(&run, workflow)) || status_of_run(&run).phase.is_terminal() {
            continue;
        }
        is_active = true;
        if !run.spec.cancel {
            // One that cannot be cancelled keeps no other from being.
            failed.note(queue::unless_gone(update_same(&runs, &run, |run| run.spec.cancel = true).await));
        }
    }
    failed.told()?;
    Ok(is_active)
}

/// Says how far the workflow is as a whole, and ends it when all steps have.
fn conclude(workflow: &Workflow, state: &mut WorkflowStatus, ends: Ends, is_active: bool, now: &Time) {
    let Ends { ending, is_over, failure, ignored, uncreated } = ends;
    let generation = workflow.metadata.generation;
    let has = |of: StepPhase| state.steps.iter().any(|step| step.phase == of);
    let waits: Vec<String> =
        state.steps.iter().filter(|step| step.phase == StepPhase::AwaitingApproval).map(asks).collect();
    let again = events::retried_hooks(state);
    // Without steps, the template was not read yet.
    let has_steps = !state.steps.is_empty();
    let has_ended = state.steps.iter().all(|step| step.phase.is_terminal());
    let has_hook = |of: HookPhase| state.hooks.iter().any(|hook| hook.phase == of);
    if has_ended && (has_steps && is_over || ending.is_some()) && !is_active {
        let is_cut = has(StepPhase::Canceled) || has_hook(HookPhase::Canceled);
        // Only what has a limit ends for no reason that is still there: the clock was set back.
        let ending = ending.or_else(|| is_cut.then(|| timed_out(workflow)));
        let failed = state.steps.iter().find(|step| step.phase == StepPhase::Failed);
        let (phase, why, message) = match (failed, ending.filter(|_| !has_steps || is_cut || !is_over), failure) {
            (_, Some(Ending { phase, reason, message }), _) => (phase, reason, message),
            (Some(step), None, _) => {
                (WorkflowPhase::Failed, reason::STEP_FAILED, format!("step {}: {}", step.name, step.message))
            }
            (None, None, Some(why)) => (WorkflowPhase::Failed, reason::HOOK_FAILED, why),
            (None, None, None) => {
                let told: Vec<String> = [succeeded(state)].into_iter().chain(noted(state)).chain(ignored).collect();
                (WorkflowPhase::Succeeded, reason::SUCCEEDED, machine::cut(&told.join("; ")))
            }
        };
        finish(state, now, phase, why, &message, generation);
        return;
    }
    let is_running = has(StepPhase::Running) || has_hook(HookPhase::Running);
    state.phase = match (is_running, workflow.spec.paused, waits.is_empty()) {
        (true, _, _) => WorkflowPhase::Running,
        (false, true, _) => WorkflowPhase::Paused,
        (false, false, false) => WorkflowPhase::AwaitingApproval,
        (false, false, true) => WorkflowPhase::Running,
    };
    let mut tell = |type_: &str, why: &str, message: Option<String>| match message {
        Some(message) => {
            set_condition(&mut state.conditions, type_, true, why, message, generation);
        }
        None => state.conditions.retain(|condition| condition.type_ != type_),
    };
    let paused = workflow.spec.paused.then(|| "nothing begins until paused is false".to_owned());
    tell(reason::PAUSED, reason::PAUSED, paused);
    let message = (!waits.is_empty()).then(|| machine::cut(&waits.join("; ")));
    tell(reason::AWAITING_APPROVAL, reason::AWAITING_APPROVAL, message);
    let why = if uncreated.is_empty() { reason::HOOK_RETRIED } else { reason::WAITING };
    let waiting: Vec<String> = uncreated.into_iter().chain(again).collect();
    tell(reason::WAITING, why, (!waiting.is_empty()).then(|| machine::cut(&waiting.join("; "))));
}

/// How it ended well: `all 3 steps succeeded`, or how many of them were skipped.
fn succeeded(state: &WorkflowStatus) -> String {
    let all = state.steps.len();
    match state.steps.iter().filter(|step| step.phase == StepPhase::Skipped).count() {
        0 if all == 1 => "1 step succeeded".to_owned(),
        0 => format!("all {all} steps succeeded"),
        skipped => format!("{} of {all} steps succeeded, and the others were not needed", all - skipped),
    }
}

/// What the steps that ended well say of their runs: which failures were tolerated, and which waves were skipped.
fn noted(state: &WorkflowStatus) -> impl Iterator<Item = String> {
    let has_notes =
        |step: &&StepStatus| step.phase == StepPhase::Succeeded && step.counts.is_some() && !step.message.is_empty();
    state.steps.iter().filter(has_notes).map(|step| format!("step {}: {}", step.name, step.message))
}

/// What a step asks somebody to approve.
fn asks(step: &StepStatus) -> String {
    let of_runs = step.counts.is_some();
    match (of_runs, step.message.is_empty()) {
        (true, _) => format!("step {}: {}", step.name, step.message),
        (false, true) => format!("step {} waits for approval", step.name),
        (false, false) => format!("step {} waits for approval: {}", step.name, step.message),
    }
}

fn finish(
    state: &mut WorkflowStatus,
    now: &Time,
    phase: WorkflowPhase,
    why: &str,
    message: &str,
    generation: Option<i64>,
) {
    state.phase = phase;
    state.start_time.get_or_insert_with(|| now.clone());
    state.completion_time = Some(now.clone());
    let passing = [reason::PAUSED, reason::AWAITING_APPROVAL, reason::WAITING];
    state.conditions.retain(|condition| !passing.contains(&condition.type_.as_str()));
    let type_ = if phase == WorkflowPhase::Succeeded { reason::COMPLETE } else { reason::FAILED };
    set_condition(&mut state.conditions, type_, true, why, message, generation);
}

/// What becomes of a workflow that has ended: it goes when it is deleted, with its runs, or when its time is over.
async fn keep(services: &Services, workflow: &Workflow) -> Result<Option<Duration>, ApiError> {
    let workflows = services.lookup.api::<Workflow>()?;
    let (namespace, name) = queue::key_of(workflow);
    if workflow.metadata.deletion_timestamp.is_none() {
        let Some(ttl) = workflow.spec.ttl_seconds_after_finished else { return Ok(None) };
        let Some(Time(end)) = status(workflow).completion_time else { return Ok(None) };
        let left = ttl.saturating_sub(services.now().duration_since(end).as_secs());
        if left > 0 {
            return Ok(Some(Duration::from_secs(u64::try_from(left).unwrap_or(1).min(3600))));
        }
        // Its runs go with it.
        let runs = labelled_runs(services, workflow).await?;
        let own: Vec<&Run> = runs.iter().filter(|run| is_own(run, workflow)).collect();
        if !references::to_be_carried_out(&services.lookup, &own).await?.is_empty() {
            return Ok(Some(AGAIN));
        }
        return match workflows.delete(&namespace, &name, &queue::as_read(workflow)).await {
            Ok(_) => Ok(None),
            Err(error) if matches!(error.code(), 404 | 409) => Ok(Some(Duration::ZERO)),
            Err(error) => Err(error),
        };
    }
    if !workflow.finalizers().iter().any(|f| f == labels::WORKFLOW_FINALIZER) {
        return Ok(None);
    }
    // Where there is a garbage collector it would do that, too, or lets them go first.
    if !workflow.finalizers().iter().any(|f| f == ORPHAN) {
        let runs = services.lookup.api::<Run>()?;
        for run in labelled_runs(services, workflow).await? {
            // One that it does not own any more was let go.
            if !is_own(&run, workflow) || run.metadata.deletion_timestamp.is_some() {
                continue;
            }
            queue::unless_gone(runs.delete(&namespace, &run.name_any(), &queue::as_read(&run)).await)?;
        }
    }
    remove_finalizer(&workflows, workflow, labels::WORKFLOW_FINALIZER).await?;
    Ok(None)
}

#[cfg(test)]
mod tests;
