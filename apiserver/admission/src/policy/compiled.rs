//! A compiled `ValidatingAdmissionPolicy`: its expressions, and their verdict on a write.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::{admissionregistration::v1::ValidatingAdmissionPolicy, core::v1::Namespace};
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_meta::object::Object;
use stoa_registry::admission::{Attributes, metrics::ConditionsOf};

use super::binding::{self, Defined, Definition};
use crate::cel::{self, BUDGET, Batch, Conditions, Evaluated, Inputs, Program, evaluate};

/// The longest message that an expression may make, in bytes; upstream's `MaxEvaluatedMessageExpressionSizeBytes`.
const LONGEST_MESSAGE: usize = 5 << 10;

/// A policy, read.
#[derive(Debug)]
pub struct Policy {
    definition: Definition,
    conditions: Conditions,
    validations: Vec<Validation>,
    expressions: Batch,
    messages: Batch,
    annotation_keys: Vec<String>,
    annotations: Batch,
    /// Why it cannot be evaluated at all.
    compile_error: Option<String>,
}

#[derive(Debug)]
struct Validation {
    expression: String,
    message: String,
    reason: Option<String>,
}

#[derive(Debug)]
pub(super) struct Violation {
    /// Which of its validations, from 0.
    pub(super) index: usize,
    pub(super) message: String,
    /// The reason of the Status; `Invalid` if there is none.
    pub(super) reason: Option<String>,
}

/// An audit annotation that a policy makes.
#[derive(Debug)]
pub(super) enum Annotation {
    Publish(String),
    /// It could not be made, and the failure policy counts that.
    Failed(String),
}

#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) violations: Vec<Violation>,
    pub(super) annotations: Vec<(String, Annotation)>,
    /// What went wrong and lets the write pass, as the failure policy says.
    pub(super) ignored: Vec<String>,
    pub(super) took: Duration,
}

impl Defined for Policy {
    fn definition(&self) -> &Definition {
        &self.definition
    }
}

impl Policy {
    /// Reads a policy.
    pub fn compile(policy: &ValidatingAdmissionPolicy) -> Self {
        let spec = policy.spec.clone().unwrap_or_default();
        let variables = binding::variables(spec.variables.as_deref());
        let batch =
            |programs: Vec<Option<Program>>| Batch { variables: variables.clone(), programs: Arc::new(programs) };
        let validations = spec.validations.unwrap_or_default();
        let annotations = spec.audit_annotations.unwrap_or_default();
        let programs: Vec<_> = validations.iter().map(|v| Some(cel::program(&v.expression))).collect();
        let messages: Vec<_> = validations.iter().map(|v| v.message_expression.as_deref().map(cel::program)).collect();
        let values: Vec<_> = annotations.iter().map(|a| Some(cel::program(&a.value_expression))).collect();
        let errors: Vec<String> = programs
            .iter()
            .chain(&messages)
            .chain(&values)
            .flatten()
            .filter_map(|program| program.compile_error().map(str::to_owned))
            .collect();
        let definition = Definition::new(
            policy.name_any(),
            spec.match_constraints.as_ref(),
            spec.param_kind.clone(),
            spec.failure_policy.as_deref(),
        );
        Self {
            conditions: definition.conditions(spec.match_conditions.as_deref()),
            definition,
            validations: validations
                .into_iter()
                .map(|validation| Validation {
                    expression: validation.expression.trim().to_owned(),
                    message: validation.message.unwrap_or_default().trim().to_owned(),
                    reason: validation.reason,
                })
                .collect(),
            expressions: batch(programs),
            messages: batch(messages),
            annotation_keys: annotations.into_iter().map(|annotation| annotation.key).collect(),
            annotations: batch(values),
            compile_error: match errors.as_slice() {
                [] => None,
                [one] => Some(one.clone()),
                many => Some(format!("[{}]", many.join(", "))),
            },
        }
    }

    /// Evaluates the policy for a write and one set of parameters.
    pub(super) async fn decide(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        params: Arc<Value>,
        namespace: Option<&Namespace>,
    ) -> Decision {
        let began = Instant::now();
        let decision = self.evaluate(attributes, object, params, namespace).await;
        Decision { took: began.elapsed(), ..decision }
    }

