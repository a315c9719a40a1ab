//! Carries out a plan in conversation with the caller.

mod active;
mod conversation;
mod relay;

use std::sync::Arc;

use stoa_apply::{Execution, FailedHook, Interrupted, Options, Outcome, PlanError, Planned, Planning};
use stoa_engine::import::Selection;
use stoa_engine::problem::reason;
use stoa_engine::{Plan, ResourceId, Spec, State};
use stoa_failpoint::reached;
use stoa_proto::apply_event::Event;
use stoa_proto::{ApplyStart, FinishedEvent, Target};
use stoa_runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Status};

pub(crate) use active::ActiveRuns;
pub(crate) use conversation::{Broken, Conversation};

use self::relay::Relay;
use crate::blocking::run_blocking;
use crate::convert;
use crate::failure::{Failure, reason::DRAINING};
use crate::metrics::Metrics;
use crate::runtimes::Runtimes;
use crate::secret_store;
use crate::service::Limits;

/// Makes a plan, of an import if there is something to import.
pub(crate) async fn plan(
    runtime: Arc<dyn Runtime>,
    planning: &Planning<'_>,
    import: Option<&Selection>,
) -> Result<Planned, Failure> {
    let spec = planning.spec;
    let planned = match import {
        Some(selection) => stoa_apply::import(runtime, planning, selection).await,
        None => stoa_apply::plan(runtime, planning).await,
    };
    planned.map_err(|err| match err {
        PlanError::Runtime(err) => Failure::runtime(&err),
        PlanError::Problems(problems) => {
            // A person has to decide before anything else matters.
            let unknown = problems.iter().any(|problem| problem.reason == reason::UNKNOWN_STATE);
            let code = if unknown { Code::FailedPrecondition } else { Code::InvalidArgument };
            Failure::of(code, problems.into_iter().map(|problem| convert::problem_in(spec, problem)).collect())
        }
    })
}

/// One apply: the caller's request, and its environment.
#[derive(Debug)]
pub(crate) struct Apply {
    pub(crate) start: ApplyStart,
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) runtimes: Runtimes,
    pub(crate) metrics: Metrics,
    pub(crate) limits: Limits,
    /// The random id of this process.
    pub(crate) instance: Arc<str>,
    pub(crate) shutdown: CancellationToken,
}

impl Apply {
    /// Carries out the plan, and reports the result to the caller.
    pub(crate) async fn run(self, active: &Arc<ActiveRuns>) {
        self.metrics.active.inc();
        let ended = self.carry_out(active).await;
        self.metrics.active.dec();
        let last = match ended {
            Ok(finished) => {
                tracing::info!(succeeded = finished.succeeded, canceled = finished.canceled, "finished");
                Ok(Event::Finished(finished))
            }
            Err(failure) => {
                let status = Status::from(failure);
                tracing::info!(code = ?status.code(), error = status.message(), "failed");
                Err(status)
            }
        };
        self.conversation.end(last).await;
    }

