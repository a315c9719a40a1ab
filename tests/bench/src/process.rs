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
}

/// Processor time, user and system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuTime {
    pub(crate) stoa: Duration,
    pub(crate) runner: Duration,
    pub(crate) apiserver: Duration,
    pub(crate) etcd: Duration,
    /// Programs that this one ran and waited for.
    pub(crate) children: Duration,
}

impl CpuTime {
    /// Of all together.
    pub(crate) fn total(self) -> Duration {
        self.stoa + self.runner + self.apiserver + self.etcd + self.children
    }

    /// Less what the processes would have used anyway, at `idle` per second.
    pub(crate) fn without_idle(self, idle: Self, elapsed: Duration) -> Self {
        let less = |used: Duration, idle: Duration| used.saturating_sub(idle.mul_f64(elapsed.as_secs_f64()));
        Self {
            stoa: less(self.stoa, idle.stoa),
            runner: less(self.runner, idle.runner),
            apiserver: less(self.apiserver, idle.apiserver),
            etcd: less(self.etcd, idle.etcd),
            children: self.children,
        }
    }

    /// The lesser of both, process by process.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            stoa: self.stoa.min(other.stoa),
            runner: self.runner.min(other.runner),
            apiserver: self.apiserver.min(other.apiserver),
            etcd: self.etcd.min(other.etcd),
            children: self.children.min(other.children),
        }
    }

    /// This time, of `elapsed`, as time per second.
    pub(crate) fn per_second(self, elapsed: Duration) -> Self {
        let rate = |used: Duration| used.div_f64(elapsed.as_secs_f64());
        Self {
            stoa: rate(self.stoa),
            runner: rate(self.runner),
            apiserver: rate(self.apiserver),
            etcd: rate(self.etcd),
            children: rate(self.children),
        }
    }
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            stoa: self.stoa.saturating_sub(before.stoa),
            runner: self.runner.saturating_sub(before.runner),
            apiserver: self.apiserver.saturating_sub(before.apiserver),
            etcd: self.etcd.saturating_sub(before.etcd),
            children: self.children.saturating_sub(before.children),
        }
    }
}

impl Servers {
    /// The time that each has used since it started.
    ///
    /// # Errors
    ///
    /// When one of them is gone.
    pub(crate) fn cpu(&self) -> Result<CpuTime> {
        Ok(CpuTime {
            stoa: own_time(self.stoa)?,
            runner: own_time(self.runner)?,
            apiserver: own_time(self.apiserver)?,
            etcd: own_time(self.etcd)?,
            children: time("self", CHILDREN)?,
        })
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
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is no number")?;
    Ok(kibibytes * 1024)
}

fn own_time(pid: u32) -> Result<Duration> {
    time(&pid.to_string(), OWN)
}

/// The number of the field with a process's own user time, as proc(5) counts; its system time follows.
const OWN: usize = 14;
/// The same of the programs that it ran and waited for.
const CHILDREN: usize = 16;

/// User and system time, from `/proc/<process>/stat`.
fn time(process: &str, first: usize) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).with_context(|| format!("process {process}"))?;
    // The program's name, field 2, may contain anything, but ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')').context("/proc/…/stat has no name in it")?;
    let ticks = fields.split_whitespace().skip(first - 3).take(2);
    let ticks: u32 = ticks.map(|ticks| ticks.parse::<u32>().unwrap_or(0)).sum();
    Ok(TICK * ticks)
}
