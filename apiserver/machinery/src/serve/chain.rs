//! What happens to a request between the socket and the API: the filters, in upstream's order.
//!
//! Follows `DefaultBuildHandlerChain` in `k8s.io/apiserver/pkg/server/config.go`, outermost first: panic recovery,
//! audit id, request info, cache control, deadline, authentication, impersonation, in-flight limit, authorization.
//! A filter that refuses answers with a `Status`, and nothing behind it runs.

use std::{
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, uri::PathAndQuery};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};
use uuid::Uuid;

use super::{
    Handler, VersionInfo,
    deadline::{is_long_running, time_allowed, too_late},
    debug,
    gather::LongAnswers,
    health::Health,
    inflight::{InFlight, TooMany, turned_away},
    metrics::Metrics,
    pretty::Lines,
    record::Record,
    statusz::Statusz,
    stream::{Ends, is_short, outgoing},
    streams::Due,
};
use crate::{
    audit::{self, Auditor, NotStored, Recorded, Trail},
    auth::{
        ANONYMOUS, Authenticator, Authorizer, Credentials, Decision, Impersonation, PeerCertificates, chain,
        clear_standard_headers, forbidden, has_blank_before_token,
    },
    http::{Body, RequestInfo, body, negotiate, query::Query, response},
    request::{Outlasting, RequestContext, UserInfo},
    status::{ApiError, quote},
};

/// The longest audit id that is echoed, in bytes; longer ones are replaced.
const MAX_AUDIT_ID: usize = 1024;
/// How much of it is logged, as upstream.
const LOGGED_AUDIT_ID: usize = 64;
/// What a client is warned of that has two blanks before its token.
const BLANK_TOKEN: &str =
    r#"299 - "the provided Authorization header contains extra space before the bearer token, and is ignored""#;
/// What a client hears whose request caused a panic.
const PANICKED: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The certificates that the peer presented.
    pub(crate) certificates: Option<PeerCertificates>,
    /// Who connected.
    pub(crate) peer: SocketAddr,
    /// Ends the connection after the requests it has; an HTTP/2 client hears GOAWAY.
    pub(crate) close: CancellationToken,
    /// Its answers that go on for long.
    pub(super) long_answers: LongAnswers,
}

/// The filters, and what stands behind them.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) impersonation: Impersonation,
    pub(crate) in_flight: InFlight,
    pub(crate) request_timeout: Duration,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) version: VersionInfo,
    /// Records requests, where that is asked for.
    pub(crate) auditor: Option<Arc<Auditor>>,
    pub(crate) handler: Arc<dyn Handler>,
    /// What would go on for ever, until it is ended.
    pub(crate) outlasting: Outlasting,
    /// Whether profiles are served.
    pub(crate) profiling: bool,
    /// Whether whoever asks for a path that there is not is told of those that there are.
    pub(crate) lists_paths: bool,
}

/// A request on its way through the filters.
struct Passing {
    info: RequestInfo,
    long_running: bool,
    request: Request<Body>,
    audit_id: HeaderValue,
    received: Timestamp,
    lines: Option<Lines>,
    end: Option<Instant>,
}

/// Why the filters gave no answer.
enum Failed {
    /// Time was up.
    Late,
    Panicked,
    /// Something about the request.
    Request(ApiError),
}

