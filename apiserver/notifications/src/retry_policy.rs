//! The retry policy of events: how often and how long each is tried.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use stoa_machinery::backoff::{Jitter, Policy};
use stoa_types::{DurationString, platform::RetryPolicy};
use tokio::time::Instant;

use crate::inflight::Pending;

/// The longest time for which an event is retried after answers of 400 alone: a receiver whose clock is wrong answers so, too.
const DOUBT: Duration = Duration::from_mins(10);

/// The event types that a sink gave up after answers of 400, and when it last did. An event of such a type has one try for
/// [`DOUBT`] from then on, so that an endpoint that never accepts a type delays no others.
#[derive(Debug, Default)]
pub(super) struct RejectedTypes(BTreeMap<String, Instant>);

impl RejectedTypes {
    pub(super) fn give_up(&mut self, event_type: &str) {
        self.0.insert(event_type.to_owned(), Instant::now());
    }

    /// Notes that an event of this type was delivered.
    pub(super) fn deliver(&mut self, event_type: &str) {
        self.0.remove(event_type);
    }

    /// Whether an event of this type was given up lately, and none was delivered since.
    pub(super) fn contains(&self, event_type: &str) -> bool {
        self.0.get(event_type).is_some_and(|at| at.elapsed() < DOUBT)
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
        pending.attempts >= self.attempts
            || now.duration_since(pending.since) > self.age
            || pending.doubted.is_some_and(|since| since.elapsed() >= DOUBT)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stoa_machinery::Version;

    use super::*;
    use crate::{feed, inflight::InFlight};

    #[tokio::test(start_paused = true)]
    async fn sink_gives_up_event_after_repeated_400() {
        let schedule = RetrySchedule::of(&RetryPolicy::default());
        let now = Timestamp::now();
        let mut window = InFlight::new(BTreeSet::new());
        window.add_found(feed::gap(("chat", "uid"), Version(1), Version(2), now, ""), Version(1));
        window.start(Instant::now()).expect("it waits");
        let pending = window.get_mut(1).expect("it waits");
        pending.doubted = Some(Instant::now());
        tokio::time::advance(DOUBT - Duration::from_secs(1)).await;
        assert!(!schedule.is_over(pending, now));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(schedule.is_over(pending, now));
        pending.doubted = None;
        assert!(!schedule.is_over(pending, now), "another answer came since");
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_type_has_one_try_until_delivery() {
        let mut rejected = RejectedTypes::default();
        rejected.give_up("run.started");
        tokio::time::advance(DOUBT - Duration::from_secs(1)).await;
        assert!(rejected.contains("run.started") && !rejected.contains("run.failed"));
        rejected.give_up("run.started");
        tokio::time::advance(DOUBT - Duration::from_secs(1)).await;
        assert!(rejected.contains("run.started"), "another one was given up since");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!rejected.contains("run.started"));
        rejected.give_up("run.started");
        rejected.deliver("run.started");
        assert!(!rejected.contains("run.started"));
    }
}
