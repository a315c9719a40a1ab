//! Objects without a namespace although their kind is namespaced: a warning for deployments without a cluster, such as to Git.

use stoa_engine::object::ObjectRef;
use stoa_engine::spec::{ResourceType, Spec};

use crate::kinds;

/// How many ids a warning names.
const NAMED: usize = 5;

/// Whether an object has no namespace although its kind is a built-in, namespaced one.
pub fn lacks_namespace(object: &ObjectRef) -> bool {
    object.namespace.is_empty() && kinds::is_namespaced(&object.group, &object.kind)
}

/// The warning about all objects of a Spec without a namespace.
pub fn warning(spec: &Spec) -> Option<String> {
    let objects = spec.resources.iter().filter(|resource| resource.kind == ResourceType::Kubernetes);
    let lacking: Vec<&str> = objects
        .filter(|resource| ObjectRef::of(&resource.attributes).is_some_and(|object| lacks_namespace(&object)))
        .map(|resource| resource.id.0.as_str())
        .collect();
    let (first, rest) = (lacking.iter().take(NAMED).copied().collect::<Vec<_>>(), lacking.len().saturating_sub(NAMED));
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    (!lacking.is_empty()).then(|| {
        format!(
            "{}{more}: attributes.metadata.namespace is missing; the tool that applies the object uses its default \
             namespace, usually `default`",
            first.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(objects: &[(&str, &str, Option<&str>)]) -> Spec {
        let resource = |(position, (api_version, kind, namespace)): (usize, &(&str, &str, Option<&str>))| {
            let name = format!("n{position}");
            json!({"id": format!("{api_version}:{kind}:{name}"), "type": "Kubernetes", "attributes": {
                "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}})
        };
        let resources: Vec<_> = objects.iter().enumerate().map(resource).collect();
        serde_json::from_value(json!({ "resources": resources })).unwrap()
    }

    #[test]
    fn missing_namespace_of_built_in_kinds_is_reported() {
        let quiet = [
            ("v1", "ConfigMap", Some("shop")),
            ("v1", "Namespace", None),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", None),
            ("example.com/v1", "ConfigMap", None),
            ("storage.k8s.io/v1", "StorageClass", None),
            ("v1", "ConfigMap", Some("$kusion_path.v1:Namespace:n1.metadata.name")),
        ];
        assert_eq!(warning(&spec(&quiet)), None);
        let one = warning(&spec(&[("apps/v1", "Deployment", None)])).unwrap();
        assert!(one.starts_with("apps/v1:Deployment:n0: attributes.metadata.namespace is missing; "), "{one}");
        assert!(warning(&spec(&[("v1", "ConfigMap", Some(""))])).is_some());
        let many = warning(&spec(&[("v1", "ConfigMap", None); 7])).unwrap();
        assert!(many.starts_with("v1:ConfigMap:n0, v1:ConfigMap:n1, "), "{many}");
        assert!(many.contains("v1:ConfigMap:n4 and 2 more: "), "{many}");
    }
}
