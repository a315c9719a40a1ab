//! Profiles of the CPU time of this process, which `/debug/pprof/profile` serves.
//!
//! Threads take part once they have called [`enter_thread`]; a runtime's do if it is told to its builder:
//!
//! ```
//! let runtime = tokio::runtime::Builder::new_multi_thread()
//!     .enable_all()
//!     .on_thread_start(stoa_serving::profile::enter_thread)
//!     .build()?;
//! # std::io::Result::Ok(())
//! ```
//!
//! Nothing is sampled, and nothing costs anything, but while somebody asks for a profile. Then a signal interrupts each thread after every 10 ms of its CPU
//! time and copies the thread's stack (`sampler`); a thread of its own unwinds what was copied, and looks up names in the end (`images`); the
//! result is what `go tool pprof` reads (`encode`). For Linux on x86-64 and ARM64.

use std::{
    io,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio::sync::oneshot;

mod encode;
mod images;
mod sampler;
#[cfg(test)]
pub(crate) mod tests;

pub use sampler::{Uninterrupted, uninterrupted};

use encode::Sampled;
use images::{Image, Stacks};

/// How often samples are taken from where handlers leave them.
const DRAIN_INTERVAL: Duration = Duration::from_millis(10);

/// Has the CPU time that this thread takes in profiles, from now on and until it ends.
pub fn enter_thread() {
    sampler::enter();
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// There is one at a time.
    #[error("cpu profiling already in use")]
    InUse,
    /// The system does not let us.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A profile that is being taken. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Profiling {
    stop: mpsc::Sender<()>,
    profile: oneshot::Receiver<io::Result<Vec<u8>>>,
}

/// The right to take the one profile that there may be.
struct Turn(());

static IN_USE: AtomicBool = AtomicBool::new(false);

impl Turn {
    fn take() -> Result<Self, ProfileError> {
        if IN_USE.swap(true, Acquire) { Err(ProfileError::InUse) } else { Ok(Self(())) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IN_USE.store(false, Release);
    }
}

impl Profiling {
    /// Begins to take a profile.
    ///
    /// # Errors
    ///
    /// [`ProfileError`].
    pub(crate) fn start() -> Result<Self, ProfileError> {
        let turn = Turn::take()?;
        let (stop, stopped) = mpsc::channel();
        let (sender, profile) = oneshot::channel();
        thread::Builder::new().name("profiler".to_owned()).spawn(move || {
            let profile = take(&stopped).transpose();
            drop(turn);
            if let Some(profile) = profile {
                // Nobody may be waiting any more.
                let _ = sender.send(profile);
            }
        })?;
        Ok(Self { stop, profile })
    }

    /// Waits until `end`, and returns the profile in pprof's format.
    ///
    /// # Errors
    ///
    /// [`ProfileError::System`], which may be before the end.
    pub(crate) async fn until(mut self, end: impl Future<Output = ()>) -> Result<Vec<u8>, ProfileError> {
        let profile = tokio::select! {
            profile = &mut self.profile => profile,
            () = end => {
                // It is gone only where something went wrong, which the answer says.
                let _ = self.stop.send(());
                self.profile.await
            }
        };
        Ok(profile.map_err(|_| io::Error::other("the profiler panicked"))??)
    }
}

/// Takes a profile until it is told to stop. Nothing when nobody wants it any more.
fn take(stopped: &mpsc::Receiver<()>) -> io::Result<Option<Vec<u8>>> {
    let images = Image::all()?;
    let mut stacks = Stacks::new(&images);
    let mut buffer = Vec::new();
    let (began, clock) = (Timestamp::now(), Instant::now());
    // Dropped after the sampling, however this ends.
    let _leftovers = sampler::Leftovers;
    let sampling = sampler::start()?;
    loop {
        let told = stopped.recv_timeout(DRAIN_INTERVAL);
        if told.is_ok() {
            break;
        }
        sampler::drain(&mut buffer, |registers, words| stacks.add(registers, words));
        if told == Err(mpsc::RecvTimeoutError::Disconnected) {
            return Ok(None);
        }
    }
    drop(sampling);
    let took = clock.elapsed();
    sampler::drain(&mut buffer, |registers, words| stacks.add(registers, words));
    let lost = sampler::lost();
    encode::encode(&Sampled { counts: stacks.counts(), images: &images, began, took, lost }).map(Some)
}
