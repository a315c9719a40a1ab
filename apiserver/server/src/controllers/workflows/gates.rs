//! Whether what a wave deployed is healthy, and for how long it has been.
//!
//! That is looked at from here again and again, since what happens in a cluster is in no log of ours. A look at many clusters may
//! take long, and the workflow sees everything else meanwhile. The status notes now and then for how
//! long it was healthy: after a restart the time goes on from there, and that in which nobody looked does not count. Nor does
//! that in which no function-runner had time to look.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::{
    probes::{NamespaceSlots, ProbeCache, ProbeSlots, Requeue},
    queue,
};
use stoa_kinds::workflow::{run_of, stack_of};
use stoa_machinery::ApiError;
use stoa_runs::{Services, StepError, compliance, runner, state::State, target::Target};
use stoa_types::{
    Stack, Workflow,
    delivery::{HealthGate, Requester, RunStatus, RunStep, StepPhase, StepStatus, WorkflowStatus},
    reason,
};
use tokio::time::Instant;

use super::machine::Gate;
use crate::controllers::sources::wait_after;

/// How many workspaces of a wave are looked at at once.
const AT_ONCE: usize = 16;
/// How long a look at one may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The shortest and the longest time between two looks.
const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(15);
/// Half the first wait after a look in whose middle function-runners went away; each takes about twice as long as the one before.
const BROKEN: Duration = Duration::from_secs(5);
/// How many looks like that, one after the other, say nothing of the cluster.
const MOST_BROKEN: u32 = 4;
/// The shortest time between two notes of how long something was healthy.
const NOTE: Duration = Duration::from_secs(5);

/// How often it is looked.
pub(super) fn every(gate: &HealthGate) -> Duration {
    (gate.healthy_for.parse().unwrap_or_default() / 5).clamp(*EVERY.start(), *EVERY.end())
}

/// How often it is noted for how long something was healthy that has to be for so long.
pub(super) fn note_every(healthy_for: Duration) -> Duration {
    (healthy_for / 10).max(NOTE)
}

type Of = (String, String, i64);

#[derive(Debug, Default)]
struct HealthRecord {
    /// For how long it was healthy by what was noted before, and until looks began to find nothing out.
    before: Duration,
    /// Since when every look found it healthy, from the end of the first to the beginning of the last.
    healthy: Option<(Instant, Instant)>,
    /// What the last look found, and when it was over.
    last: Option<(Instant, Found)>,
    /// In the middle of how many looks, one after the other, function-runners went away, and how long the next one waits for that.
    broken: u32,
    wait: Duration,
}

impl HealthRecord {
    /// Notes what a look found that began at `begin`.
    fn note(&mut self, begin: Instant, found: Found) {
        let now = Instant::now();
        match (&found, &mut self.healthy) {
            (Found::Healthy, Some((_, last))) => *last = begin,
            (Found::Healthy, none) => *none = Some((now, now)),
            (Found::Unhealthy(_), healthy) => (self.before, *healthy) = (Duration::ZERO, None),
            // What was seen before still counts, and the time since then does not.
            (Found::Unseen(_) | Found::Broken(_), _) => (self.before, self.healthy) = (self.healthy_for(), None),
        }
        self.last = Some((now, found));
    }

    /// Notes whether function-runners ended during the last look: it may be the cause.
    fn note_broken(&mut self, is_broken: bool) {
        if is_broken {
            self.broken = self.broken.saturating_add(1);
            self.wait = wait_after(self.broken, BROKEN);
        } else if !matches!(self.last, Some((_, Found::Unseen(_)))) {
            (self.broken, self.wait) = (0, Duration::ZERO);
        }
    }

    fn is_due(&self, gate: &HealthGate) -> bool {
        self.last.as_ref().is_none_or(|(looked, _)| looked.elapsed() >= every(gate).max(self.wait))
    }

    /// As far as it was looked at: time after the last look does not count.
    fn healthy_for(&self) -> Duration {
        self.before + self.healthy.map_or(Duration::ZERO, |(since, last)| last.saturating_duration_since(since))
    }

    fn gate(&self) -> Option<Gate> {
        let (_, found) = self.last.as_ref()?;
        Some(match found {
            Found::Healthy => Gate::Healthy(self.healthy_for()),
            Found::Unhealthy(message) => Gate::Unhealthy(message.clone()),
            Found::Unseen(why) | Found::Broken(why) => Gate::Unseen(why.clone()),
        })
    }
}

/// What was seen of waves that have to be healthy before it goes on.
#[derive(Debug, Default)]
pub(super) struct Gates {
    asks: ProbeCache<Of, HealthRecord>,
    turns: ProbeSlots,
}

