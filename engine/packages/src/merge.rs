//! Merges an object of upstream with the same object here, by the object that both come from.
//!
//! Start at [`merge`]. A value that changed on one side is taken from there. Of a value that changed on both sides, upstream's
//! is taken, and a [`Conflict`] has all three.
//!
//! | here | upstream | result | conflict |
//! |---|---|---|---|
//! | unchanged | changed, added or deleted | as upstream | no |
//! | changed, added or deleted | unchanged | as here | no |
//! | changed or added | changed or added otherwise | as upstream | yes |
//! | deleted | changed | as upstream | yes |
//! | changed | deleted | deleted | yes |
//!
//! Maps are merged by field, and lists as `lists` says. An item of a list is deleted or returns as a whole.
//!
//! Elsewhere: `lists` merges lists, `order` has the order of their items, `kinds` has the lists of kinds, `differences` compares
//! two versions, and `revise` writes results into texts.

mod differences;
mod kinds;
mod lists;
mod order;
mod revise;

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use stoa_engine::FieldPath;

pub use differences::FieldDifference;
pub(crate) use differences::differences;
pub use kinds::{Definitions, ListTypes};
pub(crate) use revise::revise;

/// One value in the three objects; `None` where it is absent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sides<T> {
    /// The common ancestor.
    pub origin: T,
    /// Upstream's new version.
    pub upstream: T,
    /// The local version.
    pub local: T,
}

impl<T> Sides<T> {
    /// The same of each side.
    pub(crate) fn map<U>(self, mut f: impl FnMut(T) -> U) -> Sides<U> {
        Sides { origin: f(self.origin), upstream: f(self.upstream), local: f(self.local) }
    }
}

/// The way in which two sides disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Both sides changed or added it, each in another way.
    ChangedOnBothSides,
    /// It is deleted here and changed upstream.
    DeletedHere,
    /// It is deleted upstream and changed here.
    DeletedUpstream,
}

/// A value on which the two sides disagree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conflict {
    /// The field, such as `spec.containers[name=web].image`; empty for the whole.
    #[serde(serialize_with = "as_text", skip_serializing_if = "is_whole")]
    pub field: FieldPath,
    /// The disagreement.
    pub cause: Cause,
    /// The value of the common ancestor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Value>,
    /// Upstream's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Value>,
    /// The local value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<Value>,
}

pub(crate) fn as_text<S: Serializer>(field: &FieldPath, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(field)
}

pub(crate) fn is_whole(field: &FieldPath) -> bool {
    field.0.is_empty()
}

impl Conflict {
    pub(crate) fn new(field: &FieldPath, sides: Sides<Option<&Value>>) -> Self {
        let cause = match sides {
            Sides { local: None, .. } => Cause::DeletedHere,
            Sides { upstream: None, .. } => Cause::DeletedUpstream,
            Sides { .. } => Cause::ChangedOnBothSides,
        };
        let Sides { origin, upstream, local } = sides.map(Option::<&Value>::cloned);
        Self { field: field.clone(), cause, origin, upstream, local }
    }
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The value; `None` when it is deleted.
    pub value: Option<Value>,
    /// The disagreements, in the order of the fields.
    pub conflicts: Vec<Conflict>,
}

/// Merges the three versions of one object.
pub fn merge(lists: &ListTypes, sides: Sides<Option<&Value>>) -> Merged {
    let mut merger = Merger { lists, conflicts: Vec::new() };
    let value = merger.value(&FieldPath::default(), sides);
    Merged { value, conflicts: merger.conflicts }
}

struct Merger<'l> {
    lists: &'l ListTypes,
    conflicts: Vec<Conflict>,
}

impl Merger<'_> {
    /// Merges a value. One that is absent on one side counts as empty, if the others are maps or such lists.
    fn value(&mut self, at: &FieldPath, sides: Sides<Option<&Value>>) -> Option<Value> {
        if let Some(unmerged) = unmerged(sides) {
            return unmerged.cloned();
        }
        let before = self.conflicts.len();
        let Some(merged) = self.inside(at, sides) else {
            self.conflicts.push(Conflict::new(at, sides));
            return sides.upstream.cloned();
        };
        if sides.upstream.is_some() && sides.local.is_some() {
            return Some(merged);
        }
        // One side deleted it, so an empty rest is deleted, too.
        let rest = Some(merged).filter(|value| !has_nothing(value));
        if rest.is_some() || self.conflicts.len() > before {
            self.conflicts.truncate(before);
            self.conflicts.push(Conflict::new(at, sides));
        }
        rest
    }

    /// Merges the fields of maps or the items of lists; `None` for other values.
    fn inside(&mut self, at: &FieldPath, sides: Sides<Option<&Value>>) -> Option<Value> {
        if let Some(maps) = all(sides, Value::as_object) {
            return Some(Value::Object(self.map(at, maps)));
        }
        let lists = all(sides, Value::as_array)?.map(|list| list.map(Vec::as_slice).unwrap_or_default());
        let identity = self.lists.identity(at, lists)?;
        Some(Value::Array(self.list(at, &identity, lists)))
    }

    fn map(&mut self, at: &FieldPath, maps: Sides<Option<&Map<String, Value>>>) -> Map<String, Value> {
        let mut merged = Map::new();
        let keys = [maps.origin, maps.upstream, maps.local].into_iter().flatten().flat_map(Map::keys);
        let keys: BTreeSet<&String> = keys.collect();
        for key in keys {
            let value = self.value(&at.key(key), maps.map(|map| map.and_then(|map| map.get(key))));
            if let Some(value) = value {
                merged.insert(key.clone(), value);
            }
        }
        merged
    }
}

/// The value when at most one side changed it.
fn unmerged(sides: Sides<Option<&Value>>) -> Option<Option<&Value>> {
    let Sides { origin, upstream, local } = sides;
    if upstream == local || origin == upstream {
        Some(local)
    } else if origin == local {
        Some(upstream)
    } else {
        None
    }
}

/// The values as the same type, if all that are present have it.
fn all<'v, T>(
    sides: Sides<Option<&'v Value>>,
    as_type: impl Fn(&'v Value) -> Option<&'v T>,
) -> Option<Sides<Option<&'v T>>> {
    let typed = sides.map(|value| value.map(&as_type));
    let is_of_type = |value: Option<Option<&'v T>>| !matches!(value, Some(None));
    (is_of_type(typed.origin) && is_of_type(typed.upstream) && is_of_type(typed.local))
        .then(|| typed.map(Option::flatten))
}

fn has_nothing(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests;
