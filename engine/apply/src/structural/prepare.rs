//! Preparation of an object for validation, as a server does it: nulls are dropped, defaults are set, and numbers get
//! the type of the schema.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting`.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};
use stoa_engine::FieldPath;
use stoa_engine::path::Segment;

use super::{Steps, is_meta, is_set, of_rest};

/// So many bytes of a text count as one step.
const TEXT: usize = 64;

/// The object to validate; `None` when that takes too many steps.
pub(super) fn prepared(
    schema: &Value,
    object: Map<String, Value>,
    unknown: &BTreeSet<FieldPath>,
    steps: &mut Steps,
) -> Option<Value> {
    let mut object = object;
    let mut preparation = Preparation { unknown, steps, at: FieldPath::default() };
    preparation.map(schema, &mut object, true)?;
    Some(Value::Object(object))
}

struct Preparation<'p> {
    unknown: &'p BTreeSet<FieldPath>,
    steps: &'p mut Steps,
    at: FieldPath,
}

impl Preparation<'_> {
    fn map(&mut self, schema: &Value, map: &mut Map<String, Value>, has_meta: bool) -> Option<()> {
        let fields = schema.get("properties").and_then(Value::as_object);
        let is_own = |key: &str| !(has_meta && is_meta(key));
        for (name, field) in fields.into_iter().flatten().filter(|(name, _)| is_own(name)) {
            self.take(1)?;
            let is_there = map.get(name).is_some_and(|value| !value.is_null() || is_set(field, "nullable"));
            if is_there || self.is_unknown(name) {
                continue;
            }
            match field.get("default").filter(|default| !default.is_null()) {
                Some(default) => {
                    self.take(size(default))?;
                    map.insert(name.clone(), default.clone());
                }
                None => drop(map.remove(name)),
            }
        }
        let rest = of_rest(schema);
        for (key, value) in map.iter_mut().filter(|(key, _)| is_own(key)) {
            let Some(schema) = fields.and_then(|fields| fields.get(key)).or(rest) else { continue };
            self.at.0.push(Segment::Key(key.clone()));
            let done = self.element(schema, value);
            self.at.0.pop();
            done?;
        }
        Some(())
    }

    /// A value of a map or a list, where a null has its default.
    fn element(&mut self, schema: &Value, value: &mut Value) -> Option<()> {
        self.take(1)?;
        if self.unknown.contains(&self.at) {
            return Some(());
        }
        if value.is_null()
            && !is_set(schema, "nullable")
            && let Some(default) = schema.get("default")
        {
            self.take(size(default))?;
            *value = default.clone();
        }
        match value {
            Value::Object(map) => self.map(schema, map, is_set(schema, "x-kubernetes-embedded-resource")),
            Value::Array(items) => {
                let Some(schema) = schema.get("items") else { return Some(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    self.at.0.push(Segment::Index(index));
                    let done = self.element(schema, item);
                    self.at.0.pop();
                    done?;
                }
                Some(())
            }
            Value::Number(number) => {
                if let Some(other) = as_typed(schema, number) {
                    *number = other;
                }
                Some(())
            }
            Value::Null | Value::Bool(_) | Value::String(_) => Some(()),
        }
    }

    fn is_unknown(&self, name: &str) -> bool {
        !self.unknown.is_empty() && self.unknown.contains(&self.at.key(name))
    }

    fn take(&mut self, steps: usize) -> Option<()> {
        self.steps.take(steps).then_some(())
    }
}

/// A whole number where a fraction may be, or the other way round, as the type that rules see.
fn as_typed(schema: &Value, number: &Number) -> Option<Number> {
    match schema.get("type")?.as_str()? {
        "number" if !number.is_f64() => Number::from_f64(number.as_f64()?),
        "integer" if number.is_f64() => {
            let (float, whole) = (number.as_f64()?, number.as_f64()? as i64);
            (whole as f64 == float).then(|| whole.into())
        }
        _ => None,
    }
}

/// The steps of a value.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + text.len() / TEXT,
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.iter().map(|(key, value)| 1 + key.len() / TEXT + size(value)).sum::<usize>(),
    }
}
