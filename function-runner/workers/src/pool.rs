//! Workers, and the jobs that they share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::metrics::PoolMetrics;
use crate::process::{Failed, Fault, Limits, More, Program, StartError, Starter, Worker};
use crate::queue::{Queue, Ticket};

/// A worker that holds more after a job than this is replaced, so that one large job does not keep memory for good.
const KEPT: u64 = 192 << 20;
/// Jobs that are smaller, with their answers, leave nothing behind that would be worth a look.
const SMALL: usize = 256 << 10;
/// How long to wait until a worker is started again that did not start, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// Which workers there are, and how much they do.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The program that calls [`worker::serve`](crate::worker::serve).
    pub program: PathBuf,
    /// Its arguments, from which it has its [`Terms`](crate::worker::Terms).
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How many workers there are.
    pub workers: usize,
    /// What one job may take. That it may have no more memory is up to the worker, whose arguments say so.
    pub limits: Limits,
    /// How many jobs may wait.
    pub waiting: usize,
    /// How many bytes the jobs that wait may have together.
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

/// A job that waits or is worked on. When this is dropped it is given up, and its worker killed.
#[derive(Debug)]
#[must_use = "a job that nobody waits for is given up"]
pub struct Pending(oneshot::Receiver<Result<Bytes, Failed>>);

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// Why there is none. What [`Fault::Killed`] or [`Fault::NoWorker`] met may be tried again.
    pub async fn answer(self) -> Result<Bytes, Failed> {
        self.0.await.unwrap_or_else(|_| Err(Fault::Closed.into()))
    }
}

/// Workers at work. When it is dropped they are killed.
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
    ///
    /// # Errors
    ///
    /// When it does not start: then none will.
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

    /// Has a job done, as soon as a worker has time for it.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] when too much waits already, and [`Fault::Closed`] when nothing is done any more.
    pub fn submit(&self, tenant: &str, job: Bytes) -> Result<Pending, Failed> {
        if self.0.closed.is_cancelled() {
            return Err(Fault::Closed.into());
        }
        let (reply, answer) = oneshot::channel();
        self.0.queue.put(tenant, Ticket { job, reply }).map_err(|_| Fault::Busy)?;
        Ok(Pending(answer))
    }

    /// What one job may take.
    pub fn limits(&self) -> &Limits {
        &self.0.config.limits
    }
}

impl Running {
    /// Ends the workers: what they are at comes to its end, what waits is told that nothing comes of it.
    pub async fn close(mut self) {
        self.shared.closed.cancel();
        self.shared.queue.fail(&Fault::Closed.into());
        while self.keepers.join_next().await.is_some() {}
    }
}

/// Sees that there is one worker, and that it has work.
struct Keeper {
    shared: Arc<Shared>,
    starter: Arc<Starter>,
}

impl Keeper {
    async fn keep(self, mut worker: Option<Worker>) {
        let closed = self.shared.closed.clone();
        let mut again = AGAIN.0;
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
                            if closed.run_until_cancelled(tokio::time::sleep(again)).await.is_none() {
                                return;
                            }
                            again = (again * 2).min(AGAIN.1);
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
                Ended::Working => again = AGAIN.0,
                // Somebody kills them as they come: there is no hurry then.
                Ended::Idle => {
                    if closed.run_until_cancelled(tokio::time::sleep(AGAIN.0)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn not_started(&self, error: &StartError) {
        tracing::error!(error = error as &dyn std::error::Error, "a worker does not start");
        self.shared.metrics.ended("start");
        if self.shared.live.load(Ordering::Relaxed) == 0 {
            self.shared.queue.fail(&Fault::NoWorker(error.to_string()).into());
        }
    }

    /// Has a worker do jobs until it is of no use any more.
    async fn use_up(&self, mut worker: Worker) -> Ended {
        let Shared { metrics, queue, closed, config, .. } = &*self.shared;
        loop {
            metrics.idle.inc();
            let ticket = tokio::select! {
                biased;
                () = closed.cancelled() => Err(Ended::Closed),
                how = worker.ended() => {
                    tracing::warn!(how, "a worker ended while it had nothing to do");
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
                // Whoever went away meanwhile needs no answer.
                let _ = reply.send(done);
            }
            if cause.is_some() {
                // Only then is its memory for the next.
                worker.kill().await;
                return Ended::Working;
            }
        }
    }
}

/// How a worker came to its end.
enum Ended {
    /// While it worked, or just after.
    Working,
    /// While it had nothing to do.
    Idle,
    /// Since the pool is closed.
    Closed,
}
