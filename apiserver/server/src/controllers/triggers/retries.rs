//! Runs that failed since their source was out of reach: another one is started for the same after a while.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_machinery::backoff::Policy;
use stoa_runs::Services;
use stoa_types::{
    Project, Source, Stack,
    common::condition,
    config::Started,
    delivery::{RunPhase, RunStatus},
    reason,
};

/// The waits before a run is repeated whose source was out of reach.
const BACKOFF: Policy = Policy::new(Duration::from_mins(1), Duration::from_hours(1));

/// How often that is tried.
const RETRIES: i64 = 5;

/// How long until another run is started for what this one was, if one is to be.
pub(super) fn time_to_retry(services: &Services, stack: &Stack, started: &Started) -> Option<Duration> {
    let Time(at) = started.retry_time.as_ref().filter(|_| !was_mended(stack, started))?;
    let left = Duration::try_from(at.duration_since(services.now())).unwrap_or_default();
    // Nobody knows how long it has been when the clock was set back to before the run ended.
    Some(if left > wait_after(started.retries) { Duration::ZERO } else { left })
}

/// Whether nothing is known to keep the stack's source from being read.
pub(super) fn is_readable(services: &Services, stack: &Stack) -> bool {
    let namespace = stack.namespace().unwrap_or_default();
    let project = services.lookup.cached::<Project>(&namespace, &stack.spec.project);
    let source = project.and_then(|project| services.lookup.cached::<Source>(&namespace, &project.spec.source.name));
    let conditions = source.and_then(|source| source.status).map(|status| status.conditions).unwrap_or_default();
    condition(&conditions, reason::READY).is_none_or(|ready| ready.status == "True")
}

/// Whether somebody else has brought to a good end what this run did not.
pub(super) fn was_mended(stack: &Stack, failed: &Started) -> bool {
    stack.status.iter().flat_map(|status| &status.deployments).any(|deployment| {
        deployment.workspace == failed.workspace
            && deployment.phase == Some(RunPhase::Succeeded)
            && deployment.commit.as_ref() == Some(&failed.commit)
    })
}

/// When to start another run for what one was started for that ended so, after so many others.
pub(super) fn retry_time(ended: &RunStatus, retries: i64) -> Option<Time> {
    let failed = condition(&ended.conditions, reason::FAILED)?;
    let is_tried_again =
        ended.phase == RunPhase::Failed && failed.reason == reason::SOURCE_UNREACHABLE && retries < RETRIES;
    is_tried_again.then(|| Some(Time(ended.completion_time.as_ref()?.0 + wait_after(retries))))?
}

/// How long after its end a run is followed by another one, after so many others.
fn wait_after(retries: i64) -> Duration {
    BACKOFF.after(u32::try_from(retries).unwrap_or_default().saturating_add(1))
}
