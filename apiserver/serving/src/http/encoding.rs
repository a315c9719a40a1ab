//! Compression of whole answers with gzip.

use std::io::Write as _;

use bytes::Bytes;
use http::{HeaderMap, header};

pub(crate) fn gzip(plain: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let written = encoder.write_all(plain).and_then(|()| encoder.finish());
    written.expect("memory takes whatever is written").into()
}

/// The codings that a client names, each with its weight.
fn codings(request: &HeaderMap) -> impl Iterator<Item = (&str, f64)> {
    let values = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
        (name.trim(), weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
    })
}

/// Whether a client takes gzip at all, as `github.com/NYTimes/gziphandler` reads it.
pub(crate) fn takes_gzip(request: &HeaderMap) -> bool {
    codings(request).any(|(name, weight)| name.eq_ignore_ascii_case("gzip") && weight > 0.0)
}

/// Whether a client takes gzip rather than nothing, as `NegotiateContentEncoding` of
/// `github.com/prometheus/client_golang` reads it: what is wanted alike is not compressed.
pub(crate) fn prefers_gzip(request: &HeaderMap) -> bool {
    let weight = |wanted: &str| {
        let weights = codings(request).filter(|(name, _)| *name == "*" || *name == wanted);
        weights.map(|(_, weight)| weight).fold(-1.0, f64::max)
    };
    let gzip = weight("gzip");
    gzip > 0.0 && gzip > weight("identity")
}
