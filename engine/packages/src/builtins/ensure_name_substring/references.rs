//! The fields by which objects name others.
//!
//! Follows the name references of kustomize.

use serde_json::Value;
use stoa_kubernetes_model::kinds::is_cluster_scoped;

use super::Renames;
use crate::{builtins::fields::FieldSpec, resources::Resource};

/// The annotation `<group>/namespaces/<namespace>/<kind>/<name>`, or `<group>/<kind>/<name>`.
const DEPENDS_ON: &str = "config.kubernetes.io/depends-on";

/// The kinds with a pod's specification, and where they have it.
const PODS: [(&str, &str); 9] = [
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
];

/// Group and kind of the object, and the field of a pod's specification that has its name.
const IN_PODS: &[(&str, &str, &str)] = &[
    ("", "ConfigMap", "volumes/configMap/name"),
    ("", "ConfigMap", "volumes/projected/sources/configMap/name"),
    ("", "ConfigMap", "containers/env/valueFrom/configMapKeyRef/name"),
    ("", "ConfigMap", "initContainers/env/valueFrom/configMapKeyRef/name"),
    ("", "ConfigMap", "containers/envFrom/configMapRef/name"),
    ("", "ConfigMap", "initContainers/envFrom/configMapRef/name"),
    ("", "Secret", "volumes/secret/secretName"),
    ("", "Secret", "volumes/projected/sources/secret/name"),
    ("", "Secret", "containers/env/valueFrom/secretKeyRef/name"),
    ("", "Secret", "initContainers/env/valueFrom/secretKeyRef/name"),
    ("", "Secret", "containers/envFrom/secretRef/name"),
    ("", "Secret", "initContainers/envFrom/secretRef/name"),
    ("", "Secret", "imagePullSecrets/name"),
    ("", "ServiceAccount", "serviceAccountName"),
    ("", "PersistentVolumeClaim", "volumes/persistentVolumeClaim/claimName"),
    ("scheduling.k8s.io", "PriorityClass", "priorityClassName"),
];

/// Group and kind of the object, and the kind and field that has its name.
const ELSEWHERE: &[(&str, &str, &str, &str)] = &[
    ("", "Service", "StatefulSet", "spec/serviceName"),
    ("", "Service", "Ingress", "spec/rules/http/paths/backend/serviceName"),
    ("", "Service", "Ingress", "spec/rules/http/paths/backend/service/name"),
    ("", "Service", "Ingress", "spec/backend/serviceName"),
    ("", "Service", "Ingress", "spec/defaultBackend/service/name"),
    ("", "ConfigMap", "Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/fastcgi-params-configmap"),
    ("", "Secret", "Ingress", "spec/tls/secretName"),
    ("", "Secret", "Ingress", "metadata/annotations/ingress.kubernetes.io\\/auth-secret"),
    ("", "Secret", "Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-secret"),
    ("", "Secret", "Ingress", "metadata/annotations/nginx.ingress.kubernetes.io\\/auth-tls-secret"),
    ("", "Secret", "ServiceAccount", "imagePullSecrets/name"),
    ("", "Secret", "StorageClass", "parameters/secretName"),
    ("", "Secret", "StorageClass", "parameters/adminSecretName"),
    ("", "Secret", "StorageClass", "parameters/userSecretName"),
    ("", "Secret", "StorageClass", "parameters/secretRef"),
    ("", "Secret", "PersistentVolume", "spec/azureFile/secretName"),
    ("", "ConfigMap", "Role", "rules/resourceNames"),
    ("", "ConfigMap", "ClusterRole", "rules/resourceNames"),
    ("", "Secret", "Role", "rules/resourceNames"),
    ("", "Secret", "ClusterRole", "rules/resourceNames"),
    ("", "ConfigMap", "Node", "spec/configSource/configMap/name"),
    ("", "PersistentVolume", "PersistentVolumeClaim", "spec/volumeName"),
    ("storage.k8s.io", "StorageClass", "PersistentVolume", "spec/storageClassName"),
    ("storage.k8s.io", "StorageClass", "PersistentVolumeClaim", "spec/storageClassName"),
    ("storage.k8s.io", "StorageClass", "StatefulSet", "spec/volumeClaimTemplates/spec/storageClassName"),
    ("networking.k8s.io", "IngressClass", "Ingress", "spec/ingressClassName"),
    (
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "spec/policyName",
    ),
];

