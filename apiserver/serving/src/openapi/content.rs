//! Conditions and ranges in requests for a document.
//!
//! Follows `ServeContent` in Go's `net/http`.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use jiff::civil::DateTime;

use crate::document;

/// Answers a request for a document that has its tag and the time it was made: with the `whole` of it or a part, or that
/// the client has it already (304), has asked for another one (412) or for no part of it (416).
pub(super) fn serve(method: &Method, request: &HeaderMap, mut whole: Response<Bytes>) -> Response<Bytes> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let tag = text(whole.headers(), header::ETAG).unwrap_or_default().to_owned();
    let made = text(whole.headers(), header::LAST_MODIFIED).and_then(http_time);
    let is_unchanged_since = |name| Some(made? <= http_time(text(request, name)?)?);

    let is_wanted = if_match(request, &tag).or_else(|| is_unchanged_since(header::IF_UNMODIFIED_SINCE));
    let has_already = text(request, header::IF_NONE_MATCH).map(|_| document::has_already(request, &tag));
    if is_wanted == Some(false) || (has_already == Some(true) && !reads) {
        *whole.status_mut() = StatusCode::PRECONDITION_FAILED;
        return whole.map(|_| Bytes::new());
    }
    if reads && has_already.or_else(|| is_unchanged_since(header::IF_MODIFIED_SINCE)) == Some(true) {
        return document::not_modified(whole);
    }

    let is_same = || match text(request, header::IF_RANGE).filter(|_| reads) {
        None => true,
        // A `W` alone may be that of a Wednesday.
        Some(named) if named.starts_with('"') || named.starts_with("W/") => named == tag,
        Some(time) => http_time(time).is_some_and(|time| Some(time) == made),
    };
    let size = whole.body().len();
    let ranges = match text(request, header::RANGE).filter(|_| is_same()).map(|named| ranges(named, size)) {
        None => Vec::new(),
        Some(Ok(ranges)) => ranges,
        Some(Err(why)) => return unsatisfiable(why, whole),
    };
    whole.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    match ranges.as_slice() {
        [range] => {
            *whole.status_mut() = StatusCode::PARTIAL_CONTENT;
            document::set(&mut whole, header::CONTENT_RANGE, &content_range(range, size));
            whole.map(|bytes| bytes.slice(range.clone()))
        }
        // Several parts are never sent: a client has to take the whole instead.
        _ => whole,
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().filter(|text| !text.is_empty())
}

fn http_time(text: &str) -> Option<DateTime> {
    DateTime::strptime("%a, %d %b %Y %H:%M:%S GMT", text).ok()
}

/// Whether the client wants what is under this tag, if it says which; weak tags match nothing here.
fn if_match(request: &HeaderMap, tag: &str) -> Option<bool> {
    let named = text(request, header::IF_MATCH)?;
    Some(named.split(',').map(str::trim).any(|named| named == "*" || named == tag))
}

/// Why ranges are none of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsatisfiable {
    Malformed,
    BeyondItsEnd,
}

/// The ranges that a header names which a document of `size` bytes has.
fn ranges(named: &str, size: usize) -> Result<Vec<Range<usize>>, Unsatisfiable> {
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<usize>().map_err(|_| Unsatisfiable::Malformed),
        false => Err(Unsatisfiable::Malformed),
    };
    let listed = named.strip_prefix("bytes=").ok_or(Unsatisfiable::Malformed)?;
    let mut ranges = Vec::new();
    let mut beyond = false;
    for range in listed.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (start, end) = range.split_once('-').ok_or(Unsatisfiable::Malformed)?;
        match (start.trim(), end.trim()) {
            ("", last) => ranges.push(size - number(last)?.min(size)..size),
            (start, _) if number(start)? >= size => beyond = true,
            (start, "") => ranges.push(number(start)?..size),
            (start, end) => {
                let (start, end) = (number(start)?, number(end)?);
                if start > end {
                    return Err(Unsatisfiable::Malformed);
                }
                ranges.push(start..end.min(size - 1) + 1);
            }
        }
    }
    if beyond && ranges.is_empty() { Err(Unsatisfiable::BeyondItsEnd) } else { Ok(ranges) }
}

fn content_range(range: &Range<usize>, size: usize) -> String {
    // Nothing ends before it begins, as in Go.
    format!("bytes {}-{}/{size}", range.start, range.end.wrapping_sub(1))
}

