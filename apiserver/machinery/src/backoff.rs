//! How long to wait before what failed is tried again.

use std::time::Duration;

/// Waits that become twice as long with each failure in a row, between the shortest and the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    least: Duration,
    most: Duration,
}

impl Backoff {
    /// Waits of at least and at most so long. Where the bounds contradict each other the longest counts.
    pub const fn new(least: Duration, most: Duration) -> Self {
        Self { least, most }
    }

    /// How long to wait after so many failures, of which the first is 1.
    pub fn after(self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.least.saturating_mul(doubled).min(self.most)
    }

    /// The same less a random part of up to a half: what failed together need not come together again.
    pub fn scattered_after(self, failures: u32) -> Duration {
        self.after(failures).mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_between_the_shortest_and_the_longest() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let waits = [0, 1, 2, 3, 4, 5, 33, u32::MAX].map(|failures| backoff.after(failures).as_secs());
        assert_eq!(waits, [1, 1, 2, 4, 8, 10, 10, 10]);
        let longest = Backoff::new(Duration::from_secs(1), Duration::MAX);
        assert_eq!(longest.after(u32::MAX), Duration::from_secs(u64::from(u32::MAX)));
        assert_eq!(Backoff::new(Duration::from_secs(2), Duration::from_secs(1)).after(1), Duration::from_secs(1));
    }

    #[test]
    fn scattered_waits_are_up_to_a_half_shorter() {
        let backoff = Backoff::new(Duration::from_secs(8), Duration::from_secs(60));
        let waits: Vec<Duration> = (0..100).map(|_| backoff.scattered_after(2)).collect();
        assert!(
            waits.iter().all(|wait| (Duration::from_secs(8)..=Duration::from_secs(16)).contains(wait)),
            "{waits:?}"
        );
        assert!(waits.iter().any(|wait| *wait != waits[0]), "all at the same moment");
    }
}
