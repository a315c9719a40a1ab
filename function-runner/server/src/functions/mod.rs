//! Functions of packages: one trait, and an executor for each form that a function has.
//!
//! Start at [`Functions::run`], which asks the executors in this order:
//!
//! - `builtin`: functions of kpt's catalog in Rust, in the pool of workers;
//! - `starlark`: the catalog's function `starlark`, in the function worker;
//! - `programs`: executables that the configuration allows by their digests, each call in a sandbox of its own;
//! - `wasm`: WebAssembly modules that it allows, compiled once, each call in the function worker;
//! - `pods`: images that are allowed, as pods of a cluster;
//! - `evaluator`: all others by a function runner of Porch, if one is configured.
//!
//! `settings` reads the configuration, `sandboxed` has one call in its process, `worker` is the program for WebAssembly and Starlark.
//! `crate::service::functions` is Porch's gRPC service. The runner itself parses neither the input nor the answer of a function.

mod builtin;
mod evaluator;
mod pods;
mod programs;
mod sandboxed;
mod settings;
mod starlark;
mod wasm;
mod worker;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prost::bytes::Bytes;
use stoa_git::cache::Folders;
use stoa_packages::function_metadata::{FunctionDescription, TypeName};
use stoa_packages::kptfile::full_image;
use stoa_proto::OfferedFunction;
use stoa_workers::Limits;
use tonic::Code;

use crate::failure::{Failure, reason};
use crate::generate::Generators;

use self::sandboxed::Sandbox;
use self::worker::FunctionWorker;

pub(crate) use self::pods::Options as PodOptions;
pub(crate) use self::settings::Settings;

/// One call of a function.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The organization that pays for it; empty for Porch's server, which names none.
    pub(crate) organization: String,
    /// The image that names the function, with its registry.
    pub(crate) image: String,
    /// A ResourceList as YAML.
    pub(crate) list: Bytes,
}

/// The outcome of a function that ran to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    /// The standard output, which should be a ResourceList.
    pub(crate) stdout: Bytes,
    /// The end of the standard error.
    pub(crate) stderr: String,
    /// 0 is a success.
    pub(crate) exit_code: i32,
}

/// Runs functions of one form.
#[async_trait]
trait Executor: fmt::Debug + Send + Sync {
    /// Whether it has the function of an image.
    fn has(&self, image: &str) -> bool;

    /// The functions that it has.
    fn offered(&self) -> Vec<FunctionDescription>;

    /// Runs a function that it has. A function that failed is an [`Output`].
    async fn run(&self, call: &Call) -> Result<Output, Failure>;

    /// Ends everything that outlives this process.
    async fn shut_down(&self) {}
}

/// What the executors need.
pub(crate) struct Options {
    pub(crate) settings: Settings,
    pub(crate) generators: Generators,
    /// The cluster for images as pods.
    pub(crate) pods: Option<PodOptions>,
    /// The address of a function runner of Porch.
    pub(crate) evaluator: Option<String>,
    /// The program `stoa-function-worker`, if another one than beside this binary.
    pub(crate) worker: Option<PathBuf>,
    /// This binary.
    pub(crate) this: PathBuf,
    /// The limits of one call.
    pub(crate) limits: Limits,
    /// The most calls of programs at once.
    pub(crate) processes: usize,
    /// The folder for the working directories of programs.
    pub(crate) temporary: PathBuf,
    pub(crate) caches: Folders,
}

/// All functions of this runner. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    executors: Arc<[Box<dyn Executor>]>,
    generators: Generators,
}

impl Functions {
    /// Needs a Tokio runtime.
    pub(crate) fn new(options: Options) -> anyhow::Result<Self> {
        let Options { settings, generators, pods, evaluator, worker, this, limits, processes, temporary, caches } =
            options;
        let sandbox = Arc::new(Sandbox::new(this, limits, processes, temporary));
        let worker = Arc::new(FunctionWorker::new(worker, Arc::clone(&sandbox), caches));
        let (programs, modules) = settings.into_parts();
        let wasm = wasm::Modules::new(modules, Arc::clone(&worker));
        wasm.compile_all();
        let mut executors: Vec<Box<dyn Executor>> = vec![
            Box::new(builtin::Builtins::new(generators.clone())),
            Box::new(starlark::Starlark::new(worker)),
            Box::new(programs::Programs::new(programs, sandbox)),
            Box::new(wasm),
        ];
        if let Some(pods) = pods {
            executors.push(Box::new(pods::Pods::new(pods, limits)));
        }
        if let Some(address) = evaluator {
            executors.push(Box::new(evaluator::Evaluator::new(address, limits)?));
        }
        Ok(Self { executors: executors.into(), generators })
    }

    /// Runs a function.
    pub(crate) async fn run(&self, call: Call) -> Result<Output, Failure> {
        let call = Call { image: full_image(&call.image), ..call };
        match self.executors.iter().find(|executor| executor.has(&call.image)) {
            Some(executor) => executor.run(&call).await,
            None => {
                let message = format!(
                    "this function-runner has no function {:?}; correct the image, or ask the platform team to add it to the file of --functions",
                    call.image
                );
                Err(Failure::new(Code::NotFound, reason::UNKNOWN_FUNCTION, message))
            }
        }
    }

    /// The failure of a function that ended with another exit code than 0, with its results.
    pub(crate) async fn failure(&self, image: String, output: Output) -> Failure {
        match self.generators.failed_function(image, output.stdout, output.stderr, output.exit_code).await {
            Ok(_) => Failure::internal(&"a failed function has a failure"),
            Err(failure) => failure,
        }
    }

    /// Ends everything that outlives this process.
    pub(crate) async fn shut_down(&self) {
        for executor in self.executors.iter() {
            executor.shut_down().await;
        }
    }

    /// The functions, sorted by image.
    pub(crate) fn offered(&self) -> Vec<OfferedFunction> {
        let mut all: Vec<_> = self.executors.iter().flat_map(|executor| executor.offered()).collect();
        all.sort_by(|a, b| a.image.cmp(&b.image));
        all.into_iter().map(|described| offered(described, "")).collect()
    }
}

/// A description for the API server.
pub(crate) fn offered(described: FunctionDescription, path: &str) -> OfferedFunction {
    let FunctionDescription { image, types, description, documentation_url, keywords, configs, inputs, idempotent } =
        described;
    let names = |names: Vec<TypeName>| {
        let name = |TypeName { api_version, kind }| stoa_proto::TypeName { api_version, kind };
        names.into_iter().map(name).collect()
    };
    OfferedFunction {
        image,
        path: path.to_owned(),
        types,
        description,
        documentation_url,
        keywords,
        configs: names(configs),
        inputs: names(inputs),
        idempotent,
    }
}

/// The failure of a call that took too long.
fn took_too_long(image: &str, time: Duration) -> Failure {
    let message = format!(
        "function {image} gave no answer within {} s; make the function faster or its input smaller",
        time.as_secs()
    );
    Failure::new(Code::FailedPrecondition, reason::TOOK_TOO_LONG, message)
}
