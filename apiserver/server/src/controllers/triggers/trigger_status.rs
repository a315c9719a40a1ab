//! The trigger in the status of a Stack: what was started for which cause, how it ended, and the condition `Triggered`.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{conditions::set_condition, finalizers::update_status_of_same, queue};
use stoa_kinds::{run_status::status, source::short_revision};
use stoa_machinery::{ApiError, registry::Api};
use stoa_runs::Services;
use stoa_types::{
    Run, Stack,
    common::condition,
    config::{Started, TriggerStatus},
    delivery::{RunPhase, RunStatus},
    reason,
};

use super::{
    is_following, people,
    retries::{retry_time, was_mended},
    workflows,
};

pub(super) type Triggered = (bool, &'static str, String);

/// Keeps what was started: for this cause no other run is.
pub(super) async fn note(services: &Services, stack: &Stack, started: Started) -> Result<Stack, ApiError> {
    change(&services.lookup.api::<Stack>()?, stack, |trigger| {
        trigger.started.retain(|of| of.workspace != started.workspace);
        trigger.started.push(started.clone());
        trigger.started.sort_by(|a, b| a.workspace.cmp(&b.workspace));
    })
    .await
}

/// Keeps how runs ended, since they may be deleted.
pub(super) async fn note_ends(services: &Services, stack: Stack) -> Result<Stack, ApiError> {
    let runs = services.lookup.api::<Run>()?;
    let namespace = stack.namespace().unwrap_or_default();
    let mut ended = HashMap::new();
    let started = stack.status.iter().flat_map(|status| &status.trigger).flat_map(|trigger| &trigger.started);
    let is_run = |started: &&Started| started.workspace != workflows::ALL && !started.run.is_empty();
    for started in started.filter(is_run).filter(|started| started.phase.is_none()) {
        let end = match runs.get_opt(&namespace, &started.run).await? {
            Some(run) => {
                let end = status(&run);
                let is_settled = people::is_settled(&run, &end);
                Some((end, is_settled)).filter(|(end, _)| end.phase.is_terminal())
            }
            // Somebody deleted it before it ended.
            None => Some((RunStatus { phase: RunPhase::Canceled, ..RunStatus::default() }, false)),
        };
        let noted = end.map(|(end, is_settled)| (end.phase, retry_time(&end, started.retries), is_settled));
        ended.extend(noted.map(|noted| (started.run.clone(), noted)));
    }
    if ended.is_empty() {
        return Ok(stack);
    }
    change(&services.lookup.api::<Stack>()?, &stack, |trigger| {
        for started in &mut trigger.started {
            if let (None, Some((phase, retry_time, is_settled))) = (started.phase, ended.get(&started.run)) {
                (started.phase, started.retry_time) = (Some(*phase), retry_time.clone());
                if *is_settled {
                    started.caused_by.clear();
                }
            }
        }
    })
    .await
}

/// Drops the causes: whoever sets the trigger again has it started again.
pub(super) async fn forget(stacks: &Api<Stack>, stack: &Stack) -> Result<(), ApiError> {
    let status = stack.status.as_ref();
    let has_causes = status.and_then(|s| s.trigger.as_ref()).is_some_and(|trigger| {
        !trigger.set_by.is_empty() || trigger.started.iter().any(|started| !started.cause.is_empty())
    });
    let is_told = status.is_some_and(|status| condition(&status.conditions, reason::TRIGGERED).is_some());
    if !has_causes && !is_told {
        return Ok(());
    }
    let forget = |stack: &mut Stack| {
        if is_following(stack) {
            return;
        }
        let status = stack.status.get_or_insert_default();
        status.conditions.retain(|condition| condition.type_ != reason::TRIGGERED);
        if let Some(trigger) = &mut status.trigger {
            trigger.set_by.clear();
            trigger.started.iter_mut().for_each(|started| started.cause.clear());
        }
    };
    queue::unless_gone(update_status_of_same(stacks, stack, forget).await).map(drop)
}

/// Forgets for what runs were started in workspaces that the stack has left: should it come back, one is started again.
pub(super) async fn forget_left(stacks: &Api<Stack>, stack: Stack) -> Result<Stack, ApiError> {
    let is_of_one = |started: &Started| started.workspace != workflows::ALL;
    let has_left = |started: &Started| {
        is_of_one(started) && !started.cause.is_empty() && !stack.spec.workspaces.contains(&started.workspace)
    };
    let mut started = stack.status.iter().flat_map(|status| &status.trigger).flat_map(|trigger| &trigger.started);
    if !started.any(has_left) {
        return Ok(stack);
    }
    // Its number stays, since the names of runs are made of it.
    let forget = |trigger: &mut TriggerStatus| {
        trigger.started.iter_mut().filter(|started| has_left(started)).for_each(|started| started.cause.clear());
    };
    change(stacks, &stack, forget).await
}

async fn change(
    stacks: &Api<Stack>,
    stack: &Stack,
    mut change: impl FnMut(&mut TriggerStatus) + Send,
) -> Result<Stack, ApiError> {
    let change = |stack: &mut Stack| change(stack.status.get_or_insert_default().trigger.get_or_insert_default());
    update_status_of_same(stacks, stack, change).await
}

pub(super) async fn tell(
    stacks: &Api<Stack>,
    stack: &Stack,
    (is_started, why, message): Triggered,
) -> Result<(), ApiError> {
    let generation = stack.metadata.generation;
    let mut conditions = stack.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    if !set_condition(&mut conditions, reason::TRIGGERED, is_started, why, message.clone(), generation) {
        return Ok(());
    }
    let tell = |stack: &mut Stack| {
        let conditions = &mut stack.status.get_or_insert_default().conditions;
        set_condition(conditions, reason::TRIGGERED, is_started, why, message.clone(), generation);
    };
    queue::unless_gone(update_status_of_same(stacks, stack, tell).await).map(drop)
}

/// What there is to say once everything was started.
pub(super) fn summary(stack: &Stack) -> Triggered {
    let status = stack.status.clone().unwrap_or_default();
    let of_stack = |started: &&Started| stack.spec.workspaces.contains(&started.workspace);
    let started: Vec<Started> = status.trigger.unwrap_or_default().started;
    let started: Vec<&Started> = started.iter().filter(of_stack).collect();
    let is_failed = |started: &&&Started| {
        matches!(started.phase, Some(RunPhase::Failed | RunPhase::Canceled)) && !was_mended(stack, started)
    };
    if let Some(failed) = started.iter().find(is_failed) {
        let Started { run, commit, workspace, retry_time, .. } = failed;
        let then = match retry_time {
            Some(Time(at)) => format!("another run starts once the source is readable, at {at} at the earliest"),
            None => "no other run starts until the source or the stack changes".to_owned(),
        };
        let message =
            format!("run {run} for commit {} in workspace {workspace} did not succeed; {then}", short_revision(commit));
        return (false, reason::RUN_FAILED, message);
    }
    let told = started.iter().map(|started| {
        format!(
            "run {} was started for commit {} in workspace {}",
            started.run,
            short_revision(&started.commit),
            started.workspace
        )
    });
    (true, reason::STARTED, told.collect::<Vec<_>>().join("; "))
}
