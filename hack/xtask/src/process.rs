//! Background processes that outlive the command that started them.
//!
//! Start at [`Daemon`]. A pid file names a process by pid, start time and boot, so that a number
//! that was given to somebody else since then, before or after a reboot, is never taken for ours.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How often a state that nothing announces is looked at again.
const POLL: Duration = Duration::from_millis(50);

/// A named background process of one folder: its pid is in `<folder>/run/<name>.pid`, what it
/// prints in `<folder>/logs/<name>.log`.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: &'static str,
    pid_file: PathBuf,
    log: PathBuf,
}

/// How a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM: finish what is under way.
    Terminate,
    /// SIGKILL: at once, as in a crash.
    Kill,
}

impl Daemon {
    /// The daemon called `name` of the folder `dir`, running or not.
    pub(crate) fn new(dir: &Path, name: &'static str) -> Self {
        Self {
            name,
            pid_file: dir.join("run").join(format!("{name}.pid")),
            log: dir.join("logs").join(format!("{name}.log")),
        }
    }

    /// What the daemon is called in messages.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Starts `command` in a process group of its own, so that Ctrl-C does not reach it.
    pub(crate) fn spawn(&self, command: &mut Command) -> Result<u32> {
        for file in [&self.pid_file, &self.log] {
            let folder = file.parent().expect("both are joined below a folder");
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("opening {}", self.log.display()))?;
        let program = command.get_program().to_os_string();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let identity = Identity::of(child.id()).with_context(|| format!("{} ended at once", self.name))?;
        fs::write(&self.pid_file, identity.encode()).with_context(|| format!("writing {}", self.pid_file.display()))?;
        Ok(child.id())
    }

    /// The pid while the process that was started still runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        let recorded = Identity::decode(&fs::read_to_string(&self.pid_file).ok()?)?;
        (Identity::of(recorded.pid)? == recorded).then_some(recorded.pid)
    }

    /// Sends `signal` and waits until the process is gone; SIGKILL follows when it takes more
    /// than `patience`. Says whether there was anything to end.
    pub(crate) fn end(&self, signal: Signal, patience: Duration) -> Result<bool> {
        let Some(pid) = self.pid() else {
            remove_if_there(&self.pid_file)?;
            return Ok(false);
        };
        send(signal, pid)?;
        if !self.gone_within(patience) {
            eprintln!("{} (pid {pid}) did not end within {patience:?}; killing it", self.name);
            send(Signal::Kill, pid)?;
            ensure!(self.gone_within(Duration::from_secs(10)), "{} (pid {pid}) does not end", self.name);
        }
        remove_if_there(&self.pid_file)?;
        Ok(true)
    }

    fn gone_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.pid().is_some() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(POLL);
        }
        true
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    ///
    /// When the process ends first or `patience` runs out; the message carries the log's end.
    pub(crate) fn wait(&self, patience: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + patience;
        while !ready() {
            if self.pid().is_none() {
                bail!("{} ended:\n{}", self.name, self.log_tail());
            }
            if Instant::now() >= deadline {
                bail!("{} is not ready after {patience:?}:\n{}", self.name, self.log_tail());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// The last lines of the log, under its path.
    fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(15)..];
        format!("  {}\n  {}", self.log.display(), tail.join("\n  "))
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn send(signal: Signal, pid: u32) -> Result<()> {
    let name = match signal {
        Signal::Terminate => "TERM",
        Signal::Kill => "KILL",
    };
    // The shell's own kill is there on every machine; a failure means that the process is gone.
    let status =
        Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\" 2>/dev/null || true", name, &pid.to_string()]).status();
    ensure!(status.context("running sh")?.success(), "sending SIG{name} to {pid} failed");
    Ok(())
}

/// One process of one boot.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    pid: u32,
    /// Clock ticks since boot.
    start: u64,
    boot: String,
}

impl Identity {
    /// Reads the running process `pid`; `None` when there is none, or only its exit status is left.
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start = start_time(&stat)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(Self { pid, start, boot: boot.trim().to_owned() })
    }

    fn encode(&self) -> String {
        format!("{} {} {}\n", self.pid, self.start, self.boot)
    }

    fn decode(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let (pid, start, boot) = (words.next()?, words.next()?, words.next()?);
        Some(Self { pid: pid.parse().ok()?, start: start.parse().ok()?, boot: boot.to_owned() })
    }
}

/// The start time in a line of `/proc/<pid>/stat` as proc(5) describes it; `None` for a zombie.
fn start_time(stat: &str) -> Option<u64> {
    // The command's name stands in parentheses and may hold any character, those included.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // Field 22 of the line; the state just read was field 3.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "77 (a) b) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 123456 1 2 3";

    #[test]
    fn start_time_is_read_behind_a_name_with_parentheses() {
        assert_eq!(start_time(STAT), Some(123_456));
    }

    #[test]
    fn zombie_counts_as_gone() {
        assert_eq!(start_time(&STAT.replace(") S", ") Z")), None);
    }

    #[test]
    fn pid_of_another_boot_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::new(dir.path(), "sleeper");
        let pid = daemon.spawn(Command::new("sleep").arg("60")).unwrap();
        assert_eq!(daemon.pid(), Some(pid));

        let ours = fs::read_to_string(&daemon.pid_file).unwrap();
        let mut other = Identity::decode(&ours).unwrap();
        other.boot = "another".to_owned();
        fs::write(&daemon.pid_file, other.encode()).unwrap();
        assert_eq!(daemon.pid(), None);
        assert!(!daemon.end(Signal::Terminate, Duration::from_secs(5)).unwrap());

        fs::write(&daemon.pid_file, ours).unwrap();
        assert!(daemon.end(Signal::Terminate, Duration::from_secs(5)).unwrap());
        assert_eq!(daemon.pid(), None);
        assert!(!daemon.pid_file.exists());
    }

    #[test]
    fn waiting_for_a_process_that_ends_reports_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::new(dir.path(), "failing");
        daemon.spawn(Command::new("sh").args(["-c", "echo no such luck; sleep 0.2; exit 1"])).unwrap();
        let error = daemon.wait(Duration::from_secs(10), || false).unwrap_err();
        assert!(error.to_string().contains("no such luck"), "{error}");
    }
}
