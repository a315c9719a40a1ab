//! Processes of their own for work that reaches servers.
//!
//! Start at [`SubprocessStarter`]. The caller ends a [`Subprocess`] when it has no more jobs for it.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Once};

use bytes::Bytes;

use crate::process::{Failed, Limits, More, Program, StartError, Starter, Tell, Worker};
use crate::sandbox::Restrictions;

/// How subprocesses are started, and what each of their jobs may take.
#[derive(Clone, Debug)]
pub struct SubprocessConfig {
    /// The program that calls [`worker::serve`](crate::worker::serve).
    pub program: PathBuf,
    /// Its arguments, before those of one subprocess.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What one job may take. The process enforces the limit of memory itself, which is among its arguments.
    pub limits: Limits,
}

/// Starts subprocesses. Clones share the thread that does.
#[derive(Clone, Debug)]
pub struct SubprocessStarter {
    starter: Arc<Starter>,
    limits: Limits,
    /// Done once it was logged which restrictions the kernel lacks.
    warned: Arc<Once>,
}

/// A process that does jobs one after the other. It is killed when this is dropped.
#[derive(Debug)]
pub struct Subprocess {
    worker: Worker,
    limits: Limits,
}

impl SubprocessStarter {
    /// Needs a Tokio runtime.
    pub fn new(config: SubprocessConfig) -> io::Result<Self> {
        let SubprocessConfig { program, arguments, environment, limits } = config;
        let starter = Starter::new(Program { path: program, arguments, environment })?;
        Ok(Self { starter: Arc::new(starter), limits, warned: Arc::new(Once::new()) })
    }

    /// Starts a process with arguments of its own, and waits until it takes jobs.
    pub async fn start(&self, more: More) -> Result<Subprocess, StartError> {
        let worker = self.starter.start(more).await?;
        self.warned.call_once(|| worker.restrictions.warn("processes that reach servers"));
        Ok(Subprocess { worker, limits: self.limits })
    }

    /// What one job may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Subprocess {
    /// Does a job, during which the process may ask a question that `tell` answers. After a failure, or when the future is dropped
    /// before its end, the process is unusable.
    pub async fn work(&mut self, job: &[u8], tell: Option<Tell<'_>>) -> Result<Bytes, Failed> {
        self.worker.work(job, &self.limits, tell).await
    }

    /// The mechanisms of the kernel that restrict the process.
    pub fn restrictions(&self) -> Restrictions {
        self.worker.restrictions
    }

    /// How many bytes of memory the process uses, if the system reports that.
    pub fn resident(&self) -> Option<u64> {
        self.worker.resident()
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.worker.has_ended()
    }

    /// Ends the process in the middle of any job, and waits for its end.
    pub async fn end(self) {
        self.worker.kill().await;
    }
}
