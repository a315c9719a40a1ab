//! The retry policy of events: how often and how long each is tried.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use stoa_machinery::backoff::{Jitter, Policy};
use stoa_types::{DurationString, platform::RetryPolicy};
use tokio::time::Instant;

use crate::inflight::Pending;

/// For how long it is tried whether an event is taken after all that may be what is wrong, while nothing else is taken: a clock that
/// is set wrong is set right within that.
const DOUBT: Duration = Duration::from_mins(10);

/// When the first of the tries was begun since which it is doubted that an event will ever be taken, if it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt(Option<Instant>);

/// What tells of a sink whether an event will never be taken or a clock is wrong: nothing is taken then.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// When the last try was begun by which an event was taken.
    taken: Option<Instant>,
    /// The tries by which an event of a type was not, of types of which none was taken since.
    refused: BTreeMap<String, Refused>,
}

/// When tries were begun by which no event of a type was taken.
#[derive(Clone, Copy, Debug)]
struct Refused {
    first: Instant,
    last: Instant,
}

impl Doubts {
    /// Notes that an event of a type was taken, by a try that was begun then.
    pub(crate) fn take(&mut self, event_type: &str, begun: Instant) {
        self.taken = self.taken.max(Some(begun));
        self.refused.remove(event_type);
    }

    /// Notes that an event of a type may never be taken; whether that is known: since the first such answer another was, so that
    /// no clock is wrong, or it was so for long enough. Answers for others of its type count as long as they go on, and with them
    /// only what was taken lately: those may have been given up for another reason.
    pub(crate) fn note(&mut self, event_type: &str, doubt: &mut Doubt, begun: Instant) -> bool {
        let is_recent = |at: Instant| begun.duration_since(at) < DOUBT;
        let since = *doubt.0.get_or_insert(begun);
        self.refused.retain(|_, refused| is_recent(refused.last));
        let refused = self.refused.entry(event_type.to_owned()).or_insert(Refused { first: begun, last: begun });
        refused.last = refused.last.max(begun);
        let first = refused.first;
        let is_clock_right =
            self.taken.is_some_and(|taken| taken < begun && (since < taken || first < taken && is_recent(taken)));
        is_clock_right || since.elapsed() >= DOUBT
    }
}

/// How often and how long an event is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetrySchedule {
    attempts: u32,
    age: SignedDuration,
    backoff: Policy,
}

impl RetrySchedule {
    pub(super) fn of(policy: &RetryPolicy) -> Self {
        let day = Duration::from_secs(24 * 3600);
        // Its strategy has seen to it that they can be read.
        let read = |text: &DurationString| text.parse().unwrap_or(day);
        Self {
            attempts: policy.max_attempts.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX)),
            age: SignedDuration::try_from(read(&policy.max_age)).unwrap_or(SignedDuration::MAX),
            backoff: Policy::new(read(&policy.min_backoff), read(&policy.max_backoff)).with_jitter(Jitter::HALF),
        }
    }

    /// How long to wait after so many tries, of which the first is 1.
    pub(super) fn wait(&self, attempts: u32) -> Duration {
        self.backoff.after(attempts)
    }

    pub(super) fn is_over(&self, pending: &Pending, now: Timestamp) -> bool {
        pending.attempts >= self.attempts || now.duration_since(pending.since) > self.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn event_that_is_doubted_is_tried_for_a_while_as_long_as_nothing_is_taken() {
        let (mut doubts, mut doubt) = (Doubts::default(), Doubt::default());
        doubts.take("run.failed", Instant::now());
        tokio::time::advance(SECOND).await;
        assert!(!doubts.note("run.started", &mut doubt, Instant::now()), "a clock may have been set since");
        tokio::time::advance(DOUBT - SECOND).await;
        assert!(!doubts.note("run.started", &mut doubt, Instant::now()));
        assert!(!doubts.note("run.started", &mut Doubt::default(), Instant::now()), "each is tried as long");
        doubt = Doubt::default();
        tokio::time::advance(DOUBT).await;
        assert!(!doubts.note("run.started", &mut doubt, Instant::now()), "it was another matter meanwhile");
        tokio::time::advance(DOUBT).await;
        assert!(doubts.note("run.started", &mut doubt, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn event_that_is_not_taken_while_others_are_never_will_be() {
        let (mut doubts, mut doubt) = (Doubts::default(), Doubt::default());
        assert!(!doubts.note("run.started", &mut doubt, Instant::now()));
        tokio::time::advance(SECOND).await;
        let before = Instant::now();
        tokio::time::advance(SECOND).await;
        doubts.take("run.failed", Instant::now());
        assert!(!doubts.note("run.started", &mut doubt, before), "the clock may have been set right in between");
        tokio::time::advance(SECOND).await;
        assert!(doubts.note("run.started", &mut doubt, Instant::now()));
        // So are those of its type that come after it, each after one try.
        assert!(doubts.note("run.started", &mut Doubt::default(), Instant::now()));
        doubts.take("run.started", Instant::now());
        tokio::time::advance(SECOND).await;
        assert!(!doubts.note("run.started", &mut Doubt::default(), Instant::now()), "some are taken");
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_not_given_up_for_what_was_answered_long_ago() {
        let now = Instant::now;
        let mut doubts = Doubts::default();
        assert!(!doubts.note("run.started", &mut Doubt::default(), now()));
        // That event was given up for another reason, and others are taken until a clock is wrong.
        for _ in 0..4 {
            tokio::time::advance(DOUBT / 4).await;
            doubts.take("run.failed", now());
        }
        tokio::time::advance(SECOND).await;
        assert!(!doubts.note("run.started", &mut Doubt::default(), now()), "it is another matter");
        tokio::time::advance(SECOND).await;
        doubts.take("run.failed", now());
        // Nothing at all is taken from now on.
        for _ in 0..3 {
            tokio::time::advance(DOUBT / 4).await;
            assert!(doubts.note("run.started", &mut Doubt::default(), now()), "others are taken");
        }
        tokio::time::advance(DOUBT / 4).await;
        assert!(!doubts.note("run.started", &mut Doubt::default(), now()), "nothing was taken lately");
    }
}
