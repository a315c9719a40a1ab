//! The metrics of calls to etcd, under the names of `k8s.io/apiserver/pkg/storage/etcd3/metrics`.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};
use stoa_machinery::metrics::Families;

const LABELS: [&str; 3] = ["operation", "group", "resource"];
/// Upstream's, in seconds.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The metrics of one log.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    requests: IntCounterVec,
    errors: IntCounterVec,
    durations: HistogramVec,
    /// Records received by those who follow.
    pub events: IntCounterVec,
    /// Notifications of progress received.
    pub bookmarks: IntCounter,
    /// Size of the database, by the id of the cluster.
    pub size: IntGaugeVec,
    /// Writes without an answer, whose outcome was read from the history.
    pub resolved: IntCounterVec,
}

/// The subject of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation<'a> {
    /// The operation, in upstream's words: `get`, `list`, `create`, `update`, `delete`, …
    pub name: &'static str,
    /// A key, or the prefix of keys.
    pub key: &'a str,
}

/// Group and resource of `/registry/<group>/<resource>/…`; of other keys, such as `/stoa/git/control`, the
/// group is empty and the resource their second part.
fn labels(key: &str) -> (&str, &str) {
    let mut parts = key.split('/').skip(1);
    match parts.next() {
        Some("registry") => {
            let group = parts.next().unwrap_or_default();
            (if group == "core" { "" } else { group }, parts.next().unwrap_or_default())
        }
        _ => ("", parts.next().unwrap_or_default()),
    }
}

impl Metrics {
    pub(super) fn new(families: &Families) -> prometheus::Result<Self> {
        let size = Opts::new(
            "apiserver_storage_size_bytes",
            "[STABLE] Size of the storage database file physically allocated in bytes.",
        );
        let resolved = Opts::new(
            "stoa_etcd_writes_resolved_total",
            "Writes whose answer was lost and that were looked up, by what was found.",
        );
        Ok(Self {
            requests: families.counters(
                "etcd_requests_total",
                "[ALPHA] Etcd request counts for each operation and object type.",
                &LABELS,
            )?,
            errors: families.counters(
                "etcd_request_errors_total",
                "[ALPHA] Etcd failed request counts for each operation and object type.",
                &LABELS,
            )?,
            durations: families.histograms(
                "etcd_request_duration_seconds",
                "[ALPHA] Etcd request latency in seconds for each operation and object type.",
                &BUCKETS,
                &LABELS,
            )?,
            events: families.counters(
                "apiserver_storage_events_received_total",
                "[BETA] Number of etcd events received split by kind.",
                &["group", "resource"],
            )?,
            bookmarks: families.counter(
                "etcd_bookmark_total",
                "[ALPHA] Number of etcd bookmarks (progress notify events) split by kind.",
            )?,
            // A reset leaves these, as upstream's leaves the size.
            size: families.register(IntGaugeVec::new(size, &["storage_cluster_id"])?)?,
            resolved: families.register(IntCounterVec::new(resolved, &["outcome"])?)?,
        })
    }

    pub(super) fn observe(&self, operation: Operation<'_>, took: Duration, failed: bool) {
        let (group, resource) = labels(operation.key);
        let labels = [operation.name, group, resource];
        self.requests.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(took.as_secs_f64());
        if failed {
            self.errors.with_label_values(&labels).inc();
        }
    }

    pub(super) fn received(&self, key: &str) {
        let (group, resource) = labels(key);
        self.events.with_label_values(&[group, resource]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_by_group_and_resource() {
        assert_eq!(labels("/registry/config.stoa.dev/stacks/shop/web"), ("config.stoa.dev", "stacks"));
        assert_eq!(labels("/registry/core/namespaces/shop"), ("", "namespaces"));
        assert_eq!(labels("/registry/"), ("", ""));
        assert_eq!(labels("/stoa/journal/1/2"), ("", "journal"));
        assert_eq!(labels(""), ("", ""));
    }
}
