//! The attributes of a value, by its schema.

use std::collections::BTreeMap;

use crate::value::{Dynamic, Path, Step, Value};

use super::{Attribute, AttributeForm, Block, NestedAttributes, Nesting, Schema};

impl Schema {
    /// The value with null in all write-only attributes, as plans and states have them.
    #[must_use]
    pub fn without_write_only(&self, value: Value) -> Value {
        self.block.replaced(value, &mut |attribute, value| if attribute.write_only { Value::Null } else { value })
    }

    /// The configuration of a data source with an unknown value for each attribute that its read sets.
    #[must_use]
    pub fn before_read(&self, config: Value) -> Value {
        let is_read = |attribute: &Attribute, value: &Value| attribute.computed && value.is_null();
        self.block.replaced(config, &mut |it, value| if is_read(it, &value) { Value::Unknown } else { value })
    }

    /// Paths to all secret values that are not null. A path into a set ends at the set.
    pub fn sensitive_paths(&self, value: &Value) -> Vec<Path> {
        self.paths(value, |attribute| attribute.sensitive)
    }

    /// Paths to all write-only values that are not null. A path into a set ends at the set.
    pub fn write_only_paths(&self, value: &Value) -> Vec<Path> {
        self.paths(value, |attribute| attribute.write_only)
    }

    fn paths(&self, value: &Value, matches: fn(&Attribute) -> bool) -> Vec<Path> {
        let mut paths = Vec::new();
        self.block.visit(value, &mut |path, attribute, value| {
            if matches(attribute) && !value.is_null() {
                paths.push(path.clone());
            }
        });
        paths.dedup();
        paths
    }

    /// The attribute at a path, which may lead into blocks, nested attributes and plain types.
    pub fn attribute(&self, path: &Path) -> Option<&Attribute> {
        let mut names = path.0.iter().filter_map(|step| match step {
            Step::Attribute(name) => Some(name),
            _ => None,
        });
        let mut block = &self.block;
        let mut attribute = loop {
            let name = names.next()?;
            match block.blocks.get(name) {
                Some(nested) => block = &nested.block,
                None => break block.attributes.get(name)?,
            }
        };
        while let AttributeForm::Nested(nested) = &attribute.form {
            match names.next() {
                Some(name) => attribute = nested.attributes.get(name)?,
                None => break,
            }
        }
        Some(attribute)
    }

    /// The value where each missing block is empty. The older library of providers answers null for some of them.
    #[must_use]
    pub fn with_empty_blocks(&self, value: Value) -> Value {
        if value.is_null() { value } else { self.block.with_empty_blocks(value) }
    }
}

/// Changes the value of an attribute.
type Replace<'a> = &'a mut dyn FnMut(&Attribute, Value) -> Value;
/// Sees an attribute's path and value.
type Visit<'a> = &'a mut dyn FnMut(&Path, &Attribute, &Value);

impl Block {
    /// The value with another value for each attribute. Nested attributes follow unless the value is null then.
    pub(crate) fn replaced(&self, value: Value, replace: Replace<'_>) -> Value {
        let Value::Object(values) = value else { return value };
        let replaced = values.into_iter().map(|(name, value)| {
            let value = match (self.attributes.get(&name), self.blocks.get(&name)) {
                (Some(attribute), _) => attribute.replaced(value, replace),
                (_, Some(nested)) => each(nested.nesting, value, &mut |it| nested.block.replaced(it, replace)),
                (None, None) => value,
            };
            (name, value)
        });
        Value::Object(replaced.collect())
    }

    fn with_empty_blocks(&self, value: Value) -> Value {
        let Value::Object(mut values) = value else { return value };
        for (name, nested) in &self.blocks {
            let value = values.remove(name).unwrap_or(Value::Null);
            let value = match value {
                Value::Null => nested.absent(),
                value => each(nested.nesting, value, &mut |it| nested.block.with_empty_blocks(it)),
            };
            values.insert(name.clone(), value);
        }
        Value::Object(values)
    }

