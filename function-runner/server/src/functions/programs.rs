//! Executables that the configuration allows by their digests.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use stoa_packages::function_metadata::FunctionDescription;
use tonic::Code;

use super::sandboxed::{Launch, Sandbox};
use super::settings::{Allowed, Images, hex};
use super::{Call, Executor, Output};
use crate::failure::{Failure, reason};
use crate::installed::Known;

/// An executable that may run.
#[derive(Debug)]
struct Program {
    path: PathBuf,
    sha256: [u8; 32],
    arguments: Vec<OsString>,
    known: Known,
}

/// Runs executables, each call in a process of its own.
#[derive(Debug)]
pub(super) struct Programs {
    programs: Images<Program>,
    sandbox: Arc<Sandbox>,
}

impl Programs {
    pub(super) fn new(programs: Images<Allowed>, sandbox: Arc<Sandbox>) -> Self {
        let program = |Allowed { path, sha256, arguments }| Program {
            path,
            sha256,
            arguments: arguments.into_iter().map(OsString::from).collect(),
            known: Known::default(),
        };
        Self { programs: programs.map(program), sandbox }
    }
}

#[async_trait]
impl Executor for Programs {
    fn has(&self, image: &str) -> bool {
        self.programs.find(image).is_some()
    }

    fn offered(&self) -> Vec<FunctionDescription> {
        self.programs.described()
    }

    async fn run(&self, call: &Call) -> Result<Output, Failure> {
        let Some(program) = self.programs.find(&call.image) else {
            return Err(Failure::internal(&"the executor has the function"));
        };
        verified(&program.known, &program.path, &program.sha256, &call.image).await?;
        let launch = Launch {
            executable: &program.path,
            digest: program.sha256,
            arguments: &program.arguments,
            reads: None,
            memory: self.sandbox.limits().memory,
            time: self.sandbox.limits().time,
            answer: self.sandbox.limits().answer,
        };
        self.sandbox.run(&call.organization, &call.image, &launch, call.list.clone()).await
    }
}

/// Checks that a file has the digest that the configuration allows. The sandbox checks the file that it executes once more.
pub(super) async fn verified(
    known: &Known,
    path: &std::path::Path,
    sha256: &[u8; 32],
    image: &str,
) -> Result<(), Failure> {
    match known.find(path.to_owned()).await? {
        Ok(found) => compared(&found.digest, sha256, image),
        Err(error) => {
            tracing::error!(%error, path = %path.display(), image, "the file of a function cannot be read");
            Err(refused(format!("the file of function {image} cannot be read: {}; install it", error.kind())))
        }
    }
}

/// Compares the digest of a function's file with the allowed one.
pub(super) fn compared(found: &[u8; 32], allowed: &[u8; 32], image: &str) -> Result<(), Failure> {
    if found == allowed {
        return Ok(());
    }
    Err(refused(format!(
        "the file of function {image} has the SHA-256 {}, and --functions allows {}; install the allowed file, or correct the digest",
        hex(found),
        hex(allowed)
    )))
}

fn refused(message: String) -> Failure {
    Failure::new(Code::FailedPrecondition, reason::NOT_AVAILABLE, message)
}
