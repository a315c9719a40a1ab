//! What the server counts, under the names that upstream gives it.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/metrics` and `…/endpoints/filters/metrics.go`. A resource appears in labels
//! once a request for it has been answered by more than a refusal or "not found", so that paths that somebody makes
//! up do not become series.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use jiff::Timestamp;
use parking_lot::RwLock;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
    core::Collector, process_collector::ProcessCollector,
};

use super::{health::is_probe, inflight::Permit};
use crate::{
    audit::Ending,
    http::{Body, RequestInfo, body, encoding, query::Query},
    request::{UserInfo, Waits},
};

const LABELS: [&str; 7] = ["verb", "group", "version", "resource", "subresource", "scope", "component"];
const PROCESS_START_TIME: HeaderName = HeaderName::from_static("process-start-time-unix");
const EVENT_LABELS: [&str; 3] = ["group", "version", "resource"];
const DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
/// The buckets of watches that begin with what there is.
const WATCH_LIST_BUCKETS: [f64; 17] =
    [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
/// How a watch's event begins that has no object. The first one of a watch that began with what there is marks the
/// end of that.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK""#;
/// How many resources appear in labels at most; a server has far fewer.
const MOST_RESOURCES: usize = 2000;

/// The server's own metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// When the process started.
    pub(super) started: Timestamp,
    requests: IntCounterVec,
    durations: HistogramVec,
    sli_durations: HistogramVec,
    response_sizes: HistogramVec,
    long_running: IntGaugeVec,
    terminations: IntCounterVec,
    aborts: IntCounterVec,
    watch_events: IntCounterVec,
    watch_event_sizes: HistogramVec,
    watch_lists: HistogramVec,
    field_validation: HistogramVec,
    pub(crate) current_inflight: IntGaugeVec,
    pub(crate) tls_handshake_errors: IntCounter,
    authenticated_users: IntCounterVec,
    authentications: IntCounterVec,
    authentication_durations: HistogramVec,
    authorizations: IntCounterVec,
    authorization_durations: HistogramVec,
    known: RwLock<HashSet<[String; 4]>>,
}

