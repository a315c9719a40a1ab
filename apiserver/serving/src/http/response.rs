//! Writing responses: objects, errors as `Status`, and the headers that all of them carry.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use stoa_meta::{
    json,
    request::RequestContext,
    status::{self, ApiError},
};
use uuid::Uuid;

use super::{
    body::{self, Body, Pieces},
    encoding,
    negotiate::{self, MediaType},
    render::RenderedList,
    segments::{self, Segments},
};

/// Names a request in logs and audit events; echoed when the request has it already.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Shorter bodies are not worth compressing.
const GZIP_FROM_BYTES: usize = 128 * 1024;

/// Answers with a body that is JSON in pieces, as `media`; compressed when `request` asks for it and there is much.
pub(crate) fn json(
    code: StatusCode,
    media: MediaType,
    request: &HeaderMap,
    mut pieces: Pieces,
) -> Result<Response<Body>, ApiError> {
    let mut start = Vec::new();
    let limit = match media {
        MediaType::Json => GZIP_FROM_BYTES,
        MediaType::Yaml => usize::MAX - 1,
    };
    let more = body::fill(&mut pieces, &mut start, limit);
    if media == MediaType::Yaml {
        start = to_yaml(&start)?;
    }
    let gzip = start.len() > GZIP_FROM_BYTES && accepts_gzip(request);
    let mut response = stream(media, body::streamed(start, more.then_some(pieces), gzip));
    *response.status_mut() = code;
    if gzip {
        name_encoding(&mut response);
    }
    Ok(response)
}

/// Answers with a list, as `media`; compressed from segments when `request` asks for it and there is much.
pub(crate) fn list(
    media: MediaType,
    request: &HeaderMap,
    list: RenderedList,
    segments: &Arc<Segments>,
) -> Result<Response<Body>, ApiError> {
    if media == MediaType::Json && accepts_gzip(request) && list.is_longer_than(GZIP_FROM_BYTES) {
        let mut response = stream(media, segments::body(list, Arc::clone(segments)));
        name_encoding(&mut response);
        return Ok(response);
    }
    json(StatusCode::OK, media, request, list.pieces())
}

/// An answer whose body is known as a whole; compressed when that is `taken` and there is much.
pub(crate) fn whole(parts: http::response::Parts, body: Bytes, gzip_taken: bool) -> Response<Body> {
    let gzip = gzip_taken && body.len() > GZIP_FROM_BYTES;
    let mut response = Response::from_parts(parts, body::full(if gzip { encoding::gzip(&body) } else { body }));
    if gzip {
        name_encoding(&mut response);
    }
    response
}

fn name_encoding(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// Answers with a body that is sent as it comes, and never compressed.
pub(crate) fn stream(media: MediaType, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media.as_str()));
    response
}

fn to_yaml(json: &[u8]) -> Result<Vec<u8>, ApiError> {
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "an object does not encode as YAML");
        ApiError::internal("the object does not encode as YAML")
    };
    let value: serde_json::Value = serde_json::from_slice(json).map_err(|e| failed(&e))?;
    serde_saphyr::to_string(&value).map(String::into_bytes).map_err(|e| failed(&e))
}

pub(crate) fn accepts_gzip(request: &HeaderMap) -> bool {
    let encodings = request.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or("");
    encodings.split(',').any(|encoding| encoding.trim() == "gzip")
}

/// What an answer tells of a failure, kept beside its body for whoever records it.
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) Arc<Status>);

/// The response that tells a client of an error: a `Status` in a format that `request` accepts, or JSON if it
/// accepts none, with `Retry-After` where the error says when.
pub fn error(error: &ApiError, request: &HeaderMap) -> Response<Body> {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let negotiated = negotiate::status_output(request)
        .and_then(|media| json(code, media, request, body::once(status::encode(&error.0))).ok());
    // As upstream writes it for a client that takes none of its formats, such as one that accepts nothing but tables.
    let mut response = negotiated.unwrap_or_else(|| {
        let mut plain = stream(MediaType::Json, body::full(json::in_lines(&status::encode(&error.0))));
        *plain.status_mut() = code;
        plain
    });
    let retry_after = error.0.details.as_ref().and_then(|details| details.retry_after_seconds).filter(|s| *s > 0);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(Failure(Arc::new((*error.0).clone())));
    response
}

/// Marks the answer to a path that nothing is known of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownPath;

/// 404 in plain text, for paths that nothing is known of.
pub fn page_not_found() -> Response<Body> {
    let mut response = text(StatusCode::NOT_FOUND, "404 page not found\n");
    response.extensions_mut().insert(UnknownPath);
    response
}

