//! The worker's side: reads jobs, does one after the other, and answers.

use std::io::{self, IoSlice};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::time::ClockId;

use crate::frame::{JOB_HEAD, Tag};
use crate::sandbox::{self, Profile};

/// The limits of a worker, from its command line.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The process that started it, with which it ends.
    pub parent: u32,
    /// The limit of its memory, in bytes.
    pub memory: u64,
    /// The limit of its stack, in bytes, if the hard limit allows it. The kernel reserves up to 128 MiB for it.
    pub stack: u64,
    /// The access that it keeps.
    pub profile: Profile,
}

/// Reports to the pool which part of a job is at work, so that an error can name it, and asks the submitter of the job questions.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    is_heard: bool,
}

impl Progress {
    /// A progress that reports to nobody.
    pub fn unheard() -> Self {
        Self { is_heard: false }
    }

    /// Reports the part that the work is at, or none in particular.
    pub fn at(&self, part: Option<u32>) {
        if !self.is_heard {
            return;
        }
        let part = part.map(u32::to_be_bytes);
        // A dead pool is noticed when the answer is due.
        let _ = say(Tag::At, &[part.as_ref().map_or(&[], <[u8; 4]>::as_slice)]);
    }

    /// Asks the submitter of the job ([`Tell`](crate::Tell)); nothing if this reports to nobody.
    ///
    /// # Errors
    ///
    /// If the pipe breaks, such as when the job is cancelled.
    pub fn ask(&self) -> io::Result<Option<Vec<u8>>> {
        if !self.is_heard {
            return Ok(None);
        }
        say(Tag::Asks, &[])?;
        hear()?.map(Some).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Does jobs until the pool closes the pipe. The process must have one thread, and a parent that is a
/// [`Pool`](crate::Pool) or by [`SubprocessStarter`](crate::SubprocessStarter).
///
/// # Errors
///
/// If the sandbox cannot be entered, in which case no job was read; or if a pipe breaks.
pub fn serve(terms: &Terms, work: impl Fn(Vec<u8>, &Progress) -> Vec<u8>) -> io::Result<()> {
    ignore_signals_of_the_group();
    if !end_with(terms.parent)? {
        return Ok(());
    }
    let place = where_it_panics();
    let restrictions = sandbox::enter(terms)?;
    say(Tag::Ready, &[&[restrictions.byte()]])?;
    while let Some(job) = hear()? {
        // Nothing uses state that a panic leaves behind: the process ends.
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

/// Has the kernel kill this process when its parent ends; false if the parent ended before that.
pub(crate) fn end_with(parent: u32) -> io::Result<bool> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(rustix::process::getppid().map(Pid::as_raw_pid) == i32::try_from(parent).ok())
}

/// Signals to all processes of a service or a terminal are for the pool, which lets jobs finish.
#[expect(unsafe_code, reason = "dispositions of signals are the C library's")]
fn ignore_signals_of_the_group() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: to ignore a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// The location of the last panic. Its message is dropped, since it may quote the job.
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

/// The next job, or the answer to a question; nothing at the end.
fn hear() -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; JOB_HEAD];
    if !read(&mut head)? {
        return Ok(None);
    }
    let length = u32::from_be_bytes(head) as usize;
    let mut heard = vec![0; length];
    Ok(read(&mut heard)?.then_some(heard))
}

/// Fills the buffer; false at the end of the input.
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

/// Sends a message that consists of parts.
fn say(tag: Tag, parts: &[&[u8]]) -> io::Result<()> {
    let head = tag.head(parts.iter().map(|part| part.len()).sum());
    // No pool accepts a message of this size.
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
