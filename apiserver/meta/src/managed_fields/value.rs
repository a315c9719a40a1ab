//! JSON values as Go's `structured-merge-diff/v6/value` orders, compares and prints them.
//!
//! Integers and floats are one kind of number here, and the order of kinds is part of what
//! `managedFields` look like.

use std::{
    cmp::Ordering,
    fmt::{self, Write as _},
};

use serde_json::{Map, Number, Value};

use crate::{
    json::{GoNumber, integer},
    status::quote,
};

/// Whether two values are equal; `1` equals `1.0`.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => equal_maps(a, b),
        _ => a == b,
    }
}

pub(super) fn equal_maps(a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| equal(value, other)))
}

/// Orders values: numbers, strings, booleans, lists, maps, null.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => compare_all(a.iter(), b.iter(), compare),
        (Value::Object(a), Value::Object(b)) => {
            let entry = |a: (&String, &Value), b: (&String, &Value)| a.0.cmp(b.0).then_with(|| compare(a.1, b.1));
            compare_all(sorted(a).into_iter(), sorted(b).into_iter(), entry)
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Compares item by item; of two lists that begin alike, the shorter comes first.
pub(super) fn compare_all<T>(
    mut a: impl Iterator<Item = T>,
    mut b: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match compare(a, b) {
                Ordering::Equal => {}
                unequal => return unequal,
            },
        }
    }
}

/// Go compares an integer with a float as floats, which is no order: large integers are distinct, and equal to one float.
fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_exactly(a, float(b)),
        (None, Some(b)) => compare_exactly(b, float(a)).reverse(),
        (None, None) => float(a).partial_cmp(&float(b)).unwrap_or(Ordering::Equal),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "it is whole, and what is out of range is beyond all integers")]
fn compare_exactly(integer: i64, float: f64) -> Ordering {
    let below = i128::from(integer).cmp(&(float.floor() as i128));
    if float.fract() == 0.0 { below } else { below.then(Ordering::Less) }
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(0.0)
}

fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// A value in a path: `"a"`, `1`, `true`.
pub(super) struct InPath<'a>(pub(super) &'a Value);

impl fmt::Display for InPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Number(number) => write_number(f, number),
            Value::String(text) => f.write_str(&quote(text)),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| InPath(item).to_string()).collect();
                write!(f, "[{}]", items.join(","))
            }
            Value::Object(map) => {
                sorted(map).into_iter().try_for_each(|(key, value)| write!(f, "{key}={}", InPath(value)))
            }
        }
    }
}

/// A value as Go's `%v` prints it.
pub(crate) struct Plain<'a>(pub(crate) &'a Value);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Number(number) => write_number(f, number),
            Value::String(text) => f.write_str(text),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| Plain(item).to_string()).collect();
                write!(f, "[{}]", items.join(" "))
            }
            Value::Object(map) => {
                let entries: Vec<_> =
                    sorted(map).into_iter().map(|(key, value)| format!("{key}:{}", Plain(value))).collect();
                write!(f, "map[{}]", entries.join(" "))
            }
        }
    }
}

/// A value as Go's `%#v` prints it.
pub(super) struct Syntax<'a>(pub(super) &'a Value);

impl fmt::Display for Syntax<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("interface {}(nil)"),
            Value::Bool(flag) => write!(f, "{flag}"),
            Value::Number(number) => write_number(f, number),
            Value::String(text) => f.write_str(&quote(text)),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| Syntax(item).to_string()).collect();
                write!(f, "[]interface {{}}{{{}}}", items.join(", "))
            }
            Value::Object(map) => {
                let entries: Vec<_> =
                    sorted(map).into_iter().map(|(key, value)| format!("{}:{}", quote(key), Syntax(value))).collect();
                write!(f, "map[string]interface {{}}{{{}}}", entries.join(", "))
            }
        }
    }
}

/// What Go calls a decoded value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

fn write_number(f: &mut fmt::Formatter<'_>, number: &Number) -> fmt::Result {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return write!(f, "{number}") };
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return write!(f, "{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(f, "{mantissa}e{sign}{:02}", exponent.abs())
}

/// Appends a value as JSON, byte for byte as the encoder of `structured-merge-diff` (json-iterator) writes it: keys sorted,
/// `<`, `>` and `&` escaped. It has no short escapes for backspace and form feed, as `encoding/json` has, which
/// [`crate::json`] follows.
pub(super) fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => {
            let _ = write!(out, "{}", GoNumber(number));
        }
        Value::String(text) => write_json_string(text, true, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, value)) in sorted(map).into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json_string(key, true, out);
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
    }
}

