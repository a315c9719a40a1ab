//! Cluster-scoped kinds of Kubernetes: built-in ones, and those of CustomResourceDefinitions.

use std::collections::HashMap;

use serde_json::{Map, Value};
use stoa_engine::{Clusters, ObjectRef, Resource, ResourceType, Scopes, Spec};

use crate::definitions::Definition;
use crate::kinds::{cluster_scoped, is_built_in};

/// The built-in kinds, and those that CustomResourceDefinitions among some objects define.
pub fn scopes<'a>(objects: impl IntoIterator<Item = &'a Map<String, Value>>) -> Scopes {
    let says_so = |object: &&Map<String, Value>| {
        object.get("spec").and_then(|spec| spec.get("scope")).is_some_and(|scope| scope == "Cluster")
    };
    let defined = objects.into_iter().filter(says_so);
    Scopes::NONE.with(cluster_scoped()).with(defined.filter_map(|object| Definition::of(object)?.group_and_kind()))
}

/// Wanted objects by their server, and by group, kind and name, each with its namespace.
type Named<'c, 's> = HashMap<(&'c str, [String; 3]), Vec<(String, &'s Resource)>>;

/// Wanted objects of kinds with unknown scope that have the same kind and name in different namespaces. They are one object
/// if the kind is cluster-scoped.
pub(crate) fn of_unknown_scope<'s>(spec: &'s Spec, clusters: &Clusters) -> Vec<&'s Resource> {
    let mut found = Named::new();
    for resource in spec.resources.iter().filter(|resource| resource.kind == ResourceType::Kubernetes) {
        let Some(object) = ObjectRef::of(&resource.attributes) else { continue };
        if is_built_in(&object.group) || clusters.is_cluster_scoped(&object.group, &object.kind) {
            continue;
        }
        let server = clusters.server(clusters.of_wanted(resource));
        let ObjectRef { group, kind, name, namespace, .. } = object;
        found.entry((server, [group, kind, name])).or_default().push((namespace, resource));
    }
    let several = found.into_values().filter(|all| all.iter().any(|(namespace, _)| *namespace != all[0].0));
    several.flatten().map(|(_, resource)| resource).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn built_in_and_defined_kinds_are_known() {
        let crd = |kind: &str, scope: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{kind}s.example.com")},
                "spec": {"group": "example.com", "names": {"kind": kind}, "scope": scope}})
        };
        let objects = [crd("Cell", "Cluster"), crd("Widget", "Namespaced")];
        let scopes = scopes(objects.iter().filter_map(Value::as_object));
        for (group, kind, expected) in [
            ("rbac.authorization.k8s.io", "ClusterRole", true),
            ("storage.k8s.io", "StorageClass", true),
            ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", true),
            ("", "ConfigMap", false),
            ("example.com", "Cell", true),
            ("example.com", "Widget", false),
            ("other.example.com", "Cell", false),
        ] {
            assert_eq!(scopes.is_cluster_scoped(group, kind), expected, "{group} {kind}");
        }
    }
}
