//! Objects that are left alone for a while after a look that read a lot, however much happens meanwhile.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use stoa_controller::queue;
use tokio::time::Instant;

/// Until when objects are left alone, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses(Arc<Mutex<HashMap<String, Instant>>>);

impl Pauses {
    /// For how long nobody is to look yet.
    pub(super) fn left(&self, name: &str) -> Option<Duration> {
        let left = self.until(name)?.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }

    /// Until when it is left alone, also where that is over.
    pub(super) fn until(&self, name: &str) -> Option<Instant> {
        self.0.lock().get(name).copied()
    }

    /// Notes that a look ends now: the longer it took the longer, to this limit, nobody looks again.
    pub(super) fn begin(&self, name: &str, began: Instant, longest: Duration) {
        let pause = queue::wait_after_look(began.elapsed(), Duration::ZERO..=longest);
        self.set(name, pause);
    }

    /// Has it left alone for so long.
    pub(super) fn set(&self, name: &str, pause: Duration) {
        self.0.lock().insert(name.to_owned(), Instant::now() + pause);
    }

    /// Forgets what is gone.
    pub(super) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }
}
