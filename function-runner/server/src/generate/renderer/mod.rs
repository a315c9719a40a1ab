//! The renderer: a program with the libraries of Kustomize and Helm, in processes of its own.
//!
//! Start at [`Renderer::render`]. A process is in a sandbox, belongs to one organization and reads its trees alone. It renders one
//! request at a time and stays for the next one. A process that fails or takes too long ends, and only its request fails.

mod process;

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_git::cache::Folders;
use stoa_proto::Problem;
use stoa_proto::renderer::{RenderRequest, RenderResponse};
use stoa_workers::Limits;
use tonic::Code;

use self::process::{Ended, Launch, Process};
use crate::failure::{Failure, problem, reason, size};
use crate::source::trees_of;

/// The program's name beside this one.
const NAME: &str = "stoa-renderer";
/// How long a process without a request lives.
const IDLE: Duration = Duration::from_secs(300);
/// After so long without a request, a process has given back its memory; one that still uses more ends, in bytes.
const SETTLED: Duration = Duration::from_secs(2);
const LARGEST_IDLE: u64 = 60 << 20;

/// How the renderer runs.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The program; by default the one beside this binary.
    pub(crate) program: Option<PathBuf>,
    /// This binary.
    pub(crate) this: PathBuf,
    /// The limits on one request.
    pub(crate) limits: Limits,
    /// The most requests at once.
    pub(crate) processes: usize,
}

/// The processes of the renderer. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Renderer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    caches: Folders,
    /// The folder for the sockets of processes.
    temporary: PathBuf,
    slots: FairSemaphore,
    idle: Mutex<VecDeque<Idle>>,
    digest: Mutex<Option<Program>>,
}

/// A process that waits for a request.
#[derive(Debug)]
struct Idle {
    organization: String,
    process: Process,
    since: Instant,
}

impl Idle {
    fn may_stay(&self) -> bool {
        let since = self.since.elapsed();
        since < SETTLED || (since < IDLE && self.process.resident() <= Some(LARGEST_IDLE))
    }
}

/// The installed program. Another file at its path is another program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    digest: [u8; 32],
    file: (u64, u64, u64, i64, i64),
}

