//! A summary: how long something took as quantiles over the last hours, which the `prometheus` crate does not have.
//!
//! Times are counted in classes that are 2 % wide, so that a quantile is that near to the time it stands for; they are
//! forgotten by the hour. Follows `prometheus.SummaryVec` of Go's client, with the quantiles and the age that
//! `k8s.io/apiserver/pkg/admission/metrics` gives it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prometheus::{
    core::{Collector, Desc},
    proto,
};

/// How much larger a class of times is than the one before.
const GROWTH: f64 = 1.02;
/// The shortest time that has a class of its own, in seconds.
const SHORTEST: f64 = 1e-9;
/// How long times are remembered together, before another such span begins.
const SPAN: Duration = Duration::from_secs(3600);
/// How many spans are remembered.
const SPANS: usize = 5;
/// The quantiles that are told.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Summaries by the values of their labels. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct SummaryVec {
    name: String,
    help: String,
    labels: Vec<String>,
    desc: Desc,
    summaries: Arc<Mutex<BTreeMap<Vec<String>, Summary>>>,
}

#[derive(Debug, Default)]
struct Summary {
    /// Of all times since the start.
    count: u64,
    /// In seconds.
    sum: f64,
    /// How many times are in each class, by when the span began; the newest last.
    spans: VecDeque<(Instant, BTreeMap<i32, u64>)>,
}

impl SummaryVec {
    pub(super) fn new(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<Self> {
        let labels: Vec<String> = labels.iter().map(|&label| label.to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels.clone(), Default::default())?;
        Ok(Self { name: name.to_owned(), help: help.to_owned(), labels, desc, summaries: Arc::default() })
    }

    /// Something took that long. There are as many values as labels.
    pub(super) fn observe(&self, values: &[&str], took: Duration) {
        self.observe_at(Instant::now(), values, took);
    }

    /// Forgets all of them.
    pub(super) fn reset(&self) {
        self.summaries.lock().clear();
    }

    fn observe_at(&self, now: Instant, values: &[&str], took: Duration) {
        let values = values.iter().map(|&value| value.to_owned()).collect();
        self.summaries.lock().entry(values).or_default().observe(now, took.as_secs_f64());
    }

    fn collect_at(&self, now: Instant) -> proto::MetricFamily {
        let mut family = proto::MetricFamily::default();
        family.set_name(self.name.clone());
        family.set_help(self.help.clone());
        family.set_field_type(proto::MetricType::SUMMARY);
        let mut summaries = self.summaries.lock();
        let metrics = summaries.iter_mut().map(|(values, summary)| {
            let pair = |(name, value): (&String, &String)| {
                let mut pair = proto::LabelPair::default();
                pair.set_name(name.clone());
                pair.set_value(value.clone());
                pair
            };
            let mut metric = proto::Metric::from_label(self.labels.iter().zip(values).map(pair).collect());
            metric.set_summary(summary.told(now));
            metric
        });
        family.set_metric(metrics.collect());
        family
    }
}

impl Summary {
    fn observe(&mut self, now: Instant, seconds: f64) {
        self.forget(now);
        self.count += 1;
        self.sum += seconds;
        if self.spans.back().is_none_or(|(began, _)| now.duration_since(*began) >= SPAN) {
            self.spans.push_back((now, BTreeMap::new()));
        }
        if let Some((_, classes)) = self.spans.back_mut() {
            *classes.entry(class(seconds)).or_default() += 1;
        }
    }

    fn forget(&mut self, now: Instant) {
        let span = u32::try_from(SPANS).unwrap_or(u32::MAX);
        while self.spans.front().is_some_and(|(began, _)| now.duration_since(*began) >= SPAN * span) {
            self.spans.pop_front();
        }
    }

