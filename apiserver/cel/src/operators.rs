//! The operators that look at all their operands: arithmetic, comparison, membership and indexing.

use std::{cmp::Ordering, slice};

use cel::common::ast::operators as op;
use jiff::SignedDuration;

use super::{
    budget::{Budget, fits},
    eval::{Error, Outcome},
    functions::in_time,
    held,
    timestamp::OffsetTime,
    value::{List, Value},
};

/// Those of a call's arguments that it goes through without paying for what it comes to: where something is looked up,
/// not all that is there besides.
pub(super) fn looked_through<'r, 'a>(name: &str, args: &'r [Value<'a>]) -> &'r [Value<'a>] {
    match (name, args) {
        (op::INDEX, [_, key]) | (op::IN, [key, Value::Map(_)]) => slice::from_ref(key),
        (op::EQUALS | op::NOT_EQUALS, [_, _]) => &[],
        _ => args,
    }
}

/// Applies an operator; nothing when the name is none.
pub(super) fn apply<'a>(name: &str, args: &[Value<'a>], budget: &mut Budget) -> Option<Outcome<'a>> {
    Some(match (name, args) {
        (op::EQUALS, [a, b]) => a.equals(b, budget).map(Value::Bool),
        (op::NOT_EQUALS, [a, b]) => a.equals(b, budget).map(|equal| Value::Bool(!equal)),
        (op::LESS, [a, b]) => ordered(a, b, Ordering::is_lt),
        (op::LESS_EQUALS, [a, b]) => ordered(a, b, Ordering::is_le),
        (op::GREATER, [a, b]) => ordered(a, b, Ordering::is_gt),
        (op::GREATER_EQUALS, [a, b]) => ordered(a, b, Ordering::is_ge),
        (op::ADD, [a, b]) => add(a, b),
        (op::SUBSTRACT, [a, b]) => subtract(a, b),
        (op::MULTIPLY, [a, b]) => arithmetic(a, b, i64::checked_mul, u64::checked_mul, |a, b| a * b),
        (op::DIVIDE, [_, Value::Int(0) | Value::Uint(0)]) => Err(Error::new("division by zero")),
        (op::DIVIDE, [a, b]) => arithmetic(a, b, i64::checked_div, u64::checked_div, |a, b| a / b),
        (op::MODULO, [_, Value::Int(0) | Value::Uint(0)]) => Err(Error::new("modulus by zero")),
        (op::MODULO, [Value::Double(_), _] | [_, Value::Double(_)]) => Err(Error::no_such_overload()),
        (op::MODULO, [a, b]) => arithmetic(a, b, i64::checked_rem, u64::checked_rem, |a, _| a),
        (op::NEGATE, [Value::Int(a)]) => a.checked_neg().map(Value::Int).ok_or_else(overflow),
        (op::NEGATE, [Value::Double(a)]) => Ok(Value::Double(-a)),
        (op::NEGATE, [Value::Duration(a)]) => in_range(a.checked_neg()),
        (op::LOGICAL_NOT, [Value::Bool(a)]) => Ok(Value::Bool(!a)),
        (op::NEGATE | op::LOGICAL_NOT, [_]) => Err(Error::no_such_overload()),
        (op::INDEX, [operand, index]) => element(operand, index),
        (op::IN, [item, Value::List(list)]) => list.contains(item, budget).map(Value::Bool),
        (op::IN, [key, Value::Map(map)]) => Ok(Value::Bool(key.key().is_some_and(|key| map.get(&key).is_some()))),
        (op::IN, [_, _]) => Err(Error::no_such_overload()),
        _ => return None,
    })
}

fn overflow() -> Error {
    Error::new("integer overflow")
}

/// A duration, of which there are none but those whose nanoseconds 64 bits count.
fn in_range<'a>(made: Option<SignedDuration>) -> Outcome<'a> {
    let made = made.filter(|made| i64::try_from(made.as_nanos()).is_ok());
    made.map(Value::Duration).ok_or_else(overflow)
}