fn unsatisfiable(why: Unsatisfiable, mut whole: Response<Bytes>) -> Response<Bytes> {
    let size = whole.body().len();
    *whole.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    for name in [header::CACHE_CONTROL, header::ETAG, header::LAST_MODIFIED] {
        whole.headers_mut().remove(name);
    }
    document::set(&mut whole, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    document::set(&mut whole, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if why == Unsatisfiable::BeyondItsEnd {
        document::set(&mut whole, header::CONTENT_RANGE, &format!("bytes */{size}"));
    }
    whole.map(|_| {
        Bytes::from_static(match why {
            Unsatisfiable::Malformed => b"invalid range\n",
            Unsatisfiable::BeyondItsEnd => b"invalid range: failed to overlap\n",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "\"T\"";
    const MADE: &str = "Wed, 25 Nov 2026 02:06:17 GMT";

    fn ask(method: &Method, headers: &[(HeaderName, &str)]) -> Response<Bytes> {
        let mut whole = Response::new(Bytes::from_static(b"0123456789"));
        for (name, value) in
            [(header::ETAG, TAG), (header::LAST_MODIFIED, MADE), (header::CONTENT_TYPE, "application/json")]
        {
            document::set(&mut whole, name, value);
        }
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        serve(method, &headers.collect(), whole)
    }

    #[test]
    fn conditions_are_looked_at_first() {
        let code = |method: Method, name: HeaderName, value: &str| ask(&method, &[(name, value)]).status().as_u16();
        for (name, value, expected) in [
            (header::IF_NONE_MATCH, "*", 304),
            (header::IF_NONE_MATCH, "\"other\", W/\"T\"", 304),
            (header::IF_NONE_MATCH, "\"other\"", 200),
            (header::IF_MATCH, TAG, 200),
            (header::IF_MATCH, "*", 200),
            (header::IF_MATCH, "W/\"T\"", 412),
            (header::IF_MODIFIED_SINCE, MADE, 304),
            (header::IF_MODIFIED_SINCE, "Wed, 25 Nov 2026 02:06:16 GMT", 200),
            (header::IF_MODIFIED_SINCE, "yesterday", 200),
            (header::IF_UNMODIFIED_SINCE, MADE, 200),
            (header::IF_UNMODIFIED_SINCE, "Wed, 25 Nov 2026 02:06:16 GMT", 412),
        ] {
            assert_eq!(code(Method::GET, name.clone(), value), expected, "{name}: {value}");
        }
        assert_eq!(code(Method::POST, header::IF_NONE_MATCH, "*"), 412);
        assert_eq!(code(Method::POST, header::IF_MODIFIED_SINCE, MADE), 200);
        // The tag says more than the time.
        let both = [(header::IF_NONE_MATCH, "\"other\""), (header::IF_MODIFIED_SINCE, MADE)];
        assert_eq!(ask(&Method::GET, &both).status(), StatusCode::OK);

        let not_modified = ask(&Method::GET, &[(header::IF_NONE_MATCH, TAG)]);
        assert_eq!(not_modified.headers().keys().collect::<Vec<_>>(), ["etag"]);
        assert!(not_modified.body().is_empty());
        assert!(ask(&Method::GET, &[(header::IF_MATCH, "\"other\"")]).body().is_empty());
    }

    #[test]
    fn parts_are_sent_alone() {
        let range = |value: &str| {
            let response = ask(&Method::GET, &[(header::RANGE, value)]);
            let range = text(response.headers(), header::CONTENT_RANGE).unwrap_or_default().to_owned();
            (response.status().as_u16(), range, String::from_utf8(response.body().to_vec()).unwrap())
        };
        let part = |range: &str, text: &str| (206, range.to_owned(), text.to_owned());
        assert_eq!(range("bytes=0-2"), part("bytes 0-2/10", "012"));
        assert_eq!(range("bytes=7-"), part("bytes 7-9/10", "789"));
        assert_eq!(range("bytes=-2"), part("bytes 8-9/10", "89"));
        assert_eq!(range("bytes=-20"), part("bytes 0-9/10", "0123456789"));
        assert_eq!(range("bytes=8-20, 99-"), part("bytes 8-9/10", "89"));
        assert_eq!(range("bytes=10-"), (416, "bytes */10".to_owned(), "invalid range: failed to overlap\n".to_owned()));
        for malformed in ["lines=1-2", "bytes=2", "bytes=2-1", "bytes=-", "bytes=+1-2", "bytes=--1"] {
            assert_eq!(range(malformed), (416, String::new(), "invalid range\n".to_owned()), "{malformed}");
        }
        // Several parts.
        assert_eq!(range("bytes=0-1,-1"), (200, String::new(), "0123456789".to_owned()));
    }

    #[test]
    fn parts_are_of_what_the_client_has() {
        for (condition, expected) in [(TAG, 206), ("\"other\"", 200), ("W/\"T\"", 200), (MADE, 206), ("yesterday", 200)]
        {
            let headers = [(header::RANGE, "bytes=0-2"), (header::IF_RANGE, condition)];
            let response = ask(&Method::GET, &headers);
            assert_eq!(response.status().as_u16(), expected, "{condition}");
            assert_eq!(response.headers()[header::ACCEPT_RANGES], "bytes");
        }
    }
}