    /// Visits all attributes of a value, those of blocks and nested ones included.
    pub(crate) fn visit(&self, value: &Value, visit: Visit<'_>) {
        self.visit_at(value, &Position::default(), visit);
    }

    fn visit_at(&self, value: &Value, at: &Position, visit: Visit<'_>) {
        visit_attributes(&self.attributes, value, at, visit);
        for (name, nested) in &self.blocks {
            let Some(inner) = value.get(name) else { continue };
            let at = at.step(Step::Attribute(name.clone()));
            each_at(nested.nesting, inner, &at, &mut |at, it| nested.block.visit_at(it, at, visit));
        }
    }
}

impl Attribute {
    fn replaced(&self, value: Value, replace: Replace<'_>) -> Value {
        let value = replace(self, value);
        match &self.form {
            AttributeForm::Type(_) => value,
            AttributeForm::Nested(nested) => each(nested.nesting, value, &mut |it| nested.replaced(it, replace)),
        }
    }
}

impl NestedAttributes {
    fn replaced(&self, value: Value, replace: Replace<'_>) -> Value {
        let Value::Object(values) = value else { return value };
        let replaced = values.into_iter().map(|(name, value)| match self.attributes.get(&name) {
            Some(attribute) => {
                let value = attribute.replaced(value, replace);
                (name, value)
            }
            None => (name, value),
        });
        Value::Object(replaced.collect())
    }
}

fn visit_attributes(attributes: &BTreeMap<String, Attribute>, value: &Value, at: &Position, visit: Visit<'_>) {
    for (name, attribute) in attributes {
        let Some(inner) = value.get(name) else { continue };
        let at = at.step(Step::Attribute(name.clone()));
        visit(&at.path, attribute, inner);
        if let AttributeForm::Nested(nested) = &attribute.form {
            each_at(nested.nesting, inner, &at, &mut |at, it| visit_attributes(&nested.attributes, it, at, visit));
        }
    }
}

/// A part of a value. Paths end at the first set, inside which nothing has a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    path: Path,
    is_in_set: bool,
}

impl Position {
    fn step(&self, step: Step) -> Self {
        if self.is_in_set { self.clone() } else { Self { path: self.path.clone().step(step), is_in_set: false } }
    }
}

/// Visits each object in an arrangement, with its position.
fn each_at(nesting: Nesting, value: &Value, at: &Position, visit: &mut dyn FnMut(&Position, &Value)) {
    match (nesting, value.plain()) {
        (Nesting::Single | Nesting::Group, value @ Value::Object(_)) => visit(at, value),
        (_, Value::List(it) | Value::Tuple(it)) => {
            for (index, value) in (0..).zip(it) {
                visit(&at.step(Step::Index(index)), value);
            }
        }
        (_, Value::Set(it)) => {
            let at = Position { path: at.path.clone(), is_in_set: true };
            for value in it {
                visit(&at, value);
            }
        }
        (_, Value::Map(it) | Value::Object(it)) => {
            for (key, value) in it {
                visit(&at.step(Step::Key(key.clone())), value);
            }
        }
        _ => {}
    }
}

/// The arrangement with another value for each object in it.
pub(crate) fn each(nesting: Nesting, value: Value, replace: &mut dyn FnMut(Value) -> Value) -> Value {
    match (nesting, value) {
        (_, Value::Dynamic(it)) => {
            let Dynamic { ty, value } = *it;
            Value::Dynamic(Box::new(Dynamic { ty, value: each(nesting, value, replace) }))
        }
        (Nesting::Single | Nesting::Group, value @ Value::Object(_)) => replace(value),
        (_, Value::List(it)) => Value::List(it.into_iter().map(replace).collect()),
        (_, Value::Tuple(it)) => Value::Tuple(it.into_iter().map(replace).collect()),
        (_, Value::Set(it)) => Value::set(it.into_iter().map(replace)),
        (_, Value::Map(it)) => Value::Map(it.into_iter().map(|(key, it)| (key, replace(it))).collect()),
        (_, Value::Object(it)) => Value::Object(it.into_iter().map(|(key, it)| (key, replace(it))).collect()),
        (_, value) => value,
    }
}
