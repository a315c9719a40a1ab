//! The audit trail of one request, from which its events are written.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;
use stoa_meta::{
    authorizer::Decision,
    object::Object,
    request::{RequestContext, RequestRecorder, UserInfo, Waits},
    schema::{self, Format},
    status::ApiError,
};

use super::{
    Auditor, Written,
    event::{AuthenticationMetadata, Event, Level, ObjectReference, ResponseStatus, Stage, User},
    policy::Wanted,
};
use crate::{auth::Impersonated, duration, http::RequestInfo};

/// The longest `User-Agent` that is recorded whole, in bytes.
const LONGEST_USER_AGENT: usize = 1024;
/// Requests that take longer say what they waited for.
const SLOW: Duration = Duration::from_millis(500);
/// The most bytes of a response's body that are recorded; what is longer is left out.
const LARGEST_RESPONSE: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Trail {
    auditor: Arc<Auditor>,
    wanted: Wanted,
    audit_id: String,
    uri: String,
    verb: String,
    user: UserInfo,
    source_ips: Vec<String>,
    user_agent: String,
    received: Timestamp,
    /// Whether the sender is not known: all that is recorded then is the head of the refusal.
    unknown: bool,
    changing: Mutex<Changing>,
}

#[derive(Debug, Default)]
struct Changing {
    impersonated: Option<Impersonated>,
    annotations: BTreeMap<String, String>,
    context: Option<RequestContext>,
    /// What was waited for before the API had the request, and how long.
    waited: Vec<(&'static str, Duration)>,
    object: Option<ObjectReference>,
    status: Option<ResponseStatus>,
    request: Option<Value>,
    response: Option<Value>,
    panicked: bool,
}

impl Changing {
    /// Says what a request waited for that took so long in all, as upstream's `AuditAnnotationsFromLatencyTrackers`.
    fn tell_waits(&mut self, took: Duration) {
        let mut waited = std::mem::take(&mut self.waited);
        let waits = self.context.as_ref().map(RequestContext::waits);
        let webhooks = waits.into_iter().flat_map(Waits::of_webhooks);
        waited.extend(webhooks.filter(|(_, took)| !took.is_zero()));
        for (part, took) in waited.into_iter().chain([("total", took)]) {
            self.annotations.insert(format!("apiserver.latency.k8s.io/{part}"), duration::text(took));
        }
    }
}

pub(crate) struct Recorded<'a> {
    pub(crate) audit_id: &'a HeaderValue,
    pub(crate) uri: &'a http::Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a UserInfo,
    pub(crate) info: &'a RequestInfo,
    pub(crate) source_ips: Vec<String>,
    pub(crate) received: Timestamp,
}

impl Trail {
    pub(crate) fn begin(auditor: &Arc<Auditor>, request: Recorded<'_>) -> Option<Arc<Self>> {
        Self::new(auditor, request).map(Arc::new)
    }

    /// Records that the request arrived.
    /// Fails when that could not be recorded and the log is strict.
    pub(crate) async fn arrived(&self) -> Result<(), NotStored> {
        if !self.write(Stage::RequestReceived).await && self.auditor.log.strict {
            self.auditor.rejected.inc();
            return Err(NotStored);
        }
        Ok(())
    }

    fn new(auditor: &Arc<Auditor>, request: Recorded<'_>) -> Option<Self> {
        let Recorded { audit_id, uri, headers, user, info, source_ips, received } = request;
        let wanted = auditor.policy.evaluate(user, info);
        auditor.levels.with_label_values(&[wanted.level.as_str()]).inc();
        if wanted.level == Level::None {
            return None;
        }
        let mut user_agent = header_text(headers, &header::USER_AGENT).to_owned();
        if user_agent.len() > LONGEST_USER_AGENT {
            user_agent.truncate(user_agent.floor_char_boundary(LONGEST_USER_AGENT));
            user_agent.push_str("...TRUNCATED");
        }
        let object = info.is_resource_request.then(|| ObjectReference {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: info.subresource.clone(),
            ..ObjectReference::default()
        });
        Some(Self {
            auditor: auditor.clone(),
            wanted,
            audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
            uri: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned(),
            verb: info.verb.clone(),
            user: user.clone(),
            source_ips,
            user_agent,
            received,
            unknown: false,
            changing: Mutex::new(Changing { object, ..Changing::default() }),
        })
    }

    fn wants_request(&self) -> bool {
        self.wanted.level >= Level::Request
    }

    pub(crate) fn wants_response(&self) -> bool {
        self.wanted.level >= Level::RequestResponse
    }

    pub(crate) fn impersonates(&self, impersonated: &Impersonated) {
        self.changing.lock().impersonated = Some(impersonated.clone());
    }

    pub(crate) fn authorized(&self, decision: &Result<Decision, ApiError>) {
        let (word, reason) = match decision {
            Ok(Decision::Allow(reason)) => ("allow", reason.as_str()),
            Ok(Decision::Deny(reason)) => ("forbid", reason.as_str()),
            Err(_) => {
                self.annotate("authorization.k8s.io/reason", "internal error");
                return;
            }
        };
        self.annotate("authorization.k8s.io/decision", word);
        self.annotate("authorization.k8s.io/reason", reason);
    }

