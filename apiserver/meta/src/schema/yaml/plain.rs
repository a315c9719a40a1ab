//! Tells JSON that YAML reads alike, which is what `kubectl apply --server-side` sends as YAML: such bodies are read by
//! the JSON reader, which takes a fraction of the time.

/// How deep it may nest, well within what either reader takes.
const DEPTH: usize = 64;
/// How long a string may be that is a key: YAML takes no longer ones without a question mark.
const KEY: usize = 1000;
/// How many digits a number may have, so that it fits 64 bits.
const DIGITS: usize = 18;

/// Whether a body is an object in JSON's notation, of which both readers make the same if it is JSON at all.
///
/// It says no wherever they could differ: fractions and exponents, long numbers, surrogate pairs, merge keys, tabs,
/// characters outside ASCII, and colons on a line of their own.
pub(super) fn is_plain_json(body: &[u8]) -> bool {
    let mut scan = Scan { rest: body, depth: 0, line_broken: false, last_string: 0 };
    body.first() == Some(&b'{') && scan.is_plain().is_some()
}

struct Scan<'b> {
    rest: &'b [u8],
    depth: usize,
    /// Whether the line ended since the last token.
    line_broken: bool,
    /// How long the last string was.
    last_string: usize,
}

impl Scan<'_> {
    /// Nothing where the readers could differ.
    fn is_plain(&mut self) -> Option<()> {
        while let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            match byte {
                b' ' => continue,
                b'\n' => {
                    self.line_broken = true;
                    continue;
                }
                b'"' => self.string()?,
                b'0'..=b'9' => self.number()?,
                b'-' if matches!(rest.first(), Some(b'1'..=b'9')) => {}
                b'{' | b'[' => self.depth = Some(self.depth + 1).filter(|depth| *depth <= DEPTH)?,
                b'}' | b']' => self.depth = self.depth.checked_sub(1)?,
                b':' if self.line_broken || self.last_string > KEY => return None,
                b':' | b',' | b'a'..=b'z' => {}
                _ => return None,
            }
            self.line_broken = false;
        }
        Some(())
    }

    fn string(&mut self) -> Option<()> {
        let all = self.rest;
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => break,
                b'\\' => match rest {
                    [b'u', b'd' | b'D', ..] => return None,
                    [b'"' | b'\\' | b'n' | b'r' | b't' | b'b' | b'f' | b'u', ..] => self.rest = &rest[1..],
                    _ => return None,
                },
                b' '..=b'~' => {}
                _ => return None,
            }
        }
        self.last_string = all.len() - self.rest.len();
        (!all.starts_with(b"<<\"")).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.rest = &self.rest[digits..];
        let is_whole = !matches!(self.rest.first(), Some(b'.' | b'e' | b'E'));
        (is_whole && digits < DIGITS).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{super::compose, *};

    #[test]
    fn what_the_readers_could_read_differently_is_not_plain() {
        for body in [
            "[]",
            " {}",
            r#"{"a":1.0}"#,
            r#"{"a":1e3}"#,
            r#"{"a":-0}"#,
            r#"{"a":1234567890123456789}"#,
            r#"{"a":"\ud83d\ude00"}"#,
            r#"{"a":"\/"}"#,
            r#"{"<<":{}}"#,
            "{\"a\":\"ä\"}",
            "{\t\"a\":1}",
            "{\"a\"\n:1}",
            "{\"a\":\"b",
            "{}}",
        ] {
            assert!(!is_plain_json(body.as_bytes()), "{body}");
        }
        let deep = format!("{}{}", r#"{"a":"#.repeat(DEPTH + 1), "}".repeat(DEPTH + 1));
        assert!(!is_plain_json(deep.as_bytes()));
        let long = format!(r#"{{"{}":1}}"#, "k".repeat(KEY + 1));
        assert!(!is_plain_json(long.as_bytes()));
    }

    #[test]
    fn what_clients_send_is_plain() {
        let object = json!({"kind": "Stack", "spec": {"list": [1, -2, true, null, "a\"b\n<\u{1}"], "empty": {}}});
        for body in [object.to_string(), serde_json::to_string_pretty(&object).unwrap()] {
            assert!(is_plain_json(body.as_bytes()), "{body}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let text =
            prop_oneof!["[ -~\\n\\t\\x00-\\x1f]{0,12}", "yes|no|on|off|null|~|1|0x1f|1e3|<<|- a|a: b|#c|&a|\\*a|!t"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-99..99_i64).prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 30, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(text.clone(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Whatever is plain reads the same as YAML and as JSON.
        #[test]
        fn plain_json_reads_alike(value in value(), pretty: bool) {
            let value = json!({ "value": value });
            let body = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            if is_plain_json(body.as_bytes()) {
                prop_assert_eq!(compose(&body).map(|(read, _)| read).map_err(|error| error.0), Ok(value), "{}", body);
            }
        }

        /// What is no JSON though it looks like it is left to YAML, and what is JSON too reads alike.
        #[test]
        fn nearly_json_reads_alike(body in r#"\{[-{}\[\],:" 0-9a-c\n\\true]{0,30}\}"#) {
            if is_plain_json(body.as_bytes()) && let Ok((value, strict)) = super::super::super::json::parse(None, body.as_bytes())
                && strict.is_empty()
            {
                prop_assert_eq!(compose(&body).map(|(read, _)| read).map_err(|error| error.0), Ok(value), "{}", body);
            }
        }
    }
}