/// An answer in plain text, which no browser shall take for anything else; such as `http.Error` of Go writes it.
pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(body::full(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds the headers that every response has, unless it has them already.
pub(crate) fn finish(response: &mut Response<Body>, audit_id: Option<HeaderValue>, context: &RequestContext) {
    let headers = response.headers_mut();
    let audit_id = audit_id
        .unwrap_or_else(|| HeaderValue::from_str(&Uuid::new_v4().to_string()).expect("a UUID is a header value"));
    headers.entry(AUDIT_ID).or_insert(audit_id);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    for warning in warnings(&context.take_warnings()) {
        headers.append(header::WARNING, warning);
    }
}

/// The most characters that all warnings of a response may have together before each is cut.
const WARNING_CHARS: usize = 4 * 1024;
/// What each is cut to.
const CUT_WARNING_CHARS: usize = 256;

/// `Warning` headers, each text once, bounded as `k8s.io/apiserver/pkg/endpoints/filters` bounds them: all of them are cut
/// once they are too long together, and from then on the one that passes the limit is the last.
fn warnings(texts: &[String]) -> Vec<HeaderValue> {
    let mut seen = HashSet::new();
    let unique: Vec<&str> =
        texts.iter().map(String::as_str).filter(|text| !text.is_empty() && seen.insert(*text)).collect();
    let (mut told, mut chars) = (Vec::new(), 0);
    let too_many = unique.iter().position(|text| {
        let Some(header) = warning(text) else { return false };
        chars += text.chars().count();
        told.push(header);
        chars > WARNING_CHARS
    });
    let Some(over) = too_many else { return told };
    (told, chars) = (Vec::new(), 0);
    for (place, text) in unique.into_iter().enumerate() {
        if place > over && chars >= WARNING_CHARS {
            break;
        }
        let cut: String = text.chars().take(CUT_WARNING_CHARS).collect();
        if let Some(header) = warning(&cut) {
            chars += cut.chars().count();
            told.push(header);
        }
    }
    told
}

/// One header; a text with control characters has none.
fn warning(text: &str) -> Option<HeaderValue> {
    if text.chars().any(char::is_control) {
        return None;
    }
    let quoted = format!("299 - \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    HeaderValue::from_bytes(quoted.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn error_without_accepted_format_has_indentation() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, indented) in [(table.to_owned(), true), (format!("{table},application/json"), false)] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            let response = error(&ApiError::bad_request("no"), &headers);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            let text = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!((text.starts_with(b"{\n  \""), text.ends_with(b"\n}")), (indented, indented), "{accept}");
        }
    }

    #[test]
    fn warnings_are_quoted_and_given_once() {
        let texts = ["unknown field \"spec.x\"", "a\\b", "unknown field \"spec.x\"", "", "line\nbreak"];
        let headers = warnings(&texts.map(str::to_owned));
        assert_eq!(headers, [r#"299 - "unknown field \"spec.x\"""#, r#"299 - "a\\b""#]);
    }

    /// To compare each with each would take minutes.
    #[test]
    fn each_of_very_many_warnings_is_looked_at_once() {
        let texts: Vec<_> = (0..200_000).chain(0..200_000).map(|n| format!("{n:0>300}")).collect();
        assert_eq!(warnings(&texts).len(), WARNING_CHARS / CUT_WARNING_CHARS);
    }

    #[test]
    fn too_many_warnings_are_cut() {
        let texts: Vec<_> = (0..40).map(|n| format!("{n}{}", "x".repeat(1000))).collect();
        let headers = warnings(&texts);
        assert_eq!(headers.len(), WARNING_CHARS / CUT_WARNING_CHARS);
        assert!(headers.iter().all(|header| header.len() == CUT_WARNING_CHARS + r#"299 - """#.len()));
    }

    #[test]
    fn warning_limit_drops_later_warnings() {
        let texts = |lengths: &[usize]| -> Vec<String> {
            let long = lengths.iter().enumerate();
            long.map(|(n, length)| format!("{n:0>2}{}", "\u{e9}".repeat(length - 2))).collect()
        };
        let full = [256; 16];
        assert_eq!(warnings(&texts(&full)).len(), 16, "they fit");
        // What was told before is told again, cut, and then what there is no room for.
        assert_eq!(warnings(&texts(&[&full[..], &[3, 3]].concat())).len(), 17);
        assert_eq!(warnings(&texts(&[&[4000][..], &full].concat())).len(), 16);
        assert_eq!(warnings(&texts(&[4097])).len(), 1);
        // A text that is cut before its control character has one no more.
        let broken = format!("{}\n", "x".repeat(300));
        assert_eq!(warnings(std::slice::from_ref(&broken)).len(), 0);
        let cut = warnings(&[broken, "y".repeat(4097)]);
        assert_eq!(cut, ["x", "y"].map(|c| format!("299 - \"{}\"", c.repeat(256))));
    }
}
