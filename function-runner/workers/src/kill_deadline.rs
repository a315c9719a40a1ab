//! A deadline at which a process is killed in the middle of a job.
//!
//! The process that started the job would kill it then, and may be suspended. So the kernel kills the process by a timer, even if
//! the process was suspended itself and resumes later.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{mem, ptr};

use crate::worker::Progress;

/// How often the process asks for more time.
const EVERY: Duration = Duration::from_millis(500);

/// The size of the stack of the thread that asks, in bytes.
const STACK: usize = 128 << 10;

/// Kills this process at a deadline, unless it is extended or dropped before.
#[derive(Debug)]
pub struct KillDeadline {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    timer: Timer,
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KillDeadline {
    /// Kills this process at `until`, by the monotonic clock. From now on another thread [asks](Progress::ask) for more time, and
    /// nobody else may ask; `later` reads a new deadline from the answer.
    pub fn new(
        until: Duration,
        progress: Progress,
        later: impl Fn(&[u8]) -> Option<Duration> + Send + 'static,
    ) -> io::Result<Self> {
        let timer = Timer::new()?;
        timer.set(until)?;
        let state = Mutex::new(State { timer, is_over: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let asking = std::thread::Builder::new().name("kill-deadline".to_owned()).stack_size(STACK);
        let thread = asking.spawn(move || keep_asking(&of_thread, progress, later))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for KillDeadline {
    fn drop(&mut self) {
        // A question under way is answered first: its answer would be taken for the next job.
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It holds nothing that a panic would leave behind.
            let _ = thread.join();
        }
    }
}

/// Extends the deadline for as long as the process that started the job grants more time.
fn keep_asking(shared: &Shared, progress: Progress, later: impl Fn(&[u8]) -> Option<Duration>) {
    let mut state = shared.lock();
    loop {
        // The deadline may be dropped before this thread waits.
        let waited = shared.changed.wait_timeout_while(state, EVERY, |state| !state.is_over);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return;
        }
        // Without an answer, the last deadline holds.
        let Ok(Some(told)) = progress.ask() else { return };
        let Some(until) = later(&told) else { return };
        if state.timer.set(until).is_err() {
            return;
        }
    }
}

/// A timer that kills this process.
#[derive(Debug)]
struct Timer(libc::timer_t);

#[expect(unsafe_code, reason = "a timer's id is a pointer")]
// SAFETY: it points to nothing: it is an id that is the same in all threads of the process.
unsafe impl Send for Timer {}

impl Timer {
    /// A timer that is not set.
    #[expect(unsafe_code, reason = "the system's timers")]
    fn new() -> io::Result<Self> {
        // SAFETY: all zeros is a value of that struct of C.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        // Nothing that was inherited keeps it from that.
        event.sigev_signo = libc::SIGKILL;
        let mut id = ptr::null_mut();
        // SAFETY: both pointers are to values that live until the call returns.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(id))
    }

    /// Sets it to a time of the monotonic clock. A time in the past is now.
    #[expect(unsafe_code, reason = "the system's timers")]
    fn set(&self, at: Duration) -> io::Result<()> {
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = at.as_secs().try_into().unwrap_or(libc::time_t::MAX);
        let at = libc::timespec { tv_sec: seconds, tv_nsec: at.subsec_nanos().into() };
        let times = libc::itimerspec { it_interval: once, it_value: at };
        // SAFETY: the timer is there, and the times live until the call returns; the old ones are not asked for.
        if unsafe { libc::timer_settime(self.0, libc::TIMER_ABSTIME, &times, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Timer {
    #[expect(unsafe_code, reason = "the system's timers")]
    fn drop(&mut self) {
        // SAFETY: the timer is there until it is deleted, which is done once.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::time::Instant;

    use rustix::time::ClockId;

    use super::*;

    /// The time that the child process has, in milliseconds.
    const TIME: &str = "STOA_TEST_KILL_DEADLINE";
    const LONG: Duration = Duration::from_secs(60);
    /// What that process says after the time of a deadline that was dropped.
    const WENT_ON: &str = "it went on";

    fn in_time(time: Duration) -> Duration {
        let now: Duration = rustix::time::clock_gettime(ClockId::Monotonic).try_into().unwrap();
        now + time
    }

    #[test]
    fn process_ends_at_its_deadline_unless_it_is_dropped() {
        if let Ok(time) = std::env::var(TIME) {
            let time = Duration::from_millis(time.parse().unwrap());
            let deadline = |time| KillDeadline::new(in_time(time), Progress::unheard(), |_| None).unwrap();
            drop(deadline(LONG));
            drop(deadline(time));
            std::thread::sleep(time + Duration::from_millis(100));
            // The time of the last one is over.
            std::io::stderr().write_all(WENT_ON.as_bytes()).unwrap();
            let _deadline = deadline(time);
            std::thread::sleep(LONG);
            panic!("it did not end");
        }
        let start = Instant::now();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill_deadline::tests::process_ends_at_its_deadline_unless_it_is_dropped"])
            .env(TIME, "2000")
            .output()
            .unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGKILL), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains(WENT_ON), "{ended:?}");
        assert!((Duration::from_millis(4_100)..LONG).contains(&start.elapsed()), "{:?}", start.elapsed());
    }
}
