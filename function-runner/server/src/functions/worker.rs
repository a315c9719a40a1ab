//! The program `stoa-function-worker`, which runs WebAssembly and Starlark.
//!
//! It is a program of its own, so that the runner contains neither machine. Without it, only functions that need it fail.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prost::bytes::Bytes;
use sha2::{Digest as _, Sha256};
use stoa_git::cache::{Folders, Kept};
use tokio::sync::Mutex;
use tonic::Code;

use super::programs::compared;
use super::sandboxed::{Launch, Sandbox};
use super::settings::hex;
use super::{Call, Output};
use crate::failure::{Failure, reason};
use crate::installed::{self, Installed, Known};

/// The program's name beside this one.
const NAME: &str = "stoa-function-worker";
/// The folder of compiled modules among the caches.
const FOLDER: &str = "functions";
/// The file with the code of a module.
const CODE: &str = "code";
/// How long a module may take to compile.
const COMPILATION: Duration = Duration::from_secs(600);
/// The largest compiled code, in bytes. It is some ten times as large as a module.
const LARGEST_CODE: usize = 512 << 20;
/// The instructions of one call, about: some ten seconds. The same input reaches the limit on every machine.
const FUEL: u64 = 20_000_000_000;
/// The part of a process's memory that is not the function's own, in bytes.
const OWN: u64 = 64 << 20;

/// The function worker.
#[derive(Debug)]
pub(super) struct FunctionWorker {
    program: Option<PathBuf>,
    known: Known,
    sandbox: Arc<Sandbox>,
    caches: Folders,
    /// One module is compiled at a time.
    compiling: Mutex<()>,
}

/// The compiled code of a module, which stays while this exists.
#[derive(Debug)]
pub(super) struct CompiledCode {
    folder: Kept,
}

impl FunctionWorker {
    pub(super) fn new(program: Option<PathBuf>, sandbox: Arc<Sandbox>, caches: Folders) -> Self {
        Self { program, known: Known::default(), sandbox, caches, compiling: Mutex::default() }
    }

    fn path(&self) -> PathBuf {
        self.program.clone().or_else(|| installed::beside(NAME)).unwrap_or_else(|| NAME.into())
    }

    async fn installed(&self, image: &str) -> Result<Installed, Failure> {
        let path = self.path();
        match self.known.find(path.clone()).await? {
            Ok(program) => Ok(program),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "there is no function worker");
                let message = format!(
                    "function {image} needs the program {NAME}, which the function-runner does not have; put it beside \
                     function-runner, or set --function-worker"
                );
                Err(Failure::new(Code::FailedPrecondition, reason::NOT_AVAILABLE, message))
            }
        }
    }

    /// The memory of a function, of that of its process.
    fn memory(&self) -> u64 {
        let memory = self.sandbox.limits().memory;
        memory.saturating_sub(OWN).max(memory / 2)
    }

    /// Runs a program in Starlark.
    pub(super) async fn starlark(&self, call: &Call) -> Result<Output, Failure> {
        let program = self.installed(&call.image).await?;
        let arguments = ["starlark".into(), format!("--memory={}", self.memory()).into()];
        self.run(&program, call, &arguments, None).await
    }

    /// Runs compiled code.
    pub(super) async fn wasm(&self, call: &Call, code: &CompiledCode) -> Result<Output, Failure> {
        let program = self.installed(&call.image).await?;
        let mut file = OsString::from("--code=");
        file.push(code.folder.path().join(CODE));
        let memory = format!("--memory={}", self.memory());
        let arguments = ["wasm".into(), file, memory.into(), format!("--fuel={FUEL}").into()];
        self.run(&program, call, &arguments, Some(code.folder.path())).await
    }

    async fn run(
        &self,
        program: &Installed,
        call: &Call,
        arguments: &[OsString],
        reads: Option<&Path>,
    ) -> Result<Output, Failure> {
        let limits = self.sandbox.limits();
        let launch = Launch {
            executable: &program.path,
            digest: program.digest,
            arguments,
            reads,
            memory: limits.memory,
            time: limits.time,
            answer: limits.answer,
        };
        self.sandbox.run(&call.organization, &call.image, &launch, call.list.clone()).await
    }

    /// The compiled code of a module, which is compiled unless it is cached. The key is the module and the program that compiles it.
    pub(super) async fn compiled(
        &self,
        image: &str,
        module: &Path,
        sha256: &[u8; 32],
    ) -> Result<CompiledCode, Failure> {
        let program = self.installed(image).await?;
        let folder = self.caches.take(FOLDER, &format!("{}-{}", hex(sha256), &hex(&program.digest)[..16]));
        let file = folder.path().join(CODE);
        // A call of a compiled module waits for no compilation of another one.
        if is_there(&file).await {
            return Ok(CompiledCode { folder });
        }
        let _turn = self.compiling.lock().await;
        if is_there(&file).await {
            return Ok(CompiledCode { folder });
        }
        let bytes = tokio::fs::read(module).await.map_err(|err| Failure::internal(&err))?;
        // Another file may be there since the caller read it.
        let found: [u8; 32] = Sha256::digest(&bytes).into();
        compared(&found, sha256, image)?;
        let limits = self.sandbox.limits();
        let arguments = [OsString::from("compile")];
        let launch = Launch {
            executable: &program.path,
            digest: program.digest,
            arguments: &arguments,
            reads: None,
            memory: limits.memory,
            time: COMPILATION,
            answer: LARGEST_CODE,
        };
        let Output { stdout, stderr, exit_code } = self.sandbox.run("", image, &launch, bytes.into()).await?;
        if exit_code != 0 {
            let message = format!("the module of function {image} cannot be compiled: {}", stderr.trim());
            return Err(Failure::new(Code::FailedPrecondition, reason::NOT_AVAILABLE, message));
        }
        write(folder.path(), stdout).await.map_err(|err| Failure::internal(&err))?;
        tracing::info!(image, "compiled a module");
        Ok(CompiledCode { folder })
    }
}

async fn is_there(file: &Path) -> bool {
    tokio::fs::try_exists(file).await.unwrap_or(false)
}

/// Writes the code as a whole, since another process may read it.
async fn write(folder: &Path, code: Bytes) -> std::io::Result<()> {
    tokio::fs::create_dir_all(folder).await?;
    let new = folder.join("new");
    tokio::fs::write(&new, code).await?;
    tokio::fs::rename(&new, folder.join(CODE)).await
}

#[cfg(test)]
mod tests {
    use stoa_workers::Limits;

    use super::*;

    #[tokio::test]
    async fn module_is_compared_before_it_is_compiled() {
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("module.wasm");
        std::fs::write(&module, "another").unwrap();
        let time = Duration::from_secs(60);
        let limits = Limits { memory: 1 << 30, processor: time, time, answer: 1 << 20 };
        // This file is the worker, too, and no process starts.
        let sandbox = Sandbox::new(folder.path().join("none"), limits, 1, folder.path().to_owned());
        let caches = Folders::new(folder.path().join("caches"));
        let worker = FunctionWorker::new(Some(module.clone()), Arc::new(sandbox), caches);
        let failure = worker.compiled("example.com/check", &module, &[15; 32]).await.unwrap_err();
        assert_eq!(failure.code(), Code::FailedPrecondition);
        let message = &failure.problems()[0].message;
        assert!(message.starts_with("the file of function example.com/check has the SHA-256 "), "{message}");
    }
}