impl Gates {
    /// The health of waves whose runs have ended, by step; looks that are due begin.
    pub(super) fn look(
        &self,
        services: &Services,
        workflow: &Workflow,
        state: &WorkflowStatus,
        waves: &HashMap<String, Vec<Vec<String>>>,
        requeue: &Requeue,
    ) -> HashMap<String, Gate> {
        let uid = workflow.uid().unwrap_or_default();
        let mut seen = HashMap::new();
        let mut waiting = Vec::new();
        for step in &workflow.spec.steps {
            let Some((run, gate)) = step.run.as_ref().and_then(|run| Some((run, run.health.as_ref()?))) else {
                continue;
            };
            let is_due = |of: &&StepStatus| {
                let is_waiting = of.wave_time.is_some() && of.wave_healthy_time.is_none() && of.failure.is_empty();
                of.phase == StepPhase::Running && is_waiting
            };
            let Some(of_step) = state.steps.iter().find(|of| of.name == step.name).filter(is_due) else { continue };
            let Some(wave) = of_step.wave else { continue };
            let of = (uid.clone(), step.name.clone(), wave);
            let first = || {
                let noted = of_step.wave_healthy_seconds.and_then(|noted| u64::try_from(noted).ok());
                HealthRecord { before: Duration::from_secs(noted.unwrap_or(0)), ..HealthRecord::default() }
            };
            let is_due = |seen: &HealthRecord| seen.is_due(gate);
            let noted = self.asks.probe(of.clone(), first, is_due, |noted| {
                let names = usize::try_from(wave - 1).ok().and_then(|i| waves.get(&step.name)?.get(i));
                let look = Look {
                    services: services.clone(),
                    turns: self.turns.of(&workflow.namespace().unwrap_or_default()),
                    workflow: workflow.clone(),
                    requester: state.requester.clone(),
                    run: run.clone(),
                    names: names.cloned().unwrap_or_default(),
                    broken: noted.lock().broken,
                };
                look.note(noted, requeue.clone())
            });
            seen.extend(noted.lock().gate().map(|gate| (step.name.clone(), gate)));
            waiting.push(of);
        }
        self.asks.retain(|of| of.0 != uid || waiting.contains(of));
        seen
    }

    pub(super) fn forget(&self, uid: &str) {
        self.asks.retain(|(of, ..)| of != uid);
    }
}

struct Look {
    services: Services,
    turns: NamespaceSlots,
    workflow: Workflow,
    requester: Requester,
    run: RunStep,
    names: Vec<String>,
    /// In the middle of how many looks before, one after the other, function-runners went away.
    broken: u32,
}

impl Look {
    /// Looks, notes what was seen, and has the workflow looked at.
    async fn note(self, seen: Arc<Mutex<HealthRecord>>, requeue: Requeue) {
        let begin = Instant::now();
        let (found, is_broken) = self.look().await.unwrap_or_else(|error| {
            let (namespace, name) = queue::key_of(&self.workflow);
            tracing::warn!(namespace, name, %error, "it is not seen whether a wave is healthy");
            (Found::Unseen(error.message().to_owned()), false)
        });
        let mut seen = seen.lock();
        seen.note(begin, found);
        seen.note_broken(is_broken);
        drop(seen);
        requeue.add(queue::key_of(&self.workflow));
    }

