//! The metrics of a pool.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::sandbox::Restrictions;

/// How many workers there are, what they do, and why they ended. Clones share their values.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    pub(crate) idle: IntGauge,
    pub(crate) busy: IntGauge,
    pub(crate) waiting: IntGauge,
    ended: IntCounterVec,
    restricted: IntGaugeVec,
}

impl PoolMetrics {
    /// Registers `runner_workers`, `runner_worker_jobs_waiting`, `runner_workers_ended_total` and
    /// `runner_worker_restricted`.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let workers = IntGaugeVec::new(Opts::new("runner_workers", "Worker processes by what they do."), &["state"])?;
        let waiting = IntGauge::new("runner_worker_jobs_waiting", "Jobs that wait for a worker.")?;
        let ended = IntCounterVec::new(
            Opts::new("runner_workers_ended_total", "Worker processes that ended or were ended, by cause."),
            &["cause"],
        )?;
        let restricted = IntGaugeVec::new(
            Opts::new("runner_worker_restricted", "Whether workers are restricted by a mechanism of the kernel."),
            &["mechanism"],
        )?;
        registry.register(Box::new(workers.clone()))?;
        registry.register(Box::new(waiting.clone()))?;
        registry.register(Box::new(ended.clone()))?;
        registry.register(Box::new(restricted.clone()))?;
        let [idle, busy] = ["idle", "busy"].map(|state| workers.with_label_values(&[state]));
        Ok(Self { idle, busy, waiting, ended, restricted })
    }

    pub(crate) fn ended(&self, cause: &str) {
        self.ended.with_label_values(&[cause]).inc();
    }

    pub(crate) fn restricted(&self, restrictions: Restrictions) {
        for (mechanism, is_there) in restrictions.by_name() {
            self.restricted.with_label_values(&[mechanism]).set(is_there.into());
        }
    }
}
