//! Which commit a run is for.

use kube::ResourceExt as _;
use stoa_kinds::{release, run_status::status, trigger};
use stoa_types::{
    Release,
    delivery::{Operation, RunSource},
    reason,
};

use super::plan;
use crate::{
    StepError, execution::Execution, package_source, runner, state::State, status::StatusUpdate, target::Target,
};

/// The commit that the run is for, and what is to be recorded of it, once.
pub(super) async fn commit(
    execution: &mut Execution,
    target: &Target,
) -> Result<(String, Option<StatusUpdate>), StepError> {
    if let Some(source) = status(&execution.run).source {
        return Ok((source.commit, None));
    }
    let mut preview_uid = None;
    let commit = match (execution.run.spec.planned(), execution.run.spec.plan.clone()) {
        (_, Some(plan)) => {
            let previewed = plan::previewed(execution, target, &plan).await?;
            preview_uid = Some(previewed.uid);
            previewed.plan.commit
        }
        (Operation::Destroy, None) => String::new(),
        (Operation::Rollback | Operation::Refresh, None) => release(execution, target).await?.spec.commit,
        (Operation::Preview | Operation::Apply | Operation::Import, None) => resolve(execution, target).await?,
    };
    if let Ok(source) = target.source() {
        package_source::require_published(&execution.services, source, execution.run.spec.operation, &commit).await?;
    }
    let path = target.path();
    let commit_url = target.commit_page(&commit).unwrap_or_default();
    let source = RunSource { commit: commit.clone(), path, commit_url, ..RunSource::default() };
    Ok((commit, Some(StatusUpdate::Resolved { source, preview_uid })))
}

async fn resolve(execution: &mut Execution, target: &Target) -> Result<String, StepError> {
    let version = execution.run.spec.version.clone().unwrap_or_else(|| target.stack.spec.desired_version.clone());
    let request = target.resolve_request(&execution.services, &version).await?;
    let names_it =
        if execution.run.spec.version.is_some() { "spec.version" } else { "spec.desiredVersion of the Stack" };
    let runner = execution.runners();
    let response = execution.unless_canceled(runner.resolve(request)).await?;
    // What a trigger names is what it found in the source.
    let is_own = execution.run.spec.version.is_some() && !trigger::is_triggered(&execution.run);
    let refused = |e: tonic::Status| match execution.refused(&e, reason::SOURCE_UNREACHABLE) {
        StepError::Failed { reason, message } if runner::lacks_version(&e) => {
            let message = format!("{names_it}: {message}");
            if is_own { StepError::refused(reason, message) } else { StepError::failed(reason, message) }
        }
        halt => halt,
    };
    let response = response.map_err(refused)?.into_inner();
    let signed = if response.signed_by.is_empty() { "" } else { &format!(", signed by {}", response.signed_by) };
    let note = format!("{version} is commit {} ({}){signed}", response.commit, response.subject);
    execution.journal.note("Generating", note);
    Ok(response.commit)
}

/// Whether what the run is for was released before, and is not rendered anew.
pub(super) fn is_of_release(execution: &Execution) -> bool {
    matches!(execution.run.spec.planned(), Operation::Rollback | Operation::Refresh)
}

/// The last release, if it has a Spec that is deployed.
pub(super) async fn last_release(execution: &Execution, target: &Target) -> Result<Option<Release>, StepError> {
    let uid = target.stack.uid().unwrap_or_default();
    let state = State::load(&*execution.services.log, &uid, &target.workspace.name_any(), None).await?;
    let name = release::name(&target.stack.name_any(), &target.workspace.name_any(), state.head().last_release);
    let found = execution.services.lookup.api::<Release>()?.get_opt(&target.namespace(), &name).await?;
    let is_deployed = release::obstacle(found.as_ref(), &name, &target.stack).is_none();
    Ok(found.filter(|_| is_deployed))
}

/// The release that a Rollback goes back to, or that a Refresh looks at, which is the last one.
pub(super) async fn release(execution: &Execution, target: &Target) -> Result<Release, StepError> {
    let is_refresh = execution.run.spec.operation == Operation::Refresh;
    let number = if is_refresh {
        let uid = target.stack.uid().unwrap_or_default();
        let state = State::load(&*execution.services.log, &uid, &target.workspace.name_any(), None).await?;
        state.head().last_release
    } else {
        execution.run.spec.release.unwrap_or_default()
    };
    if is_refresh && number == 0 {
        let message = format!("workspace {} has no release yet", target.workspace.name_any());
        return Err(StepError::failed(reason::NOT_DEPLOYED, message));
    }
    let name = release::name(&target.stack.name_any(), &target.workspace.name_any(), number);
    let found = execution.services.lookup.api::<Release>()?.get_opt(&target.namespace(), &name).await?;
    let is_own = |release: &Release| Some(&release.spec.stack_uid) == target.stack.metadata.uid.as_ref();
    // What was imported may have moved away from how it was found, and is nothing to go back to.
    let obstacle = if is_refresh { release::nothing_deployed } else { release::obstacle };
    match (obstacle(found.as_ref(), &name, &target.stack), found) {
        (None, Some(release)) => Ok(release),
        (_, Some(release)) if is_refresh && is_own(&release) => {
            Err(StepError::failed(reason::NOT_DEPLOYED, format!("release {name} records that everything was removed")))
        }
        (obstacle, _) => Err(StepError::failed(reason::REFERENCE_NOT_FOUND, obstacle.unwrap_or_default())),
    }
}
