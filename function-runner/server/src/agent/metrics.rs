//! The metrics of an agent.

use jiff::Timestamp;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use stoa_process::ProcessCollector;

/// The outcome of a call that sent a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The hub recorded it.
    Recorded,
    /// The hub rejected it.
    Rejected,
    /// The hub did not answer, or could not record it. The agent sends it again.
    Failed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// The metrics of an agent. Clones share their values.
#[derive(Clone, Debug)]
pub(super) struct AgentMetrics {
    registry: Registry,
    queue: IntGauge,
    dropped: IntCounter,
    reports: IntCounterVec,
    last_success: Gauge,
}

impl AgentMetrics {
    pub(super) fn new() -> prometheus::Result<Self> {
        let queue = IntGauge::new("agent_queue_deployments", "Deployments that the hub does not have yet.")?;
        let dropped = IntCounter::new(
            "agent_dropped_deployments_total",
            "Deployments that were dropped because the queue was full, or because the hub rejected them.",
        )?;
        let reports = Opts::new("agent_reports_total", "Reports to the hub, by outcome: recorded, rejected or failed.");
        let reports = IntCounterVec::new(reports, &["outcome"])?;
        let last_success = Gauge::new(
            "agent_last_success_timestamp_seconds",
            "The time of the last exchange with the hub that did not fail, in seconds since 1970. 0: none yet.",
        )?;
        let registry = Registry::new();
        registry.register(Box::new(queue.clone()))?;
        registry.register(Box::new(dropped.clone()))?;
        registry.register(Box::new(reports.clone()))?;
        registry.register(Box::new(last_success.clone()))?;
        registry.register(Box::new(ProcessCollector::for_self()))?;
        Ok(Self { registry, queue, dropped, reports, last_success })
    }

    /// The registry with all of them.
    pub(super) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Notes the length of the queue, and the number of deployments that were dropped since the start.
    pub(super) fn queued(&self, waiting: usize, dropped: u64) {
        self.queue.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.dropped.inc_by(dropped.saturating_sub(self.dropped.get()));
    }

    /// Counts a report.
    pub(super) fn reported(&self, outcome: Outcome) {
        self.reports.with_label_values(&[outcome.name()]).inc();
    }

    /// Notes an exchange that did not fail.
    pub(super) fn succeeded(&self, now: Timestamp) {
        self.last_success.set(now.as_duration().as_secs_f64());
    }
}
