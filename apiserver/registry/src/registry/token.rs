//! The `continue` token: the key and version from which the next page of a list begins.
//!
//! It is upstream's, field by field (`k8s.io/apiserver/pkg/storage/continue.go`), as are the reasons for which one is
//! refused.

use serde::Serialize;
use serde_json::Value;
use stoa_log::Version;
use stoa_meta::{
    schema::{self, Format, binary::RAW_URL},
    status::ApiError,
};

const FORMAT: &str = "meta.k8s.io/v1";

/// Where a list goes on. Opaque to clients.
#[derive(Debug)]
pub(super) struct Continue {
    /// The version that all pages show; nothing says "whatever is current", which is what a
    /// client gets to go on with when its version is gone.
    pub(super) version: Option<Version>,
    /// The last key of the page before, after the list's prefix. Before the first there is the empty one.
    pub(super) after: String,
    /// How many objects come after that key, when nothing is selected.
    pub(super) remaining: Option<i64>,
    /// Whether the list is to show exactly its version, also when only a history has it any more.
    pub(super) exact: bool,
}

/// A token as it is written down.
#[derive(Serialize)]
struct Token {
    #[serde(rename = "v")]
    format: String,
    /// -1 says "whatever is current".
    #[serde(rename = "rv")]
    version: i64,
    /// The first key that may come next.
    start: String,
    /// Ours: saves counting the rest again.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<i64>,
    /// Ours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exact: bool,
}

impl Token {
    /// Reads a token, or says why it is none in the words of Go's `encoding/json`.
    fn of(value: &Value) -> Result<Self, String> {
        if !matches!(value, Value::Object(_) | Value::Null) {
            let found = schema::json_type(value);
            return Err(format!("json: cannot unmarshal {found} into Go value of type storage.continueToken"));
        }
        let field = |name: &str| value.get(name).filter(|value| !value.is_null());
        let type_error = |name: &str, value: &Value, expected: &str| {
            let found = match value {
                // One that is a number, but not such a one, is told.
                Value::Number(number) if expected == "int64" => format!("number {number}"),
                other => schema::json_type(other).to_owned(),
            };
            format!("json: cannot unmarshal {found} into Go struct field continueToken.{name} of type {expected}")
        };
        let text = |name: &str| match field(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(type_error(name, other, "string")),
        };
        let number = |name: &str| match field(name) {
            None => Ok(None),
            Some(other) => other.as_i64().map(Some).ok_or_else(|| type_error(name, other, "int64")),
        };
        Ok(Self {
            format: text("v")?,
            version: number("rv")?.unwrap_or(0),
            start: text("start")?,
            left: number("left")?,
            exact: field("exact").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

impl Continue {
    pub(super) fn encode(&self) -> String {
        let version = self.version.map_or(-1, |version| i64::try_from(version.0).unwrap_or(i64::MAX));
        let start = format!("{}\0", self.after);
        let token = Token { format: FORMAT.to_owned(), version, start, left: self.remaining, exact: self.exact };
        RAW_URL.encode(serde_json::to_vec(&token).expect("a token is texts and numbers"))
    }

    pub(super) fn decode(token: &str) -> Result<Self, ApiError> {
        let bad = |problem: &dyn std::fmt::Display| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid: {problem}"))
        };
        let bytes = RAW_URL.decode(token).map_err(|error| bad(&error))?;
        let parsed = schema::parse(&bytes, Format::Json).map_err(|error| bad(&error))?;
        let token = Token::of(&parsed.value).map_err(|error| bad(&error))?;
        if token.format != FORMAT {
            return Err(bad(&format_args!("server does not recognize this encoded version {}", token.format)));
        }
        if token.version == 0 {
            return Err(bad(&"incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(bad(&"encoded start key empty (version meta.k8s.io/v1)"));
        }
        let key = token.start.strip_prefix('/').unwrap_or(&token.start);
        if !is_clean(key) {
            return Err(bad(&token.start));
        }
        let after = key.strip_suffix('\0').unwrap_or(key);
        let version = u64::try_from(token.version).ok().map(Version);
        Ok(Self { version, after: after.to_owned(), remaining: token.left, exact: token.exact })
    }
}

/// Whether Go's `path.Clean` would leave a key as it is, so that it leads nowhere but where it says.
fn is_clean(key: &str) -> bool {
    key.is_empty() || key.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// 410 for a token whose version is gone, with one to go on with in the current version.
pub(super) fn expired(token: Continue) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.0.metadata.continue_ = Some(Continue { version: None, remaining: None, exact: false, ..token }.encode());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_too_many_are_left_alone() {
        let message = Continue::decode("bad").unwrap_err().message().to_owned();
        assert!(message.ends_with("invalid character 'm' looking for beginning of value"), "{message}");
    }

    /// The offsets are those that Go's `encoding/base64` tells.
    #[test]
    fn what_is_no_token_is_told_where_it_breaks() {
        for (token, at) in [("x", 0), ("abcde", 4), ("abc!", 3), ("!bcde", 0), ("ab!de", 2), ("abcd=", 4), ("abc=", 3)]
        {
            let message = Continue::decode(token).unwrap_err().message().to_owned();
            assert!(message.ends_with(&format!("illegal base64 data at input byte {at}")), "{token}: {message}");
        }
    }

    #[test]
    fn continue_token_errors_match_go() {
        let decode = |json: &str| Continue::decode(&RAW_URL.encode(json)).map_err(|error| error.message().to_owned());
        let at =
            |start: &str| decode(&format!(r#"{{"v":"{FORMAT}","rv":-1,"start":"{start}"}}"#)).map(|token| token.after);
        for (json, problem) in [
            ("null", "server does not recognize this encoded version "),
            ("[]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
            (r#""x""#, "json: cannot unmarshal string into Go value of type storage.continueToken"),
            (r#"{"v":1}"#, "json: cannot unmarshal number into Go struct field continueToken.v of type string"),
            (r#"{"rv":"5"}"#, "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
            (r#"{"rv":1.5}"#, "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64"),
            (
                r#"{"v":null,"rv":null,"start":{}}"#,
                "json: cannot unmarshal object into Go struct field continueToken.start of type string",
            ),
        ] {
            let message = decode(json).expect_err(json);
            assert_eq!(message, format!("invalid continue token: continue key is not valid: {problem}"));
        }
        for (start, after) in [("/", ""), ("/a", "a"), ("a\\u0000", "a"), ("\\u0000", ""), ("a/b", "a/b")] {
            assert_eq!(at(start).as_deref(), Ok(after), "{start}");
        }
        for start in ["", "a/", "a//b", "//", "a/../b", "./a", ".."] {
            assert!(at(start).is_err(), "{start}");
        }
    }
}
