//! Metrics of the server, under upstream's names.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/metrics` and `…/endpoints/filters/metrics.go`. What a request counts in is in
//! `record`.

use std::{collections::HashSet, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, proto::MetricFamily};
use stoa_meta::request::UserInfo;
use stoa_process::ProcessCollector;
use stoa_registry::metrics::Families;

use super::exposition;
use crate::http::{Body, body, encoding};

const LABELS: [&str; 7] = ["verb", "group", "version", "resource", "subresource", "scope", "component"];
pub(super) const PROCESS_START_TIME: HeaderName = HeaderName::from_static("process-start-time-unix");
const EVENT_LABELS: [&str; 3] = ["group", "version", "resource"];
const DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const WITHOUT_SHORTEST: &[f64] = DURATION_BUCKETS.split_at(2).1;
/// The buckets of watches that begin with what there is.
const WATCH_LIST_BUCKETS: [f64; 17] =
    [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
const FILTER_BUCKETS: [f64; 13] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0];
/// How many resources appear in labels at most; a server has far fewer.
const MOST_RESOURCES: usize = 2000;

/// The server's own metrics.
#[derive(Debug)]
pub struct Metrics {
    pub(super) families: Families,
    /// When the process started, in seconds since 1970.
    pub(super) started: f64,
    pub(super) requests: IntCounterVec,
    pub(super) durations: HistogramVec,
    pub(super) sli_durations: HistogramVec,
    pub(super) response_sizes: HistogramVec,
    pub(super) long_running: IntGaugeVec,
    pub(super) terminations: IntCounterVec,
    pub(super) aborts: IntCounterVec,
    pub(super) watch_events: IntCounterVec,
    pub(super) watch_event_sizes: HistogramVec,
    pub(super) watch_lists: HistogramVec,
    pub(super) field_validation: HistogramVec,
    pub(super) current_inflight: IntGaugeVec,
    pub(crate) tls_handshake_errors: IntCounter,
    authentication: Authentication,
    authorization: Authorization,
    filters: HistogramVec,
    known: RwLock<HashSet<[String; 4]>>,
}

#[derive(Debug)]
struct Authentication {
    users: IntCounterVec,
    attempts: IntCounterVec,
    durations: HistogramVec,
}

#[derive(Debug)]
struct Authorization {
    attempts: IntCounterVec,
    durations: HistogramVec,
}

