//! Admission prerequisites: objects that admission looks up by the fields of another object.
//!
//! Start at [`of`]. An API server rejects a Pod whose ServiceAccount, PriorityClass or RuntimeClass does not exist, and
//! a RoleBinding whose role does not exist. StorageClasses and IngressClasses are included, since their defaults and
//! quotas apply on creation.
//!
//! Source: k8s.io/kubernetes/plugin/pkg/admission, pkg/registry/rbac.

use serde_json::{Map, Value};
use stoa_engine::object::ObjectRef;
use stoa_engine::schema::pod_spec;

/// An object that another names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prerequisite<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    /// Empty where the kind has no namespaces.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

const STORAGE: &str = "storage.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// How other objects name an object; `None` where admission looks up no objects of its kind.
pub(crate) fn named(object: &ObjectRef) -> Option<Prerequisite<'_>> {
    let ObjectRef { group, kind, namespace, name, .. } = object;
    let namespace = match (group.as_str(), kind.as_str()) {
        ("", "ServiceAccount") | (RBAC, "Role") => namespace,
        ("scheduling.k8s.io", "PriorityClass")
        | ("node.k8s.io", "RuntimeClass")
        | (STORAGE, "StorageClass")
        | ("networking.k8s.io", "IngressClass")
        | (RBAC, "ClusterRole") => "",
        _ => return None,
    };
    Some(Prerequisite { group, kind, namespace, name })
}

/// Whether the LimitRanges of its namespace apply to an object when it is created.
pub(crate) fn is_limited(object: &ObjectRef) -> bool {
    object.group.is_empty() && matches!(object.kind.as_str(), "Pod" | "PersistentVolumeClaim")
}

/// The prerequisites that an object names.
pub(crate) fn of<'a>(object: &'a ObjectRef, attributes: &'a Map<String, Value>) -> Vec<Prerequisite<'a>> {
    let spec = attributes.get("spec").unwrap_or(&Value::Null);
    let mut named = Vec::new();
    let mut add = |group: &'a str, kind: &'a str, namespace: &'a str, name: Option<&'a Value>| {
        if let Some(name) = name.and_then(Value::as_str).filter(|name| !name.is_empty()) {
            named.push(Prerequisite { group, kind, namespace, name });
        }
    };
    if let Some(path) = pod_spec(&object.group, &object.kind) {
        let pod = at(attributes, path).unwrap_or(&Value::Null);
        let account = pod.get("serviceAccountName").or_else(|| pod.get("serviceAccount"));
        add("", "ServiceAccount", &object.namespace, account);
        add("scheduling.k8s.io", "PriorityClass", "", pod.get("priorityClassName"));
        add("node.k8s.io", "RuntimeClass", "", pod.get("runtimeClassName"));
        for volume in pod.get("volumes").and_then(Value::as_array).into_iter().flatten() {
            add(STORAGE, "StorageClass", "", volume.pointer("/ephemeral/volumeClaimTemplate/spec/storageClassName"));
        }
    }
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "PersistentVolumeClaim") => add(STORAGE, "StorageClass", "", spec.get("storageClassName")),
        ("apps", "StatefulSet") => {
            for claim in spec.get("volumeClaimTemplates").and_then(Value::as_array).into_iter().flatten() {
                add(STORAGE, "StorageClass", "", claim.pointer("/spec/storageClassName"));
            }
        }
        ("networking.k8s.io", "Ingress") => {
            add("networking.k8s.io", "IngressClass", "", spec.get("ingressClassName"));
        }
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => {
            let role = attributes.get("roleRef").unwrap_or(&Value::Null);
            match role.get("kind").and_then(Value::as_str) {
                Some("Role") => add(RBAC, "Role", &object.namespace, role.get("name")),
                Some("ClusterRole") => add(RBAC, "ClusterRole", "", role.get("name")),
                Some(_) | None => {}
            }
        }
        _ => {}
    }
    named
}

/// The value at keys with dots in between.
fn at<'a>(object: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let first = object.get(keys.next()?)?;
    keys.try_fold(first, |at, key| at.get(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: &Value) -> Vec<String> {
        let object = object.as_object().unwrap();
        let called = ObjectRef::of(object).unwrap();
        of(&called, object).iter().map(|it| format!("{}/{}/{}/{}", it.group, it.kind, it.namespace, it.name)).collect()
    }

    #[test]
    fn pods_name_accounts_and_classes() {
        let pod = json!({"serviceAccountName": "a", "priorityClassName": "p", "runtimeClassName": "r", "volumes": [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "s"}}}}]});
        let expected = [
            "/ServiceAccount/shop/a",
            "scheduling.k8s.io/PriorityClass//p",
            "node.k8s.io/RuntimeClass//r",
            "storage.k8s.io/StorageClass//s",
        ];
        let metadata = json!({"name": "x", "namespace": "shop"});
        let object = |api_version: &str, kind: &str, spec: Value| {
            check(&json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}))
        };
        assert_eq!(object("v1", "Pod", pod.clone()), expected);
        assert_eq!(object("apps/v1", "Deployment", json!({"template": {"spec": pod}})), expected);
        let job = json!({"jobTemplate": {"spec": {"template": {"spec": pod}}}});
        assert_eq!(object("batch/v1", "CronJob", job), expected);
        assert_eq!(object("v1", "Pod", json!({"serviceAccountName": ""})), [""; 0]);
        assert_eq!(object("v1", "ConfigMap", json!({"serviceAccountName": "a"})), [""; 0]);
    }

    #[test]
    fn claims_ingresses_and_bindings_name_prerequisites() {
        let claim = json!({"spec": {"storageClassName": "s"}});
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "x", "namespace": "shop"},
            "spec": {"volumeClaimTemplates": [claim]}});
        assert_eq!(check(&set), ["storage.k8s.io/StorageClass//s"]);
        let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "x"},
            "spec": {"ingressClassName": "i"}});
        assert_eq!(check(&ingress), ["networking.k8s.io/IngressClass//i"]);
        for (kind, expected) in [("Role", "Role/shop/r"), ("ClusterRole", "ClusterRole//r")] {
            let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": "x", "namespace": "shop"}, "roleRef": {"kind": kind, "name": "r"}});
            assert_eq!(check(&binding), [format!("rbac.authorization.k8s.io/{expected}")]);
        }
    }
}
