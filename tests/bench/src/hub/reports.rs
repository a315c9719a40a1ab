//! Clients that report at a rate, or as fast as they can, while another one reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use super::clusters::Clusters;
use crate::client::{Call, Client};
use crate::gets::somewhere;
use crate::load::insist;

/// One report in so many is a transition.
const TRANSITION: usize = 100;
/// The time between two reads meanwhile.
const READ_EVERY: Duration = Duration::from_millis(20);
/// A timer may be so late. A client that is later waited for the server, and its wait counts.
const SLACK: Duration = Duration::from_millis(2);

/// How clusters report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    /// Deployments of a report.
    pub(super) batch: usize,
    /// Reports of all clients in a second; `None` for as many as they can.
    pub(super) rate: Option<f64>,
}

/// What a phase took.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Sorted.
    pub(super) reports: Vec<Duration>,
    /// Sorted.
    pub(super) gets: Vec<Duration>,
    pub(super) elapsed: Duration,
    pub(super) deployments: usize,
}

/// A connection, and the clusters that report over it.
#[derive(Debug)]
struct Reporter {
    client: Client,
    clusters: Vec<usize>,
    /// The deployed version of each of them.
    versions: Vec<usize>,
    /// The deployments that were reported so far.
    count: usize,
}

impl Reporter {
    /// The next report, and the number of transitions in it.
    fn next(&mut self, of: &Clusters, batch: usize) -> (Call, usize, usize) {
        let (batch, mut transitions) = (batch.min(self.clusters.len()), 0);
        let mut deployments = Vec::with_capacity(batch);
        for _ in 0..batch {
            let at = self.count % self.clusters.len();
            self.count += 1;
            if self.count.is_multiple_of(TRANSITION) {
                self.versions[at] += 1;
                transitions += 1;
            }
            let (number, version) = (self.clusters[at], self.versions[at]);
            deployments.push(json!({
                "reconciler": Clusters::reconciler(number),
                "gitOpsCommitId": Clusters::commit(number, version),
                "status": "success",
            }));
        }
        (of.report(deployments), batch, transitions)
    }

    /// Reports until the end; `offset` is the time of the first report after the start, and `interval` that between two.
    async fn run(
        mut self,
        of: Clusters,
        batch: usize,
        started: Instant,
        (offset, interval, length): (Duration, Duration, Duration),
    ) -> Result<(Self, Vec<Duration>, usize)> {
        let (mut latencies, mut reported, mut at) = (Vec::new(), 0, offset);
        while at < length && started.elapsed() < length {
            let planned = started + at;
            tokio::time::sleep_until(planned.into()).await;
            let (call, deployments, transitions) = self.next(&of, batch);
            let began = if interval.is_zero() { Instant::now() } else { Instant::now().min(planned + SLACK) };
            let answer = insist(&mut self.client, &call).await?;
            latencies.push(began.elapsed());
            let status = &answer.json()?["status"];
            ensure!(status["transitions"] == transitions, "{transitions} of {deployments} were new, and not {status}");
            reported += deployments;
            at = if interval.is_zero() { started.elapsed() } else { at + interval };
        }
        Ok((self, latencies, reported))
    }
}

/// All connections.
#[derive(Debug)]
pub(super) struct Reporters(Vec<Reporter>);

impl Reporters {
    /// Divides the clusters among connections.
    pub(super) async fn connect(clusters: &Clusters, connections: usize) -> Result<Self> {
        let mut reporters = Vec::new();
        for connection in 0..connections {
            let own: Vec<usize> = (connection..clusters.number).step_by(connections).collect();
            let versions = vec![clusters.last_version(); own.len()];
            let client = clusters.endpoint.connect().await?;
            // Transitions of all connections are spread over the time.
            let count = connection * TRANSITION / connections;
            reporters.push(Reporter { client, clusters: own, versions, count });
        }
        Ok(Self(reporters))
    }

    /// Reports for a time, and reads meanwhile.
    ///
    /// # Errors
    ///
    /// When a report is rejected, or recorded as something else than it is.
    pub(super) async fn run(&mut self, clusters: &Clusters, phase: Phase, length: Duration) -> Result<Measured> {
        let connections = self.0.len();
        let interval = phase.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(connections as f64 / rate));
        let is_over = Arc::new(AtomicBool::new(false));
        let reads = tokio::spawn(read(clusters.clone(), Arc::clone(&is_over)));
        let (started, mut tasks) = (Instant::now(), JoinSet::new());
        for (number, reporter) in self.0.drain(..).enumerate() {
            let offset = interval.mul_f64(number as f64 / connections as f64);
            tasks.spawn(reporter.run(clusters.clone(), phase.batch, started, (offset, interval, length)));
        }
        let mut measured = Measured::default();
        while let Some(finished) = tasks.join_next().await {
            let (reporter, latencies, reported) = finished.context("a reporter panicked")??;
            self.0.push(reporter);
            measured.reports.extend(latencies);
            measured.deployments += reported;
        }
        measured.elapsed = started.elapsed();
        is_over.store(true, Ordering::Relaxed);
        measured.gets = reads.await.context("the reader panicked")??;
        measured.reports.sort_unstable();
        measured.gets.sort_unstable();
        ensure!(!measured.reports.is_empty(), "nothing was reported");
        Ok(measured)
    }
}

/// Gets one Reconciler after the other until it is over.
async fn read(clusters: Clusters, is_over: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let (mut client, mut latencies) = (clusters.endpoint.connect().await?, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let name = Clusters::reconciler(somewhere(0, latencies.len(), clusters.number));
        let path = format!("{}/{name}", clusters.path("reconcilers"));
        let began = Instant::now();
        let answer = client.succeed(&Call::get(path)).await?;
        latencies.push(began.elapsed());
        ensure!(answer.json()?["metadata"]["name"] == name.as_str(), "asked for {name}");
        tokio::time::sleep(READ_EVERY).await;
    }
    Ok(latencies)
}
