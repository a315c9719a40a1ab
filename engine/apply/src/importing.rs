//! Imports: looks for what is to be recorded as it is, and records it. Nothing here changes anything.

use std::{collections::BTreeMap, sync::Arc};

use stoa_engine::{
    Live, PlanInput, PlannedAction, Problem, ResourceId, ResourceType, Sensitive, StateResource,
    import::{self, Selection},
    object::uid_of,
    planner,
    problem::reason,
    render::{Colour, render},
};
use stoa_runtime::{Applied, Found, LostCall, ReadRequest, Runtime, RuntimeError};

use crate::{
    destination, lost,
    planning::{PlanError, Planned, Planning, problem},
};

/// Plans to record what is selected. What became of open calls is found out first.
///
/// # Errors
///
/// As [`plan`](crate::plan()).
pub async fn import(
    runtime: Arc<dyn Runtime>,
    planning: &Planning<'_>,
    selection: &Selection,
) -> Result<Planned, PlanError> {
    if runtime.is_deferred() {
        let message = "what a repository has is no infrastructure to import; apply takes over files that are there";
        return Err(PlanError::Problems(vec![Problem::new(reason::NO_RUNTIME, message)]));
    }
    let Planning { spec, spec_digest, state, keys, .. } = *planning;
    let (state, ours) = lost::find(&*runtime, spec, state).await?;
    let state = &lost::for_import(state, |id| selection.resources.iter().any(|selected| selected.id == *id));
    let (owner, clusters) = (runtime.owner(), runtime.clusters());
    let blind = PlanInput { spec_digest, clusters, ..PlanInput::blind(spec, state, owner, keys) };
    let draft = planner::draft(&blind).map_err(PlanError::Problems)?;
    let candidates = import::candidates(spec, &draft, state, selection, clusters).map_err(PlanError::Problems)?;
    let requests: Vec<ReadRequest<'_>> = candidates
        .values()
        .map(|candidate| match &candidate.desired {
            Some(desired) => ReadRequest { desired: Some(desired), prior: None },
            None => ReadRequest { desired: None, prior: Some(&candidate.resource) },
        })
        .collect();
    let found =
        if requests.is_empty() { Vec::new() } else { runtime.read(&requests).await.map_err(PlanError::Runtime)? };
    let mut live = BTreeMap::new();
    let mut problems = Vec::new();
    for (id, found) in candidates.keys().zip(found) {
        match found {
            Ok(found) => drop(live.insert(id.clone(), found)),
            Err(RuntimeError::UnknownKind(message)) => drop(live.insert(id.clone(), Live::Unverified(message))),
            Err(error) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(error) => problems.push(problem(id, &error, &Sensitive::default())),
        }
    }
    if !problems.is_empty() {
        return Err(PlanError::Problems(problems));
    }
    let mut plan = import::plan(owner, spec_digest, &candidates, &live).map_err(PlanError::Problems)?;
    let records = candidates.values().map(|candidate| &candidate.resource);
    plan.destinations = destination::of(&*runtime, [], records);
    let notes = gone(selection, &live);
    plan.warnings.clone_from(&notes);
    let (digest, summary, table) = (plan.digest(), plan.summary(), render(&plan, Colour::Never));
    Ok(Planned { plan, digest, summary, table, notes, ours })
}

/// What another system has on record and is not there any more.
fn gone(selection: &Selection, live: &BTreeMap<ResourceId, Live>) -> Vec<String> {
    let is_gone = |id: &&ResourceId| matches!(live.get(*id), Some(Live::Absent));
    let gone = selection.records.iter().map(|record| &record.id).filter(is_gone);
    gone.map(|id| format!("{id} is not there any more, and is not recorded")).collect()
}

/// What to record of a planned import, and where it lives: what was there for the plan and is still nobody else's.
///
/// # Errors
///
/// Why it cannot be recorded, or the runtime's error.
pub(crate) async fn look(
    runtime: &dyn Runtime,
    planned: &PlannedAction,
) -> Result<Result<(StateResource, Applied), Problem>, RuntimeError> {
    let stale = |message: &str| Ok(Err(Problem::new(reason::STALE_PLAN, message).of(&planned.id)));
    let (Some(found), Some(named)) = (&planned.found, StateResource::named_by(&planned.id)) else {
        return stale("the plan does not say what is to be imported");
    };
    debug_assert_eq!(planned.kind, ResourceType::Kubernetes, "only objects are planned to be imported");
    let uid = found.uid.clone().unwrap_or_default();
    // Its id may name a namespace that it does not.
    let places = named.without_namespace().into_iter().chain([named]);
    let looked = |place: StateResource| StateResource { extensions: found.extensions.clone(), ..place }.with_uid(&uid);
    let looked: Vec<StateResource> = places.map(looked).collect();
    let calls: Vec<LostCall<'_>> = looked.iter().map(|resource| LostCall { resource, run: "" }).collect();
    let answers = runtime.look_for(&calls).await?;
    let mut answers: Vec<_> = looked.into_iter().zip(answers).collect();
    let is_it = |answer: &Result<Found, RuntimeError>| match answer {
        Ok(Found::Ours(applied)) => uid_of(&applied.live) == found.uid.as_deref(),
        Ok(Found::Absent | Found::Foreign | Found::Unknowable) | Err(_) => false,
    };
    let position = answers.iter().position(|(_, answer)| is_it(answer));
    // What is in neither place is told of the one that the id names.
    let answer = position.map(|position| answers.swap_remove(position)).or_else(|| answers.pop());
    let Some((looked, answer)) = answer else { return stale("nobody can look for it") };
    match answer? {
        Found::Ours(applied) => {
            let cluster = applied.kubernetes.as_ref().map(|object| object.cluster.clone()).unwrap_or_default();
            let record = looked.found(&applied.live, cluster).depending_on(planned.depends_on.clone());
            Ok(Ok((record, applied)))
        }
        Found::Absent => stale("it is not there any more"),
        Found::Foreign => {
            stale("it is another object than the one that was looked at, or belongs to another deployment")
        }
        Found::Unknowable => stale("nobody can look for it"),
    }
}
