//! `MutatingAdmissionPolicy`: rules in CEL that change objects, one after the other.

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding},
    core::v1::Namespace,
};
use kube::Client;
use serde_json::Value;
use stoa_meta::{object::Object, status::ApiError};
use stoa_registry::admission::{AdmissionPlugin, Attributes, Operation, Reinvocation, reinvocation::Memory};
use tokio_util::sync::CancellationToken;

use super::{
    Binding, MutatingPolicy, Params,
    binding::{Defined as _, Policies},
    mutation::Failure,
};
use crate::cluster::{Namespaces, Watched};

const NAME: &str = "MutatingAdmissionPolicy";

/// Changes objects as the cluster's policies say.
#[derive(Debug)]
pub struct MutatingPolicies(Policies<MutatingPolicy>);

/// A policy that is to be evaluated for a write.
struct Invocation<'p> {
    policy: &'p MutatingPolicy,
    binding: &'p Binding,
    params: Arc<Value>,
}

/// What refuses the write, and where it was found.
struct Problem {
    policy: String,
    binding: Option<String>,
    message: String,
    /// The reason of the Status, if it is not that of every refusal.
    reason: Option<&'static str>,
}

impl MutatingPolicies {
    /// Changes them as `policies` say where `bindings` do.
    pub fn new(
        policies: Arc<Watched<Vec<Arc<MutatingPolicy>>>>,
        bindings: Arc<Watched<Vec<Arc<Binding>>>>,
        params: Arc<dyn Params>,
        namespaces: Arc<dyn Namespaces>,
    ) -> Self {
        Self(Policies::new(policies, bindings, params, namespaces))
    }

    /// Watches the cluster's policies and bindings until `end`.
    pub fn follow(client: &Client, namespaces: Arc<dyn Namespaces>, end: &CancellationToken) -> Self {
        Self(Policies::follow::<MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding>(
            client,
            namespaces,
            end,
            MutatingPolicy::compile,
            Binding::of_mutating,
        ))
    }

    /// Evaluates what was selected before anything was changed, each with what the one before it made of the object.
    async fn mutate(
        &self,
        invocations: &[Invocation<'_>],
        attributes: &Attributes<'_>,
        object: &mut Option<&mut Object>,
        reinvocation: &mut Reinvocation,
    ) -> Result<Vec<Problem>, ApiError> {
        let second = reinvocation.is_second();
        let namespace = self.0.namespace(attributes).await?;
        let mut problems = Vec::new();
        let mut patched = false;
        for invocation in invocations {
            let Invocation { policy, params, .. } = invocation;
            match policy.matches(attributes, object.as_deref(), params).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    problems.push(invocation.problem(error));
                    continue;
                }
            }
            let key = invocation.key();
            if second && !reinvocation.memory::<Memory>(NAME).is_again(&key) {
                continue;
            }
            let mut changed = false;
            if let Some(object) = object.as_deref_mut() {
                let outcome = invocation.apply(attributes, object, namespace.as_deref(), &mut problems).await?;
                patched |= outcome.patched;
                changed = outcome.changed;
            }
            let memory = reinvocation.memory::<Memory>(NAME);
            if changed {
                memory.all_again();
            }
            if policy.reinvoke {
                memory.asked(&key);
            }
        }
        if patched {
            // Upstream counts every patch as a change here, also one that leaves the object as it is.
            reinvocation.memory::<Memory>(NAME).all_again();
            reinvocation.changed();
        }
        Ok(problems)
    }
}

#[derive(Default)]
struct Applied {
    /// Whether any of its mutations was applied.
    patched: bool,
    /// Whether the object is another one now.
    changed: bool,
}

impl Invocation<'_> {
    /// Tells it from others in the second round.
    fn key(&self) -> String {
        let of_params = |field: &str| self.params["metadata"][field].as_str().unwrap_or("");
        let names = [&self.policy.definition().name, &self.binding.name, of_params("namespace"), of_params("name")];
        names.join("/")
    }

    async fn apply(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Object,
        namespace: Option<&Namespace>,
        problems: &mut Vec<Problem>,
    ) -> Result<Applied, ApiError> {
        let mut done = Applied::default();
        for mutation in &self.policy.mutations {
            let began = Instant::now();
            let outcome = mutation.apply(attributes, object, &self.params, namespace).await;
            let count = |problem: Option<&str>| {
                let policy = &self.policy.definition().name;
                attributes.metrics.mutated(policy, &self.binding.name, problem, began.elapsed());
            };
            match outcome {
                Ok(mutated) => {
                    count(None);
                    done.patched = true;
                    done.changed |= *object != mutated;
                    *object = mutated;
                }
                Err(Failure::Evaluation(text)) => {
                    count(Some(&text));
                    problems.push(self.problem(text));
                }
                Err(Failure::Other(error)) => {
                    count(Some(error.message()));
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    fn problem(&self, message: String) -> Problem {
        Problem {
            policy: self.policy.definition().name.clone(),
            binding: Some(self.binding.name.clone()),
            message,
            reason: Some("Invalid"),
        }
    }
}

#[async_trait]
impl AdmissionPlugin for MutatingPolicies {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        // What is deleted is not changed, whatever rules name that operation: upstream's `NewPlugin` does not take it.
        attributes.operation != Operation::Delete && self.0.may_match(attributes)
    }

    async fn admit(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Object>,
        reinvocation: &mut Reinvocation,
    ) -> Result<(), ApiError> {
        let (policies, bindings) = self.0.current(attributes, object.as_deref()).await?;
        let mut invocations = Vec::new();
        let mut problems = Vec::new();
        for policy in policies.iter().filter(|policy| policy.definition().constraints.has_rule_for(attributes)) {
            let selected = self.0.select(policy.definition(), &bindings, attributes, object.as_deref()).await;
            for (binding, params) in selected.bindings {
                invocations.extend(params.into_iter().map(|params| Invocation { policy, binding, params }));
            }
            problems.extend(selected.problems.into_iter().map(|(binding, message)| Problem {
                policy: policy.definition().name.clone(),
                binding: binding.map(|binding| binding.name.clone()),
                message,
                reason: None,
            }));
        }
        if !invocations.is_empty() {
            let second = reinvocation.is_second();
            reinvocation.memory::<Memory>(NAME).begin(second, object.as_deref());
            problems.extend(self.mutate(&invocations, attributes, &mut object, reinvocation).await?);
            reinvocation.memory::<Memory>(NAME).end(object.as_deref());
        }
        let ignored = |name: &str| {
            let named = policies.iter().find(|policy| policy.definition().name == name);
            named.is_some_and(|policy| policy.definition().ignores_failures)
        };
        problems.retain(|problem| !ignored(&problem.policy));
        refusal(problems, attributes, object.as_deref())
    }
}

/// The refusal as its client hears it: what is told of the first problem, and every one as a cause.
fn refusal(problems: Vec<Problem>, attributes: &Attributes<'_>, object: Option<&Object>) -> Result<(), ApiError> {
    let Some(first) = problems.first() else { return Ok(()) };
    let mut error = attributes.forbidden(object, "admission request denied by policy");
    error.0.message = Some(first.text());
    if let Some(reason) = first.reason {
        error.0.reason = Some(reason.to_owned());
    }
    Err(problems.iter().fold(error, |error, problem| error.with_cause("", "", problem.text())))
}

impl Problem {
    fn text(&self) -> String {
        let Self { policy, message, .. } = self;
        match &self.binding {
            Some(binding) => format!("policy '{policy}' with binding '{binding}' denied request: {message}"),
            None => format!("policy {policy:?} denied request: {message}"),
        }
    }
}
