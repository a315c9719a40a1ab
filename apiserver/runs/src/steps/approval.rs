//! The approval of a plan: a Run whose plan needs one is suspended until somebody decides.

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_kinds::{plan_summary, run_status::status};
use stoa_types::{
    Run,
    delivery::{Approval, RunPhase, RunStatus},
    reason,
};

use super::{merged, plan};
use crate::{StepError, deployment, execution::Execution, state::State, target::Target};

/// Lets a run go on whose plan needs nobody's approval, or has it and still holds. Returns what the run says where somebody has to
/// decide.
///
/// # Errors
///
/// AwaitingApproval when the run says that already; Failed when the premises of the plan changed since it was made.
pub(super) async fn pass(
    execution: &mut Execution,
    target: &Target,
    [spec, plan]: [&Bytes; 2],
    state: &State,
) -> Result<Option<String>, StepError> {
    let now = status(&execution.run);
    // What has begun was let go on. Only where another run was the last to write since, such as one that another server let
    // begin, is the plan looked at again; of what was proposed that was done before.
    if now.phase >= RunPhase::Applying {
        let is_own = state.head().run.is_empty() || Some(&state.head().run) == execution.run.metadata.uid.as_ref();
        if !is_own && now.pull_request.is_none() {
            plan::require_unchanged(execution, target, [spec, plan], state).await?;
        }
        return Ok(None);
    }
    if let Some(approval) = &now.approval {
        if now.plan.is_none_or(|planned| planned.digest != approval.plan_digest) {
            return Err(StepError::failed(reason::PLAN_STALE, "the approved plan is not the plan of this run"));
        }
        plan::require_unchanged(execution, target, [spec, plan], state).await?;
        // Whoever is to know whether something may be live by now finds that nobody is waited for any more.
        deployment::note(execution, &target.stack, RunPhase::Applying, None).await?;
        return Ok(None);
    }
    let asked_by = asked_by(&execution.run, target);
    let is_changing = now.plan.as_ref().is_some_and(|plan| plan.summary.changes() > 0);
    // Whoever takes the requirement away does not approve what already waits.
    if now.phase != RunPhase::AwaitingApproval && (asked_by.is_empty() || !is_changing) {
        return Ok(None);
    }
    if tells_waiting(&now) {
        return Err(StepError::AwaitingApproval);
    }
    let plan = now.plan.unwrap_or_default();
    let (digest, short) = (&plan.digest, plan_summary::short(&plan.summary));
    let why = if asked_by.is_empty() { String::new() } else { format!(", requested by {}", asked_by.join(" and ")) };
    let message = format!("plan {digest} ({short}) waits for approval{why}");
    deployment::note(execution, &target.stack, RunPhase::AwaitingApproval, None).await?;
    execution.journal.note("AwaitingApproval", message.clone());
    execution.journal.flush().await;
    Ok(Some(message))
}

/// The decision about the plan of a run that has not begun to apply it, and whether the run still says that it waits.
pub(super) fn decision(run: &Run) -> Option<(Approval, bool)> {
    let now = status(run);
    let approval = now.approval.clone().filter(|_| now.phase < RunPhase::Applying)?;
    Some((approval, tells_waiting(&now)))
}

fn asked_by(run: &Run, target: &Target) -> Vec<String> {
    let asks = [
        (run.spec.require_approval, "the run".to_owned()),
        (target.stack.spec.require_approval, format!("stack {}", target.stack.name_any())),
        (target.workspace.spec.require_approval, format!("workspace {}", target.workspace.name_any())),
    ];
    let asks = asks.into_iter().filter_map(|(asks, who)| asks.then_some(who));
    asks.chain(merged::asking(&status(run))).collect()
}

fn tells_waiting(status: &RunStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|condition| condition.type_ == reason::WAITING && condition.reason == reason::AWAITING_APPROVAL)
}
