//! Types, conversions between them, and optional values.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{
    SignedDuration, Timestamp,
    civil::date,
    tz::{Offset, TimeZone},
};

use super::{
    super::{
        budget::{Budget, Writer},
        eval::{Error, Outcome},
        go::{float, nanoseconds, text::shortest, time},
        held,
        timestamp::OffsetTime,
        value::{List, Map, Value},
    },
    Invocation,
};

/// The names of types, which are values too.
pub(in super::super) const TYPES: [&str; 11] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type"];
/// Those of types whose names have dots.
pub(in super::super) const DOTTED_TYPES: [&str; 4] =
    ["google.protobuf.Duration", "google.protobuf.Timestamp", "net.CIDR", "net.IP"];

pub(super) fn call<'a>(call: &Invocation<'_, 'a>, budget: &mut Budget) -> Option<Outcome<'a>> {
    if call.namespace == Some("optional") {
        return optional(call.name, call.args, budget);
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
        ("unwrapOpt", [Value::List(list)]) if call.receiver => unwrap(list, budget),
        ("dyn", [value]) if !call.receiver => Ok(value.clone()),
        ("type", [value]) if !call.receiver => Ok(Value::Type(value.type_name())),
        ("int", [value]) if !call.receiver => int(value),
        ("uint", [value]) if !call.receiver => uint(value),
        ("double", [value]) if !call.receiver => double(value),
        ("bool", [value]) if !call.receiver => boolean(value),
        ("string", [value]) if !call.receiver => string(value, budget),
        ("bytes", [Value::String(text)]) if !call.receiver => Ok(Value::Bytes(text.as_bytes().into())),
        ("bytes", [Value::Bytes(bytes)]) if !call.receiver => Ok(Value::Bytes(bytes.clone())),
        ("timestamp", [Value::String(text)]) if !call.receiver => timestamp(text),
        ("timestamp", [Value::Timestamp(time)]) if !call.receiver => Ok(Value::Timestamp(*time)),
        ("timestamp", [Value::Int(seconds)]) if !call.receiver => {
            let seconds = if *seconds <= LAST { (*seconds).min(Timestamp::MAX.as_second()) } else { *seconds };
            Timestamp::from_second(seconds).map_err(|_| late()).and_then(|at| in_time(OffsetTime::utc(at)))
        }
        ("duration", [Value::String(text)]) if !call.receiver => duration(text),
        ("duration", [Value::Int(nanoseconds)]) if !call.receiver => {
            Ok(Value::Duration(SignedDuration::from_nanos(*nanoseconds)))
        }
        ("duration", [Value::Duration(duration)]) if !call.receiver => Ok(Value::Duration(*duration)),
        _ => return None,
    })
}

fn optional<'a>(name: &str, args: &[Value<'a>], budget: &mut Budget) -> Option<Outcome<'a>> {
    if let ("unwrap", [Value::List(list)]) = (name, args) {
        return Some(unwrap(list, budget));
    }
    Some(Ok(Value::Optional(match (name, args) {
        ("none", []) => None,
        ("of", [value]) => Some(Box::new(value.clone())),
        ("ofNonZeroValue", [value]) => (!is_zero(value)).then(|| Box::new(value.clone())),
        _ => return None,
    })))
}

/// The values of the optional ones that have one.
fn unwrap<'a>(list: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    budget.spend(list.len())?;
    held::room(list.len())?;
    let values = list.iter().filter_map(|item| match item {
        Value::Optional(value) => value.map(|value| Ok(*value)),
        _ => Some(Err(Error::no_such_overload())),
    });
    values.collect::<Result<_, _>>().map(Value::list)
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) => true,
        Value::Duration(duration) => duration.is_zero(),
        Value::Timestamp(time) => time.at == first(),
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

fn unreadable(kind: &str) -> Error {
    Error::new(format!("type conversion error from 'string' to '{kind}'"))
}

fn no_overload(function: &str, value: &Value<'_>) -> Error {
    Error::new(format!("no such overload: {function}({})", value.type_name()))
}

fn int_overflow() -> Error {
    Error::new("integer overflow")
}

fn uint_overflow() -> Error {
    Error::new("unsigned integer overflow")
}

