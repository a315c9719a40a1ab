//! One resource: its calls, tried again while that may help, and what to record of them.

use std::{sync::Arc, time::Duration};

use serde_json::Map;
use stoa_engine::{
    Action, ObjectRef, PlannedAction, Problem, ResourceId, Sensitive, StateResource, object::without_bookkeeping,
    problem::reason,
};
use stoa_runtime::{Applied, ApplyRequest, Health, Runtime, RuntimeError};
use tokio_util::sync::CancellationToken;

use crate::{
    observer::{ResourceOutcome, ResourceResult},
    planning::problem,
    values::Values,
};

/// The shortest and longest wait between two tries.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(10);

/// What a call needs.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) values: Arc<Values>,
    pub(crate) timeout: Duration,
    /// No new try is begun when it fires; a call in flight is finished.
    pub(crate) stop: CancellationToken,
}

impl Caller {
    /// Carries out one action.
    pub(crate) async fn call(&self, planned: &PlannedAction, prior: Option<&StateResource>) -> ResourceResult {
        let attempt = self.attempt(planned, prior);
        match tokio::time::timeout(self.timeout, attempt).await {
            Ok(result) => result,
            Err(_) => {
                let message = format!("it took longer than {:?}", self.timeout);
                failed(planned, Problem::new(reason::TIMED_OUT, message).of(&planned.id))
            }
        }
    }

    async fn attempt(&self, planned: &PlannedAction, prior: Option<&StateResource>) -> ResourceResult {
        match planned.action {
            Action::Forget => done(planned, None, None),
            Action::Delete => match self.delete(prior).await {
                Ok(()) => done(planned, None, None),
                Err(error) => failed(planned, problem(&planned.id, &error)),
            },
            Action::Create | Action::Update | Action::Adopt | Action::Replace | Action::Unchanged => {
                self.bring(planned, prior).await
            }
        }
    }

    /// What is recorded of a resource that is left alone, if the record is not as it should be.
    pub(crate) fn leave(&self, planned: &PlannedAction, prior: Option<&StateResource>) -> Option<ResourceResult> {
        let prior = prior?;
        let ready = self.values.ready(&planned.id).ok()?;
        let record = StateResource {
            attributes: ready.sensitive.recorded(&planned.id, &ready.desired.attributes),
            depends_on: planned.depends_on.clone(),
            extensions: ready.desired.extensions.clone(),
            ..prior.clone()
        };
        (record != *prior).then(|| done(planned, Some(record), None))
    }

    async fn delete(&self, prior: Option<&StateResource>) -> Result<(), RuntimeError> {
        // What is not recorded any more was removed by an earlier try.
        let Some(prior) = prior else { return Ok(()) };
        self.retried(|| self.runtime.delete(prior)).await
    }

    async fn bring(&self, planned: &PlannedAction, prior: Option<&StateResource>) -> ResourceResult {
        let ready = match self.values.ready(&planned.id) {
            Ok(ready) => ready,
            Err(problem) => return failed(planned, problem),
        };
        let redacted = |error: &RuntimeError| {
            let mut problem = problem(&planned.id, error);
            problem.message = ready.sensitive.redact(&problem.message);
            failed(planned, problem)
        };
        if planned.action == Action::Replace
            && let Err(error) = self.delete(prior).await
        {
            return redacted(&error);
        }
        let prior = prior.filter(|_| planned.action != Action::Replace);
        let request = ApplyRequest { desired: &ready.desired, prior, adopt: planned.action == Action::Adopt };
        let applied = match self.retried(|| self.runtime.apply(&request)).await {
            Ok(applied) => applied,
            Err(error) => return redacted(&error),
        };
        let object = ObjectRef::of(&ready.desired.attributes);
        if object.is_some_and(|o| o.is_custom_resource_definition()) && !self.runtime.is_deferred() {
            // Its instances can be created only once it is established.
            match self.runtime.wait_healthy(&ready.desired, &|_, _| {}).await {
                Ok(Health::Failed) => {
                    let message = "the definition is not accepted by the cluster";
                    return failed(planned, Problem::new(reason::UNHEALTHY, message).of(&planned.id));
                }
                Ok(_) => {}
                Err(error) => return redacted(&error),
            }
        }
        self.values.settle(&planned.id, applied.live.clone());
        let record = record(planned, &ready.desired, &ready.sensitive, &applied);
        done(planned, Some(record), Some(applied))
    }

    /// Tries again while the error may pass and nobody wants to stop.
    async fn retried<T, F>(&self, call: impl Fn() -> F) -> Result<T, RuntimeError>
    where
        F: Future<Output = Result<T, RuntimeError>>,
    {
        let mut wait = *BACKOFF.start();
        loop {
            match call().await {
                Err(error) if error.is_retryable() => {
                    tracing::debug!(%error, ?wait, "trying again");
                    if self.stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                        return Err(error);
                    }
                    wait = (wait * 2).min(*BACKOFF.end());
                }
                other => return other,
            }
        }
    }
}

fn record(
    planned: &PlannedAction,
    desired: &stoa_engine::Resource,
    sensitive: &Sensitive,
    applied: &Applied,
) -> StateResource {
    let live = without_bookkeeping(applied.live.clone());
    let mut hidden = sensitive.clone();
    hidden.extend(&Sensitive::of(&live, &Default::default()));
    StateResource {
        id: planned.id.clone(),
        kind: desired.kind,
        attributes: sensitive.recorded(&planned.id, &desired.attributes),
        live: if live.is_empty() { Map::new() } else { hidden.recorded(&planned.id, &live) },
        depends_on: planned.depends_on.clone(),
        extensions: desired.extensions.clone(),
        cluster: applied.kubernetes.as_ref().map(|k| k.cluster.clone()).unwrap_or_default(),
        unknown: false,
    }
}

fn done(planned: &PlannedAction, resource: Option<StateResource>, applied: Option<Applied>) -> ResourceResult {
    ResourceResult {
        id: planned.id.clone(),
        action: planned.action,
        outcome: ResourceOutcome::Done,
        message: String::new(),
        resource,
        kubernetes: applied.and_then(|a| a.kubernetes),
        depends_on: planned.depends_on.clone(),
        problem: None,
    }
}

pub(crate) fn failed(planned: &PlannedAction, problem: Problem) -> ResourceResult {
    ResourceResult {
        outcome: ResourceOutcome::Failed,
        message: problem.message.clone(),
        problem: Some(problem),
        ..done(planned, None, None)
    }
}

pub(crate) fn skipped(planned: &PlannedAction, why: &ResourceId) -> ResourceResult {
    ResourceResult {
        outcome: ResourceOutcome::Skipped,
        message: format!("{why} comes first and was not done"),
        ..done(planned, None, None)
    }
}