    /// The request waited so long for a part of the server, which is told of those that take long.
    pub(crate) fn waited(&self, part: &'static str, took: Duration) {
        self.changing.lock().waited.push((part, took));
    }

    fn annotate(&self, key: &str, value: &str) {
        self.changing.lock().annotations.insert(key.to_owned(), value.to_owned());
    }

    /// The request goes on to the API with this context, whose annotations count.
    pub(crate) fn dispatched(&self, context: &RequestContext) {
        self.changing.lock().context = Some(context.clone());
    }

    pub(crate) fn panicked(&self, message: &str) {
        let mut changing = self.changing.lock();
        changing.panicked = true;
        changing.status = Some(ResponseStatus {
            status: Some("Failure".to_owned()),
            reason: Some("InternalError".to_owned()),
            message: Some(format!("APIServer panic'd: {message}")),
            code: Some(500),
            ..ResponseStatus::default()
        });
    }

    /// Has an answer sent in a form that can be recorded, where that is wanted.
    pub(crate) fn prepare(&self, headers: &mut HeaderMap) {
        if self.wants_response() {
            headers.remove(header::ACCEPT_ENCODING);
        }
    }

    /// Records the answer's head, and the failure that it tells; watches and their like get an event for it.
    pub(crate) fn answered(&self, code: StatusCode, long_running: bool, failure: Option<&Status>) -> Written {
        {
            let mut changing = self.changing.lock();
            if changing.panicked {
                return Written::default();
            }
            // Upstream writes what no format is accepted for past its audit.
            if let Some(failure) = failure.filter(|_| code != StatusCode::NOT_ACCEPTABLE) {
                let told = serde_json::to_value(failure).unwrap_or_default();
                changing.status = ResponseStatus::deserialize(&told).ok();
                changing.response = self.wants_response().then_some(told);
            }
            changing.status.get_or_insert_default().code = Some(i32::from(code.as_u16()));
        }
        if long_running || self.unknown { self.write(Stage::ResponseStarted) } else { Written::default() }
    }

    /// Records the end; `body` is what was sent, as far as it was asked for.
    fn complete(&self, body: Option<&[u8]>, yaml: bool) -> Written {
        if self.unknown {
            return Written::default();
        }
        let object = body.and_then(|body| read(body, yaml));
        let panicked = {
            let mut changing = self.changing.lock();
            if let Some(Ok(status)) = object.as_ref().filter(|o| o["kind"] == "Status").map(ResponseStatus::deserialize)
                && !changing.panicked
            {
                let code = changing.status.as_ref().and_then(|known| known.code);
                changing.status = Some(ResponseStatus { code: code.or(status.code), ..status });
            }
            if let Some(object) = object.filter(|_| self.wants_response()) {
                changing.response = Some(object);
            }
            let took = Duration::try_from(Timestamp::now().duration_since(self.received)).unwrap_or_default();
            if took > SLOW {
                changing.tell_waits(took);
            }
            changing.panicked
        };
        self.write(if panicked { Stage::Panic } else { Stage::ResponseComplete })
    }

    /// Records the end of a request that nobody is left to answer, as upstream does it.
    fn broken_off(&self, long_running: bool) {
        self.changing.lock().status.get_or_insert_with(|| ResponseStatus {
            status: Some("Success".to_owned()),
            message: Some("Connection closed early".to_owned()),
            code: Some(200),
            ..ResponseStatus::default()
        });
        if long_running || self.unknown {
            drop(self.write(Stage::ResponseStarted));
        }
        drop(self.complete(None, false));
    }

    fn write(&self, stage: Stage) -> Written {
        if self.wanted.omit_stages.contains(&stage) {
            return Written::default();
        }
        let changing = self.changing.lock();
        let mut annotations = changing.annotations.clone();
        if let Some(context) = &changing.context {
            context.annotations().add_to(&mut annotations, self.wants_request());
        }
        let arrived = stage == Stage::RequestReceived;
        let (mut request, mut response) = (changing.request.clone(), changing.response.clone());
        if self.wanted.omit_managed_fields {
            request.iter_mut().chain(&mut response).for_each(without_managed_fields);
        }
        let impersonated = changing.impersonated.as_ref().filter(|_| !arrived);
        self.auditor.send(&Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.wanted.level,
            audit_id: &self.audit_id,
            stage,
            request_uri: &self.uri,
            verb: &self.verb,
            user: User::from(&self.user),
            impersonated_user: impersonated.map(|impersonated| User::from(&impersonated.user)),
            authentication_metadata: impersonated.and_then(AuthenticationMetadata::of),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: changing.object.as_ref(),
            response_status: changing.status.as_ref(),
            request_object: request.as_ref(),
            response_object: response.as_ref(),
            request_received_timestamp: self.received,
            stage_timestamp: if arrived { self.received } else { Timestamp::now() },
            annotations: &annotations,
        })
    }
}

