//! What is on record before anything is called for: by its turn it may be too late.

use std::collections::{HashMap, HashSet};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use stoa_engine::{Clusters, Resource, ResourceId, State, StateResource};

use crate::{
    call::noted,
    execute::Execution,
    observer::{Abandoned, Observer},
};

/// The objects of ids that go elsewhere or change places, under the ids that have them from now on, and what lost calls made
/// beside what is on record. Whatever comes first and does not get to its end, nothing takes the place of the only record of an
/// object.
pub(crate) fn records(
    execution: &Execution<'_>,
    clusters: &Clusters,
    state: &State,
    finished: &HashSet<&ResourceId>,
) -> Vec<StateResource> {
    let before: HashSet<&ResourceId> =
        execution.state.resources.iter().map(|it| &it.id).chain(state.open.iter().map(|it| &it.id)).collect();
    let beside = state.resources.iter().filter(|record| !before.contains(&record.id));
    let mut early: Vec<StateResource> = beside.cloned().collect();
    let actions = &execution.plan.actions;
    let given: HashMap<&ResourceId, &ResourceId> = actions
        .iter()
        .filter(|planned| planned.action.keeps())
        .filter_map(|planned| Some((&planned.id, planned.kept_as.as_ref()?)))
        .collect();
    if given.is_empty() {
        return early;
    }
    let recorded: HashMap<&ResourceId, &StateResource> = state.resources.iter().map(|it| (&it.id, it)).collect();
    let wanted: HashMap<&ResourceId, &Resource> = execution.spec.resources.iter().map(|it| (&it.id, it)).collect();
    let is_in_place = |record: &StateResource| {
        let resource = wanted.get(&record.id).copied();
        resource.is_some_and(|resource| clusters.is_in_place(record, resource))
    };
    early.extend(actions.iter().filter(|planned| !finished.contains(&planned.id)).filter_map(|planned| {
        let id = &planned.id;
        let from = planned.recorded_as.as_ref().filter(|from| given.get(*from).is_some_and(|to| *to == id))?;
        // It has its own, from an earlier try, or which is to be removed first.
        let has_own = |own: &StateResource| !given.contains_key(id) || is_in_place(own);
        if recorded.get(id).copied().is_some_and(has_own) {
            return None;
        }
        // Under the other id may be another object since an earlier try.
        let record = recorded.get(from).copied().filter(|record| !is_in_place(record))?;
        let resource = wanted.get(id).copied()?;
        let cluster = if clusters.is_empty() { record.cluster.as_str() } else { clusters.of_wanted(resource) };
        Some(StateResource { id: id.clone(), cluster: cluster.to_owned(), ..record.clone() })
    }));
    early
}

/// Has them recorded.
pub(crate) async fn tell(observer: &dyn Observer, records: &[StateResource]) -> Result<(), Abandoned> {
    let mut telling: FuturesUnordered<_> =
        records.iter().map(|record| observer.result(noted(record.clone()))).collect();
    while let Some(told) = telling.next().await {
        told?;
    }
    Ok(())
}
