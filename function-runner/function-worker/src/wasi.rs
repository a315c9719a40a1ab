//! WASI (preview 1) for functions: standard input, standard output, standard error, clocks and random numbers.
//!
//! Start at [`add`]. There is no file, no folder, no socket, no argument and no variable. Every other function of WASI answers
//! `ENOSYS`, so a library that asks for files learns that there are none.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime::{
    Caller, Error, Extern, ExternType, Linker, Memory, Module, Result, StoreLimits, StoreLimitsBuilder, Val,
};

/// The name of the module that programs import.
pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// The source of random numbers, which the sandbox permits.
const RANDOM: &str = "/dev/urandom";

/// The most subscriptions of one wait. Programs without files have one or two.
const SUBSCRIPTIONS: u32 = 64;

/// An error number of WASI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Errno(i32);

const BADF: Errno = Errno(8);
const FAULT: Errno = Errno(21);
const INVAL: Errno = Errno(28);
const IO: Errno = Errno(29);
const NOSYS: Errno = Errno(52);
const SPIPE: Errno = Errno(70);

/// The end of a program by its own wish.
#[derive(Debug)]
pub(crate) struct Exit(pub(crate) u32);

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "exit code {}", self.0)
    }
}

impl std::error::Error for Exit {}

/// The surroundings of one program.
pub(crate) struct Wasi {
    input: Box<dyn Read>,
    output: Box<dyn Write>,
    errors: Box<dyn Write>,
    began: Instant,
    limits: StoreLimits,
}

impl Wasi {
    /// The pipes of this process, and so much memory, in bytes.
    pub(crate) fn of_process(memory: usize) -> Self {
        Self::new(Box::new(io::stdin().lock()), Box::new(io::stdout().lock()), Box::new(io::stderr()), memory)
    }

    pub(crate) fn new(input: Box<dyn Read>, output: Box<dyn Write>, errors: Box<dyn Write>, memory: usize) -> Self {
        let limits = StoreLimitsBuilder::new().memory_size(memory).instances(1).memories(1).build();
        Self { input, output, errors, began: Instant::now(), limits }
    }

    /// The limits that the machine asks for.
    pub(crate) fn limits(&mut self) -> &mut dyn wasmtime::ResourceLimiter {
        &mut self.limits
    }

    /// A clock in nanoseconds.
    fn clock(&self, id: u32) -> Result<u64, Errno> {
        let time = match id {
            0 => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            1..=3 => self.began.elapsed(),
            _ => return Err(INVAL),
        };
        Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The memory of a program.
struct Guest<'a>(&'a mut [u8]);

impl Guest<'_> {
    fn part(&mut self, at: u32, length: u32) -> Result<&mut [u8], Errno> {
        let start = at as usize;
        start.checked_add(length as usize).and_then(|end| self.0.get_mut(start..end)).ok_or(FAULT)
    }

    fn u32(&mut self, at: u32) -> Result<u32, Errno> {
        let bytes = self.part(at, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| FAULT)?))
    }

    fn u64(&mut self, at: u32) -> Result<u64, Errno> {
        let bytes = self.part(at, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| FAULT)?))
    }

    fn set(&mut self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        self.part(at, u32::try_from(bytes.len()).map_err(|_| FAULT)?)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The buffers of a list, as offsets and lengths.
    fn buffer(&mut self, list: u32, index: u32) -> Result<(u32, u32), Errno> {
        let at = index.checked_mul(8).and_then(|offset| list.checked_add(offset)).ok_or(FAULT)?;
        Ok((self.u32(at)?, self.u32(at.checked_add(4).ok_or(FAULT)?)?))
    }
}

