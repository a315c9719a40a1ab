//! CEL rules of a schema (`x-kubernetes-validations`).
//!
//! A server compiles a rule for the types of the schema, while values are untyped here. Therefore a rule is evaluated
//! only where both agree. Rules about timestamps, nullable fields, and comparisons of whole sets or keyed lists are
//! left to the server, and so is a rule that fails to evaluate.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use stoa_cel::{Answers, Batch, Declarations, Evaluated, Inputs, Program};
use stoa_engine::FieldPath;

use super::prepare::size;
use super::{Fault, Finding, Steps, listed, shortened};

const DECLARED: Declarations = Declarations { variables: &["self"], constructs: false };
/// The maximum steps of a rule; upstream's `PerCallLimit`.
const BUDGET: usize = 1_000_000;
/// The steps to compile a rule.
const COMPILING: usize = 2_000;
/// Additional steps for a rule that may have patterns, which are compiled with it.
const PATTERNS: usize = 20_000;

/// Rules for the value at a path.
#[derive(Debug)]
pub(super) struct Pending<'s> {
    pub(super) at: FieldPath,
    /// The schema that has them.
    pub(super) schema: &'s Value,
}

/// The rules that were met, each compiled once.
#[derive(Debug, Default)]
pub(super) struct Rules<'s> {
    compiled: HashMap<&'s str, Batch>,
    /// By the memory address of the schema, which does not move meanwhile.
    traits: HashMap<usize, Traits>,
}

impl<'s> Rules<'s> {
    /// The violated rules of an object and its parts.
    pub(super) async fn broken(&mut self, object: &Value, pending: &[Pending<'s>], steps: &mut Steps) -> Vec<Finding> {
        let mut found = Vec::new();
        for Pending { at, schema } in pending {
            let value = if at.0.is_empty() { Some(object) } else { object.as_object().and_then(|map| at.get(map)) };
            let Some(value) = value.filter(|value| !has_null(value)) else { continue };
            let Some(traits) = self.traits(schema, steps) else { continue };
            if traits.has_formats || !steps.take(size(value)) {
                continue;
            }
            let seen = Arc::new(RuleInputs(value.clone()));
            for rule in listed(schema, "x-kubernetes-validations") {
                let Some(source) = rule.get("rule").and_then(Value::as_str).filter(|it| traits.can_evaluate(it)) else {
                    continue;
                };
                if self.holds(source, &seen, steps).await == Some(false) {
                    let message = violation_message(source, rule.get("message").and_then(Value::as_str));
                    found.push(Finding { fault: Fault::Refused, field: at.clone(), message });
                }
            }
        }
        found
    }

    fn traits(&mut self, schema: &'s Value, steps: &mut Steps) -> Option<Traits> {
        let place = std::ptr::from_ref(schema).addr();
        if let Some(traits) = self.traits.get(&place) {
            return Some(*traits);
        }
        let traits = Traits::of(schema, steps)?;
        self.traits.insert(place, traits);
        Some(traits)
    }

    /// Whether a rule holds; `None` when that is not decided.
    async fn holds(&mut self, source: &'s str, seen: &Arc<RuleInputs>, steps: &mut Steps) -> Option<bool> {
        if !self.compiled.contains_key(source) {
            let patterns = if source.contains("matches") { PATTERNS } else { 0 };
            if !steps.take(COMPILING + patterns + source.len()) {
                return None;
            }
            let programs = Arc::new(vec![Some(Program::compile(source, &DECLARED))]);
            self.compiled.insert(source, Batch { programs, ..Batch::default() });
        }
        let budget = steps.0.min(BUDGET);
        let Ok(outcomes) = stoa_cel::evaluate(&self.compiled[source], seen, &Answers::new(), budget as u64).await
        else {
            steps.take(budget);
            return None;
        };
        steps.take(budget.saturating_sub(usize::try_from(outcomes.budget).unwrap_or(budget)));
        match outcomes.results.into_iter().next()?? {
            Ok(Evaluated::Bool(holds)) => Some(holds),
            Ok(_) | Err(_) => None,
        }
    }
}

/// Why a server may see other values than their JSON.
#[derive(Clone, Copy, Debug, Default)]
struct Traits {
    /// Texts that may be times, durations or bytes.
    has_formats: bool,
    /// Lists that are equal in any order.
    has_sets: bool,
}

impl Traits {
    /// The traits of a schema and its parts; `None` when there are too many.
    fn of(schema: &Value, steps: &mut Steps) -> Option<Self> {
        if !steps.take(1) {
            return None;
        }
        let is_text = |schema: &Value| schema.get("type").is_some_and(|type_| type_ == "string");
        let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
        let mut traits = Self {
            has_formats: is_text(schema) && schema.get("format").is_some(),
            has_sets: matches!(list_type, Some("set" | "map")),
        };
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let within = ["items", "additionalProperties"].map(|name| schema.get(name));
        for schema in properties.map(|(_, schema)| schema).chain(within.into_iter().flatten()) {
            let Self { has_formats, has_sets } = Self::of(schema, steps)?;
            traits.has_formats |= has_formats;
            traits.has_sets |= has_sets;
        }
        Some(traits)
    }

    /// Whether a rule has the same result here as on a server.
    fn can_evaluate(self, rule: &str) -> bool {
        let is_of_sets = self.has_sets && ["==", "!=", "+"].iter().any(|operator| rule.contains(operator));
        // Names of fields that CEL could not have are written with underscores.
        !is_of_sets && !rule.contains("oldSelf") && !rule.contains("__")
    }
}

/// Whether a value contains null, which a server may drop.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The message of a violated rule.
fn violation_message(rule: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => shortened(message).to_owned(),
        None => format!("`{}` does not hold", shortened(rule)),
    }
}

/// A value as rules see it.
#[derive(Debug)]
struct RuleInputs(Value);

impl Inputs for RuleInputs {
    fn variable(&self, name: &str) -> Option<&Value> {
        (name == "self").then_some(&self.0)
    }
}
