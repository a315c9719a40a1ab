//! Bodies of requests and answers.
//!
//! Answers are read up to a limit: a broken or hostile server must not exhaust the memory of all Runs.

use std::fmt::Write as _;

use futures_util::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;

use serde_json::{Map, Value};

use crate::error::CallError;

/// The most that one answer, or one event of a watch, may have, in bytes. Objects have few megabytes at most, and what
/// describes many kinds at once has some ten.
pub(crate) const LARGEST: usize = 32 << 20;

/// An object as the body of a server-side apply, which a server reads as YAML: JSON with escapes for characters that
/// YAML rejects (`yaml_parser_update_buffer` in `go.yaml.in/yaml/v2/readerc.go`) or reads as a line end.
pub(crate) fn of_apply(object: &Map<String, Value>) -> Vec<u8> {
    let json = serde_json::to_string(object).expect("a JSON map can be written");
    if !json.contains(has_to_be_escaped) {
        return json.into_bytes();
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        // Outside of strings JSON has no such character.
        if has_to_be_escaped(character) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped.into_bytes()
}

fn has_to_be_escaped(character: char) -> bool {
    matches!(character, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Reads a body to its end.
///
/// # Errors
///
/// [`CallError::TooLarge`] when it is larger than [`LARGEST`], and what breaks it off.
pub(crate) async fn read(body: Body) -> Result<Vec<u8>, CallError> {
    match Limited::new(body, LARGEST).collect().await {
        Ok(whole) => Ok(whole.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(CallError::TooLarge),
        Err(error) => Err(match error.downcast::<kube::Error>() {
            Ok(error) => CallError::from(*error),
            Err(error) => CallError::Unreachable(error.to_string()),
        }),
    }
}

/// A body that comes line by line, however many there are.
pub(crate) fn lines(body: Body) -> impl AsyncBufRead + Unpin {
    body.into_data_stream().map_err(std::io::Error::other).into_async_read()
}

/// The next line; nothing once there is none, or no whole one.
///
/// # Errors
///
/// [`CallError::TooLarge`] when it is larger than [`LARGEST`].
pub(crate) async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Vec<u8>>, CallError> {
    let mut line = Vec::new();
    let read = lines.take(LARGEST as u64).read_until(b'\n', &mut line).await;
    let is_whole = line.last() == Some(&b'\n');
    match read {
        Ok(LARGEST) if !is_whole => Err(CallError::TooLarge),
        Ok(_) if is_whole => Ok(Some(line)),
        Ok(_) | Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_apply_escapes_characters_that_yaml_refuses() {
        let text = |value: Value| String::from_utf8(of_apply(json!({"a": value}).as_object().unwrap())).unwrap();
        let written = text(json!("x\u{7f}\u{85}\u{90}\u{2028}\u{feff}\u{fffe}y\u{1f600}é\n"));
        assert_eq!(written, r#"{"a":"x\u007f\u0085\u0090\u2028\ufeff\ufffey😀é\n"}"#);
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(read["a"], "x\u{7f}\u{85}\u{90}\u{2028}\u{feff}\u{fffe}y\u{1f600}é\n");
        assert_eq!(text(json!({"b": [1, null]})), r#"{"a":{"b":[1,null]}}"#);
    }
}
