//! Work that may compute for long, on blocking threads.
//!
//! The threads of the runtime send heartbeats of applies to API servers within seconds, so nothing may block them.

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::failure::Failure;

/// Polls a future on a blocking thread, however long it computes between two awaits. When the caller leaves, the future ends at its
/// next await.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let gone = CancellationToken::new();
    let _caller = gone.clone().drop_guard();
    let (runtime, work) = (Handle::current(), work.in_current_span());
    let done = tokio::task::spawn_blocking(move || runtime.block_on(gone.run_until_cancelled(work)));
    match done.await {
        Ok(Some(done)) => done,
        Ok(None) => Err(Failure::internal(&"work on a blocking thread ended before its caller left")),
        Err(err) => Err(Failure::internal(&err)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use tokio::sync::Semaphore;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn long_computation_delays_no_other_task() {
        let (tell, told) = mpsc::channel();
        // It holds its thread until something else was done, for which there is one thread here.
        let computing = run_blocking(async move { told.recv_timeout(LONG).map_err(|err| Failure::internal(&err)) });
        let (computed, ()) = tokio::join!(computing, async move { tell.send(7).unwrap() });
        assert_eq!(computed.unwrap(), 7);
    }

    #[tokio::test]
    async fn work_without_a_caller_ends_and_frees_its_slot() {
        let slots = Arc::new(Semaphore::new(1));
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        let endless = run_blocking(async move {
            let _slot = slot;
            std::future::pending::<Result<(), Failure>>().await
        });
        tokio::time::timeout(Duration::from_millis(20), endless).await.unwrap_err();
        drop(tokio::time::timeout(LONG, slots.acquire()).await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn panic_is_an_internal_error() {
        let failure = run_blocking::<()>(async { panic!("never mind") }).await.unwrap_err();
        assert!(failure.is_internal());
    }
}
