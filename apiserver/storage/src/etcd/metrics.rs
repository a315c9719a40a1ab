//! What is counted of calls to etcd, under the names of `k8s.io/apiserver/pkg/storage/etcd3/metrics`.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};

const LABELS: [&str; 3] = ["operation", "group", "resource"];
/// Upstream's, in seconds.
const BUCKETS: [f64; 21] =
    [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0];

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
    /// Writes whose outcome had to be looked up.
    pub resolved: IntCounterVec,
}

/// What a call is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation<'a> {
    /// What is done, in upstream's words: `get`, `list`, `create`, `update`, `delete`, …
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
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "etcd_request_duration_seconds",
                "Etcd request latency in seconds for each operation and object type.",
            )
            .buckets(BUCKETS.to_vec()),
            &LABELS,
        )?;
        registry.register(Box::new(durations.clone()))?;
        let bookmarks =
            IntCounter::new("etcd_bookmark_total", "Number of etcd bookmarks (progress notify events) received.")?;
        registry.register(Box::new(bookmarks.clone()))?;
        let size = IntGaugeVec::new(
            Opts::new(
                "apiserver_storage_size_bytes",
                "Size of the storage database file physically allocated in bytes.",
            ),
            &["storage_cluster_id"],
        )?;
        registry.register(Box::new(size.clone()))?;
        Ok(Self {
            requests: counter(
                "etcd_requests_total",
                "Etcd request counts for each operation and object type.",
                &LABELS,
            )?,
            errors: counter(
                "etcd_request_errors_total",
                "Etcd failed request counts for each operation and object type.",
                &LABELS,
            )?,
            durations,
            events: counter(
                "apiserver_storage_events_received_total",
                "Number of etcd events received split by kind.",
                &["group", "resource"],
            )?,
            bookmarks,
            size,
            resolved: counter(
                "stoa_etcd_writes_resolved_total",
                "Writes whose answer was lost and that were looked up, by what was found.",
                &["outcome"],
            )?,
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
