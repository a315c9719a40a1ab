//! The requests that are under way to a cluster, so that whoever waits can be told what for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer may take that is not worth a word.
const SLOW: Duration = Duration::from_secs(4);

/// The requests of one run to one cluster. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<Mutex<Requests>>);

#[derive(Debug, Default)]
struct Requests {
    /// When each began, and what it is, in their order.
    began: BTreeMap<u64, (Instant, String)>,
    next: u64,
}

/// A request that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Asked {
    all: UnderWay,
    number: u64,
}

impl UnderWay {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request begins.
    pub(crate) fn begin(&self, what: String) -> Asked {
        let mut requests = self.requests();
        let number = requests.next;
        requests.next += 1;
        requests.began.insert(number, (Instant::now(), what));
        drop(requests);
        Asked { all: self.clone(), number }
    }

    /// The one that has waited for longest, if that is long.
    pub(crate) fn slow(&self) -> Option<String> {
        let requests = self.requests();
        let (began, what) = requests.began.values().next()?;
        (began.elapsed() >= SLOW).then(|| what.clone())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.all.requests().began.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_that_is_slow_is_told_until_it_is_answered() {
        let all = UnderWay::default();
        let first = all.begin("first".to_owned());
        tokio::time::sleep(SLOW / 2).await;
        let second = all.begin("second".to_owned());
        assert_eq!(all.slow(), None);
        tokio::time::sleep(SLOW / 2).await;
        assert_eq!(all.slow().as_deref(), Some("first"));
        drop(first);
        assert_eq!(all.slow(), None);
        tokio::time::sleep(SLOW / 2).await;
        assert_eq!(all.slow().as_deref(), Some("second"));
        drop(second);
        assert_eq!(all.slow(), None);
    }
}
