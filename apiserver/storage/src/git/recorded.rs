//! What the projection has recorded, as every replica knows it.

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

/// The record of how far the projection is and which files were refused, kept in step with the log: every replica knows
/// it before a write that comes after it is decided.
#[derive(Clone, Debug, Default)]
pub struct GitRecord(Arc<RwLock<Arc<Progress>>>);

impl GitRecord {
    /// The prefix of the keys that this has to hear of.
    pub const PREFIX: &str = progress::KEY;

    /// What is wrong with the file at `path`, if anything.
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
            // The projection says the same, and does not go on. What was known last holds.
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "what is in Git is not known any more");
            }
        }
    }
}

impl Observer for GitRecord {
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