impl Metrics {
    /// Makes the metrics and registers them, and those of the process.
    ///
    /// # Errors
    ///
    /// When the registry has metrics of the same names already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let with = |extra: &[&'static str]| LABELS.iter().chain(extra).copied().collect::<Vec<_>>();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let made = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let made = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let histogram = |name: &str, help: &str, buckets: Vec<f64>, labels: &[&str]| {
            let made = HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let short = || prometheus::exponential_buckets(0.001, 2.0, 15);
        let tls_handshake_errors = IntCounter::new(
            "apiserver_tls_handshake_errors_total",
            "Number of requests dropped with 'TLS handshake error from' error",
        )?;
        registry.register(Box::new(tls_handshake_errors.clone()))?;
        let process = ProcessCollector::for_self();
        let started = start_of(&process);
        registry.register(Box::new(process))?;
        Ok(Self {
            registry: registry.clone(),
            started,
            requests: counter(
                "apiserver_request_total",
                "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
                 scope, component, and HTTP response code.",
                &with(&["dry_run", "code"]),
            )?,
            durations: histogram(
                "apiserver_request_duration_seconds",
                "Response latency distribution in seconds for each verb, dry run value, group, version, resource, \
                 subresource, scope and component.",
                DURATION_BUCKETS.to_vec(),
                &with(&["dry_run"]),
            )?,
            sli_durations: histogram(
                "apiserver_request_sli_duration_seconds",
                "Response latency distribution (not counting webhook duration and priority & fairness queue wait times) \
                 in seconds for each verb, group, version, resource, subresource, scope and component.",
                DURATION_BUCKETS.to_vec(),
                &LABELS,
            )?,
            response_sizes: histogram(
                "apiserver_response_sizes",
                "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and \
                 component.",
                prometheus::exponential_buckets(1000.0, 10.0, 7)?,
                &LABELS,
            )?,
            long_running: gauge(
                "apiserver_longrunning_requests",
                "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
                 scope and component.",
                &LABELS,
            )?,
            terminations: counter(
                "apiserver_request_terminations_total",
                "Number of requests which apiserver terminated in self-defense.",
                &with(&["code"]),
            )?,
            aborts: counter(
                "apiserver_request_aborts_total",
                "Number of requests whose client went away before there was an answer, for each group, version, verb, \
                 resource, subresource and scope",
                &LABELS[..6],
            )?,
            watch_events: counter(
                "apiserver_watch_events_total",
                "Number of events sent in watch clients",
                &EVENT_LABELS,
            )?,
            watch_event_sizes: histogram(
                "apiserver_watch_events_sizes",
                "Watch event size distribution in bytes",
                prometheus::exponential_buckets(1024.0, 2.0, 8)?,
                &EVENT_LABELS,
            )?,
            watch_lists: histogram(
                "apiserver_watch_list_duration_seconds",
                "Response latency distribution in seconds for watch list requests broken by group, version, resource \
                 and scope.",
                WATCH_LIST_BUCKETS.to_vec(),
                &["group", "version", "resource", "scope"],
            )?,
            field_validation: histogram(
                "field_validation_request_duration_seconds",
                "Response latency distribution in seconds for each field validation value",
                // Without the two shortest.
                DURATION_BUCKETS[2..].to_vec(),
                &["field_validation"],
            )?,
            current_inflight: gauge(
                "apiserver_current_inflight_requests",
                "Number of requests that use the inflight request limit of this apiserver per request kind.",
                &["request_kind"],
            )?,
            tls_handshake_errors,
            authenticated_users: counter(
                "authenticated_user_requests",
                "Counter of authenticated requests broken out by username.",
                &["username"],
            )?,
            authentications: counter("authentication_attempts", "Counter of authenticated attempts.", &["result"])?,
            authentication_durations: histogram(
                "authentication_duration_seconds",
                "Authentication duration in seconds broken out by result.",
                short()?,
                &["result"],
            )?,
            authorizations: counter(
                "authorization_attempts_total",
                "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', \
                 'no-opinion' or 'error'.",
                &["result"],
            )?,
            authorization_durations: histogram(
                "authorization_duration_seconds",
                "Authorization duration in seconds broken out by result.",
                short()?,
                &["result"],
            )?,
            known: RwLock::default(),
        })
        .inspect(|metrics| {
            for kind in ["readOnly", "mutating"] {
                metrics.current_inflight.with_label_values(&[kind]).set(0);
            }
        })
    }

    /// Counts from nothing again, but for what is counted by others and what tells how it is now.
    pub(crate) fn reset(&self) {
        let counters = [
            &self.requests,
            &self.terminations,
            &self.aborts,
            &self.watch_events,
            &self.authenticated_users,
            &self.authentications,
            &self.authorizations,
        ];
        counters.into_iter().for_each(IntCounterVec::reset);
        let histograms = [
            &self.durations,
            &self.sli_durations,
            &self.response_sizes,
            &self.watch_event_sizes,
            &self.watch_lists,
            &self.field_validation,
            &self.authentication_durations,
            &self.authorization_durations,
        ];
        histograms.into_iter().for_each(HistogramVec::reset);
    }

    /// Everything in the registry, in Prometheus' text format.
    pub(crate) fn render(&self, request: &HeaderMap) -> Response<Body> {
        self.render_others(&self.registry, request)
    }

    /// The same of another registry.
    pub(crate) fn render_others(&self, registry: &Registry, request: &HeaderMap) -> Response<Body> {
        let encoder = TextEncoder::new();
        let mut text = Vec::new();
        if let Err(error) = encoder.encode(&registry.gather(), &mut text) {
            tracing::error!(%error, "metrics do not encode");
            let mut response = Response::new(body::full("metrics do not encode\n"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return response;
        }
        let gzip = encoding::prefers_gzip(request);
        let mut response = Response::new(body::full(if gzip { encoding::gzip(&text) } else { text.into() }));
        let headers = response.headers_mut();
        let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(PROCESS_START_TIME, self.started.as_second().into());
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
                    _ => "other",
                };
                self.authenticated_users.with_label_values(&[name]).inc();
                "success"
            }
            Err(true) => "error",
            Err(false) => "failure",
        };
        self.authentications.with_label_values(&[result]).inc();
        self.authentication_durations.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    pub(crate) fn authorized(&self, result: &str, took: Duration) {
        self.authorizations.with_label_values(&[result]).inc();
        self.authorization_durations.with_label_values(&[result]).observe(took.as_secs_f64());
    }

    /// Whether the resource may be a label's value after this answer.
    fn knows(&self, resource: &[String; 4], code: Option<u16>) -> bool {
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

/// One request from its arrival to the last byte of its answer; counted when dropped.
#[derive(Debug)]
pub(crate) struct Record {
    metrics: Arc<Metrics>,
    verb: &'static str,
    /// Group, version, resource and subresource.
    resource: [String; 4],
    scope: &'static str,
    component: &'static str,
    dry_run: &'static str,
    field_validation: &'static str,
    received: Instant,
    long_running: bool,
    /// Whether it is a watch that begins with what there is, and marks where that ends.
    begins_with_list: bool,
    /// The gauge of long-running requests that this one is in.
    running: Option<prometheus::IntGauge>,
    /// The answer's code; 0 while there is none.
    code: u16,
    /// How many bytes of body were sent.
    pub(crate) bytes: u64,
    /// What the request holds of the limit while it lasts.
    pub(crate) permit: Option<Permit>,
    /// Records the end in the audit log.
    pub(crate) ending: Option<Ending>,
    /// How long it waited for others.
    pub(crate) waits: Arc<Waits>,
    events: Option<Events>,
}

#[derive(Debug)]
struct Events {
    count: IntCounter,
    sizes: prometheus::Histogram,
    /// Bytes of an event whose end has not been seen yet.
    begun: usize,
    /// Where the time is counted that the initial events took, until their end has been seen.
    initial: Option<prometheus::Histogram>,
}

impl Record {
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        info: &RequestInfo,
        method: &Method,
        headers: &HeaderMap,
        query: &Query,
        long_running: bool,
    ) -> Self {
        let is_probe = is_probe(&info.path);
        let resource = if info.is_resource_request {
            [&info.group, &info.version, &info.resource, &info.subresource].map(String::clone)
        } else if is_probe {
            // Upstream counts them so.
            [String::new(), String::new(), String::new(), info.path.clone()]
        } else {
            Default::default()
        };
        Self {
            metrics,
            verb: reported_verb(info, method, headers),
            resource,
            scope: scope(info),
            component: if is_probe { "" } else { "apiserver" },
            dry_run: dry_run(query),
            field_validation: field_validation(query),
            received: Instant::now(),
            long_running,
            begins_with_list: query.flag("sendInitialEvents") == Some(true)
                && query.flag("allowWatchBookmarks") == Some(true),
            running: None,
            code: 0,
            bytes: 0,
            permit: None,
            ending: None,
            waits: Arc::default(),
            events: None,
        }
    }

    /// When the request arrived.
    pub(crate) fn received(&self) -> Instant {
        self.received
    }

    /// The answer begins, with this code; `streams_events` when its body is one event a line.
    pub(crate) fn answered(&mut self, code: StatusCode, streams_events: bool) {
        self.code = code.as_u16();
        if !self.long_running || code.is_client_error() || code.is_server_error() {
            return;
        }
        let gauge = self.metrics.long_running.with_label_values(&self.labels());
        gauge.inc();
        self.running = Some(gauge);
        if streams_events {
            let [_, group, version, resource, _, scope, _] = self.labels();
            let labels = [group, version, resource];
            let initial = || self.metrics.watch_lists.with_label_values(&[group, version, resource, scope]);
            self.events = Some(Events {
                count: self.metrics.watch_events.with_label_values(&labels),
                sizes: self.metrics.watch_event_sizes.with_label_values(&labels),
                begun: 0,
                initial: self.begins_with_list.then(initial),
            });
        }
    }

    /// The server gives the request up, with this code.
    pub(crate) fn terminated(&self, code: u16) {
        let code = code.to_string();
        let labels = self.labels().into_iter().chain([code.as_str()]).collect::<Vec<_>>();
        self.metrics.terminations.with_label_values(&labels).inc();
    }

    /// Bytes of the body are sent.
    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(ending) = &mut self.ending {
            ending.sent(bytes);
        }
        let Some(events) = &mut self.events else { return };
        let mut rest = bytes;
        while !rest.is_empty() {
            if events.begun == 0
                && rest.starts_with(BOOKMARK)
                && let Some(initial) = events.initial.take()
            {
                initial.observe(self.received.elapsed().as_secs_f64());
            }
            let Some(end) = memchr::memchr(b'\n', rest) else { break };
            events.count.inc();
            events.sizes.observe((events.begun + end + 1) as f64);
            events.begun = 0;
            rest = &rest[end + 1..];
        }
        events.begun += rest.len();
    }

    fn labels(&self) -> [&str; 7] {
        let code = (self.code != 0).then_some(self.code);
        let [group, version, resource, subresource] = if self.metrics.knows(&self.resource, code) {
            self.resource.each_ref().map(String::as_str)
        } else {
            [""; 4]
        };
        [self.verb, group, version, resource, subresource, self.scope, self.component]
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.dec();
        }
        let labels = self.labels();
        if self.code == 0 {
            self.metrics.aborts.with_label_values(&labels[..6]).inc();
            return;
        }
        let code = self.code.to_string();
        let counted: Vec<&str> = labels.iter().copied().chain([self.dry_run, &code]).collect();
        self.metrics.requests.with_label_values(&counted).inc();
        let took = self.received.elapsed().as_secs_f64();
        self.metrics.durations.with_label_values(&counted[..8]).observe(took);
        self.metrics.field_validation.with_label_values(&[self.field_validation]).observe(took);
        // Nothing waits in a queue here, so that all counts but the time of webhooks.
        if self.dry_run.is_empty() {
            let own = (took - self.waits.total().as_secs_f64()).max(0.0);
            self.metrics.sli_durations.with_label_values(&counted[..7]).observe(own);
        }
        if matches!(self.verb, "GET" | "LIST") {
            self.metrics.response_sizes.with_label_values(&labels).observe(self.bytes as f64);
        }
    }
}

