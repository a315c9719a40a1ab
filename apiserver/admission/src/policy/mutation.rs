//! A compiled `MutatingAdmissionPolicy`: its expressions, and their changes of an object.
//!
//! Follows `pkg/admission/plugin/policy/mutating` and its `patch`. A configuration is merged as server-side apply would
//! merge it, but owned by nobody.

use std::sync::Arc;

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingAdmissionPolicy, Mutation as Written},
    core::v1::Namespace,
};
use kube::ResourceExt as _;
use serde_json::{Map, Value};
use stoa_meta::{
    object::Object,
    patch::{Misapplied, apply_operations},
    request::FieldValidation,
    status::ApiError,
};
use stoa_registry::admission::{Attributes, metrics::ConditionsOf};

use super::binding::{self, Defined, Definition};
use crate::cel::{self, BUDGET, Batch, Conditions, Evaluated, Inputs, Program, Variable, evaluate};

/// A policy, read.
#[derive(Debug)]
pub struct MutatingPolicy {
    definition: Definition,
    /// Whether it is evaluated again when others change the object after it.
    pub(super) reinvoke: bool,
    conditions: Conditions,
    pub(super) mutations: Vec<Mutation>,
}

/// One change that a policy makes.
#[derive(Debug)]
pub(super) struct Mutation {
    /// One expression, and the policy's variables.
    expression: Batch,
    patch_type: PatchType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

/// Why an object was not changed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The failure policy decides.
    Evaluation(String),
    /// No policy excuses this.
    Other(ApiError),
}

impl Defined for MutatingPolicy {
    fn definition(&self) -> &Definition {
        &self.definition
    }
}

impl MutatingPolicy {
    /// Reads a policy.
    pub fn compile(policy: &MutatingAdmissionPolicy) -> Self {
        let spec = policy.spec.clone().unwrap_or_default();
        let variables = binding::variables(spec.variables.as_deref());
        let mutations = spec.mutations.iter().flatten().filter_map(|written| Mutation::compile(written, &variables));
        let definition = Definition::new(
            policy.name_any(),
            spec.match_constraints.as_ref(),
            spec.param_kind.clone(),
            spec.failure_policy.as_deref(),
        );
        Self {
            mutations: mutations.collect(),
            reinvoke: spec.reinvocation_policy.as_deref() == Some("IfNeeded"),
            conditions: definition.conditions(spec.match_conditions.as_deref()),
            definition,
        }
    }

    pub(super) async fn matches(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        params: &Arc<Value>,
    ) -> Result<bool, String> {
        // Upstream gives policies of both kinds this step.
        let of = ConditionsOf { name: &self.definition.name, kind: "policy", step: "validate" };
        self.conditions.hold(of, attributes, object, params).await
    }
}

impl Mutation {
    fn compile(written: &Written, variables: &Arc<Vec<Variable>>) -> Option<Self> {
        let (source, patch_type) = match written.patch_type.as_str() {
            "ApplyConfiguration" => {
                (written.apply_configuration.as_ref()?.expression.as_deref(), PatchType::ApplyConfiguration)
            }
            "JSONPatch" => (written.json_patch.as_ref()?.expression.as_deref(), PatchType::JsonPatch),
            _ => return None,
        };
        let program = cel::mutation(source.unwrap_or_default());
        let expression = Batch { variables: variables.clone(), programs: Arc::new(vec![Some(program)]) };
        Some(Self { expression, patch_type })
    }

    pub(super) async fn apply(
        &self,
        attributes: &Attributes<'_>,
        object: &Object,
        params: &Arc<Value>,
        namespace: Option<&Namespace>,
    ) -> Result<Object, Failure> {
        let program = self.expression.programs.iter().flatten().next();
        if let Some(error) = program.and_then(Program::compile_error) {
            return Err(Failure::Evaluation(error.to_owned()));
        }
        let inputs = Arc::new(Inputs::new(attributes, Some(object), params.clone(), namespace));
        let outcomes = evaluate(&self.expression, &inputs, attributes.context, BUDGET).await;
        let outcome = outcomes.map_err(Failure::Evaluation)?.results.into_iter().flatten().next();
        let evaluated = outcome.unwrap_or(Ok(Evaluated::Null)).map_err(Failure::Evaluation)?;
        match (self.patch_type, evaluated) {
            (_, Evaluated::Misplaced(text)) => Err(Failure::Evaluation(text)),
            (PatchType::ApplyConfiguration, Evaluated::Object(configuration)) => {
                merged(attributes, object, configuration)
            }
            (PatchType::JsonPatch, Evaluated::Patch(operations)) => patched(attributes, object, &operations),
            (patch_type, other) => {
                let wanted = match patch_type {
                    PatchType::ApplyConfiguration => "Object",
                    PatchType::JsonPatch => "list(JSONPatch)",
                };
                let text = format!("must evaluate to {wanted} but got {}", other.type_name());
                Err(Failure::Evaluation(text))
            }
        }
    }
}

fn merged(
    attributes: &Attributes<'_>,
    object: &Object,
    mut configuration: Map<String, Value>,
) -> Result<Object, Failure> {
    for field in ["apiVersion", "kind"] {
        if let Some(value) = object.0.get(field) {
            configuration.insert(field.to_owned(), value.clone());
        }
    }
    let failed = |text: &dyn std::fmt::Display| Failure::Evaluation(format!("error applying patch: {text}"));
    let mut merged = attributes.fields.merge(object, &Object(configuration)).map_err(|text| failed(&text))?;
    attributes.decoder.settle(&mut merged).map_err(|type_error| failed(&type_error.decoded))?;
    Ok(attributes.with_defaults(merged))
}

fn patched(attributes: &Attributes<'_>, object: &Object, operations: &[Value]) -> Result<Object, Failure> {
    let mut document = Value::Object(object.0.clone());
    match apply_operations(&mut document, operations) {
        Ok(()) => {}
        // A test that fails says that there is nothing to do.
        Err(Misapplied::TestFailed(_)) => return Ok(object.clone()),
        Err(Misapplied::Other(text)) => return Err(Failure::Evaluation(format!("JSON Patch: {text}"))),
    }
    attributes.reread(document, FieldValidation::Strict).map_err(Failure::Other)
}
