//! Changes that a person ignores: `ignore_changes`.

use std::collections::BTreeMap;

use crate::schema::Schema;
use crate::value::{Dynamic, Path, Step, Value};

/// The changes to ignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoreChanges {
    /// Every change of configuration.
    All,
    /// Changes at and below these paths.
    Paths(Vec<Path>),
}

/// The configuration with the values of the state before where changes are ignored. Nothing is ignored on create.
///
/// The plan and the proposed state use this configuration; the create in a replacement uses the original.
pub fn ignore_changes(schema: &Schema, prior: &Value, config: &Value, ignored: &IgnoreChanges) -> Value {
    if prior.is_null() || config.is_null() {
        return config.clone();
    }
    match ignored {
        // Configuration cannot have attributes that only the provider sets.
        IgnoreChanges::All => schema.block.replaced(prior.clone(), &mut |attribute, value| {
            if attribute.computed && !attribute.optional && !attribute.required { Value::Null } else { value }
        }),
        IgnoreChanges::Paths(paths) => {
            paths.iter().fold(config.clone(), |config, path| replaced(config, prior, &path.0))
        }
    }
}

/// The configuration with the prior value at a path. A path without a value on one side removes or adds a map's element.
fn replaced(config: Value, prior: &Value, path: &[Step]) -> Value {
    let Some((first, rest)) = path.split_first() else { return prior.clone() };
    let within = |values: BTreeMap<String, Value>, name: &String, is_map: bool| -> BTreeMap<String, Value> {
        let mut values = values;
        match (values.remove(name), prior.get(name)) {
            (Some(value), Some(prior)) => {
                values.insert(name.clone(), replaced(value, prior, rest));
            }
            (None, Some(prior)) if is_map && rest.is_empty() => {
                values.insert(name.clone(), prior.clone());
            }
            // The element is new, and its addition is ignored.
            (Some(_), None) if is_map && rest.is_empty() => {}
            (Some(value), None) => {
                values.insert(name.clone(), value);
            }
            (None, _) => {}
        }
        values
    };
    match (config, first) {
        (Value::Object(values), Step::Attribute(name) | Step::Key(name)) => Value::Object(within(values, name, false)),
        (Value::Map(values), Step::Attribute(name) | Step::Key(name)) => Value::Map(within(values, name, true)),
        (Value::Null, Step::Key(name)) if rest.is_empty() => match prior.get(name) {
            Some(value) => Value::map([(name.clone(), value.clone())]),
            None => Value::Null,
        },
        (Value::List(mut values), Step::Index(index)) => {
            let prior = match prior.plain() {
                Value::List(it) => usize::try_from(*index).ok().and_then(|index| it.get(index)),
                _ => None,
            };
            let value = usize::try_from(*index).ok().and_then(|index| values.get_mut(index));
            if let Some((value, prior)) = value.zip(prior) {
                *value = replaced(value.clone(), prior, rest);
            }
            Value::List(values)
        }
        (Value::Dynamic(it), _) => {
            let Dynamic { value, .. } = *it;
            Value::dynamic(replaced(value, prior.plain(), path))
        }
        (value, _) => value,
    }
}
