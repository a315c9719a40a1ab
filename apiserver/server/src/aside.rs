//! Work on large documents of runs, on threads of its own and on only so much at once.
//!
//! The threads of the runtime renew leases and answer everybody, within seconds; what parses or seals megabytes must not keep
//! them. What clients ask for has its own room (`rooms`), so that no run waits for them.

use std::{
    future::pending,
    panic::resume_unwind,
    sync::{Arc, LazyLock},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinHandle, spawn_blocking},
};

/// Smaller documents are worked on where they are, in bytes: it takes less than to wait for a thread behind others.
pub(crate) const SMALL: usize = 64 << 10;
/// How much is worked on at once, in MiB of documents: the largest Spec there may be. Decoded, and made anew, they take some 15
/// times as much.
const AT_ONCE: u32 = 64;
/// What each counts at least, in MiB, so that a few threads are at it.
const LEAST: u32 = 8;

static PLACES: LazyLock<Places> = LazyLock::new(|| Places::new(AT_ONCE, LEAST));
/// For what the server reads for itself, and does not work on yet: a Backend may be slow, and runs are not to wait for it.
static READ: LazyLock<Places> = LazyLock::new(|| Places::new(AT_ONCE, 1));

/// Waits for a place for documents of so many bytes that the server reads for itself, which is there until it is dropped. Small ones
/// need none.
pub(crate) async fn place_to_read(bytes: usize) -> Option<OwnedSemaphorePermit> {
    if bytes < SMALL { None } else { Some(READ.take(bytes).await) }
}

/// Does some work on documents of so many bytes without keeping a thread of the runtime for long. Work that has begun goes on
/// when its caller is gone.
pub(crate) async fn aside<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes < SMALL { work() } else { PLACES.work(bytes, work).await }
}

/// Room for what is worked on, in MiB; who comes first gets it first.
struct Places {
    all: u32,
    least: u32,
    free: Arc<Semaphore>,
}

impl Places {
    fn new(all: u32, least: u32) -> Self {
        Self { all, least, free: Arc::new(Semaphore::new(all as usize)) }
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let weight = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX).clamp(self.least, self.all);
        Arc::clone(&self.free).acquire_many_owned(weight).await.expect("nobody closes the semaphore")
    }

    async fn work<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        let place = self.take(bytes).await;
        let work = move || {
            let _place = place;
            work()
        };
        apart(work).await
    }
}

/// Does some work on a thread of its own. It goes on when its caller is gone.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(spawn_blocking(work)).await
}

/// What comes of a task that nobody aborts. Its panic is the caller's.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends before the work began, and the caller with it.
            Err(_) => pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);
    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn large_documents_keep_no_other_task_waiting() {
        let (tell, told) = mpsc::channel();
        // It holds its thread until something else was done, for which there is one thread here.
        let working = aside(SMALL, move || told.recv_timeout(LONG).ok());
        let (done, ()) = tokio::join!(working, async move { tell.send(7).unwrap() });
        assert_eq!(done, Some(7));
    }

    #[tokio::test]
    async fn only_so_much_is_worked_on_at_once() {
        let places = Places::new(32, 16);
        let (tell, told) = mpsc::channel::<()>();
        let endless = move || told.recv_timeout(LONG).is_err();
        timeout(SHORT, places.work(1, endless)).await.unwrap_err();
        assert_eq!(timeout(LONG, places.work(16 * MIB, || 1)).await, Ok(1), "there is room for both");
        let mut large = Box::pin(places.work(16 * MIB + 1, || 2));
        assert!(timeout(SHORT, &mut large).await.is_err(), "though nobody waits for it any more, the first goes on");
        tell.send(()).unwrap();
        assert_eq!(timeout(LONG, large).await, Ok(2));
        assert_eq!(timeout(LONG, places.work(100 * MIB, || 3)).await, Ok(3), "it has all of the room");
    }

    #[tokio::test]
    async fn a_panic_is_the_callers_and_gives_the_room_back() {
        let places = Arc::new(Places::new(16, 16));
        let panicking = Arc::clone(&places);
        let joined = tokio::spawn(async move { panicking.work::<()>(1, || panic!("never mind")).await }).await;
        assert!(joined.unwrap_err().is_panic());
        assert_eq!(timeout(LONG, places.work(1, || 1)).await, Ok(1));
    }
}
