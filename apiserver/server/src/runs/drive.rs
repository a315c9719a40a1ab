//! Takes one run from whatever phase it is in to its end, however often that has to be tried.
//!
//! Every step writes what it decided before the next one begins, so that a run that is taken up again repeats at most
//! the step that it was in, and each step may be repeated. Elsewhere: what the steps are is in `steps`.

use std::time::Duration;

use kube::ResourceExt as _;
use stoa_failpoint::reached;
use stoa_machinery::log::LogError;
use stoa_types::{Run, delivery::RunPhase, reason};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Halt, Services, execution::Execution, journal::Journal, state, status, steps, target::Target};
use crate::lease::Held;

/// How long a lease lasts without renewal.
const LEASE: Duration = Duration::from_secs(30);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(5);
/// How long a run waits for a source that is out of reach.
const UNREACHABLE: Duration = Duration::from_secs(30);
/// What is done about whatever keeps a run from going on.
const AGAIN: &str = "it is tried again every few seconds";
/// The shortest and longest wait before a step is tried again.
const BACKOFF: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(5);

/// Takes a run to its end, however often it has to be tried. `cancel` stops it, as when its time is
/// up and `overdue` says so; `end` puts it down where it is, for a later life of this server to take up.
pub(crate) async fn drive(
    services: Services,
    run: Run,
    cancel: CancellationToken,
    overdue: CancellationToken,
    end: CancellationToken,
) {
    let uid = run.uid().unwrap_or_default();
    let journal = Journal::new(services.log.clone(), services.clock.clone(), &uid);
    let mut execution = Execution { services, run, journal, cancel, overdue, runner: None, unheard_of: Vec::new() };
    let mut wait = *BACKOFF.start();
    let mut last_complaint = String::new();
    let mut unreachable_since: Option<tokio::time::Instant> = None;
    loop {
        let outcome = match end.run_until_cancelled(Box::pin(attempt(&mut execution))).await {
            None => return,
            Some(outcome) => outcome,
        };
        let ended = match outcome {
            Ok(()) => return,
            Err(Halt::Abandoned(why)) => {
                tracing::info!(run = execution.run.name_any(), why, "the run is left to others");
                return;
            }
            Err(Halt::Retry(_) | Halt::SourceUnreachable(_)) if execution.is_overdue() => {
                execution.finish_timed_out(&last_complaint).await
            }
            Err(Halt::Retry(_) | Halt::SourceUnreachable(_)) if execution.cancel.is_cancelled() => {
                execution.finish_canceled().await
            }
            Err(Halt::SourceUnreachable(complaint))
                if unreachable_since.is_some_and(|since| since.elapsed() >= UNREACHABLE) =>
            {
                execution.finish(RunPhase::Failed, reason::SOURCE_UNREACHABLE, &complaint).await
            }
            Err(halt @ (Halt::Retry(_) | Halt::SourceUnreachable(_))) => {
                unreachable_since = match halt {
                    Halt::SourceUnreachable(_) => unreachable_since.or_else(|| Some(tokio::time::Instant::now())),
                    _ => None,
                };
                let (Halt::Retry(complaint) | Halt::SourceUnreachable(complaint)) = &halt else { return };
                let told = format!("{complaint}; {AGAIN}");
                if *complaint != last_complaint || !execution.tells_waiting(&told) {
                    execution.tell_waiting(&told).await;
                    last_complaint.clone_from(complaint);
                }
                Err(halt)
            }
            // Whoever decides about the plan has the run taken up again, and so does whoever cancels it.
            Err(Halt::AwaitingApproval | Halt::AwaitingMerge) => return,
            Err(Halt::Superseded(message)) => execution.finish(RunPhase::Canceled, reason::SUPERSEDED, &message).await,
            Err(Halt::Canceled) if execution.is_overdue() => execution.finish_timed_out(&last_complaint).await,
            Err(Halt::Canceled) => execution.finish_canceled().await,
            Err(Halt::Failed { reason, message }) => execution.finish(RunPhase::Failed, reason, &message).await,
        };
        if ended.is_ok() {
            return;
        }
        if end.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
        wait = (wait * 2).min(*BACKOFF.end());
    }
}

/// One try, under the lease of the stack in the workspace if the run changes anything.
async fn attempt(execution: &mut Execution) -> Result<(), Halt> {
    if execution.cancel.is_cancelled() && status(&execution.run).start_time.is_none() {
        return Err(Halt::Canceled);
    }
    steps::refuse_rejected(execution).await?;
    let target = Target::of_run(&execution.services, &execution.run).await?;
    steps::look_at_proposal(execution, &target).await?;
    if !execution.run.spec.operation.is_mutating() {
        return steps::take(execution, &target, None).await;
    }
    let holder = format!("{}/{}", execution.services.identity, execution.run.uid().unwrap_or_default());
    let log = execution.services.log.clone();
    let lease = Held::acquire(&*log, &target.lease(), &holder, LEASE).await.map_err(|e| match e {
        LogError::Held { .. } => Halt::Retry("another run of the stack in the workspace is under way".to_owned()),
        other => state::halt(&other),
    })?;
    reached("lease-taken");
    let lost = CancellationToken::new();
    let renewal = AbortOnDropHandle::new(tokio::spawn({
        let (log, lease, lost) = (log.clone(), lease.clone(), lost.clone());
        async move {
            // Past half its time nothing may be begun under it any more.
            lease.keep(&*log, RENEW, LEASE / 2).await;
            lost.cancel();
        }
    }));
    let outcome = match lost.run_until_cancelled(Box::pin(steps::take(execution, &target, Some(&lease)))).await {
        Some(outcome) => outcome,
        None => Err(Halt::Abandoned("the run's lease is lost".to_owned())),
    };
    drop(renewal);
    if !matches!(outcome, Err(Halt::Abandoned(_)))
        && let Err(error) = lease.release(&*log).await
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "a lease is not given up; it will expire");
    }
    outcome
}
