//! `/metrics/slis`: what health checks have found, for service level indicators.
//!
//! As `k8s.io/component-base/metrics/prometheus/slis`: a registry of its own, so that it can be scraped more often than
//! everything else.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// The results of health checks.
#[derive(Debug)]
pub(super) struct Slis {
    registry: Registry,
    last: IntGaugeVec,
    total: IntCounterVec,
}

impl Default for Slis {
    fn default() -> Self {
        let made = || {
            let last = Opts::new("kubernetes_healthcheck", "This metric records the result of a single healthcheck.");
            let total =
                Opts::new("kubernetes_healthchecks_total", "This metric records the results of all healthcheck.");
            let last = IntGaugeVec::new(last, &["name", "type"])?;
            let total = IntCounterVec::new(total, &["name", "type", "status"])?;
            let registry = Registry::new();
            registry.register(Box::new(last.clone()))?;
            registry.register(Box::new(total.clone()))?;
            Ok::<_, prometheus::Error>(Self { registry, last, total })
        };
        made().expect("names are valid and differ")
    }
}

impl Slis {
    /// Notes what a check of `/healthz`, `/livez` or `/readyz` found.
    pub(super) fn observe(&self, check: &str, probe: &str, is_well: bool) {
        self.last.with_label_values(&[check, probe]).set(i64::from(is_well));
        let status = if is_well { "success" } else { "error" };
        self.total.with_label_values(&[check, probe, status]).inc();
    }

    /// Forgets what was found.
    pub(super) fn reset(&self) {
        self.last.reset();
        self.total.reset();
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }
}
