//! Bindings of policies of both kinds, and the choice of those that count for a write.

use std::{collections::HashMap, mem, sync::Arc};

use k8s_openapi::api::{
    admissionregistration::v1::{
        MatchCondition, MatchResources, MutatingAdmissionPolicyBinding, ParamKind, ParamRef,
        ValidatingAdmissionPolicyBinding, Variable,
    },
    core::v1::Namespace,
};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stoa_meta::{object::Object, status::ApiError};
use stoa_registry::admission::Attributes;
use tokio_util::sync::CancellationToken;

use super::{
    matching::Constraints,
    params::{self, ClusterParams, Params},
};
use crate::{
    cel::{self, Conditions},
    cluster::{Namespaces, Watched, namespace_of},
    rules,
};

/// A policy's binding, read.
#[derive(Debug)]
pub struct Binding {
    pub(super) name: String,
    policy: String,
    param_ref: Option<ParamRef>,
    constraints: Constraints,
    /// What becomes of a violation, if this is the binding of a policy that validates.
    pub(super) actions: Vec<String>,
}

impl Binding {
    /// Reads the binding of a policy that validates.
    pub fn of_validating(binding: &ValidatingAdmissionPolicyBinding) -> Self {
        let spec = &binding.spec;
        Self {
            actions: spec.validation_actions.clone(),
            ..Self::new(binding.name_any(), &spec.policy_name, spec.param_ref.as_ref(), spec.match_resources.as_ref())
        }
    }

    /// Reads the binding of a policy that mutates.
    pub fn of_mutating(binding: &MutatingAdmissionPolicyBinding) -> Self {
        let spec = binding.spec.clone().unwrap_or_default();
        let policy = spec.policy_name.unwrap_or_default();
        Self::new(binding.name_any(), &policy, spec.param_ref.as_ref(), spec.match_resources.as_ref())
    }

    fn new(name: String, policy: &str, param_ref: Option<&ParamRef>, resources: Option<&MatchResources>) -> Self {
        Self {
            name,
            policy: policy.to_owned(),
            param_ref: param_ref.cloned(),
            constraints: Constraints::new(resources),
            actions: Vec::new(),
        }
    }
}

/// The part of a policy that says what it is about.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) constraints: Constraints,
    pub(super) param_kind: Option<ParamKind>,
    /// Whether what goes wrong lets the write pass.
    pub(super) ignores_failures: bool,
}

impl Definition {
    pub(super) fn new(
        name: String,
        resources: Option<&MatchResources>,
        param_kind: Option<ParamKind>,
        failure_policy: Option<&str>,
    ) -> Self {
        let ignores_failures = failure_policy == Some("Ignore");
        Self { name, constraints: Constraints::new(resources), param_kind, ignores_failures }
    }

    /// Reads the policy's match conditions.
    pub(super) fn conditions(&self, written: Option<&[MatchCondition]>) -> Conditions {
        Conditions::compile(written.unwrap_or_default(), self.ignores_failures)
    }
}

pub(super) fn variables(written: Option<&[Variable]>) -> Arc<Vec<cel::Variable>> {
    let read = |variable: &Variable| cel::variable(&variable.name, &variable.expression);
    Arc::new(written.unwrap_or_default().iter().map(read).collect())
}

/// A policy of either kind, read.
pub(super) trait Defined: Send + Sync + 'static {
    fn definition(&self) -> &Definition;
}

/// The policies of one kind as they are configured now, their bindings, and what these refer to.
#[derive(Debug)]
pub(super) struct Policies<P> {
    policies: Arc<Watched<Vec<Arc<P>>>>,
    bindings: Arc<Watched<Vec<Arc<Binding>>>>,
    params: Arc<dyn Params>,
    pub(super) namespaces: Arc<dyn Namespaces>,
}

