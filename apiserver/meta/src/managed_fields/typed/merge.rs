//! The merge of a configuration into an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    super::{
        path::PathElement,
        schema::{ListType, MapType, Reading, Schema, TypeId, View},
    },
    Errors, NO_TYPE, as_map, item_element, items_of,
    validate::either_scalar,
};

/// The object after a configuration was merged into it: what both have is the configuration's.
/// Fails when an item stands twice in a set or keyed list of the configuration.
pub(in super::super) fn merge(
    schema: &Schema,
    object: &Map<String, Value>,
    configuration: &Map<String, Value>,
) -> Result<Map<String, Value>, Errors> {
    let walk = Walk { schema };
    match schema.atom(schema.root()).view(Reading::Map) {
        View::Map(map) => walk.entries(map, Some(object), Some(configuration)),
        View::Scalar(_) | View::List(_) | View::Nothing => Ok(configuration.clone()),
    }
}

/// Stands for an item that was there more than once, of which none is merged with.
const NULL: &Value = &Value::Null;

struct Walk<'s> {
    schema: &'s Schema,
}

impl Walk<'_> {
    fn value(&self, id: TypeId, lhs: Option<&Value>, rhs: Option<&Value>) -> Result<Option<Value>, Errors> {
        let atom = self.schema.atom(id);
        let (left, right) = (atom.reading(lhs), atom.reading(rhs));
        if rhs.is_none() {
            return self.handle(atom.view(left), lhs, rhs);
        }
        if lhs.is_some() && !atom.same(left, right) {
            // Only what is wrong with it counts.
            self.handle(atom.view(left), lhs, rhs)?;
        }
        self.handle(atom.view(right), lhs, rhs)
    }

    fn handle(&self, view: View<'_>, lhs: Option<&Value>, rhs: Option<&Value>) -> Result<Option<Value>, Errors> {
        let leaf = || Ok(rhs.or(lhs).cloned());
        match view {
            View::Map(map) => {
                let (left, right) = (as_map(lhs), as_map(rhs));
                let is_empty = |side: Option<&Map<_, _>>| side.is_none_or(Map::is_empty);
                if map.atomic || (is_empty(left) && is_empty(right)) {
                    return leaf();
                }
                let merged = self.entries(map, left, right)?;
                Ok((!merged.is_empty()).then_some(Value::Object(merged)))
            }
            View::Scalar(scalar) => either_scalar(scalar, lhs, rhs).and_then(|()| leaf()),
            View::List(list) => {
                let Some((left, right)) = items_of(list, lhs, rhs) else { return leaf() };
                let merged = self.items(list, left, right)?;
                Ok((!merged.is_empty()).then_some(Value::Array(merged)))
            }
            View::Nothing => Err(Errors::one(NO_TYPE)),
        }
    }

    fn entries(
        &self,
        map: &MapType,
        lhs: Option<&Map<String, Value>>,
        rhs: Option<&Map<String, Value>>,
    ) -> Result<Map<String, Value>, Errors> {
        let mut merged = Map::new();
        let mut errors = Errors::default();
        let left = lhs.into_iter().flat_map(Map::keys);
        let right = rhs.into_iter().flat_map(Map::keys).filter(|key| !lhs.is_some_and(|lhs| lhs.contains_key(*key)));
        for key in left.chain(right) {
            let get = |side: Option<&'_ Map<String, Value>>| side.and_then(|side| side.get(key)).cloned();
            let value = match map.at(key) {
                Some(id) => self.value(id, lhs.and_then(|lhs| lhs.get(key)), rhs.and_then(|rhs| rhs.get(key))),
                None => Ok(get(rhs).or_else(|| get(lhs))),
            };
            match value {
                Ok(Some(value)) => {
                    merged.insert(key.clone(), value);
                }
                Ok(None) => {}
                Err(found) => errors.extend(found.below(&PathElement::field(key))),
            }
        }
        errors.into_result().map(|()| merged)
    }

    /// Merges two lists of distinct items so that the order of each is kept where that is possible, and that of the
    /// configuration where it is not.
    fn items(&self, list: &ListType, lhs: &[Value], rhs: &[Value]) -> Result<Vec<Value>, Errors> {
        let mut errors = Errors::default();
        let right = self.index(list, rhs, false, &mut errors);
        let left = self.index(list, lhs, true, &mut errors);
        errors.into_result()?;
        let mut shared = right.order.iter().filter(|element| left.items.contains_key(element));
        let mut next_shared = shared.next();
        let mut merged_already = BTreeSet::new();
        let mut merged = Vec::with_capacity(lhs.len().max(rhs.len()));
        // An item that cannot be merged is left out, without a word.
        let mut put = |lhs: Option<&Value>, rhs: Option<&Value>| {
            merged.extend(self.value(list.element, lhs, rhs).ok().flatten());
        };
        let (mut l, mut r) = (0, 0);
        while l < left.order.len() || r < right.order.len() {
            if let (Some(here), Some(there)) = (left.order.get(l), right.order.get(r)) {
                if here == there {
                    merged_already.insert(here);
                    put(left.get(here), right.get(here));
                    (l, r) = (l + 1, r + 1);
                    next_shared = shared.next();
                    continue;
                }
                // Shared, but not what comes next in the order of the configuration.
                if right.items.contains_key(here) && next_shared.is_some_and(|next| next != here) {
                    l += 1;
                    continue;
                }
            }
            if let Some(here) = left.order.get(l) {
                if !right.items.contains_key(here) {
                    put(lhs.get(l), None);
                    l += 1;
                    continue;
                }
                if merged_already.contains(here) {
                    l += 1;
                }
            }
            if let Some(there) = right.order.get(r) {
                merged_already.insert(there);
                put(left.get(there), right.get(there));
                r += 1;
                if next_shared == Some(there) {
                    next_shared = shared.next();
                }
            }
        }
        Ok(merged)
    }

    fn index<'v>(&self, list: &ListType, items: &'v [Value], duplicates: bool, errors: &mut Errors) -> Index<'v> {
        let mut index = Index { order: Vec::with_capacity(items.len()), items: BTreeMap::new() };
        for (position, item) in items.iter().enumerate() {
            let element = match item_element(self.schema, list, item) {
                Ok(element) => element,
                Err(error) => {
                    errors.extend(Errors::one(format_args!("element {position}: {error}")));
                    continue;
                }
            };
            match index.items.get_mut(&element) {
                Some(_) if !duplicates => {
                    errors.extend(Errors::one(format_args!("duplicate entries for key {element}")));
                    continue;
                }
                Some(there) => *there = NULL,
                None => {
                    index.items.insert(element.clone(), item);
                }
            }
            index.order.push(element);
        }
        index
    }
}

struct Index<'v> {
    order: Vec<PathElement>,
    items: BTreeMap<PathElement, &'v Value>,
}

impl<'v> Index<'v> {
    fn get(&self, element: &PathElement) -> Option<&'v Value> {
        self.items.get(element).copied()
    }
}
