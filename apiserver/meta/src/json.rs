//! JSON as Go's `encoding/json` writes it, which is what clients of kube-apiserver get.

use std::{fmt, io};

use serde::Serialize;
use serde_json::{
    Number, Value,
    ser::{CompactFormatter, Formatter},
};

/// Encodes a value, safe to be put into HTML, as Go's encoder does unless it is told not to. Fails when the value does
/// not serialize, such as a map whose keys are no text.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut json = Vec::with_capacity(128);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut json, AsGo))?;
    Ok(json)
}

/// The text of what is texts, numbers, lists and maps by text, and so always has one.
pub fn text<T: Serialize + ?Sized>(value: &T) -> String {
    let json = to_vec(value).expect("texts and numbers serialize");
    String::from_utf8(json).expect("JSON is UTF-8")
}

/// Writes `<`, `>`, `&` and the two line ends of JavaScript that are none in JSON as `\u` escapes, and numbers as
/// [`GoNumber`] does.
struct AsGo;

impl Formatter for AsGo {
    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, number: f64) -> io::Result<()> {
        write!(writer, "{}", Float(number))
    }

    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'<' | b'>' | b'&' | LINE_END_START)) {
            let (before, from) = rest.split_at(at);
            let special = from.chars().next().unwrap_or_default();
            CompactFormatter.write_string_fragment(writer, before)?;
            match special {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(writer, "\\u{:04x}", u32::from(special))?,
                other => write!(writer, "{other}")?,
            }
            rest = &from[special.len_utf8()..];
        }
        CompactFormatter.write_string_fragment(writer, rest)
    }
}

/// A number as Go writes it: whole floats without a fraction, very large and very small ones with an exponent.
pub(crate) struct GoNumber<'a>(pub(crate) &'a Number);

impl fmt::Display for GoNumber<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_f64() {
            Some(float) if self.0.is_f64() => Float(float).fmt(f),
            _ => self.0.fmt(f),
        }
    }
}

struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let float = self.0;
        let magnitude = float.abs();
        if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
            return write!(f, "{float}");
        }
        let scientific = format!("{float:e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        write!(f, "{mantissa}e{sign}{exponent}")
    }
}

/// The integer that a number is once it was written and read again.
pub fn integer(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= i64::MAX as f64)?;
        // In as few digits as tell it from other floats.
        float.to_string().parse().ok()
    })
}

/// Makes all numbers in a value what they are once they were written and read again, so that it equals what is stored.
pub(crate) fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => settle_number(number),
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(map) => map.values_mut().for_each(settle_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The same of one number. What is no integer of 64 bits with a sign is a float to Go.
pub(crate) fn settle_number(number: &mut Number) {
    if number.is_i64() {
        return;
    }
    let again = match integer(number) {
        Some(whole) => Some(whole.into()),
        None => number.as_f64().and_then(|float| Float(float).to_string().parse().ok()),
    };
    if let Some(again) = again {
        *number = again;
    }
}

/// The first byte of U+2028 and U+2029, and of many others.
const LINE_END_START: u8 = 0xe2;

/// The same JSON in lines, each level two spaces deeper; strings, numbers and the order of fields stay as they are.
///
/// Follows `json.Indent`. What is given has to be JSON.
pub fn in_lines(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut level = 0_usize;
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', level * 2));
    };
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' if matches!(json.get(at), Some(b'}' | b']')) => {
                out.extend_from_slice(&[byte, json[at]]);
                at += 1;
            }
            b'{' | b'[' => {
                level += 1;
                out.push(byte);
                line(&mut out, level);
            }
            b'}' | b']' => {
                level = level.saturating_sub(1);
                line(&mut out, level);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, level);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                let end = end_of_string(json, at - 1).unwrap_or(json.len());
                out.extend_from_slice(&json[at - 1..end]);
                at = end;
            }
            b' ' | b'\n' | b'\r' | b'\t' => {}
            other => out.push(other),
        }
    }
    out
}

/// The position after the string that begins with the quote at `at`; `None` where none begins, or ends.
pub fn end_of_string(json: &[u8], at: usize) -> Option<usize> {
    if json.get(at) != Some(&b'"') {
        return None;
    }
    let mut i = at + 1;
    loop {
        match json.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::json_value;

    #[test]
    fn encoder_escapes_html_characters() {
        let value = json!({"a<b": "x>y & z\u{2028}\u{2029} \u{20ac} \"quoted\" \u{7f}\n"});
        let expected = r#"{"a\u003cb":"x\u003ey \u0026 z\u2028\u2029 € \"quoted\" "#.to_owned() + "\u{7f}" + r#"\n"}"#;
        assert_eq!(text(&value), expected);
    }

    #[test]
    fn floats_have_the_form_that_go_gives_them() {
        let value = json!([1.0, -0.0, 0.1, 1e20, 1e21, 1e-6, 1e-7, 1.5e300, -2.5e-9, 12_345_678.25]);
        let expected = "[1,-0,0.1,100000000000000000000,1e+21,0.000001,1e-7,1.5e+300,-2.5e-9,12345678.25]";
        assert_eq!(text(&value), expected);
    }

    #[test]
    fn settled_numbers_are_what_is_read_again() {
        let mut value =
            json!([1.0, -0.0, 0.1, 1e20, 1e-7, 9.3e18, 9_223_372_036_854_775_808_u64, i64::MIN, [{"a": 2.0}]]);
        settle_numbers(&mut value);
        assert_eq!(serde_json::from_str::<Value>(&text(&value)).unwrap(), value);
        assert_eq!(
            text(&value),
            "[1,0,0.1,100000000000000000000,1e-7,9300000000000000000,9223372036854776000,-9223372036854775808,[{\"a\":2}]]"
        );
    }

    #[test]
    fn lines_keep_the_order_and_the_text() {
        let json = br#"{"b":1.50,"a":[],"c":{"d":"{,\":]\\","e":[1,{}]}}"#;
        let expected = "{\n  \"b\": 1.50,\n  \"a\": [],\n  \"c\": {\n    \"d\": \"{,\\\":]\\\\\",\n    \"e\": [\n      1,\n      {}\n    ]\n  }\n}";
        assert_eq!(String::from_utf8(in_lines(json)).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn every_value_survives_json_round_trip(value in json_value()) {
            let json = to_vec(&value).unwrap();
            prop_assert_eq!(&serde_json::from_slice::<Value>(&json).unwrap(), &value);
            prop_assert!(!json.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&')));
            prop_assert_eq!(in_lines(value.to_string().as_bytes()), serde_json::to_vec_pretty(&value).unwrap());
        }
    }
}
