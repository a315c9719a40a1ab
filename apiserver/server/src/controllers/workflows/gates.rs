//! Whether what a wave deployed is healthy, and for how long it has been.
//!
//! That is looked at from here again and again, since what happens in a cluster is in no log of ours. What was seen is in
//! memory alone: after a restart the time begins anew, because nobody looked in between.

use std::{collections::HashMap, time::Duration};

use futures_util::{
    StreamExt as _,
    future::{BoxFuture, try_join_all},
    stream,
};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_machinery::ApiError;
use stoa_types::{
    Stack, Workflow,
    delivery::{HealthGate, RunStatus, RunStep, StepPhase, WorkflowStatus},
    reason,
};
use tokio::time::Instant;

use super::machine::Gate;
use crate::{
    kinds::workflow::{run_of, stack_of},
    runs::{Halt, Services, runner, state::State, target::Target},
};

/// How many workspaces are looked at at once.
const AT_ONCE: usize = 16;
/// How long a look at one may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a look at all of a wave may take: the workflow sees nothing else meanwhile, such as that it is cancelled.
const WHOLE: Duration = Duration::from_secs(60);
/// The shortest and the longest time between two looks.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(15);

/// How often it is looked.
pub(super) fn every(gate: &HealthGate) -> Duration {
    (gate.healthy_for.parse().unwrap_or_default() / 5).clamp(*EVERY.start(), *EVERY.end())
}

/// A wave: the workflow's uid, the step, and the wave's number.
type Of = (String, String, i64);

/// What was seen of one wave.
#[derive(Debug)]
struct Watched {
    /// Since when every look found it healthy.
    since: Option<Instant>,
    last: Instant,
    message: String,
}

/// What was seen of waves that have to be healthy before it goes on.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<Of, Watched>>);

impl Gates {
    /// Looks at all waves of a workflow whose runs have ended, if it is time to; by step.
    ///
    /// # Errors
    ///
    /// When objects cannot be read.
    pub(super) async fn look(
        &self,
        services: &Services,
        workflow: &Workflow,
        state: &WorkflowStatus,
        waves: &HashMap<String, Vec<Vec<String>>>,
    ) -> Result<HashMap<String, Gate>, ApiError> {
        let mut waiting = Vec::new();
        let mut looks: Vec<BoxFuture<'_, Result<(), ApiError>>> = Vec::new();
        for step in &workflow.spec.steps {
            let Some((run, gate)) = step.run.as_ref().and_then(|run| Some((run, run.health.as_ref()?))) else {
                continue;
            };
            let of_step = state.steps.iter().find(|of| of.name == step.name);
            let is_due = |of: &&stoa_types::delivery::StepStatus| {
                of.phase == StepPhase::Running && of.wave_time.is_some() && of.wave_healthy_time.is_none()
            };
            let Some(wave) = of_step.filter(is_due).and_then(|of| of.wave) else { continue };
            let names = usize::try_from(wave - 1).ok().and_then(|i| waves.get(&step.name)?.get(i));
            let of = (workflow.uid().unwrap_or_default(), step.name.clone(), wave);
            if !self.is_fresh(&of, every(gate)) {
                let look = look_at(services, workflow, state, run, names.map_or(&[], Vec::as_slice));
                let of = of.clone();
                looks.push(Box::pin(async move {
                    self.note(of, look.await?);
                    Ok(())
                }));
            }
            waiting.push(of);
        }
        try_join_all(looks).await?;
        Ok(waiting.into_iter().filter_map(|of| Some((of.1.clone(), self.seen(&of)?))).collect())
    }

    fn is_fresh(&self, of: &Of, every: Duration) -> bool {
        self.0.lock().get(of).is_some_and(|seen| seen.last.elapsed() < every)
    }

    fn note(&self, of: Of, unhealthy: Option<String>) {
        let now = Instant::now();
        let mut all = self.0.lock();
        let seen = all.entry(of).or_insert(Watched { since: None, last: now, message: String::new() });
        seen.last = now;
        match unhealthy {
            Some(message) => (seen.since, seen.message) = (None, message),
            None => {
                seen.since.get_or_insert(now);
                seen.message.clear();
            }
        }
    }

    /// As far as it was looked at: time after the last look does not count.
    fn seen(&self, of: &Of) -> Option<Gate> {
        let all = self.0.lock();
        let seen = all.get(of)?;
        Some(match seen.since {
            Some(since) => Gate::Healthy(seen.last.duration_since(since)),
            None => Gate::Unhealthy(seen.message.clone()),
        })
    }