impl Renderer {
    /// Starts no process before the first request.
    pub(crate) fn new(options: Options, caches: Folders, temporary: PathBuf) -> Self {
        let slots = FairSemaphore::new(options.processes, MaxShare::All);
        let (idle, digest) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Shared { options, caches, temporary, slots, idle, digest }))
    }

    /// Renders a path of a tree of an organization. Problems of its files are in the answer.
    pub(crate) async fn render(
        &self,
        organization: &str,
        generator: &str,
        request: RenderRequest,
    ) -> Result<RenderResponse, Failure> {
        let program = self.program(generator).await?;
        let _slot = self.0.slots.acquire(organization, 1).await;
        let (path, limits) = (request.path.clone(), self.0.options.limits);
        let mut process = match self.take_idle(organization, &program) {
            Some(process) => process,
            None => self.start(organization, &program).await?,
        };
        match tokio::time::timeout(limits.time, process.render(request)).await {
            Ok(Ok(response)) => {
                self.keep(organization, process);
                Ok(response)
            }
            Ok(Err(status)) => Err(failure(&path, &limits, process.end(&status).await)),
            Err(_) => {
                process.kill().await;
                Err(failure(&path, &limits, Ended::TookTooLong))
            }
        }
    }

    /// Ends the idle processes.
    pub(crate) fn shut_down(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self, organization: &str, program: &Program) -> Option<Process> {
        let mut idle = self.idle();
        idle.retain_mut(|idle| !idle.process.has_ended() && idle.process.digest() == &program.digest);
        let at = idle.iter().rposition(|idle| idle.organization == organization)?;
        idle.remove(at).map(|idle| idle.process)
    }

    /// Keeps a process for the next request of its organization, for some time.
    fn keep(&self, organization: &str, process: Process) {
        let organization = organization.to_owned();
        self.idle().push_back(Idle { organization, process, since: Instant::now() });
        let renderer = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            for wait in [SETTLED, IDLE - SETTLED] {
                tokio::time::sleep(wait).await;
                let Some(shared) = renderer.upgrade() else { return };
                Self(shared).idle().retain(Idle::may_stay);
            }
        });
    }

    async fn start(&self, organization: &str, program: &Program) -> Result<Process, Failure> {
        // Processes of other organizations make room.
        let busy = self.0.options.processes.saturating_sub(self.0.slots.available());
        let evicted = {
            let mut idle = self.idle();
            if idle.len() + busy > self.0.options.processes { idle.pop_front() } else { None }
        };
        drop(evicted);
        let Options { this, limits, .. } = &self.0.options;
        let launch = Launch {
            this,
            executable: &program.path,
            digest: program.digest,
            memory: limits.memory,
            trees: &trees_of(&self.0.caches, organization),
            temporary: &self.0.temporary,
        };
        Process::start(&launch).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the renderer did not start");
            let message = "the function-runner cannot start its renderer; see its log, and try again";
            Failure::new(Code::Unavailable, reason::UNAVAILABLE, message)
        })
    }

    /// The digest of the program, if it is there.
    pub(crate) async fn digest(&self) -> Option<[u8; 32]> {
        self.found(self.path()).await.ok()?.ok().map(|program| program.digest)
    }

    fn path(&self) -> PathBuf {
        self.0.options.program.clone().or_else(beside).unwrap_or_else(|| NAME.into())
    }

    /// The program at a path, whose digest is known while its file is the same.
    async fn found(&self, path: PathBuf) -> Result<std::io::Result<Program>, Failure> {
        let known = self.0.digest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let before = known.clone();
        let read = tokio::task::spawn_blocking(move || read_program(&path, before)).await;
        let found = read.map_err(|err| Failure::internal(&err))?;
        if let Some(program) = found.as_ref().ok().filter(|program| known.as_ref() != Some(program)) {
            *self.0.digest.lock().unwrap_or_else(PoisonError::into_inner) = Some(program.clone());
        }
        Ok(found)
    }

    async fn program(&self, generator: &str) -> Result<Program, Failure> {
        let path = self.path();
        match self.found(path.clone()).await? {
            Ok(program) => Ok(program),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "there is no renderer");
                let message = format!(
                    "generator {generator} needs the program {NAME}, which the function-runner does not have; build it with Go 1.26 \
                     (`go build -o {NAME} .` in function-runner/renderer), and put it beside function-runner or set --renderer"
                );
                Err(Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message))
            }
        }
    }
}

/// The program beside this binary.
fn beside() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join(NAME))
}

fn read_program(path: &Path, known: Option<Program>) -> std::io::Result<Program> {
    let metadata = fs::metadata(path)?;
    let file = (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec());
    if let Some(known) = known.filter(|known| known.path == path && known.file == file) {
        return Ok(known);
    }
    let digest = Sha256::digest(fs::read(path)?).into();
    Ok(Program { path: path.to_owned(), digest, file })
}

/// The failure of a request whose process gave no answer.
fn failure(path: &str, limits: &Limits, ended: Ended) -> Failure {
    let of_path = |reason: &str, message: String| {
        Failure::invalid(vec![Problem { file: path.to_owned(), ..problem(reason, message) }])
    };
    match ended {
        Ended::TookTooLong => {
            let seconds = limits.time.as_secs();
            of_path(reason::TOOK_TOO_LONG, format!("rendering took more than {seconds} s; split the stack"))
        }
        Ended::Memory => of_path(
            reason::TOO_LARGE,
            format!("rendering took more than {} of memory; split the stack", size(limits.memory)),
        ),
        Ended::Killed => {
            Failure::new(Code::Unavailable, reason::UNAVAILABLE, "the renderer was killed by a signal; try again")
        }
        Ended::Exited(how) => of_path(
            reason::REJECTED,
            format!("the renderer ended while it rendered the stack ({how}); see the log of the function-runner"),
        ),
    }
}
