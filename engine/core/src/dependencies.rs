//! Dependencies of each resource: `dependsOn`, references, and the order that Kubernetes needs.
//!
//! Kubernetes needs a namespace before its objects, a CustomResourceDefinition or APIService before the objects of its
//! kinds, and admission prerequisites before the objects that name them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::cluster::Clusters;
use crate::definitions::Definitions;
use crate::graph::{Cycle, Graph};
use crate::object::ObjectRef;
use crate::prerequisites;
use crate::problem::{Problem, reason};
use crate::resolve;
use crate::spec::{Resource, ResourceId, ResourceType};

/// Ids, and the ids that come before each.
pub(crate) type Before = BTreeMap<ResourceId, BTreeSet<ResourceId>>;

/// The explicit dependencies of each valid resource: `dependsOn`, and references.
pub(crate) fn written(resources: &[&Resource]) -> Result<Before, Vec<Problem>> {
    let known: HashSet<&str> = resources.iter().map(|resource| resource.id.0.as_str()).collect();
    let before: Before = resources
        .iter()
        .map(|resource| {
            let (references, _) = resolve::references(&resource.attributes, &|id| known.contains(id));
            let referred = references.into_iter().map(|reference| reference.id);
            (resource.id.clone(), resource.depends_on.iter().cloned().chain(referred).collect())
        })
        .collect();
    Graph::new(&before).order().map_err(|cycles| cycles.iter().map(cycle_problem).collect::<Vec<_>>())?;
    Ok(before)
}

/// The direct dependencies of each resource: explicit ones, and those that Kubernetes needs.
pub(crate) fn dependencies(mut before: Before, resources: &[&Resource], clusters: &Clusters) -> Before {
    let mut inferred = Vec::new();
    for (from, to) in implied(resources, clusters) {
        if before.get_mut(&from).is_some_and(|known| known.insert(to.clone())) {
            inferred.push((from, to));
        }
    }
    // Explicit dependencies win over implied ones.
    break_cycles(&mut before, &inferred.into_iter().collect());
    before
}

fn cycle_problem(cycle: &Cycle) -> Problem {
    let problem = Problem::new(reason::CYCLIC_DEPENDENCY, format!("resources depend on each other: {cycle}"));
    match cycle.path.first() {
        Some(first) => problem.of(first),
        None => problem,
    }
}

/// Dependencies that Kubernetes needs: namespace, definition, and admission prerequisites, within the same Spec and server.
fn implied(resources: &[&Resource], clusters: &Clusters) -> Vec<(ResourceId, ResourceId)> {
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

/// Takes edges out, of those that may go, until no cycle is left that one of them is part of.
pub(crate) fn break_cycles(before: &mut Before, removable: &BTreeSet<(ResourceId, ResourceId)>) {
    if removable.is_empty() {
        return;
    }
    for (from, to) in Graph::new(before).contradicting(removable) {
        if let Some(known) = before.get_mut(&from) {
            known.remove(&to);
        }
    }
}
