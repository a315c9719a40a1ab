//! WebAssembly modules that the configuration allows by their digests.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use stoa_packages::function_metadata::FunctionDescription;

use super::programs::verified;
use super::settings::{Allowed, Images};
use super::worker::FunctionWorker;
use super::{Call, Executor, Output};
use crate::failure::Failure;
use crate::installed::Known;

/// A module that may run.
#[derive(Debug)]
struct Module {
    path: PathBuf,
    sha256: [u8; 32],
    known: Known,
}

/// Runs modules in the function worker.
#[derive(Debug)]
pub(super) struct Modules {
    modules: Arc<Images<Module>>,
    worker: Arc<FunctionWorker>,
}

impl Modules {
    pub(super) fn new(modules: Images<Allowed>, worker: Arc<FunctionWorker>) -> Self {
        let module = |Allowed { path, sha256, .. }| Module { path, sha256, known: Known::default() };
        Self { modules: Arc::new(modules.map(module)), worker }
    }

    /// Compiles all modules, so that the first call of each need not wait.
    pub(super) fn compile_all(&self) {
        let (modules, worker) = (Arc::clone(&self.modules), Arc::clone(&self.worker));
        if modules.is_empty() {
            return;
        }
        tokio::spawn(async move {
            for (image, module) in modules.iter() {
                let compiled = match verified(&module.known, &module.path, &module.sha256, image).await {
                    Ok(()) => worker.compiled(image, &module.path, &module.sha256).await.map(drop),
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = compiled {
                    let problem = failure.into_parts().1.into_iter().next().unwrap_or_default();
                    tracing::error!(image, error = problem.message, "a module is not available");
                }
            }
        });
    }
}

#[async_trait]
impl Executor for Modules {
    fn has(&self, image: &str) -> bool {
        self.modules.find(image).is_some()
    }

    fn offered(&self) -> Vec<FunctionDescription> {
        self.modules.described()
    }

    async fn run(&self, call: &Call) -> Result<Output, Failure> {
        let Some(module) = self.modules.find(&call.image) else {
            return Err(Failure::internal(&"the executor has the function"));
        };
        verified(&module.known, &module.path, &module.sha256, &call.image).await?;
        let code = self.worker.compiled(&call.image, &module.path, &module.sha256).await?;
        self.worker.wasm(call, &code).await
    }
}