impl Chain {
    /// Answers a request.
    pub(crate) async fn serve(
        self: Arc<Self>,
        connection: Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (mut parts, incoming) = request.into_parts();
        let info = RequestInfo::new(&parts.method, &parts.uri);
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        if info.lacks_resource() {
            // Nobody is asked who they are, so that they are strangers, who may not keep an HTTP/2 connection.
            if parts.version == Version::HTTP_2 {
                connection.close.cancel();
            }
            let mut record = Record::new(self.metrics.clone(), &info, &parts.method, &parts.headers, &query, false);
            let response = unreadable(&parts.method, &parts.uri, audit_id(&mut parts.headers));
            record.answered(response.status(), false);
            let ends = Ends::At(record.received() + self.request_timeout);
            return response.map(|body| outgoing(body, record, ends));
        }
        let long_running = is_long_running(&info, &query);
        let lines = Lines::wanted(&query, &parts.headers);
        let metrics = self.metrics.clone();
        let mut record = Record::new(metrics, &info, &parts.method, &parts.headers, &query, long_running);
        let received = Timestamp::now();
        let audit_id = audit_id(&mut parts.headers);
        let trail = audit::Begun::new(long_running);
        // What the answer's format depends on, for when the request itself is gone.
        let mut accepts = HeaderMap::new();
        for value in parts.headers.get_all(header::ACCEPT) {
            accepts.append(header::ACCEPT, value.clone());
        }
        let span = tracing::info_span!(
            "request",
            audit_id = audit_id.to_str().map_or("", |id| id.get(..LOGGED_AUDIT_ID).unwrap_or(id)),
            method = %parts.method,
            verb = info.verb,
            path = info.path,
            user = field::Empty,
        );
        let is_head = parts.method == Method::HEAD;
        let is_watch = long_running && info.verb == "watch";
        let method = parts.method.clone();
        let answers_objects = info.is_resource_request || info.path == "/apis" || info.path.starts_with("/apis/");

        let allowed = if long_running { Ok(Duration::MAX) } else { time_allowed(&query, self.request_timeout) };
        let deadline = allowed.map(|allowed| record.received().checked_add(allowed));
        let outcome = match deadline.clone() {
            Err(error) => {
                let of = (&info, &parts.uri, &parts.headers);
                trail.hold(self.trail_of_failure(&connection, of, &audit_id, received));
                Err(Failed::Request(error))
            }
            Ok(deadline) => {
                let body = incoming.map_err(std::io::Error::other).boxed_unsync();
                let passing = Passing {
                    info,
                    long_running,
                    request: Request::from_parts(parts, body),
                    audit_id: audit_id.clone(),
                    received,
                    lines,
                    end: deadline,
                };
                let filters = Box::pin(self.filters(&connection, passing, &mut record, &trail));
                in_time(deadline, AssertUnwindSafe(filters).catch_unwind(), &trail).instrument(span.clone()).await
            }
        };
        let mut response = match outcome {
            Ok(response) => response,
            Err(Failed::Late) => {
                record.terminated(504);
                too_late()
            }
            Err(Failed::Request(error)) => in_lines(response::error(&error, &accepts), lines).await,
            Err(Failed::Panicked) => response::text(StatusCode::INTERNAL_SERVER_ERROR, PANICKED),
        };
        if is_head {
            response = without_body(response);
        }
        let headers = response.headers_mut();
        headers.insert(response::AUDIT_ID, audit_id);
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        if record.blank_token {
            headers.append(header::WARNING, HeaderValue::from_static(BLANK_TOKEN));
        }
        let code = response.status();
        let took = record.received().elapsed();
        span.in_scope(|| tracing::debug!(code = code.as_u16(), ?took, "answered"));
        record.answered(code, is_watch);
        let due = (!long_running)
            .then(|| deadline.ok().flatten().unwrap_or_else(|| record.received() + self.request_timeout));
        let started = trail.take().map(|trail| {
            let failure = response.extensions().get::<response::Failure>();
            let started = trail.answered(code, long_running, failure.map(|failure| &*failure.0));
            // A Status says more than its code; other objects count only where they are asked for, documents never.
            let keeps = match failure {
                Some(_) => false,
                None if long_running || response.extensions().get::<response::UnknownPath>().is_some() => false,
                None => {
                    let failed = code.is_client_error() || code.is_server_error();
                    trail.wants_response() && answers_objects || method == Method::DELETE || failed
                }
            };
            let content_type = response.headers().get(header::CONTENT_TYPE);
            let yaml = content_type.is_some_and(|value| value.as_bytes().ends_with(b"yaml"));
            record.ending = Some(audit::Ending::new(trail, keeps, yaml));
            started
        });
        if let Some(started) = started {
            started.until(due).await;
        }
        // Nobody asks a body for its end in which there is nothing.
        let is_empty = response.body().is_end_stream();
        if let Some(ending) = record.ending.take_if(|_| is_empty) {
            ending.finish().until(due).await;
        }
        let ends = match due {
            None => Ends::With(self.outlasting.end.clone(), connection.long_answers.begin()),
            Some(due) => {
                if !is_short(response.body()) {
                    response.extensions_mut().insert(Due(due));
                }
                Ends::At(due)
            }
        };
        response.map(|body| outgoing(body, record, ends))
    }

