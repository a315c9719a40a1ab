//! Whether the plan of a run may be carried out: where somebody has to approve it first, the run is put down until then.

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_controller::{conditions::set_condition, events::Kind};
use stoa_kinds::{approval::sentence, plan_summary, run_status::status};
use stoa_types::{
    Run,
    delivery::{Approval, Decision, RunPhase, RunStatus},
    reason,
};

use super::{merged, plan};
use crate::runs::{StepError, deployment, execution::Execution, state::State, target::Target};

/// Lets a run go on whose plan needs nobody's approval, or has it and still holds.
///
/// # Errors
///
/// AwaitingApproval when somebody has to decide; Failed when they rejected the plan, and when its premises changed since
/// it was made.
pub(super) async fn pass(
    execution: &mut Execution,
    target: &Target,
    [spec, plan]: [&Bytes; 2],
    state: &State,
) -> Result<(), StepError> {
    let now = status(&execution.run);
    // What has begun was let go on. Only where another run was the last to write since, such as one that another server let
    // begin, is the plan looked at again; of what was proposed that was done before.
    if now.phase >= RunPhase::Applying {
        let is_own = state.head().run.is_empty() || Some(&state.head().run) == execution.run.metadata.uid.as_ref();
        if is_own || now.pull_request.is_some() {
            return Ok(());
        }
        return plan::require_unchanged(execution, target, [spec, plan], state).await;
    }
    if let Some(approval) = &now.approval {
        refuse_rejected(execution).await?;
        if now.plan.is_none_or(|planned| planned.digest != approval.plan_digest) {
            return Err(StepError::failed(reason::PLAN_STALE, "the approved plan is not the plan of this run"));
        }
        plan::require_unchanged(execution, target, [spec, plan], state).await?;
        // Whoever is to know whether something may be live by now finds that nobody is waited for any more.
        return deployment::note(execution, &target.stack, RunPhase::Applying, None).await;
    }
    let asked_by = asked_by(&execution.run, target);
    let is_changing = now.plan.as_ref().is_some_and(|plan| plan.summary.changes() > 0);
    // Whoever takes the requirement away does not approve what already waits.
    if now.phase != RunPhase::AwaitingApproval && (asked_by.is_empty() || !is_changing) {
        return Ok(());
    }
    wait(execution, target, &now, &asked_by).await?;
    Err(StepError::AwaitingApproval)
}

/// Ends a run whose plan was rejected; for this nothing that it refers to has to be there.
///
/// # Errors
///
/// Failed with who rejected it, and why.
pub(in crate::runs) async fn refuse_rejected(execution: &mut Execution) -> Result<(), StepError> {
    let now = status(&execution.run);
    let Some(approval) = now.approval.as_ref().filter(|_| now.phase < RunPhase::Applying) else { return Ok(()) };
    tell_decision(execution, &now, approval).await?;
    match approval.decision {
        Decision::Approved => Ok(()),
        Decision::Rejected => Err(StepError::failed(reason::REJECTED, sentence(approval, now.plan.as_ref()))),
    }
}

/// Who asks for an approval, as words.
fn asked_by(run: &Run, target: &Target) -> Vec<String> {
    let asks = [
        (run.spec.require_approval, "the run".to_owned()),
        (target.stack.spec.require_approval, format!("stack {}", target.stack.name_any())),
        (target.workspace.spec.require_approval, format!("workspace {}", target.workspace.name_any())),
    ];
    let asks = asks.into_iter().filter_map(|(asks, who)| asks.then_some(who));
    asks.chain(merged::asking(&status(run))).collect()
}

/// Whether the run says already that it waits for approval.
fn tells_waiting(status: &RunStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == reason::WAITING && condition.reason == reason::AWAITING_APPROVAL)
}

/// Says that somebody has to decide, and about what.
async fn wait(
    execution: &mut Execution,
    target: &Target,
    now: &RunStatus,
    asked_by: &[String],
) -> Result<(), StepError> {
    if tells_waiting(now) {
        return Ok(());
    }
    let plan = now.plan.clone().unwrap_or_default();
    let (digest, short) = (&plan.digest, plan_summary::short(&plan.summary));
    let why = if asked_by.is_empty() { String::new() } else { format!(", requested by {}", asked_by.join(" and ")) };
    let message = format!("plan {digest} ({short}) waits for approval{why}");
    deployment::note(execution, &target.stack, RunPhase::AwaitingApproval, None).await?;
    execution.journal.note("AwaitingApproval", message.clone());
    execution.journal.flush().await;
    let generation = execution.run.metadata.generation;
    execution
        .update(|status| {
            status.phase = status.phase.max(RunPhase::AwaitingApproval);
            let reason = reason::AWAITING_APPROVAL;
            set_condition(&mut status.conditions, reason::WAITING, true, reason, message.as_str(), generation);
        })
        .await?;
    execution.services.recorder.record(&execution.run, Kind::Normal, reason::AWAITING_APPROVAL, &message);
    Ok(())
}

/// Puts a decision on record, once.
async fn tell_decision(execution: &mut Execution, now: &RunStatus, approval: &Approval) -> Result<(), StepError> {
    if !tells_waiting(now) {
        return Ok(());
    }
    let message = sentence(approval, now.plan.as_ref());
    execution.journal.note("AwaitingApproval", message.clone());
    execution.journal.flush().await;
    let (kind, reason) = match approval.decision {
        Decision::Approved => (Kind::Normal, reason::APPROVED),
        Decision::Rejected => (Kind::Warning, reason::REJECTED),
    };
    execution.services.recorder.record(&execution.run, kind, reason, message);
    execution.update(|status| status.conditions.retain(|condition| condition.type_ != reason::WAITING)).await
}
