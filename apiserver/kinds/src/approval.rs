//! `runs/approval`: the approval or rejection of a Run's plan, as `certificatesigningrequests/approval` works.
//!
//! The subresource takes the whole object and writes nothing but the approval. The server sets the approver,
//! the time and the condition.
//!
//! Elsewhere: `package_operation` has the same approvals of plans, and `workflow::approval` those of steps.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{conditions::set_condition, object::Kind};
use stoa_machinery::{ApiError, RequestContext, request::UserInfo, status::FieldError};
use stoa_types::{
    Run,
    delivery::{Approval, Decision, PlanStatus, Requester, RunPhase, RunStatus},
    names, reason,
};

use super::{changes::OTHERS, lookup, run::identity, trigger::CAUSED_BY};
use crate::{
    errors, plan_summary,
    run_status::{status, wants_end},
};

const FIELD: &str = "status.approval";
const DIGEST: &str = "status.approval.planDigest";
pub(super) const MESSAGE: &str = "status.approval.message";
/// How long a message may be, in characters.
const LONGEST: usize = 1024;

/// Says who decides and when, and sets the condition; a decision that was there before stays as it was.
pub(super) fn prepare(context: &RequestContext, new: &mut Run, old: &Run) {
    let before = old.status.as_ref().and_then(|status| status.approval.as_ref());
    let generation = new.metadata.generation;
    let Some(RunStatus { approval: Some(approval), conditions, plan, .. }) = &mut new.status else { return };
    if !sign(context, approval, before) {
        return;
    }
    let (is_approved, why) = match approval.decision {
        Decision::Approved => (true, reason::APPROVED),
        Decision::Rejected => (false, reason::REJECTED),
    };
    let message = sentence(approval, plan.as_ref());
    set_condition(conditions, reason::APPROVED, is_approved, why, message, generation);
}

/// Says who decides and when, and returns whether the decision is new. One that was there before stays as it was.
pub(super) fn sign(context: &RequestContext, approval: &mut Approval, before: Option<&Approval>) -> bool {
    if let Some(before) = before.filter(|before| says_the_same(before, approval)) {
        approval.clone_from(before);
        return false;
    }
    approval.approver = Some(identity(&context.user));
    approval.time = Some(Time(Timestamp::now()));
    true
}

/// Whether two approvals say the same, as far as clients say it.
fn says_the_same(one: &Approval, other: &Approval) -> bool {
    let said = |approval: &Approval| (approval.plan_digest.clone(), approval.decision, approval.message.clone());
    said(one) == said(other)
}

/// The decision, who took it, about which plan and why: `bob approved plan sha256:… (+12 ~3 -0): looks good`.
pub fn sentence(approval: &Approval, plan: Option<&PlanStatus>) -> String {
    let who = approval.approver.as_ref().map_or("somebody", |approver| approver.username.as_str());
    let what = verb(approval.decision);
    let why = if approval.message.is_empty() { String::new() } else { format!(": {}", approval.message) };
    let plan = plan.filter(|plan| plan.digest == approval.plan_digest);
    let short = plan.map(|plan| format!(" ({})", plan_summary::short(&plan.summary))).unwrap_or_default();
    format!("{who} {what} plan {}{short}{why}", approval.plan_digest)
}

/// The verb of a decision in the past tense, as sentences have it.
pub fn verb(decision: Decision) -> &'static str {
    match decision {
        Decision::Approved => "approved",
        Decision::Rejected => "rejected",
    }
}

/// Decides whether somebody may decide so now.
///
/// # Errors
///
/// 409 when something was decided before, when the run does not wait for approval, and for another plan than the one that
/// waits; 422 when it is not said which plan; 403 for who asked for the run and may not approve their own.
pub async fn admit(context: &RequestContext, new: &Run, old: &Run) -> Result<(), ApiError> {
    let (was, is) = (status(old), status(new));
    if was.approval.is_some() && was.approval == is.approval {
        return Ok(());
    }
    check(old, &was, is.approval.as_ref())?;
    if is_same_person(&was.requester, &context.user) {
        return require_own(context, old, "plan").await;
    }
    if has_others(&was.requester) {
        let why = format!(
            "the list of users who caused this run is incomplete and may include {}; a decision about its plan then \
             needs the verb \"approve-own\" on runs",
            context.user.name
        );
        return require_approve_own(context, old, why).await;
    }
    Ok(())
}

