//! Content negotiation: which form and format a response takes, and which a request's body has.
//!
//! JSON and YAML are spoken; protobuf and CBOR are not, which clients that prefer them expect of
//! some servers and handle. Follows `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`.

use http::{HeaderMap, header};
use stoa_meta::status::ApiError;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod media_type;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Yaml,
}

impl MediaType {
    /// In the order of preference, for clients that take anything.
    const ALL: [Self; 2] = [Self::Json, Self::Yaml];

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    Table,
    Partial,
    PartialList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) media: MediaType,
    /// The form and its version in group `meta.k8s.io`, if it isn't the objects themselves.
    pub(crate) convert: Option<(Convert, &'static str)>,
}

pub(crate) struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

/// So many clauses are put in order just as in Go, which has another algorithm for more. That for few takes a time that
/// grows with the square of their number, and a header has room for hundreds of thousands.
const FEW_CLAUSES: usize = 12;

/// The clauses of an `Accept` header, the most wanted first; malformed ones are left out.
///
/// Follows `github.com/munnerz/goautoneg`.
pub(crate) fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = accept.split(',').filter_map(parse_clause).collect();
    if clauses.len() > FEW_CLAUSES {
        let wildcards = |clause: &Clause<'_>| (clause.kind == "*", clause.subtype == "*");
        clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then_with(|| wildcards(a).cmp(&wildcards(b))));
        return clauses;
    }
    // What comes before what is no order there: of two clauses each may come before the other. So it is the algorithm
    // that decides, and this is that of Go's `sort.Sort` for so few.
    for next in 1..clauses.len() {
        for at in (1..=next).rev() {
            if !clauses[at].comes_before(&clauses[at - 1]) {
                break;
            }
            clauses.swap(at, at - 1);
        }
    }
    clauses
}

fn parse_clause(clause: &str) -> Option<Clause<'_>> {
    let mut pieces = clause.trim().split(';');
    let (kind, subtype) = match pieces.next()?.trim() {
        "*" => ("*", "*"),
        range => range.split_once('/').filter(|(_, subtype)| !subtype.contains('/'))?,
    };
    let mut quality = 1.0;
    let mut params = Vec::new();
    // What has no value, or more than one, is no parameter.
    let values = pieces.filter_map(|piece| piece.split_once('='));
    for (name, value) in values.filter(|(_, value)| !value.is_empty() && !value.contains('=')) {
        match name.trim() {
            "q" => quality = value.parse().unwrap_or(0.0),
            name => params.push((name, value.trim())),
        }
    }
    Some(Clause { kind: kind.trim(), subtype: subtype.trim(), quality, params })
}

impl Clause<'_> {
    fn comes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    /// A parameter other than `q`: the last of its name.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    pub(crate) fn names(&self, kind: &str, subtype: &str) -> bool {
        (self.kind, self.subtype) == (kind, subtype)
    }

    /// Whether a response of this type, such as `text/plain`, would do.
    pub(crate) fn takes(&self, media: &str) -> bool {
        let (kind, subtype) = media.split_once('/').unwrap_or((media, ""));
        (self.kind == "*" || self.kind == kind) && (self.subtype == "*" || self.subtype == subtype)
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
    match accept_header(headers) {
        "" => Some(Accepted { media: MediaType::Json, convert: None }),
        accept => chosen(accept, conversions).map(|(_, accepted)| accepted),
    }
}

/// The alternative that is answered with, and what it comes to.
fn chosen(accept: &str, conversions: bool) -> Option<(Clause<'_>, Accepted)> {
    clauses(accept).into_iter().find_map(|clause| {
        let accepted = MediaType::ALL
            .into_iter()
            .filter(|media| clause.covers(*media))
            .find_map(|media| clause.accepted(media, conversions))?;
        Some((clause, accepted))
    })
}

/// Whether the alternative that is answered with asks for JSON in lines.
pub(crate) fn wants_pretty(headers: &HeaderMap) -> bool {
    let accept = accept_header(headers);
    // Putting alternatives in order is not for nothing.
    accept.contains("pretty") && chosen(accept, true).is_some_and(|(clause, _)| clause.param("pretty") == Some("1"))
}

fn accept_header(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The position of the media type that the client wants most of those on offer, the first of several that it wants alike.
pub(crate) fn preferred(headers: &HeaderMap, offered: &[&str]) -> Option<usize> {
    let accept = accept_header(headers);
    if accept.is_empty() {
        return (!offered.is_empty()).then_some(0);
    }
    clauses(accept).iter().find_map(|clause| offered.iter().position(|media| clause.takes(media)))
}

/// 406 for a client that takes none of the formats.
pub(crate) fn none_accepted(headers: &HeaderMap) -> ApiError {
    check_produced(headers, &[], false).err().unwrap_or_else(|| {
        not_acceptable("only the following media types are accepted: application/json, application/yaml")
    })
}

/// What to answer a request with.
/// Fails with 406 `NotAcceptable`, with the formats there are.
pub(crate) fn output(headers: &HeaderMap) -> Result<Accepted, ApiError> {
    negotiate(headers, true).ok_or_else(|| none_accepted(headers))
}

/// Refuses a client that names none of the formats that a route makes, JSON, YAML and those `besides`, before anything
/// is negotiated.
///
/// Follows go-restful, which compares types only, letter by letter: neither parameters nor ranges such as
/// `application/*` count.
/// Fails with 406 `NotAcceptable`.
pub(crate) fn check_produced(headers: &HeaderMap, besides: &[&str], streams: bool) -> Result<(), ApiError> {
    let accept = accept_header(headers);
    let made = MediaType::ALL.map(MediaType::as_str);
    if accept.is_empty()
        || names_any(accept, |range| range == "*/*" || made.contains(&range) || besides.contains(&range))
    {
        return Ok(());
    }
    let stream = streams.then_some("application/json;stream=watch");
    Err(not_produced(besides.iter().copied().chain(made).chain(stream)))
}

/// Refuses a client that names none of the types that a route of a document makes, or sends what it takes none of:
/// nothing reads what is sent, but it may be said to be only of these types.
///
/// Follows go-restful as [`check_produced`] does.
/// Fails with 415 `UnsupportedMediaType` and 406 `NotAcceptable`.
pub(crate) fn check_route(headers: &HeaderMap, consumes: &[&str], produces: &[&str]) -> Result<(), ApiError> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let accept = accept_header(headers);
    if !sent.is_empty() && !names_any(sent, |range| consumes.contains(&range)) {
        let mut error = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        error.0.details = Some(Default::default());
        return Err(error);
    }
    if accept.is_empty() || names_any(accept, |range| range == "*/*" || produces.contains(&range)) {
        return Ok(());
    }
    Err(not_produced(produces.iter().copied()))
}

