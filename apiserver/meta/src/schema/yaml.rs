//! Reads the first YAML document the way `sigs.k8s.io/yaml` turns it into JSON, in the words of Go's errors; a key that
//! stands twice is noted with its line.
//!
//! `stoa-yaml` reads; JSON that YAML reads alike goes to the JSON reader.

mod plain;

use serde_json::Value;
use stoa_yaml::{Cause, Duplicate, Error, ErrorKind, Limits};

use super::{MAX_DEPTH, StrictErrors, SyntaxError, json};
use crate::status::quote;

/// A body is bounded before it is read, so that what anchors copy is all there is to limit.
const LIMITS: Limits = Limits { depth: MAX_DEPTH, values: usize::MAX, documents: usize::MAX, copied: 8 << 20 };

/// Reads the first document of a body, whatever follows; an empty body is null.
pub(super) fn parse(body: &[u8]) -> Result<(Value, StrictErrors), SyntaxError> {
    if plain::is_plain_json(body)
        && let Ok((value, strict)) = json::parse(None, body)
        // The lines of what stands twice are known here alone.
        && strict.is_empty()
    {
        return Ok((value, strict));
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| SyntaxError(format!("yaml: invalid UTF-8 at byte {}", error.valid_up_to())))?;
    compose(text)
}

fn compose(text: &str) -> Result<(Value, StrictErrors), SyntaxError> {
    let mut strict = StrictErrors::default();
    let Some(document) = stoa_yaml::first(text, &LIMITS).map_err(|error| in_words_of_go(&error))? else {
        return Ok((Value::Null, strict));
    };
    for duplicate in document.duplicates.iter().filter(|it| it.cause != Cause::SameInJson) {
        let Duplicate { key, is_text, value_line, .. } = duplicate;
        // As Go's `%#v`.
        let key = if *is_text { quote(key).to_string() } else { key.clone() };
        strict.push_yaml(format!("line {value_line}: key {key} already set in map"));
    }
    Ok((document.value, strict))
}

fn in_words_of_go(Error { line, kind }: &Error) -> SyntaxError {
    SyntaxError(match kind {
        ErrorKind::NotJson(_) => kind.to_string(),
        // Go names no line when it is the first, nor where copies became too many.
        ErrorKind::TooManyCopies => format!("yaml: {kind}"),
        _ if *line > 1 => format!("yaml: line {line}: {kind}"),
        _ => format!("yaml: {kind}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key is told with its type and the line of its value, and what is merged is as if it stood there.
    #[test]
    fn keys_that_stand_twice_are_told_as_upstream() {
        let told = |text: &str| parse(text.as_bytes()).unwrap().1.warnings();
        for (text, expected) in [
            ("a:\n  b: 1\na:\n  b: 2\n", vec![r#"line 4: key "a" already set in map"#]),
            ("a: 1\na:\n- 2\n", vec![r#"line 3: key "a" already set in map"#]),
            ("a: 1\na: {b: 2}\n", vec![r#"line 2: key "a" already set in map"#]),
            ("a:\na:\nb:\n", vec![r#"line 2: key "a" already set in map"#]),
            ("? a\n: 1\n? a\n:\n  2\n", vec![r#"line 5: key "a" already set in map"#]),
            ("{1: a, '1': b}", vec![]),
            ("{0x10: a, 16: b}", vec!["line 1: key 16 already set in map"]),
            ("{on: a, true: b, 'true': c}", vec!["line 1: key true already set in map"]),
            ("x: {b: 1, <<: {b: 2}}", vec![r#"line 1: key "b" already set in map"#]),
            ("x:\n  <<: {b: 2}\n  b: 1\n", vec![r#"line 3: key "b" already set in map"#]),
            ("x:\n  <<: [{b: 2}, {b: 3}]\n", vec![r#"line 2: key "b" already set in map"#]),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
