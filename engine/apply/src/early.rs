//! What is on record before anything is called for: by its turn it may be too late.
//!
//! Start at [`records`]. Where the record of one object takes the place of that of another, the other has to be on record
//! elsewhere by then, whatever comes first. Of two that change places one is put aside, under an id that says where it is.

use std::collections::{BTreeMap, HashMap, HashSet};

use stoa_engine::{Clusters, ObjectRef, Resource, ResourceId, State, StateResource, cluster::id_in};

use crate::{
    execute::Execution,
    lost,
    observer::{Abandoned, Observer},
    results::{dropped, noted, tell},
};

/// What is told before anything is called for, each part once the one before it is on record.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// Where nothing is on record yet, and what is put aside.
    new: Vec<StateResource>,
    /// Where something is whose object is on record elsewhere by then.
    over: Vec<StateResource>,
    /// What was put aside, by this try or an earlier one, and is on record where it belongs by then.
    dropped: Vec<StateResource>,
}

/// The objects of ids that go elsewhere or change places, under the ids that have them from now on, and what lost calls made
/// beside what is on record. Whatever comes first and does not get to its end, nothing takes the place of the only record of an
/// object.
pub(crate) fn records(
    execution: &Execution<'_>,
    clusters: &Clusters,
    state: &State,
    finished: &HashSet<&ResourceId>,
) -> Early {
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
        return Early { new: beside, ..Early::default() };
    }
    let ids: HashSet<&ResourceId> = actions.iter().map(|planned| &planned.id).collect();
    let recorded: HashMap<&ResourceId, &StateResource> = state.resources.iter().map(|it| (&it.id, it)).collect();
    let wanted: HashMap<&ResourceId, &Resource> = execution.spec.resources.iter().map(|it| (&it.id, it)).collect();
    let is_in_place = |record: &StateResource| {
        let resource = wanted.get(&record.id).copied();
        resource.is_some_and(|resource| clusters.is_in_place(record, resource))
    };
    // All that was on record for the plan is in it: an earlier try put the others aside, or recorded them beside what was.
    let others: Vec<&StateResource> =
        state.resources.iter().filter(|record| before.contains(&record.id) && !ids.contains(&record.id)).collect();
    let mut other_of: HashMap<(&str, ObjectRef), &StateResource> = HashMap::new();
    for &other in &others {
        if let Some(object) = lost::object(clusters, other) {
            other_of.entry(object).or_insert(other);
        }
    }
    let copies = actions.iter().filter(|planned| !finished.contains(&planned.id)).filter_map(|planned| {
        let id = &planned.id;
        let from = planned.recorded_as.as_ref().filter(|from| given.get(*from).is_some_and(|to| *to == id))?;
        // It has its own, from an earlier try, or which is to be removed first.
        let has_own = |own: &StateResource| !given.contains_key(id) || is_in_place(own);
        if recorded.get(id).copied().is_some_and(has_own) {
            return None;
        }
        let resource = wanted.get(id).copied()?;
        // Under the other id may be another object since an earlier try.
        let record = recorded.get(from).copied().filter(|record| !is_in_place(record));
        let aside = || other_of.get(&lost::wanted_object(clusters, resource)?).copied();
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
        lost::object(clusters, record).map(|(place, object)| (uid, place.to_owned(), object))
    };
    let kept: HashSet<(String, String, ObjectRef)> = left.chain(&over).chain(&new).filter_map(which).collect();
    let is_kept = |record: &&StateResource| which(record).is_some_and(|object| kept.contains(&object));
    let told: HashSet<&ResourceId> = aside.iter().map(|aside| &aside.id).collect();
    let others = others.into_iter().filter(|record| !told.contains(&record.id));
    let dropped = aside.iter().chain(others).filter(is_kept).cloned().collect();
    Early { new: beside.into_iter().chain(new).chain(aside).collect(), over, dropped }
}

impl Early {
    /// Has them recorded.
    pub(crate) async fn tell(&self, observer: &dyn Observer) -> Result<(), Abandoned> {
        for records in [&self.new, &self.over] {
            tell(observer, records.iter().cloned().map(noted)).await?;
        }
        tell(observer, self.dropped.iter().map(dropped)).await
    }

    /// Brings the state to what is on record once they were told.
    pub(crate) fn take_effect(self, state: &mut State) {
        let Self { new, over, dropped } = self;
        // Of two under one id the one that is told later.
        let told: BTreeMap<ResourceId, StateResource> =
            new.into_iter().chain(over).map(|record| (record.id.clone(), record)).collect();
        let dropped: HashSet<ResourceId> = dropped.into_iter().map(|record| record.id).collect();
        state.resources.retain(|record| !told.contains_key(&record.id));
        state.resources.extend(told.into_values());
        state.resources.retain(|record| !dropped.contains(&record.id));
    }
}
