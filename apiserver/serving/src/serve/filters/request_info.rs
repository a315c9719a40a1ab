//! Requests whose path names no resource where there has to be one. No filter sees them.
//!
//! Follows `WithRequestInfo` in `k8s.io/apiserver/pkg/endpoints/filters`.

use http::{Method, Response, Version, request::Parts, uri::PathAndQuery};

use super::{audit_init::audit_id, internal_error, without_body};
use crate::{
    http::{Body, RequestInfo, query::Query, response},
    serve::{
        chain::{Chain, Connection},
        record::Record,
        stream::{Ends, outgoing},
    },
};

pub(in crate::serve) fn refuse(
    chain: &Chain,
    connection: &Connection,
    mut parts: Parts,
    info: &RequestInfo,
    query: &Query,
) -> Response<Body> {
    // The user stays unknown, and unknown users may not keep an HTTP/2 connection.
    if parts.version == Version::HTTP_2 {
        connection.close.cancel();
    }
    let mut record = Record::new(chain.metrics.clone(), info, &parts.method, &parts.headers, query, false);
    let target = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
    let why = format!("failed to create RequestInfo: unable to determine kind and namespace from url, {target}");
    let mut answer = internal_error(&parts.uri, &why);
    answer.headers_mut().insert(response::AUDIT_ID, audit_id(&mut parts.headers));
    if parts.method == Method::HEAD {
        answer = without_body(answer);
    }
    record.answered(answer.status(), false);
    let ends = Ends::At(record.received() + chain.request_timeout);
    answer.map(|body| outgoing(body, record, ends))
}
