//! Threads with more stack than others, for what recurses deeply.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{thread, time::Duration};

/// How much stack, in bytes, reading an expression may take, or an evaluation that goes deep. Only what is used of it is
/// ever there.
pub const STACK: usize = 64 << 20;

/// How long to wait before each time that a thread is asked for; memory may be short for a moment only.
const TRIES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(100)];

/// Whether there are no other threads to be had.
static ALONE: AtomicBool = AtomicBool::new(false);

/// Has everything done by whoever asks for it, in a process that may begin no threads. Its stack has to have room for
/// [`STACK`], or an expression can end the process.
pub fn on_the_calling_thread() {
    ALONE.store(true, Ordering::Relaxed);
}

/// Runs `work` on a thread with so much stack, in bytes, and waits for it. Nothing when there is no such thread to be
/// had, or when it panics; the log says why.
pub(super) fn with<T: Send>(bytes: usize, work: impl Fn() -> T + Sync) -> Option<T> {
    if ALONE.load(Ordering::Relaxed) {
        return panic::catch_unwind(AssertUnwindSafe(work)).ok();
    }
    for wait in TRIES {
        thread::sleep(wait);
        let done = thread::scope(|scope| {
            let thread = thread::Builder::new().name("cel".to_owned()).stack_size(bytes);
            thread.spawn_scoped(scope, &work).map(|thread| thread.join())
        });
        match done {
            Ok(Ok(outcome)) => return Some(outcome),
            Ok(Err(_)) => {
                tracing::error!("reading or evaluating an expression panicked");
                return None;
            }
            Err(error) => tracing::warn!(%error, bytes, "there is no thread for an expression"),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn stack_thread_runs_work_once() {
        let done = AtomicUsize::new(0);
        assert_eq!(with(1 << 20, || done.fetch_add(1, Relaxed)), Some(0));
        // More than any address space has.
        assert_eq!(with(1 << 60, || done.fetch_add(1, Relaxed)), None);
        assert_eq!(done.into_inner(), 1);
    }
}
