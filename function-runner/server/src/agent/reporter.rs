//! Reports the deployments of the cluster to the hub.
//!
//! Start at [`Reporter::work`], which sends the waiting deployments in their order, and repeats the known ones at an interval. A
//! deployment leaves the queue after the hub has recorded it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use stoa_backoff::{Jitter, Policy};
use stoa_runtime_gitops::Deployment;
use stoa_types::hub::{MAX_REPORTED_DEPLOYMENTS, Reconciler, ReportWarning, ReportedDeployment};
use tokio::time::Instant;

use super::assignment::Assignment;
use super::hub::{Answer, HubClient, Later};
use super::metrics::{AgentMetrics, Outcome};
use super::queue::{ObjectId, Queue};
use super::watch::Change;

/// The waits after failures.
const RETRY: Policy = Policy::new(Duration::from_secs(1), Duration::from_secs(60)).with_jitter(Jitter::HALF);
/// The time without heartbeats after a watch has failed: a cluster that does not answer has no known state.
const DOUBT: Duration = Duration::from_secs(120);

/// The state of an agent.
pub(super) struct Reporter {
    hub: HubClient,
    queue: Queue,
    heartbeat: Duration,
    /// The Reconcilers of this host as the hub had them last; `None` before the first list.
    reconcilers: Option<Vec<Reconciler>>,
    /// The most deployments of a report. It is smaller while the agent searches the wrong deployment of a rejected one.
    most: usize,
    /// The number of failed calls since the last success.
    failures: u32,
    /// The time of the next call, after a failure.
    not_before: Option<Instant>,
    /// The time of the next heartbeat; `None` until a watch has listed objects.
    next_heartbeat: Option<Instant>,
    /// The objects that the watches have.
    seen: BTreeSet<ObjectId>,
    /// The time of the last failure of the watch of a kind.
    failed: BTreeMap<String, Instant>,
    /// The problems that are in the log already.
    logged: BTreeSet<String>,
    /// The number of deployments that the hub rejected.
    rejected: u64,
    metrics: AgentMetrics,
}

impl Reporter {
    pub(super) fn new(hub: HubClient, queue: Queue, heartbeat: Duration, metrics: AgentMetrics) -> Self {
        Self {
            hub,
            queue,
            heartbeat,
            reconcilers: None,
            most: MAX_REPORTED_DEPLOYMENTS,
            failures: 0,
            not_before: None,
            next_heartbeat: None,
            seen: BTreeSet::new(),
            failed: BTreeMap::new(),
            logged: BTreeSet::new(),
            rejected: 0,
            metrics,
        }
    }

    /// Takes a change of the cluster's objects. `now` is by the clock of the cluster.
    pub(super) fn take(&mut self, change: Change, now: Timestamp) {
        match change {
            Change::Listed(kind, objects) => {
                let existing: BTreeSet<&ObjectId> = objects.iter().map(|(object, _)| object).collect();
                self.queue.retain(kind, &existing);
                self.seen.retain(|object| object.kind != kind || existing.contains(object));
                for (object, deployment) in objects {
                    self.observe(object, deployment, now);
                }
                self.failed.remove(kind);
                if self.next_heartbeat.is_none() {
                    self.next_heartbeat = Some(Instant::now());
                }
            }
            Change::Applied(object, deployment) => self.observe(object, deployment, now),
            Change::Deleted(object) => {
                self.seen.remove(&object);
                self.queue.forget(&object);
            }
            Change::Failed(kind) => {
                self.failed.insert(kind.to_owned(), Instant::now());
            }
        }
    }

    fn observe(&mut self, object: ObjectId, deployment: Option<Deployment>, now: Timestamp) {
        if let Some(deployment) = deployment {
            self.queue.observe(&object, deployment, now);
        }
        self.seen.insert(object);
    }

    /// Writes the queue to its file. A failure is in the log.
    pub(super) fn save(&mut self) {
        self.metrics.queued(self.queue.len(), self.queue.total_dropped() + self.rejected);
        if let Err(error) = self.queue.save() {
            tracing::error!(%error, "the queue file cannot be written; a restart would lose deployments");
        }
    }

    /// Calls the hub, if it is time to. It may be dropped at any time: the next call sends the same deployments again.
    pub(super) async fn work(&mut self) {
        self.save();
        let now = Instant::now();
        if self.not_before.is_some_and(|time| now < time) {
            return;
        }
        let is_heartbeat = self.next_heartbeat.is_some_and(|time| now >= time);
        if self.queue.is_empty() && !is_heartbeat {
            return;
        }
        match self.exchange(is_heartbeat).await {
            Ok(()) => {
                self.metrics.succeeded(Timestamp::now());
                if self.failures > 0 {
                    tracing::info!("the hub has the waiting deployments");
                }
                (self.failures, self.not_before) = (0, None);
                if is_heartbeat {
                    self.next_heartbeat = Some(now + self.heartbeat);
                }
            }
            Err(Later { why, after }) => {
                self.failures = self.failures.saturating_add(1);
                let wait = after.unwrap_or_else(|| RETRY.after(self.failures));
                tracing::warn!(%why, ?wait, "the hub has not recorded the deployments; the agent sends them again");
                self.not_before = Some(Instant::now() + wait);
            }
        }
        self.save();
    }