fn int<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Int(match value {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| int_overflow())?,
        // The bounds are floating-point numbers that are none of 64 bits, and not in between themselves.
        Value::Double(value) if *value > i64::MIN as f64 && *value < i64::MAX as f64 => value.trunc() as i64,
        Value::Double(_) => return Err(int_overflow()),
        Value::String(text) => text.parse().map_err(|_| unreadable("int"))?,
        Value::Timestamp(time) => time.unix_seconds(),
        Value::Duration(duration) => i64::try_from(duration.as_nanos()).map_err(|_| int_overflow())?,
        other => return Err(no_overload("int", other)),
    }))
}

fn uint<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Uint(match value {
        Value::Int(value) => u64::try_from(*value).map_err(|_| uint_overflow())?,
        Value::Uint(value) => *value,
        Value::Double(value) if (0.0..u64::MAX as f64).contains(value) => value.trunc() as u64,
        Value::Double(_) => return Err(uint_overflow()),
        Value::String(text) if text.starts_with('+') => return Err(unreadable("uint")),
        Value::String(text) => text.parse().map_err(|_| unreadable("uint"))?,
        other => return Err(no_overload("uint", other)),
    }))
}

fn double<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Double(match value {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::Double(value) => *value,
        Value::String(text) => float::parse(text).ok_or_else(|| unreadable("double"))?,
        other => return Err(no_overload("double", other)),
    }))
}

fn boolean<'a>(value: &Value<'a>) -> Outcome<'a> {
    match value {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(unreadable("bool")),
        },
        other => Err(no_overload("bool", other)),
    }
}

fn string<'a>(value: &Value<'a>, budget: &mut Budget) -> Outcome<'a> {
    match value {
        Value::String(text) => Ok(Value::String(text.clone())),
        Value::Bytes(bytes) => {
            let wrong = |_| Error::new("invalid UTF-8 in bytes, cannot convert to string");
            let text = std::str::from_utf8(bytes).map_err(wrong)?;
            Ok(Value::text(text))
        }
        Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Duration(_)
        | Value::Timestamp(_) => display(value, budget).map(Value::text),
        Value::Ip(_) | Value::Cidr(..) => display(value, budget).map(Value::text),
        other => Err(no_overload("string", other)),
    }
}

fn first() -> Timestamp {
    date(1, 1, 1).to_zoned(TimeZone::UTC).map_or(Timestamp::MIN, |first| first.timestamp())
}

fn late() -> Error {
    Error::new("timestamp overflow")
}

/// The last second that there is upstream, since 1970. `jiff` ends a day earlier, with which the rest of that time is one.
const LAST: i64 = 253_402_300_799;

/// A time that is not before the first one.
pub(in super::super) fn in_time<'a>(time: OffsetTime) -> Outcome<'a> {
    if time.at < first() { Err(late()) } else { Ok(Value::Timestamp(time)) }
}

pub(in super::super) fn timestamp<'a>(text: &str) -> Outcome<'a> {
    let (utc, offset) = time::with_offset(text).map_err(|_| unreadable("google.protobuf.Timestamp"))?;
    let at = Offset::UTC.to_timestamp(utc.min(time::LAST)).map_err(|_| late())?;
    in_time(OffsetTime { at, offset: Offset::from_seconds(offset).map_err(|_| late())? })
}

/// Reads a duration of so many nanoseconds as 64 bits count.
pub(in super::super) fn duration<'a>(text: &str) -> Outcome<'a> {
    let nanoseconds = nanoseconds(text).map_err(|_| unreadable("google.protobuf.Duration"))?;
    Ok(Value::Duration(SignedDuration::from_nanos(nanoseconds)))
}

/// A value as `string()` and `format()` show it.
pub(in super::super) fn display(value: &Value<'_>, budget: &mut Budget) -> Result<String, Error> {
    let mut out = Writer::new(budget);
    show(value, &mut out)?;
    Ok(out.finish())
}

/// Writes a value as `string()` and `format()` show it, for a step.
pub(in super::super) fn show(value: &Value<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    out.step()?;
    match value {
        Value::Null => out.push("null"),
        Value::Bool(value) => out.show(value),
        Value::Int(value) => out.show(value),
        Value::Uint(value) => out.show(value),
        Value::Double(value) => out.push(&shortest(*value)),
        Value::String(text) => out.push(text),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => out.push(text),
            Err(_) => out.push(&BASE64_STANDARD.encode(bytes)),
        },
        Value::List(list) => show_list(list, out),
        Value::Map(map) => show_map(map, out),
        Value::Duration(duration) => {
            let seconds = format!("{}.{:09}", duration.as_secs().unsigned_abs(), duration.subsec_nanos().abs());
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
        Value::Format(format) => out.push(format.name),
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
