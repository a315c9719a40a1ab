//! The phase, the requester and the pending decisions of a Run, as its status records them.

use jiff::Timestamp;
use stoa_machinery::request::UserInfo;
use stoa_types::{
    Run,
    delivery::{Operation, Requester, RunPhase, RunStatus},
};

/// The status of a run, which its strategy has set when it was created.
pub fn status(run: &Run) -> RunStatus {
    run.status.clone().unwrap_or_default()
}

/// Whether a run is put down until somebody decides about its plan.
pub fn awaits_approval(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase == RunPhase::AwaitingApproval && status.approval.is_none())
}

/// Whether a run is put down until somebody merges its pull request.
pub fn awaits_merge(run: &Run) -> bool {
    run.status.as_ref().is_some_and(|status| status.phase == RunPhase::AwaitingMerge)
}

/// When a run was created; to the second where an earlier version made it.
pub fn queued_at(run: &Run) -> Option<Timestamp> {
    let created = run.metadata.creation_timestamp.as_ref();
    run.status.as_ref().and_then(|status| status.queued_time.as_ref()).map(|it| it.0).or(created.map(|it| it.0))
}

/// Whether a run is to end before it is done. Deleting one cancels it first, but for what the server
/// itself destroys: in a namespace that goes, everything is deleted again and again until it is gone.
pub fn wants_end(run: &Run) -> bool {
    let is_own_destroy = run.spec.operation == Operation::Destroy && is_internal(&status(run).requester);
    run.spec.cancel || (run.metadata.deletion_timestamp.is_some() && !is_own_destroy)
}

/// Whether it was the server itself that asked for a run.
pub fn is_internal(requester: &Requester) -> bool {
    user(requester).is_internal()
}

/// The user that asked for something.
pub fn user(requester: &Requester) -> UserInfo {
    UserInfo {
        name: requester.username.clone(),
        uid: requester.uid.clone(),
        groups: requester.groups.clone(),
        extra: requester.extra.clone(),
    }
}
