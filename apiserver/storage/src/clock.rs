//! The clock of the machine, behind a trait for tests.

use std::{fmt, sync::LazyLock, time::Instant};

/// A source of the time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Milliseconds since the Unix epoch. The clock of a machine may be set, so that this says nothing about how much time
    /// has passed.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment in the life of this process, independent of the clock of the machine. The difference
    /// of two is the time between them; a value of another process means nothing here.
    fn steady_ms(&self) -> i64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }
}
