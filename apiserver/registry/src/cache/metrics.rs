//! Metrics of watch caches, under upstream's names.
//!
//! Start at [`Metrics`], all families; [`Counts`] are the series of one resource. Follows
//! `k8s.io/apiserver/pkg/storage/cacher/metrics`, and of `…/storage/etcd3/metrics` what is there whatever keeps the log.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use super::WatchCache;
use crate::metrics::Families;

const LABELS: [&str; 2] = ["group", "resource"];
/// An index by which a list finds its objects is a label; this server has none but the keys.
const NO_INDEX: &str = "";
/// Versions are told by so many of their last digits, which a floating-point number holds.
const VERSIONS: u64 = 1_000_000_000_000_000;
const WAIT_BUCKETS: [f64; 13] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0];

/// The families of all caches of a server. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Arc<Vecs>);

#[derive(Debug)]
struct Vecs {
    lists: IntCounterVec,
    fetched: IntCounterVec,
    returned: IntCounterVec,
    initial: IntCounterVec,
    received: IntCounterVec,
    dispatched: IntCounterVec,
    terminated: IntCounterVec,
    initializations: IntCounterVec,
    waits: HistogramVec,
    consistent: IntCounterVec,
    stored_lists: IntCounterVec,
    stored_fetched: IntCounterVec,
    stored_evaluated: IntCounterVec,
    stored_returned: IntCounterVec,
    decode_errors: IntCounterVec,
    version: IntGaugeVec,
    capacity: IntGaugeVec,
    objects: IntGaugeVec,
    /// The same by the resource's full name, which upstream gives up.
    objects_by_name: IntGaugeVec,
    size: IntGaugeVec,
    undecodable: IntGaugeVec,
    caches: Mutex<Vec<Counted>>,
}

/// A cache whose state is told.
#[derive(Debug)]
struct Counted {
    group: String,
    resource: String,
    cache: Weak<WatchCache>,
}

/// What one cache counts. They are looked up anew after a reset, and not whenever something is counted.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Lists that were served from the cache.
    lists: IntCounter,
    fetched: IntCounter,
    returned: IntCounter,
    /// Events that bring a new watch to where the cache is.
    pub(super) initial: IntCounter,
    pub(super) received: IntCounter,
    pub(super) dispatched: IntCounter,
    /// Watches that fell behind what is kept.
    pub(super) terminated: IntCounter,
    initializations: IntCounter,
    waits: Histogram,
    consistent: IntCounter,
    inconsistent: IntCounter,
    stored_lists: IntCounter,
    stored_fetched: IntCounter,
    stored_evaluated: IntCounter,
    stored_returned: IntCounter,
    /// What was read from the log and is no object.
    pub(crate) decode_errors: IntCounter,
}

/// How many objects a list from storage was about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// Read from where they are stored.
    pub(crate) fetched: usize,
    /// Looked at, as to whether they are wanted.
    pub(crate) evaluated: usize,
    pub(crate) returned: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) version: u64,
    /// How many events it keeps at least, once there were as many.
    pub(super) capacity: usize,
    /// How many of them are stored, those that do not decode among them.
    pub(super) objects: usize,
    /// How long they are in all, in bytes.
    pub(super) size: usize,
    pub(super) undecodable: usize,
}

