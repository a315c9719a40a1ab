//! Which of several formats a subresource answers in.

use serde::Serialize;
use stoa_engine::render::Colour;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
    http::SubresourceCallExt as _,
    status::FieldError,
};

use super::{answer, document, non_empty, parameter};

/// What any text may be called.
pub(super) const PLAIN: &str = "text/plain";

/// One of the formats that an answer has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format<T> {
    Json,
    Yaml,
    /// A text: its writer, its name for `?format=`, and its media type.
    Text(fn(&T) -> String, &'static str, &'static str),
}

impl<T: Serialize> Format<T> {
    /// The value of `?format=`.
    fn name(&self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Text(_, name, _) => name,
        }
    }

    fn media(&self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Text(_, _, media) => media,
        }
    }

    /// The one that a client asks for: by `?format=`, or else by its Accept header. The first is for those that take
    /// any.
    ///
    /// # Errors
    ///
    /// 400 that names the field for a format that there is not, 406 when the client takes none of them.
    pub(super) fn choose<'a>(call: &SubresourceCall, formats: &'a [Self]) -> Result<&'a Self, ApiError> {
        let names: Vec<&str> = formats.iter().map(Self::name).collect();
        if let Some(at) = asked(&call.query, &names)? {
            return Ok(&formats[at]);
        }
        let media: Vec<&str> = formats.iter().map(Self::media).collect();
        let preferred = call.preferred(&media).and_then(|at| formats.get(at));
        preferred.ok_or_else(|| {
            let message = format!(
                "only the following media types are accepted: {}; or say which with ?format={}",
                media.join(", "),
                names.join("|")
            );
            ApiError::new(406, "NotAcceptable", message)
        })
    }

    /// The answer in this format.
    pub(super) fn write(&self, call: &SubresourceCall, value: &T) -> Result<SubresourceResponse, ApiError> {
        let json = || serde_json::to_vec(value).map_err(|error| ApiError::internal(error.to_string()));
        match self {
            Self::Json => document(&json()?, true),
            Self::Yaml => document(&json()?, false),
            Self::Text(write, _, media) => {
                // Whoever takes plain text alone need not know what else the format is called.
                let media = if call.preferred(&[media, PLAIN]) == Some(1) { PLAIN } else { media };
                answer(http::StatusCode::OK, &format!("{media}; charset=utf-8"), write(value))
            }
        }
    }
}

/// Which of the formats of these names `?format=` asks for, if any.
///
/// # Errors
///
/// 400 that names the field for a format that there is not.
pub(super) fn asked(query: &[(String, String)], names: &[&str]) -> Result<Option<usize>, ApiError> {
    let Some(wanted) = non_empty(query, "format") else { return Ok(None) };
    let at = names.iter().position(|name| *name == wanted);
    at.map(Some).ok_or_else(|| bad_parameter(&FieldError::not_supported("format", wanted, names)))
}

/// Whether a text is coloured for a terminal: `?color=true` or `?colour=true`. Of both, one that says yes is enough.
///
/// # Errors
///
/// 400 for a value that is neither yes nor no.
pub(super) fn colour(query: &[(String, String)]) -> Result<Colour, ApiError> {
    let is_wanted = flag(query, "color")? | flag(query, "colour")?;
    Ok(if is_wanted { Colour::Always } else { Colour::Never })
}

/// Whether a query parameter is true.
///
/// # Errors
///
/// 400 for a value that is neither yes nor no.
pub(super) fn flag(query: &[(String, String)], name: &str) -> Result<bool, ApiError> {
    match parameter(query, name) {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1" | "") => Ok(true),
        Some(other) => Err(bad_parameter(&FieldError::not_supported(name, other, &["true", "false"]))),
    }
}

/// 400 for a query parameter, with the parameter as the field of its cause.
pub(super) fn bad_parameter(error: &FieldError) -> ApiError {
    ApiError::bad_request(format!("{}: {}", error.field, error.message)).with_cause(
        error.kind.reason(),
        &error.field,
        &*error.message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_color_are_read() {
        let asked = |query: &[(&str, &str)]| {
            let query: Vec<_> = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            colour(&query).map_err(|error| error.message().to_owned())
        };
        for name in ["color", "colour"] {
            for (value, expected) in
                [("true", Colour::Always), ("", Colour::Always), ("1", Colour::Always), ("false", Colour::Never)]
            {
                assert_eq!(asked(&[(name, value)]), Ok(expected), "{name}={value}");
            }
            assert!(asked(&[(name, "red")]).unwrap_err().starts_with(&format!("{name}: ")));
        }
        assert_eq!(asked(&[]), Ok(Colour::Never));
        assert_eq!(asked(&[("color", "true"), ("colour", "false")]), Ok(Colour::Always));
    }
}
