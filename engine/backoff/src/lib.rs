//! Decides when to retry a call that failed.
//!
//! Start at [`Policy`], which says how long to wait after each failure and for how long to retry. [`Attempts`] counts the failures of
//! one call, and asks its error whether a retry helps ([`Classify`]).
//!
//! This crate makes no call and never sleeps.

use std::time::Duration;

use tokio::time::Instant;

/// How long to wait after failures: twice as long after each, between `min` and `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The wait after the first failure.
    pub min: Duration,
    /// The longest wait. It counts where the bounds contradict each other.
    pub max: Duration,
    /// For how long a call is retried after its first attempt, or as long as it takes.
    pub deadline: Option<Duration>,
    /// The random part of each wait.
    pub jitter: Jitter,
}

/// A random factor of each wait, between two bounds: calls that failed together are not repeated together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter(pub f64, pub f64);

impl Jitter {
    /// The waits are exact.
    pub const NONE: Self = Self(1.0, 1.0);
    /// Up to a half shorter.
    pub const HALF: Self = Self(0.5, 1.0);
    /// Up to a fifth shorter or longer.
    pub const FIFTH: Self = Self(0.8, 1.2);
}

impl Policy {
    /// A policy with exact waits and without a deadline.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, deadline: None, jitter: Jitter::NONE }
    }

    /// The same policy with jitter.
    pub const fn with_jitter(self, jitter: Jitter) -> Self {
        Self { jitter, ..self }
    }

    /// The same policy with a deadline.
    pub const fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// How long to wait after so many failures in a row, of which the first is 1.
    pub fn after(self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let wait = self.min.saturating_mul(doubled).min(self.max);
        let Jitter(shortest, longest) = self.jitter;
        if shortest == longest { wait } else { wait.mul_f64(rand::random_range(shortest..=longest)) }
    }
}

/// What an error says about a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call did nothing, and a retry may succeed.
    Retry,
    /// A retry fails as well.
    Refuse,
    /// The call may have been carried out. Only calls that may be made twice are retried.
    Unknown,
}

/// An error that says whether a retry helps.
pub trait Classify {
    /// Whether a retry helps.
    fn classify(&self) -> Verdict;

    /// How long the server asks its caller to wait.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
}

/// The failed attempts of one call that may be made twice.
#[derive(Debug)]
pub struct Attempts {
    policy: Policy,
    failures: u32,
    /// When the last retry has to begin.
    end: Option<Instant>,
}

impl Attempts {
    /// Begins with the first attempt.
    pub fn new(policy: Policy) -> Self {
        Self { policy, failures: 0, end: policy.deadline.and_then(|deadline| Instant::now().checked_add(deadline)) }
    }

    /// How long to wait before a retry; nothing if the call is not to be retried.
    ///
    /// A server that asks for a wait gets it, however long it is, and the deadline moves by as much.
    pub fn after<E: Classify>(&mut self, error: &E) -> Option<Duration> {
        if error.classify() == Verdict::Refuse {
            return None;
        }
        if let Some(asked) = error.retry_after() {
            self.end = self.end.and_then(|end| end.checked_add(asked));
            return Some(asked);
        }
        self.next_wait()
    }

    /// How long to wait before a retry after an error that may pass; nothing if the deadline comes first.
    pub fn next_wait(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let wait = self.policy.after(self.failures);
        self.end.is_none_or(|end| Instant::now() + wait < end).then_some(wait)
    }

    /// How many failures there were in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_between_the_shortest_and_the_longest() {
        let policy = Policy::new(SECOND, 10 * SECOND);
        let waits = [0, 1, 2, 3, 4, 5, 33, u32::MAX].map(|failures| policy.after(failures).as_secs());
        assert_eq!(waits, [1, 1, 2, 4, 8, 10, 10, 10]);
        let longest = Policy::new(SECOND, Duration::MAX);
        assert_eq!(longest.after(u32::MAX), Duration::from_secs(u64::from(u32::MAX)));
        assert_eq!(Policy::new(2 * SECOND, SECOND).after(1), SECOND);
    }

    #[test]
    fn jitter_scatters_waits_between_its_bounds() {
        let policy = Policy::new(8 * SECOND, 60 * SECOND);
        for (jitter, shortest, longest) in [(Jitter::HALF, 8.0, 16.0), (Jitter::FIFTH, 12.8, 19.2)] {
            let waits: Vec<f64> = (0..100).map(|_| policy.with_jitter(jitter).after(2).as_secs_f64()).collect();
            assert!(waits.iter().all(|wait| (shortest..=longest).contains(wait)), "{waits:?}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "all at the same moment");
        }
    }

    struct Failed(Verdict, Option<Duration>);

    impl Classify for Failed {
        fn classify(&self) -> Verdict {
            self.0
        }

        fn retry_after(&self) -> Option<Duration> {
            self.1
        }
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_at_the_deadline_or_when_refused() {
        let mut attempts = Attempts::new(Policy::new(SECOND, 4 * SECOND).with_deadline(10 * SECOND));
        let (busy, refused) = (Failed(Verdict::Unknown, None), Failed(Verdict::Refuse, Some(SECOND)));
        assert_eq!(attempts.after(&refused), None);
        assert_eq!((attempts.after(&busy), attempts.after(&busy)), (Some(SECOND), Some(2 * SECOND)));
        tokio::time::advance(5 * SECOND).await;
        assert_eq!(attempts.after(&Failed(Verdict::Retry, Some(600 * SECOND))), Some(600 * SECOND));
        tokio::time::advance(600 * SECOND).await;
        assert_eq!(attempts.after(&busy), Some(4 * SECOND), "the wait that a server asks for does not count");
        tokio::time::advance(SECOND).await;
        assert_eq!((attempts.after(&busy), attempts.failures()), (None, 4), "the next retry would be too late");
    }
}