impl Metrics {
    pub(crate) fn new(families: &Families) -> prometheus::Result<Self> {
        let counters = |name: &str, help: &str| families.counters(name, help, &LABELS);
        let by_index = ["group", "resource", "index"];
        let objects_help = "Number of stored objects at the time of last check split by kind. In case of a fetching error, the \
                            value will be -1.";
        let undecodable = Opts::new(
            "stoa_undecodable_objects",
            "Number of stored objects that do not decode, of which their names tell an error and lists nothing.",
        );
        let metrics = Self(Arc::new(Vecs {
            lists: families.counters(
                "apiserver_cache_list_total",
                "[ALPHA] Number of LIST requests served from watch cache",
                &by_index,
            )?,
            fetched: families.counters(
                "apiserver_cache_list_fetched_objects_total",
                "[ALPHA] Number of objects read from watch cache in the course of serving a LIST request",
                &by_index,
            )?,
            returned: counters(
                "apiserver_cache_list_returned_objects_total",
                "[ALPHA] Number of objects returned for a LIST request from watch cache",
            )?,
            initial: counters(
                "apiserver_init_events_total",
                "[ALPHA] Counter of init events processed in watch cache broken by resource type.",
            )?,
            received: counters(
                "apiserver_watch_cache_events_received_total",
                "[ALPHA] Counter of events received in watch cache broken by resource type.",
            )?,
            dispatched: counters(
                "apiserver_watch_cache_events_dispatched_total",
                "[ALPHA] Counter of events dispatched in watch cache broken by resource type.",
            )?,
            terminated: counters(
                "apiserver_terminated_watchers_total",
                "[ALPHA] Counter of watchers closed due to unresponsiveness broken by resource type.",
            )?,
            initializations: counters(
                "apiserver_watch_cache_initializations_total",
                "[ALPHA] Counter of watch cache initializations broken by resource type.",
            )?,
            waits: families.histograms(
                "apiserver_watch_cache_read_wait_seconds",
                "[ALPHA] Histogram of time spent waiting for a watch cache to become fresh.",
                &WAIT_BUCKETS,
                &LABELS,
            )?,
            consistent: families.counters(
                "apiserver_watch_cache_consistent_read_total",
                "[ALPHA] Counter for consistent reads from cache.",
                &["group", "resource", "success", "fallback"],
            )?,
            stored_lists: counters("apiserver_storage_list_total", "[ALPHA] Number of LIST requests served from storage")?,
            stored_fetched: counters(
                "apiserver_storage_list_fetched_objects_total",
                "[ALPHA] Number of objects read from storage in the course of serving a LIST request",
            )?,
            stored_evaluated: counters(
                "apiserver_storage_list_evaluated_objects_total",
                "[ALPHA] Number of objects tested in the course of serving a LIST request from storage",
            )?,
            stored_returned: counters(
                "apiserver_storage_list_returned_objects_total",
                "[ALPHA] Number of objects returned for a LIST request from storage",
            )?,
            decode_errors: counters(
                "apiserver_storage_decode_errors_total",
                "[ALPHA] Number of stored object decode errors split by object type",
            )?,
            version: families.gauges(
                "apiserver_watch_cache_resource_version",
                "[ALPHA] Current resource version of watch cache broken by resource type. This is truncated to the 15 least \
                     significant digits.",
                &LABELS,
            )?,
            capacity: families.gauges(
                "watch_cache_capacity",
                "[ALPHA] Total capacity of watch cache broken by resource type.",
                &LABELS,
            )?,
            objects: families.gauges("apiserver_resource_objects", format!("[ALPHA] {objects_help}"), &LABELS)?,
            objects_by_name: families.gauges(
                "apiserver_storage_objects",
                format!(
                    "[STABLE] (Deprecated since 1.34.0) [DEPRECATED, consider using apiserver_resource_objects instead] \
                     {objects_help}"
                ),
                &["resource"],
            )?,
            size: families.gauges(
                "apiserver_resource_size_estimate_bytes",
                "[ALPHA] Estimated size of stored objects in database. Estimate is based on sum of last observed sizes of \
                     serialized objects. In case of a fetching error, the value will be -1.",
                &LABELS,
            )?,
            undecodable: families.register(IntGaugeVec::new(undecodable, &LABELS)?)?,
            caches: Mutex::default(),
        }));
        let (told, renewed) = (metrics.clone(), metrics.clone());
        families.on_reading(move || told.of_each(|counted, cache| told.tell(counted, cache.state())));
        families.on_reset(move || {
            renewed.of_each(|counted, cache| cache.count_in(renewed.counts(&counted.group, &counted.resource)));
        });
        Ok(metrics)
    }

