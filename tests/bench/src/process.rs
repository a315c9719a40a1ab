//! What the servers' processes use: time and memory, as Linux counts them in `/proc`.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Linux counts the time of processes in hundredths of a second, whatever the kernel's own tick is.
const TICK: Duration = Duration::from_millis(10);

/// The processes that serve, by their ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers {
    pub(crate) stoa: u32,
    pub(crate) runner: u32,
    pub(crate) apiserver: u32,
    pub(crate) etcd: u32,
    /// Go's sample-apiserver, if the test bed has one.
    pub(crate) sample: Option<u32>,
    /// What answers with ready bytes, once it is started.
    pub(crate) floor: Option<u32>,
}

/// Those of [`Servers`] in their order, and the programs that this one ran and waited for.
const PROCESSES: usize = 7;

/// Processor time, user and system, of each process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime([Duration; PROCESSES]);

impl CpuTime {
    /// Of all together.
    pub(crate) fn total(self) -> Duration {
        self.0.into_iter().sum()
    }

    /// Of stoa-apiserver, kube-apiserver and etcd.
    pub(crate) fn of_servers(self) -> [Duration; 3] {
        let [stoa, _, apiserver, etcd, ..] = self.0;
        [stoa, apiserver, etcd]
    }

    /// Less what the processes would have used anyway, at `idle` per second.
    pub(crate) fn without_idle(self, idle: Self, elapsed: Duration) -> Self {
        self.with(idle, |used, idle| used.saturating_sub(idle.mul_f64(elapsed.as_secs_f64())))
    }

    /// The lesser of both, process by process.
    pub(crate) fn min(self, other: Self) -> Self {
        self.with(other, Duration::min)
    }

    /// This time, of `elapsed`, as time per second.
    pub(crate) fn per_second(self, elapsed: Duration) -> Self {
        Self(self.0.map(|used| used.div_f64(elapsed.as_secs_f64())))
    }

    fn with(mut self, other: Self, combine: impl Fn(Duration, Duration) -> Duration) -> Self {
        for (time, other) in self.0.iter_mut().zip(other.0) {
            *time = combine(*time, other);
        }
        self
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.with(before, Duration::saturating_sub)
    }
}

impl Servers {
    /// The time that each has used since it started.
    ///
    /// # Errors
    ///
    /// When one of them is gone.
    pub(crate) fn cpu(&self) -> Result<CpuTime> {
        let optional = |pid: Option<u32>| pid.map_or(Ok(Duration::ZERO), own_time);
        Ok(CpuTime([
            own_time(self.stoa)?,
            with_workers_time(self.runner)?,
            own_time(self.apiserver)?,
            own_time(self.etcd)?,
            optional(self.sample)?,
            optional(self.floor)?,
            time("self", CHILDREN)?,
        ]))
    }

    /// Whether Stoa was built with debug assertions and without optimization, by the folder it was built in.
    pub(crate) fn stoa_is_debug_build(&self) -> bool {
        let program = fs::read_link(format!("/proc/{}/exe", self.stoa));
        program.is_ok_and(|path| path.components().any(|part| part.as_os_str() == "debug"))
    }
}

/// The memory that a process has resident, in bytes.
///
/// # Errors
///
/// When it is gone.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

/// The most that a process ever had, and its workers that are there, all together.
///
/// # Errors
///
/// When it is gone.
pub(crate) fn peak_with_workers(pid: u32) -> Result<u64> {
    // A worker that ends meanwhile has nothing any more.
    let workers: u64 = descendants(pid)?.into_iter().filter_map(|worker| memory(worker, "VmHWM:").ok()).sum();
    Ok(memory(pid, "VmHWM:")? + workers)
}

/// Has the most memory that this process ever had begin anew.
///
/// # Errors
///
/// When Linux does not let it.
pub(crate) fn forget_own_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("/proc/self/clear_refs")
}

/// The memory of a process and all that it started, in bytes; 0 when it is gone. A page that several processes share
/// counts once, such as of a program that starts itself again.
pub(crate) fn memory_with_descendants(pid: u32) -> u64 {
    let all = descendants(pid).unwrap_or_default().into_iter().chain([pid]);
    all.filter_map(|process| sized(&format!("/proc/{process}/smaps_rollup"), "Pss:").ok()).sum()
}

/// The processes that a process started, and those that these started.
pub(crate) fn descendants(pid: u32) -> Result<Vec<u32>> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let threads = match fs::read_dir(format!("/proc/{parent}/task")) {
            Ok(threads) => threads,
            // One that ended meanwhile.
            Err(_) if next > 0 => {
                next += 1;
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("process {parent}")),
        };
        for thread in threads.filter_map(Result::ok) {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        next += 1;
    }
    Ok(found.split_off(1))
}

fn memory(pid: u32, field: &str) -> Result<u64> {
    sized(&format!("/proc/{pid}/status"), field)
}

/// The size in a line of a file of `/proc`, in bytes.
fn sized(file: &str, field: &str) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| file.to_owned())?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
    let kibibytes: u64 =
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{field} is no number"))?;
    Ok(kibibytes * 1024)
}

fn own_time(pid: u32) -> Result<Duration> {
    time(&pid.to_string(), OWN)
}

/// The same with all that it started, what ended and what is there.
fn with_workers_time(pid: u32) -> Result<Duration> {
    let whole = |pid: u32| -> Result<Duration> { Ok(own_time(pid)? + time(&pid.to_string(), CHILDREN)?) };
    // One that ends meanwhile counts for its parent.
    let workers: Duration = descendants(pid)?.into_iter().filter_map(|worker| whole(worker).ok()).sum();
    Ok(whole(pid)? + workers)
}

/// The number of the field with a process's own user time, as proc(5) counts; its system time follows.
const OWN: usize = 14;
/// The same of the programs that it ran and waited for.
const CHILDREN: usize = 16;

/// User and system time, from `/proc/<process>/stat`.
fn time(process: &str, first: usize) -> Result<Duration> {
    let ticks: u32 = stat(process)?.iter().skip(first - 3).take(2).map(|ticks| ticks.parse().unwrap_or(0)).sum();
    Ok(TICK * ticks)
}

/// The fields of `/proc/<process>/stat` from the third on.
fn stat(process: &str) -> Result<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).with_context(|| format!("process {process}"))?;
    // The program's name, field 2, may contain anything, but ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').context("/proc/…/stat has no name in it")?;
    Ok(fields.split_whitespace().map(str::to_owned).collect())
}
