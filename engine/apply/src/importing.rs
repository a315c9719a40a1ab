//! Imports: reads existing objects and records them without a change.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use serde_json::{Map, Value};
use stoa_engine::{
    DigestKeys, Live, PlanInput, PlannedAction, Problem, Resource, ResourceId, Sensitive, Spec, StateResource,
    import::{self, Selection},
    object::uid_of,
    planner,
    problem::reason,
    render::{Colour, render},
};
use stoa_runtime::{Applied, Found, ReadRequest, Runtime, RuntimeError};

use crate::{
    destination,
    planning::{PlanError, Planned, Planning, problem},
    recovery,
};

/// Plans to record what is selected. What became of open calls is found out first.
pub async fn import(
    runtime: Arc<dyn Runtime>,
    planning: &Planning<'_>,
    selection: &Selection,
) -> Result<Planned, PlanError> {
    let Planning { spec, spec_digest, state, keys, .. } = *planning;
    let (state, ours) = recovery::find(&*runtime, spec, state).await?;
    let state = &recovery::for_import(state, |id| selection.resources.iter().any(|selected| selected.id == *id));
    let (owner, clusters) = (runtime.owner(), runtime.kubernetes().clusters());
    let rules = runtime.kubernetes().rules();
    let blind = PlanInput { spec_digest, clusters, rules, ..PlanInput::blind(spec, state, owner, keys) };
    let draft = planner::draft(&blind).map_err(PlanError::Problems)?;
    let mut candidates = import::candidates(spec, &draft, state, selection, clusters).map_err(PlanError::Problems)?;
    let deferred = candidates.extract_if(.., |_, candidate| runtime.is_deferred(candidate.resource.kind)).count();
    if deferred > 0 && (candidates.is_empty() || !selection.all) {
        let message = "a Git repository cannot be imported from; take over existing files by an Apply";
        return Err(PlanError::Problems(vec![Problem::new(reason::NO_RUNTIME, message)]));
    }
    let requests: Vec<ReadRequest<'_>> = candidates
        .values()
        .map(|candidate| match &candidate.desired {
            Some(desired) => ReadRequest { desired: Some(desired), prior: None },
            // An object of a provider is located by its state or external name.
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
    let mut notes = missing_records(selection, &live);
    notes.extend(unwanted_records(selection, spec));
    plan.warnings.clone_from(&notes);
    let (digest, summary, table) = (plan.digest(), plan.summary(), render(&plan, Colour::Never));
    Ok(Planned { plan, digest, summary, table, notes, ours })
}

/// Records of another system whose objects no longer exist.
fn missing_records(selection: &Selection, live: &BTreeMap<ResourceId, Live>) -> Vec<String> {
    let is_gone = |id: &&ResourceId| matches!(live.get(*id), Some(Live::Absent));
    let gone = selection.records.iter().map(|record| &record.id).filter(is_gone);
    gone.map(|id| format!("{id} no longer exists and is not recorded")).collect()
}

/// Records of another system that are left out because the Spec does not have them.
fn unwanted_records(selection: &Selection, spec: &Spec) -> Vec<String> {
    let wanted: HashSet<&ResourceId> = spec.resources.iter().map(|resource| &resource.id).collect();
    let is_left = |id: &&ResourceId| selection.only_wanted && !wanted.contains(id);
    let left = selection.records.iter().map(|record| &record.id).filter(is_left);
    left.map(|id| format!("{id} is not in the Spec and is not recorded")).collect()
}

/// The record and the object of a planned import: the object that was planned, still without another owner.
pub(crate) async fn read_planned(
    runtime: &dyn Runtime,
    planned: &PlannedAction,
    selection: Option<&Selection>,
    keys: &DigestKeys,
) -> Result<Result<(StateResource, Applied), Problem>, RuntimeError> {
    let stale = |message: &str| Ok(Err(Problem::new(reason::STALE_PLAN, message).of(&planned.id)));
    if runtime.decides(planned.kind) {
        let extensions = planned.found.as_ref().map(|found| &found.extensions);
        let located = extensions.zip(selection).and_then(|(it, selection)| selection.located(&planned.id, it));
        let (Some(extensions), Some(located)) = (extensions, located) else {
            return stale("the selection no longer locates the object; plan again");
        };
        return match runtime.inspect(&[&located]).await?.pop().unwrap_or(Ok(Found::Absent))? {
            Found::Ours(applied) => Ok(Ok((provided(runtime, planned, extensions, &applied, keys), applied))),
            Found::Absent | Found::Foreign | Found::Unknowable => stale("it no longer exists"),
        };
    }
    let (Some(found), Some(named)) = (&planned.found, StateResource::named_by(&planned.id)) else {
        return stale("the plan does not name the object to import; plan again");
    };
    let uid = found.uid.clone().unwrap_or_default();
    // Its id may name a namespace that it does not.
    let places = named.without_namespace().into_iter().chain([named]);
    let looked = |place: StateResource| StateResource { extensions: found.extensions.clone(), ..place }.with_uid(&uid);
    let looked: Vec<StateResource> = places.map(looked).collect();
    let answers = runtime.inspect(&looked.iter().collect::<Vec<_>>()).await?;
    let mut answers: Vec<_> = looked.into_iter().zip(answers).collect();
    let is_it = |answer: &Result<Found, RuntimeError>| match answer {
        Ok(Found::Ours(applied)) => uid_of(&applied.live) == found.uid.as_deref(),
        Ok(Found::Absent | Found::Foreign | Found::Unknowable) | Err(_) => false,
    };
    let position = answers.iter().position(|(_, answer)| is_it(answer));
    // An object in neither cluster is reported as absent.
    let answer = position.map(|position| answers.swap_remove(position)).or_else(|| answers.pop());
    let Some((looked, answer)) = answer else { return stale("the object cannot be read") };
    match answer? {
        Found::Ours(applied) => {
            let cluster = applied.kubernetes.as_ref().map(|object| object.cluster.clone()).unwrap_or_default();
            let record = looked.found(&applied.live, cluster).depending_on(planned.depends_on.clone());
            Ok(Ok((record, applied)))
        }
        Found::Absent => stale("it no longer exists"),
        Found::Foreign => stale("it is not the object that was planned, or another deployment owns it; plan again"),
        Found::Unknowable => stale("the object cannot be read"),
    }
}

/// The record of an imported object of a provider. Nothing was applied, so it has no attributes.
fn provided(
    runtime: &dyn Runtime,
    planned: &PlannedAction,
    extensions: &Map<String, Value>,
    applied: &Applied,
    keys: &DigestKeys,
) -> StateResource {
    let resource = Resource {
        id: planned.id.clone(),
        kind: planned.kind,
        attributes: Map::new(),
        depends_on: Vec::new(),
        extensions: extensions.clone(),
    };
    let sensitive = Sensitive::of(&applied.live, &runtime.sensitive_paths(&resource, &applied.live));
    StateResource {
        id: planned.id.clone(),
        kind: planned.kind,
        live: sensitive.recorded(&planned.id, &applied.live, keys),
        extensions: extensions.clone(),
        depends_on: planned.depends_on.clone(),
        provider_state: applied.provider_state.clone(),
        provider_version: runtime.provider_lock(&resource).map(|lock| lock.version),
        ..StateResource::default()
    }
}
