//! The version that all caches have reached, and the wait for a later one.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use stoa_log::Version;
use tokio::sync::oneshot;

/// One version for all resources of a server, since they share one log.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    applied: AtomicU64,
    waiting: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    /// By the version that is waited for, and a number of their own.
    waiters: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    next: u64,
}

/// The place of one that waits; given up when dropped.
struct WaiterGuard<'a> {
    progress: &'a Progress,
    /// Nothing once its version is reached.
    at: Option<(u64, u64)>,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            let _waiter = self.progress.waiting.lock().waiters.remove(&at);
        }
    }
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
        if waiting.waiters.first_key_value().is_none_or(|((wanted, _), _)| *wanted > version.0) {
            return;
        }
        let later = waiting.waiters.split_off(&(version.0 + 1, 0));
        let reached = std::mem::replace(&mut waiting.waiters, later);
        drop(waiting);
        for waiter in reached.into_values() {
            // One that no longer waits has dropped its end.
            let _ = waiter.send(());
        }
    }

    /// Returns once every record up to `version` is in its cache.
    pub(crate) async fn reach(&self, version: Version) {
        let (reached, mut place) = {
            let mut waiting = self.waiting.lock();
            if self.applied() >= version {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            let at = (version.0, waiting.next);
            waiting.next += 1;
            waiting.waiters.insert(at, sender);
            (receiver, WaiterGuard { progress: self, at: Some(at) })
        };
        // The other end is dropped only with the whole server.
        let _ = reached.await;
        place.at = None;
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

    #[test]
    fn nothing_is_left_of_those_that_gave_up() {
        let progress = Progress::default();
        let one = progress.reach(Version(7));
        tokio::pin!(one);
        assert!(one.as_mut().now_or_never().is_none());
        for version in 1..=1000 {
            assert!(progress.reach(Version(version)).now_or_never().is_none());
        }
        assert_eq!(progress.waiting.lock().waiters.len(), 1);
        progress.advance(Version(7));
        assert!(one.now_or_never().is_some());
        assert!(progress.waiting.lock().waiters.is_empty());
    }
}
