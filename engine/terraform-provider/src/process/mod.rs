//! A provider's process: its start, its output, and its end.
//!
//! Start at [`Process::start`]. A provider listens on a socket in a private folder of its own, and speaks HTTP/2 there:
//! with mutual TLS if its library offers that, and else in plain text, which no other user can read either.
//!
//! The programs of this form are plugins of HashiCorp's library. [`Plugin`] says which ones: providers of Terraform, or modules of
//! Kusion.
//!
//! Elsewhere: [`Launcher`] makes the command, so that a sandbox can wrap it; `handshake` reads the line that a provider
//! prints, and `tls` has the certificates.

mod handshake;
mod launch;
mod output;
mod plugin;
mod tls;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::either::Either;
use tonic::transport::{Channel, Endpoint};

pub use self::handshake::{Handshake, HandshakeError};
pub use self::launch::{DirectLauncher, Launcher, Network, Program};
pub use self::output::Output;
use self::tls::Identity;

/// The plugins that one kind of client starts.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// The variable by which a plugin knows that a client started it, not a person, and its value.
    pub cookie: (&'static str, &'static str),
    /// The versions of its protocol that the client speaks.
    pub versions: &'static [u32],
    /// More variables of its environment.
    pub environment: &'static [(&'static str, &'static str)],
}

/// Providers of Terraform.
pub const TERRAFORM_PROVIDER: Plugin = Plugin {
    cookie: ("TF_PLUGIN_MAGIC_COOKIE", "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2"),
    versions: &[5, 6],
    // The libraries of providers log each step otherwise, which is half of their work.
    environment: &[("TF_LOG_SDK", "off")],
};

/// The longest path of a socket, in bytes.
const LONGEST_SOCKET: usize = 107;
/// The longest name of a socket in its folder: `plugin` and the digits of a random number.
const LONGEST_SOCKET_NAME: usize = 6 + 20;
/// How long a process may take to exit after a request to do so.
const EXIT: Duration = Duration::from_secs(2);
/// How long the standard error of a process that has ended is read.
const LAST_LINES: Duration = Duration::from_millis(200);

/// How a provider's process is started.
#[derive(Clone)]
pub struct StartOptions {
    /// The kind of the plugin.
    pub plugin: Plugin,
    /// The executable.
    pub executable: PathBuf,
    /// The SHA-256 of the executable, for launchers that verify it.
    pub digest: Option<[u8; 32]>,
    /// The variables of its environment, which is empty otherwise.
    pub environment: Vec<(OsString, OsString)>,
    /// Its network, for launchers that restrict it.
    pub network: Network,
    /// Where the folder of its socket is created. The path has to be short.
    pub temporary: PathBuf,
    /// How long it may take until it accepts calls.
    pub time_limit: Duration,
}

/// The environment may contain secrets.
impl fmt::Debug for StartOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartOptions").field("executable", &self.executable).finish_non_exhaustive()
    }
}

impl StartOptions {
    /// A provider of Terraform with an empty environment, all of the network, the system's folder for temporary files, and a minute to
    /// start.
    pub fn new(executable: impl Into<PathBuf>) -> Self {
        Self {
            plugin: TERRAFORM_PROVIDER,
            executable: executable.into(),
            digest: None,
            environment: Vec::new(),
            network: Network::Allow,
            temporary: std::env::temp_dir(),
            time_limit: Duration::from_secs(60),
        }
    }
}

/// A provider that did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder for the socket cannot be created.
    #[error("creating the folder for a provider's socket in {}", folder.display())]
    Folder {
        /// The folder around it.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The folder for the socket has a long path.
    #[error("the path {} is too long for a provider's socket; choose a shorter folder for temporary files", .0.display())]
    LongPath(PathBuf),
    /// There is no certificate for the connection.
    #[error("making a certificate for a provider")]
    Certificate(#[source] rcgen::Error),
    /// The executable cannot be run.
    #[error("running {}", executable.display())]
    Spawn {
        /// The executable.
        executable: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The process ended without the line that begins the protocol.
    #[error("provider {} ended before it accepted calls ({exit}){}", executable.display(), output::quoted(last_lines))]
    Ended {
        /// The executable.
        executable: PathBuf,
        /// The end of the process.
        exit: String,
        /// The last lines of its output.
        last_lines: Vec<String>,
    },
    /// The process took too long.
    #[error("provider {} accepted no calls within {} s{}", executable.display(), time_limit.as_secs(), output::quoted(last_lines))]
    TimedOut {
        /// The executable.
        executable: PathBuf,
        /// The time limit.
        time_limit: Duration,
        /// The last lines of its output.
        last_lines: Vec<String>,
    },
    /// The line that begins the protocol is wrong.
    #[error("provider {} does not speak the plugin protocol", executable.display())]
    Handshake {
        /// The executable.
        executable: PathBuf,
        /// The reason.
        source: HandshakeError,
    },
    /// The certificates do not suit the TLS library.
    #[error("preparing TLS to provider {}", executable.display())]
    Tls {
        /// The executable.
        executable: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
    /// The socket accepts no connection.
    #[error("connecting to provider {}", executable.display())]
    Connect {
        /// The executable.
        executable: PathBuf,
        /// The reason.
        source: tonic::transport::Error,
    },
}

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(pub Option<ExitStatus>);

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => write!(f, "{status}"),
            None => f.write_str("status unknown"),
        }
    }
}

