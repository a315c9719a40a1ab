//! Claims: at most one writer of a revision's refs at a time, in this process.
//!
//! Writers of other replicas are not excluded. Git's expected commits reject the later one of two.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use stoa_controller::object::ObjectKey;
use stoa_machinery::ApiError;
use tokio::{sync::Notify, time::Instant};

/// How long a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a claim lasts after its push, so that the log has the outcome before somebody else looks.
const LINGER: Duration = Duration::from_secs(3);

/// How long a push is remembered after its claim, so that a slow synchronization still sees it.
const MEMORY: Duration = Duration::from_secs(600);

/// The claims of revisions, and the times of their last pushes.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    holders: Mutex<HashMap<ObjectKey, Hold>>,
    released: Notify,
}

#[derive(Clone, Copy, Debug)]
enum Hold {
    /// A writer is at work.
    Active,
    /// A writer has pushed; others may go on at this time.
    Until(Instant),
}

/// The claim of a writer; released when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    key: ObjectKey,
    lingers: bool,
}

impl Claims {
    /// Claims a revision that has no claim.
    pub(crate) fn take(self: &Arc<Self>, key: &ObjectKey) -> Option<Claim> {
        let mut holders = self.holders.lock();
        match holders.get(key) {
            Some(Hold::Active) => return None,
            Some(Hold::Until(until)) if *until > Instant::now() => return None,
            Some(Hold::Until(_)) | None => {}
        }
        holders.insert(key.clone(), Hold::Active);
        Some(Claim { claims: self.clone(), key: key.clone(), lingers: false })
    }

    /// Claims a revision after its other claims have ended.
    ///
    /// # Errors
    ///
    /// 409 where another writer takes too long.
    pub(crate) async fn wait(self: &Arc<Self>, key: &ObjectKey) -> Result<Claim, ApiError> {
        let end = Instant::now() + PATIENCE;
        loop {
            let released = self.released.notified();
            if let Some(claim) = self.take_over(key) {
                return Ok(claim);
            }
            if tokio::time::timeout_at(end, released).await.is_err() {
                let why = "another push of this package revision is in progress; retry later";
                return Err(ApiError::conflict("porch.kpt.dev", "packagerevisions", &key.1, why));
            }
        }
    }

    /// As [`take`](Self::take), also within the time after the last push.
    fn take_over(self: &Arc<Self>, key: &ObjectKey) -> Option<Claim> {
        let mut holders = self.holders.lock();
        if matches!(holders.get(key), Some(Hold::Active)) {
            return None;
        }
        holders.insert(key.clone(), Hold::Active);
        Some(Claim { claims: self.clone(), key: key.clone(), lingers: false })
    }

    /// Whether a revision was claimed at a time, or is now.
    pub(crate) fn was_claimed_since(&self, key: &ObjectKey, since: Instant) -> bool {
        match self.holders.lock().get(key) {
            Some(Hold::Active) => true,
            Some(Hold::Until(until)) => *until > since,
            None => false,
        }
    }
}

impl Claim {
    /// Keeps others away for a moment after the claim ends.
    pub(crate) fn linger(mut self) {
        self.lingers = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let now = Instant::now();
        {
            let mut holders = self.claims.holders.lock();
            holders.retain(|_, hold| !matches!(hold, Hold::Until(until) if *until + MEMORY < now));
            if self.lingers {
                holders.insert(self.key.clone(), Hold::Until(now + LINGER));
            } else {
                holders.remove(&self.key);
            }
        }
        self.claims.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ("shop".to_owned(), "blueprints.basens.v1".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn second_writer_waits_for_the_first() {
        let claims = Arc::<Claims>::default();
        let first = claims.take(&key()).unwrap();
        assert!(claims.take(&key()).is_none());
        let waiting = tokio::spawn({
            let claims = claims.clone();
            async move { claims.wait(&key()).await.is_ok() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap());
        assert!(claims.take(&key()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn claim_lingers_after_a_push() {
        let claims = Arc::<Claims>::default();
        let began = Instant::now();
        claims.take(&key()).unwrap().linger();
        assert!(claims.take(&key()).is_none() && claims.was_claimed_since(&key(), began));
        tokio::time::advance(LINGER).await;
        assert!(claims.take(&key()).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn push_is_remembered_for_a_slow_synchronization() {
        let claims = Arc::<Claims>::default();
        let began = Instant::now();
        claims.take(&key()).unwrap().linger();
        tokio::time::advance(Duration::from_secs(240)).await;
        // The end of a claim forgets old pushes.
        drop(claims.take(&("shop".to_owned(), "blueprints.basens.v2".to_owned())).unwrap());
        assert!(claims.was_claimed_since(&key(), began));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_writer_gives_up() {
        let claims = Arc::<Claims>::default();
        let _first = claims.take(&key()).unwrap();
        assert_eq!(claims.wait(&key()).await.unwrap_err().code(), 409);
    }
}