    pub(crate) fn counts(&self, group: &str, resource: &str) -> Counts {
        let vecs = &*self.0;
        let labels = [group, resource];
        let of = |counters: &IntCounterVec| counters.with_label_values(&labels);
        let by_index = |counters: &IntCounterVec| counters.with_label_values(&[group, resource, NO_INDEX]);
        let consistent = |success| vecs.consistent.with_label_values(&[group, resource, success, "false"]);
        Counts {
            lists: by_index(&vecs.lists),
            fetched: by_index(&vecs.fetched),
            returned: of(&vecs.returned),
            initial: of(&vecs.initial),
            received: of(&vecs.received),
            dispatched: of(&vecs.dispatched),
            terminated: of(&vecs.terminated),
            initializations: of(&vecs.initializations),
            waits: vecs.waits.with_label_values(&labels),
            consistent: consistent("true"),
            inconsistent: consistent("false"),
            stored_lists: of(&vecs.stored_lists),
            stored_fetched: of(&vecs.stored_fetched),
            stored_evaluated: of(&vecs.stored_evaluated),
            stored_returned: of(&vecs.stored_returned),
            decode_errors: of(&vecs.decode_errors),
        }
    }

    /// Tells the state of this cache, too, for as long as there is one.
    pub(crate) fn follow(&self, group: &str, resource: &str, cache: &Arc<WatchCache>) {
        let (group, resource) = (group.to_owned(), resource.to_owned());
        self.0.caches.lock().push(Counted { group, resource, cache: Arc::downgrade(cache) });
    }

    fn of_each(&self, what: impl Fn(&Counted, &WatchCache)) {
        self.0.caches.lock().retain(|counted| {
            let cache = counted.cache.upgrade();
            cache.inspect(|cache| what(counted, cache)).is_some()
        });
    }

    fn tell(&self, counted: &Counted, state: State) {
        let (vecs, group, resource) = (&*self.0, counted.group.as_str(), counted.resource.as_str());
        let name = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        vecs.objects_by_name.with_label_values(&[&name]).set(number(state.objects));
        let version = i64::try_from(state.version % VERSIONS).unwrap_or(i64::MAX);
        for (gauges, value) in [
            (&vecs.version, version),
            (&vecs.capacity, number(state.capacity)),
            (&vecs.objects, number(state.objects)),
            (&vecs.size, number(state.size)),
            (&vecs.undecodable, number(state.undecodable)),
        ] {
            gauges.with_label_values(&[group, resource]).set(value);
        }
    }
}

/// Metrics that nobody reads.
impl Default for Metrics {
    fn default() -> Self {
        Self::new(&Families::default()).expect("new families have no metrics yet")
    }
}

impl Counts {
    /// A list was served from the cache: so many objects were looked at, and so many are in it.
    pub(crate) fn listed(&self, fetched: usize, returned: usize) {
        self.lists.inc();
        self.fetched.inc_by(fetched as u64);
        self.returned.inc_by(returned as u64);
    }

    /// Objects were listed where they are stored.
    pub(crate) fn stored_listed(&self, listed: Listed) {
        self.stored_lists.inc();
        self.stored_fetched.inc_by(listed.fetched as u64);
        self.stored_evaluated.inc_by(listed.evaluated as u64);
        self.stored_returned.inc_by(listed.returned as u64);
    }

    /// The cache was filled anew, with so many objects of which so many decode.
    pub(super) fn initialized(&self, fetched: usize, returned: usize) {
        self.initializations.inc();
        self.stored_listed(Listed { fetched, evaluated: fetched, returned });
    }

    /// A read waited that long for the cache to be as fresh as it has to be.
    pub(crate) fn waited(&self, took: Duration) {
        self.waits.observe(took.as_secs_f64());
    }

    /// A list had to be as of now, and could be or not.
    pub(crate) fn read_consistently(&self, could: bool) {
        (if could { &self.consistent } else { &self.inconsistent }).inc();
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
