//! Calls that may have been made and whose results nobody knows: what became of them is found out by looking, before
//! anything else is decided.

use std::collections::BTreeMap;

use stoa_engine::{
    Action, Clusters, ObjectRef, OpenCall, Problem, ResourceId, ResourceType, Sensitive, Spec, State, StateResource,
    planner::unknown_state,
};
use stoa_runtime::{Found, LostCall, Runtime, RuntimeError};

use crate::planning::problem;

/// Why it cannot be found out.
pub(crate) enum Undecided {
    /// The infrastructure cannot be read; trying again may help.
    Runtime(RuntimeError),
    /// Something is wrong with some of them.
    Problems(Vec<Problem>),
}

/// The state with what open calls left behind. What bears our mark is recorded as ours, so that it is brought to what
/// is wanted, or removed; what others made in place of what is recorded is not. The open calls stay in the state, since
/// whoever keeps it has to hear how each of them ended.
pub(crate) async fn decide(runtime: &dyn Runtime, spec: &Spec, state: &State) -> Result<State, Undecided> {
    let mut resources: BTreeMap<ResourceId, StateResource> =
        state.resources.iter().map(|resource| (resource.id.clone(), resource.clone())).collect();
    let open = state.open.iter().filter(|call| call.is_to_be_looked_for(resources.contains_key(&call.id)));
    let sought: Vec<(StateResource, &OpenCall)> = open
        .filter_map(|call| {
            let wanted = spec.resources.iter().find(|resource| resource.id == call.id);
            // It was there before us, and only its resource, which is gone, said whether it may ever be removed.
            if call.action == Action::Adopt && wanted.is_none() && !resources.contains_key(&call.id) {
                return None;
            }
            let named = resources.get(&call.id).cloned().or_else(|| {
                let named = StateResource::named_by(&call.id)?;
                let extensions = wanted.map(|wanted| wanted.extensions.clone()).unwrap_or_default();
                Some(StateResource { extensions, ..named })
            });
            Some((named?, call))
        })
        .collect();
    if sought.is_empty() {
        return Ok(state.clone());
    }
    let calls: Vec<LostCall<'_>> =
        sought.iter().map(|(resource, call)| LostCall { resource, run: &call.run }).collect();
    let found = runtime.look_for(&calls).await.map_err(Undecided::Runtime)?;
    let mut problems = Vec::new();
    for ((resource, call), found) in sought.iter().zip(found) {
        let id = resource.id.clone();
        let may_have_made = call.may_have_made(resources.contains_key(&id));
        match found {
            Ok(Found::Absent) => {}
            // The call can be repeated, and whose the object is by now is decided as ever.
            Ok(Found::Foreign | Found::Unknowable) if !may_have_made => {}
            Ok(Found::Foreign) => drop(resources.remove(&id)),
            Ok(Found::Ours(applied)) => {
                let cluster = applied.kubernetes.map(|object| object.cluster).unwrap_or_default();
                let found = resource.clone().found(&applied.live, cluster);
                if found.uid() != resource.uid() || !resources.contains_key(&id) {
                    // The same object may still be recorded under the id that it had before.
                    let others = resources
                        .values_mut()
                        .filter(|other| other.id != id && is_same(runtime.clusters(), other, &found));
                    others.for_each(|other| *other = other.clone().found(&applied.live, other.cluster.clone()));
                    resources.insert(id, found);
                }
            }
            Ok(Found::Unknowable) => drop(resources.insert(id, StateResource { unknown: true, ..resource.clone() })),
            // A cluster that is away holds up no other: what is recorded there stays so, and open. Of what is not recorded
            // nobody would know that it may be there.
            Err(error) if error.is_retryable() && runtime.clusters().0.len() > 1 && resources.contains_key(&id) => {}
            Err(error) if error.is_retryable() => return Err(Undecided::Runtime(error)),
            Err(error) => problems.push(problem(&id, &error, &Sensitive::default())),
        }
    }
    if !problems.is_empty() {
        return Err(Undecided::Problems(problems));
    }
    Ok(State { resources: resources.into_values().collect(), open: state.open.clone() })
}

/// The object that a record is of, in no version, and its cluster.
pub(crate) fn object<'a>(clusters: &'a Clusters, record: &'a StateResource) -> Option<(&'a str, ObjectRef)> {
    let object = ObjectRef::of(&record.attributes).filter(|_| record.kind == ResourceType::Kubernetes)?;
    Some((clusters.of_recorded(record), ObjectRef { version: String::new(), ..object }))
}

/// Whether two records are of one object.
fn is_same(clusters: &Clusters, a: &StateResource, b: &StateResource) -> bool {
    object(clusters, a).is_some_and(|a| object(clusters, b) == Some(a))
}

/// The problem of each resource about which a person has to decide.
pub(crate) fn unknown(state: &State) -> Vec<Problem> {
    state.resources.iter().filter(|resource| resource.unknown).map(|resource| unknown_state(&resource.id)).collect()
}