impl RequestRecorder for Trail {
    /// The fields of the reference that the path does not show come from the object, at every level.
    fn request_object(&self, object: &Object) {
        let mut changing = self.changing.lock();
        if let Some(reference) = &mut changing.object {
            complete_reference(reference, object);
        }
        if self.wants_request() {
            changing.request = Some(Value::Object(object.0.clone()));
        }
    }

    fn request_change(&self, change: &mut dyn FnMut() -> Option<Value>) {
        if self.wants_request() {
            self.changing.lock().request = change();
        }
    }
}

fn header_text<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn read(body: &[u8], yaml: bool) -> Option<Value> {
    if body.is_empty() {
        return None;
    }
    let format = if yaml { Format::Yaml } else { Format::Json };
    schema::parse(body, format).ok().map(|parsed| parsed.value)
}

fn complete_reference(reference: &mut ObjectReference, object: &Object) {
    for (known, field) in [
        (&mut reference.namespace, "namespace"),
        (&mut reference.name, "name"),
        (&mut reference.uid, "uid"),
        (&mut reference.resource_version, "resourceVersion"),
    ] {
        if known.is_empty() {
            object.meta_str(field).clone_into(known);
        }
    }
}

fn without_managed_fields(value: &mut Value) {
    let clear = |object: &mut Value| {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    };
    clear(value);
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        clear(item);
    }
    for row in value.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            clear(object);
        }
    }
}

/// The log did not take an event without which nothing is to be done.
#[derive(Debug)]
pub(crate) struct NotStored;

/// Begins the trail of a request that failed before its sender could be told.
pub(crate) fn of_unknown_sender(auditor: &Arc<Auditor>, request: Recorded<'_>) -> Option<Arc<Trail>> {
    Trail::new(auditor, request).map(|trail| Arc::new(Trail { unknown: true, ..trail }))
}

/// Where a request comes from: what proxies say, and who connected.
pub(crate) fn source_ips(headers: &HeaderMap, peer: SocketAddr) -> Vec<String> {
    let mut found: Vec<IpAddr> = Vec::new();
    let forwarded = header_text(headers, &header::HeaderName::from_static("x-forwarded-for"));
    found.extend(forwarded.split(',').filter_map(|part| part.trim().parse::<IpAddr>().ok()));
    let real = header_text(headers, &header::HeaderName::from_static("x-real-ip")).parse::<IpAddr>().ok();
    if let Some(real) = real.filter(|real| found.last() != Some(real)) {
        found.push(real);
    }
    let peer = peer.ip().to_canonical();
    if found.last() != Some(&peer) {
        found.push(peer);
    }
    found.iter().map(IpAddr::to_string).collect()
}

/// Holds a request's trail until there is an answer, so that it is known of one whose filters were broken off.
///
/// A request is dropped with its trail in here when its client goes away, or the server does not wait for it any longer.
/// What it did may have happened all the same, so that this is recorded, too.
#[derive(Debug)]
pub(crate) struct Begun {
    trail: Mutex<Option<Arc<Trail>>>,
    long_running: bool,
}

impl Begun {
    pub(crate) fn new(long_running: bool) -> Self {
        Self { trail: Mutex::new(None), long_running }
    }

    pub(crate) fn hold(&self, trail: Option<Arc<Trail>>) {
        *self.trail.lock() = trail;
    }

    pub(crate) fn held(&self) -> Option<Arc<Trail>> {
        self.trail.lock().clone()
    }

    /// Gives it away, to who records the answer.
    pub(crate) fn take(&self) -> Option<Arc<Trail>> {
        self.trail.lock().take()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(trail) = self.take() {
            trail.broken_off(self.long_running);
        }
    }
}

/// The end of a trail: collects what is sent of a response, and records when it is done, or broken off.
#[derive(Debug)]
pub(crate) struct Ending {
    /// Until the end is recorded.
    trail: Option<Arc<Trail>>,
    body: Option<Vec<u8>>,
    yaml: bool,
}

impl Ending {
    /// The end of a response with this head; `keeps` says whether its body is looked at.
    pub(crate) fn new(trail: Arc<Trail>, keeps: bool, yaml: bool) -> Self {
        Self { trail: Some(trail), body: keeps.then(Vec::new), yaml }
    }

    /// All of the response is there; whoever sends the end of it waits first.
    pub(crate) fn finish(mut self) -> Written {
        self.record()
    }

    fn record(&mut self) -> Written {
        let trail = self.trail.take();
        trail.map_or_else(Written::default, |trail| trail.complete(self.body.as_deref(), self.yaml))
    }

    pub(crate) fn sent(&mut self, bytes: &[u8]) {
        if let Some(body) = &mut self.body {
            if body.len() + bytes.len() > LARGEST_RESPONSE {
                self.body = None;
            } else {
                body.extend_from_slice(bytes);
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        drop(self.record());
    }
}
