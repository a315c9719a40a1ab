//! The trigger `Workflow`: one Workflow per cause, which applies in one workspace after the other.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use serde::Deserialize;
use stoa_controller::{finalizers::update_same, index::Member, object::ObjectKey, queue};
use stoa_kinds::{source::short_revision, trigger};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_runs::Services;
use stoa_types::{
    Stack, Workflow,
    config::Started,
    delivery::{Operation, Requester, RunPhase, RunStep, Step, WorkflowPhase, WorkflowSpec},
    labels, reason,
};

use super::{
    people,
    start::{NAMES, create_or_find, name_of},
    started_in,
    trigger_status::{Triggered, note},
};

/// The workspace in the status of the Stack. It is empty, since a Workflow is for all workspaces.
pub(super) const ALL: &str = "";
/// As whom workflows are created.
const COMPONENT: &str = "trigger";
/// How long a workflow and its runs stay after its end.
const KEPT_SECONDS: i64 = 30 * 24 * 3600;
/// The most characters of a step's name.
const NAME: usize = 63;

/// The stack of a workflow.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct OfSpec {
    stack: String,
}

/// The phase of a workflow, and its requester.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct OfStatus {
    phase: WorkflowPhase,
    requester: Requester,
}

/// The stack whose trigger started a workflow that has ended.
pub(super) fn stack_of_ended(workflow: &Member<OfSpec, OfStatus>) -> Option<ObjectKey> {
    let status = workflow.status.as_ref()?;
    let is_own = status.requester.username == trigger::USER && status.phase.is_terminal();
    is_own.then(|| (workflow.namespace().to_owned(), workflow.spec.stack.clone()))
}

/// Starts the workflow of a cause, unless it was started. Returns the stack, and what there is to say of it.
pub(super) async fn follow(
    services: &Services,
    mut stack: Stack,
    commit: &str,
    cause: &str,
) -> Result<(Stack, Triggered), ApiError> {
    let is_started = started_in(&stack, ALL).is_some_and(|started| started.cause == cause);
    if !is_started {
        let started = match start(services, &stack, commit, cause).await {
            Ok(started) => started,
            Err(error) if queue::is_refusal(&error) => {
                return Ok((stack, (false, reason::NOT_STARTED, error.message().to_owned())));
            }
            Err(error) => return Err(error),
        };
        stack = note(services, &stack, started).await?;
    }
    stack = note_end(services, stack).await?;
    let told = summary(&stack);
    Ok((stack, told))
}

/// The steps: an Apply in each workspace, after the success of the one before.
fn steps(workspaces: &[String]) -> Vec<Step> {
    let mut names = BTreeSet::new();
    let mut steps: Vec<Step> = Vec::new();
    for (position, workspace) in workspaces.iter().enumerate() {
        let mut name: String = workspace.replace('.', "-").chars().take(NAME).collect();
        if !names.insert(name.clone()) {
            name = format!("step-{}", position + 1);
        }
        let run = RunStep {
            workspaces: vec![workspace.clone()],
            operation: Operation::Apply,
            stack: String::new(),
            plan_of: None,
            waves: Vec::new(),
            max_parallel: 1,
            max_failures: 0,
            version: None,
            release: None,
            parameters: Default::default(),
            require_approval: false,
            timeout: stoa_types::DurationString::hours::<1>(),
            health: None,
        };
        let depends_on = steps.last().map(|before| before.name.clone()).into_iter().collect();
        steps.push(Step { name, depends_on, run: Some(run), ..Step::default() });
    }
    steps
}

