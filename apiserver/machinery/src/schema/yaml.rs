//! Reads the first YAML document the way `sigs.k8s.io/yaml` turns it into JSON: YAML 1.1 scalars,
//! anchors, merge keys; a key that stands twice is noted with its line.
//!
//! Built on the event parser below `serde-saphyr`, because serde's data model hides duplicate
//! keys and lines. Aliases are paid for from a budget, so that no small body becomes a large value.

mod plain;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
};

use serde_json::{Map, Number, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{MAX_DEPTH, StrictErrors, SyntaxError, binary, height, json};
use crate::status::quote;

/// How much may be copied through anchors and aliases: bytes of text plus [`NODE_WEIGHT`] per value.
const ALIAS_BUDGET: usize = 8 << 20;
const NODE_WEIGHT: usize = 32;

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
    let mut composer = Composer {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        strict: StrictErrors::default(),
        budget: ALIAS_BUDGET,
    };
    let value = composer.stream()?;
    Ok((value, composer.strict))
}

struct Anchored {
    value: Value,
    weight: usize,
}

struct Composer<'i> {
    parser: Parser<'i, StrInput<'i>>,
    anchors: HashMap<usize, Anchored>,
    strict: StrictErrors,
    budget: usize,
}

fn error(line: usize, message: impl fmt::Display) -> SyntaxError {
    // Go tells no line when it is the first.
    SyntaxError(if line > 1 { format!("yaml: line {line}: {message}") } else { format!("yaml: {message}") })
}

/// Go's words, with the limit that holds here.
fn too_deep(line: usize) -> SyntaxError {
    error(line, format_args!("exceeded max depth of {MAX_DEPTH}"))
}

fn scan_error(cause: &ScanError) -> SyntaxError {
    error(cause.marker().line(), problem(&cause.info()))
}

/// What is wrong, as Go's library says it: the same grammar in other words, and without what was being read.
fn problem(info: &str) -> &str {
    match info {
        "unclosed quote" => "found unexpected end of stream",
        "unclosed bracket '['" | "while parsing a flow sequence, expected ',' or ']'" => {
            "did not find expected ',' or ']'"
        }
        "unclosed bracket '{'" => "did not find expected ',' or '}'",
        _ if info.starts_with("unexpected character") => "found character that cannot start any token",
        _ if info.starts_with("while ") => info.split_once(", ").map_or(info, |(_, problem)| problem),
        _ => info,
    }
}

impl<'i> Composer<'i> {
    /// The next event that is no comment.
    fn next(&mut self) -> Result<(Event<'i>, Span), SyntaxError> {
        loop {
            match self.parser.next_event() {
                None => return Ok((Event::StreamEnd, Span::default())),
                Some(Err(cause)) => return Err(scan_error(&cause)),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(event),
            }
        }
    }

    fn stream(&mut self) -> Result<Value, SyntaxError> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(Value::Null),
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => return self.node(event, span, 0),
            }
        }
    }

    fn node(&mut self, event: Event<'i>, span: Span, depth: usize) -> Result<Value, SyntaxError> {
        let line = span.start.line();
        if depth >= MAX_DEPTH && matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)) {
            return Err(too_deep(line));
        }
        let (value, anchor) = match event {
            Event::Alias(id) => return self.alias(id, line),
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref()).map_err(|message| error(line, message))?;
                (value.into_json().map_err(SyntaxError)?, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.sequence(depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.mapping(depth)?, anchor),
            other => return Err(error(line, format_args!("unexpected {other:?}"))),
        };
        if anchor != 0 {
            let weight = weight(&value);
            self.pay(weight)?;
            self.anchors.insert(anchor, Anchored { value: value.clone(), weight });
        }
        Ok(value)
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<Value, SyntaxError> {
        let Some(weight) = self.anchors.get(&id).map(|anchored| anchored.weight) else {
            return Err(error(line, "an anchor's value contains itself"));
        };
        self.pay(weight)?;
        Ok(self.anchors[&id].value.clone())
    }

    fn pay(&mut self, weight: usize) -> Result<(), SyntaxError> {
        match self.budget.checked_sub(weight) {
            Some(rest) => {
                self.budget = rest;
                Ok(())
            }
            None => Err(SyntaxError("yaml: document contains excessive aliasing".to_owned())),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        let mut values = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(values)),
                (event, span) => values.push(self.bounded(event, span, depth)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, SyntaxError> {
        let mut mapping = Mapping::default();
        loop {
            let (event, span) = self.next()?;
            let line = span.start.line();
            let (text, style, tag) = match event {
                Event::MappingEnd => return Ok(Value::Object(mapping.map)),
                Event::Scalar(text, style, 0, tag) => (text, style, tag),
                event => {
                    // An anchored or aliased key is still a key, if it is text.
                    let key = self.node(event, span, depth + 1)?;
                    let Value::String(key) = key else { return Err(error(line, "invalid map key")) };
                    (key.into(), ScalarStyle::DoubleQuoted, None)
                }
            };
            let is_merge = text == "<<" && style == ScalarStyle::Plain && tag.is_none();
            let key = scalar(&text, style, tag.as_deref()).and_then(Scalar::into_key).map_err(|m| error(line, m))?;
            let (event, span) = self.next()?;
            // Go tells where the value is.
            let at = span.start.line();
            let value = self.bounded(event, span, depth)?;
            if is_merge {
                self.merge(&mut mapping, value, at).map_err(|message| error(line, message))?;
            } else {
                self.set(&mut mapping, key, value, at);
            }
        }
    }

    /// Sets a key whose value begins on a line. One that is there gets the later value, and is noted.
    fn set(&mut self, mapping: &mut Mapping, key: Key, value: Value, line: usize) {
        mapping.map.insert(key.name.clone(), value);
        if mapping.keys.contains(&key) {
            self.strict.push_yaml(format!("line {line}: key {key} already set in map"));
        } else {
            mapping.keys.insert(key);
        }
    }

    /// Sets what `<<` brings in, as if it stood there; of several mappings the first that has a key wins.
    ///
    /// Follows `merge` in `go.yaml.in/yaml/v2/decode.go`.
    fn merge(&mut self, into: &mut Mapping, value: Value, line: usize) -> Result<(), &'static str> {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    self.set(into, Key { name, is_text: true }, value, line);
                }
                Ok(())
            }
            Value::Array(maps) if maps.iter().all(Value::is_object) => {
                maps.into_iter().rev().try_for_each(|map| self.merge(into, map, line))
            }
            _ => Err("map merge requires map or sequence of maps as the value"),
        }
    }

    /// A child, whose aliases count as deep as what they stand for.
    fn bounded(&mut self, event: Event<'i>, span: Span, depth: usize) -> Result<Value, SyntaxError> {
        let is_alias = matches!(event, Event::Alias(_));
        let value = self.node(event, span, depth + 1)?;
        if is_alias && depth + 1 + height(&value) > MAX_DEPTH {
            return Err(too_deep(span.start.line()));
        }
        Ok(value)
    }
}

