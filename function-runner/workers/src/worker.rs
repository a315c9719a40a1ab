//! The side of the worker: reads jobs, does one after the other, and answers.

use std::io::{self, IoSlice};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::time::ClockId;

use crate::frame::{JOB_HEAD, Tag};
use crate::sandbox::{self, Reach};

/// What a worker is told when it is started.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The process that started it, with which it ends.
    pub parent: u32,
    /// How much memory it may have, in bytes.
    pub memory: u64,
    /// How large its stack may become, in bytes, where it may be as large. Up to 128 MiB are left free for it by the kernel.
    pub stack: u64,
    /// What is within its reach besides its pool.
    pub reach: Reach,
}

/// Tells the pool which part of a job is at work, so that it can be named if it is one too many, and asks whoever has the job
/// done.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    is_heard: bool,
}

impl Progress {
    /// Nobody is told.
    pub fn unheard() -> Self {
        Self { is_heard: false }
    }

    /// The work is at that part, or at none in particular.
    pub fn at(&self, part: Option<u32>) {
        if !self.is_heard {
            return;
        }
        let part = part.map(u32::to_be_bytes);
        // A pool that is gone is noticed when the answer is due.
        let _ = say(Tag::At, &[part.as_ref().map_or(&[], <[u8; 4]>::as_slice)]);
    }

    /// What whoever has the job done has to tell by now ([`Tell`](crate::Tell)); nothing where nobody is told either.
    ///
    /// # Errors
    ///
    /// When the pipe breaks, as where nobody waits for the job any more.
    pub fn ask(&self) -> io::Result<Option<Vec<u8>>> {
        if !self.is_heard {
            return Ok(None);
        }
        say(Tag::Asks, &[])?;
        hear()?.map(Some).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Does jobs until the pool wants no more. The process has to have one thread, and to be started by a
/// [`Pool`](crate::Pool) or by [`Errands`](crate::Errands).
///
/// # Errors
///
/// When the process cannot be shut in, and nothing was read then; or when a pipe breaks.
pub fn serve(terms: &Terms, work: impl Fn(Vec<u8>, &Progress) -> Vec<u8>) -> io::Result<()> {
    ignore_signals_of_the_group();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid().map(Pid::as_raw_pid) != i32::try_from(terms.parent).ok() {
        // It died before that could be noticed.
        return Ok(());
    }
    let place = where_it_panics();
    let restrictions = sandbox::enter(terms)?;
    say(Tag::Ready, &[&[restrictions.byte()]])?;
    while let Some(job) = hear()? {
        // What a panic leaves behind is not looked at: the process ends.
        let Ok(answer) = panic::catch_unwind(AssertUnwindSafe(|| work(job, &Progress { is_heard: true }))) else {
            let place = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            return say(Tag::Panicked, &[place.unwrap_or_default().as_bytes()]);
        };
        let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        let used = used.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(used.tv_nsec.unsigned_abs());
        say(Tag::Answer, &[&used.to_be_bytes(), &answer])?;
    }
    Ok(())
}

/// Signals that go to all processes of a service or a terminal are for the pool, which lets work come to its end.
#[expect(unsafe_code, reason = "dispositions of signals are the C library's")]
fn ignore_signals_of_the_group() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Where the last panic was, in our code. Its message is kept nowhere, since it may quote what was read.
fn where_it_panics() -> Arc<Mutex<Option<String>>> {
    let place: Arc<Mutex<Option<String>>> = Arc::default();
    panic::set_hook(Box::new({
        let place = Arc::clone(&place);
        move |info| {
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            *place = info.location().map(ToString::to_string);
        }
    }));
    place
}

/// The next job, or what was asked for; nothing when there is no more.
fn hear() -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; JOB_HEAD];
    if !read(&mut head)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(head) as usize;
    let mut heard = vec![0; length];
    Ok(read(&mut heard)?.then_some(heard))
}

/// Fills it; says whether there was enough to.
fn read(mut into: &mut [u8]) -> io::Result<bool> {
    let stdin = io::stdin();
    while !into.is_empty() {
        match rustix::io::read(&stdin, &mut *into) {
            Ok(0) => return Ok(false),
            Ok(read) => into = &mut into[read..],
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(true)
}

/// Says something that is made of parts.
fn say(tag: Tag, parts: &[&[u8]]) -> io::Result<()> {
    let head = tag.head(parts.iter().map(|part| part.len()).sum());
    // No pool takes as much.
    let head = head.ok_or(io::ErrorKind::FileTooLarge)?;
    let mut slices: Vec<IoSlice<'_>> = [head.as_slice()].iter().chain(parts).map(|part| IoSlice::new(part)).collect();
    let mut slices = slices.as_mut_slice();
    let stdout = io::stdout();
    while slices.iter().any(|slice| !slice.is_empty()) {
        match rustix::io::writev(&stdout, slices) {
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}
