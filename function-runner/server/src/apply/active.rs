//! Keeps two calls from working on one stack in one workspace at the same time.
//!
//! The lease of the API server ensures that between runs. But a caller that lost its stream may return while calls of its first try
//! are still in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The applies in flight, by stack and workspace.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns(Mutex<HashMap<String, Active>>);

#[derive(Clone, Debug)]
struct Active {
    /// Stops it: it begins nothing more.
    stop: CancellationToken,
    /// Set when it has ended.
    ended: CancellationToken,
}

/// An entry among the applies in flight, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    runs: Arc<ActiveRuns>,
    key: String,
    active: Active,
}

impl ActiveRuns {
    /// Stops the apply that works on the key, and enters after its end. Its caller is the same
    /// one, or has lost its lease.
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
    /// Set when another apply waits for this one.
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
    async fn second_call_stops_and_awaits_the_first() {
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
