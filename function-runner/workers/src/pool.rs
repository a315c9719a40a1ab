//! The pool: starts workers, and gives them jobs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use stoa_backoff::Policy;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::metrics::PoolMetrics;
use crate::process::{Failed, Fault, Limits, More, Program, StartError, Starter, Worker};
use crate::queue::{Queue, Ticket};

/// The pool replaces a worker that uses more memory than this after a job, in bytes.
const KEPT: u64 = 192 << 20;
/// The pool does not check the memory of a worker after smaller jobs, with their answers, in bytes.
const SMALL: usize = 256 << 10;
/// How long to wait before a worker is started again that did not start.
const START: Policy = Policy::new(Duration::from_millis(200), Duration::from_secs(10));

/// The number of workers, and their limits.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The program that calls [`worker::serve`](crate::worker::serve).
    pub program: PathBuf,
    /// Its arguments, from which it parses its [`Terms`](crate::worker::Terms).
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The number of workers.
    pub workers: usize,
    /// The limits on one job. The worker enforces the limit of memory itself, which is among its arguments.
    pub limits: Limits,
    /// How many jobs may wait.
    pub waiting: usize,
    /// How many bytes the waiting jobs may have together.
    pub waiting_bytes: usize,
}

/// Workers that are kept warm. Clones share them.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: PoolConfig,
    metrics: PoolMetrics,
    queue: Queue,
    /// Workers that were started and have not ended.
    live: AtomicUsize,
    closed: CancellationToken,
}

/// A job that waits or is under way. Dropping it cancels the job, and kills its worker.
#[derive(Debug)]
#[must_use = "a job that nobody waits for is given up"]
pub struct Pending(oneshot::Receiver<Result<Bytes, Failed>>);

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// Why there is none. Retry after [`Fault::Killed`] and [`Fault::NoWorker`].
    pub async fn answer(self) -> Result<Bytes, Failed> {
        self.0.await.unwrap_or_else(|_| Err(Fault::Closed.into()))
    }
}

/// Running workers. Dropping it kills them.
#[derive(Debug)]
#[must_use = "without it there are no workers"]
pub struct Running {
    shared: Arc<Shared>,
    keepers: JoinSet<()>,
}

impl Pool {
    /// A pool whose jobs wait until it is [started](Self::start).
    pub fn new(config: PoolConfig, metrics: PoolMetrics) -> Self {
        let queue = Queue::new(config.waiting, config.waiting_bytes, metrics.waiting.clone());
        let closed = CancellationToken::new();
        Self(Arc::new(Shared { config, metrics, queue, live: AtomicUsize::new(0), closed }))
    }

    /// Starts the workers, and waits for the first.
    pub async fn start(&self) -> Result<Running, StartError> {
        let PoolConfig { program, arguments, environment, workers, .. } = self.0.config.clone();
        let starter =
            Arc::new(Starter::new(Program { path: program, arguments, environment }).map_err(StartError::Spawn)?);
        let first = starter.start(More::default()).await?;
        self.0.metrics.restricted(first.restrictions);
        first.restrictions.warn("workers");
        let mut first = Some(first);
        let mut keepers = JoinSet::new();
        for _ in 0..workers.max(1) {
            let keeper = Keeper { shared: Arc::clone(&self.0), starter: Arc::clone(&starter) };
            keepers.spawn(keeper.keep(first.take()));
        }
        Ok(Running { shared: Arc::clone(&self.0), keepers })
    }

    /// Submits a job, which runs when its turn comes and a worker is idle.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if too many jobs wait already, and [`Fault::Closed`] if the pool is closed.
    pub fn submit(&self, tenant: &str, job: Bytes) -> Result<Pending, Failed> {
        if self.0.closed.is_cancelled() {
            return Err(Fault::Closed.into());
        }
        let (reply, answer) = oneshot::channel();
        self.0.queue.put(tenant, Ticket { job, reply }).map_err(|_| Fault::Busy)?;
        Ok(Pending(answer))
    }

