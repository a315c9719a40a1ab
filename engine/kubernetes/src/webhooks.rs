//! Failing webhooks of a cluster, so that all calls of a Run wait for one webhook together.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a webhook may fail before its failure is final. A rolling update of its server takes about as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The shortest and longest pause before a call is repeated.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(5);

/// The webhooks of a cluster that fail, by their names.
#[derive(Debug, Default)]
pub(crate) struct Webhooks(Mutex<HashMap<String, Failing>>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    last: Instant,
}

impl Webhooks {
    /// Records the failure of a call by a webhook, whose first try started at `began`. Returns the pause before the
    /// next try, or `None` once the webhook has failed for [`PATIENCE`].
    pub(crate) fn pause(&self, webhook: &str, began: Instant) -> Option<Duration> {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = known.entry(webhook.to_owned()).or_insert(Failing { since: began, last: now });
        if failing.last.elapsed() > PATIENCE {
            // No call failed for so long: it worked meanwhile.
            failing.since = began;
        }
        failing.last = now;
        let took = failing.since.elapsed();
        (took < PATIENCE).then(|| (took / 4).clamp(*PAUSES.start(), *PAUSES.end()).min(PATIENCE - took))
    }

    /// Notes that a webhook answered a call that it had failed before: its next failure has [`PATIENCE`] again.
    pub(crate) fn recovered(&self, webhook: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(webhook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_a_failing_webhook_together() {
        let webhooks = Webhooks::default();
        let began = Instant::now();
        while let Some(pause) = webhooks.pause("a", began) {
            tokio::time::advance(pause).await;
        }
        assert_eq!(began.elapsed(), PATIENCE);
        assert_eq!(webhooks.pause("a", Instant::now()), None, "a later call does not wait again");
        assert!(webhooks.pause("b", Instant::now()).is_some());
        tokio::time::advance(PATIENCE * 2).await;
        assert!(webhooks.pause("a", Instant::now()).is_some(), "it worked meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_webhook_has_same_timeout() {
        let webhooks = Webhooks::default();
        let began = Instant::now();
        tokio::time::advance(PATIENCE).await;
        assert_eq!(webhooks.pause("a", began), None);
    }
}
