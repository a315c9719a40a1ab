//! One worker, as the pool sees it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use rustix::process::{Pid, Resource, Rlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;

use crate::frame::{HEAD, Tag, USED};
use crate::sandbox::Restrictions;

/// How long a worker may take until it takes jobs.
const START: Duration = Duration::from_secs(30);
/// How long a process whose pipes are closed may take to be gone.
const GONE: Duration = Duration::from_secs(5);
/// What is read of what a worker said as it died.
const LAST_WORDS: u64 = 4096;
/// Whatever a worker says but for its answer is shorter.
const SHORT: usize = 4096;
/// How much memory is made ready for an answer before any of it is there.
const AHEAD: usize = 1 << 20;

/// What a process hears whenever it asks in the middle of a job ([`Progress::ask`](crate::worker::Progress::ask)).
pub type Tell<'a> = &'a (dyn Fn() -> Vec<u8> + Sync);

/// What one job may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// Time of the processor, in whole seconds.
    pub processor: Duration,
    /// Time.
    pub time: Duration,
    /// Bytes of the answer.
    pub answer: usize,
}

/// Why a job has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// So much waits for a worker already that it was not even begun.
    Busy,
    /// It wanted more memory than there is for one.
    Memory,
    /// It took more time of the processor than there is for one.
    Processor,
    /// It took more time than there is for one.
    Time,
    /// Its answer is larger than one may be.
    Answer,
    /// Our code panicked there.
    Panicked(String),
    /// The worker died of a signal from outside, or of the kernel's want of memory. Another try may do.
    Killed(i32),
    /// The worker came to its end in another way, or did not keep to what is agreed.
    Died(String),
    /// There is no worker, and none can be started now.
    NoWorker(String),
    /// There are no workers any more.
    Closed,
}

/// A job without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Why.
    pub fault: Fault,
    /// The part that the work was at, if it said.
    pub at: Option<u32>,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, at: None }
    }
}

impl Fault {
    /// The word for it in metrics.
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

/// Why a worker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system starts no process.
    #[error("no process can be started")]
    Spawn(#[source] io::Error),
    /// It ended, or said something else than that it is ready.
    #[error("a worker does not start: {0}")]
    NotReady(String),
}

/// Starts workers from a thread that is there for as long as it: the system ends a worker when the thread that started it
/// ends, and threads of Tokio come and go.
#[derive(Debug)]
pub(crate) struct Starter {
    wanted: mpsc::Sender<Wanted>,
}

/// A process that somebody waits for.
#[derive(Debug)]
struct Wanted {
    more: More,
    started: oneshot::Sender<io::Result<Child>>,
}

/// What one process has that not all have.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// What comes after the arguments of all.
    pub arguments: Vec<OsString>,
}

/// What is started.
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

impl Starter {
    /// Has to be called in a runtime of Tokio.
    pub(crate) fn new(program: Program) -> io::Result<Self> {
        let (wanted, requests) = mpsc::channel::<Wanted>();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("worker-starter".to_owned()).spawn(move || {
            let _entered = runtime.enter();
            for Wanted { more, started } in requests {
                // Whom nobody waits for is killed when it is dropped.
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
        let mut worker = Worker { child, input, output, restrictions, used: Duration::ZERO, at: None };
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
    pub(crate) restrictions: Restrictions,
    /// How much time of the processor it took since it began, as it says.
    used: Duration,
    /// The part of the job that it is at.
    at: Option<u32>,
}

/// Why nothing was heard.
enum Heard {
    /// It closed its pipe.
    Nothing,
    /// More than is taken.
    TooMuch,
    /// No such thing is ever said.
    Nonsense,
    /// Its code panicked, and where.
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

    /// Does a job, in which it may ask where there is something to tell. After a failure this is of no use any more.
    pub(crate) async fn work(&mut self, job: &[u8], limits: &Limits, tell: Option<Tell<'_>>) -> Result<Bytes, Failed> {
        self.at = None;
        self.allow(limits.processor);
        let fault = match tokio::time::timeout(limits.time, self.converse(job, limits.answer, tell)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(Heard::Nothing)) => {
                let (status, said) = self.end().await;
                fault_of(status, &said)
            }
            Ok(Err(Heard::TooMuch)) => Fault::Answer,
            Ok(Err(Heard::Panicked(place))) => Fault::Panicked(place),
            Ok(Err(Heard::Nonsense)) => Fault::Died("it said what no worker says".to_owned()),
            Err(_) => Fault::Time,
        };
        Err(Failed { fault, at: self.at })
    }

    /// How many bytes of memory it holds, as far as the system says.
    pub(crate) fn resident(&self) -> Option<u64> {
        let pages = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()?)).ok()?;
        let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as u64)
    }

    /// Lets it take so much more time of the processor. It cannot do so itself.
    fn allow(&self, more: Duration) {
        let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)) else { return };
        let hard = rustix::process::getrlimit(Resource::Cpu).maximum;
        let most = self.used.saturating_add(more).as_secs() + 1;
        let most = hard.map_or(most, |hard| hard.min(most));
        // One that is gone is noticed at once.
        let _ = rustix::process::prlimit(Some(pid), Resource::Cpu, Rlimit { current: Some(most), maximum: hard });
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Heard> {
        let length = u32::try_from(bytes.len()).map_err(|_| Heard::Nothing)?.to_be_bytes();
        // One that dies while it reads is told by what is heard of it.
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

    /// How it ended, and what it said to that. It is killed if it has not.
    async fn end(&mut self) -> (ExitStatus, String) {
        let ended = tokio::time::timeout(GONE, self.child.wait()).await;
        let status = match ended {
            Ok(Ok(status)) => status,
            Ok(Err(_)) | Err(_) => {
                let _ = self.child.kill().await;
                ExitStatus::default()
            }
        };
        let mut said = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            // Nobody else writes there, so that it ends.
            let _ = tokio::time::timeout(GONE, stderr.take(LAST_WORDS).read_to_end(&mut said)).await;
        }
        (status, String::from_utf8_lossy(&said).into_owned())
    }
}

/// What it means that a worker ended in the middle of a job.
fn fault_of(status: ExitStatus, said: &str) -> Fault {
    match status.signal() {
        Some(libc::SIGXCPU) => Fault::Processor,
        // The standard library's words, with which it aborts when an allocation fails.
        Some(libc::SIGABRT) if said.contains("memory allocation of") => Fault::Memory,
        Some(signal @ (libc::SIGKILL | libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT)) => {
            Fault::Killed(signal)
        }
        // What it said is no part of it: it could be of the job.
        _ => Fault::Died(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_a_worker_ends_tells_why() {
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
