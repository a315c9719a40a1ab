//! Runs modules, each in a process of its own for one rendering.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_kusion_module::configuration::ModuleSettings;
use stoa_kusion_module::mirror::{Mirror, Program};
use stoa_kusion_module::module::{self, Module, ModuleError};
use stoa_kusion_module::proto::GeneratorResponse;
use stoa_outbound::causes;
use stoa_proto::Problem;
use stoa_terraform_provider::process::Launcher;
use stoa_workers::Limits;
use tonic::Code;

use super::calls::{Call, Settings};
use super::registered::{self, Registries};
use crate::failure::{Failure, reason};
use crate::source::Tree;

/// How modules run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The folder with the programs, if there is one.
    pub(crate) mirror: Option<Mirror>,
    /// How processes are started.
    pub(crate) launcher: Arc<dyn Launcher>,
    /// Where the folders of their sockets are.
    pub(crate) temporary: PathBuf,
    /// The limits on the calls of one rendering. The launcher limits the memory.
    pub(crate) limits: Limits,
    /// The most renderings at once.
    pub(crate) processes: usize,
}

/// The modules of a runner. Clones share its slots.
#[derive(Clone, Debug)]
pub(crate) struct Modules {
    options: Options,
    /// A slot for each rendering.
    slots: FairSemaphore,
}

impl Modules {
    pub(crate) fn new(options: Options) -> Self {
        let slots = FairSemaphore::new(options.processes, MaxShare::ThreeQuarters);
        Self { options, slots }
    }

    /// The folder with programs.
    pub(super) fn mirror(&self) -> Option<&Mirror> {
        self.options.mirror.as_ref()
    }

    /// The SHA-256 of the programs of a Workspace in the folder, as a part of the key of a cached rendering.
    pub(crate) fn digests(&self, settings: &str) -> String {
        let digest = |(_, module): &(String, ModuleSettings)| {
            let mirror = self.mirror().filter(|_| module.artifact.is_empty());
            let found = mirror.and_then(|mirror| mirror.find(&module.path, &module.version).ok());
            found.map_or_else(|| "-".to_owned(), |program| hex(&program.digest))
        };
        Settings::each(settings).iter().map(digest).collect::<Vec<_>>().join(" ")
    }

