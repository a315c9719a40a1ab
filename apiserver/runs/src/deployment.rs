//! How the deployment of a stack to a workspace fares, in the stack's status.

use kube::ResourceExt as _;
use stoa_controller::queue::unless_gone;
use stoa_kinds::{deployed::is_changing, lookup::Lookup, readiness, run_status::status, text::cut};
use stoa_machinery::{ApiError, registry::is_undecodable};
use stoa_types::{
    Run, Stack,
    common::condition,
    config::{Deployment, EarlierRun, EndedRun},
    delivery::{Operation, RunPhase},
    reason,
};

use super::{StepError, compliance, execution::Execution, state::State, target::Target};

/// The most characters of the message about a run that has ended.
const MESSAGE: usize = 512;

/// Whether the stack's status says that the run, which is under way, is what changes its deployment.
pub(super) fn is_noted(stack: &Stack, run: &Run) -> bool {
    noted(stack, run).is_some()
}

/// The deployment of which the stack's status says that the run, which is under way, changes it.
fn noted<'a>(stack: &'a Stack, run: &Run) -> Option<&'a Deployment> {
    let mut deployments = stack.status.iter().flat_map(|status| &status.deployments);
    deployments.find(|deployment| deployment.workspace == run.spec.workspace && is_of(deployment, run))
}

/// Whether a deployment in a run's workspace says that the run is under way.
fn is_of(deployment: &Deployment, run: &Run) -> bool {
    let is_last = deployment.last_run.as_ref() == run.metadata.name.as_ref();
    is_last && deployment.phase.is_some_and(|phase| !phase.is_terminal())
}

/// The same for a Run without an object: once a later Run of its name has begun, the note is that one's.
pub(super) async fn is_noted_still(lookup: &Lookup, stack: &Stack, run: &Run) -> Result<bool, StepError> {
    if !is_noted(stack, run) {
        return Ok(false);
    }
    let found = lookup.api::<Run>()?.get_opt(&run.namespace().unwrap_or_default(), &run.name_any()).await?;
    let is_anothers = found.is_some_and(|other| other.uid() != run.uid() && has_begun_there(&other, run));
    Ok(!is_anothers)
}

/// Whether a run has begun to change the deployment that another one is for.
fn has_begun_there(run: &Run, other: &Run) -> bool {
    let deploys = |run: &Run| (run.spec.stack.clone(), run.spec.workspace.clone());
    deploys(run) == deploys(other) && run.spec.operation.is_mutating() && status(run).start_time.is_some()
}

/// Notes the Run's `phase` in the Stack's status, and `ended`, the reason and message of its end.
pub(super) async fn note(
    execution: &Execution,
    stack: &Stack,
    phase: RunPhase,
    ended: Option<(&str, &str)>,
) -> Result<(), StepError> {
    if !execution.run.spec.operation.is_mutating() {
        return Ok(());
    }
    let run = &execution.run;
    let run_status = status(run);
    let workspace = run.spec.workspace.clone();
    let uid = stack.uid();
    let state = match State::load(&*execution.services.log, uid.as_deref().unwrap_or_default(), &workspace, None).await
    {
        Ok(state) => Some(state),
        // What cannot be read says nothing about what is there. The run fails for it, and this is how it ends.
        Err(StepError::Failed { .. }) => None,
        Err(halt) => return Err(halt),
    };
    let stacks = execution.services.lookup.api::<Stack>()?;
    let update = |stack: &mut Stack| {
        if stack.uid() != uid {
            return;
        }
        let status = stack.status.get_or_insert_default();
        if !status.deployments.iter().any(|d| d.workspace == workspace) {
            status.deployments.push(Deployment { workspace: workspace.clone(), ..Deployment::default() });
            status.deployments.sort_by(|a, b| a.workspace.cmp(&b.workspace));
        }
        let Some(deployment) = status.deployments.iter_mut().find(|d| d.workspace == workspace) else { return };
        // It had given its turn away, and has nothing to say of a deployment that is another's by now.
        if run_status.phase == RunPhase::AwaitingMerge
            && matches!(phase, RunPhase::Failed | RunPhase::Canceled)
            && deployment.last_run.as_ref().is_some_and(|last| *last != run.name_any())
        {
            if let Some(before) = deployment.before.as_mut().filter(|before| before.run == run.name_any()) {
                before.phase = phase;
                deployment.last_end = ended.map(|ended| ended_run(run, phase, ended)).or(deployment.last_end.take());
            }
            return;
        }
        if !is_of(deployment, run) {
            // What was before one that waits for a merge is forgotten: such a run is not taken back any more.
            let last = deployment.last_run.take().zip(deployment.phase);
            deployment.before = last.map(|(run, phase)| EarlierRun { run, phase });
        }
        deployment.last_run = Some(run.name_any());
        deployment.phase = Some(phase);
        if phase.is_terminal() {
            end(deployment, run, phase, ended, state.as_ref());
        }
        if let Some(state) = &state {
            deployment.resources = i64::try_from(state.live()).unwrap_or(i64::MAX);
            if state.head().last_release > 0 {
                deployment.release = Some(state.head().last_release);
            }
        }
        if let Some(commit) = &run_status.gitops_commit
            && deployment.gitops_commit.as_ref() != Some(commit)
        {
            deployment.gitops_commit = Some(commit.clone());
            compliance::begin(deployment, commit, execution.services.now());
        }
        // What was only recorded is not as the commit says, and nothing was put back.
        if phase == RunPhase::Succeeded && run.spec.operation != Operation::Import {
            deployment.drifted = false;
            if let Some(source) = run_status.source.as_ref().filter(|source| !source.commit.is_empty()) {
                deployment.commit = Some(source.commit.clone());
            }
            readiness::set_drifted(stack, None);
        }
        compliance::set_condition(stack);
        let ended = ended.map(|(_, message)| (run.name_any(), message));
        readiness::set(
            &execution.services.lookup,
            stack,
            ended.as_ref().map(|(run, message)| (run.as_str(), *message)),
        );
    };
    written(stacks.update_status_with(&stack.namespace().unwrap_or_default(), &stack.name_any(), update).await)
}

