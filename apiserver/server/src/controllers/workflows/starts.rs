//! Creates the runs that a look has decided to start.
//!
//! One that cannot be created now is taken back out of the status, and so are those of its step that were to be started after it:
//! of a step the status has how many runs were started, in the order of the workspaces. So the next look decides to start them
//! again, and all else that this one found out is noted. In between a time passes that becomes longer with each failure.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::queue;
use stoa_kinds::{lookup, run_status::status as status_of_run, workflow::run_of};
use stoa_machinery::{
    ApiError,
    backoff::{Jitter, Policy},
};
use stoa_runs::Services;
use stoa_types::{
    Run, Workflow,
    delivery::{RunPhase, RunSpec, StepPhase, WorkflowStatus},
};
use tokio::time::Instant;

use super::{
    context, is_own,
    machine::{self, Start},
    versions,
};

/// The waits before a run that could not be created is tried again.
const BACKOFF: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(30)).with_jitter(Jitter::HALF);

type Of = (String, String);

/// The runs that could not be created when it was last tried.
#[derive(Debug, Default)]
pub(super) struct Tries(Mutex<HashMap<Of, Failure>>);

#[derive(Clone, Debug)]
struct Failure {
    count: u32,
    why: String,
    due: Instant,
}

impl Tries {
    /// What keeps a run from being created, for as long as it is not tried again.
    fn pending(&self, of: &Of) -> Option<Failure> {
        self.0.lock().get(of).filter(|failure| failure.due > Instant::now()).cloned()
    }

    fn note(&self, of: Of, error: &ApiError) -> Failure {
        let mut all = self.0.lock();
        let count = all.get(&of).map_or(0, |failure| failure.count).saturating_add(1);
        let due = Instant::now() + BACKOFF.after(count);
        let failure = Failure { count, why: error.message().to_owned(), due };
        all.insert(of, failure.clone());
        failure
    }

    fn made(&self, of: &Of) {
        self.0.lock().remove(of);
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(of, _), _| of != uid);
    }
}

/// What came of runs that were to be started.
#[derive(Debug, Default)]
pub(super) struct Started {
    pub(super) again: Option<Duration>,
    /// What keeps runs from being created now, as sentences.
    pub(super) put_off: Vec<String>,
}

impl Started {
    fn look_after(&mut self, wait: Duration) {
        self.again = Some(self.again.map_or(wait, |again| again.min(wait)));
    }
}

/// Creates runs that the status says are started, and notes there which were made, were refused, or are not started yet.
pub(super) async fn create_all(
    services: &Services,
    tries: &Tries,
    workflow: &Workflow,
    state: &mut WorkflowStatus,
    starts: &[Start],
) -> Started {
    let (mut started, mut put_off) = (Started::default(), HashSet::new());
    for start in starts {
        if put_off.contains(&start.step) {
            take_back(state, start);
            continue;
        }
        let of = (workflow.uid().unwrap_or_default(), start.name.clone());
        let created = match tries.pending(&of) {
            Some(failure) => Err(failure),
            None => create(services, workflow, state, start).await.map_err(|error| {
                let (namespace, name) = queue::key_of(workflow);
                tracing::warn!(namespace, workflow = name, run = start.name, %error, "a run cannot be created yet");
                tries.note(of.clone(), &error)
            }),
        };
        match created {
            Ok(made) => {
                tries.made(&of);
                match made {
                    Ok(uid) => note_created(state, start, uid),
                    Err(refusal) => {
                        started.look_after(Duration::ZERO);
                        note_refusal(state, start, &refusal);
                    }
                }
            }
            Err(failure) => {
                put_off.insert(start.step);
                take_back(state, start);
                started.look_after(failure.due.saturating_duration_since(Instant::now()));
                let step = &mut state.steps[start.step];
                let Start { name, workspace, .. } = start;
                let said = format!("run {name} in workspace {workspace} cannot be created yet: {}", failure.why);
                started.put_off.push(format!("step {}: {said}", step.name));
                // Of one whose runs wait for approval, the message says for which.
                if step.phase == StepPhase::Running {
                    step.message = machine::cut(&said);
                }
            }
        }
    }
    started
}

