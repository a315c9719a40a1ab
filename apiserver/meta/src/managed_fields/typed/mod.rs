//! Values together with their type: checked, compared, merged, pruned.
//!
//! Follows `structured-merge-diff/v6/typed`. Each function walks objects of a [`Schema`]'s root type; what a walk does
//! at a place depends on how the values there can be read (see [`Reading`](super::schema::Reading)).
//!
//! Stored objects may have fields that the schema does not know, written by a version that knew them. The walks leave
//! those alone; only [`validate`] refuses them, where an applied configuration has them.

mod atomics;
mod compare;
mod ensure;
mod field_set;
mod merge;
mod reconcile;
mod remove;
mod validate;

use std::fmt;

use serde_json::{Map, Value};

pub(super) use self::{
    atomics::atomics,
    compare::{Comparison, Structs, compare},
    ensure::named_fields_as_members,
    field_set::field_set,
    merge::merge,
    reconcile::reconcile,
    remove::remove,
    validate::{Strictness, validate},
};
use super::{
    path::PathElement,
    schema::{ListRelationship, ListType, MapType, Schema},
};
use crate::status::quote;

/// What is wrong with values, each with its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Errors(Vec<(String, String)>);

impl Errors {
    fn one(message: impl fmt::Display) -> Self {
        Self(vec![(String::new(), message.to_string())])
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors as they are one step up.
    fn below(mut self, element: &PathElement) -> Self {
        for (path, _) in &mut self.0 {
            path.insert_str(0, &element.to_string());
        }
        self
    }

    fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    fn into_result(self) -> Result<(), Self> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, (path, message): &(String, String)| {
            if path.is_empty() { f.write_str(message) } else { write!(f, "{path}: {message}") }
        };
        if let [only] = self.0.as_slice() {
            return write(f, only);
        }
        f.write_str("errors:")?;
        for error in &self.0 {
            f.write_str("\n  ")?;
            write(f, error)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// What a type that takes no value says.
const NO_TYPE: &str = "schema error: invalid atom: inlined";

fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

/// The items of two lists that are compared or merged one by one, of what is none there are none; nothing where the lists count
/// as wholes.
fn items_of<'v>(list: &ListType, lhs: Option<&'v Value>, rhs: Option<&'v Value>) -> Option<(&'v [Value], &'v [Value])> {
    let items = |side: Option<&'v Value>| side.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (left, right) = (items(lhs), items(rhs));
    let are_wholes = list.relationship == ListRelationship::Atomic || (left.is_empty() && right.is_empty());
    (!are_wholes).then_some((left, right))
}

fn item_element(schema: &Schema, list: &ListType, item: &Value) -> Result<PathElement, String> {
    match &list.relationship {
        ListRelationship::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        ListRelationship::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(PathElement::Value(item.clone())),
        },
        ListRelationship::Keyed(keys) => match item {
            Value::Null => Err("associative list with keys may not have a null element".to_owned()),
            Value::Object(item) => keyed_element(schema, list, keys, item),
            _ => Err("associative list with keys may not have non-map elements".to_owned()),
        },
    }
}

fn keyed_element(
    schema: &Schema,
    list: &ListType,
    keys: &[Box<str>],
    item: &Map<String, Value>,
) -> Result<PathElement, String> {
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match item.get(&**key) {
            Some(value) => Some(value),
            None => key_default(schema, list, key)
                .map_err(|error| format!("couldn't find default value for {key}: {error}"))?,
        };
        // An item without one of the keys is another item than one with it.
        if let Some(value) = value {
            found.push((key.clone(), value.clone()));
        }
    }
    if found.is_empty() && !keys.is_empty() {
        let keys: Vec<_> = keys.iter().map(|key| quote(key)).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            keys.join(" ")
        ));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(PathElement::Key(found))
}

fn key_default<'s>(schema: &'s Schema, list: &ListType, key: &str) -> Result<Option<&'s Value>, &'static str> {
    let map: &MapType = schema.atom(list.element).map.as_ref().ok_or("associative list may not have non-map types")?;
    Ok(map.fields.get(key).and_then(|field| field.default.as_ref()))
}
