//! Observers of keys outside `/registry/`.

use std::fmt::Debug;

use stoa_log::{Entry, Record};

/// Keeps what it is told under a prefix of keys in step with the log.
///
/// It hears of a record before any read or write that has to see it goes on, so what it knows is as fresh as the
/// objects that a write is checked against. Both methods are called from one task and have to be quick.
pub trait Observer: Debug + Send + Sync + 'static {
    /// Hears what there is, at the start and whenever records were missed.
    fn reset(&self, entries: &[Entry]);

    /// Hears of one record, in the order of the log.
    fn apply(&self, record: &Record);
}
