//! The OpenAPI documents in protobuf. It is the only form of v2 that kubectl reads; versions up to 1.28 create and explain
//! nothing without it.
//!
//! The messages are those of gnostic's `OpenAPIv2.proto` and `OpenAPIv3.proto`, as tables: the generated types would be many
//! times as long, and nothing here reads the form. `v2` and `v3` have the tables.

use prost::encoding;
use serde_json::{Map, Value};

mod v2;
mod v3;

/// Encodes a Swagger document; what the messages have no field for is left out.
pub(super) fn v2(swagger: &Value) -> Vec<u8> {
    message(v2::DOCUMENT, swagger)
}

/// Encodes an OpenAPI v3 document; what the messages have no field for is left out.
pub(super) fn v3(document: &Value) -> Vec<u8> {
    message(v3::DOCUMENT, document)
}

/// The fields of a message: the number, the key in JSON and the type of each.
type Message = &'static [(u32, &'static str, Type)];

/// How a value becomes a field. Nothing is written of a value that is missing or of another type.
enum Type {
    Text,
    Texts,
    /// A flag that is only written when it is set.
    Flag,
    /// A flag that is one of a union's alternatives: which of them was set is known even of the default.
    Alternative,
    Integer,
    Double,
    /// A value of no fixed type, which is kept as YAML; JSON is YAML.
    Any,
    /// The extensions of the object that has the key: its keys that begin with `x-`.
    Extensions,
    Object(Message),
    /// A field for each item of an array.
    Each(&'static Type),
    /// A message with a field of this number for each entry of an object: a message of its name and its value.
    Named(u32, &'static Type),
    /// A message of one field, as the alternatives of a union are.
    Only(u32, &'static Type),
    /// One of several alternatives.
    Choice(fn(&Value) -> &'static Type),
}

fn message(of: Message, value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, key, field) in of {
        field.write(*number, if matches!(field, Type::Extensions) { value } else { &value[key] }, &mut message);
    }
    message
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn write_bytes(number: u32, bytes: Vec<u8>, out: &mut Vec<u8>) {
    encoding::bytes::encode(number, &bytes, out);
}

fn write_pair(number: u32, name: &str, value: &Type, of: &Value, out: &mut Vec<u8>) {
    let mut pair = Vec::new();
    write_bytes(1, name.into(), &mut pair);
    value.write(2, of, &mut pair);
    write_bytes(number, pair, out);
}

impl Type {
    fn write(&self, number: u32, value: &Value, out: &mut Vec<u8>) {
        match (self, value) {
            (_, Value::Null) => {}
            (Self::Text, Value::String(text)) => encoding::string::encode(number, text, out),
            (Self::Texts, values) => Self::Each(&Self::Text).write(number, values, out),
            (Self::Flag, Value::Bool(true)) => encoding::bool::encode(number, &true, out),
            (Self::Alternative, Value::Bool(value)) => encoding::bool::encode(number, value, out),
            (Self::Integer, Value::Number(value)) => {
                if let Some(value) = value.as_u64() {
                    encoding::uint64::encode(number, &value, out);
                }
            }
            (Self::Double, Value::Number(value)) => {
                if let Some(value) = value.as_f64() {
                    encoding::double::encode(number, &value, out);
                }
            }
            (Self::Any, value) => {
                let mut any = Vec::new();
                write_bytes(2, format!("{value}\n").into(), &mut any);
                write_bytes(number, any, out);
            }
            (Self::Extensions, of) => {
                for (name, value) in entries(of).filter(|(name, _)| name.starts_with("x-")) {
                    write_pair(number, name, &Self::Any, value, out);
                }
            }
            (Self::Object(of), value @ Value::Object(_)) => write_bytes(number, message(of, value), out),
            (Self::Each(item), Value::Array(values)) => {
                values.iter().for_each(|value| item.write(number, value, out));
            }
            (Self::Named(entry, item), value @ Value::Object(_)) => {
                let mut map = Vec::new();
                entries(value).for_each(|(name, value)| write_pair(*entry, name, item, value, &mut map));
                write_bytes(number, map, out);
            }
            (Self::Only(alternative, of), value) => {
                let mut union = Vec::new();
                of.write(*alternative, value, &mut union);
                write_bytes(number, union, out);
            }
            (Self::Choice(of), value) => of(value).write(number, value, out),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