/// Appends a string as JSON, with or without the escapes that make it safe inside HTML.
pub(super) fn write_json_string(text: &str, html: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_ordered_and_numbers_are_one_kind() {
        let ascending = [
            json!(-1),
            json!(0.5),
            json!(1),
            json!(1.5),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([1]),
            json!([1, 2]),
            json!({"a": 1}),
            json!({"a": 2}),
            json!(null),
        ];
        for (i, a) in ascending.iter().enumerate() {
            for (j, b) in ascending.iter().enumerate() {
                assert_eq!(compare(a, b), i.cmp(&j), "{a} {b}");
                assert_eq!(equal(a, b), i == j, "{a} {b}");
            }
        }
        assert!(equal(&json!({"a": [1]}), &json!({"a": [1.0]})));
    }

    proptest::proptest! {
        /// Whatever is sorted by it comes in one order.
        #[test]
        fn numbers_are_ordered_totally(numbers in near_one_another()) {
            let [a, b, c] = &numbers;
            assert_eq!(compare(a, b), compare(b, a).reverse(), "{a} {b}");
            let known = compare(a, b);
            if known.is_eq() || known == compare(b, c) {
                assert_eq!(compare(a, c), compare(b, c), "{a} {b} {c}");
            }
        }
    }

    /// Numbers where floats are as far apart as integers, or further.
    fn near_one_another() -> impl proptest::strategy::Strategy<Value = [Value; 3]> {
        use proptest::prelude::*;
        let power = prop_oneof![Just(0_u32), 52..=54_u32, 62..=63_u32];
        let number = || (-3..=3_i128, 0..3_u8);
        (power, any::<bool>(), [number(), number(), number()]).prop_map(|(power, negative, numbers)| {
            numbers.map(|(offset, kind)| {
                let number = ((1_i128 << power) + offset) * if negative { -1 } else { 1 };
                let float = json!(number as f64 + if kind == 1 { 0.5 } else { 0.0 });
                let integer =
                    i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from));
                if kind == 2 { integer.unwrap_or(float) } else { float }
            })
        })
    }

    #[test]
    fn integers_and_floats_compare_exactly() {
        let float = json!(9_007_199_254_740_992.0);
        for (integer, expected) in [
            (9_007_199_254_740_991_i64, Ordering::Less),
            (9_007_199_254_740_992, Ordering::Equal),
            (9_007_199_254_740_993, Ordering::Greater),
        ] {
            assert_eq!(compare(&json!(integer), &float), expected);
            assert_eq!(compare(&float, &json!(integer)), expected.reverse());
        }
        assert_eq!(compare(&json!(i64::MAX), &json!(9_223_372_036_854_775_808.0)), Ordering::Less);
        assert_eq!(compare(&json!(i64::MIN), &json!(-1e300)), Ordering::Greater);
        assert_eq!(compare(&json!(-1), &json!(-1.5)), Ordering::Greater);
        assert_eq!(compare(&json!(-2), &json!(-1.5)), Ordering::Less);
    }

    proptest::proptest! {
        #[test]
        fn number_survives_json_round_trip(float in proptest::num::f64::NORMAL, whole: i64) {
            for number in [json!(float), json!(float.trunc()), json!(whole), json!(whole as f64)] {
                let mut written = String::new();
                write_json(&number, &mut written);
                let read: Value = serde_json::from_str(&written).unwrap();
                assert_eq!(compare(&read, &number), Ordering::Equal, "{number} was written as {written}");
            }
        }
    }

    #[test]
    fn values_print_as_go_prints_them() {
        let check = |value: Value, in_path: &str, plain: &str, encoded: &str| {
            assert_eq!(InPath(&value).to_string(), in_path);
            assert_eq!(Plain(&value).to_string(), plain);
            let mut out = String::new();
            write_json(&value, &mut out);
            assert_eq!(out, encoded);
        };
        check(json!("a<\"\n\u{1}"), r#""a<\"\n\x01""#, "a<\"\n\u{1}", r#""a\u003c\"\n\u0001""#);
        check(json!(1_500_000.0), "1.5e+06", "1.5e+06", "1500000");
        check(json!(1e21), "1e+21", "1e+21", "1e+21");
        check(json!(1e-7), "1e-07", "1e-07", "1e-7");
        check(json!(3.0), "3", "3", "3");
        check(json!([1, true, null]), "[1,true,null]", "[1 true <nil>]", "[1,true,null]");
        check(json!({"b": 1, "a": "x"}), r#"a="x"b=1"#, "map[a:x b:1]", r#"{"a":"x","b":1}"#);
        assert_eq!(
            Syntax(&json!({"a": ["x", 1]})).to_string(),
            r#"map[string]interface {}{"a":[]interface {}{"x", 1}}"#
        );
    }
}
