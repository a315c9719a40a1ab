//! On whose behalf a trigger starts a run.

use std::cmp::Reverse;

use kube::ResourceExt as _;
use stoa_kinds::{
    changes,
    run_status::{queued_at, status},
    trigger::{CAUSED_BY, Deciders, is_triggered},
};
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{
    Run, Stack,
    config::{SeenChanges, Started},
    delivery::{Decision, Operation, RunPhase, RunStatus},
};

use crate::controllers::stacks;

/// The people behind what is to be started in a workspace: who decided about it since something was started there, and those
/// behind earlier runs which nobody else agreed to, and which brought nothing about. What these decided is in it, too, whoever
/// changed something since. With them comes up to which changes they are those who made them.
pub(super) async fn behind(
    services: &Services,
    stack: &Stack,
    workspace: &str,
) -> Result<(Vec<String>, SeenChanges), ApiError> {
    let deciders = Deciders::of(&services.lookup, stack).await?;
    let mut people = deciders.last.clone();
    people.extend(deciders.after(&seen_in(stack, workspace)));
    let mut runs = stacks::runs_of(services, stack).await?;
    runs.retain(|run| is_triggered(run) && run.spec.workspace == workspace && stacks::is_of(run, stack));
    runs.sort_by_key(|run| Reverse(queued_at(run)));
    let settled = runs.iter().position(|run| is_settled(run, &status(run))).unwrap_or(runs.len());
    for run in &runs[..settled] {
        people.extend(status(run).requester.extra.remove(CAUSED_BY).unwrap_or_default());
    }
    // Also of runs that somebody deleted.
    let is_over = |started: &Started| runs[settled..].iter().any(|run| run.name_any() == started.run);
    let noted = match started(stack).find(|started| started.workspace == workspace) {
        Some(own) if is_over(own) => Vec::new(),
        Some(own) => own.caused_by.clone(),
        // What comes to another workspace is what nobody agreed to elsewhere.
        None => started(stack).flat_map(|started| started.caused_by.clone()).collect(),
    };
    people.extend(noted);
    Ok((changes::kept(people), deciders.seen()))
}

/// Up to which changes those who made them were behind what was started in a workspace. One in which nothing was begins with
/// what was seen elsewhere, and the first of all with what there was when the trigger was set.
fn seen_in(stack: &Stack, workspace: &str) -> SeenChanges {
    let own = started(stack).find(|started| started.workspace == workspace).and_then(|started| started.seen.clone());
    own.or_else(|| started(stack).filter_map(|started| started.seen.clone()).reduce(latest)).unwrap_or_else(|| {
        let trigger = stack.status.as_ref().and_then(|status| status.trigger.as_ref());
        let since = trigger.and_then(|trigger| trigger.since.clone());
        SeenChanges { stack: None, project: since.clone(), source: since }
    })
}

fn latest(one: SeenChanges, other: SeenChanges) -> SeenChanges {
    SeenChanges {
        stack: one.stack.max(other.stack),
        project: one.project.max(other.project),
        source: one.source.max(other.source),
    }
}

fn started(stack: &Stack) -> impl Iterator<Item = &Started> {
    stack.status.iter().flat_map(|status| &status.trigger).flat_map(|trigger| &trigger.started)
}

/// Whether what a run was started for is deployed, or somebody else agreed to it.
pub(super) fn is_settled(run: &Run, now: &RunStatus) -> bool {
    let is_deployed = now.phase == RunPhase::Succeeded && run.spec.operation == Operation::Apply;
    is_deployed || now.approval.as_ref().is_some_and(|approval| approval.decision == Decision::Approved)
}
