//! The removal of paths from an object.

use serde_json::{Map, Value};

use super::{
    super::{
        path::PathElement,
        schema::{ListRelationship, ListType, MapType, Reading, Schema, TypeId, View},
        set::Set,
    },
    item_element,
};

/// The object without these paths. Where everything below a path goes, null is left.
pub(in super::super) fn remove(schema: &Schema, object: &Map<String, Value>, paths: &Set) -> Map<String, Value> {
    let walk = Walk { schema };
    match schema.atom(schema.root()).view(Reading::Map) {
        View::Map(map) => walk.entries(map, object, paths),
        View::Scalar(_) | View::List(_) | View::Nothing => object.clone(),
    }
}

struct Walk<'s> {
    schema: &'s Schema,
}

impl Walk<'_> {
    fn value(&self, id: TypeId, value: &Value, paths: &Set) -> Value {
        let atom = self.schema.atom(id);
        match (atom.view(atom.reading(Some(value))), value) {
            (View::Scalar(_), _) => value.clone(),
            (View::Map(map), Value::Object(entries)) if !map.atomic => {
                let rest = self.entries(map, entries, paths);
                if rest.is_empty() { Value::Null } else { Value::Object(rest) }
            }
            (View::List(list), Value::Array(items)) if list.relationship != ListRelationship::Atomic => {
                let rest = self.items(list, items, paths);
                if rest.is_empty() { Value::Null } else { Value::Array(rest) }
            }
            (View::Map(_) | View::List(_) | View::Nothing, _) => Value::Null,
        }
    }

    fn entries(&self, map: &MapType, entries: &Map<String, Value>, paths: &Set) -> Map<String, Value> {
        let mut rest = Map::new();
        for (key, value) in entries {
            let element = PathElement::field(key);
            if paths.has_member(&element) {
                continue;
            }
            let value = match (paths.child(&element).filter(|below| !below.is_empty()), map.at(key)) {
                (Some(below), Some(id)) => self.value(id, value, below),
                _ => value.clone(),
            };
            rest.insert(key.clone(), value);
        }
        rest
    }

    fn items(&self, list: &ListType, items: &[Value], paths: &Set) -> Vec<Value> {
        let keep = |item: &Value| {
            let Ok(element) = item_element(self.schema, list, item) else { return Some(item.clone()) };
            if paths.has_member(&element) {
                return None;
            }
            Some(match paths.child(&element).filter(|below| !below.is_empty()) {
                Some(below) => self.value(list.element, item, below),
                None => item.clone(),
            })
        };
        items.iter().filter_map(keep).collect()
    }
}
