//! Protobuf messages, as far as OpenAPI documents need them.

use serde_json::{Map, Value};

pub(super) use crate::protobuf::Message;

impl Message {
    pub(super) fn text(&mut self, field: u64, value: &Value) {
        if let Some(text) = value.as_str() {
            self.bytes(field, text.as_bytes());
        }
    }

    pub(super) fn texts(&mut self, field: u64, values: &Value) {
        for value in values.as_array().into_iter().flatten() {
            self.text(field, value);
        }
    }

    pub(super) fn flag(&mut self, field: u64, value: &Value) {
        if value == &Value::Bool(true) {
            self.count(field, 1);
        }
    }

    /// A flag that is one of a union's alternatives: which of them was set is known even of the default.
    pub(super) fn alternative(&mut self, field: u64, value: bool) {
        self.count(field, u64::from(value));
    }

    pub(super) fn integer(&mut self, field: u64, value: &Value) {
        if let Some(value) = value.as_u64() {
            self.count(field, value);
        }
    }

    pub(super) fn double(&mut self, field: u64, value: &Value) {
        if let Some(value) = value.as_f64() {
            self.number(field, value);
        }
    }

    /// A value of no fixed type, which is kept as YAML; JSON is YAML.
    pub(super) fn any(&mut self, field: u64, value: &Value) {
        if !value.is_null() {
            let mut any = Self::default();
            any.bytes(2, format!("{value}\n").as_bytes());
            self.message(field, any);
        }
    }

    /// The extensions of an object: its keys that begin with `x-`.
    pub(super) fn extensions(&mut self, field: u64, of: &Value) {
        for (name, value) in entries(of).filter(|(name, _)| name.starts_with("x-")) {
            let mut pair = Self::default();
            pair.bytes(1, name.as_bytes());
            pair.any(2, value);
            self.message(field, pair);
        }
    }
}

pub(super) fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

/// An entry of a map: its name and its value.
pub(super) fn named(name: &str, value: Message) -> Message {
    let mut pair = Message::default();
    pair.bytes(1, name.as_bytes());
    pair.message(2, value);
    pair
}

/// A message of one field, as the alternatives of a union are.
pub(super) fn only(field: u64, message: Message) -> Message {
    let mut outer = Message::default();
    outer.message(field, message);
    outer
}
