//! The handler chain: the filters that a request passes before the API answers it.
//!
//! Start at [`Chain::serve`], which lists them, outermost first, in the order of `DefaultBuildHandlerChain` in
//! `k8s.io/apiserver/pkg/server/config.go`. A filter that refuses a request answers it, and nothing behind it runs.
//!
//! Elsewhere: each filter is a module of `filters`; `routes` is behind the last of them.

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use stoa_meta::{authorizer::Authorizer, request::Outlasting};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    Handler, VersionInfo,
    filters::{
        Filtered, Head, Passing, audit, audit_init, authentication, authorization, cache_control, deadline,
        impersonation, in_flight, panic_recovery, request_info, without_body,
    },
    h2_executor::Due,
    health::Health,
    inflight::InFlight,
    metrics::Metrics,
    record::Record,
    stream::{Ends, is_short, outgoing},
    write_buffer::LongAnswers,
};
use crate::{
    audit::{Auditor, Begun},
    auth::{Authenticator, Impersonation, PeerCertificates},
    http::{Body, RequestInfo, query::Query},
};

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) certificates: Option<PeerCertificates>,
    pub(crate) peer: SocketAddr,
    /// Ends the connection after the requests it has; an HTTP/2 client hears GOAWAY.
    pub(crate) close: CancellationToken,
    pub(super) long_answers: LongAnswers,
}

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
    pub(crate) auditor: Option<Arc<Auditor>>,
    pub(crate) handler: Arc<dyn Handler>,
    /// What would go on for ever, until it is ended.
    pub(crate) outlasting: Outlasting,
    pub(crate) profiling: bool,
    /// Whether whoever asks for a path that there is not is told of those that there are.
    pub(crate) lists_paths: bool,
}

impl Chain {
    pub(crate) async fn serve(
        self: Arc<Self>,
        connection: Arc<Connection>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::new(&parts.method, &parts.uri);
        if info.lacks_resource() {
            return request_info::refuse(&self, &connection, parts, &info, &query);
        }
        let head = Head::new(&info, &query, &mut parts);
        let metrics = self.metrics.clone();
        let mut record = Record::new(metrics, &info, &parts.method, &parts.headers, &query, head.long_running);
        let trail = Begun::new(head.long_running);
        let span = audit_init::span(&info, &head);
        let end = deadline::end(&query, head.long_running, record.received(), self.request_timeout);
        let request = Request::from_parts(parts, body.map_err(std::io::Error::other).boxed_unsync());
        let due = (!head.long_running).then(|| {
            let end = end.as_ref().ok().copied().flatten();
            end.unwrap_or_else(|| record.received() + self.request_timeout)
        });

        // WithPanicRecovery, WithAuditInit, WithRequestInfo, WithRequestDeadline and WithTimeout are around the others.
        let passing = Passing::new(&self, &connection, &head, &trail, &mut record, info, request);
        let answer = match end {
            Err(error) => {
                let answer = passing.unauthenticated(&error);
                drop(passing);
                Some(head.in_lines(answer).await)
            }
            Ok(end) => {
                let filters = Box::pin(Self::filters(passing, end));
                deadline::within(end, panic_recovery::recover(filters, &trail)).instrument(span.clone()).await
            }
        };
        let mut answer = answer.unwrap_or_else(|| {
            record.terminated(504);
            deadline::too_late()
        });
        if head.is_head() {
            answer = without_body(answer);
        }
        audit_init::echo(&mut answer, &head);
        cache_control::forbid(&mut answer);
        authentication::warn(&mut answer, &record);
        let (code, took) = (answer.status(), record.received().elapsed());
        span.in_scope(|| tracing::debug!(code = code.as_u16(), ?took, "answered"));
        record.answered(code, head.is_watch);
        audit::answered(&trail, &head, &mut record, &mut answer, due).await;

        let ends = match due {
            None => Ends::With(self.outlasting.end.clone(), connection.long_answers.begin()),
            Some(due) => {
                if !is_short(answer.body()) {
                    answer.extensions_mut().insert(Due(due));
                }
                Ends::At(due)
            }
        };
        answer.map(|body| outgoing(body, record, ends))
    }

    async fn filters(mut passing: Passing<'_>, end: Option<Instant>) -> Response<Body> {
        match Self::pass(&mut passing).await {
            ControlFlow::Continue(()) => passing.handle(end).await,
            ControlFlow::Break(answer) => answer,
        }
    }

    async fn pass(passing: &mut Passing<'_>) -> Filtered {
        authentication::authenticate(passing).await?;
        audit::begin(passing).await?;
        impersonation::impersonate(passing).await?;
        in_flight::limit(passing)?;
        authorization::authorize(passing).await
    }
}
