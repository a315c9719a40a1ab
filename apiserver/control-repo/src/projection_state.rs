//! The recorded state of the projection, as every replica knows it.
//!
//! Start at [`ProjectionState`]. Elsewhere: `progress` is the record in the log.

use std::sync::Arc;

use parking_lot::RwLock;
use stoa_machinery::{
    log::{Change, Entry, Record},
    registry::Observer,
};

use super::{
    InvalidFile,
    progress::{self, Progress},
};

/// The recorded progress and the rejected files, kept in step with the log: every replica knows the state before it decides
/// a later write.
#[derive(Clone, Debug, Default)]
pub struct ProjectionState(Arc<RwLock<Arc<Progress>>>);

impl ProjectionState {
    /// The prefix of the keys that this has to hear of.
    pub const PREFIX: &str = progress::KEY;

    /// The problem of the file at `path`, if it has one.
    pub fn invalid(&self, path: &str) -> Option<InvalidFile> {
        self.0.read().invalid.get(path).cloned()
    }

    /// Whether something is wrong with any file.
    pub fn has_invalid(&self) -> bool {
        !self.0.read().invalid.is_empty()
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.0.read())
    }

    fn set(&self, value: Option<&[u8]>) {
        match value.map(Progress::decode).transpose() {
            Ok(progress) => *self.0.write() = Arc::new(progress.unwrap_or_default()),
            // The projection fails with the same error. The last known state stays valid.
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "what is in Git is not known any more");
            }
        }
    }
}

impl Observer for ProjectionState {
    fn reset(&self, entries: &[Entry]) {
        let entry = entries.iter().find(|entry| entry.key.as_str() == progress::KEY);
        self.set(entry.map(|entry| entry.value.as_ref()));
    }

    fn apply(&self, record: &Record) {
        if record.key.as_str() == progress::KEY {
            match &record.change {
                Change::Put(value) => self.set(Some(value)),
                Change::Delete => self.set(None),
            }
        }
    }
}
