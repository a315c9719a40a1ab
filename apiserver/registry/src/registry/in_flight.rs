//! Objects on their way through the log, from which they return as bytes.

use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use stoa_log::Key;

use crate::cache::Prepared;

/// What was prepared for a write, by key, until the record comes back.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<HashMap<Key, Vec<Prepared>>>);

/// Forgets what was prepared when the write is over, whichever way.
pub(super) struct Guard<'a> {
    in_flight: &'a InFlight,
    key: &'a Key,
    value: Bytes,
}

impl InFlight {
    pub(super) fn begin<'a>(&'a self, key: &'a Key, prepared: &Prepared) -> Guard<'a> {
        self.0.lock().entry(key.clone()).or_default().push(prepared.clone());
        Guard { in_flight: self, key, value: prepared.value.clone() }
    }

    /// What was prepared for exactly these bytes.
    pub(super) fn find(&self, key: &Key, value: &Bytes) -> Option<Prepared> {
        self.0.lock().get(key)?.iter().find(|prepared| prepared.value == *value).cloned()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut all = self.in_flight.0.lock();
        if let Some(prepared) = all.get_mut(self.key) {
            if let Some(index) = prepared.iter().position(|prepared| prepared.value == self.value) {
                prepared.swap_remove(index);
            }
            if prepared.is_empty() {
                all.remove(self.key);
            }
        }
    }
}