    async fn filters(
        &self,
        connection: &Connection,
        passing: Passing,
        record: &mut Record,
        trail: &audit::Begun,
    ) -> Result<Response<Body>, ApiError> {
        let Passing { info, long_running, mut request, audit_id, received, lines, end } = passing;
        let mut user = match self.authenticate(connection, &mut request, record).await {
            Ok(user) => user,
            Err(error) => {
                let of = (&info, request.uri(), request.headers());
                trail.hold(self.trail_of_failure(connection, of, &audit_id, received));
                return Err(error);
            }
        };
        let authenticated = Instant::now();
        let begun = self.auditor.as_ref().and_then(|auditor| {
            let of = (&info, request.uri(), request.headers());
            Trail::begin(auditor, recorded(connection, of, &user, &audit_id, received))
        });
        trail.hold(begun.clone());
        if let Some(begun) = &begun
            && let Err(NotStored) = begun.arrived().await
        {
            // Nothing is done, of which there would be more to record.
            drop(trail.take());
            return Ok(internal_error(request.uri(), "failed to store audit event"));
        }
        let audited = Instant::now();
        self.metrics.audited(audited.duration_since(authenticated));
        let attributes = info.attributes();
        match self.impersonation.decide(request.headers_mut(), &user, &attributes, &*self.authorizer).await {
            Ok(None) => {}
            Ok(Some(impersonated)) => {
                tracing::info!(user = user.name, impersonated = impersonated.user.name, "impersonation");
                if let Some(trail) = &begun {
                    trail.impersonates(&impersonated);
                }
                user = impersonated.user;
            }
            Err(error) => return Ok(in_lines(refusal(&error, request.headers()), lines).await),
        }
        self.metrics.impersonated(audited.elapsed());
        if let Some(trail) = &begun {
            trail.waited("authentication", authenticated.duration_since(record.received()));
        }
        Span::current().record("user", &user.name);
        if !long_running {
            match self.in_flight.begin(&user, &info) {
                Ok(permit) => record.permit = permit,
                Err(TooMany) => {
                    record.terminated(429);
                    return Ok(turned_away());
                }
            }
        }
        match self.authorize(&user, &info, begun.as_deref()).await {
            Ok(Decision::Allow(_)) => {}
            Ok(Decision::Deny(reason)) => {
                let error = forbidden(&user, &info.attributes(), &reason);
                return Ok(in_lines(refusal(&error, request.headers()), lines).await);
            }
            Err(error) => return Ok(internal_error(request.uri(), error.message())),
        }
        if let Some(trail) = &begun {
            trail.prepare(request.headers_mut());
        }
        let mut context = RequestContext::new(user, self.authorizer.clone());
        context.share_waits(&record.waits);
        context.set_outlasting(&self.outlasting);
        if let Some(end) = end {
            context.end_by(end.into());
        }
        let answer = self.dispatch(info, context, request, begun.as_ref()).await;
        if self.lists_paths && answer.extensions().get::<response::UnknownPath>().is_some() {
            let mut index = self.index(StatusCode::NOT_FOUND);
            index.extensions_mut().insert(response::UnknownPath);
            return Ok(index);
        }
        Ok(answer)
    }

    /// What is recorded of a request that fails before it is known who sent it.
    fn trail_of_failure(
        &self,
        connection: &Connection,
        of: (&RequestInfo, &Uri, &HeaderMap),
        audit_id: &HeaderValue,
        received: Timestamp,
    ) -> Option<Arc<Trail>> {
        let auditor = self.auditor.as_ref()?;
        audit::of_unknown_sender(auditor, recorded(connection, of, &UserInfo::default(), audit_id, received))
    }

