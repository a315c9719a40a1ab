//! An API object as the machinery handles it: a JSON object with typed access to the metadata
//! that every kind has.
//!
//! Kinds that are Rust types convert with [`Object::from_typed`] and [`Object::to_typed`].

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::json::settle_numbers;

/// One stored instance of a kind.
///
/// Always a JSON object with a `metadata` object; both accessors create what is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(pub Map<String, Value>);

impl Object {
    /// The object of a typed value. Fails when the value does not serialize to a JSON object.
    pub fn from_typed<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        match serde_json::to_value(value)? {
            Value::Object(mut map) => {
                map.values_mut().for_each(settle_numbers);
                Ok(Self(map))
            }
            other => Err(serde::ser::Error::custom(format!("an object must be a map, not {other}"))),
        }
    }

    /// The typed value of this object. Fails when the object does not have the type's shape.
    pub fn to_typed<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.0)
    }

    /// `metadata`, if it is there.
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.0.get("metadata").and_then(Value::as_object)
    }

    /// `metadata`, made empty if it is missing or not a map.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        let slot = self.0.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if !slot.is_object() {
            *slot = Value::Object(Map::new());
        }
        slot.as_object_mut().expect("made an object above")
    }

    /// A string of `metadata`, or the empty string.
    pub fn meta_str(&self, field: &str) -> &str {
        self.metadata().and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or("")
    }

    /// `metadata.name`, or the empty string.
    pub fn name(&self) -> &str {
        self.meta_str("name")
    }

    /// `metadata.namespace`, or the empty string.
    pub fn namespace(&self) -> &str {
        self.meta_str("namespace")
    }

    /// `metadata.uid`, or the empty string.
    pub fn uid(&self) -> &str {
        self.meta_str("uid")
    }

    /// The value at a path of map keys, such as `["spec", "project"]`.
    pub fn get_path(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.0.get(*first)?, |value, key| value.get(*key))
    }
}
