//! Interrupts threads by the CPU time that they take, and keeps what they were at.
//!
//! Start at [`start`] and [`drain`]. Each thread that takes part has a timer of its own ([`Timer`]), which runs on the thread's CPU time
//! and sends `SIGPROF` to that thread alone. The handler, [`interrupted`], follows no pointer: it copies three registers and
//! the stack from where the thread was up to where its stack is known to end. Whoever drains makes sense of that later.
//!
//! What keeps that safe:
//!
//! - **Nothing is called in the handler**, neither libc nor the allocator, and no lock is taken. Everything in it is an atomic of a static or of
//!   the thread's, so that `errno` stays what it was, too.
//! - **What is read is there.** The bounds of a thread's stack are asked for by the thread itself, before it has a timer. Between the stack pointer
//!   and the end of the stack everything belongs to frames that have not returned. A thread that is on another stack is not within
//!   the bounds, and then nothing is read.
//! - **The handler stays**, once it is there: a signal that comes late finds it, rather than the default, which ends the process.
//! - **Children have no timers**: those of POSIX are not inherited by `fork`, and `exec` takes the handler away.
//! - **System calls go on** (`SA_RESTART`), or end with `EINTR` where the kernel has no choice, as `poll`. All that waits here takes that for what it
//!   is, but for libgit2 when it talks to servers; see [`uninterrupted`].

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    marker::PhantomData,
    mem, ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

/// How much CPU time a thread takes from one sample to the next, in nanoseconds: Go's 100 Hz.
pub(super) const PERIOD: u32 = 10_000_000;
/// How much of a stack is kept, in words: 128 KiB. What is further out is lost, which are the callers that all have in common.
const MAX_STACK: usize = 16 * 1024;
/// How many samples may wait to be drained.
const SLOTS: usize = 32;

/// Nothing is in a slot.
const FREE: usize = 0;
/// A handler writes to it.
const TAKEN: usize = 1;
/// A sample waits in it.
const FULL: usize = 2;

/// Where a thread was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    /// The instruction that came next.
    pub(super) instruction: usize,
    /// The stack pointer.
    pub(super) stack: usize,
    /// The frame pointer, if that is what the register is used for.
    pub(super) frame: usize,
    /// Where a function that calls none returns to, where a register has that.
    pub(super) link: usize,
}

struct Slot {
    state: AtomicUsize,
    instruction: AtomicUsize,
    stack: AtomicUsize,
    frame: AtomicUsize,
    link: AtomicUsize,
    /// How many of the words are the sample's.
    length: AtomicUsize,
    words: [AtomicUsize; MAX_STACK],
}

static SAMPLING: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicUsize = AtomicUsize::new(0);
static SAMPLES: [Slot; SLOTS] = [const {
    Slot {
        state: AtomicUsize::new(FREE),
        instruction: AtomicUsize::new(0),
        stack: AtomicUsize::new(0),
        frame: AtomicUsize::new(0),
        link: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        words: [const { AtomicUsize::new(0) }; MAX_STACK],
    }
}; SLOTS];
static THREADS: Mutex<Threads> = Mutex::new(Threads { sampled: false, members: BTreeMap::new() });

thread_local! {
    // Neither is made when it is first used, nor dropped, so that the handler can read both at any time.
    static STACK_BEGIN: AtomicUsize = const { AtomicUsize::new(0) };
    /// 0 while the bounds are not known.
    static STACK_END: AtomicUsize = const { AtomicUsize::new(0) };
    static MEMBERSHIP: RefCell<Option<Membership>> = const { RefCell::new(None) };
}

/// The threads that take part, by the kernel's ids.
struct Threads {
    sampled: bool,
    members: BTreeMap<libc::pid_t, Member>,
}

struct Member {
    clock: libc::clockid_t,
    timer: Option<Timer>,
}

/// Is dropped with the thread that it is of.
struct Membership(libc::pid_t);

impl Drop for Membership {
    fn drop(&mut self) {
        threads().members.remove(&self.0);
    }
}

fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has this thread take part, until it ends. A thread for which the system does not say what is needed does not.
pub(super) fn enter() {
    MEMBERSHIP.with_borrow_mut(|membership| {
        if membership.is_some() {
            return;
        }
        let Some((bounds, clock, id)) = this_thread() else { return };
        STACK_BEGIN.with(|begin| begin.store(bounds.0, Relaxed));
        STACK_END.with(|end| end.store(bounds.1, Release));
        let mut threads = threads();
        // Without a timer it is a thread like all others; the next profile tries again.
        let timer = if threads.sampled { Timer::start(clock, id).ok() } else { None };
        threads.members.insert(id, Member { clock, timer });
        *membership = Some(Membership(id));
    });
}

