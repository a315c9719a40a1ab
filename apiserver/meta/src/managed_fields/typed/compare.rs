//! The difference of two objects: paths added, changed and removed.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Map, Value};

use super::{
    super::{
        path::PathElement,
        schema::{ListType, MapType, Reading, Schema, TypeId, View},
        set::Set,
        value,
    },
    Errors, NO_TYPE, as_map, item_element, items_of,
    validate::either_scalar,
};

/// The paths at which two objects differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Comparison {
    pub(in super::super) removed: Set,
    pub(in super::super) modified: Set,
    pub(in super::super) added: Set,
}

impl Comparison {
    /// Leaves out these paths and everything below them.
    pub(in super::super) fn excluding(self, paths: &Set) -> Self {
        let rest = |set: Set| if paths.is_empty() || set.is_empty() { set } else { set.recursive_difference(paths) };
        Self { removed: rest(self.removed), modified: rest(self.modified), added: rest(self.added) }
    }
}

/// What is there where a struct has nothing in it.
static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// How what is not there is read where Go has a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Structs {
    /// As empty: both objects are typed.
    Present,
    /// As missing: an object was put together from others, untyped.
    Written,
}

/// Compares two objects that are valid as stored.
/// Fails when a list that should be a set or keyed is neither.
pub(in super::super) fn compare(
    schema: &Schema,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    structs: Structs,
) -> Result<Comparison, Errors> {
    let walk = Walk { schema, structs };
    let mut node = Node::default();
    if let View::Map(map) = schema.atom(schema.root()).view(Reading::Map) {
        walk.entries(map, Some(old), Some(new), &mut node)?;
    }
    Ok(node.below)
}

#[derive(Default)]
struct Node {
    removed: bool,
    modified: bool,
    added: bool,
    below: Comparison,
}

impl Node {
    fn adopt(&mut self, element: &PathElement, child: Self) {
        let adopt = |set: &mut Set, here: bool, below: Set| {
            if here {
                set.insert_member(element.clone());
            }
            if !below.is_empty() {
                set.insert_child(element.clone(), below);
            }
        };
        adopt(&mut self.below.removed, child.removed, child.below.removed);
        adopt(&mut self.below.modified, child.modified, child.below.modified);
        adopt(&mut self.below.added, child.added, child.below.added);
    }

    fn leaf(&mut self, lhs: Option<&Value>, rhs: Option<&Value>) -> bool {
        match (lhs, rhs) {
            (None, _) => self.added = true,
            (_, None) => self.removed = true,
            (Some(lhs), Some(rhs)) => self.modified |= !value::equal(lhs, rhs),
        }
        true
    }
}

struct Walk<'s> {
    schema: &'s Schema,
    structs: Structs,
}

