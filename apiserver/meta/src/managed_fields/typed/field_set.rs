//! The set of all paths of an object, which its writer owns.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    super::{
        path::PathElement,
        schema::{ListRelationship, ListType, MapType, Reading, Schema, TypeId, View},
        set::Set,
    },
    Errors, NO_TYPE, item_element,
};

/// The paths of an object: its leaves, items of lists, entries of maps, and what is empty.
/// Fails when a value has a type that takes none.
pub(in super::super) fn field_set(schema: &Schema, object: &Map<String, Value>) -> Result<Set, Errors> {
    let walk = Walk { schema };
    match schema.atom(schema.root()).view(Reading::Map) {
        View::Map(map) => walk.entries(map, object),
        View::Scalar(_) | View::List(_) | View::Nothing => Ok(Set::default()),
    }
}

struct Walk<'s> {
    schema: &'s Schema,
}

impl Walk<'_> {
    /// Whether a path ends here, and those that lead on.
    fn value(&self, id: TypeId, value: &Value) -> Result<(bool, Set), Errors> {
        let atom = self.schema.atom(id);
        match (atom.view(atom.reading(Some(value))), value) {
            (View::Scalar(_), _) => Ok((true, Set::default())),
            (View::Map(map), _) if map.atomic => Ok((true, Set::default())),
            (View::List(list), _) if list.relationship == ListRelationship::Atomic => Ok((true, Set::default())),
            (View::Map(map), Value::Object(entries)) => Ok((false, self.entries(map, entries)?)),
            (View::List(list), Value::Array(items)) => Ok((false, self.items(list, items)?)),
            (View::Map(_) | View::List(_), _) => Ok((false, Set::default())),
            (View::Nothing, _) => Err(Errors::one(NO_TYPE)),
        }
    }

    fn entries(&self, map: &MapType, entries: &Map<String, Value>) -> Result<Set, Errors> {
        let mut set = Set::default();
        for (key, value) in entries {
            let Some(id) = map.at(key) else { continue };
            let element = PathElement::field(key);
            let (ends, below) = self.value(id, value)?;
            let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
            if ends || is_empty || !map.fields.contains_key(key.as_str()) {
                set.insert_member(element.clone());
            }
            set.insert_child(element, below);
        }
        Ok(set)
    }

    fn items(&self, list: &ListType, items: &[Value]) -> Result<Set, Errors> {
        let mut elements: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
        for item in items {
            // What is no item of such a list has no path.
            if let Ok(element) = item_element(self.schema, list, item) {
                elements.entry(element).or_default().push(item);
            }
        }
        let mut set = Set::default();
        for (element, items) in elements {
            set.insert_member(element.clone());
            // What stands there more than once is owned as a whole.
            if let [item] = items.as_slice() {
                let (_, below) = self.value(list.element, item)?;
                set.insert_child(element, below);
            }
        }
        Ok(set)
    }
}
