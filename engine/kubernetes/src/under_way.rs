//! What is under way in a cluster, such as requests to it, so that whoever waits can be told what for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What one run waits for in one cluster. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    /// When each began, and what it is, in their order.
    began: BTreeMap<u64, (Instant, String)>,
    next: u64,
}

/// Something that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    all: UnderWay,
    number: u64,
}

impl UnderWay {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something begins.
    pub(crate) fn begin(&self, what: String) -> Asked {
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        all.began.insert(number, (Instant::now(), what));
        drop(all);
        Asked { all: self.clone(), number }
    }

    /// What has taken longest, if it has taken so long.
    pub(crate) fn for_longer_than(&self, long: Duration) -> Option<String> {
        let all = self.all();
        let (began, what) = all.began.values().next()?;
        (began.elapsed() >= long).then(|| what.clone())
    }
}

impl Asked {
    /// Says what it is by now.
    pub(crate) fn say(&self, what: String) {
        if let Some((_, said)) = self.all.all().began.get_mut(&self.number) {
            *said = what;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.all.all().began.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(4);

    #[tokio::test(start_paused = true)]
    async fn the_first_that_takes_long_is_told_until_it_is_over() {
        let all = UnderWay::default();
        let slow = || all.for_longer_than(LONG);
        let first = all.begin("first".to_owned());
        tokio::time::sleep(LONG / 2).await;
        let second = all.begin("second".to_owned());
        assert_eq!(slow(), None);
        tokio::time::sleep(LONG / 2).await;
        assert_eq!(slow().as_deref(), Some("first"));
        first.say("first, still".to_owned());
        assert_eq!(slow().as_deref(), Some("first, still"));
        drop(first);
        assert_eq!(slow(), None);
        tokio::time::sleep(LONG / 2).await;
        assert_eq!(slow().as_deref(), Some("second"));
        drop(second);
        assert_eq!(slow(), None);
    }
}
