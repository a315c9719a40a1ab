//! CPU profiles of this process, which `/debug/pprof/profile` serves.
//!
//! Start at `Profiling`. The crate `rpprof` samples: while a profile is taken, a signal (`SIGPROF`) interrupts the
//! process after every 10 ms of its CPU time, in a thread that runs. The signal handler unwinds the stack by the tables
//! that compilers write for exceptions; it allocates nothing and waits for no lock. The names of functions are resolved
//! after sampling. The result is what `go tool pprof` reads (`encode`). For Linux on x86-64 and ARM64.
//!
//! A signal ends some system calls early (`EINTR`). Code that takes this for a failure runs under [`uninterrupted`].

use std::{collections::HashMap, env, future::Future, io, marker::PhantomData, path::PathBuf};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rpprof::{Frames, ProfilerGuard, Report};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::{self, JoinError},
};

mod encode;
#[cfg(test)]
pub(crate) mod tests;

/// Samples per second of CPU time; Go's.
const FREQUENCY: i32 = 100;

/// Admits one profile at a time.
static TURN: Semaphore = Semaphore::const_new(1);

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// Another profile is being taken.
    #[error("cpu profiling already in use")]
    InUse,
    /// The sampler found no folder for its buffer, and does not try again in this process.
    #[error("cannot create a file for samples in {}: make the folder writable or set TMPDIR, then restart", .0.display())]
    NoBuffer(PathBuf),
    /// The operating system refused a call.
    #[error(transparent)]
    Sampler(rpprof::Error),
    /// The profile could not be compressed.
    #[error(transparent)]
    Compress(#[from] io::Error),
    /// The names of functions were not resolved to the end.
    #[error("cannot resolve the names of functions: {0}")]
    Resolve(#[from] JoinError),
}

impl From<rpprof::Error> for ProfileError {
    fn from(error: rpprof::Error) -> Self {
        match error {
            rpprof::Error::Running => Self::InUse,
            rpprof::Error::CreatingError => Self::NoBuffer(env::temp_dir()),
            error => Self::Sampler(error),
        }
    }
}

#[derive(educe::Educe)]
#[educe(Debug)]
pub(crate) struct Profiling {
    #[educe(Debug(ignore))]
    sampler: ProfilerGuard<'static>,
    turn: SemaphorePermit<'static>,
}

impl Profiling {
    pub(crate) fn start() -> Result<Self, ProfileError> {
        let turn = TURN.try_acquire().map_err(|_| ProfileError::InUse)?;
        Ok(Self { sampler: ProfilerGuard::new(FREQUENCY)?, turn })
    }

    /// Samples until `over` is ready, and returns the gzipped profile.
    pub(crate) async fn until(self, over: impl Future<Output = ()>) -> Result<Vec<u8>, ProfileError> {
        over.await;
        task::spawn_blocking(move || self.finish()).await?
    }

    fn finish(self) -> Result<Vec<u8>, ProfileError> {
        let Self { sampler, turn } = self;
        let sampled = sampler.report().build_unresolved()?;
        drop(sampler);
        let mut data = HashMap::new();
        for (stack, count) in sampled.data {
            *data.entry(Frames::from(stack)).or_default() += count;
        }
        // What it remembers of executables is large.
        backtrace::clear_symbol_cache();
        let report = Report { data, timing: sampled.timing, missed_samples: sampled.missed_samples };
        let profile = encode::encode(&report)?;
        drop(turn);
        Ok(profile)
    }
}

/// Keeps profiles from interrupting this thread until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Uninterrupted {
    /// The signals that were blocked before.
    before: SigSet,
    /// The mask belongs to the thread that made this.
    _thread: PhantomData<*const ()>,
}

/// Blocks the signal of profiles in this thread, for foreign code that fails when a signal ends its system call.
/// Profiles have no samples of that code.
pub fn uninterrupted() -> Uninterrupted {
    let profiles = SigSet::from(Signal::SIGPROF);
    let before = profiles.thread_swap_mask(SigmaskHow::SIG_BLOCK).expect("a mask of known signals is valid");
    Uninterrupted { before, _thread: PhantomData }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        self.before.thread_set_mask().expect("a mask that was in force is valid");
    }
}
