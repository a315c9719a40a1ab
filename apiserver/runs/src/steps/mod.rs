//! The steps of a run, one after the other: which commit, which Spec, which plan, the changes, the release.
//!
//! Start at [`take`], the driver. Each step first checks whether it was taken already. It returns its result, and the driver
//! writes that to the status before the next step begins ([`StatusUpdate`]). Only waits in the middle of a step write by themselves:
//! the conversation of an apply, and what a call or a check waits for.

mod apply;
mod approval;
mod call_lease;
mod changes;
mod compliance;
mod deletion;
mod drift;
mod generator;
mod health_record;
mod import;
mod merged;
mod pending_calls;
mod plan;
mod proposal;
mod release;
mod render;
mod resolve;
mod waiting_condition;

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_controller::{events::Kind, lease::HeldLease};
use stoa_failpoint::reached;
use stoa_kinds::{approval::sentence, run_status::status};
use stoa_types::{
    delivery::{Decision, Operation, RunPhase},
    reason,
};

pub(crate) use self::{
    merged::Verdict,
    plan::{hook_operation, unreadable},
};
use crate::{StepError, execution::Execution, resources, state::State, status::StatusUpdate, target::Target};

/// Ends a run whose plan was rejected; for this nothing that it refers to has to be there. A decision is recorded once.
///
/// # Errors
///
/// Failed with who rejected it, and why.
pub(super) async fn refuse_rejected(execution: &mut Execution) -> Result<(), StepError> {
    let Some((approval, is_news)) = approval::decision(&execution.run) else { return Ok(()) };
    let message = sentence(&approval, status(&execution.run).plan.as_ref());
    let is_approved = approval.decision == Decision::Approved;
    if is_news {
        execution.journal.note("AwaitingApproval", message.clone());
        execution.journal.flush().await;
        let (kind, why) =
            if is_approved { (Kind::Normal, reason::APPROVED) } else { (Kind::Warning, reason::REJECTED) };
        execution.services.recorder.record(&execution.run, kind, why, message.clone());
        execution.write(StatusUpdate::WaitsNoMore).await?;
    }
    if is_approved { Ok(()) } else { Err(StepError::failed(reason::REJECTED, message)) }
}

/// Looks whether the pull request of a run was merged or closed.
pub(super) async fn look_at_proposal(execution: &mut Execution, target: &Target) -> Result<(), StepError> {
    let (found, then) = proposal::look(execution, target).await?;
    let has_ended = matches!(found, Some(StatusUpdate::ProposalEnded(_)));
    execution.record(found).await?;
    if has_ended {
        reached("merge-noted");
    }
    then
}

/// Fails a Run before it begins whose references do not exist: it says nothing about the deployment.
async fn refuse_mistaken(execution: &Execution, target: &Target) -> Result<(), StepError> {
    match &execution.run.spec.plan {
        // What it goes back to was planned already.
        Some(plan) => drop(plan::previewed(execution, target, plan).await?),
        None if resolve::is_of_release(execution) => drop(resolve::release(execution, target).await?),
        None => {}
    }
    let retry = &execution.run.spec.retry;
    if !retry.is_empty() {
        let uid = target.stack.uid().unwrap_or_default();
        let state = State::load(&*execution.services.log, &uid, &target.workspace.name_any(), None).await?;
        plan::require_open(retry, &state)?;
    }
    Ok(())
}

