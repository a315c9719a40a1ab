//! The steps of a run, one after the other: which commit, which Spec, which plan, the changes, the release.
//!
//! Start at [`take`]. Each step looks first whether it was taken already, and writes down what it decided before the
//! next begins.

mod apply;
mod approval;
mod call_lease;
mod changes;
mod compliance;
mod deletion;
mod drift;
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

use kube::ResourceExt as _;
use stoa_controller::lease::HeldLease;
use stoa_failpoint::reached;
use stoa_kinds::run_status::status;
use stoa_types::{
    delivery::{Operation, RunPhase},
    reason,
};

pub(super) use approval::refuse_rejected;
pub(super) use proposal::look as look_at_proposal;

use super::{StepError, execution::Execution, resources, state::State, target::Target};

/// The longest message about a resource in a run's status, in characters.
const MESSAGE: usize = 512;

/// Looks before a run begins for what it names of what is here: with nothing to go back to, or to carry out, it says nothing about
/// what is deployed.
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
///
/// # Errors
///
/// Whatever keeps the run from going on.
pub(super) async fn take(
    execution: &mut Execution,
    target: &Target,
    lease: Option<&HeldLease>,
) -> Result<(), StepError> {
    if status(&execution.run).start_time.is_none() {
        refuse_mistaken(execution, target).await?;
    }
    execution.begin(target).await?;
    let commit = resolve::commit(execution, target).await?;
    reached("commit-noted");
    let (spec, spec_digest) = render::spec(execution, target, &commit).await?;
    reached("spec-noted");
    let stack_uid = target.stack.uid().unwrap_or_default();
    let workspace = target.workspace.name_any();
    let log = execution.services.log.clone();
    let state = State::load(&*log, &stack_uid, &workspace, lease.map(HeldLease::fence)).await?;
    let mut state = state.with_bodies(target.documents.clone(), target.scope()).await?;
    let plan = plan::plan(execution, target, &spec, &state).await?;
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
        approval::pass(execution, target, [&spec, &plan], &state).await?;
        let mut applied = apply::apply(execution, target, lease, [&spec, &plan], &mut state).await;
        if applied.is_ok() {
            applied = compliance::wait(execution, target).await;
        }
        if let Err(halt) = applied {
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
