//! The metrics of providers.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use stoa_terraform_provider::protocol::{Call, Observer};

/// The processes and calls of providers. Clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct ProviderMetrics {
    processes: IntGauge,
    starts: IntCounterVec,
    start_time: Histogram,
    crashes: IntCounter,
    calls: IntCounterVec,
    call_time: HistogramVec,
}

impl ProviderMetrics {
    /// Registers `runner_provider_processes`, `runner_provider_starts_total`, `runner_provider_start_duration_seconds`,
    /// `runner_provider_crashes_total`, `runner_provider_calls_total` and `runner_provider_call_duration_seconds`.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let processes = IntGauge::new("runner_provider_processes", "Processes of Terraform providers.")?;
        let starts = IntCounterVec::new(
            Opts::new("runner_provider_starts_total", "Starts of Terraform providers, by result."),
            &["result"],
        )?;
        let start_time = Histogram::with_opts(
            HistogramOpts::new(
                "runner_provider_start_duration_seconds",
                "How long starts of Terraform providers took.",
            )
            .buckets(prometheus::exponential_buckets(0.01, 3.0, 8)?),
        )?;
        let crashes =
            IntCounter::new("runner_provider_crashes_total", "Terraform providers that ended by themselves.")?;
        let calls = IntCounterVec::new(
            Opts::new("runner_provider_calls_total", "Calls of Terraform providers, by call and result."),
            &["call", "result"],
        )?;
        let call_time = HistogramVec::new(
            HistogramOpts::new("runner_provider_call_duration_seconds", "How long calls of Terraform providers took.")
                .buckets(prometheus::exponential_buckets(0.001, 4.0, 10)?),
            &["call"],
        )?;
        registry.register(Box::new(processes.clone()))?;
        registry.register(Box::new(starts.clone()))?;
        registry.register(Box::new(start_time.clone()))?;
        registry.register(Box::new(crashes.clone()))?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(call_time.clone()))?;
        Ok(Self { processes, starts, start_time, crashes, calls, call_time })
    }
}

impl Observer for ProviderMetrics {
    fn started(&self, time: Duration) {
        self.processes.inc();
        self.starts.with_label_values(&["ok"]).inc();
        self.start_time.observe(time.as_secs_f64());
    }

    fn not_started(&self) {
        self.starts.with_label_values(&["failed"]).inc();
    }

    fn ended(&self, crashed: bool) {
        self.processes.dec();
        self.crashes.inc_by(crashed.into());
    }

    fn called(&self, call: Call, answered: bool, time: Duration) {
        let call = call.to_string();
        self.calls.with_label_values(&[call.as_str(), if answered { "answered" } else { "failed" }]).inc();
        self.call_time.with_label_values(&[call.as_str()]).observe(time.as_secs_f64());
    }
}