/// What a policy comes to for a write.
#[derive(Debug)]
pub(super) struct Selected<'b> {
    /// The bindings that count, each with the parameters to evaluate the policy for.
    pub(super) bindings: Vec<(&'b Binding, Vec<Arc<Value>>)>,
    /// What is wrong with the policy, or with one of its bindings.
    pub(super) problems: Vec<(Option<&'b Binding>, String)>,
}

impl<P: Defined> Policies<P> {
    pub(super) fn new(
        policies: Arc<Watched<Vec<Arc<P>>>>,
        bindings: Arc<Watched<Vec<Arc<Binding>>>>,
        params: Arc<dyn Params>,
        namespaces: Arc<dyn Namespaces>,
    ) -> Self {
        Self { policies, bindings, params, namespaces }
    }

    /// Watches a cluster's policies and bindings until `end`.
    pub(super) fn follow<D, B>(
        client: &kube::Client,
        namespaces: Arc<dyn Namespaces>,
        end: &CancellationToken,
        compile: fn(&D) -> P,
        bind: fn(&B) -> Binding,
    ) -> Self
    where
        D: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
        B: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let policies = Watched::follow(client.clone(), end.clone(), reading(compile));
        let bindings = Watched::follow(client.clone(), end.clone(), reading(bind));
        let params = ClusterParams::new(client.clone(), end.clone());
        Self::new(policies, bindings, Arc::new(params), namespaces)
    }

    /// Whether any may be about such writes. Cheap.
    pub(super) fn may_match(&self, attributes: &Attributes<'_>) -> bool {
        if attributes.definition.group == "admissionregistration.k8s.io" {
            // A policy must not be able to forbid its own repair.
            return false;
        }
        // While nobody knows what is configured, anything may be.
        let ready = self.policies.is_ready() && self.bindings.is_ready();
        !ready || self.policies.current().iter().any(|policy| policy.definition().constraints.has_rule_for(attributes))
    }

    /// The policies and bindings.
    /// Fails with 403 when they have not been read yet, after a while.
    pub(super) async fn current(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
    ) -> Result<(Arc<Vec<Arc<P>>>, Arc<Vec<Arc<Binding>>>), ApiError> {
        let not_ready = || attributes.forbidden(object, "not yet ready to handle request");
        let policies = self.policies.get().await.ok_or_else(not_ready)?;
        let bindings = self.bindings.get().await.ok_or_else(not_ready)?;
        Ok((policies, bindings))
    }

    /// Which of the bindings make a policy count for a write.
    pub(super) async fn select<'b>(
        &self,
        policy: &Definition,
        bindings: &'b [Arc<Binding>],
        attributes: &Attributes<'_>,
        object: Option<&Object>,
    ) -> Selected<'b> {
        let mut selected = Selected { bindings: Vec::new(), problems: Vec::new() };
        if !bindings.iter().any(|binding| binding.policy == policy.name) {
            // Nobody asks for the policy, so it does not matter what is wrong with it.
            return selected;
        }
        let misconfigured = |what: &str, error: &str| format!("failed to configure {what}: {error}");
        match policy.constraints.select(attributes, object, &*self.namespaces).await {
            Ok(true) => {}
            Ok(false) => return selected,
            Err(error) => {
                selected.problems.push((None, misconfigured("policy", error.message())));
                return selected;
            }
        }
        if let Some(kind) = &policy.param_kind
            && let Err(error) = self.params.is_namespaced(kind).await
        {
            selected.problems.push((None, misconfigured("policy", &error)));
            return selected;
        }
        for binding in bindings.iter().filter(|binding| binding.policy == policy.name) {
            let params = match binding.constraints.select(attributes, object, &*self.namespaces).await {
                Ok(true) => {
                    let reference = binding.param_ref.as_ref();
                    params::collect(&*self.params, policy.param_kind.as_ref(), reference, attributes.namespace).await
                }
                Ok(false) => continue,
                Err(error) => Err(error.message().to_owned()),
            };
            match params {
                Ok(params) => selected.bindings.push((binding, params)),
                Err(error) => selected.problems.push((Some(binding), misconfigured("binding", &error))),
            }
        }
        selected
    }

    /// The namespace of a write, for expressions to see, if there is one.
    pub(super) async fn namespace(&self, attributes: &Attributes<'_>) -> Result<Option<Arc<Namespace>>, ApiError> {
        if attributes.namespace.is_empty() || rules::is_namespaces(attributes) {
            return Ok(None);
        }
        namespace_of(attributes, attributes.namespace, &*self.namespaces).await
    }
}

/// Reads objects in the order of their names, each version of one once: a change of one policy compiles that policy alone.
fn reading<K: Resource<DynamicType = ()>, T>(read: fn(&K) -> T) -> impl FnMut(Vec<Arc<K>>) -> Vec<Arc<T>> {
    let mut known: HashMap<(Option<String>, Option<String>), Arc<T>> = HashMap::new();
    move |mut found| {
        found.sort_by_key(|object| object.name_any());
        let mut before = mem::take(&mut known);
        let mut one = |object: &Arc<K>| {
            let key = (object.uid(), object.resource_version());
            let value = before.remove(&key).unwrap_or_else(|| Arc::new(read(object)));
            known.insert(key, Arc::clone(&value));
            value
        };
        found.iter().map(&mut one).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: &str) -> Arc<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(format!("uid of {name}"));
        object.metadata.resource_version = Some(version.to_owned());
        Arc::new(object)
    }

    #[test]
    fn each_version_of_an_object_is_read_once() {
        let mut read = reading(|object: &ConfigMap| (object.name_any(), object.resource_version()));
        let first = read(vec![object("b", "2"), object("a", "1")]);
        assert_eq!(first.iter().map(|read| read.0.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let second = read(vec![object("a", "1"), object("b", "3"), object("c", "4")]);
        assert!(Arc::ptr_eq(&first[0], &second[0]), "it has not changed");
        assert_eq!(*second[1], ("b".to_owned(), Some("3".to_owned())));
        // A deleted object is forgotten.
        read(vec![object("c", "4")]);
        assert!(!Arc::ptr_eq(&second[0], &read(vec![object("a", "1")])[0]));
    }
}