impl Metrics {
    /// Makes the metrics and registers them, and those of the process. Fails when there are metrics of the same names
    /// already.
    pub fn new(families: &Families) -> prometheus::Result<Self> {
        let with = |extra: &[&'static str]| LABELS.iter().chain(extra).copied().collect::<Vec<_>>();
        let short = prometheus::exponential_buckets(0.001, 2.0, 15)?;
        let started = stoa_process::started().unwrap_or_else(|| Timestamp::now().as_second() as f64);
        families.registry().register(Box::new(ProcessCollector::for_self()))?;
        Ok(Self {
            families: families.clone(),
            started,
            requests: families.counters(
                "apiserver_request_total",
                "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
                     scope, component, and HTTP response code.",
                &with(&["dry_run", "code"]),
            )?,
            durations: families.histograms(
                "apiserver_request_duration_seconds",
                "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
                     subresource, scope and component.",
                &DURATION_BUCKETS,
                &with(&["dry_run"]),
            )?,
            sli_durations: families.histograms(
                "apiserver_request_sli_duration_seconds",
                "[ALPHA] Response latency distribution (not counting webhook duration and priority & fairness queue wait times) \
                     in seconds for each verb, group, version, resource, subresource, scope and component.",
                WITHOUT_SHORTEST,
                &LABELS,
            )?,
            response_sizes: families.histograms(
                "apiserver_response_sizes",
                "[STABLE] Response size distribution in bytes for each group, version, verb, resource, subresource, scope and \
                     component.",
                &prometheus::exponential_buckets(1000.0, 10.0, 7)?,
                &LABELS,
            )?,
            long_running: families.gauges(
                "apiserver_longrunning_requests",
                "[STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
                     scope and component. Not all requests are tracked this way.",
                &LABELS,
            )?,
            terminations: families.counters(
                "apiserver_request_terminations_total",
                "[ALPHA] Number of requests which apiserver terminated in self-defense.",
                &with(&["code"]),
            )?,
            aborts: families.counters(
                "apiserver_request_aborts_total",
                "[ALPHA] Number of requests which apiserver aborted possibly due to a timeout, for each group, version, verb, \
                     resource, subresource and scope",
                &LABELS[..6],
            )?,
            watch_events: families.counters(
                "apiserver_watch_events_total",
                "[ALPHA] Number of events sent in watch clients",
                &EVENT_LABELS,
            )?,
            watch_event_sizes: families.histograms(
                "apiserver_watch_events_sizes",
                "[ALPHA] Watch event size distribution in bytes",
                &prometheus::exponential_buckets(1024.0, 2.0, 8)?,
                &EVENT_LABELS,
            )?,
            watch_lists: families.histograms(
                "apiserver_watch_list_duration_seconds",
                "[BETA] Response latency distribution in seconds for watch list requests broken by group, version, resource \
                     and scope.",
                &WATCH_LIST_BUCKETS,
                &["group", "version", "resource", "scope"],
            )?,
            field_validation: families.histograms(
                "field_validation_request_duration_seconds",
                "[ALPHA] Response latency distribution in seconds for each field validation value",
                WITHOUT_SHORTEST,
                &["field_validation"],
            )?,
            current_inflight: families.gauges(
                "apiserver_current_inflight_requests",
                "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last \
                     second.",
                &["request_kind"],
            )?,
            tls_handshake_errors: families.counter(
                "apiserver_tls_handshake_errors_total",
                "[ALPHA] Number of requests dropped with 'TLS handshake error from' error",
            )?,
            authentication: Authentication {
                users: families.counters(
                    "authenticated_user_requests",
                    "[ALPHA] Counter of authenticated requests broken out by username.",
                    &["username"],
                )?,
                attempts: families.counters(
                    "authentication_attempts",
                    "[ALPHA] Counter of authenticated attempts.",
                    &["result"],
                )?,
                durations: families.histograms(
                    "authentication_duration_seconds",
                    "[ALPHA] Authentication duration in seconds broken out by result.",
                    &short,
                    &["result"],
                )?,
            },
            authorization: Authorization {
                attempts: families.counters(
                    "authorization_attempts_total",
                    "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', \
                         'no-opinion' or 'error'.",
                    &["result"],
                )?,
                durations: families.histograms(
                    "authorization_duration_seconds",
                    "[ALPHA] Authorization duration in seconds broken out by result.",
                    &short,
                    &["result"],
                )?,
            },
            filters: families.histograms(
                "apiserver_request_filter_duration_seconds",
                "[ALPHA] Request filter latency distribution in seconds, for each filter type",
                &FILTER_BUCKETS,
                &["filter"],
            )?,
            known: RwLock::default(),
        })
    }

    pub(super) fn started_at(&self) -> Timestamp {
        Timestamp::from_second(self.started as i64).unwrap_or_default()
    }

    pub(super) fn written(&self, families: &[MetricFamily], request: &HeaderMap) -> Response<Body> {
        let plain = exposition::encode(families).into_bytes();
        let gzip = encoding::prefers_gzip(request);
        let mut response = Response::new(body::full(if gzip { encoding::gzip(&plain) } else { plain.into() }));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, exposition::content_type(request));
        headers.insert(PROCESS_START_TIME, self.started_at().as_second().into());
        if gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }

    pub(crate) fn authenticated(&self, user: Result<&UserInfo, bool>, took: Duration) {
        let result = match user {
            Ok(user) => {
                // Names would be a series each; upstream names the same few.
                let name = match user.name.as_str() {
                    "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => {
                        &user.name
                    }
                    name if name.contains('@') => "email_id",
                    _ => "other",
                };
                self.authentication.users.with_label_values(&[name]).inc();
                "success"
            }
            Err(true) => "error",
            Err(false) => "failure",
        };
        let took = took.as_secs_f64();
        self.filtered("authentication", took);
        self.authentication.attempts.with_label_values(&[result]).inc();
        self.authentication.durations.with_label_values(&[result]).observe(took);
    }

    pub(super) fn audited(&self, took: Duration) {
        self.filtered("audit", took.as_secs_f64());
    }

    pub(super) fn impersonated(&self, took: Duration) {
        self.filtered("constrainedimpersonation", took.as_secs_f64());
    }

    pub(crate) fn authorized(&self, result: &str, took: Duration) {
        let took = took.as_secs_f64();
        if result == "allowed" {
            // Of the others no filter comes after, to which upstream measures.
            self.filtered("authorization", took);
        }
        self.authorization.attempts.with_label_values(&[result]).inc();
        self.authorization.durations.with_label_values(&[result]).observe(took);
    }

    fn filtered(&self, filter: &str, took: f64) {
        self.filters.with_label_values(&[filter]).observe(took);
    }

    /// Whether the resource may be a label's value after this answer.
    pub(super) fn knows(&self, resource: &[String; 4], code: Option<u16>) -> bool {
        if resource.iter().all(String::is_empty) || self.known.read().contains(resource) {
            return true;
        }
        // Nobody has looked at what was asked for when these are answered.
        if code.is_none_or(|code| matches!(code, 0 | 400 | 401 | 403 | 404 | 405 | 429 | 500..)) {
            return false;
        }
        let mut known = self.known.write();
        if known.len() >= MOST_RESOURCES {
            return false;
        }
        known.insert(resource.clone());
        true
    }
}