    /// Makes calls in order. Calls of one module share a process, and all processes end with the last call.
    pub(in crate::generate) async fn call_all(
        &self,
        organization: &str,
        calls: &[Call],
        registries: &Registries<'_>,
    ) -> Result<Vec<GeneratorResponse>, Failure> {
        let in_folder: Vec<&Call> = calls.iter().filter(|call| call.artifact.is_empty()).collect();
        if self.mirror().is_none() && !in_folder.is_empty() {
            return Err(without_modules(&in_folder));
        }
        // Artifacts are fetched before the time of the calls begins.
        let mut programs: HashMap<[&str; 4], (Program, Option<Tree>)> = HashMap::new();
        for call in calls {
            if let Entry::Vacant(entry) = programs.entry(call.program_key()) {
                entry.insert(self.program(call, registries).await?);
            }
        }
        let _slot = self.slots.acquire(organization, 1).await;
        let end = Instant::now() + self.options.limits.time;
        let mut running: HashMap<[&str; 4], Module> = HashMap::new();
        let mut responses = Vec::with_capacity(calls.len());
        for call in calls {
            let key = call.program_key();
            let module = match running.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let (program, _) =
                        programs.get(&key).ok_or_else(|| Failure::internal(&"each call has a program"))?;
                    entry.insert(self.start(call, program, end).await?)
                }
            };
            let left = end.saturating_duration_since(Instant::now());
            let request = call.request.clone().unwrap_or_default();
            responses.push(module.generate(request, left).await.map_err(|error| self.failed(call, &error))?);
        }
        futures_util::future::join_all(running.into_values().map(Module::end)).await;
        Ok(responses)
    }

    /// The program of a call: in the folder, or in the artifact of a registered module, whose tree stays meanwhile.
    async fn program(&self, call: &Call, registries: &Registries<'_>) -> Result<(Program, Option<Tree>), Failure> {
        if !call.artifact.is_empty() {
            let (program, tree) = registered::program(registries, call).await?;
            return Ok((program, Some(tree)));
        }
        let mirror = self.mirror().ok_or_else(|| without_modules(&[call]))?.clone();
        let (path, version) = (call.path.clone(), call.version.clone());
        let found = tokio::task::spawn_blocking(move || mirror.find(&path, &version)).await;
        let found = found.map_err(|error| Failure::internal(&error))?;
        let missing =
            |message: String| Failure::of(Code::InvalidArgument, vec![call.problem(reason::NOT_AVAILABLE, &message)]);
        let program = found.map_err(|error| missing(format!("the function-runner does not have it: {error}")))?;
        if !call.program.is_empty() && registered::digest(&call.program) != Some(program.digest) {
            let message = "its program in the folder is not the registered one; wait until its Module is Ready again";
            return Err(missing(message.to_owned()));
        }
        Ok((program, None))
    }

    async fn start(&self, call: &Call, program: &Program, end: Instant) -> Result<Module, Failure> {
        let Options { launcher, temporary, limits, .. } = &self.options;
        let Program { executable, digest } = program.clone();
        // The heap is collected more often before the limit is reached.
        let heap = format!("{}B", limits.memory / 4 * 3);
        let options = module::Options {
            executable,
            digest,
            environment: vec![(OsString::from("GOMEMLIMIT"), heap.into())],
            temporary: temporary.clone(),
            time_limit: end.saturating_duration_since(Instant::now()),
        };
        Module::start(&**launcher, &options).await.map_err(|error| self.failed(call, &error))
    }

    fn failed(&self, call: &Call, error: &ModuleError) -> Failure {
        let limits = &self.options.limits;
        let (reason, message) = match error {
            ModuleError::Start(_) => {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    module = call.module,
                    "a module did not start"
                );
                let message = format!("{}: {}; try again", call.subject(), causes(error));
                return Failure::new(Code::Unavailable, reason::UNAVAILABLE, message);
            }
            ModuleError::NoModule(why) => {
                (reason::NOT_RENDERED, format!("it is no module of Kusion: {why}; use another version of it"))
            }
            ModuleError::TookTooLong(_) => (
                reason::TOOK_TOO_LONG,
                format!("the modules of the stack took more than {} s together", limits.time.as_secs()),
            ),
            ModuleError::Memory => {
                (reason::TOO_LARGE, format!("it took more than {} MiB of memory", limits.memory >> 20))
            }
            ModuleError::Ended { .. } => (reason::REJECTED, error.to_string()),
            ModuleError::Rejected(_) => (reason::NOT_RENDERED, error.to_string()),
            ModuleError::Answer(_) => (reason::NOT_RENDERED, format!("{error}; use another version of it")),
        };
        Failure::invalid(vec![call.problem(reason, &message)])
    }
}

/// A runner has no folder with modules.
const WITHOUT_FOLDER: &str = "the function-runner has no Kusion modules; start function-runner with --kusion-modules, a folder with their programs, or \
     register the module as a Module";

/// The failure of calls of modules in a folder that the runner does not have.
fn without_modules(calls: &[&Call]) -> Failure {
    let problems: Vec<Problem> = calls.iter().map(|call| call.problem(reason::NOT_AVAILABLE, WITHOUT_FOLDER)).collect();
    Failure::of(Code::InvalidArgument, problems)
}

/// The failure of a search in a folder that the runner does not have.
pub(super) fn without_folder() -> Failure {
    Failure::new(Code::InvalidArgument, reason::NOT_AVAILABLE, WITHOUT_FOLDER)
}

pub(super) fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