/// Creates a run as who asked for the workflow, or finds it: its uid, or why that is refused.
async fn create(
    services: &Services,
    workflow: &Workflow,
    state: &WorkflowStatus,
    start: &Start,
) -> Result<Result<String, String>, ApiError> {
    let Some(step) = workflow.spec.steps[start.step].run.as_ref() else { return Ok(Ok(String::new())) };
    let namespace = workflow.namespace().unwrap_or_default();
    // A plan was made for a commit, so that the run which carries it out names none.
    let commit = versions::of_step(workflow, &state.versions, step).filter(|_| step.plan_of.is_none());
    let mut run = run_of(workflow, step, &start.workspace, commit);
    run.metadata.name = Some(start.name.clone());
    if let Some(previewing) = &step.plan_of {
        match preview_of(services, workflow, previewing, &start.workspace).await? {
            Ok(name) => run.spec.plan = Some(name),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
    let context = context(services, state);
    let may_create = lookup::require::<Run>(&context, "create", "", &namespace, "").await;
    let runs = services.lookup.api::<Run>()?.with_context(context);
    let created = match may_create {
        Ok(()) => Box::pin(runs.create(&run)).await,
        Err(error) => Err(error),
    };
    let error = match created {
        Ok(made) => return Ok(Ok(made.uid().unwrap_or_default())),
        Err(error) if queue::is_refusal(&error) => error,
        Err(error) => return Err(error),
    };
    // An earlier look may have made it, unless somebody took the name; whoever asked for it may be refused it by now.
    let there = runs.get_opt(&namespace, &start.name).await?;
    let is_it = |there: &Run| {
        let is_asked = is_for_same(&there.spec, &run.spec);
        is_own(there, workflow) && is_asked && status_of_run(there).requester == state.requester
    };
    let uid = there.filter(is_it).map(|there| there.uid().unwrap_or_default());
    let refusal = || match error.is("AlreadyExists") {
        true => format!("another run has the name {}", start.name),
        false => error.message().to_owned(),
    };
    Ok(uid.ok_or_else(refusal))
}

/// The name of the Preview whose plan a run is to carry out: that of a step in a workspace. Or why there is none.
async fn preview_of(
    services: &Services,
    workflow: &Workflow,
    step: &str,
    workspace: &str,
) -> Result<Result<String, String>, ApiError> {
    let (name, uid) = (workflow.name_any(), workflow.uid().unwrap_or_default());
    let name = machine::run_name(&name, &uid, step, workspace);
    let namespace = workflow.namespace().unwrap_or_default();
    let preview = services.lookup.api::<Run>()?.get_opt(&namespace, &name).await?;
    let Some(preview) = preview.filter(|preview| is_own(preview, workflow)) else {
        return Ok(Err(format!("step {step} has no plan in workspace {workspace}: its Preview {name} does not exist")));
    };
    Ok(match status_of_run(&preview).phase {
        RunPhase::Succeeded => Ok(name),
        phase => Err(format!("step {step} has no plan in workspace {workspace}: its Preview {name} is {phase:?}")),
    })
}

/// Whether two runs do the same in the same place. Admission may have changed the rest, such as the timeout.
pub(super) fn is_for_same(a: &RunSpec, b: &RunSpec) -> bool {
    let of = |run: &RunSpec| (run.operation, run.release, run.plan.clone());
    (&a.stack, &a.workspace, &a.version) == (&b.stack, &b.workspace, &b.version) && of(a) == of(b)
}

/// Notes which run was made, so that it is known whatever becomes of what it says.
fn note_created(state: &mut WorkflowStatus, start: &Start, uid: String) {
    if let Some(run) = state.steps[start.step].runs.iter_mut().find(|run| run.name == start.name) {
        run.uid = uid;
    }
}

/// Notes that a run was refused, which counts as one that failed.
fn note_refusal(state: &mut WorkflowStatus, start: &Start, refusal: &str) {
    let step = &mut state.steps[start.step];
    if let Some(run) = step.runs.iter_mut().find(|run| run.name == start.name) {
        (run.phase, run.message) = (RunPhase::Failed, machine::cut(refusal));
        step.counts.get_or_insert_default().failed += 1;
    }
}

/// Notes that a run is to be started yet.
fn take_back(state: &mut WorkflowStatus, start: &Start) {
    let step = &mut state.steps[start.step];
    step.runs.retain(|run| run.name != start.name);
    step.counts.get_or_insert_default().started -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn run_creation_retries_with_backoff() {
        let (tries, of) = (Tries::default(), ("uid".to_owned(), "run".to_owned()));
        let fail = || {
            assert!(tries.pending(&of).is_none(), "it is tried");
            let failure = tries.note(of.clone(), &ApiError::service_unavailable("away"));
            assert_eq!(tries.pending(&of).map(|pending| pending.why), Some("away".to_owned()));
            failure.due - Instant::now()
        };
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = fail();
            waits.push(wait);
            tokio::time::advance(wait).await;
        }
        let (first, last) = (waits[0], waits[7]);
        let (least, most) = (BACKOFF.min, BACKOFF.max);
        assert!(first <= least && last >= most / 2 && last <= most, "{waits:?}");
        tries.made(&of);
        assert!(fail() <= least, "it begins anew");
        tries.forget("another");
        assert!(tries.pending(&of).is_some());
        tries.forget("uid");
        assert!(tries.pending(&of).is_none());
    }
}
