//! Imports: reads existing objects and records them without a change.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use serde_json::{Map, Value};
use stoa_engine::{
    DigestKeys, Live, PlanInput, PlannedAction, Problem, Resource, ResourceId, ResourceType, Sensitive, Spec,
    StateResource, hook,
    import::{self, Selection},
    object::uid_of,
    owner::Ownership,
    planner,
    problem::reason,
    render::{Colour, render},
};
use stoa_runtime::{Applied, Found, ReadRequest, Runtime, RuntimeError};

use crate::{
    destination,
    planning::{PlanError, Planned, Planning, problem},
    recovery,
    results::kubernetes_object,
};

/// How many unreadable files a message names.
const NAMED: usize = 3;

/// Plans to record what is selected. What became of open calls is found out first.
pub async fn import(
    runtime: Arc<dyn Runtime>,
    planning: &Planning<'_>,
    selection: &Selection,
) -> Result<Planned, PlanError> {
    let Planning { spec, spec_digest, state, keys, .. } = *planning;
    // Hooks are not recorded.
    let (spec, _) = hook::split(spec, runtime.is_deferred(ResourceType::Kubernetes));
    let spec = &*spec;
    let (state, ours) = recovery::find(&*runtime, spec, state).await?;
    let state = &recovery::for_import(state, |id| selection.resources.iter().any(|selected| selected.id == *id));
    let (owner, clusters) = (runtime.owner(), runtime.kubernetes().clusters());
    let rules = runtime.kubernetes().rules();
    let blind = PlanInput { spec_digest, clusters, rules, ..PlanInput::blind(spec, state, owner, keys) };
    let draft = planner::draft(&blind).map_err(PlanError::Problems)?;
    let candidates = import::candidates(spec, &draft, state, selection, clusters).map_err(PlanError::Problems)?;
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
    let mut plan = match import::plan(owner, spec_digest, &candidates, &live) {
        Ok(plan) => plan,
        Err(problems) => return Err(PlanError::Problems(in_files(&*runtime, problems, &live).await?)),
    };
    let records = candidates.values().map(|candidate| &candidate.resource);
    plan.destinations = destination::of(&*runtime, [], records);
    let mut notes = missing_records(selection, &live);
    notes.extend(unwanted_records(selection, spec));
    plan.warnings.clone_from(&notes);
    let (digest, summary, table) = (plan.digest(), plan.summary(), render(&plan, Colour::Never));
    Ok(Planned { plan, digest, summary, table, notes, ours })
}

/// The problems of an import. Those of objects that no file has name the files that cannot be read.
async fn in_files(
    runtime: &dyn Runtime,
    mut problems: Vec<Problem>,
    live: &BTreeMap<ResourceId, Live>,
) -> Result<Vec<Problem>, PlanError> {
    let is_absent = |problem: &Problem| {
        let live = problem.resource_id.as_ref().and_then(|id| live.get(id));
        problem.reason == reason::NOT_THERE && matches!(live, Some(Live::Absent))
    };
    if !runtime.is_deferred(ResourceType::Kubernetes) || !problems.iter().any(is_absent) {
        return Ok(problems);
    }
    let unreadable = runtime.kubernetes().unreadable_files().await.map_err(PlanError::Runtime)?;
    let more = unreadable.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let named = unreadable.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    let unreadable = if unreadable.is_empty() {
        String::new()
    } else {
        format!("; these files have no readable object: {named}{more}")
    };
    for problem in problems.iter_mut().filter(|problem| is_absent(problem)) {
        problem.message = format!(
            "no file in the folder of the Workspace has this object, so it cannot be imported; check its kind, namespace \
             and name{unreadable}"
        );
    }
    Ok(problems)
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
    if runtime.providers().decides(planned.kind) {
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
    if runtime.is_deferred(planned.kind) {
        let places = places.map(|place| StateResource { extensions: found.extensions.clone(), ..place }).collect();
        return read_file(runtime, planned, places).await;
    }
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

/// The same of an object in a file, which has no uid: the object of its name in one of these places, without an owner.
async fn read_file(
    runtime: &dyn Runtime,
    planned: &PlannedAction,
    places: Vec<StateResource>,
) -> Result<Result<(StateResource, Applied), Problem>, RuntimeError> {
    let requests: Vec<ReadRequest<'_>> =
        places.iter().map(|place| ReadRequest { desired: None, prior: Some(place) }).collect();
    let answers = runtime.read(&requests).await?;
    let mut message = "no file has the object any more; plan again";
    for (place, answer) in places.into_iter().zip(answers) {
        let Live::Present(live) = answer? else { continue };
        match runtime.owner().ownership(None, &live) {
            Ownership::Free => {
                let record = place.found(&live, String::new()).depending_on(planned.depends_on.clone());
                let kubernetes = kubernetes_object(&record);
                return Ok(Ok((record, Applied { live, kubernetes, ..Applied::default() })));
            }
            Ownership::TakesOver(_) | Ownership::Refused(_) => {
                message = "another deployment owns it by now; plan again"
            }
        }
    }
    Ok(Err(Problem::new(reason::STALE_PLAN, message).of(&planned.id)))
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
    let sensitive = Sensitive::of(&applied.live, &runtime.providers().sensitive_paths(&resource, &applied.live));
    StateResource {
        id: planned.id.clone(),
        kind: planned.kind,
        live: sensitive.recorded(&planned.id, &applied.live, keys),
        extensions: extensions.clone(),
        depends_on: planned.depends_on.clone(),
        provider_state: applied.provider_state.clone(),
        provider_version: runtime.providers().lock(&resource).map(|lock| lock.version),
        ..StateResource::default()
    }
}
