//! The check of values against their types, and of sets and keyed lists for duplicates.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    super::{
        path::PathElement,
        schema::{ListRelationship, ListType, MapType, Scalar, Schema, TypeId, View},
        value::{Plain, Syntax, type_name},
    },
    Errors, NO_TYPE, item_element,
};

/// How exactly an object has to fit its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Strictness {
    /// As what is stored: items may stand twice, and fields may be unknown.
    Stored,
    /// As what is applied.
    Applied,
}

pub(in super::super) fn validate(
    schema: &Schema,
    object: &Map<String, Value>,
    strictness: Strictness,
) -> Result<(), Errors> {
    let walk = Walk { schema, strictness };
    match schema.atom(schema.root()).view(super::super::schema::Reading::Map) {
        View::Map(map) => walk.map(map, object).into_result(),
        View::Scalar(_) | View::List(_) | View::Nothing => Ok(()),
    }
}

struct Walk<'s> {
    schema: &'s Schema,
    strictness: Strictness,
}

impl Walk<'_> {
    fn value(&self, id: TypeId, value: &Value) -> Errors {
        let atom = self.schema.atom(id);
        match atom.view(atom.reading(Some(value))) {
            View::Map(map) => match value {
                Value::Null => Errors::default(),
                Value::Object(entries) => self.map(map, entries),
                _ => Errors::one(format_args!("expected map, got &{{{}}}", Plain(value))),
            },
            View::Scalar(scalar) => match scalar_error(scalar, value, "") {
                Some(error) => Errors::one(error),
                None => Errors::default(),
            },
            View::List(list) => match value {
                Value::Null => Errors::default(),
                Value::Array(items) => self.list(list, items),
                _ => Errors::one(format_args!("expected list, got &{{{}}}", Plain(value))),
            },
            View::Nothing => Errors::one(NO_TYPE),
        }
    }

    fn list(&self, list: &ListType, items: &[Value]) -> Errors {
        let mut errors = Errors::default();
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if list.relationship == ListRelationship::Atomic {
                let found = self.value(list.element, item);
                if !found.is_empty() {
                    errors.extend(found.below(&PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))));
                }
                continue;
            }
            let element = match item_element(self.schema, list, item) {
                Ok(element) => element,
                Err(error) => {
                    errors.extend(Errors::one(format_args!("element {index}: {error}")));
                    return errors;
                }
            };
            let found = self.value(list.element, item);
            if seen.contains(&element) && self.strictness == Strictness::Applied {
                errors.extend(Errors::one(format_args!("duplicate entries for key {element}")));
            }
            if !found.is_empty() {
                errors.extend(found.below(&element));
            }
            seen.insert(element);
        }
        errors
    }

    fn map(&self, map: &MapType, entries: &Map<String, Value>) -> Errors {
        let mut errors = Errors::default();
        for (key, value) in entries {
            let found = match map.at(key) {
                Some(id) => self.value(id, value),
                None if self.strictness == Strictness::Stored => continue,
                None => {
                    errors.extend(Errors::one("field not declared in schema").below(&PathElement::field(key)));
                    return errors;
                }
            };
            if !found.is_empty() {
                errors.extend(found.below(&PathElement::field(key)));
            }
        }
        errors
    }
}

/// Checks two values of which one has to be such a scalar, or not to be there.
pub(super) fn either_scalar(scalar: Scalar, lhs: Option<&Value>, rhs: Option<&Value>) -> Result<(), Errors> {
    let error = |side: Option<&Value>, name: &str| side.and_then(|value| scalar_error(scalar, value, name));
    let (Some(left), Some(right)) = (error(lhs, "lhs: "), error(rhs, "rhs: ")) else { return Ok(()) };
    let mut errors = Errors::one(left);
    errors.extend(Errors::one(right));
    Err(errors)
}

fn scalar_error(scalar: Scalar, value: &Value, side: &str) -> Option<String> {
    let error = match (scalar, value) {
        (_, Value::Null)
        | (Scalar::Numeric, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => return None,
        (Scalar::Numeric, _) => format!("{side}expected numeric (int or float), got {}", type_name(value)),
        (Scalar::String, _) => {
            format!("{side}expected string, got &value.valueUnstructured{{Value:{}}}", Syntax(value))
        }
        (Scalar::Boolean, _) => format!("{side}expected boolean, got &{{{}}}", Plain(value)),
        (Scalar::Untyped, _) => format!("{side}expected any scalar, got &{{{}}}", Plain(value)),
    };
    Some(error)
}
