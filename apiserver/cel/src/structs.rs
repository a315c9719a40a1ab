//! What mutations construct: `Object{…}`, `Object.spec{…}` and so on, and `JSONPatch{…}`.
//!
//! Any field may be set; whether the types' names are those of the places where the values stand is asked of the
//! outcome. Follows `k8s.io/apiserver/pkg/cel/mutation`.

use std::collections::BTreeMap;

use super::{
    budget::{Budget, Writer},
    eval::{Error, Outcome},
    functions::{display, show},
    held::Retained,
    value::{Key, List, Map, Value, all},
};

/// The type of a mutation's operations.
pub(super) const JSON_PATCH: &str = "JSONPatch";
/// The type of a configuration; those of its parts have names that begin with it.
pub(super) const OBJECT: &str = "Object";

/// How many types that stand where others belong are told.
const MOST_MISMATCHES: usize = 10;
/// How deeply what an expression makes may be nested, in values; no object is as deep.
const DEEPEST_OUTCOME: usize = 300;
/// How large what an expression makes may become, in bytes; no object is as large.
const LARGEST_OUTCOME: usize = 16 << 20;

/// A value of a type that an expression named.
#[derive(Debug)]
pub(super) struct Struct<'a> {
    pub(super) type_name: &'a str,
    pub(super) fields: Retained<BTreeMap<String, Value<'a>>>,
}

/// Whether there is a type of that name.
pub(super) fn is_type(name: &str) -> bool {
    name == JSON_PATCH || name == OBJECT || name.strip_prefix(OBJECT).is_some_and(|rest| rest.starts_with('.'))
}

pub(super) fn construct<'a>(type_name: &'a str, entries: BTreeMap<Key, Value<'a>>) -> Outcome<'a> {
    let mut fields = BTreeMap::new();
    for (key, value) in entries {
        let name = key.text().ok_or_else(|| Error::new("unsupported key type"))?;
        if type_name == JSON_PATCH {
            match (name.as_str(), &value) {
                ("op" | "path" | "from", Value::String(_)) | ("value", _) => {}
                ("op" | "path" | "from", other) => {
                    let given = other.type_name();
                    return Err(Error::new(format!("unexpected type {given} for JSONPatchType '{name}' field")));
                }
                _ => return Err(Error::new(format!("unexpected JSONPatchType field: {name}"))),
            }
        }
        fields.insert(name, value);
    }
    Ok(Value::Struct(Struct { type_name, fields: Retained::new(fields.len(), fields) }.into()))
}

impl<'a> Struct<'a> {
    pub(super) fn field(&self, name: &str) -> Option<Value<'a>> {
        self.fields.get(name).cloned()
    }

    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Error> {
        Ok(self.type_name == other.type_name
            && self.fields.len() == other.fields.len()
            && all(self.fields.iter(), |(name, value)| {
                budget.spend(1)?;
                other.fields.get(name).map_or(Ok(false), |other| value.equals(other, budget))
            })?)
    }

    pub(super) fn show(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.push(self.type_name)?;
        out.push("{")?;
        for (index, (name, value)) in self.fields.iter().enumerate() {
            out.push(if index == 0 { "" } else { ", " })?;
            out.push(name)?;
            out.push(": ")?;
            show(value, out)?;
        }
        out.push("}")
    }

    /// Collects what is wrong with the names of types in this value, which stands where `path` says.
    pub(super) fn mismatches(&self, path: &str, steps: &mut Steps<'_>, found: &mut Vec<String>) -> Result<(), Error> {
        steps.spend(1)?;
        if self.type_name != path && found.len() < MOST_MISMATCHES {
            let given = self.type_name;
            found.push(format!(
                "unexpected type name {given:?}, expected {path:?}, which matches field name path from root Object type"
            ));
        }
        for (name, value) in self.fields.iter() {
            mismatches_of(value, &format!("{path}.{name}"), steps, found)?;
        }
        Ok(())
    }
}

/// The same for any value: lists and maps have no name of their own.
fn mismatches_of(value: &Value<'_>, path: &str, steps: &mut Steps<'_>, found: &mut Vec<String>) -> Result<(), Error> {
    match value {
        Value::Struct(inner) => inner.mismatches(path, steps, found),
        Value::List(List::Made(items)) => items.iter().try_for_each(|item| {
            steps.spend(1)?;
            mismatches_of(item, path, steps, found)
        }),
        Value::Map(Map::Made(entries)) => entries.values().try_for_each(|entry| {
            steps.spend(1)?;
            mismatches_of(entry, path, steps, found)
        }),
        _ => Ok(()),
    }
}

/// What is left of a budget, for walks through values: a value may hold another many times over.
pub(super) struct Steps<'b> {
    budget: &'b mut Budget,
    /// How many bytes may still be made.
    room: usize,
    /// How many values the one that is made is in.
    depth: usize,
}

impl<'b> Steps<'b> {
    pub(super) fn new(budget: &'b mut Budget) -> Self {
        Self { budget, room: LARGEST_OUTCOME, depth: 0 }
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Error> {
        self.budget.spend(steps)
    }

    pub(super) fn display(&mut self, value: &Value<'_>) -> Result<String, Error> {
        display(value, self.budget)
    }

    /// Makes a value that stands in another one.
    pub(super) fn nested<T>(&mut self, make: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == DEEPEST_OUTCOME {
            return Err(Error::new("the value is nested too deeply"));
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        made
    }

    /// Takes the step of making a value with a text of so many bytes.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), Error> {
        self.spend(1 + bytes / 10)?;
        let size = size_of::<serde_json::Value>() + bytes;
        self.room = self.room.checked_sub(size).ok_or_else(|| Error::new("the value is too large"))?;
        Ok(())
    }
}
