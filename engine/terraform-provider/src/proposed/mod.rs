//! The state that a configuration asks for, before the provider plans: `proposed_new_state`.
//!
//! Start at [`proposed_new_state`]. Configuration wins where it has a value; otherwise a computed attribute has the
//! value of the state before. Elements of collections are matched with those of the state before first.
//!
//! Elsewhere: `matching` finds the partners of set elements, [`ignore`] leaves out changes that a person ignores.

pub mod ignore;
mod matching;

use std::collections::BTreeMap;

use crate::schema::{Attribute, AttributeForm, Block, NestedAttributes, NestedBlock, Nesting, Schema};
use crate::value::{Dynamic, Type, Value};

/// The state before and the configuration as one. Both have the schema's type; a null prior state is a create, and a
/// null configuration a delete.
pub fn proposed_new_state(schema: &Schema, prior: &Value, config: &Value) -> Value {
    if config.is_null() {
        return Value::Null;
    }
    let absent;
    let prior = if prior.is_null() {
        absent = schema.block.absent();
        &absent
    } else {
        prior
    };
    schema.block.proposed(prior, config)
}

/// An attribute of an object; null where there is none.
fn part<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

impl Block {
    fn proposed(&self, prior: &Value, config: &Value) -> Value {
        if !matches!(config.plain(), Value::Object(_)) {
            return config.clone();
        }
        let attributes = attributes(&self.attributes, prior, config);
        let blocks = self
            .blocks
            .iter()
            .map(|(name, nested)| (name.clone(), nested.proposed(part(prior, name), part(config, name))));
        Value::Object(attributes.into_iter().chain(blocks).collect())
    }
}

fn attributes(attributes: &BTreeMap<String, Attribute>, prior: &Value, config: &Value) -> BTreeMap<String, Value> {
    let all = attributes.iter();
    all.map(|(name, it)| (name.clone(), it.proposed(part(prior, name), part(config, name)))).collect()
}

impl Attribute {
    fn proposed(&self, prior: &Value, config: &Value) -> Value {
        match &self.form {
            // A value that came from configuration vanishes with it.
            AttributeForm::Nested(nested) if self.computed && config.is_null() => {
                if self.optional && nested.has_configured(prior) { Value::Null } else { prior.clone() }
            }
            AttributeForm::Type(_) if self.computed && config.is_null() => prior.clone(),
            AttributeForm::Nested(nested) => nested.proposed(prior, config),
            AttributeForm::Type(_) => config.clone(),
        }
    }
}

impl NestedAttributes {
    fn proposed(&self, prior: &Value, config: &Value) -> Value {
        let object = |prior: &Value, config: &Value| {
            if matches!(config.plain(), Value::Object(_)) {
                Value::Object(attributes(&self.attributes, prior, config))
            } else {
                config.clone()
            }
        };
        arranged(self.nesting, prior, config, &object, &|config, prior| {
            matching::attributes(&self.attributes, config, prior)
        })
    }

    /// Whether a value has any part that only configuration can have set.
    fn has_configured(&self, value: &Value) -> bool {
        let object = |value: &Value| {
            self.attributes.iter().any(|(name, attribute)| {
                let value = part(value, name);
                let inside = || attribute.nested().is_some_and(|nested| nested.has_configured(value));
                !value.is_null() && (!attribute.computed || inside())
            })
        };
        match (self.nesting, value.plain()) {
            (Nesting::Single | Nesting::Group, value) => object(value),
            (_, value) => value.children().any(object),
        }
    }
}

impl NestedBlock {
    fn proposed(&self, prior: &Value, config: &Value) -> Value {
        let object = |prior: &Value, config: &Value| self.block.proposed(prior, config);
        let matches = |config: &Value, prior: &Value| matching::block(&self.block, config, prior);
        let proposed = arranged(self.nesting, prior, config, &object, &matches);
        if self.implied_type() == Type::Dynamic && !proposed.is_null() && !proposed.is_unknown() {
            return with_types_of(proposed, config, prior, self);
        }
        proposed
    }
}

/// Blocks of any type, with the types of the configuration where these have values, and of the state before elsewhere.
fn with_types_of(proposed: Value, config: &Value, prior: &Value, nested: &NestedBlock) -> Value {
    for source in [config, prior] {
        if let Value::Dynamic(it) = source
            && proposed.plain().conforms(&it.ty)
        {
            let value = proposed.plain().clone();
            return Value::Dynamic(Box::new(Dynamic { ty: it.ty.clone(), value }));
        }
    }
    nested.with_own_types(proposed.plain().clone())
}

/// The proposed objects in an arrangement: each with its partner of the state before, or as it is configured.
fn arranged(
    nesting: Nesting,
    prior: &Value,
    config: &Value,
    object: &dyn Fn(&Value, &Value) -> Value,
    matches: &dyn Fn(&Value, &Value) -> bool,
) -> Value {
    let with = |partner: Option<&Value>, config: &Value| match partner {
        Some(prior) => object(prior, config),
        None => config.clone(),
    };
    let listed = |configured: &[Value]| -> Vec<Value> {
        let prior: &[Value] = match prior.plain() {
            Value::List(it) | Value::Tuple(it) => it,
            _ => &[],
        };
        configured.iter().enumerate().map(|(index, it)| with(prior.get(index), it)).collect()
    };
    let mapped = |configured: &BTreeMap<String, Value>| {
        configured.iter().map(|(key, it)| (key.clone(), with(prior.get(key), it))).collect::<BTreeMap<_, _>>()
    };
    match (nesting, config.plain()) {
        (_, Value::Null | Value::Unknown) => config.clone(),
        (Nesting::Single | Nesting::Group, config) => object(prior, config),
        (_, Value::List(it)) => Value::List(listed(it)),
        (_, Value::Tuple(it)) => Value::dynamic(Value::Tuple(listed(it))),
        (_, Value::Map(it)) => Value::Map(mapped(it)),
        (_, Value::Object(it)) => Value::dynamic(Value::Object(mapped(it))),
        (_, Value::Set(configured)) => {
            let prior: &[Value] = match prior.plain() {
                Value::Set(it) => it,
                _ => &[],
            };
            let mut is_used = vec![false; prior.len()];
            Value::set(configured.iter().map(|config| {
                let partner = prior.iter().zip(&mut is_used).find(|(prior, used)| !**used && matches(config, prior));
                with(
                    partner.map(|(prior, used)| {
                        *used = true;
                        prior
                    }),
                    config,
                )
            }))
        }
        (_, config) => config.clone(),
    }
}

#[cfg(test)]
mod tests;
