//! One worker process, as the pool sees it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::process::{Pid, Resource, Rlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::frame::{HEAD, Tag, USED};
use crate::sandbox::Restrictions;

/// How long a worker may take to start.
const START: Duration = Duration::from_secs(30);
/// How long a process may take to exit after its pipes are closed.
const GONE: Duration = Duration::from_secs(5);
/// How much of the end of a worker's standard error is known, in bytes.
const LAST_WORDS: usize = 4096;
/// Every message of a worker is shorter, except its answer.
const SHORT: usize = 4096;
/// How much memory is allocated for an answer before any of it arrives.
const AHEAD: usize = 1 << 20;

/// Answers the questions of a process in the middle of a job ([`Progress::ask`](crate::worker::Progress::ask)).
pub type Tell<'a> = &'a (dyn Fn() -> Vec<u8> + Sync);

/// The limits on one job.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// CPU time, in whole seconds.
    pub processor: Duration,
    /// Elapsed time.
    pub time: Duration,
    /// Bytes of the answer.
    pub answer: usize,
}

/// Why a job has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Too many jobs wait already, so it was not queued.
    Busy,
    /// It needs more memory than one job may use.
    Memory,
    /// It took more CPU time than one job may use.
    Processor,
    /// It took longer than one job may take.
    Time,
    /// Its answer is larger than an answer may be.
    Answer,
    /// Our code panicked at this location.
    Panicked(String),
    /// The worker was killed by a signal from outside, such as by the kernel when memory runs out. A retry may succeed.
    Killed(i32),
    /// The worker ended in another way, or broke the protocol.
    Died(String),
    /// No worker runs, and none can be started now.
    NoWorker(String),
    /// The pool is closed.
    Closed,
}

/// A job without an answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Failed {
    /// Why.
    pub fault: Fault,
    /// The part of the job that the worker reported last.
    pub at: Option<u32>,
    /// The end of the worker's standard error, if the worker ended. It may quote the job, so only the submitter may see it.
    pub stderr: String,
}

/// Without the standard error, which may quote the job.
impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed").field("fault", &self.fault).field("at", &self.at).finish_non_exhaustive()
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, at: None, stderr: String::new() }
    }
}

impl Fault {
    /// Its label in metrics.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processor => "processor",
            Self::Time => "time",
            Self::Answer => "answer",
            Self::Panicked(_) => "panic",
            Self::Killed(_) => "killed",
            Self::Busy | Self::Died(_) | Self::NoWorker(_) | Self::Closed => "died",
        }
    }
}

/// Why a worker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system did not start a process.
    #[error("the system did not start a process")]
    Spawn(#[source] io::Error),
    /// It ended, or did not report that it is ready.
    #[error("the worker did not start: {0}")]
    NotReady(String),
}

/// Starts workers from a thread that lives as long as it: the kernel kills a worker when the thread that started it
/// ends, and Tokio ends idle threads.
#[derive(Debug)]
pub(crate) struct Starter {
    wanted: mpsc::Sender<Wanted>,
}

/// A request to start a process.
#[derive(Debug)]
struct Wanted {
    more: More,
    started: oneshot::Sender<io::Result<Child>>,
}

/// The arguments of one process.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// They follow the arguments of all processes.
    pub arguments: Vec<OsString>,
}

/// The program to start.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
}

impl Program {
    fn start(&self, more: &More) -> io::Result<Child> {
        Command::new(&self.path)
            .arg0("function-runner")
            .args(self.arguments.iter().chain(&more.arguments))
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }
}

