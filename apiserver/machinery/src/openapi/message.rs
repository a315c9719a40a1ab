//! Protobuf messages, as far as OpenAPI documents need them.

use serde_json::{Map, Value};

/// A message being written.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn message(&mut self, field: u64, message: Self) {
        self.bytes(field, &message.0);
    }

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
            self.key(field, 0);
            self.varint(1);
        }
    }

    /// A flag that is one of a union's alternatives: which of them was set is known even of the default.
    pub(super) fn alternative(&mut self, field: u64, value: bool) {
        self.key(field, 0);
        self.varint(u64::from(value));
    }

    pub(super) fn integer(&mut self, field: u64, value: &Value) {
        if let Some(value) = value.as_u64() {
            self.key(field, 0);
            self.varint(value);
        }
    }

    pub(super) fn double(&mut self, field: u64, value: &Value) {
        if let Some(value) = value.as_f64() {
            self.key(field, 1);
            self.0.extend_from_slice(&value.to_le_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lengths_take_several_bytes() {
        let mut message = Message::default();
        message.varint(300);
        assert_eq!(message.0, [0xac, 0x02]);
    }
}
