//! Structural validation of custom resources, as a kube-apiserver does it by the schema of their definition.
//!
//! Start at [`Validator::check`]. A server would reject everything that is found here. The reverse does not hold:
//! formats, CEL rules and expensive checks are left to the server.
//!
//! Submodules: `prepare` applies defaults as a server does, `walk` goes through the object, `values` checks one value,
//! and `patterns` has regular expressions.
//!
//! Source: `k8s.io/apiextensions-apiserver` (`pkg/apiserver/schema`, `pkg/registry/customresource`) and
//! `k8s.io/kube-openapi` (`pkg/validation/validate`).

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod patterns;
mod prepare;
#[cfg(test)]
mod tests;
mod values;
mod walk;

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use stoa_engine::FieldPath;
pub use stoa_schemas::{Fault, Finding};

use patterns::Patterns;
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
    /// The paths of unknown values.
    pub unknown: &'o BTreeSet<FieldPath>,
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
}

impl Default for Validator<'_> {
    fn default() -> Self {
        Self { left: STEPS, patterns: Patterns::default() }
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
        let found = self.found(version, schema, instance, &mut steps);
        self.left -= granted - steps.0;
        // Others have their turn: this may be one of very many.
        tokio::task::yield_now().await;
        found
    }

    fn found(&mut self, version: &Value, schema: &'s Value, instance: Instance<'_>, steps: &mut Steps) -> Vec<Finding> {
        let mut attributes = instance.attributes.clone();
        if version.pointer("/subresources/status").is_some_and(|it| !it.is_null()) {
            // It is written by another way, and left out of what comes by this one.
            attributes.remove("status");
        }
        let Some(object) = prepare::prepared(schema, attributes, instance.unknown, steps) else { return Vec::new() };
        Walk::new(&mut self.patterns, steps, instance.unknown).object(schema, &object)
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
