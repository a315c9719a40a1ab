//! A health check that concurrent callers share.
//!
//! Readiness needs no credentials, and anybody may ask for it at any rate; the check itself asks another system.
//!
//! Start at [`Recent`].

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use stoa_machinery::serve::HealthCheck;
use tokio::{sync::watch, time::Instant};

/// For how long what was found is told without another look.
const FRESH: Duration = Duration::from_secs(1);

/// What a look finds.
type Found = Result<(), String>;

/// A check of which one look is under way at a time, and is told for [`FRESH`] after its end.
pub(super) struct Recent<C>(Arc<Looks<C>>);

struct Looks<C> {
    check: C,
    last: Mutex<Last>,
}

/// The last look.
#[derive(Default)]
enum Last {
    #[default]
    None,
    /// It is under way, and tells all who wait for it.
    Begun(watch::Receiver<Option<Found>>),
    /// It ended then.
    Ended(Instant, Found),
}

impl<C: HealthCheck> Recent<C> {
    pub(super) fn new(check: C) -> Self {
        Self(Arc::new(Looks { check, last: Mutex::default() }))
    }

    /// What was found just now, or who tells what is found.
    fn latest(&self) -> Result<Found, watch::Receiver<Option<Found>>> {
        let mut last = self.0.last.lock();
        match &*last {
            Last::Ended(ended, found) if ended.elapsed() < FRESH => Ok(found.clone()),
            Last::Begun(told) => Err(told.clone()),
            Last::Ended(..) | Last::None => {
                let (tell, told) = watch::channel(None);
                *last = Last::Begun(told.clone());
                // A task of its own: if whoever asked hangs up, the look goes on, and the next need not begin another.
                tokio::spawn(Arc::clone(&self.0).look(tell));
                Err(told)
            }
        }
    }
}

impl<C: HealthCheck> Looks<C> {
    async fn look(self: Arc<Self>, tell: watch::Sender<Option<Found>>) {
        let found = AssertUnwindSafe(self.check.check()).catch_unwind().await;
        let found = found.unwrap_or_else(|_| Err("the check panicked".to_owned()));
        *self.last.lock() = Last::Ended(Instant::now(), found.clone());
        tell.send_replace(Some(found));
    }
}

#[async_trait]
impl<C: HealthCheck> HealthCheck for Recent<C> {
    async fn check(&self) -> Found {
        let mut told = match self.latest() {
            Ok(found) => return found,
            Err(told) => told,
        };
        match told.wait_for(Option::is_some).await {
            Ok(found) => found.clone().expect("it was waited for"),
            Err(_) => Err("the server ends".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use futures_util::poll;
    use tokio::sync::Semaphore;

    use super::*;

    /// Tells how often it was asked, once it is let.
    #[derive(Default)]
    struct Counted {
        looks: AtomicU32,
        gate: Option<Semaphore>,
    }

    #[async_trait]
    impl HealthCheck for Counted {
        async fn check(&self) -> Result<(), String> {
            let number = self.looks.fetch_add(1, SeqCst) + 1;
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            Err(format!("look {number}"))
        }
    }

    fn look(number: u32) -> Result<(), String> {
        Err(format!("look {number}"))
    }

    #[tokio::test]
    async fn concurrent_checks_share_one_probe_despite_disconnect() {
        let gate = Some(Semaphore::new(0));
        let recent = Recent::new(Counted { gate, ..Counted::default() });
        let counted = &recent.0.check;
        let mut first = recent.check();
        assert!(poll!(&mut first).is_pending());
        while counted.looks.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(first);
        for _ in 0..10 {
            assert!(poll!(recent.check()).is_pending());
        }
        assert_eq!(Arc::strong_count(&recent.0), 2, "of those who hung up nothing is left but the look");
        let mut others: Vec<_> = (0..10).map(|_| recent.check()).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        counted.gate.as_ref().unwrap().add_permits(100);
        for other in others {
            assert_eq!(other.await, look(1));
        }
    }

    /// Panics the first time.
    struct Panicking(AtomicU32);

    #[async_trait]
    impl HealthCheck for Panicking {
        async fn check(&self) -> Result<(), String> {
            assert!(self.0.fetch_add(1, SeqCst) > 0, "as asked for");
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_panics_is_one_that_failed() {
        let recent = Recent::new(Panicking(AtomicU32::new(0)));
        assert_eq!(recent.check().await, Err("the check panicked".to_owned()));
        tokio::time::advance(FRESH).await;
        assert_eq!(recent.check().await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_told_for_a_second() {
        let recent = Recent::new(Counted::default());
        assert_eq!(recent.check().await, look(1));
        tokio::time::advance(FRESH - Duration::from_millis(1)).await;
        assert_eq!(recent.check().await, look(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(recent.check().await, look(2));
    }
}
