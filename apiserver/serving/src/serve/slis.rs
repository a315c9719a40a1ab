//! `/metrics/slis`: results of health checks, for service level indicators.
//!
//! As `k8s.io/component-base/metrics/prometheus/slis`: families of their own, so that they can be scraped more often than
//! everything else.

use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts};
use stoa_registry::metrics::Families;

#[derive(Debug)]
pub(super) struct Slis {
    families: Families,
    last: IntGaugeVec,
    total: IntCounterVec,
    started: GaugeVec,
}

impl Default for Slis {
    fn default() -> Self {
        let made = || {
            let families = Families::default();
            let help = "[ALPHA] Start time of the process since unix epoch in seconds.";
            let started = families.register(GaugeVec::new(Opts::new("process_start_time_seconds", help), &[])?)?;
            let forgotten = started.clone();
            families.on_reset(move || forgotten.reset());
            Ok::<_, prometheus::Error>(Self {
                last: families.gauges(
                    "kubernetes_healthcheck",
                    "[STABLE] This metric records the result of a single healthcheck.",
                    &["name", "type"],
                )?,
                total: families.counters(
                    "kubernetes_healthchecks_total",
                    "[STABLE] This metric records the results of all healthcheck.",
                    &["name", "type", "status"],
                )?,
                started,
                families,
            })
        };
        made().expect("names are valid and differ")
    }
}

impl Slis {
    /// Tells when the process started, in seconds since 1970, until the next reset, as upstream.
    pub(super) fn started(&self, at: f64) {
        self.started.with_label_values::<&str>(&[]).set(at);
    }

    pub(super) fn observe(&self, check: &str, probe: &str, is_well: bool) {
        self.last.with_label_values(&[check, probe]).set(i64::from(is_well));
        let status = if is_well { "success" } else { "error" };
        self.total.with_label_values(&[check, probe, status]).inc();
    }

    pub(super) fn families(&self) -> &Families {
        &self.families
    }
}
