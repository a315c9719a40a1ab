//! The order of actions, by dependencies of the Spec and of the records.
//!
//! Elsewhere: `stage` has the order of kinds without dependencies.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::dependencies::break_cycles;
use crate::graph::{Before, Graph};
use crate::plan::PlannedAction;
use crate::spec::ResourceId;
use crate::state::StateResource;

/// Orders the actions: kept resources after their dependencies, deletions after their recorded dependents. The first id of
/// each pair in `later` waits for the second.
pub(super) fn ordered(
    mut before: Before,
    mut actions: BTreeMap<ResourceId, PlannedAction>,
    recorded: &BTreeMap<&ResourceId, &StateResource>,
    moved: &[(&ResourceId, &ResourceId)],
    superseded: &HashMap<&ResourceId, &ResourceId>,
    later: &[(ResourceId, ResourceId)],
) -> Vec<PlannedAction> {
    let mut removable = BTreeSet::new();
    // Unwanted resources have no dependencies of their own.
    for id in actions.keys() {
        before.entry(id.clone()).or_default();
    }
    // The record under a former id is dropped last: the action on the object may fail, and a record has to remain.
    // Dependents of the former id depend on the object.
    let last_id = |id| superseded.get(id).copied();
    let goes = |id: &ResourceId| actions.get(id).is_some_and(|action| !action.action.keeps());
    let after = recorded
        .values()
        .flat_map(|prior| prior.depends_on.iter().map(|dependency| (dependency, &prior.id)))
        .flat_map(|(gone, dependent)| [Some(gone), last_id(gone)].into_iter().flatten().map(move |it| (it, dependent)))
        .chain(moved.iter().copied())
        .chain(superseded.iter().map(|(old, last)| (*old, *last)))
        .filter(|&(gone, _)| goes(gone))
        .chain(later.iter().map(|(id, first)| (id, first)));
    for (id, first) in after {
        if id != first
            && actions.contains_key(first)
            && before.get_mut(id).is_some_and(|known| known.insert(first.clone()))
        {
            removable.insert((id.clone(), first.clone()));
        }
    }
    // Records of different runs may contradict each other, and what is wanted; all of it still has to happen.
    break_cycles(&mut before, &removable);
    let graph = Graph::new(&before).reduced().expect("wanted resources form no cycle, and others were broken");
    let order = graph.order().expect("a reduced graph has the cycles of the whole one: none");
    order
        .into_iter()
        .filter_map(|id| {
            let mut action = actions.remove(&id)?;
            action.after = graph.before(&id);
            Some(action)
        })
        .collect()
}
