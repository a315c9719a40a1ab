//! The renderer: a program with the libraries of Kustomize and Helm, in processes of its own.
//!
//! Start at [`Renderer::render`]. A process is in a sandbox, belongs to one organization and reads its trees alone. It renders one
//! request at a time and stays for the next one. A process that fails or takes too long ends, and only its request fails.

mod process;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_git::cache::Folders;
use stoa_proto::Problem;
use stoa_proto::renderer::{RenderRequest, RenderResponse, TemplatesRequest, TemplatesResponse};
use stoa_workers::Limits;
use tonic::Code;

use self::process::{Ended, Launch, Process};
use crate::failure::{Failure, problem, reason, size};
use crate::installed::{self, Installed, Known};
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
    program: Known,
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

impl Renderer {
    /// Starts no process before the first request.
    pub(crate) fn new(options: Options, caches: Folders, temporary: PathBuf) -> Self {
        let slots = FairSemaphore::new(options.processes, MaxShare::All);
        let (idle, program) = (Mutex::default(), Known::default());
        Self(Arc::new(Shared { options, caches, temporary, slots, idle, program }))
    }

    /// Renders a path of a tree of an organization. Problems of its files are in the answer.
    pub(crate) async fn render(
        &self,
        organization: &str,
        generator: &str,
        request: RenderRequest,
    ) -> Result<RenderResponse, Failure> {
        let program = self.program(&format!("generator {generator}")).await?;
        let _slot = self.0.slots.acquire(organization, 1).await;
        let (path, limits) = (request.path.clone(), self.0.options.limits);
        let mut process = self.process(organization, &program).await?;
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

    /// Executes templates of an organization. Problems of templates are in the answer, which may lack the last executions.
    pub(crate) async fn execute_templates(
        &self,
        organization: &str,
        request: TemplatesRequest,
    ) -> Result<TemplatesResponse, Failure> {
        let program = self.program("the rendering of a fleet").await?;
        let _slot = self.0.slots.acquire(organization, 1).await;
        let limits = self.0.options.limits;
        let mut process = self.process(organization, &program).await?;
        match tokio::time::timeout(limits.time, process.execute_templates(request)).await {
            Ok(Ok(response)) => {
                // A template that does not end keeps a processor busy until its process ends.
                if response.is_spent {
                    process.kill().await;
                } else {
                    self.keep(organization, process);
                }
                Ok(response)
            }
            Ok(Err(status)) => Err(failure("templates", &limits, process.end(&status).await)),
            Err(_) => {
                process.kill().await;
                Err(failure("templates", &limits, Ended::TookTooLong))
            }
        }
    }

    /// A process of an organization: one that is idle, or a new one.
    async fn process(&self, organization: &str, program: &Installed) -> Result<Process, Failure> {
        match self.take_idle(organization, program) {
            Some(process) => Ok(process),
            None => self.start(organization, program).await,
        }
    }

    /// Ends the idle processes.
    pub(crate) fn shut_down(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_idle(&self, organization: &str, program: &Installed) -> Option<Process> {
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

    async fn start(&self, organization: &str, program: &Installed) -> Result<Process, Failure> {
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
        self.0.program.find(self.path()).await.ok()?.ok().map(|program| program.digest)
    }

    fn path(&self) -> PathBuf {
        self.0.options.program.clone().or_else(|| installed::beside(NAME)).unwrap_or_else(|| NAME.into())
    }

    async fn program(&self, user: &str) -> Result<Installed, Failure> {
        let path = self.path();
        match self.0.program.find(path.clone()).await? {
            Ok(program) => Ok(program),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "there is no renderer");
                let message = format!(
                    "{user} needs the program {NAME}, which the function-runner does not have; build it with Go 1.26 \
                     (`go build -o {NAME} .` in function-runner/renderer), and put it beside function-runner or set --renderer"
                );
                Err(Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, message))
            }
        }
    }
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
