//! Structural validation of custom resources, as a kube-apiserver does it by the schema of their definition.
//!
//! Start at [`Validator::check`]. A server would reject everything that is found here. The reverse does not hold:
//! formats, transition rules and expensive checks are left to the server.
//!
//! Submodules: `prepare` applies defaults as a server does, `walk` goes through the object, `values` checks one value,
//! `patterns` has regular expressions, and `rules` has CEL rules.
//!
//! Source: `k8s.io/apiextensions-apiserver` (`pkg/apiserver/schema`, `pkg/registry/customresource`) and
//! `k8s.io/kube-openapi` (`pkg/validation/validate`).

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

/// The maximum number of steps for all objects of a plan. One step takes some hundred nanoseconds.
const STEPS: usize = 10_000_000;
/// The maximum number of steps for one object.
const STEPS_OF_ONE: usize = 500_000;
/// The maximum number of findings for one object.
const MOST: usize = 20;
/// The maximum length of a quoted part of a schema, in bytes.
const LONGEST: usize = 256;

/// An object, and what is known around it.
#[derive(Clone, Copy, Debug)]
pub struct Instance<'o> {
    /// The object as it is to be applied.
    pub attributes: &'o Map<String, Value>,
    /// The live object: its values may stay, and so may fields of others.
    pub live: Option<&'o Map<String, Value>>,
    /// The paths of unknown values.
    pub unknown: &'o BTreeSet<FieldPath>,
}

/// A reason for a cluster to reject an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of problem.
    pub fault: Fault,
    /// The field.
    pub field: FieldPath,
    /// A message for people, without the value.
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
    /// Whether the finding is about the result of admission, and not about the request.
    pub fn follows_admission(self) -> bool {
        match self {
            Self::Missing | Self::Refused => true,
            Self::Mistyped | Self::Unknown | Self::Dropped => false,
        }
    }
}

/// The remaining steps.
#[derive(Debug)]
struct Steps(usize);

impl Steps {
    /// Takes steps if they remain.
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
    /// The findings of an object by an entry of `spec.versions` of its definition.
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

    /// An object with the defaults of its definition; `None` when that takes too many steps.
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

/// Whether a keyword of a schema is `true`.
fn is_set(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

/// The list under a keyword of a schema.
fn listed<'s>(schema: &'s Value, name: &str) -> &'s [Value] {
    schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The fields of what identifies an object, which are not described by the schema of its kind.
fn is_meta(key: &str) -> bool {
    matches!(key, "apiVersion" | "kind" | "metadata")
}

/// The schema of additional properties, if any.
fn of_rest(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|rest| rest.is_object())
}
