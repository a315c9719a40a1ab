//! Content negotiation: which form and format a response takes, and which a request's body has.
//!
//! JSON and YAML are spoken; protobuf and CBOR are not, which clients that prefer them expect of
//! some servers and handle. Follows `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`.

use http::{HeaderMap, header};

use crate::status::ApiError;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;

/// A format of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

impl MediaType {
    /// In the order of preference, for clients that take anything.
    const ALL: [Self; 2] = [Self::Json, Self::Yaml];

    /// As in a `Content-Type` header.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }

    fn subtype(self) -> &'static str {
        &self.as_str()["application/".len()..]
    }
}

/// What a client wants instead of the objects themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    /// `Table`.
    Table,
    /// `PartialObjectMetadata`.
    Partial,
    /// `PartialObjectMetadataList`.
    PartialList,
}

/// The form and format that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The format.
    pub(crate) media: MediaType,
    /// The form and its version in group `meta.k8s.io`, if it isn't the objects themselves.
    pub(crate) convert: Option<(Convert, &'static str)>,
}

/// One of the alternatives in an `Accept` header.
pub(crate) struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f64,
    params: Vec<(&'a str, &'a str)>,
}

/// The clauses of an `Accept` header, the most wanted first; malformed ones are left out.
pub(crate) fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = accept.split(',').filter_map(parse_clause).collect();
    clauses.sort_by(|a, b| {
        let wildcards = |c: &Clause<'_>| (c.kind == "*", c.subtype == "*");
        b.quality.total_cmp(&a.quality).then_with(|| wildcards(a).cmp(&wildcards(b)))
    });
    clauses
}

fn parse_clause(clause: &str) -> Option<Clause<'_>> {
    let mut pieces = clause.split(';');
    let (kind, subtype) = match pieces.next()?.trim() {
        "*" => ("*", "*"),
        range => range.split_once('/').filter(|(_, subtype)| !subtype.contains('/'))?,
    };
    let mut quality = 1.0;
    let mut params = Vec::new();
    for (name, value) in pieces.filter_map(|piece| piece.split_once('=')) {
        match name.trim() {
            "q" => quality = value.trim().parse().unwrap_or(0.0),
            name => params.push((name, value.trim())),
        }
    }
    Some(Clause { kind: kind.trim(), subtype: subtype.trim(), quality, params })
}

impl Clause<'_> {
    /// A parameter other than `q`.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Whether it asks for exactly this type.
    pub(crate) fn names(&self, kind: &str, subtype: &str) -> bool {
        (self.kind, self.subtype) == (kind, subtype)
    }

    /// Whether a response of this type would do.
    pub(crate) fn covers(&self, media: MediaType) -> bool {
        match (self.kind, self.subtype) {
            ("*", "*") | ("application", "*") => true,
            ("application", subtype) => subtype == media.subtype(),
            _ => false,
        }
    }

    /// The form that the parameters ask for; nothing when this server has no such form.
    fn accepted(&self, media: MediaType, conversions: bool) -> Option<Accepted> {
        let (mut kind, mut group, mut version) = (None, None, None);
        for &(name, value) in &self.params {
            match name {
                "as" => kind = Some(value),
                "g" => group = Some(value),
                "v" => version = Some(value),
                "stream" if !value.is_empty() && (value != "watch" || media != MediaType::Json) => return None,
                "sv" if !value.is_empty() && value != "v1" => return None,
                _ => {}
            }
        }
        if kind.is_none() && group.is_none() && version.is_none() {
            return Some(Accepted { media, convert: None });
        }
        if !conversions || group != Some("meta.k8s.io") {
            return None;
        }
        let version = ["v1", "v1beta1"].into_iter().find(|v| version == Some(v))?;
        let convert = match kind? {
            "Table" => Convert::Table,
            "PartialObjectMetadata" => Convert::Partial,
            "PartialObjectMetadataList" => Convert::PartialList,
            _ => return None,
        };
        Some(Accepted { media, convert: Some((convert, version)) })
    }
}