    async fn authenticate(
        &self,
        connection: &Connection,
        request: &mut Request<Body>,
        record: &mut Record,
    ) -> Result<UserInfo, ApiError> {
        let began = Instant::now();
        let credentials = Credentials { headers: request.headers(), certificates: connection.certificates.as_ref() };
        let found = self.authenticator.authenticate(credentials).await;
        let outcome = match &found {
            Ok(Some(user)) => Ok(user),
            Ok(None) => Err(false),
            Err(_) => Err(true),
        };
        self.metrics.authenticated(outcome, began.elapsed());
        // Strangers may not keep an HTTP/2 connection, which is cheap to hold and dear to serve.
        let known = outcome.is_ok_and(|user| user.name != ANONYMOUS);
        record.blank_token = !known && has_blank_before_token(request.headers());
        if !known && request.version() == Version::HTTP_2 {
            connection.close.cancel();
        }
        let user = match found {
            Ok(Some(user)) => user,
            Ok(None) => return Err(ApiError::unauthorized()),
            Err(error) => {
                tracing::warn!(error = chain(&error), "unable to authenticate the request");
                return Err(ApiError::unauthorized());
            }
        };
        self.authenticator.clear(request.headers_mut());
        request.headers_mut().remove(header::AUTHORIZATION);
        clear_standard_headers(request.headers_mut());
        Ok(user)
    }

    async fn authorize(
        &self,
        user: &UserInfo,
        info: &RequestInfo,
        trail: Option<&Trail>,
    ) -> Result<Decision, ApiError> {
        let began = Instant::now();
        let attributes = info.attributes();
        let decision = self.authorizer.authorize(user, &attributes).await;
        let result = match &decision {
            Ok(Decision::Allow(_)) => "allowed",
            Ok(Decision::Deny(_)) => "denied",
            Err(_) => "error",
        };
        self.metrics.authorized(result, began.elapsed());
        if let Some(trail) = trail {
            trail.authorized(&decision);
            trail.waited("authorization", began.elapsed());
        }
        decision
    }

    /// The server's own paths, and the API for all others.
    async fn dispatch(
        &self,
        info: RequestInfo,
        mut context: RequestContext,
        request: Request<Body>,
        trail: Option<&Arc<Trail>>,
    ) -> Response<Body> {
        if !info.is_resource_request {
            match info.path.as_str() {
                "/metrics" | "/metrics/slis" => return self.metrics(&info.path, &request),
                "/statusz" => {
                    let status =
                        Statusz { version: &self.version, started: self.metrics.started_at(), paths: self.paths() };
                    return or_failure(status.respond(request.headers()), request.headers());
                }
                "/" | "/index.html" => return self.index(StatusCode::OK),
                path => {
                    if let Some(below) = path.strip_prefix("/version")
                        && (below.is_empty() || below.starts_with('/'))
                    {
                        return or_failure(self.version(below, &request), request.headers());
                    }
                    if self.profiling
                        && let Some(answer) = debug::serve(path, request.uri().query(), &self.outlasting.end).await
                    {
                        return answer;
                    }
                    if let Some(answer) = self.health.serve(path, request.uri().query()).await {
                        return answer;
                    }
                }
            }
        }
        if let Some(trail) = trail {
            trail.dispatched(&context);
            context.set_trail(trail);
        }
        self.handler.handle(info, context, request).await
    }

    /// What was counted; counting begins anew when that is deleted, which is there for who may take profiles.
    fn metrics(&self, path: &str, request: &Request<Body>) -> Response<Body> {
        let of_health = self.health.slis().families();
        let families = if path == "/metrics/slis" { of_health } else { &self.metrics.families };
        if self.profiling && request.method() == Method::DELETE {
            families.reset();
            return response::text(StatusCode::OK, "metrics reset\n");
        }
        self.metrics.written(&families.gather(), request.headers())
    }

    /// The paths that the server has but for `/statusz`, which is the last to be added.
    fn paths(&self) -> Vec<String> {
        let mut paths = self.handler.paths();
        paths.extend(self.health.paths());
        paths.extend(["/metrics", "/metrics/slis", "/version"].map(str::to_owned));
        paths
    }

