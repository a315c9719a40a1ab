//! What each resource of a Spec depends on: what `dependsOn` says, what its references say, and
//! what Kubernetes demands, which is a namespace before what is in it and a
//! CustomResourceDefinition before its instances.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::cluster::Clusters;
use crate::graph::{Cycle, Graph};
use crate::object::ObjectRef;
use crate::problem::{Problem, reason};
use crate::resolve;
use crate::spec::{Resource, ResourceId, ResourceType};

/// Ids, and the ids that come before each.
pub(crate) type Before = BTreeMap<ResourceId, BTreeSet<ResourceId>>;

/// The direct dependencies of every resource. The resources are valid.
///
/// # Errors
///
/// One problem for every group of resources that depend on each other.
pub(crate) fn dependencies(resources: &[&Resource], clusters: &Clusters) -> Result<Before, Vec<Problem>> {
    let known: HashSet<&str> = resources.iter().map(|resource| resource.id.0.as_str()).collect();
    let mut before: Before = resources
        .iter()
        .map(|resource| {
            let (references, _) = resolve::occurrences(&resource.attributes, &|id| known.contains(id));
            let referred = references.into_iter().map(|occurrence| occurrence.reference.id);
            (resource.id.clone(), resource.depends_on.iter().cloned().chain(referred).collect())
        })
        .collect();
    Graph::new(&before).order().map_err(|cycles| cycles.iter().map(cycle_problem).collect::<Vec<_>>())?;
    let mut inferred = Vec::new();
    for (from, to) in implied(resources, clusters) {
        if before.get_mut(&from).is_some_and(|known| known.insert(to.clone())) {
            inferred.push((from, to));
        }
    }
    // What people wrote wins over what is only implied.
    break_cycles(&mut before, &inferred.into_iter().collect());
    Ok(before)
}

fn cycle_problem(cycle: &Cycle) -> Problem {
    let problem = Problem::new(reason::CYCLIC_DEPENDENCY, format!("resources depend on each other: {cycle}"));
    match cycle.path.first() {
        Some(first) => problem.of(first),
        None => problem,
    }
}

/// An object depends on its namespace and, if it is a custom resource, on its definition, where
/// these are in the same Spec and go to the same cluster.
fn implied(resources: &[&Resource], clusters: &Clusters) -> Vec<(ResourceId, ResourceId)> {
    let objects: Vec<_> = resources
        .iter()
        .filter(|resource| resource.kind == ResourceType::Kubernetes)
        .filter_map(|resource| Some((resource, ObjectRef::of(&resource.attributes)?)))
        .collect();
    let mut namespaces = HashMap::new();
    let mut definitions = HashMap::new();
    for (resource, object) in &objects {
        let cluster = clusters.of_wanted(resource);
        if object.is_namespace() {
            namespaces.insert((cluster, object.name.clone()), &resource.id);
        } else if object.is_custom_resource_definition() {
            let text = |pointer: [&str; 2]| {
                let value = resource.attributes.get("spec")?.get(pointer[0])?;
                if pointer[1].is_empty() { value.as_str() } else { value.get(pointer[1])?.as_str() }
            };
            if let (Some(group), Some(kind)) = (text(["group", ""]), text(["names", "kind"])) {
                definitions.insert((cluster, group.to_owned(), kind.to_owned()), &resource.id);
            }
        }
    }
    let mut implied = Vec::new();
    for (resource, object) in objects {
        let cluster = clusters.of_wanted(resource);
        let namespace = namespaces.get(&(cluster, object.namespace));
        let definition = definitions.get(&(cluster, object.group, object.kind));
        implied.extend([namespace, definition].into_iter().flatten().map(|to| (resource.id.clone(), (*to).clone())));
    }
    implied
}

/// Takes edges out, of those that may go, until no cycle is left that one of them is part of.
pub(crate) fn break_cycles(before: &mut Before, removable: &BTreeSet<(ResourceId, ResourceId)>) {
    loop {
        let mut removed = false;
        for cycle in Graph::new(before).cycles() {
            let next = cycle.path.iter().skip(1).chain(cycle.path.first());
            for (from, to) in cycle.path.iter().zip(next) {
                if removable.contains(&(from.clone(), to.clone())) {
                    removed |= before.get_mut(from).is_some_and(|known| known.remove(to));
                    break;
                }
            }
        }
        if !removed {
            return;
        }
    }
}
