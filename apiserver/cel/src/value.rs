//! The values that expressions have: those of CEL, and the types that Kubernetes adds.
//!
//! Objects stay the JSON that they are; a value refers into it, so that nothing is copied to look at a field.

use std::{cmp::Ordering, collections::BTreeMap, fmt, net::IpAddr, ops::Deref, sync::Arc};

use jiff::SignedDuration;
use serde_json::Value as Json;

use super::{
    authorizer::Check,
    budget::Budget,
    eval::Error,
    functions::Format,
    go::url::Url,
    held::Retained,
    quantity::Quantity,
    structs::{JSON_PATCH, OBJECT, Struct},
    timestamp::OffsetTime,
};

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Duration(SignedDuration),
    Timestamp(OffsetTime),
    Optional(Option<Box<Value<'a>>>),
    Type(&'static str),
    Quantity(Box<Quantity>),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    Semver(Arc<semver::Version>),
    Format(&'static Format),
    Authorizer(Arc<Check>),
    Struct(Arc<Struct<'a>>),
}

/// A string: of JSON or of an expression's source, or made by an expression. A copy takes no memory.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Made(Arc<str>),
}

/// A list: of JSON, or made by an expression.
#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Made(Arc<Retained<Vec<Value<'a>>>>),
}

/// A map: a JSON object, or made by an expression.
#[derive(Clone, Debug)]
pub(super) enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>),
    Made(Arc<Retained<BTreeMap<Key, Value<'a>>>>),
}

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
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(map) => Self::Map(Map::Json(map)),
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Made(text.into()))
    }

    pub(super) fn list(items: Vec<Value<'a>>) -> Self {
        Self::List(List::Made(Arc::new(Retained::new(items.len(), items))))
    }

    pub(super) fn map(entries: BTreeMap<Key, Value<'a>>) -> Self {
        Self::Map(Map::Made(Arc::new(Retained::new(entries.len(), entries))))
    }

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
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(check) => check.type_name(),
            Self::Struct(made) if made.type_name == JSON_PATCH => JSON_PATCH,
            Self::Struct(_) => OBJECT,
        }
    }

    /// Whether it is something in an object, or in an expression's source.
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Self::String(Text::Borrowed(_)) | Self::List(List::Json(_)) | Self::Map(Map::Json(_)))
    }

    /// What it costs to go through it, in steps.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len() / 10,
            Self::Bytes(bytes) => bytes.len() / 10,
            Self::List(list) => list.len() / 10,
            Self::Map(map) => map.len() / 10,
            Self::Url(url) => url.len() / 10,
            Self::Authorizer(check) => check.size() / 10,
            Self::Semver(version) => (version.pre.len() + version.build.len()) / 10,
            _ => 0,
        }
    }

    /// Whether two values are equal; values of different kinds are not, numbers compare by what they mean. What they
    /// hold is paid for, a step for each value in them; that they are compared at all is the caller's to pay.
    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Error> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::String(a), Self::String(b)) => {
                a.len() == b.len() && {
                    budget.spend(a.len() / 10)?;
                    **a == **b
                }
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                a.len() == b.len() && {
                    budget.spend(a.len() / 10)?;
                    a == b
                }
            }
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len()
                    && all(a.iter().zip(b.iter()), |(a, b)| {
                        budget.spend(1)?;
                        a.equals(&b, budget)
                    })?
            }
            (Self::Map(a), Self::Map(b)) => {
                a.len() == b.len()
                    && all(a.entries(), |(key, value)| {
                        budget.spend(1 + key.size())?;
                        b.get(&key).map_or(Ok(false), |b| value.equals(&b, budget))
                    })?
            }
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => {
                    budget.spend(1)?;
                    a.equals(b, budget)?
                }
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            },
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => {
                budget.spend(self.size())?;
                a == b
            }
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, n), Self::Cidr(b, m)) => (a, n) == (b, m),
            (Self::Semver(a), Self::Semver(b)) => {
                budget.spend(self.size())?;
                a.cmp_precedence(b).is_eq()
            }
            (Self::Format(a), Self::Format(b)) => a.name == b.name,
            (Self::Struct(a), Self::Struct(b)) => a.equals(b, budget)?,
            (a, b) => compare_numbers(a, b) == Some(Ordering::Equal),
        })
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

    /// Which of two values of a type comes first where several are sorted: what is no number is at an end.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
            (a, b) => a.compare(b).unwrap_or(Ordering::Equal),
        }
    }

    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Self::Bool(value) => Some(Key::Bool(*value)),
            Self::Int(value) => Some(Key::Number(i128::from(*value))),
            Self::Uint(value) => Some(Key::Number(i128::from(*value))),
            Self::Double(value) if value.fract() == 0.0 && value.abs() < 1e18 => Some(Key::Number(*value as i128)),
            Self::String(text) => Some(Key::String(text.to_string())),
            _ => None,
        }
    }
}

/// Whether something holds for all items, as far as they have to be looked at.
pub(super) fn all<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool, Error>,
) -> Result<bool, Error> {
    for item in items {
        if !holds(item)? {
            return Ok(false);
        }
    }
    Ok(true)
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

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

impl Key {
    /// What it costs to go through it, in steps.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.len() / 10,
            Self::Bool(_) | Self::Number(_) => 0,
        }
    }

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
            Self::String(text) => Value::text(text.as_str()),
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

    /// Where the first value is that equals this one.
    pub(super) fn position(&self, value: &Value<'a>, budget: &mut Budget) -> Result<Option<usize>, Error> {
        for (index, item) in self.iter().enumerate() {
            if item.equals(value, budget)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Whether a value is in it.
    pub(super) fn contains(&self, value: &Value<'a>, budget: &mut Budget) -> Result<bool, Error> {
        Ok(self.position(value, budget)?.is_some())
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
    pub(super) fn keys(&self) -> Box<dyn Iterator<Item = Value<'a>> + '_> {
        match self {
            Self::Json(map) => Box::new(map.keys().map(|key| Value::String(Text::Borrowed(key)))),
            Self::Made(map) => Box::new(map.keys().map(Key::value)),
        }
    }

    pub(super) fn entries(&self) -> Box<dyn Iterator<Item = (Key, Value<'a>)> + '_> {
        match self {
            Self::Json(map) => Box::new(map.iter().map(|(key, value)| (Key::String(key.clone()), Value::from(value)))),
            Self::Made(map) => Box::new(map.iter().map(|(key, value)| (key.clone(), value.clone()))),
        }
    }
}
