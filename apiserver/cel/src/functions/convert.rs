//! Types, conversions between them, and optional values.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        budget::{Budget, Writer},
        eval::{Error, Outcome},
        value::{List, Map, Value},
    },
    Invocation,
};

/// The names of types, which are values too.
pub(in super::super) const TYPES: [&str; 11] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "dyn"];

pub(super) const NAMES: &[&str] = &[
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "dyn",
    "type",
    "timestamp",
    "duration",
    "of",
    "none",
    "ofNonZeroValue",
    "hasValue",
    "value",
    "or",
    "orValue",
];

pub(super) fn call<'a>(call: &Invocation<'_, 'a>, budget: &mut Budget) -> Option<Outcome<'a>> {
    if call.namespace == Some("optional") {
        return optional(call.name, call.args);
    }
    if call.namespace.is_some() {
        return None;
    }
    Some(match (call.name, call.args) {
        ("size", [value]) => size(value),
        ("hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("value", [Value::Optional(value)]) => {
            value.as_deref().cloned().ok_or_else(|| Error::new("optional.none() dereference"))
        }
        ("or", [Value::Optional(value), other]) => {
            Ok(if value.is_some() { call.args[0].clone() } else { other.clone() })
        }
        ("orValue", [Value::Optional(value), other]) => Ok(value.as_deref().unwrap_or(other).clone()),
        ("dyn", [value]) if !call.receiver => Ok(value.clone()),
        ("type", [value]) if !call.receiver => Ok(Value::Type(value.type_name())),
        ("int", [value]) if !call.receiver => int(value),
        ("uint", [value]) if !call.receiver => uint(value),
        ("double", [value]) if !call.receiver => double(value),
        ("bool", [value]) if !call.receiver => boolean(value),
        ("string", [value]) if !call.receiver => string(value, budget),
        ("bytes", [Value::String(text)]) if !call.receiver => Ok(Value::Bytes(text.as_bytes().into())),
        ("bytes", [Value::Bytes(bytes)]) if !call.receiver => Ok(Value::Bytes(bytes.clone())),
        ("timestamp", [Value::String(text)]) if !call.receiver => {
            text.parse::<Timestamp>().map(Value::Timestamp).map_err(|error| Error::new(error.to_string()))
        }
        ("timestamp", [Value::Timestamp(time)]) if !call.receiver => Ok(Value::Timestamp(*time)),
        ("timestamp", [Value::Int(seconds)]) if !call.receiver => {
            Timestamp::from_second(*seconds).map(Value::Timestamp).map_err(|error| Error::new(error.to_string()))
        }
        ("duration", [Value::String(text)]) if !call.receiver => duration(text),
        ("duration", [Value::Duration(duration)]) if !call.receiver => Ok(Value::Duration(*duration)),
        _ => return None,
    })
}

fn optional<'a>(name: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(Ok(Value::Optional(match (name, args) {
        ("none", []) => None,
        ("of", [value]) => Some(Box::new(value.clone())),
        ("ofNonZeroValue", [value]) => (!is_zero(value)).then(|| Box::new(value.clone())),
        _ => return None,
    })))
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Optional(None) => true,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.len() == 0,
        Value::Map(map) => map.len() == 0,
        _ => false,
    }
}

fn size<'a>(value: &Value<'a>) -> Outcome<'a> {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn unreadable(kind: &str, text: &str) -> Error {
    Error::new(format!("type conversion error from 'string' to '{kind}': {text:?}"))
}

fn out_of_range() -> Error {
    Error::new("range error")
}

fn int<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Int(match value {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| out_of_range())?,
        Value::Double(value) if value.abs() < 9.2e18 => value.trunc() as i64,
        Value::Double(_) => return Err(out_of_range()),
        Value::String(text) => text.parse().map_err(|_| unreadable("int", text))?,
        Value::Timestamp(time) => time.as_second(),
        Value::Duration(duration) => i64::try_from(duration.as_nanos()).map_err(|_| out_of_range())?,
        _ => return Err(Error::no_such_overload()),
    }))
}