/// Whether one of the types in a header, without its parameters, is wanted.
fn names_any(header: &str, wanted: impl Fn(&str) -> bool) -> bool {
    header.split(',').any(|range| wanted(range.split(';').next().unwrap_or("").trim()))
}

fn not_produced<'a>(available: impl Iterator<Item = &'a str>) -> ApiError {
    let available = available.collect::<Vec<_>>().join(", ");
    let mut error = not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {available}"));
    error.0.details = Some(Default::default());
    error
}

/// Refuses a watch in a format that cannot be framed, which only JSON can.
/// Fails with 406 `NotAcceptable`.
pub(crate) fn check_streamed(accepted: Accepted) -> Result<(), ApiError> {
    match accepted.media {
        MediaType::Json => Ok(()),
        MediaType::Yaml => {
            Err(not_acceptable("only the following media types are accepted: application/json;stream=watch"))
        }
    }
}

/// The format of an error, which is never converted; nothing for a client that takes none.
pub(crate) fn status_output(headers: &HeaderMap) -> Option<MediaType> {
    negotiate(headers, false).map(|accepted| accepted.media)
}

pub(crate) fn not_acceptable(message: impl Into<String>) -> ApiError {
    ApiError::new(406, "NotAcceptable", message)
}

/// The media type of a request's body, without its parameters; empty when none is told.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim().to_ascii_lowercase()
}

/// The format of a request's body; JSON when none is told.
/// Fails with 415 `UnsupportedMediaType`, with the formats there are.
pub(crate) fn input(headers: &HeaderMap) -> Result<MediaType, ApiError> {
    let value = headers.get(header::CONTENT_TYPE).map_or(Some(""), |value| value.to_str().ok());
    let value = value.ok_or_else(unknown_input)?;
    if value.is_empty() {
        return Ok(MediaType::Json);
    }
    let content_type = media_type::parse(value).ok_or_else(unknown_input)?;
    MediaType::ALL.into_iter().find(|media| media.as_str() == content_type).ok_or_else(unknown_input)
}

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
        // What has no value is no parameter.
        check("application/json;v=", Some((Json, None)));
        check("application/json;as=;g=;v=", Some((Json, None)));
        check("application/json;as=Table;as=;v=v1;g=meta.k8s.io;v=a=b", Some((Json, Some((Table, "v1")))));
        check("application/json;as=", Some((Json, None)));
        check("application/json;as= ,text/html", Some((Json, None)));
        check("application/json;as= ;v=v1", None);
    }

    #[test]
    fn accept_header_weights_match_upstream() {
        use Convert::PartialList;
        use MediaType::{Json, Yaml};
        let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        check(&format!("application/*,{partial};q=0.9"), Some((Json, Some((PartialList, "v1")))));
        check(&format!("*/*,{partial};q=0.1"), Some((Json, Some((PartialList, "v1")))));
        check("application/yaml;q=0.1,*/*", Some((Json, None)));
        check("*/*,application/yaml;q=0.1", Some((Yaml, None)));
        check("application/json;q= 0.9,application/yaml;q=0.1", Some((Yaml, None)));
    }

    #[test]
    fn long_accept_header_parses_quickly() {
        let wanted = "*,".repeat(100_000) + &"application/yaml,".repeat(20_000);
        check(&wanted, Some((MediaType::Yaml, None)));
        let wanted = "application/json;q=0.5,".repeat(20_000) + "application/yaml;q=0.9";
        check(&wanted, Some((MediaType::Yaml, None)));
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

        let error = check_streamed(Accepted { media: MediaType::Yaml, convert: None }).unwrap_err();
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
            Some(MediaType::Yaml)
        );
        assert_eq!(status_output(&headers(header::ACCEPT, "text/html")), None);
    }

    #[test]
    fn body_formats_are_told_by_content_type() {
        assert_eq!(input(&HeaderMap::new()).unwrap(), MediaType::Json);
        assert_eq!(input(&headers(header::CONTENT_TYPE, "application/json; charset=utf-8")).unwrap(), MediaType::Json);
        assert_eq!(input(&headers(header::CONTENT_TYPE, "application/YAML")).unwrap(), MediaType::Yaml);
    }
}