    async fn carry_out(&self, active: &Arc<ActiveRuns>) -> Result<FinishedEvent, Failure> {
        let target = crate::service::required(self.start.target.clone(), "start.target")?;
        let workspace = target.workspace.as_ref().map(|workspace| workspace.name.as_str()).unwrap_or_default();
        let place = active.enter(format!("{}/{workspace}", target.stack_uid)).await;

        let keys = convert::digest_keys(&target)?;
        let (spec, plan, state) = self.decoded(target.clone()).await?;
        let spec = Arc::new(spec);
        if plan.spec_digest != target.spec_digest {
            return Err(Failure::new(
                Code::Aborted,
                reason::STALE_PLAN,
                "the plan was made from another Spec; plan again",
            ));
        }
        let done: Vec<ResourceId> = self.start.done.iter().cloned().map(ResourceId).collect();
        let failed_hook = |it: stoa_proto::FailedHook| FailedHook { id: ResourceId(it.id), message: it.message };
        let failed_hooks: Vec<FailedHook> = self.start.failed_hooks.iter().cloned().map(failed_hook).collect();
        let owed: Vec<ResourceId> = self.start.owed.iter().cloned().map(ResourceId).collect();
        let import = convert::selection(&self.start.import)?;
        let runtime = self.runtimes.of_run(&target, &spec, &state).await?;
        if let Some(message) = stoa_apply::leads_elsewhere(&plan, &*runtime) {
            return Err(Failure::new(Code::Aborted, reason::STALE_PLAN, message));
        }
        let parallelism = if self.start.parallelism == 0 { self.limits.parallelism } else { self.start.parallelism };
        let grant = self.conversation.grant().clone();
        let Limits { resource_timeout, health_timeout, grace, .. } = self.limits;
        let (parallelism, shutdown) = (parallelism as usize, self.shutdown.clone());
        let options =
            Options { parallelism, resource_timeout, health_timeout, grace, grant, shutdown, ..Options::default() };
        let execution = Execution {
            spec: &spec,
            spec_digest: &target.spec_digest,
            state: &state,
            plan: &plan,
            done: &done,
            failed_hooks: &failed_hooks,
            owed: &owed,
            keys: &keys,
            import: import.as_ref(),
            run: &target.run_uid,
        };

        let stop = CancellationToken::new();
        let _stopper = AbortOnDropHandle::new(tokio::spawn(stop_when(
            stop.clone(),
            [self.conversation.broken(), self.conversation.canceled(), place.stop(), &self.shutdown].map(Clone::clone),
        )));
        // The caller may have to wait until another runner can change nothing any more. What is there is looked at then.
        let Some(Ok(())) = stop.run_until_cancelled(self.conversation.begin(&self.instance)).await else {
            return self.finished(&spec, Outcome { canceled: true, ..Outcome::default() });
        };
        let _heartbeats = AbortOnDropHandle::new(tokio::spawn({
            let (conversation, instance) = (Arc::clone(&self.conversation), Arc::clone(&self.instance));
            async move { conversation.go_on(&instance).await }
        }));
        let relay = Relay {
            conversation: Arc::clone(&self.conversation),
            spec: Arc::clone(&spec),
            metrics: self.metrics.clone(),
        };
        let outcome = stoa_apply::execute(execution, runtime, Arc::new(relay), &options, stop).await;
        reached("walk-over");
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(Interrupted::Abandoned(_)) => Outcome { canceled: true, ..Outcome::default() },
            // Nothing was called for: the conversation ends in order, and the run goes on later.
            Err(Interrupted::Unreadable(problem)) => {
                return Err(Failure::of(Code::Unavailable, vec![convert::problem_in(&spec, *problem)]));
            }
        };
        self.finished(&spec, outcome)
    }

    /// Decodes the caller's documents, which may be large.
    async fn decoded(&self, target: Target) -> Result<(Spec, Plan, State), Failure> {
        let (spec, plan, state) = (self.start.spec.clone(), self.start.plan.clone(), self.start.state.clone());
        run_blocking(async move {
            let spec = secret_store::resolve(convert::spec(&spec)?, &target).await?;
            let plan: Plan = stoa_engine::document::decode(&plan)
                .map_err(|err| Failure::request(format!("start.plan is not a valid plan: {err}")))?;
            Ok((spec, plan, convert::state(&state)?))
        })
        .await
    }

    fn finished(&self, spec: &Spec, outcome: Outcome) -> Result<FinishedEvent, Failure> {
        if outcome.canceled && !self.conversation.canceled().is_cancelled() {
            if self.shutdown.is_cancelled() {
                return Err(draining());
            }
            let message = "the function-runner stopped before it applied the whole plan; continue with another one";
            return Err(Failure::new(Code::Unavailable, reason::UNAVAILABLE, message));
        }
        Ok(FinishedEvent {
            succeeded: outcome.succeeded,
            canceled: outcome.canceled,
            gitops_commit: outcome.commit.unwrap_or_default(),
            proposal: outcome.proposal.map(convert::proposal),
            problems: outcome.problems.into_iter().map(|problem| convert::problem_in(spec, problem)).collect(),
        })
    }
}

/// The failure of calls to a process that shuts down.
pub(crate) fn draining() -> Failure {
    Failure::new(Code::Unavailable, DRAINING, "the function-runner is shutting down; retry with another one")
}

/// Sets `stop` when the first of the others is set.
async fn stop_when(stop: CancellationToken, [broken, canceled, superseded, shutdown]: [CancellationToken; 4]) {
    tokio::select! {
        () = broken.cancelled() => {}
        () = canceled.cancelled() => {}
        () = superseded.cancelled() => {}
        () = shutdown.cancelled() => {}
    }
    stop.cancel();
}
