//! The audit event of a request: begun once the user is known, and ended with the answer.
//!
//! Follows `WithAudit` in `k8s.io/apiserver/pkg/endpoints/filters`.

use std::{ops::ControlFlow, time::Instant};

use http::{Method, Response, header};
use hyper::body::Body as _;

use super::{Filtered, Head, Passing, internal_error};
use crate::{
    audit::{Begun, Ending, NotStored, Trail},
    http::{Body, response},
    serve::record::Record,
};

/// Records that the request arrived, if the policy wants it. Nothing is done that a strict log did not store.
pub(in crate::serve) async fn begin(passing: &mut Passing<'_>) -> Filtered {
    let begun = passing.chain.auditor.as_ref().and_then(|auditor| Trail::begin(auditor, passing.recorded()));
    passing.begun.hold(begun.clone());
    if let Some(begun) = &begun
        && let Err(NotStored) = begun.arrived().await
    {
        // Nothing follows that the log could record.
        drop(passing.begun.take());
        return ControlFlow::Break(internal_error(passing.request.uri(), "failed to store audit event"));
    }
    passing.trail = begun;
    passing.audited = Instant::now();
    passing.chain.metrics.audited(passing.audited.duration_since(passing.authenticated));
    ControlFlow::Continue(())
}

/// Records the answer's head, and has the end recorded with the last byte of the body; waits for both until `due` where the
/// log is one that is waited for.
pub(in crate::serve) async fn answered(
    begun: &Begun,
    head: &Head,
    record: &mut Record,
    answer: &mut Response<Body>,
    due: Option<Instant>,
) {
    let code = answer.status();
    let started = begun.take().map(|trail| {
        let failure = answer.extensions().get::<response::Failure>();
        let started = trail.answered(code, head.long_running, failure.map(|failure| &*failure.0));
        // A Status says more than its code; other objects count only where they are asked for, documents never.
        let keeps = match failure {
            Some(_) => false,
            None if head.long_running || answer.extensions().get::<response::UnknownPath>().is_some() => false,
            None => {
                let failed = code.is_client_error() || code.is_server_error();
                trail.wants_response() && head.answers_objects || head.method == Method::DELETE || failed
            }
        };
        let content_type = answer.headers().get(header::CONTENT_TYPE);
        let yaml = content_type.is_some_and(|value| value.as_bytes().ends_with(b"yaml"));
        record.ending = Some(Ending::new(trail, keeps, yaml));
        started
    });
    if let Some(started) = started {
        started.until(due).await;
    }
    // A body without bytes is never polled to its end.
    let is_empty = answer.body().is_end_stream();
    if let Some(ending) = record.ending.take_if(|_| is_empty) {
        ending.finish().until(due).await;
    }
}