/// The end of a process, and whether it ended by itself with an error.
#[derive(Clone, Copy, Debug)]
struct End {
    exit: Exit,
    is_crash: bool,
}

/// A running provider. The process ends with this value.
#[derive(Debug)]
pub struct Process {
    /// The version of the protocol that it speaks.
    pub version: u32,
    /// Whether the connection is encrypted by mutual TLS.
    pub encrypted: bool,
    channel: Channel,
    output: Arc<Output>,
    exit: watch::Receiver<Option<End>>,
    /// The process is killed when this is sent or dropped.
    kill: watch::Sender<bool>,
    id: Option<u32>,
}

impl Process {
    /// Starts a provider and connects to it.
    ///
    /// The thread that runs this has to live as long as the provider where the launcher binds the provider's life to
    /// that of its parent: a worker of the runtime does, a blocking thread does not.
    ///
    /// # Errors
    ///
    /// If the provider cannot be run, ends, takes too long, or speaks another protocol.
    pub async fn start(launcher: &dyn Launcher, options: &StartOptions) -> Result<Self, StartError> {
        let folder = socket_folder(&options.temporary)?;
        let identity = Identity::new().map_err(StartError::Certificate)?;
        let executable = &options.executable;
        let Plugin { cookie, versions, environment: of_plugin } = options.plugin;
        let mut environment: Vec<(OsString, OsString)> =
            of_plugin.iter().map(|(name, value)| (name.into(), value.into())).collect();
        environment.extend(options.environment.iter().cloned());
        environment.push((cookie.0.into(), cookie.1.into()));
        environment.push(("PLUGIN_PROTOCOL_VERSIONS".into(), handshake::joined(versions).into()));
        environment.push(("PLUGIN_CLIENT_CERT".into(), identity.pem().into()));
        environment.push(("TMPDIR".into(), folder.path().into()));
        let mut command = launcher.command(&Program {
            executable,
            digest: options.digest.as_ref(),
            environment: &environment,
            folder: folder.path(),
            network: options.network,
        });
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let spawned = command.spawn();
        let mut child = spawned.map_err(|source| StartError::Spawn { executable: executable.clone(), source })?;

        let output = Arc::new(Output::default());
        let stderr = child.stderr.take().expect("the output is piped");
        let errors = tokio::spawn(output::drain(stderr, output.clone()));
        let stdout = child.stdout.take().expect("the output is piped");
        let socket_folder = folder.path().to_owned();
        let id = child.id();
        let (kill, killed) = watch::channel(false);
        let (exited, mut exit) = watch::channel(None);
        tokio::spawn(supervise(child, errors, folder, killed, exited));

        let starting = Starting {
            executable,
            identity: &identity,
            output: &output,
            exit: &mut exit,
            socket_folder: &socket_folder,
            versions,
        };
        let connected = tokio::time::timeout(options.time_limit, starting.connect(stdout)).await;
        let (version, encrypted, channel) = connected.unwrap_or_else(|_| {
            Err(StartError::TimedOut {
                executable: executable.clone(),
                time_limit: options.time_limit,
                last_lines: output.last_lines(),
            })
        })?;
        // Its own output arrives by a call from now on, and blocks the provider when it is not read.
        tokio::spawn(plugin::drain_output(channel.clone(), output.clone()));
        Ok(Self { version, encrypted, channel, output, exit, kill, id })
    }

    /// The connection.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The id of the process, or of the sandbox around it.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// The last lines of its output.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// The end of the process, if it has ended.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.borrow().map(|end| end.exit)
    }

    /// Waits for the end of the process.
    pub async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        // Without its supervisor, the process is killed.
        exit.wait_for(Option::is_some).await.ok().and_then(|end| *end).map_or(Exit(None), |end| end.exit)
    }

    /// Waits for the end of the process, and says whether it ended by itself with an error.
    pub(crate) fn crashed(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut exit = self.exit.clone();
        async move { exit.wait_for(Option::is_some).await.ok().and_then(|end| *end).is_some_and(|end| end.is_crash) }
    }

    /// Kills the process at once.
    pub fn kill(&self) {
        self.kill.send_replace(true);
    }

    /// Ends the process, and every call in flight: by request, or by a signal after two seconds.
    pub async fn shut_down(self) -> Exit {
        let request = plugin::shut_down(self.channel.clone());
        if let Ok(exit) = tokio::time::timeout(EXIT, async { tokio::join!(request, self.ended()).1 }).await {
            return exit;
        }
        self.kill();
        self.ended().await
    }
}