/// A mapping being read.
#[derive(Default)]
struct Mapping {
    map: Map<String, Value>,
    keys: HashSet<Key>,
}

/// What a value is under: in YAML 1 is another key than "1", though in JSON it is not.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: String,
    is_text: bool,
}

impl fmt::Display for Key {
    /// As Go's `%#v`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&if self.is_text { quote(&self.name).into() } else { Cow::Borrowed(self.name.as_str()) })
    }
}

fn weight(value: &Value) -> usize {
    NODE_WEIGHT
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(weight).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + weight(value)).sum(),
        }
}

/// A scalar as YAML understands it.
#[derive(Debug, PartialEq)]
enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// What a plain scalar of this value is tagged as.
    fn tag(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Uint(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
        }
    }

    fn into_json(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Int(value) => value.into(),
            Self::Uint(value) => value.into(),
            Self::Text(text) => text.into(),
            Self::Float(value) => match whole(value) {
                // Go writes a whole float without a fraction, so that it reads back as an integer.
                Some(value) => value.into(),
                None => Number::from_f64(value).map(Value::Number).ok_or_else(|| {
                    let name = if value.is_nan() {
                        "NaN"
                    } else if value > 0.0 {
                        "+Inf"
                    } else {
                        "-Inf"
                    };
                    format!("json: unsupported value: {name}")
                })?,
            },
        })
    }

    fn into_key(self) -> Result<Key, String> {
        let (name, is_text) = match self {
            Self::Null => return Err("unsupported map key of type null".to_owned()),
            Self::Bool(value) => (value.to_string(), false),
            Self::Int(value) => (value.to_string(), false),
            Self::Uint(value) => (value.to_string(), false),
            Self::Float(value) => (value.to_string(), false),
            Self::Text(text) => (text, true),
        };
        Ok(Key { name, is_text })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked, and the fraction is none")]
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

/// Resolves a scalar as `yaml.v2` does.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, String> {
    // Tags of others say nothing here; their scalars are text.
    let name = tag.map(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or("str".into()));
    match (name.as_deref(), style) {
        (None, ScalarStyle::Plain) => Ok(resolve(text)),
        (None | Some("str"), _) => Ok(Scalar::Text(text.to_owned())),
        (Some("binary"), _) => {
            let text = binary::STANDARD.decode(text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            text.map(Scalar::Text).ok_or_else(|| "!!binary value contains invalid base64 data".to_owned())
        }
        (Some(name), _) => match (name, resolve(text)) {
            ("null", value @ Scalar::Null)
            | ("bool", value @ Scalar::Bool(_))
            | ("int", value @ (Scalar::Int(_) | Scalar::Uint(_)))
            | ("float", value @ Scalar::Float(_)) => Ok(value),
            #[expect(clippy::cast_precision_loss, reason = "that is what the tag asks for")]
            ("float", Scalar::Int(value)) => Ok(Scalar::Float(value as f64)),
            ("timestamp", value @ Scalar::Text(_)) => Ok(value),
            (_, value) => Err(format!("cannot decode !!{} `{text}` as a !!{name}", value.tag())),
        },
    }
}

fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    number(text).unwrap_or_else(|| Scalar::Text(text.to_owned()))
}

fn number(text: &str) -> Option<Scalar> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    integer(digits, negative).or_else(|| float(&plain).map(Scalar::Float))
}

/// An integer in the base that its prefix says: `0x`, `0o` or `0`, `0b`.
fn integer(digits: &str, negative: bool) -> Option<Scalar> {
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = [("0x", 16), ("0o", 8), ("0b", 2)]
        .iter()
        .find_map(|(prefix, radix)| Some((*radix, lower.strip_prefix(prefix)?)))
        .unwrap_or(if lower.len() > 1 && lower.starts_with('0') { (8, &lower[1..]) } else { (10, &lower) });
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -value } else { value };
    i64::try_from(value).map(Scalar::Int).or_else(|_| u64::try_from(value).map(Scalar::Uint)).ok()
}

fn float(text: &str) -> Option<f64> {
    // Rust also reads words such as `inf`, which are text in YAML.
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let value: f64 = text.chars().all(is_number).then(|| text.parse().ok())??;
    value.is_finite().then_some(value)
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
