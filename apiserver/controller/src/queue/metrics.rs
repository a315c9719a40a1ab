//! Metrics of work queues, by the names of their controllers.
//!
//! Follows `k8s.io/component-base/metrics/prometheus/workqueue` and `k8s.io/client-go/util/workqueue`. A key
//! that is due later counts as queued.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Opts, exponential_buckets};
use stoa_machinery::metrics::Families;
use tokio::time::Instant;

use crate::object::ObjectKey;

/// The queues by their names.
type Queues = Arc<Mutex<BTreeMap<&'static str, Arc<Mutex<Keys>>>>>;

/// Metrics of all queues.
#[derive(Clone, Debug)]
pub struct Metrics {
    counts: Counts,
    queues: Queues,
}

#[derive(Clone, Debug)]
struct Counts {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    waits: HistogramVec,
    looks: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    retries: IntCounterVec,
}

/// Where the keys of a queue are.
#[derive(Debug, Default)]
struct Keys {
    waiting: HashMap<ObjectKey, PendingKey>,
    /// Those that are looked at, and since when.
    looked_at: HashMap<ObjectKey, Instant>,
}

/// A key that is due, or will be.
#[derive(Debug)]
struct PendingKey {
    due: Instant,
    /// Whether it counts as added.
    is_added: bool,
}

impl Metrics {
    /// # Errors
    ///
    /// When they are there already.
    pub fn new(families: &Families) -> prometheus::Result<Self> {
        let name = &["name"];
        let buckets = exponential_buckets(10e-9, 10.0, 10)?;
        let gauges = |family: &str, help: &str| -> prometheus::Result<GaugeVec> {
            let made = families.register(GaugeVec::new(Opts::new(family, format!("[BETA] {help}")), name)?)?;
            let family = made.clone();
            families.on_reset(move || family.reset());
            Ok(made)
        };
        let counts = Counts {
            depth: families.gauges("workqueue_depth", "[BETA] Current depth of workqueue", name)?,
            adds: families.counters(
                "workqueue_adds_total",
                "[BETA] Total number of adds handled by workqueue",
                name,
            )?,
            waits: families.histograms(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
                &buckets,
                name,
            )?,
            looks: families.histograms(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
                &buckets,
                name,
            )?,
            unfinished: gauges(
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large \
                 values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at \
                 which this increases.",
            )?,
            longest: gauges(
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
            )?,
            retries: families.counters(
                "workqueue_retries_total",
                "[BETA] Total number of retries handled by workqueue",
                name,
            )?,
        };
        let queues = Queues::default();
        let (told, of) = (counts.clone(), Arc::clone(&queues));
        families.on_reading(move || {
            let now = Instant::now();
            of.lock().iter().for_each(|(name, keys)| told.tell(name, &mut keys.lock(), now));
        });
        Ok(Self { counts, queues })
    }

    /// Begins to count what is in a queue. Who did so before under its name counts for nothing any more.
    pub fn of(&self, name: &'static str) -> Counted {
        let keys = Arc::<Mutex<Keys>>::default();
        self.queues.lock().insert(name, keys.clone());
        Counted { name, counts: self.counts.clone(), keys }
    }
}

impl Counts {
    /// Tells of a queue as it is, also of what nothing was counted in.
    fn tell(&self, name: &str, keys: &mut Keys, now: Instant) {
        let mut depth = 0;
        let adds = self.adds.with_label_values(&[name]);
        for waiting in keys.waiting.values_mut().filter(|waiting| waiting.due <= now) {
            depth += 1;
            if !std::mem::replace(&mut waiting.is_added, true) {
                adds.inc();
            }
        }
        self.depth.with_label_values(&[name]).set(depth);
        let ages = || keys.looked_at.values().map(move |since| now.duration_since(*since).as_secs_f64());
        // The sum of none is -0.
        self.unfinished.with_label_values(&[name]).set(ages().fold(0.0, |sum, age| sum + age));
        self.longest.with_label_values(&[name]).set(ages().fold(0.0, f64::max));
        for histograms in [&self.waits, &self.looks] {
            histograms.with_label_values(&[name]);
        }
        self.retries.with_label_values(&[name]);
    }
}

/// A queue that is counted, until this is dropped.
#[derive(Debug)]
pub struct Counted {
    name: &'static str,
    counts: Counts,
    keys: Arc<Mutex<Keys>>,
}