/// Does one call with the memory of its program.
fn with(
    caller: &mut Caller<'_, Wasi>,
    call: impl FnOnce(&mut Guest<'_>, &mut Wasi) -> Result<(), Errno>,
) -> Result<i32> {
    let memory: Memory = caller
        .get_export("memory")
        .and_then(Extern::into_memory)
        .ok_or_else(|| Error::msg("the module exports no memory"))?;
    let (bytes, wasi) = memory.data_and_store_mut(caller);
    Ok(call(&mut Guest(bytes), wasi).map_or_else(|Errno(number)| number, |()| 0))
}

/// Adds all functions that a module imports.
///
/// # Errors
///
/// An import that is no function.
pub(crate) fn add(linker: &mut Linker<Wasi>, module: &Module) -> Result<()> {
    add_process(linker)?;
    add_files(linker)?;
    add_clocks(linker)?;
    for import in module.imports().filter(|import| import.module() == MODULE) {
        let ExternType::Func(of) = import.ty() else { continue };
        if known(import.name()) {
            continue;
        }
        linker.func_new(MODULE, import.name(), of, |_, _, results| {
            results.iter_mut().for_each(|result| *result = Val::I32(NOSYS.0));
            Ok(())
        })?;
    }
    Ok(())
}

/// The functions below. The others answer `ENOSYS`.
const KNOWN: [&str; 20] = [
    "args_get",
    "args_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "environ_get",
    "environ_sizes_get",
    "fd_close",
    "fd_fdstat_get",
    "fd_fdstat_set_flags",
    "fd_prestat_dir_name",
    "fd_prestat_get",
    "fd_read",
    "fd_seek",
    "fd_write",
    "poll_oneoff",
    "proc_exit",
    "random_get",
    "sched_yield",
    "fd_tell",
    "fd_sync",
];

fn known(name: &str) -> bool {
    KNOWN.contains(&name)
}

fn add_process(linker: &mut Linker<Wasi>) -> Result<()> {
    for name in ["args_sizes_get", "environ_sizes_get"] {
        linker.func_wrap(MODULE, name, |mut caller: Caller<'_, Wasi>, count: u32, size: u32| {
            with(&mut caller, |guest, _| {
                guest.set(count, &[0; 4])?;
                guest.set(size, &[0; 4])
            })
        })?;
    }
    for name in ["args_get", "environ_get"] {
        linker.func_wrap(MODULE, name, |_: u32, _: u32| 0_i32)?;
    }
    linker.func_wrap(MODULE, "proc_exit", |code: u32| -> Result<()> { Err(Error::new(Exit(code))) })?;
    linker.func_wrap(MODULE, "sched_yield", || 0_i32)?;
    linker.func_wrap(MODULE, "random_get", |mut caller: Caller<'_, Wasi>, at: u32, length: u32| {
        with(&mut caller, |guest, _| {
            let bytes = guest.part(at, length)?;
            File::open(RANDOM).and_then(|mut file| file.read_exact(bytes)).map_err(|_| IO)
        })
    })?;
    Ok(())
}

/// The three files that there are.
fn is_open(file: u32) -> Result<(), Errno> {
    if file < 3 { Ok(()) } else { Err(BADF) }
}

fn add_files(linker: &mut Linker<Wasi>) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "fd_read",
        |mut caller: Caller<'_, Wasi>, file: u32, list: u32, count: u32, done: u32| {
            with(&mut caller, |guest, wasi| {
                if file != 0 {
                    return Err(BADF);
                }
                let mut read = 0;
                for index in 0..count {
                    let (at, length) = guest.buffer(list, index)?;
                    if length > 0 {
                        read = wasi.input.read(guest.part(at, length)?).map_err(|_| IO)?;
                        break;
                    }
                }
                guest.set(done, &u32::try_from(read).map_err(|_| FAULT)?.to_le_bytes())
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "fd_write",
        |mut caller: Caller<'_, Wasi>, file: u32, list: u32, count: u32, done: u32| {
            with(&mut caller, |guest, wasi| {
                let out = match file {
                    1 => &mut wasi.output,
                    2 => &mut wasi.errors,
                    _ => return Err(BADF),
                };
                let mut written = 0_u32;
                for index in 0..count {
                    let (at, length) = guest.buffer(list, index)?;
                    out.write_all(guest.part(at, length)?).map_err(|_| IO)?;
                    written = written.checked_add(length).ok_or(INVAL)?;
                }
                out.flush().map_err(|_| IO)?;
                guest.set(done, &written.to_le_bytes())
            })
        },
    )?;
    linker.func_wrap(MODULE, "fd_fdstat_get", |mut caller: Caller<'_, Wasi>, file: u32, at: u32| {
        with(&mut caller, |guest, _| {
            is_open(file)?;
            let mut stat = [0; 24];
            // A character device, on which a program may read, write and wait.
            stat[0] = 2;
            stat[8..16].copy_from_slice(&((1_u64 << 1) | (1 << 6) | (1 << 27)).to_le_bytes());
            guest.set(at, &stat)
        })
    })?;
    for name in ["fd_close", "fd_sync"] {
        linker.func_wrap(MODULE, name, |file: u32| number(is_open(file)))?;
    }
    linker.func_wrap(MODULE, "fd_fdstat_set_flags", |file: u32, _: u32| number(is_open(file)))?;
    linker.func_wrap(MODULE, "fd_prestat_get", |_: u32, _: u32| BADF.0)?;
    linker.func_wrap(MODULE, "fd_prestat_dir_name", |_: u32, _: u32, _: u32| BADF.0)?;
    linker.func_wrap(MODULE, "fd_seek", |file: u32, _: u64, _: u32, _: u32| number(is_open(file).and(Err(SPIPE))))?;
    linker.func_wrap(MODULE, "fd_tell", |file: u32, _: u32| number(is_open(file).and(Err(SPIPE))))?;
    Ok(())
}

fn number(done: Result<(), Errno>) -> i32 {
    done.map_or_else(|Errno(number)| number, |()| 0)
}

