//! How often and how long an event is tried.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use stoa_types::{DurationString, platform::RetryPolicy};

use super::{delivery::backoff, window::Pending};

/// How often and how long an event is tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    attempts: u32,
    age: SignedDuration,
    least: Duration,
    most: Duration,
}

impl Patience {
    pub(super) fn of(policy: &RetryPolicy) -> Self {
        let day = Duration::from_secs(24 * 3600);
        // Its strategy has seen to it that they can be read.
        let read = |text: &DurationString| text.parse().unwrap_or(day);
        Self {
            attempts: policy.max_attempts.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX)),
            age: SignedDuration::try_from(read(&policy.max_age)).unwrap_or(SignedDuration::MAX),
            least: read(&policy.min_backoff),
            most: read(&policy.max_backoff),
        }
    }

    /// How long to wait after so many tries, of which the first is 1.
    pub(super) fn wait(&self, attempts: u32) -> Duration {
        backoff(self.least..=self.most, attempts)
    }

    pub(super) fn is_over(&self, pending: &Pending, now: Timestamp) -> bool {
        pending.attempts >= self.attempts || now.duration_since(pending.since) > self.age
    }
}