impl Counted {
    /// What the queue is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A key is to be looked at by then, if not earlier.
    pub fn due(&self, key: &ObjectKey, at: Instant) {
        let mut keys = self.keys.lock();
        match keys.waiting.get_mut(key) {
            Some(waiting) => waiting.due = waiting.due.min(at),
            None => {
                keys.waiting.insert(key.clone(), PendingKey { due: at, is_added: false });
            }
        }
    }

    /// A look at a key begins.
    pub fn begun(&self, key: &ObjectKey, now: Instant) {
        let mut keys = self.keys.lock();
        if let Some(PendingKey { due, is_added }) = keys.waiting.remove(key) {
            if !is_added {
                self.counts.adds.with_label_values(&[self.name]).inc();
            }
            self.counts.waits.with_label_values(&[self.name]).observe(now.duration_since(due).as_secs_f64());
        }
        keys.looked_at.insert(key.clone(), now);
    }

    /// A look at a key has ended.
    pub fn ended(&self, key: &ObjectKey, now: Instant) {
        if let Some(since) = self.keys.lock().looked_at.remove(key) {
            self.counts.looks.with_label_values(&[self.name]).observe(now.duration_since(since).as_secs_f64());
        }
    }

    /// A look is followed by another one, for itself or because it failed.
    pub fn retried(&self) {
        self.counts.retries.with_label_values(&[self.name]).inc();
    }
}

impl Drop for Counted {
    /// Nobody looks at what is left.
    fn drop(&mut self) {
        *self.keys.lock() = Keys::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn metrics_report_waiting_and_running_keys() {
        let families = Families::default();
        let queue = Metrics::new(&families).unwrap().of("stacks");
        let told = |expected: &[(&str, &str)]| {
            let text = prometheus::TextEncoder::new().encode_to_string(&families.gather()).unwrap();
            for (family, value) in expected {
                let line = format!("workqueue_{family}{{name=\"stacks\"}} {value}\n");
                assert!(text.contains(&line), "{line}\n{text}");
            }
        };
        told(&[("depth", "0"), ("queue_duration_seconds_count", "0"), ("work_duration_seconds_count", "0")]);
        told(&[("unfinished_work_seconds", "0"), ("longest_running_processor_seconds", "0")]);
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        let (start, after) = (Instant::now(), Duration::from_secs);
        for (name, wait) in [("web", 5), ("web", 0), ("api", 10), ("db", 3600)] {
            queue.due(&key(name), start + after(wait));
        }
        queue.begun(&key("web"), start + after(2));
        tokio::time::advance(after(12)).await;
        for _ in 0..2 {
            // However often it is read.
            told(&[
                ("depth", "1"),
                ("adds_total", "2"),
                ("queue_duration_seconds_sum", "2"),
                ("unfinished_work_seconds", "10"),
                ("longest_running_processor_seconds", "10"),
                ("retries_total", "0"),
            ]);
        }
        queue.begun(&key("api"), start + after(12));
        queue.ended(&key("web"), start + after(12));
        queue.retried();
        told(&[
            ("depth", "0"),
            ("adds_total", "2"),
            ("queue_duration_seconds_sum", "4"),
            ("work_duration_seconds_sum", "10"),
            ("unfinished_work_seconds", "0"),
            ("retries_total", "1"),
        ]);
        tokio::time::advance(after(3)).await;
        told(&[("longest_running_processor_seconds", "3")]);
        drop(queue);
        told(&[("longest_running_processor_seconds", "0"), ("adds_total", "2")]);
    }

    #[tokio::test(start_paused = true)]
    async fn late_queue_drop_leaves_successor_metrics() {
        let families = Families::default();
        let metrics = Metrics::new(&families).unwrap();
        let key = ("shop".to_owned(), "web".to_owned());
        let (before, now) = (metrics.of("stacks"), Instant::now());
        before.due(&key, now);
        let after = metrics.of("stacks");
        after.begun(&key, now);
        drop(before);
        tokio::time::advance(Duration::from_secs(3)).await;
        let text = prometheus::TextEncoder::new().encode_to_string(&families.gather()).unwrap();
        for line in ["depth{name=\"stacks\"} 0\n", "unfinished_work_seconds{name=\"stacks\"} 3\n"] {
            assert!(text.contains(&format!("workqueue_{line}")), "{line}\n{text}");
        }
    }
}
