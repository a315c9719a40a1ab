//! A health check that is made once for all who ask at a time.
//!
//! Anybody may ask whether a server is ready, without credentials, and as often as they like; what is asked for it is
//! somebody else's.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use stoa_machinery::serve::HealthCheck;
use tokio::{sync::Mutex, time::Instant};

/// For how long what was found is told without another look.
const FRESH: Duration = Duration::from_secs(1);

/// A check of which one look is under way at a time, and is told for [`FRESH`] after its end.
pub(super) struct Recent<C>(Arc<Looks<C>>);

struct Looks<C> {
    check: C,
    /// When the last one ended, and what it found.
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl<C: HealthCheck> Recent<C> {
    pub(super) fn new(check: C) -> Self {
        Self(Arc::new(Looks { check, last: Mutex::new(None) }))
    }
}

impl<C: HealthCheck> Looks<C> {
    async fn look(&self) -> Result<(), String> {
        let mut last = self.last.lock().await;
        if let Some((ended, found)) = &*last
            && ended.elapsed() < FRESH
        {
            return found.clone();
        }
        let found = self.check.check().await;
        *last = Some((Instant::now(), found.clone()));
        found
    }
}

#[async_trait]
impl<C: HealthCheck> HealthCheck for Recent<C> {
    async fn check(&self) -> Result<(), String> {
        let looks = Arc::clone(&self.0);
        // A task of its own: if whoever asked hangs up, the look goes on, and the next need not begin another.
        let looking = tokio::spawn(async move { looks.look().await });
        looking.await.unwrap_or_else(|error| Err(error.to_string()))
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
    async fn many_who_ask_share_one_look_though_the_first_hangs_up() {
        let gate = Some(Semaphore::new(0));
        let recent = Recent::new(Counted { gate, ..Counted::default() });
        let counted = &recent.0.check;
        let mut first = recent.check();
        assert!(poll!(&mut first).is_pending());
        while counted.looks.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        drop(first);
        let mut others: Vec<_> = (0..10).map(|_| recent.check()).collect();
        for other in &mut others {
            assert!(poll!(other).is_pending());
        }
        counted.gate.as_ref().unwrap().add_permits(100);
        for other in others {
            assert_eq!(other.await, look(1));
        }
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
