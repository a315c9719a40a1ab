//! Permits: how many resources of a walk are called at once.
//!
//! A resource that only waits, such as for finalizers or for a definition to be established, returns its permit
//! meanwhile.

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
    /// The number of permits that their holders returned for now.
    released: AtomicUsize,
    /// Told when that grows.
    wait_for_release: Notify,
}

/// One resource's permit, until it is done with.
#[derive(Debug)]
pub(crate) struct Permit {
    all: Permits,
    /// `None` while it is released.
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Permits {
    pub(crate) fn new(permits: usize) -> Self {
        let (released, wait_for_release) = Default::default();
        Self(Arc::new(All { free: Arc::new(Semaphore::new(permits)), released, wait_for_release }))
    }

    /// Waits for a permit behind all who wait already.
    pub(crate) async fn next(&self) -> Permit {
        let held = Mutex::new(Some(self.free().await));
        Permit { all: self.clone(), held }
    }

    async fn free(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.0.free).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// The number of unfinished resources without a permit.
    pub(crate) fn released(&self) -> usize {
        self.0.released.load(Ordering::SeqCst)
    }

    /// Waits until a permit is released. May be dropped and called again.
    pub(crate) async fn wait_for_release(&self) {
        self.0.wait_for_release.notified().await;
    }
}

impl Permit {
    /// Returns the permit while no call is made.
    pub(crate) fn release(&self) {
        if self.held.lock().take().is_some() {
            self.all.0.released.fetch_add(1, Ordering::SeqCst);
            self.all.0.wait_for_release.notify_one();
        }
    }

    /// Waits for a permit again after [`release`](Self::release).
    pub(crate) async fn reacquire(&self) {
        if self.held.lock().is_some() {
            return;
        }
        let free = self.all.free().await;
        *self.held.lock() = Some(free);
        self.all.0.released.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.held.get_mut().is_none() {
            self.all.0.released.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn returned_permit_goes_to_another_caller() {
        let permits = Permits::new(1);
        let first = permits.next().await;
        assert!(permits.next().now_or_never().is_none() && permits.wait_for_release().now_or_never().is_none());
        first.release();
        first.release();
        assert_eq!((permits.released(), permits.wait_for_release().now_or_never()), (1, Some(())));
        let second = permits.next().await;
        assert!(first.reacquire().now_or_never().is_none(), "another has it");
        assert_eq!(permits.released(), 1);
        drop(second);
        first.reacquire().await;
        assert!(permits.released() == 0 && permits.next().now_or_never().is_none());
        // Whoever ends without it takes none along, nor leaves one.
        first.release();
        drop(first);
        assert_eq!((permits.released(), permits.0.free.available_permits()), (0, 1));
    }
}
