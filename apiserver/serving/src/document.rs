//! Documents that are encoded once and served with an entity tag: discovery and OpenAPI.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use sha2::{Digest, Sha512};
use stoa_meta::json;

#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) body: Bytes,
    /// The SHA-512 of its JSON in upper-case hexadecimal, as upstream.
    pub(crate) hash: String,
}

impl Document {
    pub(crate) fn new(value: &impl Serialize) -> Self {
        let json = json::to_vec(value).expect("a document has text keys only, so it serializes");
        let hash = hexadecimal(&Sha512::digest(&json));
        Self { body: json.into(), hash }
    }

    /// The same document with a line's end, as Go's encoder writes objects. It does not count for the hash.
    pub(crate) fn with_line_end(self) -> Self {
        Self { body: [&self.body[..], b"\n"].concat().into(), ..self }
    }

    /// The same document in another form. The hash stays: responses vary by `Accept`.
    pub(crate) fn in_another_form(&self, body: Vec<u8>) -> Self {
        Self { body: body.into(), hash: self.hash.clone() }
    }

    /// 200 with the document, or 304 when the client has it already.
    pub(crate) fn respond(&self, request: &HeaderMap, headers: &[(HeaderName, &str)]) -> Response<Bytes> {
        let whole = self.whole(headers);
        // Upstream takes the tag alone, as its clients send it.
        let has_already = request.get(header::IF_NONE_MATCH).is_some_and(|named| *named == self.tag());
        if has_already { not_modified(whole) } else { whole }
    }

    pub(crate) fn whole(&self, headers: &[(HeaderName, &str)]) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        set(&mut response, header::ETAG, &self.tag());
        set(&mut response, header::VARY, "Accept");
        for (name, value) in headers {
            set(&mut response, name.clone(), value);
        }
        response
    }

    fn tag(&self) -> String {
        format!("{:?}", self.hash)
    }
}

pub(crate) fn not_modified(mut whole: Response<Bytes>) -> Response<Bytes> {
    *whole.status_mut() = StatusCode::NOT_MODIFIED;
    // What is not sent has no type.
    for name in [header::CONTENT_TYPE, header::LAST_MODIFIED] {
        whole.headers_mut().remove(name);
    }
    whole.map(|_| Bytes::new())
}

pub(crate) fn plain(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    if !text.is_empty() {
        set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    }
    response
}

/// What Go's mux says of paths it does not know.
pub(crate) fn not_found() -> Response<Bytes> {
    let mut response = plain(StatusCode::NOT_FOUND, "404 page not found\n");
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

pub(crate) fn set(response: &mut Response<Bytes>, name: HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("headers of documents are made of visible ASCII");
    response.headers_mut().insert(name, value);
}

/// The `Accept` header; a client that sends none takes anything.
pub(crate) fn accept(headers: &HeaderMap) -> &str {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.is_empty() { "*/*" } else { accept }
}

/// Whether the client says by `If-None-Match` that it has what is under this tag.
pub(crate) fn has_already(request: &HeaderMap, tag: &str) -> bool {
    let Some(named) = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()) else { return false };
    named.split(',').map(str::trim).any(|named| named == "*" || named.trim_start_matches("W/") == tag)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}
