//! Takes one run from whatever phase it is in to its end, however often that has to be tried.
//!
//! Every step writes what it decided before the next one begins, so that a run that is taken up again repeats at most
//! the step that it was in, and each step may be repeated. So a run that gets nowhere for a while can be put down between two
//! tries, and others have its place meanwhile. Elsewhere: what the steps are is in `steps`.

use std::time::Duration;

use kube::ResourceExt as _;
use stoa_failpoint::reached;
use stoa_machinery::{backoff::Backoff, log::LogError};
use stoa_types::{Run, delivery::RunPhase, reason};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Halt, Services, breaks::Breaks, execution::Execution, journal::Journal, state, status, steps, target::Target,
};
use crate::lease::Held;

/// How often a lease is renewed while it lasts.
const RENEWALS: u32 = 6;
/// How long a run waits for a source that is out of reach.
const UNREACHABLE: Duration = Duration::from_secs(30);
/// What is done about whatever keeps a run from going on.
const AGAIN: &str = "it is retried every few seconds";
/// The same where what the run asks for may be what ends function-runners.
const LATER: &str = "it is retried after a while";
/// The waits before a step is tried again.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// For how long a run that gets nowhere is tried with its place kept: much of what is in the way passes sooner.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest and longest wait before a run is tried again that was put down: a twentieth of the time in which it got nowhere.
const PUT_DOWN: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(30);

/// What stops the work on a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stops {
    /// Somebody cancels the run, or its time is up.
    pub(crate) cancel: CancellationToken,
    /// Its time is up.
    pub(crate) overdue: CancellationToken,
    /// The server ends: the run is put down where it is, for a later life to take up.
    pub(crate) end: CancellationToken,
}

/// The tries of a run that came to nothing, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tries {
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
    breaks: Breaks,
}

impl Tries {
    /// Counts another one.
    fn count(&mut self) {
        self.since.get_or_insert_with(Instant::now);
        self.count = self.count.saturating_add(1);
    }

    fn took(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// How long to wait for the next one.
    fn wait(&self) -> Duration {
        BACKOFF.after(self.count)
    }

    /// How long to wait for the next one where others have the place meanwhile.
    pub(crate) fn again(&self) -> Duration {
        self.breaks.wait().unwrap_or((self.took() / 20).clamp(*PUT_DOWN.start(), *PUT_DOWN.end()))
    }
}

/// Takes a run to its end, however often it has to be tried, or until it is stopped. Returns its tries where they come to
/// nothing and it is to be put down, and taken up again after a while.
pub(crate) async fn drive(services: Services, run: Run, stops: Stops, mut tries: Tries) -> Option<Tries> {
    let Stops { cancel, overdue, end } = stops;
    let uid = run.uid().unwrap_or_default();
    let journal = Journal::new(services.log.clone(), services.clock.clone(), &uid);
    let breaks = std::mem::take(&mut tries.breaks);
    let (runner, unheard_of) = (None, Vec::new());
    let mut execution = Execution { services, run, journal, cancel, overdue, runner, breaks, unheard_of };
    loop {
        execution.breaks.begin();
        let begin = Instant::now();
        let outcome = end.run_until_cancelled(Box::pin(attempt(&mut execution))).await?;
        if tries.is_told && !execution.tells_trouble() && begin.elapsed() >= PATIENCE {
            // It went on for a while since. What is in the way now is another matter.
            tries = Tries::default();
        }
        let (outcome, may_end) = unless_owed(&execution, outcome).await;
        let ended = match outcome {
            Ok(()) => return None,
            // Nobody else has what is gone.
            Err(Halt::Abandoned(_)) if execution.is_gone().await => execution.finish_canceled().await,
            Err(Halt::Abandoned(why)) => {
                tracing::info!(run = execution.run.name_any(), why, "the run is left to others");
                return None;
            }
            Err(Halt::Retry(_) | Halt::SourceUnreachable(_)) if may_end && execution.is_overdue() => {
                execution.finish_timed_out(&tries.complaint).await
            }
            Err(Halt::Retry(_) | Halt::SourceUnreachable(_)) if may_end && execution.cancel.is_cancelled() => {
                execution.finish_canceled().await
            }
            Err(Halt::SourceUnreachable(complaint))
                if tries.unreachable_since.is_some_and(|since| since.elapsed() >= UNREACHABLE) =>
            {
                execution.finish(RunPhase::Failed, reason::SOURCE_UNREACHABLE, &complaint).await
            }
            Err(halt @ (Halt::Retry(_) | Halt::SourceUnreachable(_))) => {
                tries.unreachable_since = match halt {
                    Halt::SourceUnreachable(_) => tries.unreachable_since.or_else(|| Some(Instant::now())),
                    _ => None,
                };
                let (Halt::Retry(complaint) | Halt::SourceUnreachable(complaint)) = &halt else { return None };
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
            Err(Halt::AwaitingApproval | Halt::AwaitingMerge) => return None,
            Err(Halt::Superseded(message)) => execution.finish(RunPhase::Canceled, reason::SUPERSEDED, &message).await,
            Err(Halt::Canceled) if execution.is_overdue() => execution.finish_timed_out(&tries.complaint).await,
            Err(Halt::Canceled) => execution.finish_canceled().await,
            Err(Halt::Failed { reason, message }) => execution.finish(RunPhase::Failed, reason, &message).await,
            Err(Halt::Refused { reason, message }) => execution.refuse(reason, &message).await,
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
                return Some(Tries { breaks: execution.breaks, ..tries });
            }
        }
        end.run_until_cancelled(tokio::time::sleep(tries.wait())).await?;
    }
}

/// What comes of a try, and whether the run may end with it: not once it has made all changes, before its release is on
/// record, whoever cancels it, and however long and for what reason that is refused.
async fn unless_owed(execution: &Execution, outcome: Result<(), Halt>) -> (Result<(), Halt>, bool) {
    let complaint = match &outcome {
        Err(
            Halt::Failed { message: complaint, .. }
            | Halt::Refused { message: complaint, .. }
            | Halt::SourceUnreachable(complaint),
        ) => complaint.as_str(),
        Err(Halt::Retry(complaint)) if execution.cancel.is_cancelled() => complaint.as_str(),
        Err(Halt::Canceled) => "the run was cancelled",
        _ => return (outcome, true),
    };
    match execution.owed_release().await {
        Ok(None) => (outcome, true),
        Ok(Some(_)) if execution.has_lost_its_stack().await => (outcome, true),
        Ok(Some(release)) => (
            Err(Halt::Retry(format!("all changes are made, and release {release} is not recorded yet: {complaint}"))),
            false,
        ),
        Err(Halt::Failed { .. }) => (outcome, true),
        Err(halt) => (Err(halt), false),
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
    let time = execution.services.run_lease;
    let lease = Held::acquire(&*log, &target.lease(), &holder, time).await.map_err(|e| match e {
        LogError::Held { .. } => Halt::Retry("another run of the stack in the workspace is under way".to_owned()),
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
        None => Err(Halt::Abandoned("the run's lease is lost".to_owned())),
    };
    drop(renewal);
    // Where the run has ended, nothing is under way that the next one would have to wait for.
    let is_left = matches!(outcome, Err(Halt::Abandoned(_))) && !status(&execution.run).phase.is_terminal();
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
        let mut tries = Tries::default();
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