fn negotiate(headers: &HeaderMap, conversions: bool) -> Option<Accepted> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.is_empty() {
        return Some(Accepted { media: MediaType::Json, convert: None });
    }
    clauses(accept).iter().find_map(|clause| {
        MediaType::ALL
            .into_iter()
            .filter(|media| clause.covers(*media))
            .find_map(|media| clause.accepted(media, conversions))
    })
}

/// The position of the media type that the client wants most of those on offer, the first of several that it wants alike.
pub(crate) fn preferred(headers: &HeaderMap, offered: &[&str]) -> Option<usize> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.is_empty() {
        return (!offered.is_empty()).then_some(0);
    }
    clauses(accept).iter().find_map(|clause| {
        offered.iter().position(|media| {
            let (kind, subtype) = media.split_once('/').unwrap_or((media, ""));
            (clause.kind == "*" || clause.kind == kind) && (clause.subtype == "*" || clause.subtype == subtype)
        })
    })
}

/// 406 for a client that takes none of the formats.
pub(crate) fn none_accepted(headers: &HeaderMap) -> ApiError {
    check_produced(headers, &[], false).err().unwrap_or_else(|| {
        not_acceptable("only the following media types are accepted: application/json, application/yaml")
    })
}

/// What to answer a request with.
///
/// # Errors
///
/// 406 `NotAcceptable`, with the formats there are.
pub(crate) fn output(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    negotiate(headers, true).ok_or_else(|| none_accepted(headers))
}

/// Refuses a client that names none of the formats that a route makes, JSON, YAML and those `besides`, before anything
/// is negotiated.
///
/// Follows go-restful, which compares types only, letter by letter: neither parameters nor ranges such as
/// `application/*` count.
///
/// # Errors
///
/// 406 `NotAcceptable`.
pub(crate) fn check_produced(headers: &HeaderMap, besides: &[&str], streams: bool) -> Result<(), ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let made = ["*/*", MediaType::Json.as_str(), MediaType::Yaml.as_str()];
    let named = |range: &str| {
        let range = range.split(';').next().unwrap_or("").trim();
        made.contains(&range) || besides.contains(&range)
    };
    if accept.is_empty() || accept.split(',').any(named) {
        return Ok(());
    }
    let besides: String = besides.iter().map(|media| format!("{media}, ")).collect();
    let stream = if streams { ", application/json;stream=watch" } else { "" };
    let mut error = not_acceptable(format!(
        "406: Not Acceptable\n\nAvailable representations: {besides}application/json, application/yaml{stream}"
    ));
    error.0.details = Some(Default::default());
    Err(error)
}

/// What to answer a watch with; only JSON can be framed.
///
/// # Errors
///
/// 406 `NotAcceptable`.
pub(crate) fn watch_output(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    let accepted = output(headers)?;
    match accepted.media {
        MediaType::Json => Ok(accepted),
        MediaType::Yaml => {
            Err(not_acceptable("only the following media types are accepted: application/json;stream=watch"))
        }
    }
}

/// The format of an error, which is never converted. A client that takes none gets JSON, since the error matters more.
pub(crate) fn status_output(headers: &HeaderMap) -> MediaType {
    negotiate(headers, false).map_or(MediaType::Json, |accepted| accepted.media)
}

/// 406.
pub(crate) fn not_acceptable(message: impl Into<String>) -> ApiError {
    ApiError::new(406, "NotAcceptable", message)
}

/// The media type of a request's body, without its parameters; empty when none is told.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// The format of a request's body; JSON when none is told.
///
/// # Errors
///
/// 415 `UnsupportedMediaType`, with the formats there are.
pub(crate) fn input(headers: &HeaderMap) -> Result<MediaType, ApiError> {
    let content_type = content_type(headers);
    if content_type.is_empty() {
        return Ok(MediaType::Json);
    }
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    // A parameter without a value makes it no media type.
    if value.split(';').skip(1).any(|parameter| !parameter.trim().is_empty() && !parameter.contains('=')) {
        return Err(unknown_input());
    }
    MediaType::ALL.into_iter().find(|media| media.as_str() == content_type).ok_or_else(unknown_input)
}

