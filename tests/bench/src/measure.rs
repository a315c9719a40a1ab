//! Lets the sides work in turn, each alone, and says what it took.
//!
//! Start at [`Bench::compare`]. Latency is what the client waits for. Processor time is that of all servers together,
//! whichever side works: a side may not hide its cost in another's process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::bed::Bed;
use crate::client::{Call, Client, Endpoint};
use crate::process::CpuTime;
use crate::report::Report;
use crate::size::Size;

/// How long the servers have to be quiet to count as done.
const QUIET: Duration = Duration::from_millis(100);
/// What they may use meanwhile, beyond what they use when idle.
const NOISE: Duration = Duration::from_millis(10);
/// How long the idle servers are looked at, at a time.
const IDLE_WINDOW: Duration = Duration::from_millis(500);

/// Whether servers that use so much per second still do what somebody else asked for.
fn is_busy(per_second: CpuTime) -> bool {
    per_second.total() > Duration::from_millis(250)
}

/// Whom requests go to. The order is that of the turns and of the report's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// stoa-apiserver itself.
    Stoa,
    /// The same objects through kube-apiserver's aggregation layer.
    Aggregated,
    /// Objects of the same size in Go's sample-apiserver itself.
    Sample,
    /// The same objects as a custom resource of kube-apiserver.
    Reference,
    /// What stoa-apiserver answered, from a server that has it ready.
    Floor,
    /// The same objects applied by `kpt live`.
    Kpt,
    /// The same resources by `terraform`.
    Terraform,
    /// The same files by the tool's command.
    Command,
    /// The same files by the tool's library, in a process that has done it before.
    Library,
}

/// How long a connection that nobody uses is kept. Go's servers close one after 90 s.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(60);

/// Where a side has its objects.
#[derive(Debug)]
pub(crate) struct MeasuredCollection {
    pub(crate) side: Side,
    pub(crate) endpoint: Endpoint,
    /// The path of the collection in its namespace.
    pub(crate) collection: String,
    /// Connections that are open and not in use, and since when.
    pool: Mutex<Vec<(Instant, Client)>>,
}

impl MeasuredCollection {
    pub(crate) fn new(side: Side, endpoint: Endpoint, collection: String) -> Self {
        Self { side, endpoint, collection, pool: Mutex::default() }
    }

    /// Open connections, which have been used before where there are any.
    pub(crate) async fn clients(&self, count: usize) -> Result<Vec<Client>> {
        let mut clients = {
            let mut pool = self.pool();
            pool.retain(|(since, _)| since.elapsed() < MAX_IDLE);
            let kept = pool.len().saturating_sub(count);
            pool.split_off(kept).into_iter().map(|(_, client)| client).collect::<Vec<_>>()
        };
        while clients.len() < count {
            let mut client = self.endpoint.connect().await?;
            // The server looks at who calls before the first request is answered, not with every one.
            client.succeed(&Call::get(format!("{}?limit=1", self.collection))).await?;
            clients.push(client);
        }
        Ok(clients)
    }

    /// Puts connections back for others to use.
    pub(crate) fn put_back(&self, clients: Vec<Client>) {
        let now = Instant::now();
        self.pool().extend(clients.into_iter().map(|client| (now, client)));
    }

    /// Makes one call that has to succeed and returns what it says.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Value> {
        let mut clients = self.clients(1).await?;
        let answer = clients[0].succeed(call).await?;
        self.put_back(clients);
        answer.json()
    }

    fn pool(&self) -> MutexGuard<'_, Vec<(Instant, Client)>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of one object.
    pub(crate) fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.collection)
    }
}

/// What one turn of one side was.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    /// How long the client waited, per operation.
    pub(crate) latencies: Vec<Duration>,
    /// How long it all took.
    pub(crate) elapsed: Duration,
    /// What processor time is divided by: operations, or events delivered.
    pub(crate) units: usize,
    /// What is to be checked.
    pub(crate) output: T,
}

/// Something that each side does in its turn.
pub(crate) trait Experiment {
    /// Which processor time counts.
    const WINDOW: Window = Window::Answered;
    /// What is made before the turn.
    type Ready;
    /// What is looked at after the turn.
    type Output;

    /// How many turns each side has.
    fn rounds(&self, size: &Size) -> usize {
        size.rounds
    }

    /// Does what is not measured: opens connections, writes files.
    async fn prepare(&self, target: &MeasuredCollection, round: usize) -> Result<Self::Ready>;

    /// Does what is measured.
    async fn work(&self, target: &MeasuredCollection, round: usize, ready: Self::Ready) -> Result<Turn<Self::Output>>;

    /// Says that what was answered is right, and how many bytes came over the wire per operation.
    async fn check(&self, target: &MeasuredCollection, round: usize, output: Self::Output) -> Result<usize>;
}