/// Takes those steps that are left: under a lease of the stack in the workspace, or without if nothing is to be changed.
pub(super) async fn take(
    execution: &mut Execution,
    target: &Target,
    lease: Option<&HeldLease>,
) -> Result<(), StepError> {
    if status(&execution.run).start_time.is_none() {
        refuse_mistaken(execution, target).await?;
    }
    execution.begin(target).await?;
    let (commit, found) = resolve::commit(execution, target).await?;
    execution.record(found).await?;
    reached("commit-noted");
    let (spec, spec_digest, found) = render::spec(execution, target, &commit).await?;
    execution.record(found).await?;
    reached("spec-noted");
    let stack_uid = target.stack.uid().unwrap_or_default();
    let workspace = target.workspace.name_any();
    let log = execution.services.log.clone();
    let state = State::load(&*log, &stack_uid, &workspace, lease.map(HeldLease::fence)).await?;
    let mut state = state.with_bodies(target.bodies(&execution.services)).await?;
    let plan = match plan::kept(execution, target).await? {
        Some(plan) => plan,
        None => {
            execution.enter(RunPhase::Planning).await?;
            let (plan, planned) = plan::make(execution, target, &spec, &state).await?;
            execution.write(StatusUpdate::Planned(Box::new(planned.clone()))).await?;
            plan::announce(execution, &planned).await;
            plan
        }
    };
    reached("plan-noted");
    let Some(lease) = lease else {
        let message = if execution.run.spec.operation == Operation::Refresh {
            drift::note(execution, target, &spec_digest, &plan, &state).await?
        } else {
            let warning = deletion::warning(execution, &plan, &state).await?;
            format!("the plan is made; nothing was changed{warning}")
        };
        return execution.finish(RunPhase::Succeeded, reason::SUCCEEDED, &message).await;
    };
    if execution.cancel.is_cancelled() && status(&execution.run).phase < RunPhase::Applying {
        return Err(StepError::Canceled);
    }
    // Once the release has its number, all changes are made and recorded.
    if Some(&state.head().last_release_run) != execution.run.metadata.uid.as_ref() {
        proposal::refuse_superseded(execution, &state)?;
        deletion::require_allowed(execution, &plan, &state).await?;
        target.check_permissions(&execution.services, &execution.run).await?;
        refuse_rejected(execution).await?;
        if let Some(message) = approval::pass(execution, target, [&spec, &plan], &state).await? {
            execution.write(StatusUpdate::AwaitingApproval(message.clone())).await?;
            execution.services.recorder.record(&execution.run, Kind::Normal, reason::AWAITING_APPROVAL, message);
            return Err(StepError::AwaitingApproval);
        }
        if let Err(halt) = Box::pin(carry_out(execution, target, lease, [&spec, &plan], &mut state)).await {
            // What was changed until then is there, or may be, and people look for it.
            let is_last = matches!(halt, StepError::Retry(_)) && execution.cancel.is_cancelled();
            if is_last || matches!(halt, StepError::Failed { .. } | StepError::Canceled) {
                state.record_health(&*log).await?;
                resources::record(execution, target, &state, None).await?;
                execution.unheard_of = state.unheard_of(&execution.run.uid().unwrap_or_default());
            }
            return Err(halt);
        }
    }
    let release = release::release(execution, target, &mut state, &spec_digest).await?;
    execution.record(release.map(StatusUpdate::Released)).await?;
    let message = match (release, execution.run.spec.operation) {
        (None, Operation::Import) => "nothing was left to import".to_owned(),
        (None, _) => {
            let warning = deletion::warning(execution, &plan, &state).await?;
            format!("nothing had to be changed{warning}")
        }
        (Some(n), Operation::Destroy) => format!("everything was removed; release {n} records it"),
        (Some(n), Operation::Import) => format!("release {n} records what was imported; nothing was changed"),
        (Some(n), _) => format!("release {n} is deployed"),
    };
    execution.finish(RunPhase::Succeeded, reason::SUCCEEDED, &message).await
}

/// Carries out the plan, or proposes its changes.
///
/// # Errors
///
/// AwaitingMerge when the changes wait in a pull request, and whatever keeps them from being made.
async fn carry_out(
    execution: &mut Execution,
    target: &Target,
    lease: &HeldLease,
    documents: [&Bytes; 2],
    state: &mut State,
) -> Result<(), StepError> {
    execution.enter(RunPhase::Applying).await?;
    let applied = apply::apply(execution, target, lease, documents, state).await?;
    if let Some(proposal) = applied.proposal() {
        let is_new = status(&execution.run).pull_request.is_none();
        let (pull, message) = proposal::settle(execution, target, state, proposal).await?;
        execution.write(StatusUpdate::Proposed { pull, message: message.clone() }).await?;
        reached("proposal-noted");
        if is_new {
            execution.services.recorder.record(&execution.run, Kind::Normal, reason::AWAITING_MERGE, message);
        }
        return Err(StepError::AwaitingMerge);
    }
    if let Some(commit) = applied.commit() {
        execution.write(StatusUpdate::Committed(commit.to_owned())).await?;
        execution.note(format!("commit {commit} in the workspace's GitOps repository"));
    }
    apply::outcome(&applied)?;
    compliance::wait(execution, target).await
}
