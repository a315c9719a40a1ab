//! Whether somebody who has not ended needs what is about to be removed.
//!
//! It is asked right before that, and read from the log rather than from what was listed before: a run that was let in meanwhile
//! counts. One that comes while it is removed is refused by its strategy, or finds that what it names is gone, and says so.

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_types::{
    Release, Run, Workflow,
    delivery::{Operation, RunStep},
    labels,
};

use crate::{
    kinds::{lookup::Lookup, workflow::effective},
    runs::status,
};

/// What has not ended, of runs and of workflows.
pub(super) const UNDER_WAY: &str = "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Canceled";

/// Whether a run names this one as the Preview whose plan it carries out.
///
/// # Errors
///
/// When runs cannot be read.
pub(super) async fn is_to_be_carried_out(lookup: &Lookup, preview: &Run) -> Result<bool, ApiError> {
    if preview.spec.operation != Operation::Preview {
        return Ok(false);
    }
    let (namespace, name) = (preview.namespace().unwrap_or_default(), preview.name_any());
    let names_it = |run: &Run| run.spec.plan.as_ref() == Some(&name);
    is_any_under_way(lookup, &namespace, &preview.spec.stack, names_it).await
}

/// Whether a run goes back to this release, or a step of a workflow is to.
///
/// # Errors
///
/// When runs or workflows cannot be read.
pub(super) async fn is_gone_back_to(lookup: &Lookup, release: &Release) -> Result<bool, ApiError> {
    let namespace = release.namespace().unwrap_or_default();
    let spec = &release.spec;
    let goes_back = |run: &Run| {
        let is_rollback = run.spec.planned() == Operation::Rollback;
        is_rollback && run.spec.workspace == spec.workspace && run.spec.release == Some(spec.revision)
    };
    if is_any_under_way(lookup, &namespace, &spec.stack, goes_back).await? {
        return Ok(true);
    }
    let named = (namespace.clone(), spec.stack.clone(), spec.revision);
    let workflows = workflows_under_way(lookup, Some(&namespace)).await?;
    Ok(workflows.iter().any(|workflow| gone_back_to(workflow).contains(&named)))
}

/// Whether there is such a run of a stack that has not ended.
async fn is_any_under_way(
    lookup: &Lookup,
    namespace: &str,
    stack: &str,
    is_it: impl Fn(&Run) -> bool,
) -> Result<bool, ApiError> {
    let options = ListOptions {
        label_selector: Some(format!("{}={stack}", labels::STACK)),
        field_selector: Some(UNDER_WAY.to_owned()),
        ..ListOptions::default()
    };
    let found = |run: Run| (!status(&run).phase.is_terminal() && is_it(&run)).then_some(());
    Ok(!lookup.api::<Run>()?.list_of(Some(namespace), &options, found).await?.is_empty())
}

/// The workflows that have not ended, of a namespace or of all.
///
/// # Errors
///
/// When they cannot be read.
pub(super) async fn workflows_under_way(lookup: &Lookup, namespace: Option<&str>) -> Result<Vec<Workflow>, ApiError> {
    let options = ListOptions { field_selector: Some(UNDER_WAY.to_owned()), ..ListOptions::default() };
    let is_under_way = |workflow: &Workflow| workflow.status.as_ref().is_none_or(|status| !status.phase.is_terminal());
    let found = |workflow: Workflow| is_under_way(&workflow).then_some(workflow);
    lookup.api::<Workflow>()?.list_of(namespace, &options, found).await
}

/// Namespace, stack and number of the releases that the steps of a workflow go back to. In which workspaces they do may be found
/// out when a step begins alone.
pub(super) fn gone_back_to(workflow: &Workflow) -> Vec<(String, String, i64)> {
    let spec = effective(workflow);
    let of_step = |step: &RunStep| {
        let stack = if step.stack.is_empty() { &spec.stack } else { &step.stack };
        Some((workflow.namespace().unwrap_or_default(), stack.clone(), step.release?))
    };
    spec.steps.iter().filter_map(|step| step.run.as_ref()).filter_map(of_step).collect()
}
