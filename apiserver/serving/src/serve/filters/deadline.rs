//! The deadline of a request, by which it is answered.
//!
//! Follows `WithRequestDeadline` in `k8s.io/apiserver/pkg/endpoints/filters`, and `WithTimeoutForNonLongRunningRequests`.

use std::time::{Duration, Instant};

use http::{HeaderValue, Response, StatusCode, header};
use stoa_meta::status::ApiError;

use crate::{
    duration::parse_duration,
    http::{Body, RequestInfo, body, query::Query},
    serve::debug,
};

/// Whether a request goes on until the client has enough: a watch, a log that is followed, or a profile.
pub(crate) fn is_long_running(info: &RequestInfo, query: &Query) -> bool {
    if info.verb == "watch" {
        return true;
    }
    if !info.is_resource_request {
        return info.path.starts_with(debug::PROFILES);
    }
    info.subresource == "log" && query.flag("follow").unwrap_or(false)
}

/// How long a request may take: at most `most`, less when its `timeout` parameter says so, as in Go durations.
/// Fails with 400 when `timeout` is no duration.
pub(crate) fn time_allowed(query: &Query, most: Duration) -> Result<Duration, ApiError> {
    let Some(text) = query.first("timeout").filter(|text| !text.is_empty()) else { return Ok(most) };
    let asked = parse_duration(text).map_err(|problem| {
        ApiError::bad_request(format!("invalid timeout specified in the request URL - {problem}"))
    })?;
    Ok(if asked.is_zero() { most } else { asked.min(most) })
}

/// When a request is answered at the latest; `None` where it goes on by its nature.
/// Fails with 400 when `timeout` is no duration.
pub(crate) fn end(
    query: &Query,
    long_running: bool,
    received: Instant,
    most: Duration,
) -> Result<Option<Instant>, ApiError> {
    let allowed = if long_running { Ok(Duration::MAX) } else { time_allowed(query, most) };
    allowed.map(|allowed| received.checked_add(allowed))
}

pub(crate) async fn within(
    end: Option<Instant>,
    answer: impl Future<Output = Response<Body>>,
) -> Option<Response<Body>> {
    match end {
        None => Some(answer.await),
        // What is ready at once would be done in no time at all.
        Some(end) if end <= Instant::now() => None,
        Some(end) => tokio::time::timeout_at(end.into(), answer).await.ok(),
    }
}

pub(crate) fn timed_out() -> ApiError {
    ApiError::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
}

/// How it is told. It comes from outside all handlers, so that it is JSON under another name and has no kind.
///
/// Follows `baseTimeoutWriter.timeout` in `k8s.io/apiserver/pkg/server/filters`.
pub(crate) fn too_late() -> Response<Body> {
    let error = timed_out();
    let status = serde_json::json!({
        "metadata": {},
        "status": "Failure",
        "message": error.message(),
        "reason": error.reason(),
        "details": {},
        "code": error.code(),
    });
    let mut response = Response::new(body::full(format!("{status}\n")));
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn timeout_query_only_shortens_request_time() {
        let most = Duration::from_secs(60);
        let allowed = |query: &str| time_allowed(&Query::parse(query), most).map(|time| time.as_secs());
        assert_eq!(allowed(""), Ok(60));
        assert_eq!(allowed("timeout="), Ok(60));
        assert_eq!(allowed("timeout=32s"), Ok(32));
        assert_eq!(allowed("timeout=1h"), Ok(60));
        assert_eq!(allowed("timeout=0s"), Ok(60));
        let refused = |query: &str| allowed(query).unwrap_err().message().to_owned();
        let why = "invalid timeout specified in the request URL - time:";
        assert_eq!(refused("timeout=soon"), format!(r#"{why} invalid duration "soon""#));
        assert_eq!(refused("timeout=5"), format!(r#"{why} missing unit in duration "5""#));
        assert_eq!(refused("timeout=5sx"), format!(r#"{why} unknown unit "sx" in duration "5sx""#));
    }

    #[test]
    fn watches_followed_logs_and_profiles_have_no_end() {
        let check = |target: &str| {
            let uri: http::Uri = target.parse().unwrap();
            is_long_running(&RequestInfo::new(&Method::GET, &uri), &Query::parse(uri.query().unwrap_or("")))
        };
        assert!(check("/apis/g.io/v1/stacks?watch=true"));
        assert!(check("/apis/g.io/v1/namespaces/a/runs/r/log?follow=true"));
        assert!(!check("/apis/g.io/v1/namespaces/a/runs/r/log"));
        assert!(!check("/apis/g.io/v1/stacks"));
        assert!(!check("/metrics?watch=true&follow=true"));
        assert!(check("/debug/pprof/profile?seconds=90"));
        assert!(!check("/debug/pprof"));
        // A method that somebody made up is the verb of a path that is no resource's.
        let made_up = RequestInfo::new(&"WATCH".parse().unwrap(), &"/version".parse().unwrap());
        assert!(is_long_running(&made_up, &Query::parse("")));
    }
}