    /// Sends the waiting deployments, and then a heartbeat.
    async fn exchange(&mut self, is_heartbeat: bool) -> Result<(), Later> {
        let mut is_fresh = false;
        if is_heartbeat || self.reconcilers.is_none() {
            self.list().await?;
            is_fresh = true;
        }
        loop {
            let assignment = self.assignment();
            let (deployments, entries) = self.queue.batch(&assignment, self.most);
            if entries == 0 {
                break;
            }
            if deployments.is_empty() {
                self.queue.remove(entries);
                continue;
            }
            match self.report(deployments).await? {
                Answer::Recorded(warnings) => {
                    log_warnings(&warnings);
                    self.queue.remove(entries);
                    self.most = MAX_REPORTED_DEPLOYMENTS;
                }
                Answer::Rejected(_) if !is_fresh => {
                    // A Reconciler may have been deleted.
                    self.list().await?;
                    is_fresh = true;
                }
                Answer::Rejected(why) if entries == 1 => {
                    tracing::error!(%why, "the hub rejects a deployment; the agent drops it");
                    self.queue.remove(1);
                    self.rejected += 1;
                    self.most = MAX_REPORTED_DEPLOYMENTS;
                }
                Answer::Rejected(_) => self.most = (entries / 2).max(1),
            }
        }
        if is_heartbeat { self.beat().await } else { Ok(()) }
    }

    /// Reports the known deployments of all watched objects. They are of the hub's now, so that the hub has the current state even
    /// where another client reported a different one.
    async fn beat(&mut self) -> Result<(), Later> {
        let assignment = self.assignment();
        let reconcilers = self.reconcilers.as_deref().unwrap_or_default();
        let has_deployment =
            |reconciler: &Reconciler| reconciler.status.as_ref().is_some_and(|status| status.deployment.is_some());
        let reported: BTreeSet<String> =
            reconcilers.iter().filter(|it| has_deployment(it)).map(|it| it.name_any()).collect();
        let is_doubtful = |kind: &str| self.failed.get(kind).is_some_and(|time| time.elapsed() < DOUBT);
        let mut deployments = Vec::<ReportedDeployment>::new();
        for (object, known) in self.queue.known() {
            if !self.seen.contains(object) || is_doubtful(&object.kind) {
                continue;
            }
            for name in assignment.of(object) {
                // The first report of a new Reconciler has the time of the cluster.
                let time = (!reported.contains(name)).then_some(known.time);
                deployments.push(known.reported(name, time));
            }
        }
        for some in deployments.chunks(MAX_REPORTED_DEPLOYMENTS) {
            match self.report(some.to_vec()).await? {
                Answer::Recorded(warnings) => log_warnings(&warnings),
                Answer::Rejected(why) => tracing::warn!(%why, "the hub rejects a heartbeat"),
            }
        }
        tracing::debug!(deployments = deployments.len(), "heartbeat");
        Ok(())
    }

    /// Sends a report, and counts it.
    async fn report(&self, deployments: Vec<ReportedDeployment>) -> Result<Answer, Later> {
        let answer = self.hub.report(deployments).await;
        self.metrics.reported(match &answer {
            Ok(Answer::Recorded(_)) => Outcome::Recorded,
            Ok(Answer::Rejected(_)) => Outcome::Rejected,
            Err(_) => Outcome::Failed,
        });
        answer
    }

    /// Lists the Reconcilers of this host.
    async fn list(&mut self) -> Result<(), Later> {
        let reconcilers = self.hub.reconcilers().await?;
        if reconcilers.is_empty() {
            self.log_once(
                "the hub has no Reconciler of this host; create one with spec.hostName as in --host".to_owned(),
            );
        }
        self.reconcilers = Some(reconcilers);
        Ok(())
    }

    /// The Reconcilers of all objects, with a log line for each that has several objects.
    fn assignment(&mut self) -> Assignment {
        let reconcilers = self.reconcilers.as_deref().unwrap_or_default();
        let assignment = Assignment::new(reconcilers, self.queue.objects().chain(&self.seen));
        for name in &assignment.ambiguous {
            self.log_once(format!(
                "spec.reconcilerName of Reconciler {name:?} is the name of several objects; \
                 write <namespace>/<name> or <Kind>/<namespace>/<name>"
            ));
        }
        assignment
    }

    fn log_once(&mut self, problem: String) {
        if !self.logged.contains(&problem) {
            tracing::warn!("{problem}");
            self.logged.insert(problem);
        }
    }
}

fn log_warnings(warnings: &[ReportWarning]) {
    for ReportWarning { reason, message, .. } in warnings {
        tracing::info!(%reason, "{message}");
    }
}

#[cfg(test)]
mod tests;
