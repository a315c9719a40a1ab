//! The audit id of a request, which names it in the log, in audit events and in the answer.
//!
//! Follows `WithAuditInit` in `k8s.io/apiserver/pkg/endpoints/filters`.

use http::{HeaderMap, HeaderValue, Response};
use tracing::{Span, field};
use uuid::Uuid;

use super::Head;
use crate::http::{Body, RequestInfo, response};

/// The longest audit id that is echoed, in bytes; longer ones are replaced.
const MAX_AUDIT_ID: usize = 1024;
/// How much of it is logged, as upstream.
const LOGGED_AUDIT_ID: usize = 64;

pub(super) fn audit_id(headers: &mut HeaderMap) -> HeaderValue {
    let given = headers.get(response::AUDIT_ID).filter(|id| !id.is_empty() && id.len() <= MAX_AUDIT_ID);
    if let Some(given) = given {
        return given.clone();
    }
    let id = HeaderValue::from_str(&Uuid::new_v4().to_string()).expect("a UUID is a header value");
    headers.insert(response::AUDIT_ID, id.clone());
    id
}

pub(in crate::serve) fn span(info: &RequestInfo, head: &Head) -> Span {
    tracing::info_span!(
        "request",
        audit_id = head.audit_id.to_str().map_or("", |id| id.get(..LOGGED_AUDIT_ID).unwrap_or(id)),
        method = %head.method,
        verb = info.verb,
        path = info.path,
        user = field::Empty,
    )
}

pub(in crate::serve) fn echo(answer: &mut Response<Body>, head: &Head) {
    answer.headers_mut().insert(response::AUDIT_ID, head.audit_id.clone());
}
