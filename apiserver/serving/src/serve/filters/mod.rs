//! The filters of a request, each in a module named after its filter in `k8s.io/apiserver`.
//!
//! Their order is in [`chain`](super::chain). A filter gets the [`Passing`] request and breaks with an answer where it refuses
//! it. [`Head`] is what answering needs of a request that the handler has taken.

use std::{ops::ControlFlow, sync::Arc, time::Instant};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header, request::Parts, uri::PathAndQuery,
};
use hyper::body::Body as _;
use jiff::Timestamp;
use stoa_meta::{
    request::{RequestContext, UserInfo},
    status::{ApiError, quote},
};

use super::{
    chain::{Chain, Connection},
    pretty::Lines,
    record::Record,
};
use crate::{
    audit::{self as trail, Begun, Recorded, Trail},
    http::{Body, RequestInfo, body, query::Query, response},
};

pub(super) mod audit;
pub(super) mod audit_init;
pub(super) mod authentication;
pub(super) mod authorization;
pub(super) mod cache_control;
pub(super) mod deadline;
pub(super) mod impersonation;
pub(super) mod in_flight;
pub(super) mod panic_recovery;
pub(super) mod request_info;

pub(super) type Filtered = ControlFlow<Response<Body>>;

pub(super) struct Head {
    method: Method,
    pub(super) long_running: bool,
    pub(super) is_watch: bool,
    /// Whether a good answer is an object rather than a document.
    answers_objects: bool,
    /// How JSON is written for a person, if one asks.
    lines: Option<Lines>,
    audit_id: HeaderValue,
    received: Timestamp,
}

impl Head {
    pub(super) fn new(info: &RequestInfo, query: &Query, parts: &mut Parts) -> Self {
        let long_running = deadline::is_long_running(info, query);
        Self {
            method: parts.method.clone(),
            long_running,
            is_watch: long_running && info.verb == "watch",
            answers_objects: info.is_resource_request || info.path == "/apis" || info.path.starts_with("/apis/"),
            lines: Lines::wanted(query, &parts.headers),
            received: Timestamp::now(),
            audit_id: audit_init::audit_id(&mut parts.headers),
        }
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    pub(super) async fn in_lines(&self, answer: Response<Body>) -> Response<Body> {
        match self.lines {
            Some(lines) => lines.set(answer).await,
            None => answer,
        }
    }
}

async fn refuse(head: &Head, answer: Response<Body>) -> Filtered {
    ControlFlow::Break(head.in_lines(answer).await)
}

/// A request on its way through the filters.
pub(super) struct Passing<'a> {
    chain: &'a Chain,
    connection: &'a Connection,
    head: &'a Head,
    begun: &'a Begun,
    record: &'a mut Record,
    info: RequestInfo,
    request: Request<Body>,
    user: UserInfo,
    /// When the user was known, and when the audit log had the request.
    authenticated: Instant,
    audited: Instant,
    trail: Option<Arc<Trail>>,
}

impl<'a> Passing<'a> {
    pub(super) fn new(
        chain: &'a Chain,
        connection: &'a Connection,
        head: &'a Head,
        begun: &'a Begun,
        record: &'a mut Record,
        info: RequestInfo,
        request: Request<Body>,
    ) -> Self {
        let (authenticated, audited) = (record.received(), record.received());
        let (user, trail) = (UserInfo::default(), None);
        Self { chain, connection, head, begun, record, info, request, user, authenticated, audited, trail }
    }

    fn headers(&self) -> &HeaderMap {
        self.request.headers()
    }

    fn recorded(&self) -> Recorded<'_> {
        Recorded {
            audit_id: &self.head.audit_id,
            uri: self.request.uri(),
            headers: self.headers(),
            user: &self.user,
            info: &self.info,
            source_ips: trail::source_ips(self.headers(), self.connection.peer),
            received: self.head.received,
        }
    }

    /// The answer to a request whose user is not known; the audit log has it without one.
    ///
    /// Follows `WithFailedAuthenticationAudit` and `WithFailedRequestAudit` upstream.
    pub(super) fn unauthenticated(&self, error: &ApiError) -> Response<Body> {
        if let Some(auditor) = &self.chain.auditor {
            self.begun.hold(trail::of_unknown_sender(auditor, self.recorded()));
        }
        response::error(error, self.headers())
    }

    /// The answer to a user who may not do that: no browser shall take the names in it for anything but text.
    fn forbidden(&self, error: &ApiError) -> Response<Body> {
        let mut refusal = response::error(error, self.headers());
        refusal.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        refusal
    }

    pub(super) async fn handle(mut self, end: Option<Instant>) -> Response<Body> {
        let chain = self.chain;
        if let Some(trail) = &self.trail {
            trail.prepare(self.request.headers_mut());
        }
        let mut context = RequestContext::new(self.user, chain.authorizer.clone());
        context.share_waits(&self.record.waits);
        context.set_outlasting(&chain.outlasting);
        if let Some(end) = end {
            context.end_by(end.into());
        }
        let answer = chain.dispatch(self.info, context, self.request, self.trail.as_ref()).await;
        if chain.lists_paths && answer.extensions().get::<response::UnknownPath>().is_some() {
            let mut index = chain.index(StatusCode::NOT_FOUND);
            index.extensions_mut().insert(response::UnknownPath);
            return index;
        }
        answer
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

/// An answer's head alone, with the length of what would follow where that is known.
pub(super) fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(parts, body::empty())
}
