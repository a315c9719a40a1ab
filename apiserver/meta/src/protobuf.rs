//! Objects of Kubernetes' own kinds in protobuf, which is how typed Go clients such as kubectl send them.
//!
//! Start at `to_json`. A body is the magic bytes and a `runtime.Unknown`, which has the message of the kind
//! (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`). `kinds` has the fields of the messages, by which they become
//! JSON, which is read as if the client had sent it. The answer is JSON, which such clients take.
//!
//! Go writes empty texts and zeros too; they count as absent, as in the JSON of Go.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use serde_json::{Map, Value, json};

use crate::status::ApiError;

mod kinds;

/// How every body begins.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// A kind that is read from protobuf.
pub trait FromProtobuf: kube_core::Resource<DynamicType = ()> {
    /// The fields of its message that are read: the number, the name in JSON and the type of each.
    const MESSAGE: Message;
}

/// The fields of a message.
pub type Message = &'static [(u32, &'static str, Type)];

/// The type of a field, and what an empty value of it becomes in JSON.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    /// A text, absent when it is empty.
    Text,
    /// A text that is always there.
    String,
    /// A boolean.
    Bool,
    /// A whole number.
    Int,
    /// A whole number, absent when it is 0.
    Count,
    /// Bytes, base64 in JSON, that are always there.
    Bytes,
    /// A `metav1.Time`, absent when it is zero.
    Time,
    /// A `metav1.MicroTime`, absent when it is zero.
    MicroTime,
    /// A `metav1.FieldsV1`: JSON in bytes, absent when it is empty.
    Fields,
    /// An `ExtraValue`: a message whose one field is a list of texts.
    Extra,
    /// A message, absent when it was not sent.
    Object(Message),
    /// A message that is always there.
    Always(Message),
    /// A list, absent when it is empty.
    List(&'static Type),
    /// A map from texts, absent when it is empty.
    Map(&'static Type),
}

/// The value of a field as it was sent.
#[derive(Clone, Copy)]
enum Sent<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// An object as JSON. One of another kind comes without its fields: the decoder of the JSON refuses it by its kind.
/// Fails with 400 `BadRequest` for what is no such message, or has a value that no such object has, as a time in the
/// year 20000.
pub(crate) fn to_json<K: FromProtobuf>(body: &[u8]) -> Result<Vec<u8>, ApiError> {
    read::<K>(body).ok_or_else(|| ApiError::bad_request(format!("the body is no {} in protobuf", K::kind(&()))))
}

fn read<K: FromProtobuf>(body: &[u8]) -> Option<Vec<u8>> {
    const TYPE_META: Message = &[(1, "apiVersion", Type::String), (2, "kind", Type::String)];
    let mut object = Map::new();
    add(&mut object, TYPE_META, &[])?;
    let mut raw: &[u8] = &[];
    for (number, sent) in fields(body.strip_prefix(MAGIC)?)? {
        match (number, sent) {
            (1, Sent::Bytes(bytes)) => add(&mut object, TYPE_META, bytes)?,
            (2, Sent::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    if object["apiVersion"] == *K::api_version(&()) && object["kind"] == *K::kind(&()) {
        add(&mut object, K::MESSAGE, raw)?;
    }
    serde_json::to_vec(&object).ok()
}

/// The fields of a message, in the order in which they were sent; `None` when it is broken.
fn fields(mut message: &[u8]) -> Option<Vec<(u32, Sent<'_>)>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        match wire_type {
            WireType::Varint => found.push((number, Sent::Number(decode_varint(&mut message).ok()?))),
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                found.push((number, Sent::Bytes(bytes)));
                message = rest;
            }
            // No field that is read has another one.
            _ => skip_field(wire_type, number, &mut message, DecodeContext::default()).ok()?,
        }
    }
    Some(found)
}

/// Adds the fields of a message to an object; `None` when it is broken.
fn add(object: &mut Map<String, Value>, of: &[(u32, &str, Type)], message: &[u8]) -> Option<()> {
    for (_, name, field) in of {
        match field {
            Type::String | Type::Bytes => drop(entry(object, name, || "".into())),
            Type::Extra => drop(entry(object, name, || json!([]))),
            Type::Always(inner) => add(entry(object, name, || json!({})).as_object_mut()?, inner, &[])?,
            _ => {}
        }
    }
    for (number, sent) in fields(message)? {
        if let Some((_, name, field)) = of.iter().find(|(known, ..)| *known == number) {
            field.add(object, name, sent)?;
        }
    }
    Some(())
}

fn entry<'o>(object: &'o mut Map<String, Value>, name: &str, default: fn() -> Value) -> &'o mut Value {
    object.entry(name).or_insert_with(default)
}

