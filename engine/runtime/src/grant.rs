//! The call lease: how long a runner may make calls.
//!
//! The server may lose its runner, presume it dead, and let another one continue. The runner may only be slow,
//! partitioned or suspended. Therefore it works under a [`Grant`] that has to be renewed. After the grant expires, no
//! call starts, and calls in flight are dropped. The server waits for the expiry before another runner starts.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::RuntimeError;

/// The lease for calls. Clones share it.
///
/// A monotonic clock decides, never a timer alone: a suspended process finds out before it does anything else. A lease
/// that was found expired stays so, even if it is renewed later.
#[derive(Clone, Debug)]
pub struct Grant(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// `None` where no other runner could continue.
    until: Option<Instant>,
    is_over: bool,
}

/// The grant is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call lease has expired")]
pub struct Lapsed;

impl From<Lapsed> for RuntimeError {
    /// Nobody knows what became of a call that was cut off.
    fn from(lapsed: Lapsed) -> Self {
        Self::Unavailable { message: lapsed.to_string() }
    }
}

impl Grant {
    /// A grant without an end.
    pub fn unlimited() -> Self {
        Self::of(None)
    }

    /// A grant until then.
    pub fn until(end: Instant) -> Self {
        Self::of(Some(end))
    }

    fn of(until: Option<Instant>) -> Self {
        Self(Arc::new(Mutex::new(State { until, is_over: false })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets calls be under way until then, unless they may for longer already.
    pub fn extend(&self, end: Instant) {
        let mut state = self.lock();
        state.until = state.until.map(|until| until.max(end));
    }

    /// Whether it was found expired.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The remaining time; `None` without an end.
    pub fn remaining(&self) -> Option<Duration> {
        let state = self.lock();
        let remaining = state.until.map(|until| until.saturating_duration_since(Instant::now()));
        if state.is_over { Some(Duration::ZERO) } else { remaining }
    }

    /// Asked right before something is changed.
    ///
    /// # Errors
    ///
    /// [`Lapsed`] when it may not be; it is over for good then.
    pub fn check(&self) -> Result<(), Lapsed> {
        let mut state = self.lock();
        state.is_over |= state.until.is_some_and(|until| Instant::now() >= until);
        if state.is_over { Err(Lapsed) } else { Ok(()) }
    }

    /// Runs some work and drops it when the lease expires. The lease is checked before each poll, so that a suspended
    /// process makes no further step.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Result<T, Lapsed> {
        let mut work = pin!(work);
        let mut timer = pin!(tokio::time::sleep_until(Instant::now()));
        std::future::poll_fn(|cx| {
            if let Err(lapsed) = self.check() {
                return Poll::Ready(Err(lapsed));
            }
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            loop {
                let Some(until) = self.lock().until else { return Poll::Pending };
                if timer.deadline() != until {
                    timer.as_mut().reset(until);
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // It may have been extended since the timer was set.
                if let Err(lapsed) = self.check() {
                    return Poll::Ready(Err(lapsed));
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn work_runs_while_lease_is_renewed() {
        let start = Instant::now();
        let grant = Grant::until(start + SECOND);
        let (work, ()) = tokio::join!(grant.during(std::future::pending::<()>()), async {
            for _ in 0..10 {
                tokio::time::sleep(SECOND / 2).await;
                grant.extend(Instant::now() + SECOND);
            }
            grant.extend(start);
        });
        assert_eq!((work, start.elapsed().as_secs()), (Err(Lapsed), 6));
        grant.extend(Instant::now() + SECOND);
        assert_eq!(grant.check(), Err(Lapsed), "it was found to be over");
    }

    #[tokio::test(start_paused = true)]
    async fn ready_work_is_not_polled_after_expiry() {
        let grant = Grant::until(Instant::now() + SECOND);
        let polled = AtomicU32::new(0);
        let mut work = pin!(grant.during(std::future::poll_fn(|_| match polled.fetch_add(1, Relaxed) {
            0 => Poll::Pending,
            _ => Poll::Ready(()),
        })));
        assert!(futures_util::poll!(&mut work).is_pending());
        // As after SIGSTOP: nothing of this process ran, and time went on.
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(work.await, Err(Lapsed));
        assert_eq!(polled.load(Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn remaining_time_is_reported_until_expiry() {
        let grant = Grant::until(Instant::now() + 2 * SECOND);
        tokio::time::advance(SECOND).await;
        assert_eq!(grant.remaining(), Some(SECOND));
        tokio::time::advance(2 * SECOND).await;
        assert_eq!(grant.remaining(), Some(Duration::ZERO));
        grant.check().unwrap_err();
        grant.extend(Instant::now() + SECOND);
        assert_eq!(grant.remaining(), Some(Duration::ZERO), "it is over for good");
        assert_eq!(Grant::unlimited().remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn expired_lease_starts_nothing() {
        let grant = Grant::until(Instant::now());
        assert_eq!(grant.during(async { panic!("it was polled") }).await, Err(Lapsed));
        assert!(grant.is_over());
        assert_eq!(Grant::unlimited().during(tokio::time::sleep(1_000 * SECOND)).await, Ok(()));
    }
}
