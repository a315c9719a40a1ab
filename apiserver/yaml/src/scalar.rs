//! The value of a scalar, as a value and as a key.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use serde_json::{Number, Value};
use serde_saphyr::granit_parser::{ScalarStyle, Tag};

use crate::{ErrorKind, Numbers};

/// A scalar as YAML 1.1 understands it.
#[derive(Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

/// A key of a map. In YAML 1 is another key than "1", though in JSON it is not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) is_text: bool,
}

impl Scalar {
    /// Resolves a scalar as `go.yaml.in/yaml/v2/resolve.go` does.
    pub(crate) fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Self, ErrorKind> {
        // Tags of others say nothing here; their scalars are text.
        let name = tag.map(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:").unwrap_or("str".into()));
        match (name.as_deref(), style) {
            (None, ScalarStyle::Plain) => Ok(plain(text)),
            (None | Some("str"), _) => Ok(Self::Text(text.to_owned())),
            (Some("binary"), _) => {
                let text = decode(text).and_then(|bytes| String::from_utf8(bytes).ok());
                let wrong = || ErrorKind::Syntax("!!binary value contains invalid base64 data".to_owned());
                text.map(Self::Text).ok_or_else(wrong)
            }
            (Some(name), _) => match (name, plain(text)) {
                ("null", value @ Self::Null)
                | ("bool", value @ Self::Bool(_))
                | ("int", value @ (Self::Int(_) | Self::Uint(_)))
                | ("float", value @ Self::Float(_)) => Ok(value),
                #[expect(clippy::cast_precision_loss, reason = "that is what the tag asks for")]
                ("float", Self::Int(value)) => Ok(Self::Float(value as f64)),
                ("timestamp", value @ Self::Text(_)) => Ok(value),
                (_, value) => {
                    Err(ErrorKind::Mistagged { tag: name.to_owned(), is: value.tag(), text: text.to_owned() })
                }
            },
        }
    }

    /// The tag of a plain scalar of this value.
    fn tag(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::Uint(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
        }
    }

    /// The value in JSON.
    pub(crate) fn into_json(self, numbers: Numbers) -> Result<Value, ErrorKind> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Int(value) => value.into(),
            Self::Uint(value) => value.into(),
            Self::Text(text) => text.into(),
            Self::Float(value) => match whole(value).filter(|_| numbers != Numbers::Typed) {
                // Go writes a whole float without a fraction, so that it reads back as an integer.
                Some(value) => value.into(),
                None => Number::from_f64(value)
                    .map(Value::Number)
                    .ok_or_else(|| ErrorKind::NotJson(not_finite(value, ["NaN", "+Inf", "-Inf"])))?,
            },
        })
    }

    /// The digits of a decimal number whose float in JSON is another number.
    pub(crate) fn inexact(&self, text: &str) -> Option<String> {
        let Self::Float(value) = self else { return None };
        let text = text.replace('_', "");
        // JSON has the shortest digits that lead to the float.
        let exact = decimal(&text)?;
        let is_inexact = value.is_finite() && decimal(&format!("{value:e}"))? != exact;
        let text = text.trim_start_matches('+');
        is_inexact.then(|| if text.starts_with('.') { format!("0{text}") } else { text.to_owned() })
    }

    /// The key in JSON.
    pub(crate) fn into_key(self) -> Result<Key, ErrorKind> {
        let (name, is_text) = match self {
            Self::Null => return Err(unsupported_key("null")),
            Self::Bool(value) => (value.to_string(), false),
            Self::Int(value) => (value.to_string(), false),
            Self::Uint(_) => return Err(unsupported_key("uint64")),
            Self::Float(value) => (float_key(value), false),
            Self::Text(text) => (text, true),
        };
        Ok(Key { name, is_text })
    }
}

fn unsupported_key(of: &str) -> ErrorKind {
    ErrorKind::Syntax(format!("unsupported map key of type {of}"))
}

/// A name for a number that is not finite.
fn not_finite(value: f64, [nan, positive, negative]: [&'static str; 3]) -> &'static str {
    match value {
        _ if value.is_nan() => nan,
        _ if value > 0.0 => positive,
        _ => negative,
    }
}

/// A float as a key: `strconv.FormatFloat(value, 'g', -1, 32)` in `sigs.k8s.io/yaml`, which writes `1.50` as `1.5` and
/// `1e6` as `1e+06`.
fn float_key(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Go writes keys with 32 bits")]
    let short = value as f32;
    if !short.is_finite() {
        return not_finite(value, [".nan", ".inf", "-.inf"]).to_owned();
    }
    let scientific = format!("{short:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&power) {
        return short.to_string();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

#[expect(clippy::cast_possible_truncation, reason = "the range is checked, and the fraction is none")]
fn whole(value: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

/// Bytes in base64, as Go's decoder reads them.
fn decode(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));
    let in_one_line: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    LENIENT.decode(in_one_line).ok()
}

/// What a scalar without quotes and tag stands for. Timestamps stay text.
fn plain(text: &str) -> Scalar {
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

/// The sign, the digits without zeros around them, and the exponent of a decimal number.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (is_negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let exponent = exponent.checked_add(dropped)?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    Some((is_negative, significant.to_owned(), exponent))
}

fn float(text: &str) -> Option<f64> {
    // Rust also reads words such as `inf`, which are text in YAML.
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
    let value: f64 = text.chars().all(is_number).then(|| text.parse().ok())??;
    value.is_finite().then_some(value)
}
