//! Metrics of sinks, from the replica that leads.

use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, core::Collector};

/// Metrics of all sinks, by the sink's name.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) attempts: IntCounterVec,
    pub(super) duration: HistogramVec,
    pub(super) gaps: IntCounterVec,
    pub(super) pending: IntGaugeVec,
    pub(super) lag: GaugeVec,
    pub(super) dead_letters: IntGaugeVec,
}

/// What a try came to, as the label `outcome` has it.
pub(super) const OUTCOMES: [&str; 3] = [DELIVERED, RETRIED, DEAD];
pub(super) const DELIVERED: &str = "delivered";
pub(super) const RETRIED: &str = "retried";
pub(super) const DEAD: &str = "dead";

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    ///
    /// When they are there already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        fn registered<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> prometheus::Result<C> {
            registry.register(Box::new(metric.clone()))?;
            Ok(metric)
        }
        let of_sink = &["sink"];
        let opts = |name: &str, help: &str| Opts::new(format!("stoa_notification_{name}"), help);
        let attempts = opts("attempts_total", "Attempts to deliver an event, by result: delivered, retried or dead.");
        let seconds =
            HistogramOpts::new("stoa_notification_attempt_duration_seconds", "Duration of delivery attempts.");
        let gaps = opts("gaps_total", "Times that history expired before it was delivered to a sink.");
        let pending = opts("pending_events", "Events that were read and are not delivered yet.");
        let lag = opts("lag_seconds", "Age of the oldest undelivered event.");
        let dead = opts("dead_letters", "Dead letters that are recorded.");
        Ok(Self {
            attempts: registered(registry, IntCounterVec::new(attempts, &["sink", "outcome"])?)?,
            duration: registered(registry, HistogramVec::new(seconds, of_sink)?)?,
            gaps: registered(registry, IntCounterVec::new(gaps, of_sink)?)?,
            pending: registered(registry, IntGaugeVec::new(pending, of_sink)?)?,
            lag: registered(registry, GaugeVec::new(lag, of_sink)?)?,
            dead_letters: registered(registry, IntGaugeVec::new(dead, of_sink)?)?,
        })
    }

    /// Forgets a sink: it is gone, or somebody else's.
    pub(super) fn forget(&self, sink: &str) {
        // What was never counted is not there, which is as well.
        for outcome in OUTCOMES {
            let _ = self.attempts.remove_label_values(&[sink, outcome]);
        }
        let _ = self.duration.remove_label_values(&[sink]);
        let _ = self.gaps.remove_label_values(&[sink]);
        let _ = self.pending.remove_label_values(&[sink]);
        let _ = self.lag.remove_label_values(&[sink]);
        let _ = self.dead_letters.remove_label_values(&[sink]);
    }
}
