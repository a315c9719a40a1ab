//! For how long calls may be under way.
//!
//! Whoever has a run carried out may stop hearing of it, presume whoever does it dead, and let somebody else go on. What
//! was presumed dead may only be slow, cut off or suspended. So it works under a [`Grant`] of time that has to be
//! extended again and again: once it is over nothing is begun, and a call that is under way is dropped. Whoever granted
//! it waits as long before somebody else begins.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::RuntimeError;

/// Until when calls may be under way. Clones share it.
///
/// It is told by a clock that only runs on, and never by what a timer says alone: a process that was suspended finds out
/// before it does anything else. A grant that anybody found to be over stays so, however it is extended later.
#[derive(Clone, Debug)]
pub struct Grant(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Without an end where nobody else could go on.
    until: Option<Instant>,
    is_over: bool,
}

/// The grant is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time that was granted for calls is over")]
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

    /// Whether anybody found it to be over.
    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// How long it lasts, as far as is known now; nothing where it has no end.
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

    /// Does some work and drops it when the grant is over. It is looked at before every step of the work, which so does
    /// nothing more once it is over, however long the process was suspended.
    ///
    /// # Errors
    ///
    /// [`Lapsed`] when the work was dropped.
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
    async fn work_goes_on_while_the_grant_is_extended_and_is_dropped_when_it_is_not() {
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
    async fn work_that_is_ready_is_not_polled_after_the_end() {
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
    async fn what_remains_is_told_until_it_is_found_to_be_over() {
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
    async fn nothing_begins_without_a_grant_and_all_ends_with_an_unlimited_one() {
        let grant = Grant::until(Instant::now());
        assert_eq!(grant.during(async { panic!("it was polled") }).await, Err(Lapsed));
        assert!(grant.is_over());
        assert_eq!(Grant::unlimited().during(tokio::time::sleep(1_000 * SECOND)).await, Ok(()));
    }
}
