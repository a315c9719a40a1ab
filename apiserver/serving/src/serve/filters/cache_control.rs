//! Answers are nobody else's: no cache keeps one, unless its handler says otherwise.
//!
//! Follows `WithCacheControl` in `k8s.io/apiserver/pkg/endpoints/filters`.

use http::{HeaderValue, Response, header};

use crate::http::Body;

pub(in crate::serve) fn forbid(answer: &mut Response<Body>) {
    let headers = answer.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
}
