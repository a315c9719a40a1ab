//! A lease of the log: renewal, and the moment at which it counts as lost.

use std::time::Duration;

use stoa_machinery::log::{Fence, Lease, Log, LogError};
use tokio::{sync::watch, time::Instant};

/// How soon a renewal is tried again that failed: what is left of the lease is to be enough for several tries.
const AGAIN: Duration = Duration::from_millis(500);

/// A lease that was acquired, and how long it lasts as far as is known here. Clones share it.
#[derive(Clone, Debug)]
pub struct HeldLease {
    lease: Lease,
    since: Instant,
    /// When the last renewal that is known to have been made was asked for.
    renewed: watch::Sender<Instant>,
}

impl HeldLease {
    /// Acquires a lease; [`keep`](Self::keep) then renews it.
    ///
    /// # Errors
    ///
    /// Those of [`Log::acquire`].
    pub async fn acquire(log: &dyn Log, name: &str, holder: &str, ttl: Duration) -> Result<Self, LogError> {
        // It lasts from when the log heard of it, and that is not before this.
        let asked = Instant::now();
        let lease = log.acquire(name, holder, ttl).await?;
        Ok(Self { lease, since: Instant::now(), renewed: watch::Sender::new(asked) })
    }

    /// The fence to put on writes made under the lease.
    pub fn fence(&self) -> Fence {
        self.lease.fence()
    }

    /// A moment at which it was held: nobody who held it before did any more.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// For how long nobody else can take it, renewed or not.
    pub fn left(&self) -> Duration {
        (*self.renewed.borrow() + self.lease.ttl).saturating_duration_since(Instant::now())
    }

    /// Renews it every so often and returns when it is lost, or when `safe` has passed since a
    /// renewal that is known to have been made. A `safe` that is shorter than the lease leaves the rest
    /// of it for what is under way to come to its end, before anybody else can take the lease.
    pub async fn keep(&self, log: &dyn Log, every: Duration, safe: Duration) {
        let lease = self.lease.name.as_str();
        let mut pause = every;
        loop {
            let deadline = *self.renewed.borrow() + safe;
            let now = Instant::now();
            if now >= deadline {
                tracing::warn!(lease, "a lease was not renewed in time; it counts as lost");
                return;
            }
            tokio::time::sleep_until((now + pause).min(deadline)).await;
            let asked = Instant::now();
            pause = every;
            match tokio::time::timeout_at(deadline, log.renew(&self.lease)).await {
                Ok(Ok(())) => drop(self.renewed.send_replace(asked)),
                Ok(Err(LogError::Fenced { .. })) => {
                    tracing::warn!(lease, "a lease is lost");
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, lease, "a lease is not renewed");
                    pause = every.min(AGAIN);
                }
                // The next turn says so.
                Err(_) => {}
            }
        }
    }

    /// Gives it up.
    ///
    /// # Errors
    ///
    /// Those of [`Log::release`].
    pub async fn release(&self, log: &dyn Log) -> Result<(), LogError> {
        log.release(&self.lease).await
    }
}

#[cfg(test)]
mod tests {
    use stoa_machinery::log::MemoryLog;

    use super::*;
    use crate::testing::FaultyLog;

    const TTL: Duration = Duration::from_millis(1000);
    const EVERY: Duration = Duration::from_millis(100);
    const SAFE: Duration = Duration::from_millis(700);

    #[tokio::test(start_paused = true)]
    async fn lease_is_kept_until_somebody_takes_it() {
        let log = MemoryLog::new();
        let lease = HeldLease::acquire(&log, "x", "one", TTL).await.unwrap();
        let kept = tokio::time::timeout(TTL * 2, lease.keep(&log, EVERY, SAFE)).await;
        assert!(kept.is_err(), "it was given up though nobody took it");
        assert!(lease.left() > TTL / 2, "{:?}", lease.left());
        log.acquire("x", "one", TTL).await.unwrap();
        tokio::time::timeout(SAFE, lease.keep(&log, EVERY, SAFE)).await.expect("it is lost with the next renewal");
    }

    #[tokio::test(start_paused = true)]
    async fn lease_retries_failed_renewals_before_expiry() {
        let [ttl, every, safe] = [30, 10, 15].map(Duration::from_secs);
        let log = FaultyLog::new(0);
        let lease = HeldLease::acquire(&*log, "x", "one", ttl).await.unwrap();
        log.fail_renewals(3);
        tokio::time::timeout(ttl, lease.keep(&*log, every, safe)).await.expect_err("it was given up");
        log.fail_renewals(usize::MAX);
        tokio::time::timeout(ttl, lease.keep(&*log, every, safe)).await.expect("it counts as lost in time");
    }

    #[tokio::test(start_paused = true)]
    async fn lease_remainder_counts_from_last_renewal() {
        let log = MemoryLog::new();
        let lease = HeldLease::acquire(&log, "x", "one", TTL).await.unwrap();
        assert_eq!(lease.left(), TTL);
        tokio::time::timeout(EVERY * 3 + EVERY / 2, lease.keep(&log, EVERY, SAFE)).await.unwrap_err();
        assert_eq!(lease.left(), TTL - EVERY / 2);
        tokio::time::sleep(TTL * 2).await;
        assert_eq!(lease.left(), Duration::ZERO);
    }
}
