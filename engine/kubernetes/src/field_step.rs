//! Steps of `fieldsV1`, the sets of fields in `managedFields`, and where they lead in an object.
//!
//! Source: sigs.k8s.io/structured-merge-diff/v6/fieldpath, serialize-pe.go.

use serde_json::{Map, Value};
use stoa_engine::path::{FieldPath, Segment, scalar_text};

/// A step in `fieldsV1`.
pub(crate) enum Step<'k> {
    /// A member of a map.
    Field(&'k str),
    /// The list item whose fields have these values.
    Item(Map<String, Value>),
    /// The item of a set with this value.
    Value(Value),
}

impl<'k> Step<'k> {
    /// Parses a step. Items by index are `None`, since `managedFields` do not say which item that was.
    pub(crate) fn parse(key: &'k str) -> Option<Self> {
        match key.split_once(':')? {
            ("f", name) => Some(Self::Field(name)),
            ("k", keys) => serde_json::from_str(keys).ok().map(Self::Item),
            ("v", value) => serde_json::from_str(value).ok().map(Self::Value),
            _ => None,
        }
    }

    /// The path of the step, as a resource names fields. An item is identified by its first key, which may be
    /// ambiguous. A set value is identified by its list, since its index may differ.
    pub(crate) fn after(&self, path: &FieldPath) -> Option<FieldPath> {
        Some(match self {
            Self::Field(name) => path.key(name),
            Self::Item(keys) => {
                let (key, value) = keys.iter().find_map(|(key, value)| Some((key, scalar_text(value)?)))?;
                path.join(Segment::Item { key: key.clone(), value })
            }
            Self::Value(_) => path.clone(),
        })
    }

    fn position(&self, items: &[Value]) -> Option<usize> {
        // A key that an object leaves out has a default, such as a port's protocol.
        let agrees = |item: &Value| match self {
            Self::Field(_) => false,
            Self::Item(keys) => {
                keys.iter().all(|(name, value)| item.get(name).is_none_or(|own| own == value))
                    && keys.keys().any(|name| item.get(name).is_some())
            }
            Self::Value(value) => item == value,
        };
        let mut found = (0..items.len()).filter(|at| agrees(&items[*at]));
        // Two matches are ambiguous.
        found.next().filter(|_| found.next().is_none())
    }

    pub(crate) fn in_value<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item(_) | Self::Value(_) => value.as_array().and_then(|items| items.get(self.position(items)?)),
        }
    }

    pub(crate) fn in_value_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        match self {
            Self::Field(name) => value.get_mut(name),
            Self::Item(_) | Self::Value(_) => {
                let items = value.as_array_mut()?;
                let at = self.position(items)?;
                items.get_mut(at)
            }
        }
    }

    pub(crate) fn remove_from(&self, value: &mut Value) {
        match self {
            Self::Field(name) => {
                if let Some(map) = value.as_object_mut() {
                    map.remove(*name);
                }
            }
            Self::Item(_) | Self::Value(_) => {
                if let Some(items) = value.as_array_mut()
                    && let Some(at) = self.position(items)
                {
                    items.remove(at);
                }
            }
        }
    }
}
