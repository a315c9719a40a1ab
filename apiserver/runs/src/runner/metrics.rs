//! What is counted of the runners, under names like those of upstream's clients (`rest_client_*`).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry, core::Collector as _};
use tonic::Code;

/// What tells the series of one runner from those of others.
const RUNNER: &str = "runner";

/// The metrics, by the address of the runner. Clones share their values.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    calls: IntCounterVec,
    inflight: IntGaugeVec,
    up: IntGaugeVec,
    /// How many there are of each name: one that comes back may be there before the last call of what it was is over.
    known: Arc<Mutex<HashMap<String, usize>>>,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| Opts::new(name, help);
        let calls = IntCounterVec::new(
            opts("runner_client_requests_total", "Calls to function-runners by runner, method and gRPC code."),
            &[RUNNER, "method", "code"],
        )?;
        let inflight = IntGaugeVec::new(
            opts("runner_client_inflight_requests", "Calls to function-runners that are under way."),
            &[RUNNER],
        )?;
        let up = IntGaugeVec::new(
            opts("runner_client_up", "Whether a function-runner takes calls: 1 if its last health check said so."),
            &[RUNNER],
        )?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(inflight.clone()))?;
        registry.register(Box::new(up.clone()))?;
        Ok(Self { calls, inflight, up, known: Arc::default() })
    }

    /// Takes note of a runner, until it is forgotten.
    pub(super) fn know(&self, runner: &str) {
        *self.known.lock().entry(runner.to_owned()).or_default() += 1;
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

    /// The runners of which anything is told, sorted.
    #[cfg(test)]
    pub(super) fn told(&self) -> Vec<String> {
        let families = [self.calls.collect(), self.inflight.collect(), self.up.collect()].concat();
        let series = families.iter().flat_map(|family| family.get_metric());
        let labels = series.flat_map(|series| series.get_label()).filter(|label| label.name() == RUNNER);
        labels.map(|label| label.value().to_owned()).collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }

    /// Tells no more of a runner that is not there any more.
    pub(super) fn forget(&self, runner: &str) {
        let mut known = self.known.lock();
        if let Some(count) = known.get_mut(runner).filter(|count| **count > 1) {
            *count -= 1;
            return;
        }
        known.remove(runner);
        // There is none of one that was never looked at.
        let _ = self.up.remove_label_values(&[runner]);
        let _ = self.inflight.remove_label_values(&[runner]);
        for series in self.calls.collect().iter().flat_map(|family| family.get_metric()) {
            let labels: HashMap<&str, &str> = series.get_label().iter().map(|it| (it.name(), it.value())).collect();
            if labels.get(RUNNER) == Some(&runner) {
                // Nobody else removes it.
                let _ = self.calls.remove(&labels);
            }
        }
    }
}
