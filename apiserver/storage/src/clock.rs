//! Where the time comes from, so that tests can decide it.

use std::{fmt, sync::LazyLock, time::Instant};

/// Tells the time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Milliseconds since the Unix epoch. The clock of a machine may be set, so that this says nothing about how much time
    /// has passed.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment in the life of this process, whatever the clock of the machine is set to. Two of
    /// them tell how much time has passed; what another process was told means nothing here.
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
