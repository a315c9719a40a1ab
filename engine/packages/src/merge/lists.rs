//! Merges lists by the identities of their items.
//!
//! The identity is that of the kind's schema, or else the name, if all items have one. Any other list is one value, as is a list
//! with two items of one identity.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use stoa_engine::FieldPath;
use stoa_engine::path::{Segment, scalar_text};
use stoa_engine::schema::ListKey;

use super::{Conflict, Merger, Sides, order, unmerged};

/// The part of an item that identifies it in its list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Identity {
    /// The values of these fields.
    Fields(Vec<ListKey>),
    /// The whole value, which is a scalar.
    Value,
    /// The image without its tag, or else the command: a function of a pipeline.
    Function,
}

impl Identity {
    /// The identity of an item; `None` if it has none.
    fn of(&self, item: &Value) -> Option<Vec<String>> {
        match self {
            Self::Fields(keys) if item.is_object() => keys.iter().map(|key| key.of(item)).collect(),
            Self::Fields(_) => None,
            Self::Value => Some(vec![scalar_text(item)?]),
            Self::Function => {
                let text = |key: &str| item.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
                Some(vec![text("exec").or_else(|| text("image").map(without_tag))?.to_owned()])
            }
        }
    }

    /// The identities of a list's items; `None` unless all have one, and each another.
    pub(super) fn of_all(&self, items: &[Value]) -> Option<Vec<Vec<String>>> {
        let keys: Vec<Vec<String>> = items.iter().map(|item| self.of(item)).collect::<Option<_>>()?;
        let distinct: HashSet<&Vec<String>> = keys.iter().collect();
        (distinct.len() == keys.len()).then_some(keys)
    }

    /// The step to an item of this identity.
    pub(super) fn step(&self, values: &[String]) -> Segment {
        let key = match self {
            Self::Fields(keys) => keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>().join(","),
            Self::Value => String::new(),
            Self::Function => "image".to_owned(),
        };
        Segment::Item { key, value: values.join(",") }
    }
}

impl Merger<'_> {
    /// Merges lists whose items have the identity.
    pub(super) fn list(&mut self, at: &FieldPath, identity: &Identity, lists: Sides<&[Value]>) -> Vec<Value> {
        let keys = lists.map(|items| identity.of_all(items).unwrap_or_default());
        let by_key = Sides {
            origin: index(&keys.origin, lists.origin),
            upstream: index(&keys.upstream, lists.upstream),
            local: index(&keys.local, lists.local),
        };
        let mut merged = HashMap::new();
        for key in keys.local.iter().chain(keys.upstream.iter().filter(|key| !by_key.local.contains_key(*key))) {
            let sides = Sides {
                origin: by_key.origin.get(key).copied(),
                upstream: by_key.upstream.get(key).copied(),
                local: by_key.local.get(key).copied(),
            };
            if let Some(item) = self.item(&at.join(identity.step(key)), sides) {
                merged.insert(key.clone(), item);
            }
        }
        let present = merged.keys().cloned().collect();
        let keys = Sides { origin: &*keys.origin, upstream: &*keys.upstream, local: &*keys.local };
        order::merged(keys, &present).into_iter().filter_map(|key| merged.remove(&key)).collect()
    }

    /// Merges an item. One that a side deleted stays whole or is deleted, since the rest of an item is no item.
    fn item(&mut self, at: &FieldPath, sides: Sides<Option<&Value>>) -> Option<Value> {
        if sides.upstream.is_some() && sides.local.is_some() {
            return self.value(at, sides);
        }
        if let Some(unmerged) = unmerged(sides) {
            return unmerged.cloned();
        }
        self.conflicts.push(Conflict::new(at, sides));
        sides.upstream.cloned()
    }
}

/// An image without its tag and digest.
fn without_tag(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    image[name..].find(':').map_or(image, |colon| &image[..name + colon])
}

fn index<'v>(keys: &[Vec<String>], items: &'v [Value]) -> HashMap<Vec<String>, &'v Value> {
    keys.iter().cloned().zip(items).collect()
}
