//! One call of a program: a process in a sandbox, with the input on standard input and the answer on standard output.
//!
//! Start at [`Sandbox::run`]. The process has no network, starts no process, writes no file, and ends with the call.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use prost::bytes::Bytes;
use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_workers::Limits;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;

use super::{Output, took_too_long};
use crate::failure::{Failure, reason, size};
use crate::terraform::sandbox::Reading;

/// How much of the end of a standard error is in an answer, in bytes.
const LAST_WORDS: usize = 16 << 10;
/// Of the beginning of it, in which Go's runtime says why it ends.
const FIRST_WORDS: usize = 4 << 10;

/// A program, and what it gets.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) executable: &'a Path,
    pub(super) digest: [u8; 32],
    pub(super) arguments: &'a [OsString],
    /// A folder that it reads.
    pub(super) reads: Option<&'a Path>,
    /// Bytes.
    pub(super) memory: u64,
    pub(super) time: Duration,
    /// The size of its answer, in bytes.
    pub(super) answer: usize,
}

/// Starts programs. Organizations share the processes.
#[derive(Debug)]
pub(super) struct Sandbox {
    this: PathBuf,
    limits: Limits,
    slots: FairSemaphore,
    temporary: PathBuf,
}

/// The end of a call without an exit code.
#[derive(Debug)]
enum Ended {
    Start(io::Error),
    TookTooLong,
    TooLarge,
    Signal { signal: i32, said: String },
}

impl Sandbox {
    pub(super) fn new(this: PathBuf, limits: Limits, processes: usize, temporary: PathBuf) -> Self {
        Self { this, limits, slots: FairSemaphore::new(processes, MaxShare::ThreeQuarters), temporary }
    }

    /// The limits of one call.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Runs a program to its end.
    pub(super) async fn run(
        &self,
        organization: &str,
        image: &str,
        launch: &Launch<'_>,
        input: Bytes,
    ) -> Result<Output, Failure> {
        let _slot = self.slots.acquire(organization, 1).await;
        let failed = |reason: &str, message| Failure::new(Code::FailedPrecondition, reason, message);
        match self.call(launch, input).await {
            Ok(output) => Ok(output),
            Err(Ended::TookTooLong) => Err(took_too_long(image, launch.time)),
            Err(Ended::TooLarge) => {
                let limit = size(launch.answer as u64);
                let message = format!("the answer of function {image} has more than {limit}; split the package");
                Err(failed(reason::TOO_LARGE, message))
            }
            Err(Ended::Signal { signal, said }) => {
                let said = if said.is_empty() { String::new() } else { format!(": {said}") };
                let message = format!("function {image} was ended by signal {signal}{said}");
                Err(failed(reason::FUNCTION_FAILED, message))
            }
            Err(Ended::Start(error)) => {
                tracing::error!(%error, image, "a function did not start");
                let message = "the function-runner cannot start the function; see its log, and try again";
                Err(Failure::new(Code::Unavailable, reason::UNAVAILABLE, message))
            }
        }
    }

    async fn call(&self, launch: &Launch<'_>, input: Bytes) -> Result<Output, Ended> {
        let folder = tempfile::Builder::new()
            .prefix("f")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.temporary)
            .map_err(Ended::Start)?;
        // A program in Go ends itself at the limit, and collects its garbage before.
        let environment: [(OsString, OsString); 1] =
            [("GOMEMLIMIT".into(), format!("{}B", launch.memory / 4 * 3).into())];
        let reading = Reading {
            this: &self.this,
            memory: launch.memory,
            digest: launch.digest,
            executable: launch.executable,
            folder: folder.path(),
            reads: launch.reads.unwrap_or(folder.path()),
            arguments: launch.arguments,
            environment: &environment,
        };
        let mut command = reading.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(Ended::Start)?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Ended::Start(io::ErrorKind::BrokenPipe.into()));
        };
        let feed = async move {
            // A function need not read all of its input.
            let _ = stdin.write_all(&input).await;
            drop(stdin);
        };
        let conversation = async {
            let ((), answer, said) = tokio::join!(feed, bounded(stdout, launch.answer), last_words(stderr));
            (answer, said)
        };
        let ended = tokio::time::timeout(launch.time, async {
            let (answer, said) = conversation.await;
            (answer, said, child.wait().await)
        });
        // The child is killed when the future of a call is dropped.
        let (answer, said, status) = ended.await.map_err(|_| Ended::TookTooLong)?;
        let stdout = answer.ok_or(Ended::TooLarge)?;
        outcome(stdout, said, status.map_err(Ended::Start)?)
    }
}

fn outcome(stdout: Bytes, stderr: String, status: ExitStatus) -> Result<Output, Ended> {
    match (status.code(), status.signal()) {
        (Some(exit_code), _) => Ok(Output { stdout, stderr, exit_code }),
        (None, signal) => Err(Ended::Signal { signal: signal.unwrap_or_default(), said: stderr.trim().to_owned() }),
    }
}

/// All of a pipe, if it is not larger than a limit. The rest is left in the pipe, so the writer ends with it.
async fn bounded(mut pipe: impl AsyncRead + Unpin, limit: usize) -> Option<Bytes> {
    let mut bytes = Vec::new();
    // A pipe that fails has no more to read.
    while let Ok(1..) = pipe.read_buf(&mut bytes).await {
        if bytes.len() > limit {
            return None;
        }
    }
    Some(bytes.into())
}

/// The beginning and the end of a standard error.
async fn last_words(mut pipe: impl AsyncRead + Unpin) -> String {
    let (mut first, mut last, mut is_cut) = (Vec::new(), Vec::new(), false);
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = pipe.read(&mut part).await {
        let (begin, end) = part[..read].split_at(FIRST_WORDS.saturating_sub(first.len()).min(read));
        first.extend_from_slice(begin);
        last.extend_from_slice(end);
        let more = last.len().saturating_sub(LAST_WORDS);
        is_cut |= more > 0;
        last.drain(..more);
    }
    let between: &[u8] = if is_cut { b"\n...\n" } else { b"" };
    String::from_utf8_lossy(&[&first, between, &last].concat()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn standard_error_keeps_its_beginning_and_end() {
        assert_eq!(last_words(&b"a\nb\n"[..]).await, "a\nb\n");
        let long = format!("begin {} end", "x".repeat(FIRST_WORDS + LAST_WORDS));
        let said = last_words(long.as_bytes()).await;
        assert!(said.starts_with("begin x") && said.ends_with("x end") && said.contains("\n...\n"), "{said}");
        assert!(said.len() <= FIRST_WORDS + LAST_WORDS + 5);
    }

    #[tokio::test]
    async fn answer_has_a_limit() {
        assert_eq!(bounded(&b"abc"[..], 3).await, Some("abc".into()));
        assert_eq!(bounded(&b"abcd"[..], 3).await, None);
    }

    #[test]
    fn signal_is_no_exit_code() {
        let of = |status: i32| outcome(Bytes::new(), "ended\n".to_owned(), ExitStatus::from_raw(status));
        assert_eq!(of(3 << 8).unwrap().exit_code, 3);
        let Err(Ended::Signal { signal, said }) = of(6) else { panic!("it was ended by a signal") };
        assert_eq!((signal, said.as_str()), (6, "ended"));
    }
}