    async fn evaluate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        params: Arc<Value>,
        namespace: Option<&Namespace>,
    ) -> Decision {
        if let Some(error) = &self.compile_error {
            return self.failed(error.clone());
        }
        let of = ConditionsOf { name: &self.definition.name, kind: "policy", step: "validate" };
        match self.conditions.hold(of, attributes, object, &params).await {
            Ok(true) => {}
            Ok(false) => return Decision::default(),
            Err(error) => return self.failed(error),
        }
        let inputs = Arc::new(Inputs::new(attributes, object, params, namespace));
        let outcomes = match evaluate(&self.expressions, &inputs, attributes.context, BUDGET).await {
            Ok(outcomes) => outcomes,
            Err(error) => return self.failed(error),
        };
        let violated = outcomes.results.iter().flatten().any(|result| *result != Ok(Evaluated::Bool(true)));
        // Messages are only looked at when there is something to say.
        let messages = if violated {
            evaluate(&self.messages, &inputs, attributes.context, outcomes.budget).await.map(|found| found.results)
        } else {
            Ok(Vec::new())
        };
        let mut decision = Decision::default();
        for (index, (result, validation)) in outcomes.results.into_iter().flatten().zip(&self.validations).enumerate() {
            let failure = match (result, &messages) {
                (Err(error), _) => Some(error),
                (Ok(_), Err(error)) => Some(format!("failed messageExpression: {error}")),
                (Ok(Evaluated::Bool(true)), _) => continue,
                (Ok(_), Ok(messages)) => {
                    let message = messages.get(index).and_then(Option::as_ref).and_then(usable_message);
                    let message = message.or_else(|| Some(validation.message.clone()).filter(|m| !m.is_empty()));
                    decision.violations.push(Violation {
                        index,
                        message: message.unwrap_or_else(|| format!("failed expression: {}", validation.expression)),
                        reason: validation.reason.clone(),
                    });
                    None
                }
            };
            match failure {
                Some(message) if self.definition.ignores_failures => decision.ignored.push(message),
                Some(message) => decision.violations.push(Violation { index, message, reason: None }),
                None => {}
            }
        }
        self.annotate(&inputs, attributes, &mut decision).await;
        decision
    }

    async fn annotate(&self, inputs: &Arc<Inputs>, attributes: &Attributes<'_>, decision: &mut Decision) {
        if self.annotation_keys.is_empty() {
            return;
        }
        let results = match evaluate(&self.annotations, inputs, attributes.context, BUDGET).await {
            Ok(outcomes) => outcomes.results,
            Err(error) => {
                let failed = self.failed(error);
                decision.violations.extend(failed.violations);
                decision.ignored.extend(failed.ignored);
                return;
            }
        };
        for (key, result) in self.annotation_keys.iter().zip(results.into_iter().flatten()) {
            let annotation = match result {
                Ok(Evaluated::Text(text)) if text.trim().is_empty() => continue,
                Ok(Evaluated::Text(text)) => Annotation::Publish(text.trim().to_owned()),
                Ok(Evaluated::Null) => continue,
                Ok(_) => Annotation::Failed(format!(
                    "valueExpression of '{key}' resulted in unsupported return type. Return type must be either \
                     string or null."
                )),
                Err(_) if self.definition.ignores_failures => continue,
                Err(error) => Annotation::Failed(error),
            };
            decision.annotations.push((key.clone(), annotation));
        }
    }

    /// What becomes of a policy that could not be evaluated.
    fn failed(&self, message: String) -> Decision {
        if self.definition.ignores_failures {
            return Decision { ignored: vec![message], ..Decision::default() };
        }
        Decision { violations: vec![Violation { index: 0, message, reason: None }], ..Decision::default() }
    }
}

/// A message that an expression made, if it is one line and not too long.
fn usable_message(result: &Result<Evaluated, String>) -> Option<String> {
    match result {
        Ok(Evaluated::Text(text)) => {
            let text = text.trim();
            let usable = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
            usable.then(|| text.to_owned())
        }
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(error, "a messageExpression failed");
            None
        }
    }
}
