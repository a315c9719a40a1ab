//! How many resources of a walk are called for at once.
//!
//! What takes long is mostly to wait: for an object to be gone that finalizers hold, or for a definition to be established.
//! Nothing is called for meanwhile, so that others have the permit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The permits of a walk. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Permits(Arc<All>);

#[derive(Debug)]
struct All {
    free: Arc<Semaphore>,
    /// How many are given back by whoever goes on later.
    given_back: AtomicUsize,
    /// Told when that grows.
    one_given_back: Notify,
}

/// One resource's permit, until it is done with.
#[derive(Debug)]
pub(crate) struct Permit {
    all: Permits,
    /// Nothing while it is given back.
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Permits {
    pub(crate) fn new(permits: usize) -> Self {
        let (given_back, one_given_back) = Default::default();
        Self(Arc::new(All { free: Arc::new(Semaphore::new(permits)), given_back, one_given_back }))
    }

    /// Waits for a permit behind all who wait already.
    pub(crate) async fn next(&self) -> Permit {
        let held = Mutex::new(Some(self.free().await));
        Permit { all: self.clone(), held }
    }

    async fn free(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.0.free).acquire_owned().await.expect("nobody closes the semaphore")
    }

    /// How many resources are not done with, and have no permit for now.
    pub(crate) fn given_back(&self) -> usize {
        self.0.given_back.load(Ordering::SeqCst)
    }

    /// Waits until one more is given back than when this ended last. May be dropped and called again.
    pub(crate) async fn one_given_back(&self) {
        self.0.one_given_back.notified().await;
    }
}

impl Permit {
    /// Lets others have it while nothing is called for.
    pub(crate) fn give_back(&self) {
        if self.held.lock().take().is_some() {
            self.all.0.given_back.fetch_add(1, Ordering::SeqCst);
            self.all.0.one_given_back.notify_one();
        }
    }

    /// Waits for one again, where it was given back.
    pub(crate) async fn take_again(&self) {
        if self.held.lock().is_some() {
            return;
        }
        let free = self.all.free().await;
        *self.held.lock() = Some(free);
        self.all.0.given_back.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.held.get_mut().is_none() {
            self.all.0.given_back.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_given_back_is_had_by_others_until_it_is_taken_again() {
        let permits = Permits::new(1);
        let first = permits.next().await;
        assert!(permits.next().now_or_never().is_none() && permits.one_given_back().now_or_never().is_none());
        first.give_back();
        first.give_back();
        assert_eq!((permits.given_back(), permits.one_given_back().now_or_never()), (1, Some(())));
        let second = permits.next().await;
        assert!(first.take_again().now_or_never().is_none(), "another has it");
        assert_eq!(permits.given_back(), 1);
        drop(second);
        first.take_again().await;
        assert!(permits.given_back() == 0 && permits.next().now_or_never().is_none());
        // Whoever ends without it takes none along, nor leaves one.
        first.give_back();
        drop(first);
        assert_eq!((permits.given_back(), permits.0.free.available_permits()), (0, 1));
    }
}
