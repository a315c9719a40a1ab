//! What Kubernetes' own kinds look like, for objects that no server is asked about before they are committed.
//!
//! Start at [`check`]. The types of the fields of stable kinds never change, so that a value of another type is wrong in every
//! cluster. A field that is not known here may be one that a later version of Kubernetes has: it is told, and not refused.
//!
//! Source: the OpenAPI of Kubernetes, as `k8s-openapi` has it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::{
    apps::v1 as apps, autoscaling::v2 as autoscaling, batch::v1 as batch, core::v1 as core, discovery::v1 as discovery,
    networking::v1 as networking, policy::v1 as policy, rbac::v1 as rbac, scheduling::v1 as scheduling,
    storage::v1 as storage,
};
use schemars::schema_for;
use serde_json::{Map, Value};
use stoa_engine::FieldPath;
use stoa_engine::types::{misfit, wanted};

/// So many findings of each sort are told of one object.
const MOST: usize = 20;

/// What is wrong with an object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// Fields of the wrong type, and what is wanted there.
    pub(crate) mistyped: Vec<(FieldPath, String)>,
    /// Fields that nobody knows.
    pub(crate) unknown: Vec<FieldPath>,
}

/// Compares an object with the schema of its kind, if that is one of the stable ones of Kubernetes itself.
pub(crate) fn check(object: &Map<String, Value>) -> Findings {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut findings = Findings::default();
    if let Some(schema) = schema_of(text("apiVersion"), text("kind")) {
        let mut walk = Walk { root: &schema, findings: &mut findings };
        walk.object(&schema, object, &FieldPath::default());
    }
    findings
}

type Kinds = HashMap<(String, String), Arc<Value>>;

fn schema_of(api_version: &str, kind: &str) -> Option<Arc<Value>> {
    static KNOWN: Mutex<Option<Kinds>> = Mutex::new(None);
    let made = make(api_version, kind)?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    known.entry((api_version.to_owned(), kind.to_owned())).or_insert_with(|| Arc::new(made())).clone().into()
}

/// How the schema of a kind is made.
fn make(api_version: &str, kind: &str) -> Option<fn() -> Value> {
    macro_rules! kinds {
        ($($version:literal: $($module:ident::$kind:ident)*;)*) => {
            match (api_version, kind) {
                $($(($version, stringify!($kind)) => Some(|| schema_for!($module::$kind).to_value()),)*)*
                _ => None,
            }
        };
    }
    kinds! {
        "v1":
            core::ConfigMap core::Endpoints core::LimitRange core::Namespace core::PersistentVolume
            core::PersistentVolumeClaim core::Pod core::PodTemplate core::ReplicationController core::ResourceQuota
            core::Secret core::Service core::ServiceAccount;
        "apps/v1": apps::DaemonSet apps::Deployment apps::ReplicaSet apps::StatefulSet;
        "autoscaling/v2": autoscaling::HorizontalPodAutoscaler;
        "batch/v1": batch::CronJob batch::Job;
        "discovery.k8s.io/v1": discovery::EndpointSlice;
        "networking.k8s.io/v1": networking::Ingress networking::IngressClass networking::NetworkPolicy;
        "policy/v1": policy::PodDisruptionBudget;
        "rbac.authorization.k8s.io/v1": rbac::ClusterRole rbac::ClusterRoleBinding rbac::Role rbac::RoleBinding;
        "scheduling.k8s.io/v1": scheduling::PriorityClass;
        "storage.k8s.io/v1": storage::CSIDriver storage::StorageClass;
    }
}

struct Walk<'a> {
    root: &'a Value,
    findings: &'a mut Findings,
}

