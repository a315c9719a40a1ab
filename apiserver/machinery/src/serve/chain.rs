//! What happens to a request between the socket and the API: the filters, in upstream's order.
//!
//! Follows `DefaultBuildHandlerChain` in `k8s.io/apiserver/pkg/server/config.go`, outermost first: panic recovery,
//! audit id, request info, cache control, deadline, authentication, impersonation, in-flight limit, authorization.
//! A filter that refuses answers with a `Status`, and nothing behind it runs.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};
use uuid::Uuid;

use super::{
    Handler, VersionInfo,
    deadline::{is_long_running, time_allowed, timed_out},
    health::Health,
    inflight::InFlight,
    metrics::{Metrics, Record},
    stream::{Ends, outgoing},
};
use crate::{
    auth::{
        ANONYMOUS, Authenticator, Authorizer, Credentials, Decision, PeerCertificates, chain, clear_standard_headers,
        forbidden, impersonate,
    },
    http::{Body, RequestInfo, body, query::Query, response},
    request::{RequestContext, UserInfo},
    status::ApiError,
};

/// The longest audit id that is echoed, in bytes; longer ones are replaced.
const MAX_AUDIT_ID: usize = 1024;
/// How much of it is logged, as upstream.
const LOGGED_AUDIT_ID: usize = 64;

/// What the requests of one connection share.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The certificates that the peer presented.
    pub(crate) certificates: Option<PeerCertificates>,
    /// Ends the connection after the requests it has; an HTTP/2 client hears GOAWAY.
    pub(crate) close: CancellationToken,
}

/// The filters, and what stands behind them.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) authenticator: Arc<dyn Authenticator>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) in_flight: InFlight,
    pub(crate) request_timeout: Duration,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) version: VersionInfo,
    pub(crate) handler: Arc<dyn Handler>,
    /// Ends what would go on for ever.
    pub(crate) stop_streams: CancellationToken,
}

/// A request on its way through the filters.
struct Passing {
    info: RequestInfo,
    long_running: bool,
    request: Request<Body>,
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
        let long_running = is_long_running(&info, &query);
        let metrics = self.metrics.clone();
        let mut record = Record::new(metrics, &info, &parts.method, &parts.headers, &query, long_running);
        let audit_id = audit_id(&mut parts.headers);
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

        let allowed = if long_running { Ok(Duration::MAX) } else { time_allowed(&query, self.request_timeout) };
        let deadline = allowed.map(|allowed| record.received().checked_add(allowed));
        let outcome = match deadline.clone() {
            Err(error) => Err(error),
            Ok(deadline) => {
                let body = incoming.map_err(std::io::Error::other).boxed_unsync();
                let passing = Passing { info, long_running, request: Request::from_parts(parts, body) };
                let filters = Box::pin(self.filters(&connection, passing, &mut record));
                in_time(deadline, AssertUnwindSafe(filters).catch_unwind()).instrument(span.clone()).await
            }
        };
        let mut response = match outcome {
            Ok(response) => response,
            Err(error) => {
                if error.code() == 504 && error == timed_out() {
                    record.terminated(504);
                }
                response::error(&error, &accepts)
            }
        };
        if is_head {
            response = without_body(response);
        }
        let headers = response.headers_mut();
        headers.insert(response::AUDIT_ID, audit_id);
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        let code = response.status();
        let took = record.received().elapsed();
        span.in_scope(|| tracing::debug!(code = code.as_u16(), ?took, "answered"));
        record.answered(code, is_watch);
        let ends = if long_running {
            Ends::With(self.stop_streams.clone())
        } else {
            Ends::At(deadline.ok().flatten().unwrap_or(record.received() + self.request_timeout))
        };
        response.map(|body| outgoing(body, record, ends))
    }

    async fn filters(
        &self,
        connection: &Connection,
        passing: Passing,
        record: &mut Record,
    ) -> Result<Response<Body>, ApiError> {
        let Passing { info, long_running, mut request } = passing;
        let mut user = self.authenticate(connection, &mut request).await?;
        match impersonate(request.headers_mut(), &user, &*self.authorizer).await {
            Ok(None) => {}
            Ok(Some(impersonated)) => {
                tracing::info!(user = user.name, impersonated = impersonated.name, "impersonation");
                user = impersonated;
            }
            Err(error) => return Ok(refusal(&error, request.headers())),
        }
        Span::current().record("user", &user.name);
        if !long_running {
            record.permit = self.in_flight.begin(&user, &info).inspect_err(|error| record.terminated(error.code()))?;
        }
        if let Err(error) = self.authorize(&user, &info).await {
            return Ok(refusal(&error, request.headers()));
        }
        Ok(self.dispatch(info, user, request).await)
    }

    async fn authenticate(&self, connection: &Connection, request: &mut Request<Body>) -> Result<UserInfo, ApiError> {
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

    async fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<(), ApiError> {
        let began = Instant::now();
        let attributes = info.attributes();
        let decision = self.authorizer.authorize(user, &attributes).await;
        let result = match &decision {
            Ok(Decision::Allow) => "allowed",
            Ok(Decision::Deny(_)) => "denied",
            Err(_) => "error",
        };
        self.metrics.authorized(result, began.elapsed());
        match decision? {
            Decision::Allow => Ok(()),
            Decision::Deny(reason) => Err(forbidden(user, &attributes, &reason)),
        }
    }

    /// The server's own paths, and the API for all others.
    async fn dispatch(&self, info: RequestInfo, user: UserInfo, request: Request<Body>) -> Response<Body> {
        if !info.is_resource_request {
            match info.path.as_str() {
                "/metrics" => return self.metrics.render(),
                "/version" | "/version/" if request.method() == Method::GET => return self.version(),
                "/version" | "/version/" => {
                    let error = response::generic(StatusCode::METHOD_NOT_ALLOWED);
                    return response::error(&error, request.headers());
                }
                "/" => return self.paths(),
                path => {
                    if let Some(answer) = self.health.serve(path, request.uri().query()).await {
                        return answer;
                    }
                }
            }
        }
        let context = RequestContext::new(user, self.authorizer.clone());
        self.handler.handle(info, context, request).await
    }

    /// What the server has at its root: the paths that it serves.
    fn paths(&self) -> Response<Body> {
        let mut paths = self.handler.paths();
        paths.extend(self.health.paths());
        paths.extend(["/metrics", "/version"].map(str::to_owned));
        paths.sort();
        let text = serde_json::to_vec_pretty(&serde_json::json!({ "paths": paths })).expect("texts serialize");
        let mut response = Response::new(body::full(Bytes::from(text)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    fn version(&self) -> Response<Body> {
        let text = serde_json::to_vec_pretty(&self.version).expect("strings serialize");
        let mut response = Response::new(body::full(Bytes::from(text)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// Waits for the filters until the deadline; a panic in them is a 500 that says nothing.
async fn in_time<F>(deadline: Option<Instant>, filters: F) -> Result<Response<Body>, ApiError>
where
    F: Future<Output = std::thread::Result<Result<Response<Body>, ApiError>>>,
{
    let outcome = match deadline {
        None => filters.await,
        Some(deadline) => match tokio::time::timeout_at(deadline.into(), filters).await {
            Ok(outcome) => outcome,
            Err(_) => return Err(timed_out()),
        },
    };
    outcome.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        tracing::error!(panic = message, "a request caused a panic");
        Err(ApiError::new(
            500,
            "InternalError",
            "This request caused apiserver to panic. Look in the logs for details.",
        ))
    })
}

/// An answer's head alone, with the length of what would follow where that is known.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(parts, body::empty())
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