    /// The limits on one job.
    pub fn limits(&self) -> &Limits {
        &self.0.config.limits
    }
}

impl Running {
    /// Ends the workers. Jobs under way finish, and waiting jobs fail with [`Fault::Closed`].
    pub async fn close(mut self) {
        self.shared.closed.cancel();
        self.shared.queue.fail(&Fault::Closed.into());
        while self.keepers.join_next().await.is_some() {}
    }
}

/// Keeps one worker running, and gives it jobs.
struct Keeper {
    shared: Arc<Shared>,
    starter: Arc<Starter>,
}

impl Keeper {
    async fn keep(self, mut worker: Option<Worker>) {
        let closed = self.shared.closed.clone();
        let mut failures = 0;
        loop {
            let live = match worker.take() {
                Some(worker) => worker,
                None => {
                    let Some(started) = closed.run_until_cancelled(self.starter.start(More::default())).await else {
                        return;
                    };
                    match started {
                        Ok(worker) => worker,
                        Err(error) => {
                            self.not_started(&error);
                            failures += 1;
                            let wait = tokio::time::sleep(START.after(failures));
                            if closed.run_until_cancelled(wait).await.is_none() {
                                return;
                            }
                            continue;
                        }
                    }
                }
            };
            self.shared.live.fetch_add(1, Ordering::Relaxed);
            let ended = self.use_up(live).await;
            self.shared.live.fetch_sub(1, Ordering::Relaxed);
            match ended {
                Ended::Closed => return,
                Ended::Working => failures = 0,
                // Something kills workers as they start, so the next one may wait.
                Ended::Idle => {
                    if closed.run_until_cancelled(tokio::time::sleep(START.min)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn not_started(&self, error: &StartError) {
        tracing::error!(error = error as &dyn std::error::Error, "a worker did not start");
        self.shared.metrics.ended("start");
        if self.shared.live.load(Ordering::Relaxed) == 0 {
            self.shared.queue.fail(&Fault::NoWorker(error.to_string()).into());
        }
    }

    /// Gives jobs to a worker until it ends or has to be replaced.
    async fn use_up(&self, mut worker: Worker) -> Ended {
        let Shared { metrics, queue, closed, config, .. } = &*self.shared;
        loop {
            metrics.idle.inc();
            let ticket = tokio::select! {
                biased;
                () = closed.cancelled() => Err(Ended::Closed),
                how = worker.ended() => {
                    tracing::warn!(how, "an idle worker ended");
                    metrics.ended("killed");
                    Err(Ended::Idle)
                }
                ticket = queue.next() => Ok(ticket),
            };
            metrics.idle.dec();
            let Ticket { job, mut reply } = match ticket {
                Ok(ticket) => ticket,
                Err(ended) => {
                    worker.kill().await;
                    return ended;
                }
            };
            metrics.busy.inc();
            let done = tokio::select! {
                done = worker.work(&job, &config.limits, None) => Some(done),
                () = reply.closed() => None,
            };
            metrics.busy.dec();
            let cause = match &done {
                None => Some("cancelled"),
                Some(Err(failed)) => {
                    tracing::warn!(fault = ?failed.fault, bytes = job.len(), "a worker is replaced");
                    Some(failed.fault.cause())
                }
                Some(Ok(answer)) if job.len() + answer.len() > SMALL && worker.resident() > Some(KEPT) => Some("large"),
                Some(Ok(_)) => None,
            };
            drop(job);
            if let Some(cause) = cause {
                metrics.ended(cause);
            }
            if let Some(done) = done {
                // The caller may have left meanwhile.
                let _ = reply.send(done);
            }
            if cause.is_some() {
                // The next worker needs its memory.
                worker.kill().await;
                return Ended::Working;
            }
        }
    }
}

/// How a worker ended.
enum Ended {
    /// While it worked, or just after.
    Working,
    /// While it was idle.
    Idle,
    /// Because the pool is closed.
    Closed,
}
