//! Waits until clusters have what a run committed, where the workspace says that runs do.

use std::time::Duration;

use stoa_kinds::run_status::status;
use stoa_types::{config::ComplianceState, delivery::RunPhase, reason};
use tokio::time::Instant;

use crate::{StepError, compliance, deployment, execution::Execution, status::StatusUpdate, target::Target};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(3);

/// Returns once all clusters have the commit of the run, or that of the last one if this one had nothing to commit.
///
/// # Errors
///
/// Failed with NotReconciled when they do not in time, Canceled when the run is.
pub(super) async fn wait(execution: &mut Execution, target: &Target) -> Result<(), StepError> {
    let settings = compliance::of(&target.workspace);
    let limit = settings.and_then(|settings| settings.wait.as_ref()?.parse().ok()).unwrap_or_default();
    if limit == Duration::ZERO {
        return Ok(());
    }
    execution.enter(RunPhase::Verifying).await?;
    deployment::note(execution, &target.stack, RunPhase::Verifying, None).await?;
    let Some(commit) = status(&execution.run).gitops_commit.or_else(|| last(target)) else { return Ok(()) };
    let end = Instant::now() + limit;
    let organization = target.namespace();
    loop {
        let services = execution.services.clone();
        let look = compliance::look(&services, &organization, &target.workspace, vec![commit.clone()]);
        let why = match execution.unless_canceled(look).await? {
            Ok(found) => match found.get(&commit) {
                Some(found) if found.state == ComplianceState::Compliant => {
                    execution.note(format!("clusters have commit {commit}"));
                    return execution.write(StatusUpdate::WaitsNoMore).await;
                }
                Some(found) => compliance::reasons(found),
                None => "no check yet".to_owned(),
            },
            Err(
                StepError::Failed { message, .. } | StepError::Retry(message) | StepError::SourceUnreachable(message),
            ) => message,
            Err(halt) => return Err(halt),
        };
        if Instant::now() >= end {
            let message = format!("not all clusters had commit {commit} after {limit:?}: {why}");
            return Err(StepError::failed(reason::NOT_RECONCILED, message));
        }
        tell(execution, &format!("waiting for clusters to have commit {commit}: {why}")).await?;
        execution.unless_canceled(tokio::time::sleep(LOOK)).await?;
    }
}

/// The commit by which what is deployed was last changed.
fn last(target: &Target) -> Option<String> {
    let deployments = target.stack.status.iter().flat_map(|status| &status.deployments);
    let workspace = target.workspace.metadata.name.as_deref();
    deployments.into_iter().find(|of| Some(of.workspace.as_str()) == workspace)?.gitops_commit.clone()
}

/// Says what the run waits for, where that is news.
async fn tell(execution: &mut Execution, message: &str) -> Result<(), StepError> {
    let is_told =
        status(&execution.run).conditions.iter().any(|of| of.type_ == reason::WAITING && of.message == message);
    if is_told {
        return Ok(());
    }
    execution.note(message.to_owned());
    execution.write(StatusUpdate::Waiting(reason::RECONCILING, message.to_owned())).await
}
