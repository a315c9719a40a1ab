//! Which commits a workflow deploys: found once, so that all of its steps deploy the same.

use std::{collections::HashMap, time::Duration};

use kube::ResourceExt as _;
use stoa_types::{
    Stack, Workflow,
    delivery::{PinnedVersion, RunStep},
    reason,
};

use crate::{
    kinds::workflow::{deploys, stack_of},
    runs::{Halt, Services, runner, target::Target},
};

/// How long a repository may take.
const LOOK: Duration = Duration::from_secs(30);

/// What a step deploys: nothing, where it deploys no version.
fn wanted(workflow: &Workflow, run: &RunStep, stack: &Stack) -> String {
    let version = run.version.as_ref().or(workflow.spec.version.as_ref());
    version.unwrap_or(&stack.spec.desired_version).clone()
}

/// The commit of a step's runs, which was found when the workflow began.
pub(super) fn of_step<'a>(workflow: &'a Workflow, pinned: &'a [PinnedVersion], run: &RunStep) -> Option<&'a str> {
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
pub(super) async fn find(services: &Services, workflow: &Workflow) -> Result<Vec<PinnedVersion>, Halt> {
    let namespace = workflow.namespace().unwrap_or_default();
    let runs = workflow.spec.steps.iter().filter_map(|step| step.run.as_ref()).filter(|run| deploys(run));
    let (named, desired): (Vec<&RunStep>, Vec<&RunStep>) =
        runs.partition(|run| run.version.is_some() || workflow.spec.version.is_some());
    let mut commits: HashMap<(String, String), String> = HashMap::new();
    let mut pinned: Vec<PinnedVersion> = Vec::new();
    for run in named.into_iter().chain(desired) {
        let name = stack_of(&workflow.spec, run);
        let stack = services.lookup.api::<Stack>()?.get_opt(&namespace, name).await?;
        let stack =
            stack.ok_or_else(|| Halt::failed(reason::REFERENCE_NOT_FOUND, format!("stack {name:?} does not exist")))?;
        let version = wanted(workflow, run, &stack);
        let (source, request) = Target::version_of(services, &namespace, &stack.spec.project, &version).await?;
        let commit = match commits.get(&(source.clone(), version.clone())) {
            Some(commit) => commit.clone(),
            None => resolve(services, request).await?,
        };
        commits.insert((source, version.clone()), commit.clone());
        let found = PinnedVersion { stack: name.to_owned(), version, commit };
        pinned.retain(|other| *other != found);
        pinned.push(found);
    }
    Ok(pinned)
}

/// Asks for the commit of a version.
pub(super) async fn resolve(services: &Services, request: stoa_proto::ResolveRequest) -> Result<String, Halt> {
    let response = tokio::time::timeout(LOOK, services.runner.resolve(request)).await;
    let response = response.map_err(|_| Halt::Retry(format!("the repository did not answer within {LOOK:?}")))?;
    Ok(response.map_err(|status| runner::halt(&status, reason::SOURCE_UNREACHABLE))?.into_inner().commit)
}
