//! Typed values of configuration, by a schema.
//!
//! Start at [`Schema::configuration`].

use std::collections::BTreeMap;

use crate::value::convert::{ConvertError, Problem, convert_at};
use crate::value::{Dynamic, Path, Type, Value};

use super::{Attribute, AttributeForm, Block, NestedAttributes, NestedBlock, Nesting, Schema};

impl Schema {
    /// The configuration as a value with all attributes and blocks: missing attributes are null, missing blocks empty.
    ///
    /// A list or set of blocks may also be a single object, as in Terraform's JSON syntax. The provider itself validates
    /// the values.
    ///
    /// # Errors
    ///
    /// If an argument is unknown, missing, computed only, or has no form in its type; or if there are too few or too
    /// many blocks. Every such problem is in the list.
    pub fn configuration(&self, value: Value) -> Result<Value, Vec<ConvertError>> {
        let mut errors = Vec::new();
        let converted = self.block.configuration(value, &Path::default(), &mut errors);
        if errors.is_empty() { Ok(converted) } else { Err(errors) }
    }
}

type Errors = Vec<ConvertError>;

/// The members of an object; other values are reported.
fn members(value: Value, path: &Path, errors: &mut Errors) -> Option<BTreeMap<String, Value>> {
    match value {
        Value::Object(it) | Value::Map(it) => Some(it),
        Value::Dynamic(it) => members(it.value, path, errors),
        other => {
            // The conversion reports the type of the value.
            let error = convert_at(other, &Type::Object(BTreeMap::new()), path).err();
            let null = Problem::Type { expected: "an object", found: "null" }.at(path);
            errors.push(error.unwrap_or(null));
            None
        }
    }
}

fn report_unknown(rest: BTreeMap<String, Value>, path: &Path, errors: &mut Errors) {
    errors.extend(rest.into_keys().map(|name| Problem::UnknownArgument(name).at(path)));
}

impl Block {
    fn configuration(&self, value: Value, path: &Path, errors: &mut Errors) -> Value {
        let Some(mut values) = members(value, path, errors) else { return self.absent() };
        let mut converted = BTreeMap::new();
        for (name, attribute) in &self.attributes {
            let value = attribute.configuration(name, values.remove(name), path, errors);
            converted.insert(name.clone(), value);
        }
        for (name, nested) in &self.blocks {
            let value = values.remove(name).unwrap_or(Value::Null);
            converted.insert(name.clone(), nested.configuration(value, &path.clone().name(name), errors));
        }
        report_unknown(values, path, errors);
        Value::Object(converted)
    }
}

impl Attribute {
    fn configuration(&self, name: &str, value: Option<Value>, path: &Path, errors: &mut Errors) -> Value {
        let value = value.unwrap_or(Value::Null);
        if value.is_null() && self.required {
            errors.push(Problem::Required(name.to_owned()).at(path));
        }
        let path = path.clone().name(name);
        if !value.is_null() && !self.required && !self.optional {
            errors.push(Problem::Computed.at(&path));
        }
        match &self.form {
            AttributeForm::Type(ty) => convert_at(value, ty, &path).unwrap_or_else(|error| {
                errors.push(error);
                Value::Null
            }),
            AttributeForm::Nested(nested) => arranged(nested.nesting, value, &path, errors, &mut |it, path, errors| {
                nested.configuration(it, path, errors)
            }),
        }
    }
}

impl NestedAttributes {
    fn configuration(&self, value: Value, path: &Path, errors: &mut Errors) -> Value {
        if value.is_null() || value.is_unknown() {
            return value.plain().clone();
        }
        let Some(mut values) = members(value, path, errors) else { return Value::Null };
        let mut converted = BTreeMap::new();
        for (name, attribute) in &self.attributes {
            let value = attribute.configuration(name, values.remove(name), path, errors);
            converted.insert(name.clone(), value);
        }
        report_unknown(values, path, errors);
        Value::Object(converted)
    }
}

