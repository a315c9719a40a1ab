//! What a process says that has a source in hand: nobody reads its standard error while it works, so that it comes along
//! with its answers.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use tracing::Level;

/// More is not kept, in bytes.
const MOST: usize = 4096;

static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Keeps what is logged from now on, in a process that logs nothing otherwise.
pub(super) fn keep() {
    let subscriber = tracing_subscriber::fmt().with_max_level(Level::WARN).with_ansi(false).without_time();
    // Another one in this process would have it.
    let _ = subscriber.with_writer(|| Keeps).try_init();
}

/// What was kept since this was asked last.
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
