//! Metrics of registries, under upstream's names.

use std::{sync::Arc, time::Duration};

use prometheus::HistogramVec;
use stoa_meta::definition::ResourceDefinition;

use crate::{
    cache::{self, WatchCache},
    metrics::Families,
};

const COMPARISON_BUCKETS: [f64; 10] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0];

/// The metrics of a server's registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    caches: cache::Metrics,
    /// Of `k8s.io/apiserver/pkg/endpoints/handlers/metrics`.
    body_sizes: HistogramVec,
    /// Of `k8s.io/apiserver/pkg/endpoints/metrics`.
    comparisons: HistogramVec,
}

/// How it was found out whether an update changes anything but the time at which fields were last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Others own fields now, so that nothing else was looked at.
    Owners,
    /// The objects differ.
    Unequal,
    /// They are the same.
    Equal,
}

impl Comparison {
    fn code_path(self) -> &'static str {
        match self {
            Self::Owners => "unequal_objects_fast",
            Self::Unequal => "unequal_objects_slow",
            Self::Equal => "equal_objects",
        }
    }
}

impl Metrics {
    /// Makes the metrics and registers them. Fails when there are metrics of the same names already.
    pub fn new(families: &Families) -> prometheus::Result<Self> {
        Ok(Self {
            caches: cache::Metrics::new(families)?,
            body_sizes: families.histograms(
                "apiserver_request_body_size_bytes",
                "[ALPHA] Apiserver request body size in bytes broken out by resource and verb.",
                &prometheus::linear_buckets(50_000.0, 100_000.0, 31)?,
                &["group", "resource", "verb"],
            )?,
            comparisons: families.histograms(
                "apiserver_request_timestamp_comparison_time",
                "[ALPHA] Time taken for comparison of old vs new objects in UPDATE or PATCH requests",
                &COMPARISON_BUCKETS,
                &["code_path"],
            )?,
        })
    }

    /// What the cache of a resource counts.
    pub(super) fn of_cache(&self, definition: &ResourceDefinition) -> cache::Counts {
        self.caches.counts(&definition.group, &definition.plural)
    }

    /// Tells the state of the cache of a resource.
    pub(super) fn follow(&self, definition: &ResourceDefinition, cache: &Arc<WatchCache>) {
        self.caches.follow(&definition.group, &definition.plural, cache);
    }

    /// A request's body was read; `verb` is upstream's word for what it asks for.
    pub fn read_body(&self, definition: &ResourceDefinition, verb: &'static str, bytes: usize) {
        let labels = [definition.group.as_str(), definition.plural.as_str(), verb];
        self.body_sizes.with_label_values(&labels).observe(bytes as f64);
    }

    pub(super) fn compared(&self, outcome: Comparison, took: Duration) {
        self.comparisons.with_label_values(&[outcome.code_path()]).observe(took.as_secs_f64());
    }
}

/// Metrics that nobody reads.
impl Default for Metrics {
    fn default() -> Self {
        Self::new(&Families::default()).expect("new families have no metrics yet")
    }
}
