//! The promises of a plan.

use std::collections::BTreeMap;

use crate::schema::{Attribute, AttributeForm, Block, NestedAttributes, Nesting, Schema};
use crate::value::{Path, Step, Value};

use super::{Fault, FaultKind, Faults};

/// The values of one plan.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// The state before.
    pub prior: &'a Value,
    /// The configuration.
    pub config: &'a Value,
    /// The planned state.
    pub planned: &'a Value,
}

/// Checks a plan: each value is that of the configuration, or the prior one, or left to the provider.
pub fn check(schema: &Schema, values: Planned<'_>, legacy_type_system: bool) -> Faults {
    let mut check = Check { faults: Vec::new() };
    let Planned { config, planned, .. } = values;
    let path = Path::default();
    if !planned.conforms(&schema.block.implied_type()) {
        check.report(&path, FaultKind::Type);
    } else if config.is_null() != planned.is_null() {
        let in_words = |value: &Value| if value.is_null() { "absent" } else { "present" };
        check.report(&path, FaultKind::Existence { found: in_words(planned), expected: in_words(config) });
    } else if !config.is_null() {
        check.block(&schema.block, values, &path);
        for path in schema.write_only_paths(planned) {
            check.report(&path, FaultKind::WriteOnly);
        }
    }
    Faults::sorted(check.faults, legacy_type_system)
}

struct Check {
    faults: Vec<Fault>,
}

fn part<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

impl Check {
    fn report(&mut self, path: &Path, kind: FaultKind) {
        self.faults.push(Fault { path: path.clone(), kind });
    }

    fn block(&mut self, block: &Block, values: Planned<'_>, path: &Path) {
        self.attributes(&block.attributes, values, path);
        for (name, nested) in &block.blocks {
            let values = values.at(name);
            let path = path.clone().name(name);
            // A block of unknown number may become anything.
            if values.config.is_unknown() || values.planned.is_unknown() {
                continue;
            }
            self.arranged(nested.nesting, values, &path, &|check, values, path| {
                check.block(&nested.block, values, path)
            });
        }
    }

    fn attributes(&mut self, attributes: &BTreeMap<String, Attribute>, values: Planned<'_>, path: &Path) {
        for (name, attribute) in attributes {
            self.attribute(attribute, values.at(name), &path.clone().name(name));
        }
    }

    fn attribute(&mut self, attribute: &Attribute, values: Planned<'_>, path: &Path) {
        let Planned { prior, config, planned } = values;
        // Write-only values are checked once for all.
        let is_free = attribute.write_only || attribute.computed && config.is_null();
        if is_free || planned == config || planned == prior && !prior.is_null() && !config.is_null() {
            return;
        }
        match &attribute.form {
            AttributeForm::Nested(nested) if can_be_compared(config) && can_be_compared(planned) => {
                self.nested(nested, values, path);
            }
            _ => self.report(path, FaultKind::NotConfigured),
        }
    }

    fn nested(&mut self, nested: &NestedAttributes, values: Planned<'_>, path: &Path) {
        self.arranged(nested.nesting, values, path, &|check, values, path| {
            check.attributes(&nested.attributes, values, path);
        });
    }

    /// Checks each object in an arrangement with its partners.
    fn arranged(
        &mut self,
        nesting: Nesting,
        values: Planned<'_>,
        path: &Path,
        inner: &dyn Fn(&mut Self, Planned<'_>, &Path),
    ) {
        let (config, planned) = (values.config.plain(), values.planned.plain());
        match (nesting, config, planned) {
            (_, Value::Null, Value::Null) => {}
            (Nesting::Single | Nesting::Group, Value::Object(_), Value::Object(_)) => inner(self, values, path),
            (_, Value::List(configured) | Value::Tuple(configured), Value::List(all) | Value::Tuple(all)) => {
                if configured.len() != all.len() {
                    return self.report(path, FaultKind::Count { planned: all.len(), configured: configured.len() });
                }
                for (index, (config, planned)) in (0..).zip(configured.iter().zip(all)) {
                    let path = path.clone().index(index);
                    let prior = values.prior.at(&Path(vec![Step::Index(index)])).unwrap_or(&Value::Null);
                    self.element(Planned { prior, config, planned }, &path, inner);
                }
            }
            (_, Value::Map(configured) | Value::Object(configured), Value::Map(all) | Value::Object(all)) => {
                if !configured.keys().eq(all.keys()) {
                    return self.report(path, FaultKind::Count { planned: all.len(), configured: configured.len() });
                }
                for ((key, config), planned) in configured.iter().zip(all.values()) {
                    let prior = values.prior.get(key).unwrap_or(&Value::Null);
                    self.element(Planned { prior, config, planned }, &path.clone().key(key), inner);
                }
            }
            (_, Value::Set(configured), Value::Set(all)) => self.set(configured, all, values.prior, path, inner),
            _ => self.report(path, FaultKind::NotConfigured),
        }
    }

    fn element(&mut self, values: Planned<'_>, path: &Path, inner: &dyn Fn(&mut Self, Planned<'_>, &Path)) {
        match (values.config.plain(), values.planned.plain()) {
            (Value::Object(_), Value::Object(_)) => inner(self, values, path),
            (config, planned) if config == planned => {}
            (Value::Unknown, _) => {}
            _ => self.report(path, FaultKind::NotConfigured),
        }
    }

    /// Elements of sets have no names: each of the configuration needs a planned one without faults.
    fn set(
        &mut self,
        configured: &[Value],
        all: &[Value],
        prior: &Value,
        path: &Path,
        inner: &dyn Fn(&mut Self, Planned<'_>, &Path),
    ) {
        let is_known = |it: &Value| it.is_wholly_known();
        // Unknown elements may turn out to be equal.
        if configured.len() != all.len() && configured.iter().chain(all).all(is_known) {
            return self.report(path, FaultKind::Count { planned: all.len(), configured: configured.len() });
        }
        let priors: Vec<&Value> = prior.plain().children().chain([&Value::Null]).collect();
        let fits = |config: &Value, planned: &Value| {
            priors.iter().any(|prior| {
                let mut attempt = Self { faults: Vec::new() };
                attempt.element(Planned { prior, config, planned }, path, inner);
                attempt.faults.is_empty()
            })
        };
        if !configured.iter().all(|config| all.iter().any(|planned| fits(config, planned))) {
            self.report(path, FaultKind::NotConfigured);
        }
    }
}

impl<'a> Planned<'a> {
    fn at(self, name: &str) -> Self {
        Self { prior: part(self.prior, name), config: part(self.config, name), planned: part(self.planned, name) }
    }
}

fn can_be_compared(value: &Value) -> bool {
    !value.is_null() && !value.is_unknown()
}