/// The bounds of this thread's stack, the clock of its CPU time, and its id.
#[expect(unsafe_code, reason = "the C library is asked about the thread")]
fn this_thread() -> Option<((usize, usize), libc::clockid_t, libc::pid_t)> {
    let mut attributes = mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut begin, mut size, mut clock) = (ptr::null_mut(), 0, 0);
    // SAFETY: the thread is this one, and so there. The attributes are initialized by the first call where that succeeds, read
    // after that, and destroyed once.
    let (known, id) = unsafe {
        let thread = libc::pthread_self();
        if libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let bounds = libc::pthread_attr_getstack(attributes.as_ptr(), &mut begin, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (bounds == 0 && libc::pthread_getcpuclockid(thread, &mut clock) == 0, libc::gettid())
    };
    let begin = begin.addr();
    known.then_some(((begin, begin.checked_add(size)?), clock, id))
}

/// A timer on the CPU time of a thread.
struct Timer(libc::timer_t);

#[expect(unsafe_code, reason = "a timer's id is a pointer")]
// SAFETY: it points to nothing: it is an id that is the same in all threads of the process.
unsafe impl Send for Timer {}

impl Timer {
    /// A timer that interrupts a thread, which may not end before the timer is dropped.
    #[expect(unsafe_code, reason = "the system's timers")]
    fn start(clock: libc::clockid_t, thread: libc::pid_t) -> io::Result<Self> {
        // SAFETY: all zeros is a value of that struct of C.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = thread;
        let mut id = ptr::null_mut();
        // SAFETY: both pointers are to values that live until the call returns.
        if unsafe { libc::timer_create(clock, &mut event, &mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self(id);
        let after = |nanoseconds: u32| libc::timespec { tv_sec: 0, tv_nsec: nanoseconds.into() };
        // Anywhere in its period: who takes less than one is sampled as often as all others, for what it takes.
        let times = libc::itimerspec { it_interval: after(PERIOD), it_value: after(rand::random_range(1..=PERIOD)) };
        // SAFETY: the timer is there, and the times live until the call returns; the old ones are not asked for.
        if unsafe { libc::timer_settime(timer.0, 0, &times, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(timer)
    }
}

impl Drop for Timer {
    #[expect(unsafe_code, reason = "the system's timers")]
    fn drop(&mut self) {
        // SAFETY: the timer is there until it is deleted, which is done once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// While it is there, samples are taken.
#[derive(Debug)]
pub(super) struct Sampling(());

/// Begins to sample all threads that take part; the caller sees to it that nobody else does, and drains.
///
/// # Errors
///
/// When the system has no timer left, or does not take the handler. Nothing is sampled then.
pub(super) fn start() -> io::Result<Sampling> {
    install_handler()?;
    // Handlers of an earlier profile may have been late.
    drain(&mut Vec::new(), |_, _| {});
    LOST.store(0, Relaxed);
    SAMPLING.store(true, Release);
    let sampling = Sampling(());
    let mut threads = threads();
    threads.sampled = true;
    let mut failed = None;
    for (&id, member) in &mut threads.members {
        match Timer::start(member.clock, id) {
            Ok(timer) => member.timer = Some(timer),
            Err(error) => failed = Some(error),
        }
    }
    drop(threads);
    failed.map_or(Ok(sampling), Err)
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let mut threads = threads();
        threads.sampled = false;
        for member in threads.members.values_mut() {
            member.timer = None;
        }
        drop(threads);
        SAMPLING.store(false, Relaxed);
    }
}

/// Sees to it that no sample is left when it is dropped, which may hold secrets. Sampling has to have ended by then.
#[derive(Debug)]
pub(super) struct Leftovers;

impl Drop for Leftovers {
    fn drop(&mut self) {
        drain(&mut Vec::new(), |_, _| {});
    }
}

/// How many samples found no free slot since sampling began.
pub(super) fn lost() -> usize {
    LOST.load(Relaxed)
}

/// Takes what was sampled: where a thread was, and the words of its stack from the (aligned) stack pointer outwards. `buffer` is for the
/// words. They may be secrets, so none are left behind.
pub(super) fn drain(buffer: &mut Vec<usize>, mut take: impl FnMut(Registers, &[usize])) {
    for slot in &SAMPLES {
        if slot.state.load(Acquire) != FULL {
            continue;
        }
        let registers = Registers {
            instruction: slot.instruction.load(Relaxed),
            stack: slot.stack.load(Relaxed),
            frame: slot.frame.load(Relaxed),
            link: slot.link.load(Relaxed),
        };
        buffer.clear();
        for word in slot.words.iter().take(slot.length.load(Relaxed)) {
            buffer.push(word.load(Relaxed));
            word.store(0, Relaxed);
        }
        slot.state.store(FREE, Release);
        take(registers, buffer);
        buffer.fill(0);
    }
}

#[expect(unsafe_code, reason = "a handler for signals")]
fn install_handler() -> io::Result<()> {
    // SAFETY: all zeros is a value of that struct of C: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = interrupted;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action lives until the call returns, and its handler, of the type that SA_SIGINFO says, for ever. It
    // may be called at any time and in any thread, as the module says.
    match unsafe { libc::sigaction(libc::SIGPROF, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The handler. Whatever is added to it has to be safe in the middle of anything, such as an allocation.
#[expect(unsafe_code, reason = "registers and the stack are read")]
extern "C" fn interrupted(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if !SAMPLING.load(Acquire) {
        return;
    }
    let Some(slot) = SAMPLES.get(NEXT.fetch_add(1, Relaxed) % SLOTS) else { return };
    if slot.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
        LOST.fetch_add(1, Relaxed);
        return;
    }
    // SAFETY: the kernel passes that to a handler with SA_SIGINFO, and it lives until the handler returns.
    let registers = registers(unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext });
    slot.instruction.store(registers.instruction, Relaxed);
    slot.stack.store(registers.stack, Relaxed);
    slot.frame.store(registers.frame, Relaxed);
    slot.link.store(registers.link, Relaxed);
    let from = registers.stack & !(size_of::<usize>() - 1);
    let (begin, end) = (STACK_BEGIN.with(|begin| begin.load(Relaxed)), STACK_END.with(|end| end.load(Acquire)));
    let mut length = 0;
    if begin <= from && from < end {
        length = ((end - from) / size_of::<usize>()).min(MAX_STACK);
        let words = ptr::with_exposed_provenance::<usize>(from);
        for (index, word) in slot.words.iter().take(length).enumerate() {
            // SAFETY: the word is aligned and lies in this thread's own stack, of which all is mapped and readable that is between
            // the stack pointer and its end (see the module). What it is does not matter, and no other
            // reference to it is affected: it is read as volatile, a whole word, and nothing is written.
            word.store(unsafe { words.add(index).read_volatile() }, Relaxed);
        }
    }
    slot.length.store(length, Relaxed);
    slot.state.store(FULL, Release);
}

#[cfg(target_arch = "x86_64")]
fn registers(machine: &libc::mcontext_t) -> Registers {
    let register = |number: libc::c_int| machine.gregs[number as usize].cast_unsigned() as usize;
    Registers {
        instruction: register(libc::REG_RIP),
        stack: register(libc::REG_RSP),
        frame: register(libc::REG_RBP),
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(machine: &libc::mcontext_t) -> Registers {
    Registers {
        instruction: machine.pc as usize,
        stack: machine.sp as usize,
        frame: machine.regs[29] as usize,
        link: machine.regs[30] as usize,
    }
}

/// While it is there, this thread is not interrupted, by profiles at least.
#[must_use]
pub struct Uninterrupted {
    /// The signals that were blocked before.
    before: libc::sigset_t,
    /// It is about the thread that made it.
    _stays: PhantomData<*const ()>,
}

impl std::fmt::Debug for Uninterrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uninterrupted").finish_non_exhaustive()
    }
}

/// Keeps profiles from interrupting this thread, for code of others that takes a system call that was interrupted (`EINTR`) for one that failed.
/// What it takes meanwhile is one sample, at the end.
#[expect(unsafe_code, reason = "the mask of signals is the C library's")]
pub fn uninterrupted() -> Uninterrupted {
    // SAFETY: all zeros is a value of that struct of C; all pointers are to values that live until the calls return.
    let before = unsafe {
        let (mut profiles, mut before): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
        libc::sigemptyset(&mut profiles);
        libc::sigaddset(&mut profiles, libc::SIGPROF);
        libc::pthread_sigmask(libc::SIG_BLOCK, &profiles, &mut before);
        before
    };
    Uninterrupted { before, _stays: PhantomData }
}

impl Drop for Uninterrupted {
    #[expect(unsafe_code, reason = "the mask of signals is the C library's")]
    fn drop(&mut self) {
        // SAFETY: the mask is one that the C library wrote, and lives until the call returns.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, ptr::null_mut()) };
    }
}
