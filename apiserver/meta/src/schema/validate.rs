//! Validation of values against a schema.
//!
//! The texts are those of `kube-openapi/pkg/validation` as `apiextensions-apiserver` turns them
//! into field errors. One thing is better: an object that fits none of its alternatives is named
//! by its path, where upstream says `<nil>`.

use std::{collections::HashSet, fmt};

use serde_json::{Map, Value};

use super::{
    compile::{CompiledSchema, Field, ListType, Node, NodeId, Rules, Shape},
    path::Path,
};
use crate::status::{FieldError, FieldErrorKind, FieldErrors};

/// Everything that is refused in an object, in the order of its fields.
pub(super) fn errors(schema: &CompiledSchema, object: &Map<String, Value>) -> Vec<FieldError> {
    let mut check = Check { schema, errors: FieldErrors::default() };
    check.object(schema.node(schema.root()), object, &Path::Root);
    check.errors.into_vec()
}

struct Check<'a> {
    schema: &'a CompiledSchema,
    errors: FieldErrors,
}

impl<'a> Check<'a> {
    fn value(&mut self, id: NodeId, value: &Value, path: &Path<'_>) {
        // A path may be nearly as long as the object, and something be wrong with as much as there is room for below.
        if self.errors.is_full() {
            return;
        }
        let node = self.schema.node(id);
        if value.is_null() && node.nullable {
            return;
        }
        match value {
            Value::Object(map) => self.object(node, map, path),
            Value::Array(values) => self.array(node, values, path),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.scalar(node, value, path),
        }
    }

    fn object(&mut self, node: &'a Node, map: &Map<String, Value>, path: &Path<'_>) {
        if let Shape::Object(shape) = &node.shape {
            for (key, value) in map {
                if let Field::Known(id) | Field::Element(id) = shape.field(key) {
                    self.value(id, value, &path.key(key));
                }
            }
        }
        let Some(rules) = node.rules.as_deref() else { return };
        for field in rules.required.iter().filter(|field| !map.contains_key(*field)) {
            self.errors.push(FieldError::required(path.key(field).to_string(), ""));
        }
        let size = map.len();
        if let Some(min) = rules.min_properties.filter(|min| size < *min) {
            self.invalid(path, &size.into(), format_args!("should have at least {min} properties"));
        }
        if let Some(max) = rules.max_properties.filter(|max| size > *max) {
            self.too_many(path, size, max);
        }
        if rules.concern_the_whole() {
            self.any(rules, &Value::Object(map.clone()), path);
        }
    }

    fn array(&mut self, node: &'a Node, values: &[Value], path: &Path<'_>) {
        if let Shape::Array(items) = node.shape {
            for (index, value) in values.iter().enumerate() {
                self.value(items, value, &path.index(index));
            }
        }
        let Some(rules) = node.rules.as_deref() else { return };
        let size = values.len();
        if let Some(min) = rules.min_items.filter(|min| size < *min) {
            self.invalid(path, &size.into(), format_args!("should have at least {min} items"));
        }
        if let Some(max) = rules.max_items.filter(|max| size > *max) {
            self.too_many(path, size, max);
        }
        match &rules.list {
            ListType::Atomic if rules.unique_items => self.duplicates(values.iter().map(Clone::clone), path),
            ListType::Atomic => {}
            ListType::Set => self.duplicates(values.iter().map(Clone::clone), path),
            ListType::Map(keys) => self.duplicates(values.iter().map(|value| key_of(value, keys)), path),
        }
        if rules.concern_the_whole() {
            self.any(rules, &Value::Array(values.to_vec()), path);
        }
    }

    fn duplicates(&mut self, values: impl Iterator<Item = Value>, path: &Path<'_>) {
        let mut seen = HashSet::new();
        for (index, value) in values.enumerate() {
            if !seen.insert(value.to_string()) && !self.errors.is_full() {
                self.errors.push(FieldError::duplicate(path.index(index).to_string(), value));
            }
        }
    }

    fn scalar(&mut self, node: &'a Node, value: &Value, path: &Path<'_>) {
        let Some(rules) = node.rules.as_deref() else { return };
        if let Value::String(text) = value {
            self.text(rules, text, path);
        }
        if let Some(number) = value.as_f64() {
            self.number(rules, number, value, path);
        }
        self.any(rules, value, path);
    }

