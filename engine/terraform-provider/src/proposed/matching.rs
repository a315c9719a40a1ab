//! The partners of set elements.
//!
//! An element of the configuration is the same as one of the state before if all values are equal, except those that
//! the configuration leaves to the provider.

use std::collections::BTreeMap;

use crate::schema::{Attribute, AttributeForm, Block, Nesting};
use crate::value::Value;

use super::part;

/// Whether a configured block can be the one of the state before.
pub(super) fn block(block: &Block, config: &Value, prior: &Value) -> bool {
    match (config.plain(), prior.plain()) {
        (Value::Object(_), Value::Object(_)) => {}
        (config, prior) => return config == prior,
    }
    attributes(&block.attributes, config, prior)
        && block.blocks.iter().all(|(name, nested)| {
            let same = |config: &Value, prior: &Value| self::block(&nested.block, config, prior);
            arranged(nested.nesting, part(config, name), part(prior, name), &same)
        })
}

/// Whether configured attributes can be those of the state before.
pub(super) fn attributes(all: &BTreeMap<String, Attribute>, config: &Value, prior: &Value) -> bool {
    match (config.plain(), prior.plain()) {
        (Value::Object(_), Value::Object(_)) => {}
        (config, prior) => return config == prior,
    }
    all.iter().all(|(name, attribute)| {
        let (config, prior) = (part(config, name), part(prior, name));
        if attribute.computed && config.is_null() {
            return true;
        }
        match &attribute.form {
            AttributeForm::Type(_) => config == prior,
            AttributeForm::Nested(nested) => {
                let same = |config: &Value, prior: &Value| attributes(&nested.attributes, config, prior);
                arranged(nested.nesting, config, prior, &same)
            }
        }
    })
}

/// Whether all objects in an arrangement can be those of the state before. Sets have to be equal as a whole.
fn arranged(nesting: Nesting, config: &Value, prior: &Value, same: &dyn Fn(&Value, &Value) -> bool) -> bool {
    match (nesting, config.plain(), prior.plain()) {
        (_, Value::Null | Value::Unknown, _) | (_, _, Value::Null | Value::Unknown) => config == prior,
        (Nesting::Single | Nesting::Group, config, prior) => same(config, prior),
        (_, Value::List(config), Value::List(prior)) | (_, Value::Tuple(config), Value::Tuple(prior)) => {
            config.len() == prior.len() && config.iter().zip(prior).all(|(config, prior)| same(config, prior))
        }
        (_, Value::Map(config), Value::Map(prior)) | (_, Value::Object(config), Value::Object(prior)) => {
            config.keys().eq(prior.keys())
                && config.values().zip(prior.values()).all(|(config, prior)| same(config, prior))
        }
        (_, config, prior) => config == prior,
    }
}
