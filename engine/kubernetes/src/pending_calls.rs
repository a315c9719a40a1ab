//! Pending calls to a cluster, so that a waiting Run can report the oldest one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The pending calls of one run to one cluster. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingCalls(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    /// Start and description, in order.
    began: BTreeMap<u64, (Instant, String)>,
    next: u64,
}

/// Something that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingCall {
    all: PendingCalls,
    number: u64,
}

impl PendingCalls {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something begins.
    pub(crate) fn begin(&self, what: String) -> PendingCall {
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        all.began.insert(number, (Instant::now(), what));
        drop(all);
        PendingCall { all: self.clone(), number }
    }

    /// The description of the oldest call, if it takes longer.
    pub(crate) fn longer_than(&self, long: Duration) -> Option<String> {
        let all = self.all();
        let (began, what) = all.began.values().next()?;
        (began.elapsed() >= long).then(|| what.clone())
    }
}

impl PendingCall {
    /// Changes the description.
    pub(crate) fn update(&self, what: String) {
        if let Some((_, said)) = self.all.all().began.get_mut(&self.number) {
            *said = what;
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.all.all().began.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn oldest_slow_call_is_reported() {
        let all = PendingCalls::default();
        let slow = || all.longer_than(LONG);
        let first = all.begin("first".to_owned());
        tokio::time::sleep(LONG / 2).await;
        let second = all.begin("second".to_owned());
        assert_eq!(slow(), None);
        tokio::time::sleep(LONG / 2).await;
        assert_eq!(slow().as_deref(), Some("first"));
        first.update("first, still".to_owned());
        assert_eq!(slow().as_deref(), Some("first, still"));
        drop(first);
        assert_eq!(slow(), None);
        tokio::time::sleep(LONG / 2).await;
        assert_eq!(slow().as_deref(), Some("second"));
        drop(second);
        assert_eq!(slow(), None);
    }
}
