//! The retry loop of one Run: it takes the Run from its recorded phase to its end.
//!
//! Each step records its decision before the next one begins, and each step may be repeated. A Run that is resumed
//! repeats at most one step. A Run without progress is suspended between two attempts, and others take its slot.
//!
//! Elsewhere: `steps` has the steps.

use std::time::Duration;

use kube::ResourceExt as _;
use stoa_controller::lease::HeldLease;
use stoa_failpoint::reached;
use stoa_kinds::run_status::status;
use stoa_machinery::{backoff::Policy, log::LogError};
use stoa_types::{Run, delivery::RunPhase, reason};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{Services, StepError, circuit_breaker::CircuitBreaker, execution::Execution, state, steps, target::Target};

/// How often a lease is renewed while it lasts.
const RENEWALS: u32 = 6;
/// How long a run waits for a source that is out of reach.
const UNREACHABLE: Duration = Duration::from_secs(30);
/// What is done about whatever keeps a run from going on.
const AGAIN: &str = "it is retried every few seconds";
/// The same where what the run asks for may be what ends function-runners.
const LATER: &str = "it is retried after a while";
/// The waits before a step is tried again.
const BACKOFF: Policy = Policy::new(Duration::from_millis(200), Duration::from_secs(5));

/// For how long a run that gets nowhere is tried with its place kept: much of what is in the way passes sooner.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest and longest wait before a run is tried again that was put down: a twentieth of the time in which it got nowhere.
const PUT_DOWN: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(30);

/// What stops the work on a run.
#[derive(Clone, Debug, Default)]
pub struct Stops {
    /// Somebody cancels the run, or its time is up.
    pub cancel: CancellationToken,
    /// Its time is up.
    pub overdue: CancellationToken,
    /// The server ends: the run is put down where it is, for a later life to take up.
    pub end: CancellationToken,
}

/// The tries of a run that came to nothing, one after the other.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    /// Since when they do.
    since: Option<Instant>,
    /// How many.
    count: u32,
    /// What was in the way last, and whether the run says so.
    complaint: String,
    is_told: bool,
    /// Since when it is the source that is out of reach.
    unreachable_since: Option<Instant>,
    /// The calls in whose middle function-runners went away. They count on where others do not.
    breaks: CircuitBreaker,
}

impl Attempts {
    fn count(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.count = self.count.saturating_add(1);
    }

