//! Properties of decoding.

use std::sync::LazyLock;

use serde_json::Value;

use super::{Decoded, Decoder, Format, MAX_DEPTH, height, parse};
use crate::{fuzzing::WIDGET, request::FieldValidation, status::ApiError};

/// The decoder of the kind that all targets use.
pub(crate) static DECODER: LazyLock<Decoder> = LazyLock::new(|| Decoder::new(&WIDGET).expect("the schema is complete"));

/// JSON is read as `serde_json` reads it once halves of characters are replaced, and decoded in all modes alike.
pub fn json(body: &[u8]) {
    let text = with_whole_characters(&String::from_utf8_lossy(body));
    match (parse(body, Format::Json), serde_json::from_str::<Value>(&text)) {
        (Ok(ours), Ok(theirs)) => {
            // Without a schema the last of those that stand twice counts for both.
            assert!(same(&ours.value, &theirs), "{text}: {ours:?}, but {theirs}");
            assert!(height(&ours.value) <= MAX_DEPTH, "{text}");
        }
        (Err(error), Err(_)) => assert!(!error.to_string().is_empty()),
        (ours, theirs) => panic!("{text}: {ours:?}, but {theirs:?}"),
    }
    decode(body, Format::Json);
}

/// A text in which each half of a surrogate pair that stands alone is an escaped U+FFFD instead, which is what Go reads.
fn with_whole_characters(text: &str) -> String {
    // Each escape by itself, and the text between.
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('\\') {
        let unit = rest[at..].strip_prefix("\\u").and_then(|digits| digits.get(..4));
        let unit = unit.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let length = match unit {
            Some(_) => 6,
            None => rest[at..].chars().take(2).map(char::len_utf8).sum(),
        };
        pieces.push((&rest[..at], None));
        pieces.push((&rest[at..at + length], unit.and_then(|digits| u16::from_str_radix(digits, 16).ok())));
        rest = &rest[at + length..];
    }
    pieces.push((rest, None));
    let pieces: Vec<_> = pieces.into_iter().filter(|(text, _)| !text.is_empty()).collect();
    let is = |index: usize, range: std::ops::Range<u16>| {
        pieces.get(index).is_some_and(|(_, unit)| unit.is_some_and(|unit| range.contains(&unit)))
    };
    let (mut whole, mut index) = (String::new(), 0);
    while let Some((piece, _)) = pieces.get(index) {
        if is(index, 0xd800..0xdc00) && is(index + 1, 0xdc00..0xe000) {
            whole.push_str(piece);
            whole.push_str(pieces[index + 1].0);
            index += 1;
        } else if is(index, 0xd800..0xe000) {
            whole.push_str("\\ufffd");
        } else {
            whole.push_str(piece);
        }
        index += 1;
    }
    whole
}

/// Whether two values are the same; there are several ways to write a number.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

/// YAML reads back as it was written, in both ways of writing it, and is decoded in all modes alike.
pub fn yaml(body: &[u8]) {
    if let Ok(parsed) = parse(body, Format::Yaml) {
        assert!(height(&parsed.value) <= MAX_DEPTH);
        // JSON is YAML, but for keys so long that YAML has no short form of them.
        if !has_long_keys(&parsed.value) {
            let json = parsed.value.to_string();
            let again = parse(json.as_bytes(), Format::Yaml).unwrap_or_else(|error| panic!("{json}: {error}"));
            assert_eq!(again.value, parsed.value, "{json}");
        }
        let text = serde_saphyr::to_string(&parsed.value).expect("a value is written as YAML");
        let again = parse(text.as_bytes(), Format::Yaml).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(again.value, parsed.value, "{text}");
        if let Some(theirs) = std::str::from_utf8(body).ok().and_then(|text| serde_saphyr::from_str(text).ok()) {
            agree(&parsed.value, &theirs);
        }
    }
    decode(body, Format::Yaml);
}

/// Another reader sees the same maps and lists; what scalars mean differs between versions of YAML.
fn agree(ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            ours.iter().zip(theirs).for_each(|(ours, theirs)| agree(ours, theirs));
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            for (key, value) in ours {
                if let Some(other) = theirs.get(key) {
                    agree(value, other);
                }
            }
        }
        // An empty document is null to one and empty to the other.
        (Value::Array(_), _) | (_, Value::Array(_)) | (Value::Object(_), Value::String(_)) => {
            panic!("{ours}, but {theirs}")
        }
        _ => {}
    }
}

fn decode(body: &[u8], format: Format) {
    let mode = |validation| DECODER.decode(body, format, validation);
    let refused = |error: &ApiError| assert_eq!((error.code(), error.reason()), (400, "BadRequest"));
    let ignored = match (mode(FieldValidation::Strict), mode(FieldValidation::Warn), mode(FieldValidation::Ignore)) {
        (Ok(strict), Ok(warned), Ok(ignored)) => {
            assert_eq!(strict, ignored);
            assert_eq!(strict, warned);
            ignored
        }
        (Err(strict), Ok(warned), Ok(ignored)) => {
            refused(&strict);
            assert!(!warned.warnings.is_empty());
            assert_eq!(warned.object, ignored.object);
            ignored
        }
        (Err(strict), Err(warned), Err(ignored)) => {
            return [strict, warned, ignored].iter().for_each(refused);
        }
        other => panic!("{other:?}"),
    };
    read_back(&ignored);
}

/// What was decoded is decoded strictly to the same, and each complaint about it names a field.
fn read_back(decoded: &Decoded) {
    let json = serde_json::to_vec(&decoded.object.0).expect("an object is written as JSON");
    let again = DECODER.decode(&json, Format::Json, FieldValidation::Strict);
    let again = again.unwrap_or_else(|error| panic!("{}: {error:?}", String::from_utf8_lossy(&json)));
    assert_eq!(again.object, decoded.object);
    for error in DECODER.structural_errors(&decoded.object) {
        assert!(!error.field.is_empty(), "{error:?}");
    }
    let mut conformed = decoded.object.clone();
    let warnings = DECODER.conform(&mut conformed, FieldValidation::Strict).expect("it conforms already");
    assert!(warnings.is_empty());
    assert_eq!(conformed, decoded.object);
}

/// Whether a key is so long that YAML wants a `?` before it; upstream's parser refuses it in JSON, too.
pub fn has_long_keys(value: &Value) -> bool {
    let is_long = |key: &str| serde_json::to_string(key).is_ok_and(|text| text.len() > 1000);
    match value {
        Value::Array(items) => items.iter().any(has_long_keys),
        Value::Object(map) => map.iter().any(|(key, value)| is_long(key) || has_long_keys(value)),
        _ => false,
    }
}
