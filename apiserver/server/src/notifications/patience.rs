//! How often and how long an event is tried.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoa_machinery::backoff::Backoff;
use stoa_types::{DurationString, platform::RetryPolicy};
use tokio::time::Instant;

use super::window::Pending;

/// For how long it is tried whether an event is taken after all that may be what is wrong: a clock that is set wrong is set right
/// within that.
const DOUBT: Duration = Duration::from_mins(10);

/// Since when it is doubted that an event will ever be taken, if it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Doubt(Option<Instant>);

impl Doubt {
    /// Notes what a try says of it; whether there was doubt for so long that it is none any more.
    pub(super) fn note(&mut self, is_doubted: bool) -> bool {
        self.0 = is_doubted.then(|| self.0.unwrap_or_else(Instant::now));
        self.0.is_some_and(|since| since.elapsed() >= DOUBT)
    }
}

/// How often and how long an event is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    attempts: u32,
    age: SignedDuration,
    backoff: Backoff,
}

impl Patience {
    pub(super) fn of(policy: &RetryPolicy) -> Self {
        let day = Duration::from_secs(24 * 3600);
        // Its strategy has seen to it that they can be read.
        let read = |text: &DurationString| text.parse().unwrap_or(day);
        Self {
            attempts: policy.max_attempts.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX)),
            age: SignedDuration::try_from(read(&policy.max_age)).unwrap_or(SignedDuration::MAX),
            backoff: Backoff::new(read(&policy.min_backoff), read(&policy.max_backoff)),
        }
    }

    /// How long to wait after so many tries, of which the first is 1.
    pub(super) fn wait(&self, attempts: u32) -> Duration {
        self.backoff.scattered_after(attempts)
    }

    pub(super) fn is_over(&self, pending: &Pending, now: Timestamp) -> bool {
        pending.attempts >= self.attempts || now.duration_since(pending.since) > self.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn event_that_is_doubted_is_tried_for_a_while_whatever_was_answered_before() {
        let mut doubt = Doubt::default();
        assert!(!doubt.note(true), "a clock may be set");
        tokio::time::advance(DOUBT - Duration::from_secs(1)).await;
        assert!(!doubt.note(true) && !doubt.note(false), "it was another matter");
        tokio::time::advance(DOUBT).await;
        assert!(!doubt.note(false) && !doubt.note(true));
        tokio::time::advance(DOUBT).await;
        assert!(doubt.note(true));
    }
}