/// A folder that only this user can enter, with a path that is short enough for a socket.
fn socket_folder(root: &Path) -> Result<TempDir, StartError> {
    let failed = |source| StartError::Folder { folder: root.to_owned(), source };
    let folder = tempfile::Builder::new()
        .prefix("tf")
        .rand_bytes(8)
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(root)
        .map_err(failed)?;
    let length = folder.path().as_os_str().as_bytes().len() + 1 + LONGEST_SOCKET_NAME;
    if length > LONGEST_SOCKET { Err(StartError::LongPath(folder.path().to_owned())) } else { Ok(folder) }
}

/// Waits for the end of the process, and kills it when that is required. The folder of its socket ends with it.
async fn supervise(
    mut child: Child,
    errors: JoinHandle<()>,
    folder: TempDir,
    mut killed: watch::Receiver<bool>,
    exited: watch::Sender<Option<End>>,
) {
    let (status, is_wanted) = tokio::select! {
        status = child.wait() => (status, false),
        // An error means that the owner of the process is dropped.
        () = async { drop(killed.wait_for(|killed| *killed).await) } => {
            if let Err(error) = child.start_kill() {
                tracing::warn!(%error, "a provider cannot be killed");
            }
            (child.wait().await, true)
        }
    };
    // The reason of a crash is in the last lines. A child of the provider may write longer than the provider lives.
    if tokio::time::timeout(LAST_LINES, errors).await.is_err() {
        tracing::debug!("a provider's standard error is open after its end");
    }
    let is_crash = !is_wanted && !status.as_ref().is_ok_and(ExitStatus::success);
    exited.send_replace(Some(End { exit: Exit(status.ok()), is_crash }));
    if let Err(error) = folder.close() {
        tracing::warn!(%error, "the folder of a provider's socket cannot be removed");
    }
}

/// A process that does not accept calls yet.
struct Starting<'a> {
    executable: &'a Path,
    identity: &'a Identity,
    output: &'a Arc<Output>,
    exit: &'a mut watch::Receiver<Option<End>>,
    socket_folder: &'a Path,
    versions: &'a [u32],
}

impl Starting<'_> {
    async fn connect(self, mut stdout: tokio::process::ChildStdout) -> Result<(u32, bool, Channel), StartError> {
        let line = match output::first_line(&mut stdout).await {
            Ok(Some(line)) => line,
            Ok(None) | Err(_) => return Err(self.ended().await),
        };
        let executable = || self.executable.to_owned();
        let handshake = Handshake::parse(&line, self.socket_folder, self.versions)
            .map_err(|source| StartError::Handshake { executable: executable(), source })?;
        tokio::spawn(output::drain(stdout, self.output.clone()));
        let socket = handshake.socket;
        let encrypted = handshake.certificate.is_some();
        let tls = handshake.certificate.map(|provider| self.identity.connector(provider)).transpose();
        let tls = tls.map_err(|source| StartError::Tls { executable: executable(), source })?;
        let connector = tower::service_fn(move |_| {
            let (socket, tls) = (socket.clone(), tls.clone());
            async move {
                let stream = UnixStream::connect(socket).await?;
                io::Result::Ok(TokioIo::new(match tls {
                    Some(tls) => Either::Left(tls.connect(stream).await?),
                    None => Either::Right(stream),
                }))
            }
        });
        // The connector ignores the address.
        let endpoint = Endpoint::from_static("http://localhost").http2_adaptive_window(true);
        let channel = endpoint.connect_with_connector(connector).await;
        let channel = channel.map_err(|source| StartError::Connect { executable: executable(), source })?;
        Ok((handshake.version, encrypted, channel))
    }

    /// The error of a process that printed no line. Its exit status says nothing: some failures have status 0.
    async fn ended(self) -> StartError {
        let exit = tokio::time::timeout(EXIT, self.exit.wait_for(Option::is_some)).await;
        let exit = exit.ok().and_then(Result::ok).and_then(|exit| *exit);
        StartError::Ended {
            executable: self.executable.to_owned(),
            exit: exit.map_or_else(|| "its output is closed".to_owned(), |end| end.exit.to_string()),
            last_lines: self.output.last_lines(),
        }
    }
}
