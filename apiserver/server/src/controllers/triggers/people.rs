//! On whose behalf a trigger starts a run.

use std::cmp::Reverse;

use stoa_machinery::ApiError;
use stoa_types::{
    Run, Stack,
    delivery::{Decision, Operation, RunPhase},
};

use super::is_triggered;
use crate::{
    controllers::stacks,
    kinds::trigger::{self, CAUSED_BY},
    runs::{Services, queued_at, status},
};

/// The people behind what is to be started in a workspace: who last decided about it, and those behind earlier runs which
/// nobody else agreed to, and which brought nothing about. What these decided is in it, too, whoever changed something since.
///
/// # Errors
///
/// When they cannot be read.
pub(super) async fn behind(services: &Services, stack: &Stack, workspace: &str) -> Result<Vec<String>, ApiError> {
    let mut people = trigger::set_by(&services.lookup, stack).await?;
    let mut runs = stacks::runs_of(services, stack).await?;
    let is_of_stack = |run: &Run| status(run).stack_uid.is_none_or(|uid| Some(&uid) == stack.metadata.uid.as_ref());
    runs.retain(|run| is_triggered(run) && run.spec.workspace == workspace && is_of_stack(run));
    runs.sort_by_key(|run| Reverse(queued_at(run)));
    for run in runs.iter().take_while(|run| !is_settled(run)) {
        people.extend(status(run).requester.extra.remove(CAUSED_BY).unwrap_or_default());
    }
    Ok(people)
}

/// Whether what a run was started for is deployed, or somebody else agreed to it.
fn is_settled(run: &Run) -> bool {
    let now = status(run);
    let is_deployed = now.phase == RunPhase::Succeeded && run.spec.operation == Operation::Apply;
    is_deployed || now.approval.is_some_and(|approval| approval.decision == Decision::Approved)
}
