//! What is no HTTP/1.1 request, or not one that a server has to understand: refused before any filter sees it.
//!
//! Follows `readRequest` and `serve` in Go's `net/http`, whose refusals these are; the parser in front of this refuses
//! what it cannot read, with an empty answer.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use stoa_cel::go::is_escaped_well;

use crate::http::{Body, body};

/// The answer to a request that goes no further; `None` for all others.
pub(super) fn refused<B>(request: &Request<B>) -> Option<Response<Body>> {
    if !matches!(request.version(), Version::HTTP_10 | Version::HTTP_11) {
        return None;
    }
    let headers = request.headers();
    if let Some(why) = unusable_host(request.version(), headers) {
        return Some(refusal(StatusCode::BAD_REQUEST, why));
    }
    let is_asterisk = request.uri() == "*";
    let path = request.uri().path();
    let is_path = path.starts_with('/') && is_escaped_well(path);
    if request.method() != Method::CONNECT && !is_asterisk && !is_path {
        return Some(refusal(StatusCode::BAD_REQUEST, "400 Bad Request"));
    }
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !headers.get_all(header::TRANSFER_ENCODING).iter().all(is_chunked) {
        return Some(refusal(StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding"));
    }
    let continues = |value: &HeaderValue| value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get(header::EXPECT).is_some_and(|value| !continues(value)) {
        return Some(ending(StatusCode::EXPECTATION_FAILED, body::empty()));
    }
    // The server is asked, and no path of it.
    (is_asterisk && request.method() == Method::OPTIONS).then(|| Response::new(body::empty()))
}

/// What is wrong with the host that a request is for.
fn unusable_host(version: Version, headers: &HeaderMap) -> Option<&'static str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_11 => Some("400 Bad Request: missing required Host header"),
        (Some(_), Some(_)) => Some("400 Bad Request"),
        (Some(host), None) if !host.as_bytes().iter().all(may_be_in_host) => {
            Some("400 Bad Request: malformed Host header")
        }
        _ => None,
    }
}

/// The bytes that `httpguts.ValidHostHeader` takes.
fn may_be_in_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte)
}

fn refusal(code: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = ending(code, body::full(why));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An answer that ends the connection.
fn ending(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &str, target: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refused(&request.body(()).unwrap()).map(|response| response.status().as_u16())
    }

    #[test]
    fn request_is_for_one_host() {
        assert_eq!(code("GET", "/a", &[("host", "localhost:1")]), None);
        assert_eq!(code("GET", "/a", &[("host", "")]), None);
        assert_eq!(code("GET", "/a", &[("host", "[::1]:1")]), None);
        assert_eq!(code("GET", "/a", &[]), Some(400));
        assert_eq!(code("GET", "/a", &[("host", "a"), ("host", "b")]), Some(400));
        assert_eq!(code("GET", "/a", &[("host", "a b")]), Some(400));
        let old = Request::builder().version(Version::HTTP_10).uri("/a").body(()).unwrap();
        assert!(refused(&old).is_none());
        let new = Request::builder().version(Version::HTTP_2).uri("/a").body(()).unwrap();
        assert!(refused(&new).is_none());
    }

    #[test]
    fn target_is_a_path_or_the_server() {
        let host = [("host", "a")];
        assert_eq!(code("GET", "apis", &host), Some(400));
        assert_eq!(code("GET", "/a%", &host), Some(400));
        assert_eq!(code("GET", "/a%2", &host), Some(400));
        assert_eq!(code("GET", "/a%zz/b", &host), Some(400));
        assert_eq!(code("GET", "/a%2fb?c=%", &host), None);
        assert_eq!(code("GET", "https://a/apis", &host), None);
        assert_eq!(code("OPTIONS", "*", &host), Some(200));
        assert_eq!(code("GET", "*", &host), None);
        assert_eq!(code("CONNECT", "a:443", &host), None);
    }

    #[test]
    fn what_is_asked_for_besides_is_understood_or_refused() {
        assert_eq!(code("POST", "/a", &[("host", "a"), ("transfer-encoding", "Chunked")]), None);
        assert_eq!(code("POST", "/a", &[("host", "a"), ("transfer-encoding", "gzip, chunked")]), Some(501));
        assert_eq!(code("POST", "/a", &[("host", "a"), ("expect", "100-Continue")]), None);
        assert_eq!(code("POST", "/a", &[("host", "a"), ("expect", "200-ok")]), Some(417));
    }
}
