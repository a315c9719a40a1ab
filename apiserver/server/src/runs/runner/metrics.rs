//! What is counted of the runners, under names like those of upstream's clients (`rest_client_*`).

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use tonic::Code;

/// The metrics, by the address of the runner. Clones share their values.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    calls: IntCounterVec,
    inflight: IntGaugeVec,
    up: IntGaugeVec,
}

impl Metrics {
    /// # Errors
    ///
    /// When there are some of these names already.
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(name, help);
        let calls = IntCounterVec::new(
            opts("runner_client_requests_total", "Calls to function-runners by runner, method and gRPC code."),
            &["runner", "method", "code"],
        )?;
        let inflight = IntGaugeVec::new(
            opts("runner_client_inflight_requests", "Calls to function-runners that are under way."),
            &["runner"],
        )?;
        let up = IntGaugeVec::new(
            opts("runner_client_up", "Whether a function-runner takes calls: 1 if its last health check said so."),
            &["runner"],
        )?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(inflight.clone()))?;
        registry.register(Box::new(up.clone()))?;
        Ok(Self { calls, inflight, up })
    }

    pub(super) fn began(&self, runner: &str) {
        self.inflight.with_label_values(&[runner]).inc();
    }

    pub(super) fn ended(&self, runner: &str, method: &str, code: Code) {
        self.inflight.with_label_values(&[runner]).dec();
        self.calls.with_label_values(&[runner, method, &format!("{code:?}")]).inc();
    }

    pub(super) fn set_up(&self, runner: &str, is_up: bool) {
        self.up.with_label_values(&[runner]).set(is_up.into());
    }

    /// Tells no more of a runner's health that is not there any more.
    pub(super) fn forget(&self, runner: &str) {
        // There is none of one that was never looked at.
        let _ = self.up.remove_label_values(&[runner]);
        let _ = self.inflight.remove_label_values(&[runner]);
    }
}
