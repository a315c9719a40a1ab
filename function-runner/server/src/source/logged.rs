//! The log of a process that reads a source. Nobody reads its standard error while it works, so its answers carry the log.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use tracing::Level;

/// The largest log that is kept, in bytes.
const MOST: usize = 4096;

static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Buffers the log from now on.
pub(super) fn keep() {
    let subscriber = tracing_subscriber::fmt().with_max_level(Level::WARN).with_ansi(false).without_time();
    // Another one in this process would have it.
    let _ = subscriber.with_writer(|| Keeps).try_init();
}

/// Takes the log since the last call.
pub(super) fn take() -> String {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    String::from_utf8_lossy(&kept).trim_end().to_owned()
}

struct Keeps;

impl Write for Keeps {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
