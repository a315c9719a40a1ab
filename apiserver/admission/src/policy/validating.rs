//! `ValidatingAdmissionPolicy`: rules in CEL that refuse a write, warn of it, or annotate its audit event.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::Client;
use serde::Serialize;
use stoa_meta::{json, object::Object, status::ApiError};
use stoa_registry::admission::{AdmissionPlugin, Attributes};
use tokio_util::sync::CancellationToken;

use super::{
    Binding, Params, Policy,
    binding::{Defined as _, Policies},
    compiled::{Annotation, Violation},
};
use crate::cluster::{Namespaces, Watched};

/// The longest value of an audit annotation, in bytes.
const LONGEST_ANNOTATION: usize = 10 << 10;

/// Checks writes against the cluster's policies.
#[derive(Debug)]
pub struct ValidatingPolicies(Policies<Policy>);

/// A violation that refuses the write, and who found it.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Option<String>,
}

/// A violation as the audit event tells it, its fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

impl ValidatingPolicies {
    /// Checks against `policies` where `bindings` say so.
    pub fn new(
        policies: Arc<Watched<Vec<Arc<Policy>>>>,
        bindings: Arc<Watched<Vec<Arc<Binding>>>>,
        params: Arc<dyn Params>,
        namespaces: Arc<dyn Namespaces>,
    ) -> Self {
        Self(Policies::new(policies, bindings, params, namespaces))
    }

    /// Watches the cluster's policies and bindings until `end`.
    pub fn follow(client: &Client, namespaces: Arc<dyn Namespaces>, end: &CancellationToken) -> Self {
        Self(Policies::follow::<ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding>(
            client,
            namespaces,
            end,
            Policy::compile,
            Binding::of_validating,
        ))
    }

    /// What one policy has against a write.
    async fn check(
        &self,
        policy: &Policy,
        bindings: &[Arc<Binding>],
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        denials: &mut Vec<Denial>,
    ) -> Result<(), ApiError> {
        let definition = policy.definition();
        let selected = self.0.select(definition, bindings, attributes, object).await;
        for (binding, message) in selected.problems {
            if !definition.ignores_failures {
                denials.push(Denial {
                    policy: definition.name.clone(),
                    binding: binding.map(|binding| binding.name.clone()),
                    message,
                    reason: None,
                });
            }
        }
        if selected.bindings.is_empty() {
            return Ok(());
        }
        let namespace = self.0.namespace(attributes).await?;
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for (binding, params) in selected.bindings {
            for params in params {
                let decision = policy.decide(attributes, object, params, namespace.as_deref()).await;
                let count = |problem: &str, action: &str| {
                    attributes.metrics.validated(&definition.name, &binding.name, problem, action, decision.took);
                };
                decision.ignored.iter().for_each(|problem| count(problem, "allow"));
                for violation in &decision.violations {
                    enforce(policy, binding, violation, attributes, denials, decision.took);
                }
                for (key, annotation) in decision.annotations {
                    match annotation {
                        Annotation::Publish(mut value) => {
                            value.truncate(value.floor_char_boundary(LONGEST_ANNOTATION));
                            match annotations.iter_mut().find(|(known, _)| *known == key) {
                                Some((_, values)) if values.contains(&value) => {}
                                Some((_, values)) => values.push(value),
                                None => annotations.push((key, vec![value])),
                            }
                        }
                        Annotation::Failed(message) => {
                            count(&message, "deny");
                            denials.push(Denial {
                                policy: definition.name.clone(),
                                binding: Some(binding.name.clone()),
                                message,
                                reason: None,
                            });
                        }
                    }
                }
            }
        }
        for (key, values) in annotations {
            attributes.annotate(format!("{}/{key}", definition.name), values.join(", "));
        }
        Ok(())
    }
}

/// Does with a violation what the binding says.
fn enforce(
    policy: &Policy,
    binding: &Binding,
    violation: &Violation,
    attributes: &Attributes<'_>,
    denials: &mut Vec<Denial>,
    took: Duration,
) {
    let (message, name) = (&violation.message, &policy.definition().name);
    let count = |action: &str| attributes.metrics.validated(name, &binding.name, message, action, took);
    let actions = &binding.actions;
    for action in actions {
        match action.as_str() {
            "Deny" => {
                count("deny");
                denials.push(Denial {
                    policy: name.clone(),
                    binding: Some(binding.name.clone()),
                    message: message.clone(),
                    reason: violation.reason.clone(),
                });
            }
            "Warn" => {
                count("warn");
                attributes.context.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{}': {message}",
                    binding.name
                ));
            }
            "Audit" => {
                count("audit");
                let failure = ValidationFailure {
                    message,
                    policy: name,
                    binding: &binding.name,
                    expression_index: violation.index,
                    validation_actions: actions,
                };
                attributes
                    .context
                    .annotate("validation.policy.admission.k8s.io/validation_failure", json::text(&[failure]));
            }
            _ => {}
        }
    }
}

#[async_trait]
impl AdmissionPlugin for ValidatingPolicies {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn validates(&self, attributes: &Attributes<'_>) -> bool {
        self.0.may_match(attributes)
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        let (policies, bindings) = self.0.current(attributes, object).await?;
        let mut denials = Vec::new();
        for policy in policies.iter() {
            if policy.definition().constraints.has_rule_for(attributes) {
                self.check(policy, &bindings, attributes, object, &mut denials).await?;
            }
        }
        denials.into_iter().next().map_or(Ok(()), |denial| Err(denial.error(attributes, object)))
    }
}

impl Denial {
    /// The refusal as its client hears it.
    fn error(self, attributes: &Attributes<'_>, object: Option<&Object>) -> ApiError {
        let with = self.binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {}", self.policy, self.message);
        let mut error = attributes.forbidden(object, &message).with_cause("", "", message);
        let reason = self.reason.unwrap_or_else(|| "Invalid".to_owned());
        error.0.code = Some(match reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        });
        error.0.reason = Some(reason);
        error
    }
}