/// Notes that a run has ended, and whether it leaves its deployment as no release says.
fn end(deployment: &mut Deployment, run: &Run, phase: RunPhase, ended: Option<(&str, &str)>, state: Option<&State>) {
    let before = deployment.before.take();
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    if phase == RunPhase::Succeeded {
        deployment.incomplete = None;
    } else if state.is_some_and(|state| state.may_be_changed_by(uid)) {
        deployment.incomplete = Some(EarlierRun { run: run.name_any(), phase });
    } else if deployment.last_end.is_none() {
        // An earlier version did not say what the run before had changed.
        deployment.incomplete = before.filter(|before| matches!(before.phase, RunPhase::Failed | RunPhase::Canceled));
    }
    deployment.last_end = ended.map(|ended| ended_run(run, phase, ended)).or(deployment.last_end.take());
}

fn ended_run(run: &Run, phase: RunPhase, (reason, message): (&str, &str)) -> EndedRun {
    EndedRun { run: run.name_any(), phase, reason: reason.to_owned(), message: cut(message, MESSAGE) }
}

/// Restores the Stack's status from before a refused Run; false, without a change, where it is not known.
pub(super) async fn take_back(execution: &Execution, stack: &Stack) -> Result<bool, StepError> {
    let (run, lookup) = (&execution.run, &execution.services.lookup);
    let Some(noted) = noted(stack, run) else { return Ok(true) };
    let (namespace, uid) = (stack.namespace().unwrap_or_default(), stack.uid());
    let now = match &noted.before {
        Some(before) => Some(phase_of(lookup, &namespace, before, run).await?),
        // It is the first. One that left nothing, before a run that an earlier version began, cannot be told from that.
        None if is_bare(noted) => None,
        // A version that kept nothing of the run before began this one.
        None => return Ok(false),
    };
    let update = |stack: &mut Stack| {
        if stack.uid() != uid || !is_noted(stack, run) {
            return;
        }
        let deployments = &mut stack.status.get_or_insert_default().deployments;
        let Some(position) = deployments.iter().position(|of| of.workspace == run.spec.workspace) else { return };
        let deployment = &mut deployments[position];
        let mut before = deployment.before.take();
        if let (Some(before), Some(now)) = (&mut before, now)
            && !before.phase.is_terminal()
        {
            before.phase = now;
        }
        (deployment.last_run, deployment.phase) = before.clone().map(|before| (before.run, before.phase)).unzip();
        if before.is_none() && is_bare(deployment) {
            // It would have been the first.
            deployments.remove(position);
        }
        let why = before.and_then(|before| Some((why_failed(lookup, &namespace, &before.run)?, before.run)));
        readiness::set(lookup, stack, why.as_ref().map(|(why, run)| (run.as_str(), why.as_str())));
    };
    let stacks = lookup.api::<Stack>()?;
    written(stacks.update_status_with(&namespace, &stack.name_any(), update).await)?;
    Ok(true)
}

/// Whether a deployment says nothing but which run is its last one.
fn is_bare(deployment: &Deployment) -> bool {
    let Deployment { workspace, last_run, phase, .. } = deployment.clone();
    *deployment == Deployment { workspace, last_run, phase, ..Deployment::default() }
}

/// The phase of the Run before `run`. One that waited for a merge and was deleted counts as canceled.
async fn phase_of(lookup: &Lookup, namespace: &str, before: &EarlierRun, run: &Run) -> Result<RunPhase, StepError> {
    if before.phase.is_terminal() {
        return Ok(before.phase);
    }
    match lookup.api::<Run>()?.get_opt(namespace, &before.run).await {
        // Another of its name has not begun.
        Ok(found) => {
            let found = found.filter(|found| has_begun_there(found, run));
            Ok(found.map_or(RunPhase::Canceled, |found| status(&found).phase))
        }
        Err(error) if is_undecodable(&error) => Ok(before.phase),
        Err(error) => Err(error.into()),
    }
}

/// Why a run did not succeed, as long as there is the run.
fn why_failed(lookup: &Lookup, namespace: &str, run: &str) -> Option<String> {
    let status = lookup.cached::<Run>(namespace, run)?.status?;
    condition(&status.conditions, reason::FAILED).map(|failed| failed.message.clone())
}

/// Notes whether what is live moved away from a release, unless another was made, or a run is at it, meanwhile.
pub(super) async fn note_drift(
    execution: &Execution,
    target: &Target,
    release: i64,
    drifted: bool,
    message: &str,
) -> Result<(), StepError> {
    let (workspace, uid) = (target.workspace.name_any(), target.stack.uid());
    let update = |stack: &mut Stack| {
        let of_workspace = |d: &&mut Deployment| d.workspace == workspace && d.release == Some(release);
        let status = stack.status.get_or_insert_default();
        let Some(deployment) = status.deployments.iter_mut().find(of_workspace) else { return };
        if stack.metadata.uid != uid || is_changing(deployment) {
            return;
        }
        deployment.drifted = drifted;
        readiness::set_drifted(stack, Some((&workspace, message)));
    };
    let stacks = execution.services.lookup.api::<Stack>()?;
    written(stacks.update_status_with(&target.namespace(), &target.stack.name_any(), update).await)
}

/// The stack may be deleted while its last run ends.
fn written(status: Result<Stack, ApiError>) -> Result<(), StepError> {
    Ok(unless_gone(status).map(drop)?)
}
