//! Triggers: starts the runs of stacks that follow their desired version.
//!
//! A run is started for a *cause*: what the stack is rendered from (its folder in the source, by content) and how (its
//! spec). The stack's status keeps the last cause of each workspace, and the name of a run follows from what the status
//! says before it is created. So whoever goes on after a crash between the two creates the same run again, and finds it.
//! What the folder is comes from [`contents`], and on whose behalf a run is started from [`people`]. [`start`](mod@start) creates
//! runs, and [`workflows`] one Workflow for all workspaces; [`retries`] says when one that failed is followed by another, and [`trigger_status`] keeps it all in the stack's status.

mod contents;
mod people;
mod retries;
mod start;
mod trigger_status;
mod workflows;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stoa_controller::{
    index::{Index, Member, Moved},
    object::ObjectKey,
    probes::{AGAIN, Requeue},
    queue::{self, FirstError, Trigger},
};
use stoa_engine::digest::{canonical_json, hex};
use stoa_kinds::{
    readiness,
    run_status::{awaits_approval, queued_at, status},
    run_view::OfRunStatus,
    trigger::{self, is_triggered},
};
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{
    Project, Run, Source, Stack, Workflow,
    config::{self, StackSpec, StackStatus, Started},
    delivery::{Operation, RunSpec},
    reason,
};
use tokio_util::sync::CancellationToken;

use self::{
    contents::{Memory, content},
    retries::{is_readable, time_to_retry},
    start::{name_of, start},
    trigger_status::{Triggered, forget, forget_left, note, note_ends, summary, tell},
};
use super::stacks;

/// How many stacks are looked at at once.
const AT_ONCE: usize = 8;

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let (requeue, poked) = Requeue::triggering();
    let memory = Arc::new(Memory::new(requeue));
    let by_project = Index::default();
    let changed = by_project.follow(&registry.api::<Stack>(), |s: &Member<StackSpec, StackStatus>| {
        let has_started = s.status.as_ref().is_some_and(|status| status.trigger.is_some());
        let is_following = has_started || trigger::operation(s.spec.trigger).is_some();
        is_following.then(|| (s.namespace().to_owned(), s.spec.project.clone())).into_iter().collect()
    });
    let (following, of_source, of_project) = (by_project.clone(), by_project.clone(), by_project);
    let of_followers = move |moved: Moved<ObjectKey>| {
        let has_left = !moved.groups.is_empty();
        moved.objects.iter().filter(|stack| has_left || following.has(stack)).map(queue::key_at).collect()
    };
    let triggers = vec![
        poked,
        Trigger::new(changed.map(of_followers).boxed()),
        // The status of a stack may have the commit seconds later.
        stacks::of_moved_sources(&services.lookup, &registry.api::<Source>(), move |project| {
            of_source.members(&project)
        }),
        Trigger::on_part(&registry.api::<Run>(), |run: &Member<RunSpec, OfRunStatus>| {
            let has_ended =
                |status: &OfRunStatus| status.requester.username == trigger::USER && status.phase.is_terminal();
            let is_own = run.status.as_ref().is_some_and(has_ended);
            is_own.then(|| (run.namespace().to_owned(), run.spec.stack.clone())).into_iter().collect()
        }),
        Trigger::on_change(&registry.api::<Workflow>(), |workflow: &Member<workflows::OfSpec, workflows::OfStatus>| {
            workflows::stack_of_ended(workflow).into_iter().collect()
        }),
        // A project's status counts its stacks, most of which follow nothing.
        Trigger::on_change(&registry.api::<Project>(), move |p: &Member<Value, IgnoredAny>| {
            of_project.members(&p.key())
        }),
    ];
    let look = |key| look(services.clone(), memory.clone(), key);
    queue::drive_some(services.queues.of("triggers"), AT_ONCE, triggers, end, look).await;
}

fn is_following(stack: &Stack) -> bool {
    trigger::operation(stack.spec.trigger).is_some()
}

async fn look(services: Services, memory: Arc<Memory>, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let stacks = services.lookup.api::<Stack>()?;
    let found = stacks.get_opt(&key.0, &key.1).await?.filter(|stack| stack.metadata.deletion_timestamp.is_none());
    let Some(stack) = found.as_ref().filter(|stack| is_following(stack)) else {
        memory.forget(&key);
        return match found {
            Some(stack) => forget(&stacks, &stack).await.map(|()| None),
            None => Ok(None),
        };
    };
    let operation = trigger::operation(stack.spec.trigger).unwrap_or(Operation::Preview);
    let (followed, again) = Box::pin(follow(&services, &memory, stack.clone(), operation)).await?;
    if let Some((stack, told)) = followed {
        tell(&stacks, &stack, told).await?;
    }
    Ok(again)
}

/// What is to be said of a stack, as it is then, if anything is by now; and when to look again.
type Followed = (Option<(Stack, Triggered)>, Option<Duration>);

