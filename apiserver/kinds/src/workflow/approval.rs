//! `workflows/approval`: the approval or rejection of a step.
//!
//! The subresource is separate from `runs/approval`, because a gate between steps has no Run and no plan. It
//! writes entries of `status.approvals`, one for each step. Earlier entries stay, whether a client sends them
//! again or not.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_machinery::{ApiError, RequestContext, status::FieldError};
use stoa_types::{
    Workflow,
    delivery::{StepApproval, StepPhase},
};

use super::effective;
use crate::{
    approval::{is_same_person, require_own, too_long, verb},
    errors,
    run::identity,
};

fn approvals(workflow: &Workflow) -> &[StepApproval] {
    workflow.status.as_ref().map_or(&[], |status| &status.approvals)
}

/// The decision about a step, if there is one.
fn about<'a>(workflow: &'a Workflow, step: &str) -> Option<&'a StepApproval> {
    approvals(workflow).iter().find(|approval| approval.step == step)
}

/// Says who decides and when; decisions that were there before stay as they were.
pub(super) fn prepare(context: &RequestContext, new: &mut Workflow, old: &Workflow) {
    let sent = new.status.as_mut().map(|status| std::mem::take(&mut status.approvals)).unwrap_or_default();
    let mut all = approvals(old).to_vec();
    for mut approval in sent {
        if about(old, &approval.step).is_some_and(|before| says_the_same(before, &approval)) {
            continue;
        }
        approval.approver = Some(identity(&context.user));
        approval.time = Some(Time(Timestamp::now()));
        all.push(approval);
    }
    new.status.get_or_insert_default().approvals = all;
}

/// Whether two decisions say the same, as far as clients say it.
fn says_the_same(one: &StepApproval, other: &StepApproval) -> bool {
    (one.decision, &one.message) == (other.decision, &other.message)
}

/// What was decided, by whom, and why: `bob approved step prod: looks good`.
pub fn sentence(approval: &StepApproval) -> String {
    let who = approval.approver.as_ref().map_or("somebody", |approver| approver.username.as_str());
    let why = if approval.message.is_empty() { String::new() } else { format!(": {}", approval.message) };
    format!("{who} {} step {}{why}", verb(approval.decision), approval.step)
}

/// Decides whether somebody may decide so now.
///
/// # Errors
///
/// 409 when something else was decided before, and when the step does not wait for approval; 422 for a step that there is
/// not; 403 for who asked for the workflow and may not approve their own.
pub async fn admit(context: &RequestContext, new: &Workflow, old: &Workflow) -> Result<(), ApiError> {
    // Those that were there come first.
    let decided = approvals(new).iter().enumerate().skip(approvals(old).len());
    let mut steps = HashSet::new();
    for (i, approval) in decided {
        let path = format!("status.approvals[{i}]");
        if !steps.insert(approval.step.as_str()) {
            let error = FieldError::duplicate(format!("{path}.step"), &approval.step);
            return Err(errors::invalid::<Workflow>(&old.name_any(), &[error]));
        }
        check(old, approval, &path)?;
    }
    let status = old.status.clone().unwrap_or_default();
    if !steps.is_empty() && is_same_person(&status.requester, &context.user) {
        return require_own(context, old, "steps").await;
    }
    Ok(())
}

/// What keeps a decision from being taken, whoever takes it.
fn check(workflow: &Workflow, approval: &StepApproval, path: &str) -> Result<(), ApiError> {
    let name = workflow.name_any();
    let conflict = |why: String| Err(errors::conflict::<Workflow>(&name, why));
    let invalid = |error| Err(errors::invalid::<Workflow>(&name, &[error]));
    let step = &approval.step;
    if let Some(before) = about(workflow, step) {
        return conflict(format!("{}; a decision cannot be changed", sentence(before)));
    }
    let steps = effective(workflow).steps;
    let Some(of_step) = steps.iter().find(|of_step| of_step.name == *step) else {
        return invalid(FieldError::not_found(format!("{path}.step"), step));
    };
    if of_step.approval.is_none() {
        return conflict(format!("step {step} is not an approval step; approve plans through runs/approval"));
    }
    if let Some(error) = too_long(format!("{path}.message"), &approval.message) {
        return invalid(error);
    }
    let status = workflow.status.clone().unwrap_or_default();
    let phase = status.steps.iter().find(|status| status.name == *step).map(|status| status.phase).unwrap_or_default();
    if phase != StepPhase::AwaitingApproval {
        return conflict(format!("step {step} does not wait for approval; its phase is {phase:?}"));
    }
    if workflow.spec.cancel || workflow.metadata.deletion_timestamp.is_some() {
        return conflict("the workflow is being cancelled".to_owned());
    }
    Ok(())
}