    /// Forgets what belongs to a workflow.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(of, ..), _| of != uid);
    }
}

/// Looks at some workspaces; what is wrong with more of them than may fail.
async fn look_at(
    services: &Services,
    workflow: &Workflow,
    state: &WorkflowStatus,
    run: &RunStep,
    names: &[String],
) -> Result<Option<String>, ApiError> {
    let namespace = workflow.namespace().unwrap_or_default();
    let name = stack_of(&workflow.spec, run);
    let Some(stack) = services.lookup.api::<Stack>()?.get_opt(&namespace, name).await? else {
        return Ok(Some(format!("stack {name:?} does not exist")));
    };
    let looks: Vec<Look<'_>> = names
        .iter()
        .map(|workspace| -> Look<'_> {
            let look = Box::pin(look_in(services, workflow, state, run, stack.clone(), workspace));
            (workspace, look)
        })
        .collect();
    let unhealthy = within(WHOLE, looks).await;
    let tolerated = usize::try_from(run.max_failures).unwrap_or(0);
    Ok(unhealthy.first().filter(|_| unhealthy.len() > tolerated).map(|first| match unhealthy.len() - 1 {
        0 => first.clone(),
        more => format!("{first}; and {more} more workspaces"),
    }))
}

/// A workspace, and a look at it.
type Look<'a> = (&'a str, BoxFuture<'a, Result<Option<String>, Halt>>);

/// What is wrong with workspaces, several of which are looked at at once, for so long in all: of the others nothing is heard.
async fn within(limit: Duration, looks: Vec<Look<'_>>) -> Vec<String> {
    let end = Instant::now() + limit;
    let mut heard: Vec<BoxFuture<'_, Option<String>>> = Vec::new();
    for (workspace, look) in looks {
        heard.push(Box::pin(async move {
            let found = match tokio::time::timeout_at(end.min(Instant::now() + PATIENCE), look).await {
                Ok(Ok(unhealthy)) => unhealthy,
                Ok(Err(Halt::Failed { message, .. })) => Some(message),
                Ok(Err(Halt::Retry(message) | Halt::SourceUnreachable(message) | Halt::Abandoned(message))) => {
                    Some(message)
                }
                Ok(Err(Halt::Canceled | Halt::AwaitingApproval)) => None,
                Err(_) => Some("nothing was heard in time".to_owned()),
            };
            found.map(|message| format!("workspace {workspace}: {message}"))
        }));
    }
    stream::iter(heard).buffered(AT_ONCE).filter_map(std::future::ready).collect().await
}

/// Looks at what is deployed in a workspace; what is wrong with it.
async fn look_in(
    services: &Services,
    workflow: &Workflow,
    state: &WorkflowStatus,
    run: &RunStep,
    stack: Stack,
    workspace: &str,
) -> Result<Option<String>, Halt> {
    let mut of = run_of(workflow, run, workspace, None);
    of.metadata.name = Some(workflow.name_any());
    of.status = Some(RunStatus { requester: state.requester.clone(), ..RunStatus::default() });
    let uid = stack.uid().unwrap_or_default();
    let target = Target::of_stack(services, stack, workspace).await?;
    // The credentials of the workspace are used for whoever asked for the workflow.
    target.check_permissions(services, &of).await?;
    let recorded = State::load(&*services.log, &uid, workspace, None).await?;
    let recorded = recorded.with_bodies(target.documents.clone(), target.scope()).await?;
    let request =
        stoa_proto::HealthRequest { target: Some(target.proto(services, &of).await?), state: recorded.for_runner() };
    let response = services.runner.health(request).await;
    let response = response.map_err(|status| runner::halt(&status, reason::UNREACHABLE))?.into_inner();
    Ok(response.examples.first().map(|first| match response.unhealthy.saturating_sub(1) {
        0 => format!("{}: {}", first.id, first.message),
        more => format!("{}: {}; and {more} more resources", first.id, first.message),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_ends_in_time_however_many_clusters_do_not_answer() {
        let look = |i: usize| -> Look<'_> {
            let (name, is_away) = if i < 16 { ("near", false) } else { ("far", true) };
            let wait = async move {
                if is_away {
                    std::future::pending::<()>().await;
                }
                Ok(None)
            };
            (name, Box::pin(wait))
        };
        let start = Instant::now();
        let unhealthy = within(WHOLE, (0..400).map(look).collect()).await;
        assert_eq!(start.elapsed().as_secs(), WHOLE.as_secs());
        assert_eq!(unhealthy, vec!["workspace far: nothing was heard in time"; 384]);
    }
}