    fn took(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn wait(&self) -> Duration {
        BACKOFF.after(self.count)
    }

    /// How long to wait for the next one where others have the place meanwhile.
    pub fn again(&self) -> Duration {
        self.breaks.wait().unwrap_or((self.took() / 20).clamp(*PUT_DOWN.start(), *PUT_DOWN.end()))
    }
}

/// Takes a Run to its end or until it is stopped. Returns its attempts when it is to be suspended.
pub async fn run_to_completion(services: Services, run: Run, stops: Stops, mut tries: Attempts) -> Option<Attempts> {
    let Stops { cancel, overdue, end } = stops;
    let mut execution = Execution::new(services, run, cancel, overdue);
    execution.breaks = std::mem::take(&mut tries.breaks);
    loop {
        execution.breaks.begin();
        let begin = Instant::now();
        let outcome = end.run_until_cancelled(Box::pin(attempt(&mut execution))).await?;
        if tries.is_told && !execution.tells_trouble() && begin.elapsed() >= PATIENCE {
            // It went on for a while since. What is in the way now is another matter.
            tries = Attempts::default();
        }
        let (outcome, may_end) = pending_release(&execution, outcome).await;
        let ended = match outcome {
            Ok(()) => return None,
            // Nobody else has what is gone.
            Err(StepError::Abandoned(_)) if execution.is_gone().await => execution.finish_canceled().await,
            Err(StepError::Abandoned(why)) => {
                tracing::info!(run = execution.run.name_any(), why, "the run is left to others");
                return None;
            }
            Err(StepError::Retry(_) | StepError::SourceUnreachable(_)) if may_end && execution.is_overdue() => {
                execution.finish_timed_out(&tries.complaint).await
            }
            Err(StepError::Retry(_) | StepError::SourceUnreachable(_))
                if may_end && execution.cancel.is_cancelled() =>
            {
                execution.finish_canceled().await
            }
            Err(StepError::SourceUnreachable(complaint))
                if tries.unreachable_since.is_some_and(|since| since.elapsed() >= UNREACHABLE) =>
            {
                execution.finish(RunPhase::Failed, reason::SOURCE_UNREACHABLE, &complaint).await
            }
            Err(halt @ (StepError::Retry(_) | StepError::SourceUnreachable(_))) => {
                tries.unreachable_since = match halt {
                    StepError::SourceUnreachable(_) => tries.unreachable_since.or_else(|| Some(Instant::now())),
                    _ => None,
                };
                let (StepError::Retry(complaint) | StepError::SourceUnreachable(complaint)) = &halt else {
                    return None;
                };
                let again = if execution.breaks.wait().is_some() { LATER } else { AGAIN };
                let told = format!("{complaint}; {again}");
                if *complaint != tries.complaint || !execution.tells_waiting(&told) {
                    execution.tell_waiting(&told).await;
                    tries.complaint.clone_from(complaint);
                }
                tries.is_told = execution.tells_waiting(&told);
                Err(halt)
            }
            // Whoever decides about the plan has the run taken up again, and so does whoever cancels it.
            Err(StepError::AwaitingApproval | StepError::AwaitingMerge) => return None,
            Err(StepError::Superseded(message)) => {
                execution.finish(RunPhase::Canceled, reason::SUPERSEDED, &message).await
            }
            Err(StepError::Canceled) if execution.is_overdue() => execution.finish_timed_out(&tries.complaint).await,
            Err(StepError::Canceled) => execution.finish_canceled().await,
            Err(StepError::Failed { reason, message }) => execution.finish(RunPhase::Failed, reason, &message).await,
            Err(StepError::Refused { reason, message }) => execution.refuse(reason, &message).await,
        };
        if ended.is_ok() {
            return None;
        }
        tries.count();
        let is_to_wait = tries.took() >= PATIENCE || execution.breaks.wait().is_some();
        if is_to_wait && !execution.cancel.is_cancelled() {
            end.run_until_cancelled(execution.journal.flush()).await?;
            // Lines that the log has not taken yet would be lost.
            if execution.journal.is_written() {
                return Some(Attempts { breaks: execution.breaks, ..tries });
            }
        }
        end.run_until_cancelled(tokio::time::sleep(tries.wait())).await?;
    }
}

/// Fails a Run that is not executed, and notes that in the status of its Stack where the Run has begun.
///
/// # Errors
///
/// Abandoned when another server has ended the Run, and Retry when something cannot be written.
pub async fn fail(services: Services, run: Run, reason: &'static str, message: &str) -> Result<(), StepError> {
    let mut execution = Execution::new(services, run, CancellationToken::new(), CancellationToken::new());
    Box::pin(execution.finish(RunPhase::Failed, reason, message)).await
}

/// Fails a Run in its own status alone.
///
/// # Errors
///
/// As [`fail`].
pub async fn fail_alone(services: Services, run: Run, reason: &'static str, message: &str) -> Result<(), StepError> {
    let mut execution = Execution::new(services, run, CancellationToken::new(), CancellationToken::new());
    execution.write_end(RunPhase::Failed, reason, message, None).await
}

/// The outcome of an attempt, and whether the Run may end with it: not while it owes its Release.
async fn pending_release(execution: &Execution, outcome: Result<(), StepError>) -> (Result<(), StepError>, bool) {
    let complaint = match &outcome {
        Err(
            StepError::Failed { message: complaint, .. }
            | StepError::Refused { message: complaint, .. }
            | StepError::SourceUnreachable(complaint),
        ) => complaint.as_str(),
        Err(StepError::Retry(complaint)) if execution.cancel.is_cancelled() => complaint.as_str(),
        Err(StepError::Canceled) => "the run was cancelled",
        _ => return (outcome, true),
    };
    match execution.owed_release().await {
        Ok(None) => (outcome, true),
        Ok(Some(_)) if execution.has_lost_its_stack().await => (outcome, true),
        Ok(Some(release)) => (
            Err(StepError::Retry(format!(
                "all changes are made, and release {release} is not recorded yet: {complaint}"
            ))),
            false,
        ),
        Err(StepError::Failed { .. }) => (outcome, true),
        Err(halt) => (Err(halt), false),
    }
}

/// One try, under the lease of the stack in the workspace if the run changes anything.
async fn attempt(execution: &mut Execution) -> Result<(), StepError> {
    if execution.cancel.is_cancelled() && status(&execution.run).start_time.is_none() {
        return Err(StepError::Canceled);
    }
    steps::refuse_rejected(execution).await?;
    let target = Target::of_run(&execution.services, &execution.run).await?;
    steps::look_at_proposal(execution, &target).await?;
    if !execution.run.spec.operation.is_mutating() {
        return steps::take(execution, &target, None).await;
    }
    let holder = format!("{}/{}", execution.services.identity, execution.run.uid().unwrap_or_default());
    let log = execution.services.log.clone();
    let time = execution.services.run_lease;
    let lease = HeldLease::acquire(&*log, &target.lease(), &holder, time).await.map_err(|e| match e {
        LogError::Held { .. } => StepError::Retry("another run of the stack in the workspace is under way".to_owned()),
        other => state::halt(&other),
    })?;
    reached("lease-taken");
    let lost = CancellationToken::new();
    let renewal = AbortOnDropHandle::new(tokio::spawn({
        let (log, lease, lost) = (log.clone(), lease.clone(), lost.clone());
        async move {
            // Past half its time nothing may be begun under it any more.
            lease.keep(&*log, time / RENEWALS, time / 2).await;
            lost.cancel();
        }
    }));
    let outcome = match lost.run_until_cancelled(Box::pin(steps::take(execution, &target, Some(&lease)))).await {
        Some(outcome) => outcome,
        None => Err(StepError::Abandoned("the run's lease is lost".to_owned())),
    };
    drop(renewal);
    // Where the run has ended, nothing is under way that the next one would have to wait for.
    let is_left = matches!(outcome, Err(StepError::Abandoned(_))) && !status(&execution.run).phase.is_terminal();
    if !is_left && let Err(error) = lease.release(&*log).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a lease is not given up; it will expire");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_gets_nowhere_is_tried_ever_more_seldom() {
        let mut tries = Attempts::default();
        let mut waits = Vec::new();
        for _ in 0..7 {
            tries.count();
            waits.push(tries.wait().as_millis());
        }
        assert_eq!(waits, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        let mut again = Vec::new();
        for _ in 0..4 {
            again.push(tries.again().as_secs());
            tokio::time::advance(Duration::from_secs(300)).await;
        }
        assert_eq!(again, [5, 15, 30, 30]);
    }
}