impl NestedBlock {
    fn configuration(&self, value: Value, path: &Path, errors: &mut Errors) -> Value {
        let value = match (self.nesting, value) {
            (Nesting::Single, Value::Null) => return Value::Null,
            (_, Value::Null) => {
                self.check_count(0, path, errors);
                return self.absent();
            }
            (Nesting::List | Nesting::Set, single @ Value::Object(_)) => Value::Tuple(vec![single]),
            (_, value) => value,
        };
        let mut count = 0;
        let value = arranged(self.nesting, value, path, errors, &mut |it, path, errors| {
            count += 1;
            if it.is_unknown() { Value::Unknown } else { self.block.configuration(it, path, errors) }
        });
        if !value.is_unknown() && matches!(self.nesting, Nesting::List | Nesting::Set | Nesting::Map) {
            self.check_count(count, path, errors);
        }
        if self.implied_type() == Type::Dynamic { self.with_own_types(value) } else { value }
    }

    fn check_count(&self, found: usize, path: &Path, errors: &mut Errors) {
        let count = i64::try_from(found).unwrap_or(i64::MAX);
        if count < self.min_items || self.max_items > 0 && count > self.max_items {
            errors.push(Problem::Count { found, least: self.min_items, most: self.max_items }.at(path));
        }
    }

    /// Blocks in a list or map where some attribute is of any type, each with the type of its own attributes.
    pub(crate) fn with_own_types(&self, value: Value) -> Value {
        let declared = self.block.implied_type();
        let (ty, value) = match value {
            Value::List(it) | Value::Tuple(it) => {
                let (types, values) = it.into_iter().map(|it| own_type(&declared, it)).unzip();
                (Type::Tuple(types), Value::Tuple(values))
            }
            Value::Map(it) | Value::Object(it) => {
                let (types, values): (BTreeMap<_, _>, _) = it
                    .into_iter()
                    .map(|(key, it)| {
                        let (ty, value) = own_type(&declared, it);
                        ((key.clone(), ty), (key, value))
                    })
                    .unzip();
                (Type::Object(types), Value::Object(values))
            }
            value => return value,
        };
        Value::Dynamic(Box::new(Dynamic { ty, value }))
    }
}

/// A type without parts of any type, and the value of this type.
fn own_type(declared: &Type, value: Value) -> (Type, Value) {
    match (declared, value) {
        (Type::Dynamic, Value::Dynamic(it)) => {
            let Dynamic { ty, value } = *it;
            (ty, value)
        }
        (Type::Dynamic, value) => (Type::of_value(&value), value),
        (Type::Object(types), Value::Object(values)) => {
            let own = values.into_iter().map(|(name, value)| {
                let declared = types.get(&name).unwrap_or(&Type::Dynamic);
                let (ty, value) = own_type(declared, value);
                ((name.clone(), ty), (name, value))
            });
            let (types, values): (BTreeMap<_, _>, _) = own.unzip();
            (Type::Object(types), Value::Object(values))
        }
        (declared, value) => (declared.clone(), value),
    }
}

/// Converts each object in an arrangement.
fn arranged(
    nesting: Nesting,
    value: Value,
    path: &Path,
    errors: &mut Errors,
    convert: &mut dyn FnMut(Value, &Path, &mut Errors) -> Value,
) -> Value {
    match (nesting, value) {
        (_, Value::Dynamic(it)) => arranged(nesting, it.value, path, errors, convert),
        (_, value @ (Value::Null | Value::Unknown)) => value,
        (Nesting::Single | Nesting::Group, value) => convert(value, path, errors),
        (Nesting::List | Nesting::Set, Value::List(it) | Value::Set(it) | Value::Tuple(it)) => {
            let all = (0..).zip(it).map(|(index, it)| convert(it, &path.clone().index(index), errors));
            if nesting == Nesting::Set { Value::set(all) } else { Value::List(all.collect()) }
        }
        (Nesting::Map, Value::Map(it) | Value::Object(it)) => Value::map(it.into_iter().map(|(key, it)| {
            let value = convert(it, &path.clone().key(key.as_str()), errors);
            (key, value)
        })),
        (nesting, value) => {
            let ty = nesting.of(Type::Bool);
            errors.extend(convert_at(value, &ty, path).err());
            Value::Null
        }
    }
}