impl Walk<'_> {
    /// Compares what is at one place, on one side or on both.
    fn value(&self, id: TypeId, lhs: Option<&Value>, rhs: Option<&Value>, node: &mut Node) -> Result<(), Errors> {
        // Most of an object is not changed by a write.
        if let (Some(lhs), Some(rhs)) = (lhs, rhs)
            && lhs == rhs
        {
            return Ok(());
        }
        let atom = self.schema.atom(id);
        let (left, right) = (atom.reading(lhs), atom.reading(rhs));
        let is_leaf = if rhs.is_none() {
            self.handle(atom.view(left), lhs, rhs, node)?
        } else if lhs.is_none() || atom.same(left, right) {
            self.handle(atom.view(right), lhs, rhs, node)?
        } else {
            self.handle(atom.view(left), lhs, rhs, node)?;
            self.handle(atom.view(right), lhs, rhs, node)?
        };
        if !is_leaf {
            node.added |= lhs.is_none();
            node.removed |= rhs.is_none();
        }
        Ok(())
    }

    /// Says whether the values were compared as wholes.
    fn handle(
        &self,
        view: View<'_>,
        lhs: Option<&Value>,
        rhs: Option<&Value>,
        node: &mut Node,
    ) -> Result<bool, Errors> {
        match view {
            View::Map(map) => {
                let (left, right) = (as_map(lhs), as_map(rhs));
                let nothing_else = self.structs == Structs::Written || map.always.is_empty();
                let is_empty = |side: Option<&Map<_, _>>| side.is_none_or(|side| side.is_empty() && nothing_else);
                if map.atomic || (is_empty(left) && is_empty(right)) {
                    return Ok(node.leaf(lhs, rhs));
                }
                self.entries(map, left, right, node).map(|()| false)
            }
            View::Scalar(scalar) => either_scalar(scalar, lhs, rhs).map(|()| node.leaf(lhs, rhs)),
            View::List(list) => match items_of(list, lhs, rhs) {
                Some((left, right)) => self.items(list, left, right, node).map(|()| false),
                None => Ok(node.leaf(lhs, rhs)),
            },
            View::Nothing => Err(Errors::one(NO_TYPE)),
        }
    }

    fn entries(
        &self,
        map: &MapType,
        lhs: Option<&Map<String, Value>>,
        rhs: Option<&Map<String, Value>>,
        node: &mut Node,
    ) -> Result<(), Errors> {
        let get = |side: Option<&'_ Map<String, Value>>, key: &str| -> bool {
            side.is_some_and(|side| side.contains_key(key))
        };
        let left = lhs.into_iter().flat_map(Map::keys);
        let right = rhs.into_iter().flat_map(Map::keys).filter(|key| !get(lhs, key));
        let mut errors = Errors::default();
        for key in left.chain(right) {
            // Nothing is known of the field, and so nobody owns it.
            let Some(id) = map.at(key) else { continue };
            let (lhs, rhs) = (self.entry(map, lhs, key), self.entry(map, rhs, key));
            let mut child = Node::default();
            if let Err(found) = self.value(id, lhs, rhs, &mut child) {
                errors.extend(found.below(&PathElement::field(key)));
            }
            if child.is_anything() {
                node.adopt(&PathElement::field(key), child);
            }
        }
        errors.into_result()
    }

    /// What is at a key, which for some fields is never nothing.
    fn entry<'v>(&self, map: &MapType, side: Option<&'v Map<String, Value>>, key: &str) -> Option<&'v Value> {
        let side = side?;
        let is_struct = || self.structs == Structs::Present && map.always.iter().any(|field| **field == *key);
        side.get(key).or_else(|| is_struct().then(|| &*EMPTY))
    }

    fn items(&self, list: &ListType, lhs: &[Value], rhs: &[Value], node: &mut Node) -> Result<(), Errors> {
        let mut errors = Errors::default();
        let mut elements: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (side, items) in [lhs, rhs].into_iter().enumerate() {
            for (index, item) in items.iter().enumerate() {
                match item_element(self.schema, list, item) {
                    Ok(element) => {
                        let (left, right) = elements.entry(element).or_default();
                        if side == 0 { left.push(item) } else { right.push(item) }
                    }
                    Err(error) => errors.extend(Errors::one(format_args!("element {index}: {error}"))),
                }
            }
        }
        for (element, (left, right)) in elements {
            let mut child = Node::default();
            let found = match (left.as_slice(), right.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.value(list.element, left.first().copied(), right.first().copied(), &mut child)
                }
                // What stands there more than once is compared as a whole.
                ([_, _, ..], [_, _, ..]) => {
                    child.modified = left.len() != right.len()
                        || left.iter().zip(&right).any(|(left, right)| !value::equal(left, right));
                    Ok(())
                }
                ([_, _, ..], _) => {
                    let found =
                        right.first().map_or(Ok(()), |item| self.value(list.element, None, Some(item), &mut child));
                    child.removed = true;
                    found
                }
                (_, _) => {
                    let found =
                        left.first().map_or(Ok(()), |item| self.value(list.element, Some(item), None, &mut child));
                    child.added = true;
                    found
                }
            };
            if let Err(found) = found {
                errors.extend(found.below(&element));
            }
            node.adopt(&element, child);
        }
        errors.into_result()
    }
}

impl Node {
    fn is_anything(&self) -> bool {
        let Comparison { removed, modified, added } = &self.below;
        self.removed || self.modified || self.added || !removed.is_empty() || !modified.is_empty() || !added.is_empty()
    }
}
