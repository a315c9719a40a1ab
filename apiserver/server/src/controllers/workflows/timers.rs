//! How long ago something was.
//!
//! The clock of the machine may be set while a workflow waits. What it says is taken only for the time before this server
//! first asked; from then on time is measured.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A moment of a workflow: its uid, and what the moment is of.
type Moment = (String, String);

/// When moments were first asked about, and how long ago they were then.
#[derive(Debug, Default)]
pub(super) struct Timers(Mutex<HashMap<Moment, (Timestamp, Instant, Duration)>>);

impl Timers {
    /// How long ago a moment was. One in the future is now.
    pub(super) fn elapsed(&self, uid: &str, of: &str, at: Timestamp, now: Timestamp) -> Duration {
        let mut moments = self.0.lock();
        let asked = || (at, Instant::now(), Duration::try_from(now.duration_since(at)).unwrap_or_default());
        let known = moments.entry((uid.to_owned(), of.to_owned())).or_insert_with(asked);
        if known.0 != at {
            *known = asked();
        }
        known.2 + known.1.elapsed()
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(of, _), _| of != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_change_affects_no_wait() {
        let timers = Timers::default();
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let elapsed = |from: i64, now: i64| timers.elapsed("a", "wave", at(from), at(now)).as_secs();
        assert_eq!(elapsed(0, 60), 60, "what was before this server");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!((elapsed(0, 9_999), elapsed(0, -9_999)), (65, 65));
        assert_eq!(elapsed(3_600, 60), 0, "another moment, which is in the future");
        timers.forget("a");
        assert!(timers.0.lock().is_empty());
    }
}