/// Which processor time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Until the last answer.
    Answered,
    /// Until nothing is left to do: what is put off until after the answer counts, too.
    Quiet,
}

/// What the turns of one side were, taken together.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) side: Side,
    /// Sorted.
    latencies: Vec<Duration>,
    per_second: Vec<f64>,
    cpu_ms: Vec<f64>,
    kilobytes: Vec<f64>,
}

impl Summary {
    fn new(side: Side) -> Self {
        Self { side, latencies: Vec::new(), per_second: Vec::new(), cpu_ms: Vec::new(), kilobytes: Vec::new() }
    }

    /// The latency that `share` of the operations stay below, in milliseconds.
    pub(crate) fn latency_ms(&self, share: f64) -> f64 {
        percentile_ms(&self.latencies, share)
    }

    /// How many latencies there are.
    pub(crate) fn samples(&self) -> usize {
        self.latencies.len()
    }

    /// Operations per second, the median of the turns.
    pub(crate) fn per_second(&self) -> f64 {
        median(&self.per_second)
    }

    /// Milliseconds of processor time per unit, the median of the turns.
    pub(crate) fn cpu_ms(&self) -> f64 {
        median(&self.cpu_ms)
    }

    /// Kilobytes over the wire per operation, the median of the turns.
    pub(crate) fn kilobytes(&self) -> f64 {
        median(&self.kilobytes)
    }
}

/// The latency that `share` of sorted ones stay below, in milliseconds.
pub(crate) fn percentile_ms(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(last)).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e3)
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// A test bed under measurement.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) bed: Bed,
    pub(crate) size: Size,
    pub(crate) report: Report,
    /// What the servers use per second when nobody asks for anything.
    idle: CpuTime,
}

impl Bench {
    /// Looks at the idle servers first, and waits for them to be idle.
    pub(crate) async fn start(bed: Bed, size: Size) -> Result<Self> {
        let (mut idle, mut windows, deadline): (Option<CpuTime>, u32, _) = (None, 0, Instant::now() + size.patience);
        while windows < size.idle_windows || (idle.is_some_and(is_busy) && Instant::now() < deadline) {
            let (before, started) = (bed.servers.cpu()?, Instant::now());
            tokio::time::sleep(IDLE_WINDOW).await;
            let used = (bed.servers.cpu()? - before).per_second(started.elapsed());
            idle = Some(idle.map_or(used, |least| least.min(used)));
            windows += 1;
        }
        let report = Report::default();
        Ok(Self { bed, size, report, idle: idle.unwrap_or_default() })
    }

    /// What the servers use per second when nobody asks for anything.
    pub(crate) fn idle(&self) -> CpuTime {
        self.idle
    }

    /// Waits until the servers have nothing to do, or patience ends, which the report then says.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + self.size.patience;
        loop {
            let (before, started) = (self.bed.servers.cpu()?, Instant::now());
            tokio::time::sleep(QUIET).await;
            let used = (self.bed.servers.cpu()? - before).without_idle(self.idle, started.elapsed());
            if used.total() <= NOISE {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.report.note(&format!(
                    "the servers were not quiet after {:?} of waiting: {used:?} in {QUIET:?}",
                    self.size.patience
                ));
                return Ok(());
            }
        }
    }

    /// Gives every target its turns, one after the other, and checks what each answered when its turn is over.
    ///
    /// # Errors
    ///
    /// Whatever fails, or is not as it should be.
    pub(crate) async fn compare<E: Experiment>(
        &mut self,
        targets: &[&MeasuredCollection],
        experiment: &E,
    ) -> Result<Vec<Summary>> {
        let mut summaries: Vec<Summary> = targets.iter().map(|target| Summary::new(target.side)).collect();
        for round in 0..experiment.rounds(&self.size) {
            for (target, summary) in targets.iter().zip(&mut summaries) {
                let context = || format!("{:?}, turn {round}", target.side);
                let ready = experiment.prepare(target, round).await.with_context(context)?;
                self.settle().await?;
                let (before, started) = (self.bed.servers.cpu()?, Instant::now());
                let turn = experiment.work(target, round, ready).await.with_context(context)?;
                if E::WINDOW == Window::Quiet {
                    self.settle().await?;
                }
                let used = (self.bed.servers.cpu()? - before).without_idle(self.idle, started.elapsed());
                let bytes = experiment.check(target, round, turn.output).await.with_context(context)?;
                summary.per_second.push(turn.latencies.len() as f64 / turn.elapsed.as_secs_f64());
                summary.cpu_ms.push(used.total().as_secs_f64() * 1e3 / turn.units as f64);
                summary.kilobytes.push(bytes as f64 / 1e3);
                summary.latencies.extend(turn.latencies);
            }
        }
        for summary in &mut summaries {
            summary.latencies.sort();
        }
        Ok(summaries)
    }
}
