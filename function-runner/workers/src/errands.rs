//! Work that gets a process of its own, which is gone when whoever began it has nothing more for it to do.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Once};

use bytes::Bytes;

use crate::process::{Failed, Limits, More, Program, StartError, Starter, Tell, Worker};

/// Which processes do errands, and what each of their jobs may take.
#[derive(Clone, Debug)]
pub struct ErrandConfig {
    /// The program that calls [`worker::serve`](crate::worker::serve).
    pub program: PathBuf,
    /// Its arguments, before those of the errand.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// What one job may take. That it may have no more memory is up to the process, whose arguments say so.
    pub limits: Limits,
}

/// Starts a process for each errand. Clones share the thread that does.
#[derive(Clone, Debug)]
pub struct Errands {
    starter: Arc<Starter>,
    limits: Limits,
    /// Done once it was told what does not hold the processes.
    told: Arc<Once>,
}

/// A process that does the jobs of one errand, one after the other. It is killed when this is dropped.
#[derive(Debug)]
pub struct Errand {
    worker: Worker,
    limits: Limits,
}

impl Errands {
    /// Has to be called in a runtime of Tokio.
    ///
    /// # Errors
    ///
    /// When the system starts no thread.
    pub fn new(config: ErrandConfig) -> io::Result<Self> {
        let ErrandConfig { program, arguments, environment, limits } = config;
        let starter = Starter::new(Program { path: program, arguments, environment })?;
        Ok(Self { starter: Arc::new(starter), limits, told: Arc::new(Once::new()) })
    }

    /// Starts a process with what an errand has of its own, and waits until it takes jobs.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn begin(&self, more: More) -> Result<Errand, StartError> {
        let worker = self.starter.start(more).await?;
        self.told.call_once(|| worker.restrictions.warn("processes that reach servers"));
        Ok(Errand { worker, limits: self.limits })
    }

    /// What one job may take.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Errand {
    /// Does a job, in which the process may ask where there is something to tell. After a failure, or when the future is dropped
    /// before its end, this is of no use any more.
    ///
    /// # Errors
    ///
    /// Why there is no answer.
    pub async fn work(&mut self, job: &[u8], tell: Option<Tell<'_>>) -> Result<Bytes, Failed> {
        self.worker.work(job, &self.limits, tell).await
    }

    /// How many bytes of memory the process holds, as far as the system says.
    pub fn resident(&self) -> Option<u64> {
        self.worker.resident()
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.worker.has_ended()
    }

    /// Ends the process, whatever it is at, and waits until it is gone.
    pub async fn end(self) {
        self.worker.kill().await;
    }
}
