//! A result of a program: JSON whose maps keep their order.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// A value of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of 64 bits with all digits, or a float.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A map.
    Map(Map),
}

/// A map with the order of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map(pub Vec<(String, Value)>);

impl Map {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

impl Value {
    /// Whether this is `null`, or an empty list, map or text.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(_) | Self::Number(_) => false,
            Self::Text(text) => text.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.0.is_empty(),
        }
    }

    /// Calls a function with each value, from this one down, and its path.
    pub(crate) fn walk<'a>(&'a self, path: &mut Vec<Step<'a>>, visit: &mut dyn FnMut(&[Step<'a>], &'a Value)) {
        visit(path, self);
        match self {
            Self::List(list) => {
                for (index, value) in list.iter().enumerate() {
                    path.push(Step::Index(index));
                    value.walk(path, visit);
                    path.pop();
                }
            }
            Self::Map(map) => {
                for (key, value) in &map.0 {
                    path.push(Step::Key(key));
                    value.walk(path, visit);
                    path.pop();
                }
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => {}
        }
    }
}

/// A step of a path in a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// A path such as `app.containers[0].image`.
pub(crate) fn joined(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Index(index) => text.push_str(&format!("[{index}]")),
            Step::Key(key) if key.is_empty() || key.contains(['.', '[', '"']) => text.push_str(&format!("[{key:?}]")),
            Step::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
        }
    }
    text
}

impl From<Value> for serde_json::Value {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number),
            Value::Text(text) => Self::String(text),
            Value::List(list) => Self::Array(list.into_iter().map(Self::from).collect()),
            Value::Map(map) => Self::Object(map.0.into_iter().map(|(key, value)| (key, value.into())).collect()),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Ordered)
    }
}

struct Ordered;

impl<'de> Visitor<'de> for Ordered {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = sequence.next_element()? {
            list.push(value);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(Map(map)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_keep_their_order() {
        let value: Value =
            serde_json::from_str(r#"{"b": 1, "a": [null, -9223372036854775808, 0.1], "": "x"}"#).unwrap();
        let Value::Map(map) = &value else { panic!("{value:?}") };
        assert_eq!(map.0.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["b", "a", ""]);
        let mut found = Vec::new();
        value.walk(&mut Vec::new(), &mut |path, _| found.push(joined(path)));
        assert_eq!(found, ["", "b", "a", "a[0]", "a[1]", "a[2]", r#"[""]"#]);
        let plain = serde_json::Value::from(value);
        assert_eq!(plain.to_string(), r#"{"":"x","a":[null,-9223372036854775808,0.1],"b":1}"#);
    }
}