async fn start(services: &Services, stack: &Stack, commit: &str, cause: &str) -> Result<Started, ApiError> {
    let mut number = started_in(stack, ALL).map_or(0, |started| started.number);
    let last = number + NAMES;
    let (caused_by, seen) = people::behind(services, stack, ALL).await?;
    let context = trigger::on_behalf_of(COMPONENT, caused_by.clone());
    let workflows = services.lookup.api::<Workflow>()?.with_context(context);
    let namespace = stack.namespace().unwrap_or_default();
    let spec = WorkflowSpec {
        description: Some(format!("Commit {} of stack {}", short_revision(commit), stack.name_any())),
        owners: Vec::new(),
        stack: stack.name_any(),
        version: Some(commit.to_owned()),
        steps: steps(&stack.spec.workspaces),
        template: None,
        hooks: None,
        paused: false,
        cancel: false,
        timeout: None,
        ttl_seconds_after_finished: Some(KEPT_SECONDS),
    };
    loop {
        number += 1;
        let name = name_of(stack, ALL, cause, number);
        let mut workflow = Workflow::new(&name, spec.clone());
        workflow.metadata.namespace = Some(namespace.clone());
        workflow.labels_mut().insert(labels::STACK.to_owned(), stack.name_any());
        let message = format!("workflow {name}: Apply of commit {}", short_revision(commit));
        if let Some(taken) = create_or_find(services, stack, (&workflows, &workflow), message, is_triggered).await? {
            if number < last {
                continue;
            }
            return Err(taken);
        }
        supersede(services, stack, &name).await?;
        return Ok(Started {
            workspace: ALL.to_owned(),
            number,
            cause: cause.to_owned(),
            commit: commit.to_owned(),
            run: name,
            caused_by,
            seen: Some(seen),
            ..Started::default()
        });
    }
}

fn is_triggered(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.requester.username == trigger::USER)
}

/// Cancels earlier workflows of the trigger that have not ended.
async fn supersede(services: &Services, stack: &Stack, by: &str) -> Result<(), ApiError> {
    let workflows = services.lookup.api::<Workflow>()?;
    let of_stack = format!("spec.stack={}", stack.name_any());
    let options = ListOptions { field_selector: Some(of_stack), ..ListOptions::default() };
    let namespace = stack.namespace().unwrap_or_default();
    for workflow in workflows.list_with(Some(&namespace), &options).await? {
        let has_ended = workflow.status.as_ref().is_some_and(|status| status.phase.is_terminal());
        if workflow.name_any() == by || has_ended || workflow.spec.cancel || !is_triggered(&workflow) {
            continue;
        }
        let cancel = |workflow: &mut Workflow| {
            workflow.annotations_mut().insert(labels::SUPERSEDED_BY.to_owned(), by.to_owned());
            workflow.spec.cancel = true;
        };
        queue::unless_gone(update_same(&workflows, &workflow, cancel).await)?;
    }
    Ok(())
}

/// Records the end of the workflow, which may be deleted.
async fn note_end(services: &Services, stack: Stack) -> Result<Stack, ApiError> {
    let Some(started) = started_in(&stack, ALL).filter(|started| started.phase.is_none()).cloned() else {
        return Ok(stack);
    };
    let namespace = stack.namespace().unwrap_or_default();
    let workflow = services.lookup.api::<Workflow>()?.get_opt(&namespace, &started.run).await?;
    let phase = match workflow.map(|workflow| workflow.status.unwrap_or_default().phase) {
        Some(WorkflowPhase::Succeeded) => RunPhase::Succeeded,
        Some(WorkflowPhase::Failed) => RunPhase::Failed,
        // Somebody deleted it before it ended.
        None | Some(WorkflowPhase::Canceled) => RunPhase::Canceled,
        Some(
            WorkflowPhase::Pending | WorkflowPhase::Running | WorkflowPhase::AwaitingApproval | WorkflowPhase::Paused,
        ) => return Ok(stack),
    };
    let mut ended = Started { phase: Some(phase), ..started };
    if phase == RunPhase::Succeeded {
        ended.caused_by.clear();
    }
    note(services, &stack, ended).await
}

fn summary(stack: &Stack) -> Triggered {
    let Some(Started { run, commit, phase, .. }) = started_in(stack, ALL) else {
        return (true, reason::STARTED, String::new());
    };
    let commit = short_revision(commit);
    match phase {
        Some(RunPhase::Failed | RunPhase::Canceled) => {
            let message = format!(
                "workflow {run} for commit {commit} did not succeed; no other workflow starts until the source or the stack changes"
            );
            (false, reason::RUN_FAILED, message)
        }
        _ => (true, reason::STARTED, format!("workflow {run} was started for commit {commit}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workspace_waits_for_the_one_before() {
        let steps = steps(&["eu.west".to_owned(), "eu-west".to_owned(), "us".to_owned()]);
        let shown: Vec<_> = steps.iter().map(|step| (&*step.name, step.depends_on.join(","))).collect();
        assert_eq!(shown, [("eu-west", String::new()), ("step-2", "eu-west".to_owned()), ("us", "step-2".to_owned())]);
        assert_eq!(steps[2].run.as_ref().unwrap().workspaces, ["us"]);
    }
}