/// What keeps a decision from being taken, whoever takes it.
fn check(run: &Run, was: &RunStatus, approval: Option<&Approval>) -> Result<(), ApiError> {
    let name = run.name_any();
    let conflict = |why: String| errors::conflict::<Run>(&name, why);
    let invalid = |error| errors::invalid::<Run>(&name, &[error]);
    if let Some(before) = &was.approval {
        return Err(conflict(format!("{}; a decision cannot be changed", sentence(before, was.plan.as_ref()))));
    }
    if was.phase != RunPhase::AwaitingApproval {
        return Err(conflict(format!("the run does not wait for approval; its phase is {:?}", was.phase)));
    }
    if wants_end(run) {
        return Err(conflict("the run is being cancelled".to_owned()));
    }
    let waiting = was.plan.as_ref().map_or("", |plan| plan.digest.as_str());
    let Some(approval) = approval else {
        let detail = format!("a decision about plan {waiting}, which waits for approval");
        return Err(invalid(FieldError::required(FIELD, detail)));
    };
    if approval.plan_digest.is_empty() {
        return Err(invalid(FieldError::required(DIGEST, format!("the plan that waits for approval is {waiting}"))));
    }
    if let Some(error) = too_long(MESSAGE, &approval.message) {
        return Err(invalid(error));
    }
    if approval.plan_digest != waiting {
        let why = format!("the plan that waits for approval is {waiting}, not {}", approval.plan_digest);
        return Err(conflict(why.clone()).with_cause("FieldValueInvalid", DIGEST, why));
    }
    Ok(())
}

/// The error of the message of a decision that is too long.
pub(super) fn too_long(path: impl Into<String>, message: &str) -> Option<FieldError> {
    let detail = format!("may not be longer than {LONGEST} characters");
    (message.chars().count() > LONGEST).then(|| FieldError::invalid(path, "", detail))
}

/// Whether somebody is who asked for a run: by name, or by uid where both have one. Of a run that Stoa started by itself it
/// is whoever had it do so.
pub(super) fn is_same_person(requester: &Requester, user: &UserInfo) -> bool {
    let is_its_cause = requester.extra.get(CAUSED_BY).is_some_and(|names| names.contains(&user.name));
    is_its_cause || requester.username == user.name || (!requester.uid.is_empty() && requester.uid == user.uid)
}

/// Whether nobody knows any more who all had Stoa start a run.
fn has_others(requester: &Requester) -> bool {
    requester.extra.get(CAUSED_BY).is_some_and(|names| names.iter().any(|name| name == OTHERS))
}

/// Requires what it takes to decide about what one asked for oneself: `its` plan or step.
pub(super) async fn require_own<K: Kind>(context: &RequestContext, object: &K, its: &str) -> Result<(), ApiError> {
    let (resource, noun) = (names::plural::<K>(), names::kind::<K>().to_lowercase());
    let why = format!(
        "{} requested this {noun} and needs the verb \"approve-own\" on {resource} to decide about its {its}; another \
         user can decide",
        context.user.name
    );
    require_approve_own(context, object, why).await
}

/// Requires leave to approve one's own, and says so why it is needed.
async fn require_approve_own<K: Kind>(context: &RequestContext, object: &K, why: String) -> Result<(), ApiError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let allowed = lookup::require::<K>(context, "approve-own", "", &namespace, &name).await;
    allowed.map_err(|error| match error.code() {
        403 => errors::forbidden::<K>(&name, why),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_by_name_and_by_uid() {
        let person = |name: &str, uid: &str| UserInfo { name: name.into(), uid: uid.into(), ..UserInfo::default() };
        let check = |asked: (&str, &str), decides: (&str, &str)| {
            is_same_person(&identity(&person(asked.0, asked.1)), &person(decides.0, decides.1))
        };
        assert!(check(("ann", ""), ("ann", "")));
        assert!(check(("ann", "1"), ("ann", "2")), "a name that was given to another account");
        assert!(check(("ann", "1"), ("anna", "1")), "an account that was renamed");
        assert!(!check(("ann", ""), ("bob", "")));
        assert!(!check(("ann", "1"), ("bob", "2")));
        let mut trigger = identity(&person("system:stoa:triggers", ""));
        trigger.extra.insert(CAUSED_BY.to_owned(), vec!["eve".to_owned(), "ann".to_owned()]);
        assert!(is_same_person(&trigger, &person("ann", "")) && !is_same_person(&trigger, &person("bob", "")));
    }
}
