//! The registry of metrics of one server, with stability levels in help texts.
//!
//! Start at [`Families`]. What has one of upstream's names has upstream's help text too, which begins with how stable
//! upstream says that the family is: `[STABLE]`, `[BETA]` and `[ALPHA]`.
//!
//! Follows `k8s.io/component-base/metrics`. What is counted is elsewhere, beside what counts it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, core::Collector,
    proto::MetricFamily,
};

/// All families of metrics of one server. Clones are one. A family whose name another one has is an error.
#[derive(Clone, Default)]
pub struct Families(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Registry,
    resets: Mutex<Vec<Hook>>,
    readings: Mutex<Vec<Hook>>,
    generation: AtomicU64,
    /// Names and help texts, also of those that nothing was counted in.
    #[cfg(any(test, feature = "testing"))]
    described: Mutex<Vec<(String, String)>>,
}

type Hook = Box<dyn Fn() + Send + Sync>;

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Families").finish_non_exhaustive()
    }
}

impl Families {
    /// Counters by their labels, which a reset forgets.
    pub fn counters(&self, name: &str, help: impl Into<String>, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        let made = self.register(IntCounterVec::new(Opts::new(name, help), labels)?)?;
        let family = made.clone();
        self.on_reset(move || family.reset());
        Ok(made)
    }

    /// One counter, which a reset sets to nothing.
    pub fn counter(&self, name: &str, help: impl Into<String>) -> prometheus::Result<IntCounter> {
        let made = self.register(IntCounter::new(name, help)?)?;
        let counter = made.clone();
        self.on_reset(move || counter.reset());
        Ok(made)
    }

    /// Gauges by their labels, which a reset forgets.
    pub fn gauges(&self, name: &str, help: impl Into<String>, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        let made = self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)?;
        let family = made.clone();
        self.on_reset(move || family.reset());
        Ok(made)
    }

    /// Histograms by their labels, which a reset forgets.
    pub fn histograms(
        &self,
        name: &str,
        help: impl Into<String>,
        buckets: &[f64],
        labels: &[&str],
    ) -> prometheus::Result<HistogramVec> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let made = self.register(HistogramVec::new(opts, labels)?)?;
        let family = made.clone();
        self.on_reset(move || family.reset());
        Ok(made)
    }

    /// One histogram. A reset leaves it, as upstream's leaves those without labels.
    pub fn histogram(&self, name: &str, help: impl Into<String>, buckets: &[f64]) -> prometheus::Result<Histogram> {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
    }

    /// Registers what a reset leaves.
    pub fn register<M: Collector + Clone + 'static>(&self, metric: M) -> prometheus::Result<M> {
        self.0.registry.register(Box::new(metric.clone()))?;
        #[cfg(any(test, feature = "testing"))]
        self.0.described.lock().extend(metric.desc().iter().map(|desc| (desc.fq_name.clone(), desc.help.clone())));
        Ok(metric)
    }

    /// Where those are registered that are not upstream's, and that no reset concerns.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Does this, too, when all is reset, after what was registered before. A metric that was looked up by its labels before
    /// is shown no more from then on.
    pub fn on_reset(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.0.resets.lock().push(Box::new(hook));
    }

    /// Does this whenever they are read, so that what is told is as it is then.
    pub fn on_reading(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.0.readings.lock().push(Box::new(hook));
    }

    /// Counts from nothing again.
    pub fn reset(&self) {
        self.0.resets.lock().iter().for_each(|hook| hook());
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// How often they have been reset: who keeps a metric for long looks it up again when this has changed.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Names and help texts of what was registered so far, for tests; takes them.
    #[cfg(any(test, feature = "testing"))]
    pub fn take_described(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.0.described.lock())
    }

    /// All of them, by name.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.0.readings.lock().iter().for_each(|hook| hook());
        self.0.registry.gather()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_forgets_what_upstreams_would_and_no_more() {
        let families = Families::default();
        let counters = families.counters("a_total", "[STABLE] A.", &["x"]).unwrap();
        let counter = families.counter("b_total", "[ALPHA] B.").unwrap();
        let gauges = families.gauges("c", "[BETA] C.", &["x"]).unwrap();
        let durations = families.histograms("d_seconds", "[ALPHA] ", &[1.0], &["x"]).unwrap();
        let duration = families.histogram("e_seconds", "[ALPHA] E.", &[1.0]).unwrap();
        let fill = || {
            counters.with_label_values(&["1"]).inc();
            counter.inc();
            gauges.with_label_values(&["1"]).set(1);
            durations.with_label_values(&["1"]).observe(0.5);
        };
        let told = |families: &Families| {
            let text = prometheus::TextEncoder::new().encode_to_string(&families.gather()).unwrap();
            let counts = |line: &&str| !line.starts_with('#') && !line.contains("_sum") && !line.contains("_bucket");
            text.lines().filter(counts).map(str::to_owned).collect::<Vec<_>>()
        };
        fill();
        duration.observe(0.5);
        let full =
            [r#"a_total{x="1"} 1"#, "b_total 1", r#"c{x="1"} 1"#, r#"d_seconds_count{x="1"} 1"#, "e_seconds_count 1"];
        assert_eq!(told(&families), full);
        families.reset();
        assert_eq!(told(&families), ["b_total 0", "e_seconds_count 1"]);
        fill();
        assert_eq!(told(&families), full);
        let text = prometheus::TextEncoder::new().encode_to_string(&families.gather()).unwrap();
        for help in ["a_total [STABLE] A.", "b_total [ALPHA] B.", "c [BETA] C.", "d_seconds [ALPHA] "] {
            assert!(text.contains(&format!("# HELP {help}\n")), "{help}\n{text}");
        }
        families.counter("a_total", "[ALPHA] again").expect_err("the name is taken");
    }

    #[test]
    fn gauge_reports_value_at_read_time() {
        let families = Families::default();
        let gauges = families.gauges("now", "[ALPHA] Now.", &["x"]).unwrap();
        let now = Arc::new(AtomicU64::new(0));
        let read = now.clone();
        families.on_reading(move || gauges.with_label_values(&["1"]).set(read.load(Ordering::Relaxed).cast_signed()));
        for value in [3, 5] {
            now.store(value, Ordering::Relaxed);
            let told = families.gather()[0].get_metric()[0].get_gauge().get_value();
            assert_eq!(told, value as f64);
            families.reset();
        }
    }
}
