//! `ValidatingAdmissionPolicy`: rules in CEL that a cluster's administrators configure.
//!
//! Start at [`ValidatingPolicies`]. A policy says what is checked, its bindings where and with which parameters, and
//! what becomes of a violation: the write is refused, or its client warned, or the audit event says so. Follows
//! `pkg/admission/plugin/policy` of `k8s.io/apiserver`.
//!
//! Submodules: `compiled` is a policy that was read, `params` what its bindings hand to it.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec,
};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    AdmissionPlugin, Attributes,
    cluster::{Namespaces, Watched},
    rules,
};
use crate::{object::Object, status::ApiError};

mod compiled;
mod matching;
mod params;

pub use compiled::Policy;
use compiled::{Annotation, Decision, Violation};
use matching::Constraints;
pub use params::{ClusterParams, Params};

/// The longest value of an audit annotation, in bytes.
const LONGEST_ANNOTATION: usize = 10 << 10;

/// A policy's binding, read.
#[derive(Debug)]
pub struct Binding {
    name: String,
    spec: ValidatingAdmissionPolicyBindingSpec,
    constraints: Constraints,
}

impl Binding {
    /// Reads a binding.
    pub fn new(binding: &ValidatingAdmissionPolicyBinding) -> Self {
        let spec = binding.spec.clone();
        let constraints = Constraints::new(spec.match_resources.as_ref());
        Self { name: binding.name_any(), spec, constraints }
    }
}

/// Checks writes against the cluster's policies.
#[derive(Debug)]
pub struct ValidatingPolicies {
    policies: Arc<Watched<Vec<Arc<Policy>>>>,
    bindings: Arc<Watched<Vec<Arc<Binding>>>>,
    params: Arc<dyn Params>,
    namespaces: Arc<dyn Namespaces>,
}

/// A violation that refuses the write, and who found it.
struct Denial {
    policy: String,
    binding: Option<String>,
    message: String,
    reason: Option<String>,
}

impl ValidatingPolicies {
    /// Checks against `policies` where `bindings` say so.
    pub fn new(
        policies: Arc<Watched<Vec<Arc<Policy>>>>,
        bindings: Arc<Watched<Vec<Arc<Binding>>>>,
        params: Arc<dyn Params>,
        namespaces: Arc<dyn Namespaces>,
    ) -> Self {
        Self { policies, bindings, params, namespaces }
    }

    /// Watches the cluster's policies and bindings until `end`.
    pub fn follow(client: &Client, namespaces: Arc<dyn Namespaces>, end: &CancellationToken) -> Self {
        let policies =
            Watched::follow(client.clone(), end.clone(), |mut found: Vec<Arc<ValidatingAdmissionPolicy>>| {
                found.sort_by_key(|policy| policy.name_any());
                found.iter().map(|policy| Arc::new(Policy::compile(policy))).collect::<Vec<_>>()
            });
        let bindings =
            Watched::follow(client.clone(), end.clone(), |mut found: Vec<Arc<ValidatingAdmissionPolicyBinding>>| {
                found.sort_by_key(|binding| binding.name_any());
                found.iter().map(|binding| Arc::new(Binding::new(binding))).collect::<Vec<_>>()
            });
        let params = ClusterParams::new(client.clone(), end.clone());
        Self::new(policies, bindings, Arc::new(params), namespaces)
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
        let mut misconfigured = |binding: Option<&Binding>, error: &str| {
            if !policy.ignores_failures {
                let what = if binding.is_some() { "binding" } else { "policy" };
                denials.push(Denial {
                    policy: policy.name.clone(),
                    binding: binding.map(|binding| binding.name.clone()),
                    message: format!("failed to configure {what}: {error}"),
                    reason: None,
                });
            }
        };
        match policy.constraints.select(attributes, object, &*self.namespaces).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                misconfigured(None, error.message());
                return Ok(());
            }
        }
        let mut found: Vec<(&Binding, Decision)> = Vec::new();
        for binding in bindings.iter().filter(|binding| binding.spec.policy_name == policy.name) {
            match binding.constraints.select(attributes, object, &*self.namespaces).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    misconfigured(Some(binding), error.message());
                    continue;
                }
            }
            let params = match params::collect(&*self.params, policy, &binding.spec, attributes.namespace).await {
                Ok(params) => params,
                Err(error) => {
                    misconfigured(Some(binding), &error);
                    continue;
                }
            };
            let namespace = if attributes.namespace.is_empty() || rules::is_namespaces(attributes) {
                None
            } else {
                Some(self.namespaces.namespace(attributes.namespace).await?)
            };
            for param in params {
                let decision = policy.decide(attributes, object, param, namespace.as_deref()).await;
                found.push((binding, decision));
            }
        }
        let mut annotations: Vec<(String, Vec<String>)> = Vec::new();
        for (binding, decision) in found {
            for violation in decision.violations {
                enforce(policy, binding, &violation, attributes, denials);
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
                    Annotation::Failed(message) => denials.push(Denial {
                        policy: policy.name.clone(),
                        binding: Some(binding.name.clone()),
                        message,
                        reason: None,
                    }),
                }
            }
        }
        for (key, values) in annotations {
            attributes.context.annotate(format!("{}/{key}", policy.name), values.join(", "));
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
) {
    let message = &violation.message;
    let actions = &binding.spec.validation_actions;
    for action in actions {
        match action.as_str() {
            "Deny" => denials.push(Denial {
                policy: policy.name.clone(),
                binding: Some(binding.name.clone()),
                message: message.clone(),
                reason: violation.reason.clone(),
            }),
            "Warn" => attributes.context.warn(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                policy.name, binding.name
            )),
            "Audit" => {
                let failure = json!([{
                    "message": message, "policy": policy.name, "binding": binding.name,
                    "expressionIndex": violation.index, "validationActions": actions,
                }]);
                attributes
                    .context
                    .annotate("validation.policy.admission.k8s.io/validation_failure", failure.to_string());
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
        if attributes.definition.group == "admissionregistration.k8s.io" {
            // A policy must not be able to forbid its own repair.
            return false;
        }
        let ready = self.policies.is_ready() && self.bindings.is_ready();
        !ready || self.policies.current().iter().any(|policy| policy.constraints.has_rule_for(attributes))
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
        let not_ready = || attributes.forbidden(object, "not yet ready to handle request");
        let policies = self.policies.get().await.ok_or_else(not_ready)?;
        let bindings = self.bindings.get().await.ok_or_else(not_ready)?;
        let mut denials = Vec::new();
        for policy in policies.iter() {
            if policy.constraints.has_rule_for(attributes) {
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