/// Whether a request is to change nothing, as a label.
fn dry_run(query: &Query) -> &'static str {
    let mut values = query.all("dryRun").peekable();
    if values.peek().is_none() {
        return "";
    }
    if values.all(|value| value == "All") { "All" } else { "invalid" }
}

/// What a request asks of the validation of fields, as a label.
fn field_validation(query: &Query) -> &'static str {
    match query.all("fieldValidation").collect::<Vec<_>>().as_slice() {
        [] | [""] => "",
        ["Ignore"] => "Ignore",
        ["Warn"] => "Warn",
        ["Strict"] => "Strict",
        _ => "invalid",
    }
}

/// The verb as metrics have it: the HTTP method, but for `LIST`, `WATCH`, `APPLY` and `DELETECOLLECTION`.
fn reported_verb(info: &RequestInfo, method: &Method, headers: &HeaderMap) -> &'static str {
    if info.is_resource_request {
        match info.verb.as_str() {
            "watch" => return "WATCH",
            "list" => return "LIST",
            "deletecollection" => return "DELETECOLLECTION",
            "get" if info.subresource == "log" => return "CONNECT",
            _ => {}
        }
    }
    let applies = |value: &HeaderValue| value.as_bytes().starts_with(b"application/apply-patch+yaml");
    match *method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH if headers.get(header::CONTENT_TYPE).is_some_and(applies) => "APPLY",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else if info.is_resource_request {
        "cluster"
    } else {
        ""
    }
}

/// When the process started: what its metric says too.
fn start_of(process: &ProcessCollector) -> Timestamp {
    let families = process.collect();
    let family = families.iter().find(|family| family.name() == "process_start_time_seconds");
    let seconds = family.and_then(|family| family.get_metric().first()).map(|metric| metric.get_gauge().get_value());
    seconds.and_then(|seconds| Timestamp::from_second(seconds as i64).ok()).unwrap_or_else(Timestamp::now)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
