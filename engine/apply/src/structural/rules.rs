//! What a schema says in CEL (`x-kubernetes-validations`).
//!
//! A server compiles a rule for the types of the schema, and here values are what they look like. So a rule is asked only where
//! that is the same: not of texts that stand for times, nor of what nullable fields hold, and of lists that are sets or keyed
//! only where nothing is compared as a whole. One that cannot be evaluated is left to the server.
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
/// How many steps a rule may take at most; upstream's `PerCallLimit`.
const BUDGET: usize = 1_000_000;
/// How many it takes to read one.
const COMPILING: usize = 2_000;
/// How many more where it may have patterns in it, which are compiled as it is read.
const PATTERNS: usize = 20_000;

/// Rules that are to be asked of what is at a path.
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
    /// By where the schema is in memory, of which nothing moves as long as rules are asked.
    traits: HashMap<usize, Traits>,
}

impl<'s> Rules<'s> {
    /// The rules that do not hold for an object, or for what is in it.
    pub(super) async fn broken(&mut self, object: &Value, pending: &[Pending<'s>], steps: &mut Steps) -> Vec<Finding> {
        let mut found = Vec::new();
        for Pending { at, schema } in pending {
            let value = if at.0.is_empty() { Some(object) } else { object.as_object().and_then(|map| at.get(map)) };
            let Some(value) = value.filter(|value| !has_null(value)) else { continue };
            let Some(traits) = self.traits(schema, steps) else { continue };
            if traits.has_formats || !steps.take(size(value)) {
                continue;
            }
            let seen = Arc::new(Seen(value.clone()));
            for rule in listed(schema, "x-kubernetes-validations") {
                let Some(source) = rule.get("rule").and_then(Value::as_str).filter(|it| traits.may_ask(it)) else {
                    continue;
                };
                if self.holds(source, &seen, steps).await == Some(false) {
                    let message = told(source, rule.get("message").and_then(Value::as_str));
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

    /// Whether a rule holds. `None` when that is not found out.
    async fn holds(&mut self, source: &'s str, seen: &Arc<Seen>, steps: &mut Steps) -> Option<bool> {
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

/// What of a schema makes its values something else to a server than what they look like.
#[derive(Clone, Copy, Debug, Default)]
struct Traits {
    /// Texts that may stand for times, durations or bytes.
    has_formats: bool,
    /// Lists that are equal whatever their order.
    has_sets: bool,
}

impl Traits {
    /// Those of a schema and all that are in it; `None` when there are too many.
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

    /// Whether a rule says the same here as to a server.
    fn may_ask(self, rule: &str) -> bool {
        let is_of_sets = self.has_sets && ["==", "!=", "+"].iter().any(|operator| rule.contains(operator));
        // Names of fields that CEL could not have are written with underscores.
        !is_of_sets && !rule.contains("oldSelf") && !rule.contains("__")
    }
}

/// Whether there is a null in a value: a server leaves some out.
fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// What is said of a rule that does not hold.
fn told(rule: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => shortened(message).to_owned(),
        None => format!("`{}` does not hold", shortened(rule)),
    }
}

/// A value as rules see it.
#[derive(Debug)]
struct Seen(Value);

impl Inputs for Seen {
    fn variable(&self, name: &str) -> Option<&Value> {
        (name == "self").then_some(&self.0)
    }
}
