//! One process of the renderer, and its socket.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use stoa_proto::renderer::renderer_client::RendererClient;
use stoa_proto::renderer::{RenderRequest, RenderResponse, TemplatesRequest, TemplatesResponse};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::terraform::sandbox::Reading;

/// How long a process may take to start.
const START: Duration = Duration::from_secs(30);
/// How long a process may take to exit after its connection broke.
const EXIT: Duration = Duration::from_secs(5);
/// How much of its standard error is kept, in bytes.
const LAST_WORDS: usize = 16 << 10;
/// The largest message, in bytes: documents of 64 MiB with their paths.
const LARGEST_MESSAGE: usize = 128 << 20;
/// The socket in its folder.
const SOCKET: &str = "renderer.sock";

/// What a process is started with.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) this: &'a Path,
    pub(super) executable: &'a Path,
    pub(super) digest: [u8; 32],
    /// Bytes.
    pub(super) memory: u64,
    /// The folder that it reads.
    pub(super) trees: &'a Path,
    /// The folder for its socket's folder.
    pub(super) temporary: &'a Path,
}

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("starting the renderer")]
    Spawn(#[source] io::Error),
    #[error("the renderer is not ready after {} s", START.as_secs())]
    TimedOut,
    #[error("the renderer ended before it was ready: {0}")]
    Ended(String),
    #[error("connecting to the renderer")]
    Connect(#[source] tonic::transport::Error),
}

/// Why a process gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    TookTooLong,
    Memory,
    Killed,
    /// In another way.
    Exited(String),
}

/// A process, which is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    client: RendererClient<Channel>,
    /// It would end if it printed to a closed pipe.
    _stdout: BufReader<ChildStdout>,
    last_words: JoinHandle<String>,
    digest: [u8; 32],
    _folder: TempDir,
}

impl Process {
    pub(super) async fn start(launch: &Launch<'_>) -> Result<Self, StartError> {
        let folder = tempfile::Builder::new()
            .prefix("r")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(launch.temporary)
            .map_err(StartError::Spawn)?;
        // The heap is collected more often before the limit is reached.
        let limit = format!("{}B", launch.memory / 4 * 3);
        let environment: [(OsString, OsString); 2] =
            [("GOMEMLIMIT".into(), limit.into()), ("GOGC".into(), "400".into())];
        let reading = Reading {
            this: launch.this,
            memory: launch.memory,
            digest: launch.digest,
            executable: launch.executable,
            folder: folder.path(),
            reads: launch.trees,
            arguments: &[],
            environment: &environment,
        };
        let mut command = reading.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(StartError::Spawn)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(StartError::Spawn(io::ErrorKind::BrokenPipe.into()));
        };
        let last_words = tokio::spawn(collect(stderr));
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout);
        match tokio::time::timeout(START, stdout.read_line(&mut line)).await {
            Ok(Ok(_)) if line == "ready\n" => {}
            Ok(_) => {
                let status = child.wait().await.map_or_else(|err| err.to_string(), |status| status.to_string());
                let said = last_words.await.unwrap_or_default();
                return Err(StartError::Ended(format!("{status}: {}", said.trim())));
            }
            Err(_) => return Err(StartError::TimedOut),
        }
        let socket = folder.path().join(SOCKET);
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://renderer");
        let channel = endpoint.connect_with_connector(connector).await.map_err(StartError::Connect)?;
        let client = RendererClient::new(channel)
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE);
        Ok(Self { child, client, _stdout: stdout, last_words, digest: launch.digest, _folder: folder })
    }

    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub(super) async fn render(&mut self, request: RenderRequest) -> Result<RenderResponse, Status> {
        self.client.render(request).await.map(tonic::Response::into_inner)
    }

    pub(super) async fn execute_templates(&mut self, request: TemplatesRequest) -> Result<TemplatesResponse, Status> {
        self.client.execute_templates(request).await.map(tonic::Response::into_inner)
    }

    /// How many bytes of memory it uses, if the system reports that.
    pub(super) fn resident(&self) -> Option<u64> {
        stoa_workers::resident(self.child.id()?)
    }

    pub(super) async fn kill(mut self) {
        // It may have ended already.
        let _ = self.child.kill().await;
    }

    /// Ends a process whose call failed, and finds out why.
    pub(super) async fn end(mut self, status: &Status) -> Ended {
        // An error that it answered; one that it did not answer has no such code.
        if matches!(status.code(), Code::FailedPrecondition | Code::OutOfRange | Code::ResourceExhausted) {
            tracing::error!(%status, "the renderer refused a request");
            let _ = self.child.kill().await;
            return Ended::Exited(status.message().to_owned());
        }
        let exit = match tokio::time::timeout(EXIT, self.child.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                tracing::error!(%status, "a call of the renderer failed, and it still runs");
                let _ = self.child.kill().await;
                return Ended::Exited(status.code().description().to_owned());
            }
        };
        let said = self.last_words.await.unwrap_or_default();
        let Ok(exit) = exit else { return Ended::Exited("status unknown".to_owned()) };
        tracing::warn!(%exit, said = said.trim(), "the renderer ended while it rendered");
        let lacks_memory = ["out of memory", "cannot allocate memory", "exceeds 1000000000-byte limit"];
        if lacks_memory.iter().any(|words| said.contains(words)) {
            return Ended::Memory;
        }
        match exit.signal() {
            Some(_) => Ended::Killed,
            None => Ended::Exited(exit.to_string()),
        }
    }
}

/// Reads standard error to its end, and keeps the beginning, where Go's runtime says why it ends.
async fn collect(mut stderr: ChildStderr) -> String {
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stderr.read(&mut part).await {
        said.extend_from_slice(&part[..read.min(LAST_WORDS.saturating_sub(said.len()))]);
    }
    String::from_utf8_lossy(&said).into_owned()
}