fn ordered<'a>(a: &Value<'a>, b: &Value<'a>, holds: fn(Ordering) -> bool) -> Outcome<'a> {
    a.compare(b).map(|ordering| Value::Bool(holds(ordering))).ok_or_else(Error::no_such_overload)
}

fn arithmetic<'a>(
    a: &Value<'a>,
    b: &Value<'a>,
    ints: fn(i64, i64) -> Option<i64>,
    uints: fn(u64, u64) -> Option<u64>,
    doubles: fn(f64, f64) -> f64,
) -> Outcome<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => ints(*a, *b).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(a), Value::Uint(b)) => {
            uints(*a, *b).map(Value::Uint).ok_or_else(|| Error::new("unsigned integer overflow"))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(doubles(*a, *b))),
        _ => Err(Error::no_such_overload()),
    }
}

fn add<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    let late = |_| Error::new("timestamp overflow");
    match (a, b) {
        (Value::String(a), Value::String(b)) => fits(a.len() + b.len()).map(|()| Value::text([&**a, &**b].concat())),
        (Value::Bytes(a), Value::Bytes(b)) => {
            fits(a.len() + b.len()).map(|()| Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) => {
            held::room(a.len() + b.len()).map(|()| Value::list(a.iter().chain(b.iter()).collect()))
        }
        (Value::Duration(a), Value::Duration(b)) => in_range(a.checked_add(*b)),
        (Value::Timestamp(time), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(time)) => {
            time.at.checked_add(*d).map_err(late).and_then(|at| in_time(OffsetTime { at, ..*time }))
        }
        _ => arithmetic(a, b, i64::checked_add, u64::checked_add, |a, b| a + b),
    }
}

fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    match (a, b) {
        (Value::Duration(a), Value::Duration(b)) => in_range(a.checked_sub(*b)),
        (Value::Timestamp(_), Value::Duration(d)) => in_range(d.checked_neg()).and_then(|negated| add(a, &negated)),
        (Value::Timestamp(a), Value::Timestamp(b)) => in_range(Some(a.at.duration_since(b.at))),
        _ => arithmetic(a, b, i64::checked_sub, u64::checked_sub, |a, b| a - b),
    }
}

/// The element of a list or map.
fn element<'a>(operand: &Value<'a>, index: &Value<'a>) -> Outcome<'a> {
    match operand {
        Value::Map(map) => {
            let key = index.key().ok_or_else(Error::no_such_overload)?;
            map.get(&key).ok_or_else(|| match index {
                Value::String(text) => Error::no_such_key(text),
                _ => Error::no_such_key(key),
            })
        }
        Value::List(list) => at(list, index),
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => match element(inner, index) {
            Ok(value) => Ok(Value::Optional(Some(Box::new(value)))),
            Err(_) => Ok(Value::Optional(None)),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn at<'a>(list: &List<'a>, index: &Value<'a>) -> Outcome<'a> {
    let found = position(index)?.and_then(|index| list.get(index));
    found.ok_or_else(|| match index {
        Value::Int(number) => Error::new(format!("index out of bounds: {number}")),
        Value::Uint(number) => Error::new(format!("index out of bounds: {number}")),
        Value::Double(number) => Error::new(format!("index out of bounds: {number}")),
        _ => Error::no_such_overload(),
    })
}

/// An index of a list; nothing for one that no list has.
pub(super) fn position(index: &Value<'_>) -> Result<Option<usize>, Error> {
    match index {
        Value::Int(index) => Ok(usize::try_from(*index).ok()),
        Value::Uint(index) => Ok(usize::try_from(*index).ok()),
        Value::Double(index) if index.fract() == 0.0 => Ok((*index >= 0.0).then_some(*index as usize)),
        Value::Double(index) => Err(Error::new(format!("unsupported index value {index} in list"))),
        other => Err(Error::new(format!("unsupported index type '{}' in list", other.type_name()))),
    }
}

/// The field of a value that has it.
pub(super) fn field_of<'a>(value: &Value<'a>, name: &str) -> Option<Value<'a>> {
    match value {
        Value::Map(map) => map.field(name),
        Value::Struct(made) => made.field(name),
        _ => None,
    }
}
