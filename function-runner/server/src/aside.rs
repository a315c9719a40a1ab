//! Work that may take the processor for long, on threads of its own.
//!
//! The threads of the runtime tell servers that applies go on, within seconds; nothing else may keep them.

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::failure::Failure;

/// Does some work where nobody waits for it but its caller, however long it computes between two awaits. Once the caller is
/// gone, it ends at the next of them.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let gone = CancellationToken::new();
    let _caller = gone.clone().drop_guard();
    let (runtime, work) = (Handle::current(), work.in_current_span());
    let done = tokio::task::spawn_blocking(move || runtime.block_on(gone.run_until_cancelled(work)));
    match done.await {
        Ok(Some(done)) => done,
        Ok(None) => Err(Failure::internal(&"what is done aside has ended before its caller went")),
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
    async fn what_computes_for_long_keeps_no_other_task_waiting() {
        let (tell, told) = mpsc::channel();
        // It holds its thread until something else was done, for which there is one thread here.
        let computing = aside(async move { told.recv_timeout(LONG).map_err(|err| Failure::internal(&err)) });
        let (computed, ()) = tokio::join!(computing, async move { tell.send(7).unwrap() });
        assert_eq!(computed.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_ends_and_gives_its_place_back() {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let endless = aside(async move {
            let _place = place;
            std::future::pending::<Result<(), Failure>>().await
        });
        tokio::time::timeout(Duration::from_millis(20), endless).await.unwrap_err();
        drop(tokio::time::timeout(LONG, places.acquire()).await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn a_panic_is_told_as_an_error_of_ours() {
        let failure = aside::<()>(async { panic!("never mind") }).await.unwrap_err();
        assert!(failure.is_internal());
    }
}
