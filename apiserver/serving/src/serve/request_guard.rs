//! Malformed requests, which are refused before any filter sees them.
//!
//! Follows `readRequest` and `serve` in Go's `net/http`, whose refusals these are, and for HTTP/2 `newWriterAndRequest`; the
//! parser in front of this refuses what it cannot read, with an empty answer or a reset.

use h2::Reason;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use stoa_cel::go::is_escaped_well;

use crate::http::{Body, body};

/// The answer to a request that goes no further, or why its stream is reset; `None` for all others.
pub(super) fn refused<B>(request: &Request<B>) -> Option<Result<Response<Body>, h2::Error>> {
    let refused = match request.version() {
        Version::HTTP_10 | Version::HTTP_11 => unanswerable(request).map(Ok),
        Version::HTTP_2 if !has_target(request) || names_user(request) => Some(Err(Reason::PROTOCOL_ERROR.into())),
        _ => None,
    };
    // The server is asked, and no path of it.
    let is_about_server = request.method() == Method::OPTIONS && request.uri().path() == "*";
    refused.or_else(|| is_about_server.then(|| Ok(Response::new(body::empty()))))
}

/// Whether a request is for a path, if it has to be.
fn has_target<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    request.method() == Method::CONNECT || path == "*" || path.starts_with('/') && is_escaped_well(path)
}

/// Whether the host that a request is for has a user's name before it.
fn names_user<B>(request: &Request<B>) -> bool {
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    request.method() != Method::CONNECT && authority.contains('@')
}

/// The answer to a request of HTTP/1 that is none or asks for what there is not.
fn unanswerable<B>(request: &Request<B>) -> Option<Response<Body>> {
    let headers = request.headers();
    if let Some(why) = unusable_host(request.version(), headers) {
        return Some(refusal(StatusCode::BAD_REQUEST, why));
    }
    if !has_target(request) {
        return Some(refusal(StatusCode::BAD_REQUEST, "400 Bad Request"));
    }
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if !headers.get_all(header::TRANSFER_ENCODING).iter().all(is_chunked) {
        return Some(refusal(StatusCode::NOT_IMPLEMENTED, "Unsupported transfer encoding"));
    }
    let continues = |value: &HeaderValue| value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    let is_refused = headers.get(header::EXPECT).is_some_and(|value| !continues(value));
    is_refused.then(|| ending(StatusCode::EXPECTATION_FAILED, body::empty()))
}

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
    use http::Uri;

    use super::*;

    fn code(method: &str, target: &str, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        refused(&request.body(()).unwrap()).map(|answer| answer.unwrap().status().as_u16())
    }

    /// What becomes of a request of HTTP/2: the code of an answer, or why it is reset.
    fn over_http2(method: &str, host: &str, path: &'static str) -> Option<Result<u16, Reason>> {
        let target = Uri::builder().scheme("https").authority(host).path_and_query(path).build().unwrap();
        let request = Request::builder().version(Version::HTTP_2).method(method).uri(target).body(()).unwrap();
        let refused = refused(&request)?;
        Some(refused.map(|answer| answer.status().as_u16()).map_err(|error| error.reason().unwrap()))
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
        assert_eq!(over_http2("GET", "a:443", "/a"), None);
        assert_eq!(over_http2("GET", "ann@a", "/a"), Some(Err(Reason::PROTOCOL_ERROR)));
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
        for path in ["/a%", "/a%2", "/a%zz/b"] {
            assert_eq!(over_http2("GET", "a", path), Some(Err(Reason::PROTOCOL_ERROR)), "{path}");
        }
        assert_eq!(over_http2("GET", "a", "/a%2fb?c=%"), None);
        assert_eq!(over_http2("OPTIONS", "a", "*"), Some(Ok(200)));
        assert_eq!(over_http2("GET", "a", "*"), None);
    }

    #[test]
    fn what_is_asked_for_besides_is_understood_or_refused() {
        assert_eq!(code("POST", "/a", &[("host", "a"), ("transfer-encoding", "Chunked")]), None);
        assert_eq!(code("POST", "/a", &[("host", "a"), ("transfer-encoding", "gzip, chunked")]), Some(501));
        assert_eq!(code("POST", "/a", &[("host", "a"), ("expect", "100-Continue")]), None);
        assert_eq!(code("POST", "/a", &[("host", "a"), ("expect", "200-ok")]), Some(417));
    }
}
