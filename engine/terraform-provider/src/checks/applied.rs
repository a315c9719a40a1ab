//! The promises of a result.

use crate::schema::Schema;
use crate::value::{Path, Step, Value};

use super::{Fault, FaultKind, Faults};

/// Checks the state after an apply: unknown values of the plan have any value of their type, and known ones remain. A set
/// may shrink where unknown elements turn out to be equal.
///
/// The state is stored even with faults. Its unknown values are stored as null ([`Value::without_unknowns`]).
pub fn check(schema: &Schema, planned: &Value, state: &Value, legacy_type_system: bool) -> Faults {
    let mut faults = Vec::new();
    if state.conforms(&schema.block.implied_type()) {
        compare(planned, state, &mut Vec::new(), &mut faults);
        unknowns(state, &mut Vec::new(), &mut faults);
        let write_only = schema.write_only_paths(state).into_iter();
        faults.extend(write_only.map(|path| Fault { path, kind: FaultKind::WriteOnly }));
    } else {
        faults.push(Fault { path: Path::default(), kind: FaultKind::Type });
    }
    Faults::sorted(faults, legacy_type_system)
}

/// The parts of a value that differ from a planned one where that is known.
pub fn differences(planned: &Value, value: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    compare(planned, value, &mut Vec::new(), &mut faults);
    faults
}

/// Whether a value can be what became of a planned one.
fn is_compatible(planned: &Value, state: &Value) -> bool {
    differences(planned, state).is_empty()
}

fn compare(planned: &Value, state: &Value, path: &mut Vec<Step>, faults: &mut Vec<Fault>) {
    if planned == state || planned.is_unknown() {
        return;
    }
    let mut within = |step: Step, planned: &Value, state: &Value, faults: &mut Vec<Fault>| {
        path.push(step);
        compare(planned, state, path, faults);
        path.pop();
    };
    let is_same = match (planned.plain(), state.plain()) {
        (Value::Object(planned), Value::Object(state)) if planned.keys().eq(state.keys()) => {
            for ((name, planned), state) in planned.iter().zip(state.values()) {
                within(Step::Attribute(name.clone()), planned, state, faults);
            }
            true
        }
        (Value::Map(planned), Value::Map(state)) if planned.keys().eq(state.keys()) => {
            for ((key, planned), state) in planned.iter().zip(state.values()) {
                within(Step::Key(key.clone()), planned, state, faults);
            }
            true
        }
        (Value::List(planned), Value::List(state)) | (Value::Tuple(planned), Value::Tuple(state))
            if planned.len() == state.len() =>
        {
            for (index, (planned, state)) in (0..).zip(planned.iter().zip(state)) {
                within(Step::Index(index), planned, state, faults);
            }
            true
        }
        (Value::Set(planned), Value::Set(state)) => {
            state.len() <= planned.len()
                && planned.iter().all(|planned| state.iter().any(|state| is_compatible(planned, state)))
                && state.iter().all(|state| planned.iter().any(|planned| is_compatible(planned, state)))
        }
        // An unknown value is a fault of its own.
        (_, Value::Unknown) => true,
        _ => false,
    };
    if !is_same {
        faults.push(Fault { path: Path(path.clone()), kind: FaultKind::NotPlanned });
    }
}

fn unknowns(state: &Value, path: &mut Vec<Step>, faults: &mut Vec<Fault>) {
    let mut within = |step: Step, value: &Value| {
        path.push(step);
        unknowns(value, path, faults);
        path.pop();
    };
    match state.plain() {
        Value::Unknown => faults.push(Fault { path: Path(path.clone()), kind: FaultKind::Unknown }),
        Value::Object(it) => it.iter().for_each(|(name, value)| within(Step::Attribute(name.clone()), value)),
        Value::Map(it) => it.iter().for_each(|(key, value)| within(Step::Key(key.clone()), value)),
        Value::List(it) | Value::Tuple(it) => {
            (0..).zip(it).for_each(|(index, value)| within(Step::Index(index), value));
        }
        Value::Set(it) if !it.iter().all(Value::is_wholly_known) => {
            faults.push(Fault { path: Path(path.clone()), kind: FaultKind::Unknown });
        }
        _ => {}
    }
}
