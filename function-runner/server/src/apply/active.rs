//! Keeps two calls from working on one stack in one workspace at the same time.
//!
//! The API server's lease sees to that between runs. But a caller that lost its stream may come
//! back while the calls that its first try had in flight are still being finished.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The applies in flight, by stack and workspace.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns(Mutex<HashMap<String, Active>>);

#[derive(Clone, Debug)]
struct Active {
    /// Tells it to begin nothing more.
    stop: CancellationToken,
    /// Set when it has ended.
    ended: CancellationToken,
}

/// A place among the applies in flight, given up when dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    runs: Arc<ActiveRuns>,
    key: String,
    active: Active,
}

impl ActiveRuns {
    /// Takes the place of whoever works on the key, when that has ended. It is told to stop, since
    /// its caller is the same one, or has lost its lease.
    pub(crate) async fn enter(self: &Arc<Self>, key: String) -> Entered {
        let active = Active { stop: CancellationToken::new(), ended: CancellationToken::new() };
        loop {
            let before = {
                let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                match runs.get(&key) {
                    Some(before) => before.clone(),
                    None => {
                        runs.insert(key.clone(), active.clone());
                        return Entered { runs: Arc::clone(self), key, active };
                    }
                }
            };
            before.stop.cancel();
            before.ended.cancelled().await;
        }
    }
}

impl Entered {
    /// Set when somebody else wants the place.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.active.stop
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.runs.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.active.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_call_waits_for_the_first_and_stops_it() {
        let runs = Arc::new(ActiveRuns::default());
        let first = runs.enter("a".to_owned()).await;
        let other = runs.enter("b".to_owned()).await;
        let second = tokio::spawn({
            let runs = Arc::clone(&runs);
            async move { runs.enter("a".to_owned()).await }
        });
        first.stop().cancelled().await;
        assert!(!second.is_finished());
        drop(first);
        let second = second.await.unwrap();
        assert!(!second.stop().is_cancelled() && !other.stop().is_cancelled());
    }
}
