//! The values that expressions have: those of CEL, and the types that Kubernetes adds.
//!
//! Objects stay the JSON that they are; a value refers into it, so that nothing is copied to look at a field.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, net::IpAddr, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

use super::{
    authorizer::Check,
    quantity::Quantity,
    structs::{JSON_PATCH, OBJECT, Struct},
};

/// A value.
#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Cow<'a, str>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Duration(SignedDuration),
    Timestamp(Timestamp),
    Optional(Option<Box<Value<'a>>>),
    Type(&'static str),
    Quantity(Box<Quantity>),
    Url(Arc<http::Uri>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Authorizer(Box<Check>),
    Struct(Arc<Struct<'a>>),
}

/// A list: of JSON, or made by an expression.
#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Made(Arc<Vec<Value<'a>>>),
}

/// A map: a JSON object, or made by an expression.
#[derive(Clone, Debug)]
pub(super) enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>),
    Made(Arc<BTreeMap<Key, Value<'a>>>),
}

/// What a map may have as keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Bool(bool),
    /// Signed and unsigned ones that are equal are the same key.
    Number(i128),
    String(String),
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(uint)) => Self::Uint(uint),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Cow::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(map) => Self::Map(Map::Json(map)),
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::String(Cow::Owned(text.into()))
    }

    pub(super) fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Made(Arc::new(items)))
    }

    /// The name of its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Authorizer(check) => check.type_name(),
            Self::Struct(made) if made.type_name == JSON_PATCH => JSON_PATCH,
            Self::Struct(_) => OBJECT,
        }
    }

    /// What it costs to go through it, in steps.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len() / 10,
            Self::Bytes(bytes) => bytes.len() / 10,
            Self::List(list) => list.len() / 10,
            _ => 0,
        }
    }

    /// Whether two values are equal; values of different kinds are not, numbers compare by what they mean.
    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.equals(&b)),
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len() && a.entries().all(|(key, value)| b.get(&key).is_some_and(|b| value.equals(&b)))
            }
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            },
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, n), Self::Cidr(b, m)) => (a, n) == (b, m),
            (Self::Struct(a), Self::Struct(b)) => a.equals(b),
            (a, b) => compare_numbers(a, b) == Some(Ordering::Equal),
        }
    }

    /// Which of two values comes first; nothing when they have no order.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            (a, b) => compare_numbers(a, b),
        }
    }

    /// The value as a key of a map, if it can be one.
    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Self::Bool(value) => Some(Key::Bool(*value)),
            Self::Int(value) => Some(Key::Number(i128::from(*value))),
            Self::Uint(value) => Some(Key::Number(i128::from(*value))),
            Self::Double(value) if value.fract() == 0.0 && value.abs() < 1e18 => Some(Key::Number(*value as i128)),
            Self::String(text) => Some(Key::String(text.clone().into_owned())),
            _ => None,
        }
    }
}

fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    match (a, b, whole(a), whole(b)) {
        (_, _, Some(a), Some(b)) => Some(a.cmp(&b)),
        (Value::Double(a), Value::Double(b), _, _) => a.partial_cmp(b),
        (Value::Double(a), _, _, Some(b)) => a.partial_cmp(&(b as f64)),
        (_, Value::Double(b), Some(a), _) => (a as f64).partial_cmp(b),
        _ => None,
    }
}

impl Key {
    /// The text of a key that is one.
    pub(super) fn text(self) -> Option<String> {
        match self {
            Self::String(text) => Some(text),
            Self::Bool(_) | Self::Number(_) => None,
        }
    }

    fn value<'a>(&self) -> Value<'a> {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(int), _) => Value::Int(int),
                (Err(_), Ok(uint)) => Value::Uint(uint),
                (Err(_), Err(_)) => Value::Double(*number as f64),
            },
            Self::String(text) => Value::text(text.clone()),
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(items) => items.get(index).map(Value::from),
            Self::Made(items) => items.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).map(|index| self.get(index).expect("below its length"))
    }

    pub(super) fn contains(&self, value: &Value<'a>) -> bool {
        self.iter().any(|item| item.equals(value))
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(map) => map.len(),
            Self::Made(map) => map.len(),
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<Value<'a>> {
        match self {
            Self::Json(map) => map.get(name).map(Value::from),
            Self::Made(map) => map.get(&Key::String(name.to_owned())).cloned(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Value<'a>> {
        match (self, key) {
            (Self::Json(map), Key::String(name)) => map.get(name).map(Value::from),
            (Self::Json(_), Key::Bool(_) | Key::Number(_)) => None,
            (Self::Made(map), key) => map.get(key).cloned(),
        }
    }

    /// The keys, in order.
    pub(super) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Self::Json(map) => map.keys().map(|key| Value::String(Cow::Borrowed(key))).collect(),
            Self::Made(map) => map.keys().map(Key::value).collect(),
        }
    }

    pub(super) fn entries(&self) -> Box<dyn Iterator<Item = (Key, Value<'a>)> + '_> {
        match self {
            Self::Json(map) => Box::new(map.iter().map(|(key, value)| (Key::String(key.clone()), Value::from(value)))),
            Self::Made(map) => Box::new(map.iter().map(|(key, value)| (key.clone(), value.clone()))),
        }
    }
}
