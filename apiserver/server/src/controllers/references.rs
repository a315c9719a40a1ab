//! References from unfinished objects to objects that are about to be deleted.
//!
//! The check comes right before the deletion, for up to [`BATCH`] objects, and reads the log. It therefore
//! counts Runs that were admitted since the objects were listed. A later Run is rejected by its strategy, or
//! has a copy of the Preview's plan, or fails because its release or import is gone.

use std::collections::{BTreeSet, HashSet};

use kube::ResourceExt as _;
use stoa_controller::{object::ObjectKey, queue};
use stoa_kinds::{lookup::Lookup, run_status::status, workflow::effective};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_types::{
    Release, Run, Workflow,
    delivery::{Operation, RunStep},
};

/// So many objects at most are removed after it was asked once who needs them: each time all that has not ended is listed.
pub(super) const BATCH: usize = 50;

/// What has not ended, of runs and of workflows.
pub(super) const UNDER_WAY: &str = "status.phase!=Succeeded,status.phase!=Failed,status.phase!=Canceled";

/// The keys of those of these runs that others name as the Previews whose plans they carry out.
pub(super) async fn to_be_carried_out(lookup: &Lookup, runs: &[&Run]) -> Result<HashSet<ObjectKey>, ApiError> {
    let previews = runs.iter().filter(|run| run.spec.operation == Operation::Preview);
    let previews: HashSet<ObjectKey> = previews.map(|run| queue::key_of(*run)).collect();
    let namespaces: BTreeSet<&String> = previews.iter().map(|(namespace, _)| namespace).collect();
    let mut needed = HashSet::new();
    for namespace in namespaces {
        let named = |run: &Run| Some((namespace.clone(), run.spec.plan.clone()?));
        needed.extend(of_runs_under_way(lookup, namespace, named).await?);
    }
    needed.retain(|key| previews.contains(key));
    Ok(needed)
}

/// The keys of those of these releases that a run goes back to, or a step of a workflow is to.
pub(super) async fn to_be_gone_back_to(lookup: &Lookup, releases: &[&Release]) -> Result<HashSet<ObjectKey>, ApiError> {
    let keyed: Vec<(ObjectKey, &Release)> =
        releases.iter().map(|release| (queue::key_of(*release), *release)).collect();
    let namespaces: BTreeSet<&String> = keyed.iter().map(|((namespace, _), _)| namespace).collect();
    let mut needed = HashSet::new();
    for namespace in namespaces {
        let gone_back = |run: &Run| {
            let release = run.spec.release.filter(|_| run.spec.planned() == Operation::Rollback)?;
            Some((run.spec.stack.clone(), run.spec.workspace.clone(), release))
        };
        let by_runs: HashSet<_> = of_runs_under_way(lookup, namespace, gone_back).await?.into_iter().collect();
        let workflows = workflows_under_way(lookup, Some(namespace)).await?;
        let by_steps: HashSet<_> = workflows.iter().flat_map(gone_back_to).collect();
        let is_needed = |release: &Release| {
            let (stack, revision) = (release.spec.stack.clone(), release.spec.revision);
            by_runs.contains(&(stack.clone(), release.spec.workspace.clone(), revision))
                || by_steps.contains(&(namespace.clone(), stack, revision))
        };
        let of_namespace = keyed.iter().filter(|((of, _), release)| of == namespace && is_needed(release));
        needed.extend(of_namespace.map(|(key, _)| key.clone()));
    }
    Ok(needed)
}

/// What `of` finds in the runs of a namespace that have not ended.
async fn of_runs_under_way<T>(
    lookup: &Lookup,
    namespace: &str,
    of: impl Fn(&Run) -> Option<T>,
) -> Result<Vec<T>, ApiError> {
    let options = ListOptions { field_selector: Some(UNDER_WAY.to_owned()), ..ListOptions::default() };
    let found = |run: Run| if status(&run).phase.is_terminal() { None } else { of(&run) };
    lookup.api::<Run>()?.list_of(Some(namespace), &options, found).await
}

/// The workflows that have not ended, of a namespace or of all.
pub(super) async fn workflows_under_way(lookup: &Lookup, namespace: Option<&str>) -> Result<Vec<Workflow>, ApiError> {
    let options = ListOptions { field_selector: Some(UNDER_WAY.to_owned()), ..ListOptions::default() };
    let is_under_way = |workflow: &Workflow| workflow.status.as_ref().is_none_or(|status| !status.phase.is_terminal());
    let found = |workflow: Workflow| is_under_way(&workflow).then_some(workflow);
    lookup.api::<Workflow>()?.list_of(namespace, &options, found).await
}

/// Namespace, stack and number of the releases that the steps of a workflow roll back to.
pub(super) fn gone_back_to(workflow: &Workflow) -> Vec<(String, String, i64)> {
    let spec = effective(workflow);
    let of_step = |step: &RunStep| {
        let stack = if step.stack.is_empty() { &spec.stack } else { &step.stack };
        Some((workflow.namespace().unwrap_or_default(), stack.clone(), step.release?))
    };
    spec.steps.iter().filter_map(|step| step.run.as_ref()).filter_map(of_step).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_controller::testing::FaultyLog;
    use stoa_runs::testing::unreachable_runner;
    use stoa_types::delivery::RunPhase;

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn one_run_list_serves_all_previews() {
        let log = FaultyLog::new(0);
        let world = TestServer::over(log.clone(), unreachable_runner(), |builder| builder).await;
        let spec = json!({"stack": "web", "workspace": "dev", "operation": "Preview"});
        let mut previews = Vec::new();
        for number in 0..BATCH {
            let name = format!("preview-{number}");
            world.create("Run", &name, spec.clone()).await;
            let ended = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
            previews.push(world.registry.api::<Run>().update_status_with("shop", &name, ended).await.unwrap());
        }
        let apply = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": "preview-7"});
        world.create("Run", "apply", apply).await;
        let asked = async |previews: &[&Run]| {
            let before = log.heads();
            let needed = to_be_carried_out(&world.services.lookup, previews).await.unwrap();
            (needed, log.heads() - before)
        };
        let all: Vec<&Run> = previews.iter().collect();
        let (needed, lists) = asked(&all).await;
        assert_eq!(needed, HashSet::from([("shop".to_owned(), "preview-7".to_owned())]));
        // Others may ask where the log ends meanwhile.
        assert!(lists < BATCH / 2, "{lists}");
        assert_eq!(asked(&all[..7]).await.0, HashSet::new(), "it is none of these");
    }
}
