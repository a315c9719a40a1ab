//! What providers do, for metrics.

use std::fmt;
use std::time::Duration;

use super::Call;

/// Hears of the processes and calls of providers. It has to return at once.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A process accepts calls after so long.
    fn started(&self, time: Duration) {
        let _ = time;
    }

    /// A process did not start, or rejected its configuration.
    fn not_started(&self) {}

    /// A process that had started ended: by itself if it `crashed`.
    fn ended(&self, crashed: bool) {
        let _ = crashed;
    }

    /// A call ended after so long. A report of the provider is an answer.
    fn called(&self, call: Call, answered: bool, time: Duration) {
        let _ = (call, answered, time);
    }
}

/// Hears of nothing.
impl Observer for () {}
