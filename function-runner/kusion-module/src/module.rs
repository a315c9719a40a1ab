//! A module that runs, and its call.

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use stoa_terraform_provider::process::{Launcher, Network, Plugin, Process, StartError, StartOptions};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::proto::module_client::ModuleClient;
use crate::proto::{GeneratorRequest, GeneratorResponse};

/// Modules of Kusion.
const KUSION_MODULE: Plugin = Plugin { cookie: ("MODULE_PLUGIN", "ON"), versions: &[1], environment: &[] };
/// The largest message, in bytes.
const LARGEST_MESSAGE: usize = 64 << 20;
/// How long a process may take to exit after its connection broke.
const EXIT: Duration = Duration::from_secs(2);
/// How many lines of a module's output a message quotes.
const LINES: usize = 5;

/// How a module is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The executable.
    pub executable: PathBuf,
    /// The SHA-256 of the executable, which launchers verify.
    pub digest: [u8; 32],
    /// All variables of its environment beside those of the protocol.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the folder of its socket is created. The path has to be short.
    pub temporary: PathBuf,
    /// How long it may take until it accepts calls.
    pub time_limit: Duration,
}

/// A module that did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The process did not start, for a reason of the machine.
    #[error("it did not start")]
    Start(#[source] Box<StartError>),
    /// The program is no module of this platform.
    #[error("{0}")]
    NoModule(String),
    /// It took longer than this.
    #[error("it took more than {} s", .0.as_secs())]
    TookTooLong(Duration),
    /// It used more memory than it may have.
    #[error("it took more memory than it may have")]
    Memory,
    /// It ended before it answered.
    #[error("it ended before it answered ({exit}){}", quoted(last_lines))]
    Ended {
        /// The end of the process.
        exit: String,
        /// The last lines of its output.
        last_lines: Vec<String>,
    },
    /// It answered with an error.
    #[error("{0}")]
    Rejected(String),
    /// Its answer is no message of the protocol.
    #[error("its answer does not follow the protocol of Kusion's modules: {0}")]
    Answer(String),
}

/// A module that accepts calls. Its process ends with this value.
#[derive(Debug)]
pub struct Module {
    process: Process,
    client: ModuleClient<Channel>,
}

impl Module {
    /// Starts a module, without network.
    ///
    /// # Errors
    ///
    /// If the program cannot be run, ends, takes too long, or is no module.
    pub async fn start(launcher: &dyn Launcher, options: &Options) -> Result<Self, ModuleError> {
        let Options { executable, digest, environment, temporary, time_limit } = options.clone();
        let options = StartOptions {
            plugin: KUSION_MODULE,
            executable,
            digest: Some(digest),
            environment,
            network: Network::Deny,
            temporary,
            time_limit,
        };
        let process = Process::start(launcher, &options).await.map_err(not_started)?;
        let client = ModuleClient::new(process.channel())
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE);
        Ok(Self { process, client })
    }

    /// Makes the resources of a request.
    ///
    /// # Errors
    ///
    /// If it answers with an error, ends, or takes longer than the limit. Drop it then.
    pub async fn generate(
        &mut self,
        request: GeneratorRequest,
        time_limit: Duration,
    ) -> Result<GeneratorResponse, ModuleError> {
        match tokio::time::timeout(time_limit, self.client.generate(request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failed(status).await),
            Err(_) => Err(ModuleError::TookTooLong(time_limit)),
        }
    }

    /// Ends the process.
    pub async fn end(self) {
        self.process.shut_down().await;
    }

    /// The reason why a call has no answer. The process of a broken connection ends soon.
    async fn failed(&self, status: Status) -> ModuleError {
        // An answer has no source, and an error of the connection has one.
        let is_broken = status.source().is_some() || matches!(status.code(), Code::Unavailable | Code::Internal);
        if is_broken && let Ok(exit) = tokio::time::timeout(EXIT, self.process.ended()).await {
            let output = self.process.output();
            return ended(exit.to_string(), output.reason(), output.last_lines());
        }
        match status.code() {
            Code::OutOfRange | Code::Internal | Code::Unimplemented => ModuleError::Answer(status.message().to_owned()),
            _ => ModuleError::Rejected(status.message().to_owned()),
        }
    }
}

fn not_started(error: StartError) -> ModuleError {
    match error {
        StartError::Ended { exit, last_lines, .. } => ended(exit, None, last_lines),
        StartError::TimedOut { time_limit, .. } => ModuleError::TookTooLong(time_limit),
        StartError::Handshake { source, .. } => ModuleError::NoModule(source.to_string()),
        other => ModuleError::Start(Box::new(other)),
    }
}

fn ended(exit: String, reason: Option<&str>, last_lines: Vec<String>) -> ModuleError {
    let lacks_memory = |line: &str| line.contains("out of memory") || line.contains("cannot allocate memory");
    match reason {
        Some(reason) if lacks_memory(reason) => ModuleError::Memory,
        Some(reason) => ModuleError::Ended { exit, last_lines: vec![reason.to_owned()] },
        None => ModuleError::Ended { exit, last_lines },
    }
}

/// The last lines of its output.
fn quoted(lines: &[String]) -> String {
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
}