    /// Looks at all workspaces, some of which may be unhealthy; also whether function-runners went away in the middle of that.
    async fn look(&self) -> Result<(Found, bool), ApiError> {
        let namespace = self.workflow.namespace().unwrap_or_default();
        let name = stack_of(&self.workflow.spec, &self.run);
        let Some(stack) = self.services.lookup.api::<Stack>()?.get_opt(&namespace, name).await? else {
            return Ok((Found::Unhealthy(format!("stack {name:?} does not exist")), false));
        };
        let looks: Vec<LookIn<'_>> = self
            .names
            .iter()
            .map(|workspace| -> LookIn<'_> { (workspace, Box::pin(self.look_in(stack.clone(), workspace))) })
            .collect();
        let found = all(&self.turns, looks).await;
        let is_broken = found.iter().any(|found| matches!(found, Found::Broken(_)));
        let tolerated = usize::try_from(self.run.max_failures).unwrap_or(0);
        Ok((together(found, tolerated, self.broken), is_broken))
    }

    async fn look_in(&self, stack: Stack, workspace: &str) -> Result<Found, StepError> {
        let Self { services, workflow, run, .. } = self;
        let mut of = run_of(workflow, run, workspace, None);
        of.metadata.name = Some(workflow.name_any());
        of.status = Some(RunStatus { requester: self.requester.clone(), ..RunStatus::default() });
        let uid = stack.uid().unwrap_or_default();
        let target = Target::of_stack(services, stack, workspace).await?;
        // The credentials of the workspace are used for whoever asked for the workflow.
        target.check_permissions(services, &of).await?;
        // What Git deploys is there once clusters say so.
        if let Some(lacking) = compliance::lacking(&target.stack, &target.workspace) {
            return Ok(Found::Unhealthy(lacking));
        }
        let recorded = State::load(&*services.log, &uid, workspace, None).await?;
        let recorded = recorded.with_bodies(target.bodies(services)).await?;
        let request = stoa_proto::HealthRequest {
            target: Some(target.proto(services, &of).await?),
            state: recorded.for_runner().await?,
        };
        let response = match services.runner.health(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => {
                return match runner::halt(&status, reason::UNREACHABLE) {
                    StepError::Retry(message) if runner::broken_calls(&status) > 0 => Ok(Found::Broken(message)),
                    StepError::Retry(message) if runner::is_unheard(&status) => Ok(Found::Unseen(message)),
                    StepError::Retry(message) => Ok(Found::Unhealthy(message)),
                    halt => Err(halt),
                };
            }
        };
        Ok(response.examples.first().map_or(Found::Healthy, |first| {
            Found::Unhealthy(match response.unhealthy.saturating_sub(1) {
                0 => format!("{}: {}", first.id, first.message),
                1 => format!("{}: {}; and 1 more resource", first.id, first.message),
                more => format!("{}: {}; and {more} more resources", first.id, first.message),
            })
        }))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Healthy,
    Unhealthy(String),
    /// Nothing, since no function-runner looked: each has no time or is away.
    Unseen(String),
    /// Nothing, since function-runners went away in the middle of the look.
    Broken(String),
}

impl Found {
    /// The same, with what is told of it in other words.
    fn told(self, told: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Healthy => Self::Healthy,
            Self::Unhealthy(message) => Self::Unhealthy(told(message)),
            Self::Unseen(why) => Self::Unseen(told(why)),
            Self::Broken(why) => Self::Broken(told(why)),
        }
    }
}

/// What was found in all workspaces of a wave, of which so many may be unhealthy. `broken` is in the middle of how many looks
/// before function-runners went away: in the end that says something of what is looked at.
fn together(all: Vec<Found>, tolerated: usize, broken: u32) -> Found {
    let (mut unhealthy, mut unseen) = (Vec::new(), Vec::new());
    for found in all {
        match found {
            Found::Healthy => {}
            Found::Broken(message) if broken < MOST_BROKEN => unseen.push(message),
            Found::Unhealthy(message) | Found::Broken(message) => unhealthy.push(message),
            Found::Unseen(message) => unseen.push(message),
        }
    }
    let told = |all: &[String]| match all {
        [first] => first.clone(),
        [first, _] => format!("{first}; and 1 more workspace"),
        [first, more @ ..] => format!("{first}; and {} more workspaces", more.len()),
        [] => String::new(),
    };
    if unhealthy.len() > tolerated {
        Found::Unhealthy(told(&unhealthy))
    } else if unhealthy.len() + unseen.len() > tolerated {
        Found::Unseen(told(&unseen))
    } else {
        Found::Healthy
    }
}

type LookIn<'a> = (&'a str, BoxFuture<'a, Result<Found, StepError>>);

/// What is found in workspaces, several of which are looked at at once, each for so long at most.
async fn all(turns: &NamespaceSlots, looks: Vec<LookIn<'_>>) -> Vec<Found> {
    let mut heard: Vec<BoxFuture<'_, Found>> = Vec::new();
    for (workspace, look) in looks {
        heard.push(Box::pin(async move {
            let _turn = turns.take().await;
            let found = match tokio::time::timeout(PATIENCE, look).await {
                Ok(Ok(found)) => found,
                // The log or the Backend: that says nothing about the cluster.
                Ok(Err(StepError::Retry(message))) => Found::Unseen(message),
                Ok(Err(halt)) => Found::Unhealthy(halt.into_reason(reason::UNREACHABLE).1),
                Err(_) => Found::Unhealthy("no answer in time".to_owned()),
            };
            found.told(|message| format!("workspace {workspace}: {message}"))
        }));
    }
    stream::iter(heard).buffered(AT_ONCE).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unresponsive_clusters_block_no_workspace_check() {
        let look = |i: usize| -> LookIn<'_> {
            let (name, is_away) = if i.is_multiple_of(2) { ("near", false) } else { ("far", true) };
            let wait = async move {
                if is_away {
                    std::future::pending::<()>().await;
                }
                Ok(Found::Healthy)
            };
            (name, Box::pin(wait))
        };
        let turns = ProbeSlots::default().of("shop");
        let start = Instant::now();
        let found = all(&turns, (0..400).map(look).collect()).await;
        let far = Found::Unhealthy("workspace far: no answer in time".to_owned());
        assert_eq!(found, vec![[Found::Healthy, far]; 200].concat());
        // Half of those that are looked at at once are near, and have been seen.
        let (least, most) = (200 / 8 * PATIENCE.as_secs(), 200 / 8 * PATIENCE.as_secs() + PATIENCE.as_secs());
        assert!((least..=most).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn backend_error_leaves_cluster_health_unknown() {
        let look = |name: &'static str, halt: StepError| -> LookIn<'static> {
            (name, Box::pin(std::future::ready(Err(halt))))
        };
        let away = look("near", StepError::Retry("the backend answered 503".to_owned()));
        let refused = look("far", StepError::failed(reason::UNREACHABLE, "no such secret"));
        let turns = ProbeSlots::default().of("shop");
        let found = all(&turns, vec![away, refused]).await;
        let unseen = Found::Unseen("workspace near: the backend answered 503".to_owned());
        assert_eq!(found, [unseen, Found::Unhealthy("workspace far: no such secret".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn healthy_time_excludes_duration_of_checks() {
        let mut seen = HealthRecord { before: Duration::from_secs(100), ..HealthRecord::default() };
        assert_eq!(seen.gate(), None, "nobody looked since the restart");
        let mut look = async |found: Found| {
            let begin = Instant::now();
            tokio::time::advance(Duration::from_secs(75)).await;
            seen.note(begin, found);
            let gate = seen.gate();
            tokio::time::advance(Duration::from_secs(15)).await;
            gate
        };
        let (broken, busy) = ("it broke".to_owned(), "no function-runner has time".to_owned());
        let healthy = |seconds: u64| Some(Gate::Healthy(Duration::from_secs(seconds)));
        assert_eq!(look(Found::Healthy).await, healthy(100));
        assert_eq!(look(Found::Healthy).await, healthy(115));
        assert_eq!(look(Found::Healthy).await, healthy(205));
        assert_eq!(look(Found::Unhealthy(broken.clone())).await, Some(Gate::Unhealthy(broken.clone())));
        assert_eq!(look(Found::Healthy).await, healthy(0), "what was noted before does not count any more");
        assert_eq!(look(Found::Healthy).await, healthy(15));
        // Nobody had the time to look: that counts for nothing, and neither does it begin anew.
        assert_eq!(look(Found::Unseen(busy.clone())).await, Some(Gate::Unseen(busy.clone())));
        assert_eq!(look(Found::Unseen(busy.clone())).await, Some(Gate::Unseen(busy.clone())));
        assert_eq!(look(Found::Healthy).await, healthy(15));
        assert_eq!(look(Found::Healthy).await, healthy(30));
        assert_eq!(look(Found::Unhealthy(broken.clone())).await, Some(Gate::Unhealthy(broken.clone())));
    }

    #[tokio::test(start_paused = true)]
    async fn runner_breaking_check_backs_off_then_reports() {
        let gate: HealthGate = serde_json::from_value(serde_json::json!({ "healthyFor": "5s" })).unwrap();
        let away = || "they went away".to_owned();
        let broken = || vec![Found::Broken(away()), Found::Healthy];
        let mut seen = HealthRecord::default();
        for seconds in [10, 20, 40, 80] {
            seen.note(Instant::now(), together(broken(), 0, seen.broken));
            seen.note_broken(true);
            assert_eq!(seen.gate(), Some(Gate::Unseen(away())));
            tokio::time::advance(Duration::from_secs(seconds).mul_f64(0.75)).await;
            assert!(!seen.is_due(&gate), "after {seconds} s");
            // That none has time meanwhile is no news of that.
            seen.note(Instant::now(), Found::Unseen("none has time".to_owned()));
            seen.note_broken(false);
            tokio::time::advance(Duration::from_secs(seconds).mul_f64(1.25)).await;
            assert!(seen.is_due(&gate), "after {seconds} s");
        }
        seen.note(Instant::now(), together(broken(), 0, seen.broken));
        assert_eq!(seen.gate(), Some(Gate::Unhealthy(away())), "a step fails by that once its time is over");
        assert_eq!(together(broken(), 1, 0), Found::Healthy, "it may be unhealthy in one");
        seen.note(Instant::now(), Found::Healthy);
        seen.note_broken(false);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(seen.is_due(&gate), "it was seen");
    }
}