fn uint<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Uint(match value {
        Value::Int(value) => u64::try_from(*value).map_err(|_| out_of_range())?,
        Value::Uint(value) => *value,
        Value::Double(value) if (0.0..1.8e19).contains(value) => value.trunc() as u64,
        Value::Double(_) => return Err(out_of_range()),
        Value::String(text) => text.parse().map_err(|_| unreadable("uint", text))?,
        _ => return Err(Error::no_such_overload()),
    }))
}

fn double<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Double(match value {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::Double(value) => *value,
        Value::String(text) => text.parse().map_err(|_| unreadable("double", text))?,
        _ => return Err(Error::no_such_overload()),
    }))
}

fn boolean<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            text => Err(unreadable("bool", text)),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn string<'a>(value: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    match value {
        Value::String(text) => Ok(Value::String(text.clone())),
        Value::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| Error::new("invalid UTF-8 in bytes"))?;
            Ok(Value::text(text))
        }
        Value::List(_) | Value::Map(_) | Value::Null | Value::Optional(_) | Value::Type(_) | Value::Authorizer(_) => {
            Err(Error::no_such_overload())
        }
        other => display(other, budget).map(Value::text),
    }
}

fn duration<'a>(text: &str) -> Outcome<'a> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    // There is one sign at most.
    let parsed: Option<Duration> =
        crate::go::parse_duration(unsigned).ok().filter(|_| !unsigned.starts_with(['+', '-']));
    let parsed = parsed.and_then(|duration| SignedDuration::try_from(duration).ok());
    let parsed = parsed.ok_or_else(|| Error::new(format!("time: invalid duration {text:?}")))?;
    Ok(Value::Duration(if negative { -parsed } else { parsed }))
}

/// A value as `string()` and `format()` show it.
///
/// # Errors
///
/// As for [`show`].
pub(in super::super) fn display(value: &Value<'_>, budget: &mut Budget) -> Result<String, Error> {
    let mut out = Writer::new(budget);
    show(value, &mut out)?;
    Ok(out.finish())
}

/// Writes a value as `string()` and `format()` show it, for a step.
///
/// # Errors
///
/// As for [`Writer::push`].
pub(in super::super) fn show(value: &Value<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    out.step()?;
    match value {
        Value::Null => out.push("null"),
        Value::Bool(value) => out.show(value),
        Value::Int(value) => out.show(value),
        Value::Uint(value) => out.show(value),
        Value::Double(value) => out.show(value),
        Value::String(text) => out.push(text),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => out.push(text),
            Err(_) => out.push(&BASE64_STANDARD.encode(bytes)),
        },
        Value::List(list) => show_list(list, out),
        Value::Map(map) => show_map(map, out),
        Value::Duration(duration) => {
            let seconds = format!("{}.{:09}", duration.as_secs().abs(), duration.subsec_nanos().abs());
            out.push(if duration.is_negative() { "-" } else { "" })?;
            out.push(seconds.trim_end_matches('0').trim_end_matches('.'))?;
            out.push("s")
        }
        Value::Timestamp(time) => out.show(time),
        Value::Optional(Some(value)) => {
            out.push("optional(")?;
            show(value, out)?;
            out.push(")")
        }
        Value::Optional(None) => out.push("optional.none()"),
        Value::Type(name) => out.push(name),
        Value::Url(url) => out.show(url),
        Value::Ip(ip) => out.show(ip),
        Value::Cidr(ip, length) => out.show(format_args!("{ip}/{length}")),
        Value::Semver(version) => out.show(version),
        Value::Quantity(quantity) => match quantity.as_int() {
            Some(int) => out.show(int),
            None => out.show(quantity.as_float()),
        },
        Value::Authorizer(check) => out.push(check.type_name()),
        Value::Struct(made) => made.show(out),
    }
}

fn show_list(list: &List<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    out.push("[")?;
    for (index, item) in list.iter().enumerate() {
        out.push(if index == 0 { "" } else { ", " })?;
        show(&item, out)?;
    }
    out.push("]")
}

fn show_map(map: &Map<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    out.push("{")?;
    for (index, (key, value)) in map.entries().enumerate() {
        out.push(if index == 0 { "" } else { ", " })?;
        out.show(key)?;
        out.push(": ")?;
        show(&value, out)?;
    }
    out.push("}")
}
