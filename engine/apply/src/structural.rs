//! Holds custom resources against the schema of their definition, as a kube-apiserver does once it has that.
//!
//! Start at [`Validator::check`]. What is found here would be refused there. The other way round it is not so: formats, rules
//! about what was there before, and whatever takes more steps than it is worth are left to the cluster.
//!
//! Submodules: `prepare` does what a server does to an object before it looks at it, `walk` goes through the object, `values`
//! is what is asked of one value, `patterns` are regular expressions, and `rules` are in CEL.
//!
//! Source: `k8s.io/apiextensions-apiserver` (`pkg/apiserver/schema`, `pkg/registry/customresource`) and `k8s.io/kube-openapi`
//! (`pkg/validation/validate`).

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod patterns;
mod prepare;
mod rules;
#[cfg(test)]
mod tests;
mod values;
mod walk;

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use stoa_engine::FieldPath;

use patterns::Patterns;
use rules::Rules;
pub(crate) use values::are_equal;
use walk::Walk;

/// How many steps all objects of a plan may take. One is some hundred nanoseconds.
const STEPS: usize = 10_000_000;
/// How many one object may take.
const STEPS_OF_ONE: usize = 500_000;
/// So many findings are told of one object.
const MOST: usize = 20;
/// How much is told of what a schema says, in bytes.
const LONGEST: usize = 256;

/// An object, and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'o> {
    /// The object as it is to be applied.
    pub attributes: &'o Map<String, Value>,
    /// What it is applied to: a value that is there already may stay, and fields that others set are there, too.
    pub live: Option<&'o Map<String, Value>>,
    /// Where values are that nobody knows yet.
    pub unknown: &'o BTreeSet<FieldPath>,
}

/// What a cluster would not take as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub fault: Fault,
    /// Where.
    pub field: FieldPath,
    /// A sentence for people, in which the value is not.
    pub message: String,
}

/// In which way something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A value of another type. It is refused before admission could change it, as is an unknown field.
    Mistyped,
    /// A field that its kind does not have.
    Unknown,
    /// A field that its kind does not have, and that the cluster leaves out without a word.
    Dropped,
    /// A field that has to be there and is not.
    Missing,
    /// A value that the schema does not allow.
    Refused,
}

impl Fault {
    /// Whether it is found in what admission makes of an object, and not in what is asked for.
    pub fn follows_admission(self) -> bool {
        match self {
            Self::Missing | Self::Refused => true,
            Self::Mistyped | Self::Unknown | Self::Dropped => false,
        }
    }
}

/// What may still be done.
#[derive(Debug)]
struct Steps(usize);

impl Steps {
    /// Whether so many steps may be taken; they are then.
    fn take(&mut self, steps: usize) -> bool {
        let left = self.0.checked_sub(steps);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

/// Checks the objects of one plan. What schemas say is read once.
#[derive(Debug)]
pub struct Validator<'s> {
    left: usize,
    patterns: Patterns<'s>,
    rules: Rules<'s>,
}

impl Default for Validator<'_> {
    fn default() -> Self {
        Self { left: STEPS, patterns: Patterns::default(), rules: Rules::default() }
    }
}

impl<'s> Validator<'s> {
    /// What is wrong with an object whose definition says this of its version, an entry of `spec.versions`.
    pub async fn check(&mut self, version: &'s Value, instance: Instance<'_>) -> Vec<Finding> {
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else { return Vec::new() };
        // Nobody knows what it is called, so nothing else is known of it.
        if instance.unknown.contains(&FieldPath::default()) {
            return Vec::new();
        }
        let granted = self.left.min(STEPS_OF_ONE);
        let mut steps = Steps(granted);
        let found = self.found(version, schema, instance, &mut steps).await;
        self.left -= granted - steps.0;
        // Others have their turn: this may be one of very many.
        tokio::task::yield_now().await;
        found
    }

    /// An object with the defaults that its definition fills in; `None` when that takes too many steps.
    pub(crate) fn filled_in(&mut self, version: &Value, instance: Instance<'_>) -> Option<Map<String, Value>> {
        let granted = self.left.min(STEPS_OF_ONE);
        let mut steps = Steps(granted);
        let schema = version.pointer("/schema/openAPIV3Schema")?;
        let filled = prepare::prepared(schema, instance.attributes.clone(), instance.unknown, &mut steps);
        self.left -= granted - steps.0;
        match filled? {
            Value::Object(filled) => Some(filled),
            _ => None,
        }
    }

    async fn found(
        &mut self,
        version: &'s Value,
        schema: &'s Value,
        instance: Instance<'_>,
        steps: &mut Steps,
    ) -> Vec<Finding> {
        let mut attributes = instance.attributes.clone();
        if version.pointer("/subresources/status").is_some_and(|it| !it.is_null()) {
            // It is written by another way, and left out of what comes by this one.
            attributes.remove("status");
        }
        let Some(object) = prepare::prepared(schema, attributes, instance.unknown, steps) else { return Vec::new() };
        let walk = Walk::new(&mut self.patterns, steps, instance.unknown);
        let (mut found, pending) = walk.object(schema, &object, instance.live);
        let is_lenient = |finding: &Finding| matches!(finding.fault, Fault::Dropped | Fault::Unknown);
        if found.iter().all(is_lenient) {
            found.extend(self.rules.broken(&object, &pending, steps).await);
        }
        found.truncate(MOST);
        found
    }
}

/// The beginning of a text that a schema has.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Whether a schema says `true` under a name.
fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// What a schema lists under a name.
fn listed<'s>(schema: &'s Value, name: &str) -> &'s [Value] {
    schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The fields of what identifies an object, which are not described by the schema of its kind.
fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

/// The schema of the values of a map whose keys are not named, where there is one.
fn of_rest(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|rest| rest.is_object())
}