fn add_clocks(linker: &mut Linker<Wasi>) -> Result<()> {
    linker.func_wrap(MODULE, "clock_time_get", |mut caller: Caller<'_, Wasi>, id: u32, _: u64, at: u32| {
        with(&mut caller, |guest, wasi| guest.set(at, &wasi.clock(id)?.to_le_bytes()))
    })?;
    linker.func_wrap(MODULE, "clock_res_get", |mut caller: Caller<'_, Wasi>, id: u32, at: u32| {
        with(&mut caller, |guest, wasi| wasi.clock(id).and_then(|_| guest.set(at, &1_u64.to_le_bytes())))
    })?;
    linker.func_wrap(
        MODULE,
        "poll_oneoff",
        |mut caller: Caller<'_, Wasi>, list: u32, events: u32, count: u32, done: u32| {
            with(&mut caller, |guest, wasi| {
                let happened = wait(guest, wasi, (list, count))?;
                for (index, event) in (0_u32..).zip(&happened) {
                    let at = index.checked_mul(32).and_then(|offset| events.checked_add(offset)).ok_or(FAULT)?;
                    guest.set(at, event)?;
                }
                guest.set(done, &u32::try_from(happened.len()).map_err(|_| INVAL)?.to_le_bytes())
            })
        },
    )?;
    Ok(())
}

/// Waits for the first of some subscriptions, and returns the events. Files are always ready: a read waits itself.
fn wait(guest: &mut Guest<'_>, wasi: &Wasi, (list, count): (u32, u32)) -> Result<Vec<[u8; 32]>, Errno> {
    if count == 0 || count > SUBSCRIPTIONS {
        return Err(INVAL);
    }
    let (mut files, mut clocks) = (Vec::new(), Vec::new());
    for index in 0..count {
        let at = index.checked_mul(48).and_then(|offset| list.checked_add(offset)).ok_or(FAULT)?;
        let field = |offset: u32| at.checked_add(offset).ok_or(FAULT);
        let mut event = [0; 32];
        event[..8].copy_from_slice(guest.part(at, 8)?);
        let kind = guest.part(field(8)?, 1)?[0];
        event[10] = kind;
        if kind != 0 {
            files.push(event);
            continue;
        }
        let (clock, timeout) = (guest.u32(field(16)?)?, guest.u64(field(24)?)?);
        let is_absolute = guest.part(field(40)?, 1)?[0] & 1 == 1;
        let now = wasi.clock(clock)?;
        clocks.push((if is_absolute { timeout.saturating_sub(now) } else { timeout }, event));
    }
    if !files.is_empty() {
        return Ok(files);
    }
    let first = clocks.iter().map(|(left, _)| *left).min().unwrap_or_default();
    std::thread::sleep(Duration::from_nanos(first));
    Ok(clocks.into_iter().filter(|(left, _)| *left <= first).map(|(_, event)| event).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wasi() -> Wasi {
        Wasi::new(Box::new(io::empty()), Box::new(io::sink()), Box::new(io::sink()), 1 << 20)
    }

    #[test]
    fn addresses_outside_of_the_memory_are_faults() {
        let mut bytes = [0; 8];
        let mut guest = Guest(&mut bytes);
        assert_eq!(guest.u32(4), Ok(0));
        for at in [5, 8, u32::MAX] {
            assert_eq!(guest.u32(at), Err(FAULT), "{at}");
        }
        assert_eq!(guest.buffer(u32::MAX - 7, 1), Err(FAULT));
        assert_eq!(guest.set(6, &[1, 2, 3]), Err(FAULT));
        assert_eq!(guest.set(5, &[1, 2, 3]), Ok(()));
    }

    #[test]
    fn earliest_clock_ends_a_wait() {
        let mut bytes = [0; 96];
        // Two clocks of one and of three milliseconds; the names of their events are 7 and 9.
        for (at, name, timeout) in [(0, 7, 1_000_000_u64), (48, 9, 3_000_000)] {
            bytes[at] = name;
            bytes[at + 16] = 1;
            bytes[at + 24..at + 32].copy_from_slice(&timeout.to_le_bytes());
        }
        let began = Instant::now();
        let events = wait(&mut Guest(&mut bytes), &wasi(), (0, 2)).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(1));
        assert_eq!(events.iter().map(|event| event[0]).collect::<Vec<_>>(), [7]);
        // A file is ready at once.
        bytes[8] = 1;
        let events = wait(&mut Guest(&mut bytes), &wasi(), (0, 2)).unwrap();
        assert_eq!((events.len(), events[0][0], events[0][10]), (1, 7, 1));
        assert_eq!(wait(&mut Guest(&mut bytes), &wasi(), (0, 3)), Err(FAULT));
        assert_eq!(wait(&mut Guest(&mut bytes), &wasi(), (0, SUBSCRIPTIONS + 1)), Err(INVAL));
    }
}
