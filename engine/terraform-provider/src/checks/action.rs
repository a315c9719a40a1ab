//! The action that a plan asks for.

use crate::schema::Schema;
use crate::value::{Path, Step, Value};

use super::{Fault, FaultKind};

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The object does not exist and is created.
    Create,
    /// The object changes.
    Update,
    /// The object is deleted and another one is created.
    Replace,
    /// Nothing differs. The private data of such a plan are dropped.
    NoOp,
    /// The object is deleted.
    Delete,
}

impl Action {
    /// The action of a plan, whose [`Replacement`] has been examined.
    pub fn of(prior: &Value, planned: &Value, replacement: &Replacement) -> Self {
        match (prior.is_null(), planned.is_null()) {
            (true, true) => Self::NoOp,
            (true, false) => Self::Create,
            (false, true) => Self::Delete,
            (false, false) if !replacement.paths.is_empty() => Self::Replace,
            (false, false) if prior == planned => Self::NoOp,
            (false, false) => Self::Update,
        }
    }
}

/// The attributes whose change needs another object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replacement {
    /// Those that do change.
    pub paths: Vec<Path>,
    /// Paths that lead nowhere.
    pub faults: Vec<Fault>,
}

impl Replacement {
    /// The paths of a plan that count: those whose value differs, and write-only ones. A create has none.
    pub fn of(schema: &Schema, prior: &Value, planned: &Value, requires_replace: &[Path]) -> Self {
        let mut found = Self::default();
        if prior.is_null() || planned.is_null() {
            return found;
        }
        for path in requires_replace {
            match (value_at(prior, path), value_at(planned, path)) {
                (None, None) => {
                    found.faults.push(Fault { path: path.clone(), kind: FaultKind::NoSuchAttribute });
                }
                (prior, planned) => {
                    let is_unknown = planned.is_some_and(|it| !it.is_wholly_known());
                    let is_write_only = schema.attribute(path).is_some_and(|it| it.write_only);
                    if prior != planned || is_unknown || is_write_only {
                        found.paths.push(path.clone());
                    }
                }
            }
        }
        found
    }
}

/// The value at a path. Inside a null or an unknown value, each attribute is that value.
fn value_at<'a>(value: &'a Value, path: &Path) -> Option<&'a Value> {
    for length in 0..=path.0.len() {
        let part = value.at(&Path(path.0[..length].to_vec()))?;
        if length == path.0.len() || part.is_null() || part.is_unknown() {
            let leads_to_attributes = path.0[length..].iter().all(|step| matches!(step, Step::Attribute(_)));
            return leads_to_attributes.then_some(part);
        }
    }
    None
}
