//! Normalization of manifests: removes nulls, and fields that only a server writes.
//!
//! Start at [`normalize`]. Output of `kubectl get -o yaml` is full of both. The annotation with the copy that `kubectl
//! apply` leaves has the values of a Secret in plain text. A foreign uid or resourceVersion would make each apply fail.

use serde_json::{Map, Value};
use stoa_engine::object::{is_server_set, split_api_version};
use stoa_engine::spec::{ResourceType, Spec};

use crate::kinds::is_built_in;

/// Removes from every Kubernetes object the fields that only a server writes, and nulls where null means "not set".
pub fn normalize(spec: &mut Spec) {
    for resource in spec.resources.iter_mut().filter(|resource| resource.kind == ResourceType::Kubernetes) {
        remove_server_fields(&mut resource.attributes);
        if is_of_built_in_kind(&resource.attributes) {
            resource.attributes.values_mut().for_each(remove_nulls);
            resource.attributes.retain(|_, value| !value.is_null());
        }
    }
}

/// Removes the fields of an object that its server or kubectl writes: `status`, such as `metadata.uid`, and annotations such
/// as `kubectl.kubernetes.io/last-applied-configuration`.
pub fn remove_server_fields(object: &mut Map<String, Value>) {
    object.retain(|key, _| !is_server_set(&[], key));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|key, _| !is_server_set(&["metadata"], key));
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    let count = annotations.len();
    annotations.retain(|key, _| !is_server_set(&["metadata", "annotations"], key));
    if annotations.is_empty() && count > 0 {
        metadata.remove("annotations");
    }
}

/// Whether the kind is built in. Custom definitions may allow null (`nullable`).
fn is_of_built_in_kind(object: &Map<String, Value>) -> bool {
    let api_version = object.get("apiVersion").and_then(Value::as_str);
    api_version.is_some_and(|api_version| is_built_in(split_api_version(api_version).0))
}

/// Removes null values of maps at any depth. List items stay.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(attributes: Value, expected: Value) {
        let resource = |attributes: Value| json!({"id": "a", "type": "Kubernetes", "attributes": attributes});
        let mut spec: Spec = serde_json::from_value(json!({"resources": [resource(attributes)]})).unwrap();
        normalize(&mut spec);
        assert_eq!(Value::Object(spec.resources.remove(0).attributes), expected);
    }

    #[test]
    fn server_fields_are_removed() {
        let server = json!({"uid": "u", "resourceVersion": "12", "generation": 7, "creationTimestamp": null,
            "deletionTimestamp": "2026-03-04T05:06:07Z", "deletionGracePeriodSeconds": 30, "selfLink": "/x",
            "managedFields": [{"manager": "kubectl"}], "name": "a", "namespace": "shop", "labels": {"uid": "mine"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "deployment.kubernetes.io/revision": "3",
                "note": "x"}});
        let metadata =
            json!({"name": "a", "namespace": "shop", "labels": {"uid": "mine"}, "annotations": {"note": "x"}});
        for api_version in ["apps/v1", "example.com/v1"] {
            check(
                json!({"apiVersion": api_version, "kind": "Deployment", "metadata": server, "spec": {"status": 1},
                    "status": {"replicas": 1}}),
                json!({"apiVersion": api_version, "kind": "Deployment", "metadata": metadata, "spec": {"status": 1}}),
            );
        }
        check(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"password\":\"b2xk\"}}"}}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        );
    }

    #[test]
    fn null_is_unset_in_built_in_kinds() {
        let spec =
            json!({"limits": {"cpu": null, "memory": "64Mi"}, "list": [null, {"a": null, "b": 1}], "none": null});
        let without_nulls = json!({"limits": {"memory": "64Mi"}, "list": [null, {"b": 1}]});
        let object = |api_version: &str, spec: &Value| json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
        for api_version in ["v1", "apps/v1", "networking.k8s.io/v1"] {
            check(object(api_version, &spec), object(api_version, &without_nulls));
        }
        for api_version in ["example.com/v1", "gateway.networking.k8s.io/v1", "config.stoa.dev/v1alpha1"] {
            check(object(api_version, &spec), object(api_version, &spec));
        }
        check(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": null}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
        );
    }

    #[test]
    fn arguments_of_terraform_stay_as_they_are() {
        let attributes = json!({"metadata": {"uid": "u"}, "status": null});
        let mut spec: Spec =
            serde_json::from_value(json!({"resources": [{"id": "a", "type": "Terraform", "attributes": attributes}]}))
                .unwrap();
        normalize(&mut spec);
        assert_eq!(Value::Object(spec.resources.remove(0).attributes), attributes);
    }
}