/// Starts what is to be started.
async fn follow(
    services: &Services,
    memory: &Memory,
    mut stack: Stack,
    operation: Operation,
) -> Result<Followed, ApiError> {
    // Writes below return the stack with later decisions; operation and cause are of this one.
    let read = stack.clone();
    stack = forget_left(&services.lookup.api::<Stack>()?, stack).await?;
    if stack.spec.workspaces.is_empty() {
        let message = "the stack lists no workspace, so no run is started".to_owned();
        return Ok((Some((stack, (false, reason::NO_WORKSPACES, message))), None));
    }
    let Some(commit) = readiness::head(&services.lookup, &stack) else {
        let message = format!("the commit of version {:?} is not known", stack.spec.desired_version);
        return Ok((Some((stack, (false, reason::VERSION_NOT_FOUND, message))), None));
    };
    // Whoever answers has it looked at.
    let Some(content) = content(services, memory, &stack, &commit).await else { return Ok((None, Some(AGAIN))) };
    let content = match content {
        Ok(content) => content,
        Err(halt) => {
            let (reason, message) = halt.into_reason(reason::NOT_STARTED);
            return Ok((Some((stack, (false, reason, message))), Some(AGAIN)));
        }
    };
    let cause = cause_of(&stack, operation, &content);
    if stack.spec.trigger == config::Trigger::Workflow {
        if !is_as_read(services, &read).await? {
            return Ok((None, Some(Duration::ZERO)));
        }
        let (stack, told) = Box::pin(workflows::follow(services, stack, &commit, &cause)).await?;
        let again = (told.1 == reason::NOT_STARTED).then_some(AGAIN);
        return Ok((Some((stack, told)), again));
    }
    let key = queue::key_of(&stack);
    let is_noted = memory.noted.lock().contains(&key);
    let unnoted = if is_noted { BTreeSet::new() } else { unnoted_in(services, &stack, &cause).await? };
    let (mut refused, mut failed) = (None, FirstError::default());
    for workspace in stack.spec.workspaces.clone() {
        let before = started_in(&stack, &workspace).filter(|it| it.cause == cause && !unnoted.contains(&workspace));
        let retries = match before.map(|started| (started, time_to_retry(services, &stack, started))) {
            None => 0,
            Some((started, Some(left))) if left.is_zero() && is_readable(services, &stack) => started.retries + 1,
            Some(_) => continue,
        };
        // Somebody may have decided otherwise meanwhile.
        if !is_as_read(services, &read).await? {
            return Ok((None, Some(Duration::ZERO)));
        }
        memory.noted.lock().remove(&key);
        match start(services, &stack, &workspace, operation, &commit, &cause).await {
            Ok(started) => stack = note(services, &stack, Started { retries, ..started }).await?,
            // Others do not wait for it.
            Err(error) if queue::is_refusal(&error) => {
                refused = Some(format!("workspace {workspace}: {}", error.message()));
            }
            Err(error) => drop(failed.note::<()>(Err(error))),
        }
    }
    failed.told()?;
    if refused.is_none() {
        memory.noted.lock().insert(key);
    }
    stack = note_ends(services, stack).await?;
    let waits = stack.spec.workspaces.iter().filter_map(|workspace| {
        let started = started_in(&stack, workspace).filter(|started| started.cause == cause)?;
        // One whose time has come waits for its source.
        time_to_retry(services, &stack, started).map(|left| if left.is_zero() { AGAIN } else { left })
    });
    let again = waits.chain(refused.is_some().then_some(AGAIN)).min();
    let told = match refused {
        Some(message) => (false, reason::NOT_STARTED, message),
        None => summary(&stack),
    };
    Ok((Some((stack, told)), again))
}

/// Whether a stack still wants what it did when it was read.
async fn is_as_read(services: &Services, stack: &Stack) -> Result<bool, ApiError> {
    let (namespace, name) = queue::key_of(stack);
    let now = services.lookup.api::<Stack>()?.get_opt(&namespace, &name).await?;
    Ok(now.is_some_and(|now| {
        now.metadata.uid == stack.metadata.uid && now.spec == stack.spec && now.metadata.deletion_timestamp.is_none()
    }))
}

fn cause_of(stack: &Stack, operation: Operation, content: &str) -> String {
    let spec = &stack.spec;
    let cause = json!({
        "operation": operation, "content": content, "desiredVersion": spec.desired_version, "path": spec.path,
        "stackName": spec.stack_name, "generator": spec.generator,
    });
    hex(&Sha256::digest(canonical_json(&cause)))
}

fn started_in<'a>(stack: &'a Stack, workspace: &str) -> Option<&'a Started> {
    let trigger = stack.status.as_ref()?.trigger.as_ref()?;
    trigger.started.iter().find(|started| started.workspace == workspace)
}

/// The workspaces with a started run that a crash kept from being noted.
async fn unnoted_in(services: &Services, stack: &Stack, cause: &str) -> Result<BTreeSet<String>, ApiError> {
    let runs = stacks::runs_of(services, stack).await?;
    let is_unnoted = |run: &&Run| {
        let (workspace, name) = (&run.spec.workspace, run.name_any());
        let Some(noted) = started_in(stack, workspace).filter(|noted| noted.cause == cause) else { return false };
        if !is_triggered(run) || name == noted.run || name == name_of(stack, workspace, cause, noted.number + 1) {
            return false;
        }
        match runs.iter().find(|it| it.name_any() == noted.run) {
            Some(noted) => queued_at(run) > queued_at(noted),
            // Somebody deleted it. Earlier ones have begun, or were to be cancelled.
            None => is_waiting(run) && !run.spec.cancel,
        }
    };
    Ok(runs.iter().filter(is_unnoted).map(|run| run.spec.workspace.clone()).collect())
}

/// Whether a run has not begun, or not begun to change anything.
fn is_waiting(run: &Run) -> bool {
    awaits_approval(run) || (!status(run).phase.is_terminal() && status(run).start_time.is_none())
}

#[cfg(test)]
pub(crate) mod tests;
