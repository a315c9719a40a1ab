//! State moves: records that change their ids before the first call.
//!
//! Start at [`records`]. Where the record of one object replaces that of another, the other record has to be written
//! under its new id first. Otherwise an interruption would lose it. When two ids exchange their objects, one record is
//! kept under a temporary id, which names its cluster.

use std::collections::{BTreeMap, HashMap, HashSet};

use stoa_engine::{Clusters, ObjectRef, Resource, ResourceId, State, StateResource, cluster::id_in};

use crate::{
    execute::Execution,
    observer::{Abandoned, Observer},
    recovery,
    results::{dropped, noted, report},
};

/// Records to report before the first call. Each part follows once the one before it is recorded.
#[derive(Debug, Default)]
pub(crate) struct StateMoves {
    /// Records under ids without one, and temporary records.
    new: Vec<StateResource>,
    /// Records that replace one whose object is recorded elsewhere by then.
    over: Vec<StateResource>,
    /// Temporary records of this try or an earlier one, whose objects are recorded in place by then.
    dropped: Vec<StateResource>,
}

/// The records of ids that move or exchange their objects, and of objects that lost calls created beside recorded ones.
/// At no point does the only record of an object get lost.
pub(crate) fn records(
    execution: &Execution<'_>,
    clusters: &Clusters,
    state: &State,
    finished: &HashSet<&ResourceId>,
) -> StateMoves {
    let before: HashSet<&ResourceId> =
        execution.state.resources.iter().map(|it| &it.id).chain(state.open.iter().map(|it| &it.id)).collect();
    let beside = state.resources.iter().filter(|record| !before.contains(&record.id));
    let beside: Vec<StateResource> = beside.cloned().collect();
    let actions = &execution.plan.actions;
    let given: HashMap<&ResourceId, &ResourceId> = actions
        .iter()
        .filter(|planned| planned.action.keeps())
        .filter_map(|planned| Some((&planned.id, planned.kept_as.as_ref()?)))
        .collect();
    if given.is_empty() {
        return StateMoves { new: beside, ..StateMoves::default() };
    }
    let ids: HashSet<&ResourceId> = actions.iter().map(|planned| &planned.id).collect();
    let recorded: HashMap<&ResourceId, &StateResource> = state.resources.iter().map(|it| (&it.id, it)).collect();
    let wanted: HashMap<&ResourceId, &Resource> = execution.spec.resources.iter().map(|it| (&it.id, it)).collect();
    let is_at_target = |record: &StateResource| {
        let resource = wanted.get(&record.id).copied();
        resource.is_some_and(|resource| clusters.is_at_target(record, resource))
    };
    // All records of the plan have an action. An earlier try added the others: temporary ones, and those beside
    // recorded ones.
    let others: Vec<&StateResource> =
        state.resources.iter().filter(|record| before.contains(&record.id) && !ids.contains(&record.id)).collect();
    let mut other_of: HashMap<(&str, ObjectRef), &StateResource> = HashMap::new();
    for &other in &others {
        if let Some(object) = recovery::object(clusters, other) {
            other_of.entry(object).or_insert(other);
        }
    }
    let copies = actions.iter().filter(|planned| !finished.contains(&planned.id)).filter_map(|planned| {
        let id = &planned.id;
        let from = planned.recorded_as.as_ref().filter(|from| given.get(*from).is_some_and(|to| *to == id))?;
        // It has its own, from an earlier try, or which is to be removed first.
        let has_own = |own: &StateResource| !given.contains_key(id) || is_at_target(own);
        if recorded.get(id).copied().is_some_and(has_own) {
            return None;
        }
        let resource = wanted.get(id).copied()?;
        // Under the other id may be another object since an earlier try.
        let record = recorded.get(from).copied().filter(|record| !is_at_target(record));
        let aside = || other_of.get(&recovery::wanted_object(clusters, resource)?).copied();
        let record = record.or_else(aside)?;
        let cluster = if clusters.is_empty() { record.cluster.as_str() } else { clusters.of_wanted(resource) };
        Some(record.clone().under(id.clone()).in_cluster(cluster.to_owned()))
    });
    let (over, new): (Vec<StateResource>, Vec<StateResource>) =
        copies.partition(|copy| recorded.contains_key(&copy.id));
    let new_ids: HashSet<&ResourceId> = new.iter().map(|copy| &copy.id).collect();
    let aside: Vec<StateResource> = over
        .iter()
        .filter_map(|copy| recorded.get(&copy.id).copied())
        .filter(|record| given.get(&record.id).is_none_or(|to| !new_ids.contains(to)))
        .map(|record| record.clone().under(id_in(&record.id, clusters.of_recorded(record))))
        .filter(|aside| !ids.contains(&aside.id))
        .filter(|aside| recorded.get(&aside.id).is_none_or(|known| known.uid() == aside.uid()))
        .collect();
    let copied: HashSet<&ResourceId> = over.iter().chain(&new).map(|copy| &copy.id).collect();
    let left = state.resources.iter().filter(|record| ids.contains(&record.id) && !copied.contains(&record.id));
    let which = |record: &StateResource| {
        let uid = record.uid()?.to_owned();
        recovery::object(clusters, record).map(|(place, object)| (uid, place.to_owned(), object))
    };
    let kept: HashSet<(String, String, ObjectRef)> = left.chain(&over).chain(&new).filter_map(which).collect();
    let is_kept = |record: &&StateResource| which(record).is_some_and(|object| kept.contains(&object));
    let told: HashSet<&ResourceId> = aside.iter().map(|aside| &aside.id).collect();
    let others = others.into_iter().filter(|record| !told.contains(&record.id));
    let dropped = aside.iter().chain(others).filter(is_kept).cloned().collect();
    StateMoves { new: beside.into_iter().chain(new).chain(aside).collect(), over, dropped }
}

impl StateMoves {
    /// Has them recorded.
    pub(crate) async fn report(&self, observer: &dyn Observer) -> Result<(), Abandoned> {
        for records in [&self.new, &self.over] {
            report(observer, records.iter().cloned().map(noted)).await?;
        }
        report(observer, self.dropped.iter().map(dropped)).await
    }

    /// Applies the reported records to the state.
    pub(crate) fn take_effect(self, state: &mut State) {
        let Self { new, over, dropped } = self;
        // Of two records under one id, the later report wins.
        let told: BTreeMap<ResourceId, StateResource> =
            new.into_iter().chain(over).map(|record| (record.id.clone(), record)).collect();
        let dropped: HashSet<ResourceId> = dropped.into_iter().map(|record| record.id).collect();
        state.resources.retain(|record| !told.contains_key(&record.id));
        state.resources.extend(told.into_values());
        state.resources.retain(|record| !dropped.contains(&record.id));
    }
}