impl<'a> Walk<'a> {
    /// A schema, or what it refers to.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"));
        name.and_then(|name| self.root.get("$defs")?.get(name)).unwrap_or(schema)
    }

    fn object(&mut self, schema: &'a Value, object: &Map<String, Value>, path: &FieldPath) {
        let fields = schema.get("properties").and_then(Value::as_object);
        let rest = schema.get("additionalProperties").filter(|rest| rest.is_object());
        for (key, value) in object {
            match (fields.and_then(|fields| fields.get(key)).or(rest), fields) {
                (Some(schema), _) => self.value(schema, value, &path.key(key)),
                (None, Some(_)) if self.findings.unknown.len() < MOST => self.findings.unknown.push(path.key(key)),
                (None, _) => {}
            }
        }
    }

    fn value(&mut self, schema: &'a Value, value: &Value, path: &FieldPath) {
        let schema = self.resolved(schema);
        // What is null is not set.
        if value.is_null()
            || schema.get("x-kubernetes-int-or-string").is_some() && !(value.is_array() || value.is_object())
        {
            return;
        }
        let misfit = match (schema.get("type").and_then(Value::as_str), value) {
            (Some("object"), Value::Object(object)) => return self.object(schema, object, path),
            (Some("array"), Value::Array(items)) => {
                let Some(schema) = schema.get("items") else { return };
                return items.iter().enumerate().for_each(|(at, item)| self.value(schema, item, &path.index(at)));
            }
            (Some(type_), _) => misfit(type_, value),
            (None, Value::Array(_) | Value::Object(_)) if schema.get("x-kubernetes-int-or-string").is_some() => {
                Some(wanted("a number or text", value))
            }
            (None, _) => None,
        };
        if let Some(message) = misfit.filter(|_| self.findings.mistyped.len() < MOST) {
            self.findings.mistyped.push((path.clone(), message));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(object: Value) -> Vec<String> {
        let found = check(object.as_object().unwrap());
        let mistyped = found.mistyped.iter().map(|(path, message)| format!("{path}: {message}"));
        mistyped.chain(found.unknown.iter().map(|path| format!("{path}?"))).collect()
    }

    #[test]
    fn values_of_the_wrong_type_and_fields_that_nobody_knows_are_found_wherever_they_are() {
        let container = json!({"name": 7, "image": "a", "ports": [{"containerPort": "80"}, {"containerPort": 1.5}],
            "resources": {"limits": {"cpu": 1.5, "memory": "1Gi", "x": {}}}, "env": {"A": "b"}, "evn": [],
            "readinessProbe": {"httpGet": {"port": "http"}}, "stdin": "yes"});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": 1}},
            "spec": {"replicas": "two", "selector": null, "replica": 1, "template": {"spec": {"containers": [container]}}}});
        let mut told = told(deployment);
        told.sort();
        let at = |field: &str, message: &str| format!("spec.template.spec.containers[0].{field}{message}");
        let mut expected = [
            "metadata.labels.a: text is wanted here, not a number".to_owned(),
            "spec.replicas: a whole number is wanted here, not a string".to_owned(),
            "spec.replica?".to_owned(),
            at("name", ": text is wanted here, not a number"),
            at("ports[0].containerPort", ": a whole number is wanted here, not a string"),
            at("ports[1].containerPort", ": a whole number is wanted here, not a fraction"),
            at("resources.limits.x", ": a number or text is wanted here, not a map"),
            at("env", ": a list is wanted here, not a map"),
            at("stdin", ": true or false is wanted here, not a string"),
            at("evn", "?"),
        ];
        expected.sort();
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_right_or_of_another_kind_is_left_alone() {
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {"x": "y"},
                "creationTimestamp": null}, "data": {"any": "thing"}, "immutable": true}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [
                {"port": 80.0, "targetPort": "http"}, {"port": 81, "targetPort": 81}]}}),
            json!({"apiVersion": "example.com/v1", "kind": "Deployment", "spec": 7}),
            json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "spec": 7}),
            json!({"apiVersion": 1}),
        ] {
            assert_eq!(told(object), [""; 0]);
        }
    }

    #[test]
    fn no_more_is_told_of_one_object_than_people_read() {
        let data: Map<String, Value> = (0..50).map(|n| (format!("k{n}"), json!(n))).collect();
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data.clone()});
        object.as_object_mut().unwrap().extend(data);
        let found = check(object.as_object().unwrap());
        assert_eq!((found.mistyped.len(), found.unknown.len()), (MOST, MOST));
    }
}
