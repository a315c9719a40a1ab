//! Work on large documents of runs, on blocking threads and within a memory budget.
//!
//! The threads of the runtime renew leases and answer requests within seconds. Parsing or sealing megabytes must not block
//! them. Documents that clients ask for have a budget of their own (`memory_budget`), so that no run waits for clients.

use std::{
    future::pending,
    panic::resume_unwind,
    sync::{Arc, LazyLock},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinHandle, spawn_blocking},
};

/// The caller's thread works on smaller documents, in bytes: that takes less time than to wait for a blocking thread.
pub const SMALL: usize = 64 << 10;
/// The budget, in MiB of documents: the largest Spec. Decoded documents take some 15 times as much memory.
const AT_ONCE: u32 = 64;
/// The least that a document counts, in MiB, so that only a few threads work at once.
const LEAST: u32 = 8;

static WORK: LazyLock<Budget> = LazyLock::new(|| Budget::new(AT_ONCE, LEAST));
/// For documents that the server reads for itself, and does not work on yet: a Backend may be slow, and runs are not to wait for it.
static READ: LazyLock<Budget> = LazyLock::new(|| Budget::new(AT_ONCE, 1));

/// Waits for memory for documents of so many bytes that the server reads for itself. Small documents need none.
pub async fn memory_to_read(bytes: usize) -> Option<OwnedSemaphorePermit> {
    if bytes < SMALL { None } else { Some(READ.take(bytes).await) }
}

/// Works on documents of so many bytes without blocking a thread of the runtime. Work that has begun goes on when its caller
/// leaves.
pub async fn run_blocking<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes < SMALL { work() } else { WORK.work(bytes, work).await }
}

/// Memory for documents, in MiB, first come, first served: its users are runs of all namespaces, which share the slots for runs.
struct Budget {
    all: u32,
    least: u32,
    free: Arc<Semaphore>,
}

impl Budget {
    fn new(all: u32, least: u32) -> Self {
        Self { all, least, free: Arc::new(Semaphore::new(all as usize)) }
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let weight = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX).clamp(self.least, self.all);
        Arc::clone(&self.free).acquire_many_owned(weight).await.expect("the semaphore is never closed")
    }

    async fn work<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        let permit = self.take(bytes).await;
        let work = move || {
            let _permit = permit;
            work()
        };
        on_own_thread(work).await
    }
}

/// Works on a blocking thread. The work goes on when its caller leaves.
pub async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(spawn_blocking(work)).await
}

/// The result of a task that nobody aborts. Its panic reaches the caller.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
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
    async fn large_document_delays_no_other_task() {
        let (tell, told) = mpsc::channel();
        // It holds its thread until something else was done, for which there is one thread here.
        let working = run_blocking(SMALL, move || told.recv_timeout(LONG).ok());
        let (done, ()) = tokio::join!(working, async move { tell.send(7).unwrap() });
        assert_eq!(done, Some(7));
    }

    #[tokio::test]
    async fn work_waits_for_its_memory() {
        let budget = Budget::new(32, 16);
        let (tell, told) = mpsc::channel::<()>();
        let endless = move || told.recv_timeout(LONG).is_err();
        timeout(SHORT, budget.work(1, endless)).await.unwrap_err();
        assert_eq!(timeout(LONG, budget.work(16 * MIB, || 1)).await, Ok(1), "there is memory for both");
        let mut large = Box::pin(budget.work(16 * MIB + 1, || 2));
        assert!(timeout(SHORT, &mut large).await.is_err(), "the first goes on without its caller");
        tell.send(()).unwrap();
        assert_eq!(timeout(LONG, large).await, Ok(2));
        assert_eq!(timeout(LONG, budget.work(100 * MIB, || 3)).await, Ok(3), "it takes all of the memory");
    }

    #[tokio::test]
    async fn panic_reaches_the_caller_and_returns_the_memory() {
        let budget = Arc::new(Budget::new(16, 16));
        let panicking = Arc::clone(&budget);
        let joined = tokio::spawn(async move { panicking.work::<()>(1, || panic!("never mind")).await }).await;
        assert!(joined.unwrap_err().is_panic());
        assert_eq!(timeout(LONG, budget.work(1, || 1)).await, Ok(1));
    }
}