    fn text(&mut self, rules: &Rules, text: &str, path: &Path<'_>) {
        let length = text.chars().count();
        if let Some(max) = rules.max_length.filter(|max| length > *max) {
            let unit = if max == 1 { "byte" } else { "bytes" };
            let message = format!("Too long: may not be more than {max} {unit}");
            self.errors.push(FieldError { field: path.to_string(), kind: FieldErrorKind::TooLong, message });
        }
        if let Some(min) = rules.min_length.filter(|min| length < *min) {
            self.invalid(path, &text.into(), format_args!("should be at least {min} chars long"));
        }
        if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.compiled.is_match(text)) {
            self.invalid(path, &text.into(), format_args!("should match '{}'", pattern.source));
        }
    }

    fn number(&mut self, rules: &Rules, number: f64, value: &Value, path: &Path<'_>) {
        if let Some((max, exclusive)) = rules.maximum
            && (number > max || exclusive && number >= max)
        {
            let or_equal = if exclusive { "" } else { " or equal to" };
            self.invalid(path, value, format_args!("should be less than{or_equal} {max}"));
        }
        if let Some((min, exclusive)) = rules.minimum
            && (number < min || exclusive && number <= min)
        {
            let or_equal = if exclusive { "" } else { " or equal to" };
            self.invalid(path, value, format_args!("should be greater than{or_equal} {min}"));
        }
        if let Some(factor) = rules.multiple_of.filter(|factor| (number / factor).fract() != 0.0) {
            self.invalid(path, value, format_args!("should be a multiple of {factor}"));
        }
    }

    /// The rules that values of all types have.
    fn any(&mut self, rules: &Rules, value: &Value, path: &Path<'_>) {
        if !rules.values.is_empty() && !rules.values.contains(value) {
            let supported: Vec<String> = rules.values.iter().map(plain).collect();
            let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
            self.errors.push(FieldError::not_supported(path.to_string(), value, &supported));
        }
        let fits = |id: &&NodeId| self.fits(**id, value);
        let all = rules.all_of.iter().all(|id| fits(&id));
        let any = rules.any_of.is_empty() || rules.any_of.iter().any(|id| fits(&id));
        let one = rules.one_of.iter().filter(fits).count();
        let not = rules.not.is_some_and(|id| self.fits(id, value));
        if !any {
            self.alternatives(path, "must validate at least one schema (anyOf)");
        }
        if !rules.one_of.is_empty() && one == 0 {
            self.alternatives(path, "must validate one and only one schema (oneOf). Found none valid");
        }
        if one > 1 {
            let message = format!("must validate one and only one schema (oneOf). Found {one} valid alternatives");
            self.alternatives(path, &message);
        }
        if !all {
            self.alternatives(path, "must validate all the schemas (allOf)");
        }
        if not {
            self.alternatives(path, "must not validate the schema (not)");
        }
    }

    /// Whether a value has an alternative's type and breaks none of its rules.
    fn fits(&self, id: NodeId, value: &Value) -> bool {
        let node = self.schema.node(id);
        let typed = match (&node.shape, value) {
            (_, Value::Null) => node.nullable,
            (Shape::Any, _)
            | (Shape::Boolean, Value::Bool(_))
            | (Shape::Number, Value::Number(_))
            | (Shape::IntOrString, Value::Number(_) | Value::String(_))
            | (Shape::String(_), Value::String(_))
            | (Shape::Array(_), Value::Array(_))
            | (Shape::Object(_), Value::Object(_)) => true,
            (Shape::Integer(_), Value::Number(number)) => !number.is_f64(),
            _ => false,
        };
        let mut inner = Check { schema: self.schema, errors: FieldErrors::default() };
        if typed {
            inner.value(id, value, &Path::Root);
        }
        typed && inner.errors.is_empty()
    }

    fn alternatives(&mut self, path: &Path<'_>, message: &str) {
        let field = path.to_string();
        let detail = format!("{field:?} {message}");
        self.errors.push(FieldError::invalid(field, "", detail));
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, message: fmt::Arguments<'_>) {
        let field = path.to_string();
        let detail = format!("{field} in body {message}");
        self.errors.push(FieldError::invalid(field, value, detail));
    }

    fn too_many(&mut self, path: &Path<'_>, size: usize, max: usize) {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {size}: must have at most {max} {unit}");
        self.errors.push(FieldError { field: path.to_string(), kind: FieldErrorKind::TooMany, message });
    }
}

/// The fields that tell the elements of a keyed list apart.
fn key_of(value: &Value, keys: &[String]) -> Value {
    let field = |key: &String| Some((key.clone(), value.get(key)?.clone()));
    Value::Object(keys.iter().filter_map(field).collect())
}

/// A value as a list of supported ones shows it: text without quotes of its own.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