    fn told(&mut self, now: Instant) -> proto::Summary {
        self.forget(now);
        let mut classes: BTreeMap<i32, u64> = BTreeMap::new();
        for (class, count) in self.spans.iter().flat_map(|(_, classes)| classes) {
            *classes.entry(*class).or_default() += count;
        }
        let total: u64 = classes.values().sum();
        let quantiles = QUANTILES.map(|quantile| {
            let mut told = proto::Quantile::default();
            told.set_quantile(quantile);
            told.set_value(value_at(&classes, total, quantile));
            told
        });
        let mut summary = proto::Summary::default();
        summary.set_sample_count(self.count);
        summary.set_sample_sum(self.sum);
        summary.set_quantile(quantiles.to_vec());
        summary
    }
}

fn class(seconds: f64) -> i32 {
    // A saturating cast; times are between nanoseconds and hours.
    ((seconds.max(SHORTEST) / SHORTEST).ln() / GROWTH.ln()).floor() as i32
}

/// The middle of the class that a quantile falls into; no number when nothing was observed, as Go's client has it.
fn value_at(classes: &BTreeMap<i32, u64>, total: u64, quantile: f64) -> f64 {
    let rank = (quantile * total as f64).ceil();
    let mut seen = 0;
    let found = classes.iter().find(|(_, count)| {
        seen += **count;
        seen as f64 >= rank
    });
    found.map_or(f64::NAN, |(class, _)| SHORTEST * GROWTH.powf(f64::from(*class) + 0.5))
}

impl Collector for SummaryVec {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let family = self.collect_at(Instant::now());
        // An encoder takes a family of no metrics for a mistake.
        if family.get_metric().is_empty() { Vec::new() } else { vec![family] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(vec: &SummaryVec, now: Instant) -> (u64, f64, Vec<f64>) {
        let family = vec.collect_at(now);
        let summary = family.get_metric()[0].get_summary();
        let values = summary.get_quantile().iter().map(proto::Quantile::value).collect();
        (summary.sample_count(), summary.sample_sum(), values)
    }

    #[test]
    fn quantiles_are_near_the_times_that_were_observed() {
        let vec = SummaryVec::new("s", "Help.", &["kind"]).unwrap();
        let now = Instant::now();
        (1..=1000).for_each(|ms| vec.observe_at(now, &["a"], Duration::from_millis(ms)));
        let (count, sum, values) = told(&vec, now);
        assert_eq!(count, 1000);
        assert!((sum - 500.5).abs() < 1e-6, "{sum}");
        for (value, wanted) in values.iter().zip([0.5, 0.9, 0.99]) {
            assert!((value / wanted - 1.0).abs() < 0.02, "{value} for {wanted}");
        }
    }

    #[test]
    fn times_are_forgotten_after_five_hours_and_counts_are_not() {
        let vec = SummaryVec::new("s", "Help.", &["kind"]).unwrap();
        let start = Instant::now();
        vec.observe_at(start, &["a"], Duration::from_secs(8));
        let later = start + SPAN * 4;
        vec.observe_at(later, &["a"], Duration::from_secs(1));
        assert!(told(&vec, later).2[2] > 7.0);
        let (count, sum, values) = told(&vec, start + SPAN * 5);
        assert_eq!((count, sum), (2, 9.0));
        assert!(values[2] < 1.1, "{values:?}");
        assert!(told(&vec, later + SPAN * 5).2[0].is_nan());
    }

    #[test]
    fn it_is_written_as_prometheus_writes_summaries() {
        use prometheus::Encoder as _;
        let registry = prometheus::Registry::new();
        let vec = SummaryVec::new("took_seconds", "How long.", &["kind"]).unwrap();
        registry.register(Box::new(vec.clone())).unwrap();
        vec.observe(&["a"], Duration::ZERO);
        let mut text = Vec::new();
        prometheus::TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("# TYPE took_seconds summary\ntook_seconds{kind=\"a\",quantile=\"0.5\"} 0.00000000"),
            "{text}"
        );
        assert!(text.contains("took_seconds_sum{kind=\"a\"} 0\ntook_seconds_count{kind=\"a\"} 1\n"), "{text}");
    }
}