/// 415 for a body in a format that is not spoken.
pub(crate) fn unknown_input() -> ApiError {
    unsupported_media_type(&MediaType::ALL.map(MediaType::as_str))
}

/// Whether a request's body is Kubernetes' protobuf.
pub(crate) fn is_protobuf(headers: &HeaderMap) -> bool {
    content_type(headers) == "application/vnd.kubernetes.protobuf"
}

/// 415, with what would be taken.
pub(crate) fn unsupported_media_type(accepted: &[&str]) -> ApiError {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    ApiError::new(415, "UnsupportedMediaType", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[track_caller]
    fn check(accept: &str, expected: Option<(MediaType, Option<(Convert, &'static str)>)>) {
        let got = output(&headers(header::ACCEPT, accept)).ok().map(|a| (a.media, a.convert));
        assert_eq!(got, expected, "{accept}");
    }

    #[test]
    fn the_first_alternative_that_is_spoken_wins() {
        use Convert::{Partial, PartialList, Table};
        use MediaType::{Json, Yaml};
        check("", Some((Json, None)));
        check("*/*", Some((Json, None)));
        check("application/*", Some((Json, None)));
        check("application/yaml", Some((Yaml, None)));
        check("application/json;q=0.5, application/yaml", Some((Yaml, None)));
        check("*/*, application/yaml", Some((Yaml, None)));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some((Json, Some((Table, "v1")))));
        check(
            "application/json;as=Table;v=v9;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            Some((Json, Some((Table, "v1beta1")))),
        );
        check("application/json;as=Table;v=v9;g=meta.k8s.io, application/json", Some((Json, None)));
        check(
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Some((Json, Some((Partial, "v1")))),
        );
        check(
            "application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some((Yaml, Some((PartialList, "v1")))),
        );
        check("application/json;stream=watch", Some((Json, None)));
        check("application/yaml;stream=watch", None);
        check("application/vnd.kubernetes.protobuf", None);
        check("application/cbor", None);
        check("text/html", None);
        check("application/json;as=Stack;v=v1;g=meta.k8s.io", None);
    }

    #[test]
    fn refusals_name_what_is_spoken() {
        let error = output(&headers(header::ACCEPT, "application/cbor")).unwrap_err();
        assert_eq!((error.code(), error.reason()), (406, "NotAcceptable"));
        let representations = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml";
        assert_eq!(error.message(), representations);
        let error = output(&headers(header::ACCEPT, "application/json;as=Stack;v=v1;g=meta.k8s.io")).unwrap_err();
        assert_eq!(error.message(), "only the following media types are accepted: application/json, application/yaml");
        assert!(check_produced(&headers(header::ACCEPT, "application/*"), &[], false).is_err());

        let error = watch_output(&headers(header::ACCEPT, "application/yaml")).unwrap_err();
        assert_eq!(error.message(), "only the following media types are accepted: application/json;stream=watch");

        let error = input(&headers(header::CONTENT_TYPE, "application/vnd.kubernetes.protobuf")).unwrap_err();
        assert_eq!((error.code(), error.reason()), (415, "UnsupportedMediaType"));
        assert_eq!(
            error.message(),
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
        );
    }

    #[test]
    fn errors_are_never_tables() {
        assert_eq!(
            status_output(&headers(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml")),
            MediaType::Yaml
        );
        assert_eq!(status_output(&headers(header::ACCEPT, "text/html")), MediaType::Json);
    }

    #[test]
    fn body_formats_are_told_by_content_type() {
        assert_eq!(input(&HeaderMap::new()).unwrap(), MediaType::Json);
        assert_eq!(input(&headers(header::CONTENT_TYPE, "application/json; charset=utf-8")).unwrap(), MediaType::Json);
        assert_eq!(input(&headers(header::CONTENT_TYPE, "application/YAML")).unwrap(), MediaType::Yaml);
    }
}