    /// What the server has at its root: the paths that it serves.
    fn index(&self, code: StatusCode) -> Response<Body> {
        let mut paths = self.paths();
        paths.push("/statusz".to_owned());
        paths.sort();
        let text = serde_json::to_vec_pretty(&serde_json::json!({ "paths": paths })).expect("texts serialize");
        let mut response = Response::new(body::full(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// `/version`, a route of go-restful upstream, to which all that is `below` it leads too.
    fn version(&self, below: &str, request: &Request<Body>) -> Result<Response<Body>, ApiError> {
        const JSON: &str = "application/json";
        if !below.bytes().all(|byte| byte == b'/') {
            return Err(response::generic(StatusCode::NOT_FOUND));
        }
        if request.method() != Method::GET {
            return Err(response::generic(StatusCode::METHOD_NOT_ALLOWED));
        }
        negotiate::check_route(request.headers(), &[JSON], &[JSON])?;
        let text = serde_json::to_vec_pretty(&self.version).expect("strings serialize");
        let mut response = Response::new(body::full(Bytes::from(text)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        Ok(response)
    }
}

/// What a trail is begun with.
fn recorded<'a>(
    connection: &Connection,
    (info, uri, headers): (&'a RequestInfo, &'a Uri, &'a HeaderMap),
    user: &'a UserInfo,
    audit_id: &'a HeaderValue,
    received: Timestamp,
) -> Recorded<'a> {
    let source_ips = audit::source_ips(headers, connection.peer);
    Recorded { audit_id, uri, headers, user, info, source_ips, received }
}

/// Waits for the filters until the deadline; a panic in them is a 500 that says nothing.
async fn in_time<F>(deadline: Option<Instant>, filters: F, trail: &audit::Begun) -> Result<Response<Body>, Failed>
where
    F: Future<Output = std::thread::Result<Result<Response<Body>, ApiError>>>,
{
    let outcome = match deadline {
        None => filters.await,
        // What is ready at once would be done in no time at all.
        Some(deadline) if deadline <= Instant::now() => return Err(Failed::Late),
        Some(deadline) => match tokio::time::timeout_at(deadline.into(), filters).await {
            Ok(outcome) => outcome,
            Err(_) => return Err(Failed::Late),
        },
    };
    let outcome = outcome.map_err(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        tracing::error!(panic = message, "a request caused a panic");
        if let Some(trail) = trail.held() {
            trail.panicked(message);
        }
        Failed::Panicked
    })?;
    outcome.map_err(Failed::Request)
}

/// The answer in lines, if that is wanted.
async fn in_lines(answer: Response<Body>, lines: Option<Lines>) -> Response<Body> {
    match lines {
        Some(lines) => lines.set(answer).await,
        None => answer,
    }
}

/// The answer when the server itself fails before it knows whether the request is allowed.
///
/// Follows `InternalError` in `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters`.
fn internal_error(uri: &Uri, why: &str) -> Response<Body> {
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let text = format!("Internal Server Error: {}: {why}\n", quote(target));
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    response::text(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// The answer to a path that names no resource where there has to be one. No filter sees such a request.
///
/// Follows `WithRequestInfo` in `k8s.io/apiserver/pkg/endpoints/filters`.
fn unreadable(method: &Method, uri: &Uri, audit_id: HeaderValue) -> Response<Body> {
    let target = uri.path_and_query().map_or("", PathAndQuery::as_str);
    let why = format!("failed to create RequestInfo: unable to determine kind and namespace from url, {target}");
    let mut response = internal_error(uri, &why);
    response.headers_mut().insert(response::AUDIT_ID, audit_id);
    if method == Method::HEAD { without_body(response) } else { response }
}

/// An answer's head alone, with the length of what would follow where that is known.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(parts, body::empty())
}

fn or_failure(answer: Result<Response<Body>, ApiError>, request: &HeaderMap) -> Response<Body> {
    answer.unwrap_or_else(|error| response::error(&error, request))
}

/// The answer to who may not do that: no browser shall take the names in it for anything but text.
fn refusal(error: &ApiError, request: &HeaderMap) -> Response<Body> {
    let mut refusal = response::error(error, request);
    refusal.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    refusal
}

/// The request's audit id, its own or a new one, which it then carries.
fn audit_id(headers: &mut HeaderMap) -> HeaderValue {
    let given = headers.get(response::AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= MAX_AUDIT_ID);
    if let Some(given) = given {
        return given.clone();
    }
    let id = HeaderValue::from_str(&Uuid::new_v4().to_string()).expect("a UUID is a header value");
    headers.insert(response::AUDIT_ID, id.clone());
    id
}
