//! The local log keeps what `Log` promises.

use std::sync::Arc;

use stoa_machinery::log::Log;
use stoa_storage::{LocalLog, local::LocalOptions};
use tempfile::TempDir;

/// Small segments, so that every test also goes across files.
async fn fresh() -> (Arc<dyn Log>, TempDir) {
    let directory = TempDir::new().expect("a temporary directory");
    let options = LocalOptions { segment_bytes: 256, ..LocalOptions::default() };
    let log = LocalLog::open(directory.path(), options).expect("a new log opens");
    (Arc::new(log), directory)
}

stoa_machinery::log_conformance_tests!(fresh);
