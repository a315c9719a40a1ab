//! Keeping a lease, and knowing in time when it is lost.

use std::time::Duration;

use stoa_machinery::log::{Lease, Log, LogError};
use tokio::time::Instant;

/// Renews a lease every so often and returns when it is lost, or when `safe` has passed since a
/// renewal that is known to have been made. A `safe` that is shorter than the lease leaves the rest
/// of it for what is under way to come to its end, before anybody else can take the lease.
pub(crate) async fn keep(log: &dyn Log, lease: &Lease, every: Duration, safe: Duration) {
    let mut renewed = Instant::now();
    loop {
        let deadline = renewed + safe;
        let now = Instant::now();
        if now >= deadline {
            tracing::warn!(lease = lease.name, "a lease was not renewed in time; it counts as lost");
            return;
        }
        tokio::time::sleep_until((now + every).min(deadline)).await;
        // It lasts from when the log heard of the renewal, and that is not before this.
        let started = Instant::now();
        match tokio::time::timeout_at(deadline, log.renew(lease)).await {
            Ok(Ok(())) => renewed = started,
            Ok(Err(LogError::Fenced { .. })) => {
                tracing::warn!(lease = lease.name, "a lease is lost");
                return;
            }
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, lease = lease.name, "a lease is not renewed");
            }
            // The next turn says so.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use stoa_machinery::log::MemoryLog;

    use super::*;

    const TTL: Duration = Duration::from_millis(1000);
    const EVERY: Duration = Duration::from_millis(100);
    const SAFE: Duration = Duration::from_millis(700);

    #[tokio::test]
    async fn lease_is_kept_until_somebody_takes_it() {
        let log = MemoryLog::new();
        let lease = log.acquire("x", "one", TTL).await.unwrap();
        let kept = tokio::time::timeout(TTL * 2, keep(&log, &lease, EVERY, SAFE)).await;
        assert!(kept.is_err(), "it was given up though nobody took it");
        log.acquire("x", "one", TTL).await.unwrap();
        tokio::time::timeout(SAFE, keep(&log, &lease, EVERY, SAFE)).await.expect("it is lost with the next renewal");
    }
}
