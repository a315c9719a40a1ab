//! How far the log has been applied to the caches, and who waits for it.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::log::Version;

/// One version for all resources of a server, since they share one log.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    applied: AtomicU64,
    waiting: Mutex<BTreeMap<u64, Vec<oneshot::Sender<()>>>>,
}

impl Progress {
    /// Every record up to this version is in its cache.
    pub(crate) fn applied(&self) -> Version {
        Version(self.applied.load(Ordering::Acquire))
    }

    /// Says that every record up to `version` is in its cache. Never goes back.
    pub(crate) fn advance(&self, version: Version) {
        // Under the lock, so that nobody begins to wait between the store and the look-up.
        let mut waiting = self.waiting.lock();
        self.applied.fetch_max(version.0, Ordering::AcqRel);
        if waiting.first_key_value().is_none_or(|(wanted, _)| *wanted > version.0) {
            return;
        }
        let later = waiting.split_off(&(version.0 + 1));
        let reached = std::mem::replace(&mut *waiting, later);
        drop(waiting);
        for waiter in reached.into_values().flatten() {
            // One that no longer waits has dropped its end.
            let _ = waiter.send(());
        }
    }

    /// Returns once every record up to `version` is in its cache.
    pub(crate) async fn reach(&self, version: Version) {
        let reached = {
            let mut waiting = self.waiting.lock();
            if self.applied() >= version {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            let waiters = waiting.entry(version.0).or_default();
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push(sender);
            receiver
        };
        // The other end is dropped only with the whole server.
        let _ = reached.await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn waiters_wake_when_their_version_is_reached() {
        let progress = Progress::default();
        progress.reach(Version(0)).await;
        let (two, three) = (progress.reach(Version(2)), progress.reach(Version(3)));
        tokio::pin!(two, three);
        assert!(two.as_mut().now_or_never().is_none());
        assert!(three.as_mut().now_or_never().is_none());
        progress.advance(Version(1));
        assert!(two.as_mut().now_or_never().is_none());
        progress.advance(Version(2));
        assert!(two.as_mut().now_or_never().is_some());
        assert!(three.as_mut().now_or_never().is_none());
        progress.advance(Version(9));
        assert!(three.as_mut().now_or_never().is_some());
        progress.advance(Version(4));
        assert_eq!(progress.applied(), Version(9));
    }
}
