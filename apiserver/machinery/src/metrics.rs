//! Where all that a server counts is registered, read and reset.
//!
//! Start at [`Families`]. What has one of upstream's names has upstream's help text too, which begins with how stable
//! upstream says that the family is: [`stable`], [`beta`] and [`alpha`] put that in front.
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

/// The help text of a family whose name and labels stay.
pub fn stable(text: &str) -> String {
    format!("[STABLE] {text}")
}

/// The help text of a family that changes with notice alone.
pub fn beta(text: &str) -> String {
    format!("[BETA] {text}")
}

/// The help text of a family that may change at any time.
pub fn alpha(text: &str) -> String {
    format!("[ALPHA] {text}")
}

/// All families of metrics of one server. Clones are one.
#[derive(Clone, Default)]
pub struct Families(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Registry,
    resets: Mutex<Vec<Hook>>,
    readings: Mutex<Vec<Hook>>,
    generation: AtomicU64,
    /// Names and help texts, also of those that nothing was counted in.
    #[cfg(test)]
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
    ///
    /// # Errors
    ///
    /// When a family of the name is there already.
    pub fn counters(&self, name: &str, help: String, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
        let made = self.register(IntCounterVec::new(Opts::new(name, help), labels)?)?;
        let family = made.clone();
        self.on_reset(move || family.reset());
        Ok(made)
    }

    /// One counter, which a reset sets to nothing.
    ///
    /// # Errors
    ///
    /// When a family of the name is there already.
    pub fn counter(&self, name: &str, help: String) -> prometheus::Result<IntCounter> {
        let made = self.register(IntCounter::new(name, help)?)?;
        let counter = made.clone();
        self.on_reset(move || counter.reset());
        Ok(made)
    }

    /// Gauges by their labels, which a reset forgets.
    ///
    /// # Errors
    ///
    /// When a family of the name is there already.
    pub fn gauges(&self, name: &str, help: String, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
        let made = self.register(IntGaugeVec::new(Opts::new(name, help), labels)?)?;
        let family = made.clone();
        self.on_reset(move || family.reset());
        Ok(made)
    }

    /// Histograms by their labels, which a reset forgets.
    ///
    /// # Errors
    ///
    /// When a family of the name is there already.
    pub fn histograms(
        &self,
        name: &str,
        help: String,
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
    ///
    /// # Errors
    ///
    /// When a family of the name is there already.
    pub fn histogram(&self, name: &str, help: String, buckets: &[f64]) -> prometheus::Result<Histogram> {
        self.register(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
    }

    /// Registers what a reset leaves.
    ///
    /// # Errors
    ///
    /// When a family of the name is there already.
    pub fn register<M: Collector + Clone + 'static>(&self, metric: M) -> prometheus::Result<M> {
        self.0.registry.register(Box::new(metric.clone()))?;
        #[cfg(test)]
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
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// All of them, by name.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.0.readings.lock().iter().for_each(|hook| hook());
        self.0.registry.gather()
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
