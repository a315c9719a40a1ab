//! Dependencies that Kubernetes needs, although nothing in the Spec says so.
//!
//! Kubernetes needs a namespace before its objects, a CustomResourceDefinition or APIService before the objects of its
//! kinds, and admission prerequisites before the objects that name them.

use std::collections::HashMap;

use stoa_engine::{Clusters, ObjectRef, Resource, ResourceId, ResourceType};

use crate::definitions::Definitions;
use crate::prerequisites;

/// Dependencies that Kubernetes needs: namespace, definition, and admission prerequisites, within the same Spec and server.
pub(crate) fn implied(resources: &[&Resource], clusters: &Clusters) -> Vec<(ResourceId, ResourceId)> {
    let objects: Vec<_> = resources
        .iter()
        .filter_map(|resource| Some((resource, clusters.server(clusters.of_wanted(resource)), object_of(resource)?)))
        .collect();
    let mut namespaces = HashMap::new();
    let mut limits: HashMap<_, Vec<&ResourceId>> = HashMap::new();
    let mut named = HashMap::new();
    let definitions = Definitions::of(resources.iter().copied(), clusters);
    for (resource, cluster, object) in &objects {
        let (ObjectRef { group, kind, namespace, name, .. }, id) = (object, &resource.id);
        if object.is_namespace() {
            namespaces.insert((*cluster, name.as_str()), id);
        } else if group.is_empty() && kind == "LimitRange" {
            limits.entry((*cluster, namespace.as_str())).or_default().push(id);
        } else if let Some(prerequisite) = prerequisites::named(object) {
            named.insert((*cluster, prerequisite), id);
        }
    }
    let mut implied = Vec::new();
    for (resource, cluster, object) in &objects {
        let defining = definitions.before(cluster, object);
        let namespace = namespaces.get(&(*cluster, object.namespace.as_str())).copied();
        let limits = limits.get(&(*cluster, object.namespace.as_str())).filter(|_| prerequisites::is_limited(object));
        let looked_up = prerequisites::of(object, &resource.attributes);
        let looked_up = looked_up.into_iter().filter_map(|it| named.get(&(*cluster, it)).copied());
        let before =
            namespace.into_iter().chain(defining).chain(limits.into_iter().flatten().copied()).chain(looked_up);
        let before = before.filter(|to| **to != resource.id);
        implied.extend(before.map(|to| (resource.id.clone(), to.clone())));
    }
    implied
}

fn object_of(resource: &Resource) -> Option<ObjectRef> {
    ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)
}
