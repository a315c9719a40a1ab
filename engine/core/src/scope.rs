//! Cluster-scoped kinds, whose objects have no namespace.
//!
//! A server drops the namespace of such an object, so that manifests with and without one are of the same object.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::definitions::Definition;
use crate::kinds::is_cluster_scoped;
use crate::object::ObjectRef;

/// Known cluster-scoped kinds: built-in ones, those of CustomResourceDefinitions, and those that a server reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// Groups and kinds.
    custom: BTreeSet<(String, String)>,
}

impl Scopes {
    /// The built-in kinds.
    pub const BUILT_IN: Self = Self { custom: BTreeSet::new() };

    /// The same with the kinds that CustomResourceDefinitions among some objects define.
    pub fn defined<'a>(objects: impl IntoIterator<Item = &'a Map<String, Value>>) -> Self {
        let says_so = |object: &&Map<String, Value>| {
            object.get("spec").and_then(|spec| spec.get("scope")).is_some_and(|scope| scope == "Cluster")
        };
        let objects = objects.into_iter().filter(says_so);
        Self { custom: objects.filter_map(|object| Definition::of(object)?.group_and_kind()).collect() }
    }

    /// Adds kinds, as groups and kinds.
    pub fn extend(&mut self, kinds: impl IntoIterator<Item = (String, String)>) {
        self.custom.extend(kinds);
    }

    /// Whether a kind is known to be cluster-scoped.
    pub fn is_cluster_scoped(&self, group: &str, kind: &str) -> bool {
        is_cluster_scoped(group, kind) || self.custom.iter().any(|known| known.0 == group && known.1 == kind)
    }

    /// The object without a namespace that its server drops.
    #[must_use]
    pub fn scoped(&self, mut object: ObjectRef) -> ObjectRef {
        if !object.namespace.is_empty() && self.is_cluster_scoped(&object.group, &object.kind) {
            object.namespace.clear();
        }
        object
    }
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
        let scopes = Scopes::defined(objects.iter().filter_map(Value::as_object));
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
