//! A circuit breaker for Runs whose calls end function-runners, such as by needing more memory than they have.
//!
//! Start at [`CircuitBreaker::note`]. The first broken call is repeated at once by another runner. After the
//! second the Run waits, each time longer, and after each wait it may lose one runner
//! ([`CircuitBreaker::left`]). The Run fails when it made no progress by the end of the last wait; it has lost
//! six runners by then. All that takes minutes, so a restart of all runners ends no Run. Progress resets the
//! count, and so does a restart of the server, which records none of this.

use std::time::Duration;

use stoa_machinery::backoff::{Jitter, Policy};
use stoa_types::{
    delivery::{RunPhase, RunStatus},
    reason,
};

use super::{StepError, runner};

/// The waits, with a jitter: Runs that lost one runner together do not retry together.
const WAIT: Policy = Policy::new(Duration::from_secs(10), Duration::MAX).with_jitter(Jitter(1.0, 1.5));
/// How often a run waits before it fails.
const WAITS: u32 = 4;

/// How far a run is: its phase, whether it has a commit, a Spec and a plan, and how many resources were changed.
type Reached = (RunPhase, [bool; 3], i64);

fn reached(status: &RunStatus) -> Reached {
    let source = status.source.as_ref();
    let has_spec = source.is_some_and(|source| source.spec_digest.is_some());
    let done = status.progress.map_or(0, |progress| progress.done);
    (status.phase, [source.is_some(), has_spec, status.plan.is_some()], done)
}

/// The calls that broke in flight since the run got further.
#[derive(Clone, Debug, Default)]
pub(crate) struct CircuitBreaker {
    /// How far it was by the last of them.
    reached: Option<Reached>,
    /// How many.
    calls: usize,
    /// How often it waited, or is to.
    waits: u32,
    /// How long it is to wait after this try, if it is.
    wait: Option<Duration>,
}

impl CircuitBreaker {
    /// Takes note that the run is tried again.
    pub(super) fn begin(&mut self) {
        self.wait = None;
    }

    /// How long the run is to wait after this try, if it is.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How many runners may go away in the middle of the next call.
    pub(super) fn left(&self) -> usize {
        runner::BREAKS.saturating_sub(self.calls).max(1)
    }

    /// Counts calls that broke one after the other, the last for the reason `why`; the meaning for the Run.
    pub(super) fn note(&mut self, status: &RunStatus, calls: usize, why: &str) -> StepError {
        let reached = reached(status);
        if self.reached.is_some_and(|before| reached > before) {
            *self = Self::default();
        }
        self.reached = Some(reached);
        self.calls = self.calls.saturating_add(calls);
        if self.calls < runner::BREAKS {
            return StepError::Retry(why.to_owned());
        }
        if self.waits >= WAITS {
            let message = format!(
                "function-runners stopped in the middle of {} consecutive calls of this run: {why}. The run itself \
                 may be the cause. Find out why they stopped, for example for lack of memory, then start another Run, \
                 which continues from the record",
                self.calls
            );
            return StepError::failed(reason::RUNNER_UNAVAILABLE, message);
        }
        self.waits += 1;
        self.wait = Some(WAIT.after(self.waits));
        StepError::Retry(format!("{why}; {} calls of this run ended this way", self.calls))
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::delivery::Progress;

    use super::*;

    fn applying(done: i64) -> RunStatus {
        let progress = Some(Progress { total: 9, done, failed: 0 });
        RunStatus { phase: RunPhase::Applying, progress, ..RunStatus::default() }
    }

    /// Notes calls that broke, and how long is waited for that: nothing where the next try comes at once, or there is none.
    fn note(breaks: &mut CircuitBreaker, status: &RunStatus, calls: usize) -> (StepError, Option<Duration>) {
        breaks.begin();
        (breaks.note(status, calls, "it went away"), breaks.wait())
    }

    #[test]
    fn run_that_ends_runners_waits_longer_and_fails() {
        for calls in [1, 2] {
            let mut breaks = CircuitBreaker::default();
            if calls == 1 {
                let first = note(&mut breaks, &applying(0), 1);
                assert_eq!(first, (StepError::Retry("it went away".to_owned()), None), "another is asked at once");
            }
            for seconds in [10, 20, 40, 80] {
                let (halt, wait) = note(&mut breaks, &applying(0), calls);
                assert!(matches!(halt, StepError::Retry(_)), "{halt:?}");
                let (wait, shortest) = (wait.unwrap(), Duration::from_secs(seconds));
                assert!(wait >= shortest && wait < shortest * 3 / 2, "{wait:?} after {shortest:?}");
            }
            let (halt, wait) = note(&mut breaks, &applying(0), calls);
            let StepError::Failed { reason, message } = halt else { panic!("{halt:?}") };
            assert_eq!((reason, wait), (reason::RUNNER_UNAVAILABLE, None));
            assert!(message.contains("it went away") && message.contains("start another Run"), "{message}");
        }
    }

    #[test]
    fn run_that_ends_runners_ends_six_of_them() {
        let mut breaks = CircuitBreaker::default();
        let (mut ended, mut halts) = (0, Vec::new());
        while !matches!(halts.last(), Some(StepError::Failed { .. })) {
            let all_go_away = breaks.left();
            ended += all_go_away;
            halts.push(note(&mut breaks, &applying(0), all_go_away).0);
        }
        assert_eq!((ended, halts.len()), (6, 5), "{halts:?}");
    }

    #[test]
    fn run_with_progress_does_not_fail() {
        let mut breaks = CircuitBreaker::default();
        let further = [RunStatus { phase: RunPhase::Planning, ..RunStatus::default() }];
        for status in further.into_iter().chain((0..20).map(applying)) {
            assert_eq!(note(&mut breaks, &status, 1), (StepError::Retry("it went away".to_owned()), None));
            assert!(note(&mut breaks, &status, 1).1.is_some());
        }
    }
}
