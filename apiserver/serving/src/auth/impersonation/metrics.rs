//! Metrics of impersonation, under upstream's names.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/filters/impersonation/metrics`.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};
use stoa_registry::metrics::Families;

const LABELS: [&str; 2] = ["mode", "decision"];

/// Attempts to act as somebody else, and the questions that decide on them.
#[derive(Debug)]
pub(super) struct Metrics {
    attempts: Decisions,
    questions: Decisions,
}

#[derive(Debug)]
struct Decisions {
    count: IntCounterVec,
    durations: HistogramVec,
}

impl Metrics {
    pub(super) fn new(families: &Families) -> prometheus::Result<Self> {
        let decisions = |name: &str, count: &str, durations: &str| {
            let buckets = prometheus::exponential_buckets(0.001, 2.0, 15)?;
            Ok::<_, prometheus::Error>(Decisions {
                count: families.counters(&format!("{name}_total"), count, &LABELS)?,
                durations: families.histograms(&format!("{name}_duration_seconds"), durations, &buckets, &LABELS)?,
            })
        };
        Ok(Self {
            attempts: decisions(
                "apiserver_impersonation_attempts",
                "[ALPHA] Total number of impersonation attempts split by mode and decision.",
                "[ALPHA] Latency of impersonation attempts in seconds split by mode and decision.",
            )?,
            questions: decisions(
                "apiserver_impersonation_authorization_attempts",
                "[ALPHA] Total number of authorization checks made by the impersonation handler split by mode and decision.",
                "[ALPHA] Latency of authorization checks made by the impersonation handler in seconds split by mode and decision.",
            )?,
        })
    }

    /// Somebody may act as somebody else in this mode, or in none.
    pub(super) fn attempted(&self, mode: Option<&str>, took: Duration) {
        self.attempts.add(mode.unwrap_or(""), mode.is_some(), took);
    }

    /// An authorizer was asked for the sake of a mode.
    pub(super) fn asked(&self, mode: &str, allowed: bool, took: Duration) {
        self.questions.add(mode, allowed, took);
    }
}

impl Decisions {
    fn add(&self, mode: &str, allowed: bool, took: Duration) {
        let labels = [mode, if allowed { "allowed" } else { "denied" }];
        self.count.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
    }
}
