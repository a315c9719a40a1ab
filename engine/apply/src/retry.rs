//! Retries of calls, and the log of errors that they had.

use std::time::Duration;

use parking_lot::Mutex;
use stoa_backoff::{Attempts, Classify as _, Jitter, Policy};
use stoa_engine::Sensitive;
use stoa_runtime::{Finished, Grant, Runtime, RuntimeError};
use tokio_util::sync::CancellationToken;

/// When a call is retried that did not get through.
const RETRIES: Policy = Policy::new(Duration::from_millis(200), Duration::from_secs(10))
    .with_deadline(Duration::from_secs(90))
    .with_jitter(Jitter::HALF);

/// Errors of retried calls.
#[derive(Debug, Default)]
pub(crate) struct RetryLog(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// The last error, or what is waited for.
    error: Option<String>,
    /// Whether a try may have taken effect.
    is_unanswered: bool,
    /// Whether a requested deletion is not complete.
    is_deleting: bool,
}

impl RetryLog {
    /// Records why a call is retried, without sensitive texts. Returns the message.
    pub(crate) fn note(&self, error: &RuntimeError, sensitive: &Sensitive) -> String {
        let said = sensitive.redact(&error.to_string());
        let mut heard = self.0.lock();
        heard.error = Some(said.clone());
        heard.is_unanswered |= error.is_unanswered();
        said
    }

    /// Records what a deletion waits for, or why that cannot be read.
    pub(crate) fn note_deletion(&self, waits_for: String) {
        let mut heard = self.0.lock();
        heard.error = Some(waits_for);
        heard.is_deleting = true;
    }

    /// Records what is waited for.
    pub(crate) fn note_message(&self, message: String) {
        self.0.lock().error = Some(message);
    }

    /// Forgets all of it; the last error.
    pub(crate) fn take(&self) -> Option<String> {
        std::mem::take(&mut *self.0.lock()).error
    }

    /// Whether the call may take effect later, or already has.
    pub(crate) fn is_unanswered(&self) -> bool {
        let heard = self.0.lock();
        heard.is_unanswered || heard.is_deleting
    }

    /// Whether a request may still arrive, apart from a pending deletion.
    pub(crate) fn may_arrive(&self) -> bool {
        self.0.lock().is_unanswered
    }
}

/// The message of a timeout with the last report.
pub(crate) fn timeout_message(message: String, told: &RetryLog) -> String {
    match told.take() {
        Some(error) => format!("{message}; last report: {error}"),
        None => message,
    }
}

/// Why something could not be finished.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// The error of the last try.
    pub(crate) error: RuntimeError,
    /// Whether a try may have taken effect.
    pub(crate) is_unanswered: bool,
}

impl Unfinished {
    /// By the error of the last try: if that did nothing, an earlier one may have been carried out.
    fn of(error: RuntimeError, told: &RetryLog) -> Self {
        // These errors come after a read of the objects.
        let has_looked =
            matches!(error, RuntimeError::Stale(_) | RuntimeError::Owned(_) | RuntimeError::ForeignContents(_));
        let is_unanswered = error.is_unanswered() || (told.is_unanswered() && !has_looked);
        Self { error, is_unanswered }
    }
}

/// Finishes, tried again while that may help and the grant is not over.
pub(crate) async fn finish(
    runtime: &dyn Runtime,
    stop: &CancellationToken,
    grant: &Grant,
) -> Result<Finished, Unfinished> {
    let (sensitive, told) = (Sensitive::default(), RetryLog::default());
    let finished = grant.during(retried(stop, &sensitive, &told, || runtime.finish(grant))).await;
    finished.unwrap_or_else(|lapsed| Err(lapsed.into())).map_err(|error| Unfinished::of(error, &told))
}

/// Repeats a call while its error is retryable and the run is not stopped. The pauses grow, with a random part so that
/// callers spread. An error of a suspended cluster is not retried, since that would delay others.
pub(crate) async fn retried<T, F>(
    stop: &CancellationToken,
    sensitive: &Sensitive,
    told: &RetryLog,
    call: impl Fn() -> F,
) -> Result<T, RuntimeError>
where
    F: Future<Output = Result<T, RuntimeError>>,
{
    let mut attempts = Attempts::new(RETRIES);
    loop {
        let error = match call().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let Some(wait) = attempts.after(&error) else { return Err(error) };
        let said = told.note(&error, sensitive);
        match error.retry_after() {
            Some(_) => tracing::info!(error = said, ?wait, "waiting as long as a server asks to"),
            None => tracing::debug!(error = said, ?wait, "trying again"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::time::Instant;

    use super::*;

    #[test]
    fn earlier_try_may_have_taken_effect() {
        let unread = || RuntimeError::Unread { message: "too late".to_owned() };
        let told = RetryLog::default();
        told.note(&unread(), &Sensitive::default());
        assert!(!Unfinished::of(unread(), &told).is_unanswered);
        told.note(&RuntimeError::Unavailable { message: "no answer".to_owned() }, &Sensitive::default());
        assert!(Unfinished::of(unread(), &told).is_unanswered);
        let stale = Unfinished::of(RuntimeError::Stale("it moved".to_owned()), &told);
        assert!(!stale.is_unanswered, "where it is by then was looked at: {stale:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_delay_is_respected() {
        let limited = || RuntimeError::Limited { message: "slow down".to_owned(), wait: Duration::from_secs(600) };
        let calls = AtomicU32::new(0);
        let call = || {
            let is_let_in = calls.fetch_add(1, SeqCst) == 2;
            async move { if is_let_in { Ok(()) } else { Err(limited()) } }
        };
        let (stop, sensitive, told) = (CancellationToken::new(), Sensitive::default(), RetryLog::default());
        let start = Instant::now();
        retried(&stop, &sensitive, &told, call).await.unwrap();
        assert_eq!((start.elapsed().as_secs(), calls.load(SeqCst)), (1200, 3), "it is not asked before its time");
        // Whoever stops need not wait.
        let start = Instant::now();
        let waiting = retried(&stop, &sensitive, &told, || async { Err::<(), _>(limited()) });
        let stopped = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.cancel();
        };
        let (refused, ()) = tokio::join!(waiting, stopped);
        assert!(matches!(refused, Err(RuntimeError::Limited { .. })) && start.elapsed() < Duration::from_secs(2));
    }
}