/// How many bytes of memory a process uses, if the system reports that.
pub fn resident(process: u32) -> Option<u64> {
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

impl Starter {
    /// Needs a Tokio runtime.
    pub(crate) fn new(program: Program) -> io::Result<Self> {
        let (wanted, requests) = mpsc::channel::<Wanted>();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("worker-starter".to_owned()).spawn(move || {
            let _entered = runtime.enter();
            for Wanted { more, started } in requests {
                // A process whose caller left is killed when it is dropped.
                let _ = started.send(program.start(&more));
            }
        })?;
        Ok(Self { wanted })
    }

    /// Starts a worker, and waits until it takes jobs. It is killed when this is dropped.
    pub(crate) async fn start(&self, more: More) -> Result<Worker, StartError> {
        let (started, child) = oneshot::channel();
        let ended = || StartError::NotReady("the thread that starts workers has ended".to_owned());
        self.wanted.send(Wanted { more, started }).map_err(|_| ended())?;
        let mut child = child.await.map_err(|_| ended())?.map_err(StartError::Spawn)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(StartError::NotReady("it has no pipes".to_owned()));
        };
        let restrictions = Restrictions::default();
        // A full pipe would stop a worker that writes often.
        let stderr = child.stderr.take().map(|pipe| tokio::spawn(last_words(pipe)));
        let mut worker = Worker { child, input, output, stderr, restrictions, used: Duration::ZERO, at: None };
        match tokio::time::timeout(START, worker.hear(SHORT)).await {
            Ok(Ok((Tag::Ready, byte))) if byte.len() == 1 => worker.restrictions = Restrictions::of_byte(byte[0]),
            Ok(Err(Heard::Nothing)) => {
                let (status, said) = worker.end().await;
                return Err(StartError::NotReady(format!("{status}: {}", said.trim())));
            }
            Ok(_) => return Err(StartError::NotReady("it does not say that it is ready".to_owned())),
            Err(_) => return Err(StartError::NotReady(format!("it is not ready after {} s", START.as_secs()))),
        }
        Ok(worker)
    }
}

/// A process that does one job at a time. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Reads its standard error until it ends.
    stderr: Option<JoinHandle<Vec<u8>>>,
    pub(crate) restrictions: Restrictions,
    /// The CPU time since it began, as it reports.
    used: Duration,
    /// The part of the job that it reported last.
    at: Option<u32>,
}

/// Why no message was read.
enum Heard {
    /// It closed its pipe.
    Nothing,
    /// The message is too long.
    TooMuch,
    /// The message is not part of the protocol.
    Nonsense,
    /// Its code panicked at this location.
    Panicked(String),
}

impl Worker {
    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> String {
        self.child.wait().await.map_or_else(|err| err.to_string(), |status| status.to_string())
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it at once.
    pub(crate) async fn kill(mut self) {
        // It may have ended already.
        let _ = self.child.kill().await;
    }

    /// Does a job, during which it may ask questions that `tell` answers. After a failure the worker is unusable.
    pub(crate) async fn work(&mut self, job: &[u8], limits: &Limits, tell: Option<Tell<'_>>) -> Result<Bytes, Failed> {
        self.at = None;
        self.allow(limits.processor);
        let mut stderr = String::new();
        let fault = match tokio::time::timeout(limits.time, self.converse(job, limits.answer, tell)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(Heard::Nothing)) => {
                let (status, said) = self.end().await;
                let fault = fault_of(status, &said);
                stderr = said;
                fault
            }
            Ok(Err(Heard::TooMuch)) => Fault::Answer,
            Ok(Err(Heard::Panicked(place))) => Fault::Panicked(place),
            Ok(Err(Heard::Nonsense)) => Fault::Died("it broke the protocol".to_owned()),
            Err(_) => Fault::Time,
        };
        Err(Failed { fault, at: self.at, stderr })
    }

    /// How many bytes of memory it uses, if the system reports that.
    pub(crate) fn resident(&self) -> Option<u64> {
        resident(self.child.id()?)
    }

