//! Cool-down after an expensive reconcile: an object is not reconciled again for a while, whatever happens meanwhile.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use stoa_controller::queue;
use tokio::time::Instant;

/// Until when objects are left alone, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Cooldown(Arc<Mutex<HashMap<String, Instant>>>);

impl Cooldown {
    /// How long an object still cools down.
    pub(super) fn left(&self, name: &str) -> Option<Duration> {
        let left = self.until(name)?.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }

    /// Until when an object cools down, also after that time.
    pub(super) fn until(&self, name: &str) -> Option<Instant> {
        self.0.lock().get(name).copied()
    }

    /// Records that a reconcile ends now: the longer it took, the longer the object cools down, up to `longest`.
    pub(super) fn begin(&self, name: &str, began: Instant, longest: Duration) {
        let pause = queue::wait_after_look(began.elapsed(), Duration::ZERO..=longest);
        self.set(name, pause);
    }

    /// Lets an object cool down for so long.
    pub(super) fn set(&self, name: &str, pause: Duration) {
        self.0.lock().insert(name.to_owned(), Instant::now() + pause);
    }

    pub(super) fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }
}
