//! The metrics of one request, from its arrival to the last byte of its answer.
//!
//! Follows `MonitorRequest` in `k8s.io/apiserver/pkg/endpoints/metrics`. A resource appears in labels once a request for it
//! has been answered by more than a refusal or "not found", so that paths that somebody makes up do not become series.

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use prometheus::{Histogram, IntCounter, IntGauge};
use stoa_meta::request::Waits;

use super::{health::is_probe, inflight::Permit, metrics::Metrics};
use crate::{
    audit::Ending,
    http::{RequestInfo, query::Query},
};

/// How a watch's event begins that has no object. The first one of a watch that began with what there is marks the
/// end of that.
const BOOKMARK: &[u8] = br#"{"type":"BOOKMARK""#;

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
    running: Option<IntGauge>,
    /// The answer's code; 0 while there is none.
    code: u16,
    pub(crate) bytes: u64,
    /// What the request holds of the limit while it lasts.
    pub(crate) permit: Option<Permit>,
    pub(crate) ending: Option<Ending>,
    pub(crate) waits: Arc<Waits>,
    /// Whether the client showed a token that counts for none, as a blank too many stands before it.
    pub(crate) blank_token: bool,
    events: Option<Events>,
}

#[derive(Debug)]
struct Events {
    count: IntCounter,
    sizes: Histogram,
    /// Bytes of an event whose end has not been seen yet.
    begun: usize,
    /// Where the time is counted that the initial events took, until their end has been seen.
    initial: Option<Histogram>,
    /// Whether these are counted in still: a reset makes others.
    generation: u64,
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
            blank_token: false,
            events: None,
        }
    }

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
                // First, so that no reset goes unnoticed.
                generation: self.metrics.families.generation(),
                count: self.metrics.watch_events.with_label_values(&labels),
                sizes: self.metrics.watch_event_sizes.with_label_values(&labels),
                begun: 0,
                initial: self.begins_with_list.then(initial),
            });
        }
    }

    pub(crate) fn terminated(&self, code: u16) {
        let code = code.to_string();
        let labels = self.labels().into_iter().chain([code.as_str()]).collect::<Vec<_>>();
        self.metrics.terminations.with_label_values(&labels).inc();
    }

    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(ending) = &mut self.ending {
            ending.sent(bytes);
        }
        self.renew_events();
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

    /// Looks up again where events are counted, if what they were counted in was reset.
    fn renew_events(&mut self) {
        let generation = self.metrics.families.generation();
        if self.events.as_ref().is_none_or(|events| events.generation == generation) {
            return;
        }
        let [_, group, version, resource, _, scope, _] = self.labels();
        let labels = [group, version, resource];
        let count = self.metrics.watch_events.with_label_values(&labels);
        let sizes = self.metrics.watch_event_sizes.with_label_values(&labels);
        let lists = self.metrics.watch_lists.with_label_values(&[group, version, resource, scope]);
        if let Some(events) = &mut self.events {
            let initial = events.initial.take().map(|_| lists);
            *events = Events { count, sizes, generation, begun: events.begun, initial };
        }
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
        if matches!(self.verb, "GET" | "LIST" | "WATCH") {
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

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
