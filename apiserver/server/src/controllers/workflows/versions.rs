//! Which commits a workflow deploys: found once, so that all of its steps deploy the same.

use futures_util::{StreamExt as _, TryStreamExt as _, future::BoxFuture, stream};
use kube::ResourceExt as _;
use stoa_controller::probes::NamespaceSlots;
use stoa_kinds::workflow::{deploys, previewing, stack_of};
use stoa_runs::{Services, StepError, runner, target::Target};
use stoa_types::{
    Stack, Workflow,
    delivery::{PinnedVersion, RunStep},
    reason,
};

/// How many are asked at once for one workflow.
const AT_ONCE: usize = 8;

/// What a step deploys: nothing, where it deploys no version.
fn wanted(workflow: &Workflow, run: &RunStep, stack: &Stack) -> String {
    let version = run.version.as_ref().or(workflow.spec.version.as_ref());
    version.unwrap_or(&stack.spec.desired_version).clone()
}

/// The commit of a step's runs, found when the workflow began; for plans, that of their Preview.
pub(super) fn of_step<'a>(workflow: &'a Workflow, pinned: &'a [PinnedVersion], run: &RunStep) -> Option<&'a str> {
    let run = previewing(&workflow.spec, run).unwrap_or(run);
    let stack = stack_of(&workflow.spec, run);
    let version = run.version.as_deref().or(workflow.spec.version.as_deref());
    let mut of_stack = pinned.iter().filter(|pinned| pinned.stack == stack);
    let found = match version {
        Some(version) => of_stack.find(|pinned| pinned.version == version),
        // What the stack desired then.
        None => of_stack.next_back(),
    };
    found.filter(|_| deploys(run)).map(|pinned| pinned.commit.as_str())
}

/// Finds the commits of everything that a workflow deploys. One version of one source is one commit, however many stacks
/// are made from it. Of each stack, what it desires by itself comes last.
///
/// # Errors
///
/// Failed when there is no such version or stack, and otherwise whatever keeps the source from being read.
pub(super) async fn find(
    services: &Services,
    turns: &NamespaceSlots,
    workflow: &Workflow,
) -> Result<Vec<PinnedVersion>, StepError> {
    let namespace = workflow.namespace().unwrap_or_default();
    let runs = workflow.spec.steps.iter().filter_map(|step| step.run.as_ref()).filter(|run| deploys(run));
    let (named, desired): (Vec<&RunStep>, Vec<&RunStep>) =
        runs.partition(|run| run.version.is_some() || workflow.spec.version.is_some());
    // The sources and versions that are asked for, and of which of these a stack is.
    let mut asked: Vec<(String, String)> = Vec::new();
    let mut looks: Vec<BoxFuture<'_, Result<String, StepError>>> = Vec::new();
    let mut stacks = Vec::new();
    for run in named.into_iter().chain(desired) {
        let name = stack_of(&workflow.spec, run);
        let stack = services.lookup.api::<Stack>()?.get_opt(&namespace, name).await?;
        let stack = stack
            .ok_or_else(|| StepError::failed(reason::REFERENCE_NOT_FOUND, format!("stack {name:?} does not exist")))?;
        let version = wanted(workflow, run, &stack);
        let (source, request) = Target::version_of(services, &namespace, &stack.spec.project, &version).await?;
        let of = (source, version.clone());
        let place = asked.iter().position(|other| *other == of).unwrap_or(asked.len());
        if place == asked.len() {
            asked.push(of);
            looks.push(Box::pin(resolve(services, turns, request)));
        }
        stacks.push((name.to_owned(), version, place));
    }
    let commits = all(looks).await?;
    let mut pinned: Vec<PinnedVersion> = Vec::new();
    for (stack, version, place) in stacks {
        let found = PinnedVersion { stack, version, commit: commits[place].clone() };
        pinned.retain(|other| *other != found);
        pinned.push(found);
    }
    Ok(pinned)
}

/// The commits of versions, several of which are asked for at once. The first that is not found is the end of it.
async fn all(looks: Vec<BoxFuture<'_, Result<String, StepError>>>) -> Result<Vec<String>, StepError> {
    stream::iter(looks).buffered(AT_ONCE).try_collect().await
}

pub(super) async fn resolve(
    services: &Services,
    turns: &NamespaceSlots,
    request: stoa_proto::ResolveRequest,
) -> Result<String, StepError> {
    let response = turns.ask_repository(services.runner.resolve(request)).await?;
    Ok(response.map_err(|status| runner::halt(&status, reason::SOURCE_UNREACHABLE))?.into_inner().commit)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn parallel_lookups_stop_after_first_timeout() {
        let look = |seconds: u64| -> BoxFuture<'static, Result<String, StepError>> {
            Box::pin(async move {
                sleep(Duration::from_secs(seconds)).await;
                if seconds < 30 {
                    Ok(seconds.to_string())
                } else {
                    Err(StepError::Retry("it does not answer".to_owned()))
                }
            })
        };
        let start = Instant::now();
        let found = all((0..16).map(look).collect()).await.unwrap();
        assert_eq!(found, (0..16).map(|i: u64| i.to_string()).collect::<Vec<_>>(), "in their order");
        assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
        let start = Instant::now();
        let late = all((0..100).map(|_| look(30)).collect()).await.unwrap_err();
        assert!(matches!(late, StepError::Retry(_)), "{late:?}");
        assert_eq!(start.elapsed().as_secs(), 30, "the others are asked no more");
    }
}
