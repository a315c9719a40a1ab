//! Whether what a run proposed was merged. Until it is, the run is put down, and has neither a lease nor a function-runner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_kinds::run_status::{awaits_merge, status};
use stoa_proto::{LookAtProposalRequest, Proposal};
use stoa_types::{
    common::condition,
    delivery::{PullRequestStatus, RunPhase},
    platform::CommitMode,
    reason,
};

use crate::{StepError, deployment, execution::Execution, state::State, status::StatusUpdate, target::Target};

/// Lets a run go on that proposed nothing, or whose pull request is not as it was left. Asks the server of the pull request
/// alone. Returns what is to be recorded, and then how the run goes on: AwaitingMerge when nobody did anything yet, or the server
/// does not tell.
pub(super) async fn look(
    execution: &mut Execution,
    target: &Target,
) -> Result<(Option<StatusUpdate>, Result<(), StepError>), StepError> {
    let now = status(&execution.run);
    let Some(pull) = now.pull_request.clone().filter(|_| awaits_merge(&execution.run)) else {
        return Ok((None, Ok(())));
    };
    if execution.cancel.is_cancelled() {
        return Err(StepError::Canceled);
    }
    let mode = target.workspace.spec.gitops.as_ref().map(|gitops| gitops.mode);
    if mode != Some(CommitMode::PullRequest) {
        return Ok((None, Ok(())));
    }
    let request = LookAtProposalRequest {
        workspace: Some(target.proto_workspace(&execution.services).await?),
        number: u64::try_from(pull.number).unwrap_or_default(),
        organization: execution.run.namespace().unwrap_or_default(),
    };
    let runner = execution.services.runner.clone();
    let found = match execution.unless_canceled(runner.look_at_proposal(request)).await? {
        Ok(found) => found.into_inner(),
        Err(error) => {
            // Whoever mends it has nothing to start again.
            let message = format!("{}; its state is unknown: {}", waits(&pull), error.message());
            return Ok((told(execution, &message, None), Err(StepError::AwaitingMerge)));
        }
    };
    if found.state == "Open" && found.commit == pull.commit && !found.in_conflict {
        return Ok((told(execution, &waits(&pull), None), Err(StepError::AwaitingMerge)));
    }
    if found.state == "Open" && found.commit == pull.commit {
        // Carrying the plan out again makes the branch anew on what its base is now; once for each of these.
        if pull.unmergeable_into.as_ref() == Some(&found.base_commit) {
            return Ok((None, Err(StepError::AwaitingMerge)));
        }
        let message = conflicts(&pull, &found.base_commit);
        execution.note(message.clone());
        return Ok((told(execution, &message, Some(&found.base_commit)), Ok(())));
    }
    let mut ended = None;
    if found.state != "Open" {
        execution.note(format!("pull request {} is {}", pull.number, found.state.to_lowercase()));
        // Nobody is waited for any more, and what was merged may be live.
        if found.state == "Merged" && deployment::is_noted(&target.stack, &execution.run) {
            deployment::note(execution, &target.stack, RunPhase::Applying, None).await?;
        }
        ended = Some(StatusUpdate::ProposalEnded(Time(execution.services.now())));
    }
    Ok((ended, Ok(())))
}

/// Refuses a proposal when another Run has changed the deployment since.
pub(super) fn refuse_superseded(execution: &Execution, state: &State) -> Result<(), StepError> {
    let Some(pull) = status(&execution.run).pull_request else { return Ok(()) };
    let head = state.head();
    let is_released = pull.release.is_some_and(|release| head.last_release > release);
    let is_other = Some(&head.run) != execution.run.metadata.uid.as_ref();
    if is_released || (is_other && head.dirty && state.changed_by(&head.run) > 0) {
        let message = format!(
            "another run changed the deployment since pull request {} was opened, and the record has its state; the \
             next run plans the differences",
            pull.number
        );
        return Err(StepError::Superseded(message));
    }
    Ok(())
}

/// What it means for the run that its changes are proposed: the pull request, and what the run says.
///
/// # Errors
///
/// Superseded or Failed when the pull request is not open.
pub(super) async fn settle(
    execution: &mut Execution,
    target: &Target,
    state: &State,
    proposal: &Proposal,
) -> Result<(PullRequestStatus, String), StepError> {
    let number = proposal.number;
    match proposal.state.as_str() {
        "Open" => {}
        "Superseded" => {
            let by = &proposal.by;
            return Err(StepError::Superseded(format!("run {by} proposes its changes instead of this run")));
        }
        _ => {
            let message = format!("pull request {number} was closed and not merged; nothing was changed");
            return Err(StepError::failed(reason::PULL_REQUEST_CLOSED, message));
        }
    }
    let before = status(&execution.run).pull_request;
    let same = before.as_ref().filter(|before| before.commit == proposal.commit);
    let pull = PullRequestStatus {
        number: i64::try_from(number).unwrap_or(i64::MAX),
        url: proposal.url.clone(),
        branch: proposal.branch.clone(),
        commit: proposal.commit.clone(),
        time: before.as_ref().and_then(|before| before.time.clone()).or_else(|| Some(Time(execution.services.now()))),
        release: before.as_ref().map_or(Some(state.head().last_release), |before| before.release),
        end_time: None,
        unmergeable_into: same.and_then(|same| same.unmergeable_into.clone()),
    };
    let why = pull.unmergeable_into.as_ref().map_or_else(|| waits(&pull), |base| conflicts(&pull, base));
    let message = match proposal.blocked.as_str() {
        "" => why,
        blocked => format!("{why}: {blocked}"),
    };
    if before.is_none() {
        deployment::note(execution, &target.stack, RunPhase::AwaitingMerge, None).await?;
        execution.journal.note("AwaitingMerge", message.clone());
        execution.journal.flush().await;
    }
    Ok((pull, message))
}

fn named(pull: &PullRequestStatus) -> String {
    let page = if pull.url.is_empty() { String::new() } else { format!(" ({})", pull.url) };
    format!("pull request {}{page}", pull.number)
}

fn waits(pull: &PullRequestStatus) -> String {
    format!("{} waits to be merged", named(pull))
}

/// That it cannot be merged as it is, and what the branch is that it goes to, if the server tells.
fn conflicts(pull: &PullRequestStatus, base: &str) -> String {
    let message = format!("{} cannot be merged as it is", named(pull));
    let base = base.get(..10).unwrap_or(base);
    if base.is_empty() { message } else { format!("{message}, into {base}") }
}

/// Why the run waits, and what its pull request cannot be merged into if that is why, where that is news.
fn told(execution: &Execution, message: &str, unmergeable_into: Option<&str>) -> Option<StatusUpdate> {
    let now = status(&execution.run);
    let is_told = condition(&now.conditions, reason::WAITING).is_some_and(|waiting| waiting.message == message);
    let is_noted = now.pull_request.is_none_or(|pull| pull.unmergeable_into.as_deref() == unmergeable_into);
    if is_told && is_noted {
        return None;
    }
    tracing::info!(run = execution.run.name_any(), message, "the run waits");
    let (message, unmergeable_into) = (message.to_owned(), unmergeable_into.map(str::to_owned));
    Some(StatusUpdate::AwaitingMerge { message, unmergeable_into })
}