impl Type {
    /// Adds the value of a field to an object; `None` when it is broken.
    fn add(self, object: &mut Map<String, Value>, name: &str, sent: Sent<'_>) -> Option<()> {
        match (self, sent) {
            (Self::Object(of) | Self::Always(of), Sent::Bytes(bytes)) => {
                add(entry(object, name, || json!({})).as_object_mut()?, of, bytes)?;
            }
            (Self::List(item), sent) => {
                let item = item.value(sent)?;
                entry(object, name, || json!([])).as_array_mut()?.push(item);
            }
            (Self::Map(item), Sent::Bytes(bytes)) => {
                let mut pair = Map::new();
                add(&mut pair, &[(1, "key", Self::String), (2, "value", *item)], bytes)?;
                let (Value::String(key), value) = (pair.remove("key")?, pair.remove("value")?) else { return None };
                entry(object, name, || json!({})).as_object_mut()?.insert(key, value);
            }
            (scalar, sent) => match scalar.value(sent)? {
                Value::Null => drop(object.remove(name)),
                value => drop(object.insert(name.to_owned(), value)),
            },
        }
        Some(())
    }

    /// A value in JSON, which is null when it counts as absent; `None` when it is broken.
    fn value(self, sent: Sent<'_>) -> Option<Value> {
        Some(match (self, sent) {
            (Self::Bool, Sent::Number(number)) => (number != 0).into(),
            (Self::Count, Sent::Number(0)) => Value::Null,
            (Self::Int | Self::Count, Sent::Number(number)) => number.cast_signed().into(),
            (Self::Text, Sent::Bytes([])) => Value::Null,
            (Self::Text | Self::String, Sent::Bytes(bytes)) => str::from_utf8(bytes).ok()?.into(),
            (Self::Bytes, Sent::Bytes(bytes)) => BASE64_STANDARD.encode(bytes).into(),
            (Self::Time, Sent::Bytes(bytes)) => json!(timestamp(bytes)?.map(Time)),
            (Self::MicroTime, Sent::Bytes(bytes)) => json!(timestamp(bytes)?.map(MicroTime)),
            (Self::Fields, Sent::Bytes(bytes)) => match fields(bytes)?.last() {
                Some((1, Sent::Bytes(raw))) if !raw.is_empty() => serde_json::from_slice(raw).ok()?,
                _ => Value::Null,
            },
            (Self::Extra, Sent::Bytes(bytes)) => {
                let mut message = Map::new();
                add(&mut message, &[(1, "items", Self::List(&Self::String))], bytes)?;
                message.remove("items").unwrap_or_else(|| json!([]))
            }
            (Self::Object(of), Sent::Bytes(bytes)) => {
                let mut object = Map::new();
                add(&mut object, of, bytes)?;
                object.into()
            }
            _ => return None,
        })
    }
}

/// A time, unless it is Go's zero, which is an empty message. The outer `None` is a time that cannot be.
fn timestamp(message: &[u8]) -> Option<Option<Timestamp>> {
    let mut time = Map::new();
    add(&mut time, &[(1, "seconds", Type::Int), (2, "nanos", Type::Int)], message)?;
    if time.is_empty() {
        return Some(None);
    }
    let number = |name: &str| time.get(name).and_then(Value::as_i64).unwrap_or(0);
    Timestamp::new(number("seconds"), i32::try_from(number("nanos")).ok()?).ok().map(Some)
}

#[cfg(test)]
mod tests;
