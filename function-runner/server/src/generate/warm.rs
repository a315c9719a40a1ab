//! Processes with KCL's library. One serves the stacks of one tree, and stays warm for the next one.
//!
//! A process reads one tree only, so it belongs to one commit and one organization.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use stoa_fairness::{FairSemaphore, MaxShare};
use stoa_workers::{Failed, Limits, StartError, Subprocess, SubprocessStarter};

use crate::source::Tree;
use crate::worker;

/// How long a process waits for the next job, and how often to look.
const IDLE: Duration = Duration::from_secs(60);
const SWEEP: Duration = Duration::from_secs(15);
/// How many jobs a process does, and how much memory it may have after one, in bytes.
const MOST_JOBS: u32 = 1000;
const MOST_MEMORY: u64 = 60 << 20;

/// Why a job has no answer.
#[derive(Debug)]
pub(super) enum WarmError {
    Start(StartError),
    /// The kernel lacks this mechanism.
    Sandbox(&'static str),
    Job(Failed),
}

/// The processes. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct WarmWorkers {
    starter: SubprocessStarter,
    /// A slot for each process that works.
    slots: FairSemaphore,
    /// The most processes without a job.
    most_idle: usize,
    idle: Arc<Mutex<HashMap<PathBuf, Vec<Idle>>>>,
    /// Where trees of one job are.
    temporary: PathBuf,
}

/// A process without a job.
#[derive(Debug)]
struct Idle {
    worker: Subprocess,
    jobs: u32,
    since: Instant,
    /// The tree stays for as long as the process may read it.
    _tree: Tree,
}

impl WarmWorkers {
    /// As many processes work at once, and as many wait. Needs a Tokio runtime.
    pub(crate) fn new(starter: SubprocessStarter, workers: usize, temporary: &Path) -> Self {
        let slots = FairSemaphore::new(workers, MaxShare::ThreeQuarters);
        let idle: Arc<Mutex<HashMap<PathBuf, Vec<Idle>>>> = Arc::default();
        let swept = Arc::downgrade(&idle);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(idle) = swept.upgrade() else { return };
                lock(&idle).retain(|_, workers| {
                    workers.retain(|it| it.since.elapsed() < IDLE);
                    !workers.is_empty()
                });
            }
        });
        Self { starter, slots, most_idle: workers, idle, temporary: temporary.to_owned() }
    }

    pub(super) fn limits(&self) -> &Limits {
        self.starter.limits()
    }

    /// Does a job of an organization in a process that reads the tree.
    pub(super) async fn work(&self, organization: &str, tree: &Tree, job: &[u8]) -> Result<Bytes, WarmError> {
        let _slot = self.slots.acquire(organization, 1).await;
        let (mut worker, jobs) = match self.take(tree.root()) {
            Some(idle) => (idle.worker, idle.jobs),
            None => (self.start(tree.root()).await?, 0),
        };
        let jobs = jobs + 1;
        let done = worker.work(job, None).await;
        let is_fit = done.is_ok() && jobs < MOST_JOBS && worker.resident().is_none_or(|bytes| bytes < MOST_MEMORY);
        if is_fit {
            self.put(Idle { worker, jobs, since: Instant::now(), _tree: tree.clone() }, tree.root());
        } else {
            worker.end().await;
        }
        done.map_err(WarmError::Job)
    }

    /// Where trees of one job are.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Does a job in a process of its own, which reads a tree that ends with the job.
    pub(super) async fn work_once(&self, organization: &str, root: &Path, job: &[u8]) -> Result<Bytes, WarmError> {
        let _slot = self.slots.acquire(organization, 1).await;
        let mut worker = self.start(root).await?;
        let done = worker.work(job, None).await;
        worker.end().await;
        done.map_err(WarmError::Job)
    }

    async fn start(&self, root: &Path) -> Result<Subprocess, WarmError> {
        let started = self.starter.start(worker::more_for_tree(root)).await.map_err(WarmError::Start)?;
        // The library is not our code, and reads files for programs.
        match started.restrictions().by_name().into_iter().find(|(_, is_there)| !is_there) {
            Some((mechanism, _)) => Err(WarmError::Sandbox(mechanism)),
            None => Ok(started),
        }
    }

    /// A process of this tree, unless it has ended meanwhile.
    fn take(&self, root: &Path) -> Option<Idle> {
        let mut idle = lock(&self.idle);
        let workers = idle.get_mut(root)?;
        while let Some(mut found) = workers.pop() {
            if !found.worker.has_ended() {
                return Some(found);
            }
        }
        None
    }

    /// Lets a process wait; the one that has waited longest makes room.
    fn put(&self, process: Idle, root: &Path) {
        let mut idle = lock(&self.idle);
        idle.entry(root.to_owned()).or_default().push(process);
        if idle.values().map(Vec::len).sum::<usize>() <= self.most_idle {
            return;
        }
        let oldest = |workers: &Vec<Idle>| workers.first().map(|it| it.since);
        let root = idle.iter().filter_map(|(root, it)| Some((oldest(it)?, root))).min().map(|(_, root)| root.clone());
        if let Some(workers) = root.and_then(|root| idle.get_mut(&root)) {
            // The first one has waited longest. It is killed as it is dropped.
            workers.remove(0);
        }
        idle.retain(|_, workers| !workers.is_empty());
    }
}

fn lock(idle: &Mutex<HashMap<PathBuf, Vec<Idle>>>) -> MutexGuard<'_, HashMap<PathBuf, Vec<Idle>>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