/// The kind, and the field with a map of `kind` and `name`; without `kind` it is the name of a Service.
const MAPS: &[(&str, &str)] = &[
    ("RoleBinding", "roleRef"),
    ("RoleBinding", "subjects"),
    ("ClusterRoleBinding", "roleRef"),
    ("ClusterRoleBinding", "subjects"),
    ("HorizontalPodAutoscaler", "spec/scaleTargetRef"),
    ("APIService", "spec/service"),
    ("ValidatingWebhookConfiguration", "webhooks/clientConfig/service"),
    ("MutatingWebhookConfiguration", "webhooks/clientConfig/service"),
    ("CustomResourceDefinition", "spec/conversion/webhook/clientConfig/service"),
];

/// Changes the references of an object to renamed ones. The result is their number.
pub(super) fn rename_references(resource: &mut Resource, renames: &Renames) -> usize {
    let namespace = resource.namespace().to_owned();
    let kind = resource.kind().to_owned();
    let in_pod = PODS.iter().find(|(pod, _)| *pod == kind).into_iter().flat_map(|(_, path)| {
        IN_PODS.iter().map(move |(group, kind, field)| (*group, *kind, format!("{path}/{field}")))
    });
    let elsewhere = ELSEWHERE.iter().filter(|(_, _, referrer, _)| *referrer == kind);
    let elsewhere = elsewhere.map(|(group, kind, _, path)| (*group, *kind, (*path).to_owned()));
    let mut count = 0;
    for (group, kind, path) in in_pod.chain(elsewhere).collect::<Vec<_>>() {
        visit(&mut resource.value, &path, &mut |field| {
            let new = field.as_str().and_then(|name| new_name(renames, Some(group), kind, &namespace, name));
            if let Some(new) = new {
                *field = new.into();
                count += 1;
            }
        });
    }
    for (_, path) in MAPS.iter().filter(|(referrer, _)| *referrer == kind) {
        visit(&mut resource.value, path, &mut |map| count += usize::from(rename_in_map(map, renames, &namespace)));
    }
    count + usize::from(rename_dependency(resource, renames))
}

fn visit(value: &mut Value, path: &str, change: &mut dyn FnMut(&mut Value)) {
    FieldSpec::of(["", "", "", path], false).visit(value, &Value::Null, change);
}

/// The new name of an object of a kind. References to cluster-scoped objects are from any namespace.
fn new_name(renames: &Renames, group: Option<&str>, kind: &str, namespace: &str, name: &str) -> Option<String> {
    let found = renames.iter().find(|([of_group, of_kind, of_namespace, of_name], _)| {
        let is_in_namespace = of_namespace == namespace || is_cluster_scoped(of_group, of_kind);
        group.is_none_or(|group| group == of_group) && of_kind == kind && is_in_namespace && of_name == name
    });
    found.map(|(_, new)| new.clone())
}

fn rename_in_map(map: &mut Value, renames: &Renames, namespace: &str) -> bool {
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    let (kind, name) = (text("kind").unwrap_or("Service"), text("name").unwrap_or_default());
    let new = new_name(renames, None, kind, text("namespace").unwrap_or(namespace), name);
    match new {
        Some(new) => {
            map["name"] = new.into();
            true
        }
        None => false,
    }
}

fn rename_dependency(resource: &mut Resource, renames: &Renames) -> bool {
    let Some(dependency) = resource.annotation(DEPENDS_ON) else { return false };
    let segments: Vec<&str> = dependency.split('/').collect();
    let (group, namespace, kind, name) = match segments.as_slice() {
        [group, "namespaces", namespace, kind, name] => (*group, *namespace, *kind, *name),
        [group, kind, name] => (*group, "", *kind, *name),
        _ => return false,
    };
    // An object without namespace is in the default one.
    let new = new_name(renames, Some(group), kind, namespace, name)
        .or_else(|| new_name(renames, Some(group), kind, "", name).filter(|_| namespace == "default"));
    let Some(new) = new else { return false };
    let changed = dependency.strip_suffix(name).map(|start| format!("{start}{new}"));
    resource.value["metadata"]["annotations"][DEPENDS_ON] = changed.into();
    true
}