    /// Lets it use so much more CPU time. It cannot raise the limit itself.
    fn allow(&self, more: Duration) {
        let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)) else { return };
        let hard = rustix::process::getrlimit(Resource::Cpu).maximum;
        let most = self.used.saturating_add(more).as_secs() + 1;
        let most = hard.map_or(most, |hard| hard.min(most));
        // A dead process is noticed at the next read.
        let _ = rustix::process::prlimit(Some(pid), Resource::Cpu, Rlimit { current: Some(most), maximum: hard });
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Heard> {
        let length = u32::try_from(bytes.len()).map_err(|_| Heard::Nothing)?.to_be_bytes();
        // A process that dies while it reads is noticed at the next read.
        if bytes.len() < SHORT {
            let _ = self.input.write_all(&[&length, bytes].concat()).await;
        } else if self.input.write_all(&length).await.is_ok() {
            let _ = self.input.write_all(bytes).await;
        }
        Ok(())
    }

    async fn converse(&mut self, job: &[u8], most: usize, tell: Option<Tell<'_>>) -> Result<Bytes, Heard> {
        self.send(job).await?;
        loop {
            match self.hear(most.saturating_add(USED)).await? {
                (Tag::At, part) => self.at = part.as_ref().try_into().ok().map(u32::from_be_bytes),
                (Tag::Answer, mut answer) if answer.len() >= USED => {
                    self.used = Duration::from_nanos(answer.get_u64());
                    return Ok(answer);
                }
                (Tag::Panicked, place) => return Err(Heard::Panicked(String::from_utf8_lossy(&place).into_owned())),
                (Tag::Asks, _) => {
                    let told = tell.ok_or(Heard::Nonsense)?();
                    self.send(&told).await?;
                }
                (Tag::Ready | Tag::Answer, _) => return Err(Heard::Nonsense),
            }
        }
    }

    async fn hear(&mut self, most: usize) -> Result<(Tag, Bytes), Heard> {
        let mut head = [0; HEAD];
        self.output.read_exact(&mut head).await.map_err(|_| Heard::Nothing)?;
        let (tag, length) = Tag::parse(head).ok_or(Heard::Nonsense)?;
        if length > if tag == Tag::Answer { most } else { SHORT } {
            return Err(Heard::TooMuch);
        }
        let mut said = BytesMut::with_capacity(length.min(AHEAD));
        let mut rest = (&mut self.output).take(length as u64);
        while said.len() < length {
            if rest.read_buf(&mut said).await.map_err(|_| Heard::Nothing)? == 0 {
                return Err(Heard::Nothing);
            }
        }
        Ok((tag, said.freeze()))
    }

    /// Its exit status and the end of its standard error. It is killed if it still runs.
    async fn end(&mut self) -> (ExitStatus, String) {
        let ended = tokio::time::timeout(GONE, self.child.wait()).await;
        let status = match ended {
            Ok(Ok(status)) => status,
            Ok(Err(_)) | Err(_) => {
                let _ = self.child.kill().await;
                ExitStatus::default()
            }
        };
        let said = match self.stderr.take() {
            // Nobody else writes there, so the task ends.
            Some(reading) => tokio::time::timeout(GONE, reading).await.ok().and_then(Result::ok).unwrap_or_default(),
            None => Vec::new(),
        };
        (status, String::from_utf8_lossy(&said).into_owned())
    }
}

/// The end of a standard error, in whole lines: a secret that is cut would not be recognised.
async fn last_words(mut pipe: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut said, mut is_cut) = (Vec::new(), false);
    // A pipe that fails has no more to read.
    while let Ok(1..) = pipe.read_buf(&mut said).await {
        let more = said.len().saturating_sub(LAST_WORDS);
        is_cut |= more > 0;
        said.drain(..more);
    }
    if is_cut {
        let end = said.iter().position(|byte| *byte == b'\n');
        said.drain(..end.map_or(said.len(), |end| end + 1));
    }
    said
}

/// The fault of a worker that ended in the middle of a job.
fn fault_of(status: ExitStatus, said: &str) -> Fault {
    match status.signal() {
        Some(libc::SIGXCPU) => Fault::Processor,
        // The standard library aborts with these words when an allocation fails.
        Some(libc::SIGABRT) if said.contains("memory allocation of") => Fault::Memory,
        Some(signal @ (libc::SIGKILL | libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT)) => {
            Fault::Killed(signal)
        }
        _ => Fault::Died(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_words_are_whole_lines() {
        let long = "x".repeat(LAST_WORDS);
        for (text, expected) in
            [("a\nb\n".to_owned(), "a\nb\n"), (format!("{long}\nb\nc"), "b\nc"), (format!("a\n{long}x"), "")]
        {
            assert_eq!(String::from_utf8(last_words(text.as_bytes()).await).unwrap(), expected);
        }
        assert_eq!(last_words(long.as_bytes()).await.len(), LAST_WORDS);
    }

    #[test]
    fn exit_status_determines_the_fault() {
        let signal = ExitStatus::from_raw;
        let died = |status: i32| Fault::Died(signal(status).to_string());
        for (status, said, expected) in [
            (libc::SIGXCPU, "", Fault::Processor),
            (libc::SIGABRT, "memory allocation of 16 bytes failed\n", Fault::Memory),
            (libc::SIGABRT, "\nthread 'main' has overflowed its stack\n", died(libc::SIGABRT)),
            (libc::SIGKILL, "memory allocation of 16 bytes failed\n", Fault::Killed(libc::SIGKILL)),
            (libc::SIGSEGV, "", died(libc::SIGSEGV)),
            (1 << 8, "", died(1 << 8)),
        ] {
            assert_eq!(fault_of(signal(status), said), expected, "{status} {said:?}");
        }
    }
}
