//! Dependencies of each resource: `dependsOn`, references, and the order that the [rules](KindRules) of kinds imply.

use std::collections::{BTreeSet, HashSet};

use crate::cluster::Clusters;
use crate::graph::{Before, Cycle, Graph};
use crate::kind_rules::KindRules;
use crate::problem::{Problem, reason};
use crate::resolve;
use crate::spec::{Resource, ResourceId};

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

/// The direct dependencies of each resource: explicit ones, and those that the rules of kinds imply.
pub(crate) fn dependencies(
    mut before: Before,
    resources: &[&Resource],
    clusters: &Clusters,
    rules: &dyn KindRules,
) -> Before {
    let mut inferred = Vec::new();
    for (from, to) in rules.implied(resources, clusters) {
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
