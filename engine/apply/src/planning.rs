//! Planning against live objects: one read of everything, then dry runs of what would change.
//!
//! Start at [`plan`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use serde_json::{Map, Value};
use stoa_engine::{
    Action, Clusters, DigestKeys, ForgottenClusters, HookOperation, KindRules, KubernetesObject, Live, ObjectRef, Plan,
    PlanInput, PlannedAction, Preview, Problem, Resource, ResourceId, ResourceType, Sensitive, Spec, State,
    StateResource, Summary, Warnings,
    declared::declared,
    forgotten_clusters, hook,
    moved::Moves,
    object::is_secret,
    planner::{self, Outline, Sketch},
    problem::reason,
    provider,
    render::{Colour, render},
    resolve::references,
    unsupported,
};
use stoa_runtime::{ApplyRequest, DeletionVerdict, ReadRequest, Runtime, RuntimeError, SECRET_IN_THE_OPEN, Validation};
use tokio::time::Instant;

use crate::{
    absent_jobs::{self, AbsentJobs},
    commit_order,
    custom::{Checked, Custom},
    destination, ephemeral,
    missing_namespaces::{self, wanted_namespaces},
    providers::{self, Planners},
    recovery::{self, Undecided},
};

/// The number of parallel dry runs.
const PREVIEWS: usize = 16;

/// How long dry runs continue for a plan that already failed.
const ENOUGH: Duration = Duration::from_secs(60);

/// The maximum number of warnings of a runtime.
const NOTED: usize = 20;

/// How many admission dependencies a message names.
const NAMED: usize = 5;

/// A plan with its rendered forms.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Its digest, `sha256:<hex>`.
    pub digest: String,
    /// The number of resources by action.
    pub summary: Summary,
    /// The rendered plan, without colours.
    pub table: String,
    /// Notes for people.
    pub notes: Vec<String>,
    /// The resources of lost calls whose objects exist and are ours, with these objects.
    pub ours: BTreeMap<ResourceId, Option<KubernetesObject>>,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Something is wrong with the Spec, or refused by the infrastructure.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("; "))]
    Problems(Vec<Problem>),
    /// The infrastructure could not be read; trying again may help.
    #[error("the infrastructure cannot be read")]
    Runtime(#[source] RuntimeError),
}

/// The input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Planning<'a> {
    /// The wanted resources.
    pub spec: &'a Spec,
    /// The digest of the stored Spec document, `sha256:<hex>`.
    pub spec_digest: &'a str,
    /// The recorded state.
    pub state: &'a State,
    /// Whether everything recorded is deleted, whatever the Spec has.
    pub destroy: bool,
    /// Whether the plan only reports drift and changes nothing.
    pub refresh: bool,
    /// The keys of the digests of sensitive values in the state.
    pub keys: &'a DigestKeys,
    /// Clusters that no longer exist, whose records are forgotten.
    pub forget_clusters: &'a [String],
    /// The operation whose hooks are planned; `None` plans none.
    pub hooks: Option<HookOperation>,
}

/// Plans to bring the infrastructure to the Spec, or to delete everything recorded. Lost calls are recovered first.
///
/// The comparison of large objects blocks its thread for a while. A server polls this on a thread of its own.
///
/// # Errors
///
/// [`PlanError::Problems`] with all problems; [`PlanError::Runtime`] when the infrastructure cannot be read.
pub async fn plan(runtime: Arc<dyn Runtime>, planning: &Planning<'_>) -> Result<Planned, PlanError> {
    let Planning { spec: whole, spec_digest, state, destroy, refresh, keys, forget_clusters, hooks } = *planning;
    let in_repository = runtime.is_deferred(ResourceType::Kubernetes);
    let (spec, of_chart) = hook::split(whole, in_repository);
    let spec = &*spec;
    let hooks = match hooks.filter(|_| !in_repository && !refresh) {
        Some(operation) => hook::planned(&of_chart, operation).map_err(PlanError::Problems)?,
        None => Vec::new(),
    };
    let mut state = Cow::Borrowed(state);
    let forgotten_clusters = &if forget_clusters.is_empty() {
        ForgottenClusters::new()
    } else {
        state.to_mut().forget_clusters(forget_clusters)
    };
    forgotten_clusters::check(forget_clusters, forgotten_clusters, runtime.kubernetes().clusters())
        .map_err(PlanError::Problems)?;
    let mut ours = recovery::Ours::new();
    if !state.open.is_empty() {
        let (decided, found) = recovery::find(&*runtime, spec, &state).await?;
        (state, ours) = (Cow::Owned(decided), found);
    }
    let moves = match (destroy, refresh) {
        (true, _) => Moves::left(&Spec::default(), &state),
        (false, true) => Moves::left(spec, &state),
        (false, false) => Moves::of(spec, &state).map_err(PlanError::Problems)?,
    };
    if !moves.is_empty() {
        state = Cow::Owned(moves.moved(state.into_owned()));
    }
    let absent_jobs = match destroy {
        true => AbsentJobs::default(),
        false => absent_jobs::find(&*runtime, &state.resources).await.map_err(PlanError::Runtime)?,
    };
    if !absent_jobs.is_empty() {
        absent_jobs.mark(&mut state.to_mut().resources);
    }
    let state = &*state;
    // The first sketch works without live objects, to name the objects to read.
    let (owner, rules) = (runtime.owner(), runtime.kubernetes().rules());
    let clusters = scoped(&*runtime, spec, destroy).await?;
    let clusters = &clusters;
    let blind = PlanInput::blind(spec, state, owner, keys);
    let blind = PlanInput { spec_digest, forgotten_clusters, destroy, refresh, clusters, rules, ..blind };
    let outline = Outline::of(&blind).map_err(PlanError::Problems)?;
    let in_spec = || spec.resources.iter().filter(|_| !destroy);
    providers::prepare(&*runtime, in_spec()).await?;
    let stored = ephemeral::problems(&*runtime, in_spec());
    if !stored.is_empty() {
        return Err(PlanError::Problems(stored));
    }
    let sensitive = providers::sensitive_paths(&*runtime, in_spec());
    let sketch = outline.sketch(&PlanInput { sensitive: &sensitive, ..blind }).map_err(PlanError::Problems)?;
    let mut desired = desired(spec, &sketch, destroy);
    let recorded: BTreeMap<&ResourceId, &StateResource> = state.resources.iter().map(|r| (&r.id, r)).collect();
    let is_elsewhere = |wanted: &&Resource| {
        let prior = recorded.get(&wanted.id).filter(|_| refresh && !destroy);
        prior.is_some_and(|prior| planner::is_recorded_elsewhere(clusters, prior, wanted))
    };
    let elsewhere: BTreeSet<&ResourceId> = spec.resources.iter().filter(is_elsewhere).map(|it| &it.id).collect();
    let (mut live, mut lacking) = read(&*runtime, &sketch, &desired, &recorded, &elsewhere).await?;
    // Each object is read at its target, or else at its recorded location.
    rules.mark_contents(&mut live, &|id| {
        let wanted = desired.get(id).filter(|_| !elsewhere.contains(id)).map(|wanted| clusters.of_wanted(wanted));
        let cluster = wanted.or_else(|| recorded.get(id).map(|record| clusters.of_recorded(record)));
        clusters.server(cluster.unwrap_or_default())
    });
    let is_there = |resource: &&Resource| matches!(live.get(&resource.id), Some(Live::Present(_)));
    // Unwanted and moving objects are compared with what was applied.
    let left = state.resources.iter().filter(|record| {
        let is_in_place = desired.contains_key(&record.id) && !elsewhere.contains(&record.id);
        refresh && !is_in_place
    });
    let applied: Vec<Resource> = left.map(StateResource::as_applied).collect();
    let wanted = desired.iter().filter(|(id, _)| !elsewhere.contains(*id)).map(|(_, wanted)| &**wanted).chain(&applied);
    let custom: Vec<&Resource> = wanted.filter(|it| it.needs_schema()).filter(is_there).collect();
    let schemas = runtime.kubernetes().schemas(&custom).await.map_err(PlanError::Runtime)?;
    let all_sensitive = providers::with_live(&*runtime, in_spec(), &live, &sensitive);
    let looked = PlanInput { live: &live, schemas: &schemas, sensitive: &all_sensitive, ..blind };
    // Resolved attributes may be large, and are computed again.
    drop(sketch);
    let planners = Planners::new(&*runtime, &recorded, &looked);
    let mut provided = planners.plans(&outline, &looked).await?;
    let (planned, known) = (provided.previews.clone(), provided.sensitive.clone());
    let looked = PlanInput { previews: &planned, sensitive: &known, ..looked };
    let sketch = outline.sketch(&looked).map_err(PlanError::Problems)?;
    let exposed = exposed(&*runtime, spec, &sketch, &known);
    for (id, resolved) in &sketch.desired {
        // Only what refers to something live is another now, or what leaves fields as they are live.
        if let Cow::Owned(attributes) = &resolved.attributes
            && let Some(resource) = desired.get_mut(id).filter(|resource| resource.attributes != *attributes)
        {
            resource.to_mut().attributes.clone_from(attributes);
        }
    }
    let open: BTreeSet<&ResourceId> = state.open.iter().map(|call| &call.id).collect();
    let mut objects: HashMap<(&str, ObjectRef), usize> = HashMap::new();
    for object in state.resources.iter().filter_map(|record| recovery::object(clusters, record)) {
        *objects.entry(object).or_default() += 1;
    }
    let is_asked = |planned: &PlannedAction| match planned.action {
        _ if runtime.providers().decides(planned.kind) => false,
        // An object without drift stays, one of another owner is rejected, and a moving one is not wanted here.
        _ if refresh && (!planned.drift || planned.refused.is_some() || elsewhere.contains(&planned.id)) => false,
        // An object in another cluster is recreated.
        Action::Create | Action::Update | Action::Adopt | Action::Replace => true,
        // A lost call may have set unrecorded fields, also under another id of the same object.
        Action::Unchanged => {
            let is_open =
                open.contains(&planned.id) || planned.recorded_as.as_ref().is_some_and(|id| open.contains(id));
            let prior = recorded.get(planned.recorded_id());
            let is_recorded_twice =
                || prior.and_then(|prior| objects.get(&recovery::object(clusters, prior)?)).is_some_and(|n| *n > 1);
            is_open || prior.is_some_and(|prior| prior.is_only_found()) || is_recorded_twice()
        }
        Action::Delete | Action::Import | Action::Forget | Action::Read => false,
    };
    let validation = if refresh { Validation::default() } else { validation(&*runtime, &desired).await? };
    let custom = Custom::new(clusters, &desired, &sketch, &live, &validation);
    let (mut previews, mut problems) =
        preview(&*runtime, &sketch, &is_asked, &desired, &recorded, &looked, &custom).await?;
    let checked = if refresh { Checked::default() } else { custom.check(&*runtime, &previews).await };
    custom.ignore_pruned_previews(&mut previews);
    problems.append(&mut provided.problems);
    previews.append(&mut provided.previews);
    // A rejection has no further findings.
    let refused: BTreeSet<ResourceId> = problems.iter().filter_map(|problem| problem.resource_id.clone()).collect();
    let is_refused = |problem: &Problem| {
        runtime.kubernetes().validates() && problem.resource_id.as_ref().is_some_and(|id| refused.contains(id))
    };
    problems.extend(checked.problems.into_iter().filter(|problem| !is_refused(problem)));
    problems.extend(exposed);
    problems.sort();
    problems.dedup();
    if !problems.is_empty() {
        return Err(PlanError::Problems(problems));
    }
    planners.repeat(&outline, &looked, &mut provided, &mut previews).await?;
    let decided = PlanInput { previews: &previews, sensitive: &provided.sensitive, ..looked };
    let mut plan = outline.plan(&decided, sketch).map_err(PlanError::Problems)?;
    let late = commit_order::problems(&plan, |kind| runtime.is_deferred(kind));
    if !refresh && !late.is_empty() {
        return Err(PlanError::Problems(late));
    }
    let run: HashSet<&ResourceId> = hooks.iter().map(|hook| &hook.resource).collect();
    let run = of_chart.iter().copied().filter(|hook| run.contains(&hook.id));
    plan.destinations = destination::of(&*runtime, desired.values().map(AsRef::as_ref).chain(run), &state.resources);
    release_hooks(&mut plan, &of_chart);
    plan.hooks = hooks;
    if !refresh {
        moves.complete(&mut plan);
    }
    lacking.retain(|id, _| !refresh || recorded.contains_key(id));
    reject_undefined(rules, &plan, &desired, clusters, lacking)?;
    let unmade = if refresh { Vec::new() } else { missing_namespaces::mark(&mut plan, &*runtime, &desired, &previews) };
    let unseen = if refresh {
        Vec::new()
    } else {
        reject_foreign_contents(&*runtime, &plan, &desired, &recorded, &live).await?
    };
    let deletions = if refresh { Vec::new() } else { providers::deletions(&*runtime, &plan, &recorded, &live).await? };
    let mut notes = if destroy { Vec::new() } else { unsupported::warnings(spec) };
    let lock = |resource: &Resource| runtime.providers().lock(resource);
    notes.extend(if destroy || refresh { Vec::new() } else { provider::upgrades(spec, state, lock) });
    notes.extend(providers::warnings(spec, &previews));
    notes.extend(if in_repository && !refresh { hook::warnings_in_repository(whole) } else { Vec::new() });
    notes.extend(deletions);
    notes.extend(rules.warning(spec).filter(|_| !destroy));
    notes.extend(absent_jobs.warnings(&plan));
    notes.extend(unmade);
    notes.extend(unseen);
    let mut told = Warnings::at_most(NOTED);
    checked.notes.into_iter().for_each(|note| told.add(|| note));
    notes.extend(told.into_lines());
    plan.warnings.clone_from(&notes);
    let (digest, summary, table) = (plan.digest(), plan.summary(), render(&plan, Colour::Never));
    Ok(Planned { plan, digest, summary, table, notes, ours })
}

/// Drops the records of objects that became hooks: a hook replaces its object by itself.
fn release_hooks(plan: &mut Plan, hooks: &[&Resource]) {
    let is_hook = |id: &ResourceId| hooks.iter().any(|hook| hook.id == *id);
    for action in plan.actions.iter_mut().filter(|it| it.action == Action::Delete && is_hook(&it.id)) {
        (action.action, action.kept_as) = (Action::Forget, Some(action.id.clone()));
    }
}

/// The validation of resources that no cluster checks.
async fn validation(runtime: &dyn Runtime, desired: &Desired<'_>) -> Result<Validation, PlanError> {
    if runtime.kubernetes().validates() {
        return Ok(Validation::default());
    }
    let desired: Vec<&Resource> = desired.values().map(AsRef::as_ref).collect();
    runtime.kubernetes().validation(&desired).await.map_err(PlanError::Runtime)
}

/// The clusters, with the kinds that are known to be in no namespace: definitions in the Spec say it, or else the
/// infrastructure, where it makes a difference.
async fn scoped(runtime: &dyn Runtime, spec: &Spec, destroy: bool) -> Result<Clusters, PlanError> {
    let kubernetes = spec.resources.iter().filter(|resource| resource.kind == ResourceType::Kubernetes);
    let rules = runtime.kubernetes().rules();
    let scopes = rules.scopes(&kubernetes.map(|resource| &resource.attributes).collect::<Vec<_>>());
    let clusters = runtime.kubernetes().clusters().clone().with_scopes(scopes.clone());
    let unknown = if destroy { Vec::new() } else { rules.of_unknown_scope(spec, &clusters) };
    if unknown.is_empty() {
        return Ok(clusters);
    }
    let reported = runtime.kubernetes().cluster_scoped(&unknown).await.map_err(PlanError::Runtime)?;
    Ok(clusters.with_scopes(scopes.with(reported)))
}

impl From<Undecided> for PlanError {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::Runtime(error) => Self::Runtime(error),
            Undecided::Problems(problems) => Self::Problems(problems),
        }
    }
}

/// The wanted resources with the references replaced that are known. Most have none, and are those of the Spec.
pub(crate) type Desired<'p> = BTreeMap<ResourceId, Cow<'p, Resource>>;

fn desired<'p>(spec: &'p Spec, sketch: &Sketch<'_>, destroy: bool) -> Desired<'p> {
    let wanted = spec.resources.iter().filter(|_| !destroy);
    wanted
        .filter_map(|resource| {
            let resolved = match &sketch.desired.get(&resource.id)?.attributes {
                Cow::Borrowed(_) => Cow::Borrowed(resource),
                Cow::Owned(attributes) => Cow::Owned(planner::with_attributes(resource, attributes.clone())),
            };
            Some((resource.id.clone(), resolved))
        })
        .collect()
}

/// Problems of sensitive values in plain text, for a runtime that accepts none. Values of a live Secret are unknown
/// here, and are rejected once they are known. Values that a provider will make are known to be sensitive before.
fn exposed(
    runtime: &dyn Runtime,
    spec: &Spec,
    sketch: &Sketch<'_>,
    of_providers: &providers::SensitivePaths,
) -> Vec<Problem> {
    let is_exposed = |resource: &&Resource| !runtime.accepts_sensitive(resource.kind);
    let known: HashSet<&str> = spec.resources.iter().map(|resource| resource.id.0.as_str()).collect();
    let refers_to_sensitive = |resource: &Resource| {
        let is_known = |id: &str| known.contains(id);
        let reference = references(&resource.attributes, &is_known).0.into_iter().find(|reference| {
            let paths = of_providers.get(&reference.id);
            paths.is_some_and(|paths| !Sensitive::of(&Map::new(), paths).below(&reference.path).is_empty())
        })?;
        let message = format!("{reference} is sensitive, and would be stored in plain text");
        Some(Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id).at("attributes"))
    };
    let problem = |resource: &Resource| {
        let resolved = sketch.desired.get(&resource.id)?;
        let sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        exposure(resource, &resolved.attributes, &sensitive).or_else(|| refers_to_sensitive(resource))
    };
    spec.resources.iter().filter(is_exposed).filter_map(problem).collect()
}

/// The problem of a resource with sensitive values where they are stored in plain text.
pub(crate) fn exposure(resource: &Resource, attributes: &Map<String, Value>, sensitive: &Sensitive) -> Option<Problem> {
    let field = sensitive.paths().first()?;
    let message = if is_secret(attributes) {
        SECRET_IN_THE_OPEN
    } else if declared(resource).contains(field) {
        "a secret value is here, which the repository would have in clear; use a Secret that the cluster has, or SOPS"
    } else {
        "a reference puts a sensitive value here, which would be stored in plain text"
    };
    Some(Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id).at(format!("attributes.{field}")))
}

/// Live objects, and problems of resources whose kinds do not exist, unless the plan creates them.
type Read = (BTreeMap<ResourceId, Live>, BTreeMap<ResourceId, Problem>);

/// Reads everything, and what is `elsewhere` by its record.
async fn read(
    runtime: &dyn Runtime,
    sketch: &Sketch<'_>,
    desired: &Desired<'_>,
    prior: &BTreeMap<&ResourceId, &StateResource>,
    elsewhere: &BTreeSet<&ResourceId>,
) -> Result<Read, PlanError> {
    let (mut live, mut lacking) = Read::default();
    let is_here = |id: &&ResourceId| !elsewhere.contains(*id);
    let is_unnamed = |id: &&ResourceId| {
        let is_object = desired.get(*id).is_some_and(|resource| resource.kind == ResourceType::Kubernetes);
        is_object && sketch.desired.get(*id).is_some_and(planner::is_unnamed)
    };
    for id in desired.keys().filter(is_here).filter(is_unnamed) {
        live.insert(id.clone(), Live::Unverified("its name is known after apply".to_owned()));
    }
    let wanted = desired.iter().filter(|(id, _)| !live.contains_key(*id)).map(|(id, resource)| {
        let desired: Option<&Resource> = Some(&**resource).filter(|_| !elsewhere.contains(id));
        ReadRequest { desired, prior: prior.get(id).copied() }
    });
    let recorded = prior.iter().filter(|(id, _)| !desired.contains_key(**id));
    let recorded = recorded.map(|(_, prior)| ReadRequest { desired: None, prior: Some(prior) });
    let requests: Vec<ReadRequest<'_>> = wanted.chain(recorded).collect();
    if requests.is_empty() {
        return Ok((live, lacking));
    }
    let found = runtime.read(&requests).await.map_err(PlanError::Runtime)?;
    let mut problems = Vec::new();
    for (request, found) in requests.iter().zip(found) {
        match found {
            Ok(found) => drop(live.insert(request.id().clone(), found)),
            Err(error) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(error) => {
                let told = problem(request.id(), &error, &Sensitive::default());
                if let RuntimeError::UnknownKind(message) = error {
                    live.insert(request.id().clone(), Live::Unverified(format!("{message} yet")));
                    lacking.insert(request.id().clone(), told);
                } else {
                    problems.push(told);
                }
            }
        }
    }
    if !problems.is_empty() {
        return Err(PlanError::Problems(problems));
    }
    Ok((live, lacking))
}

/// Rejects resources whose kinds neither exist nor are created by the plan. They would fail halfway.
fn reject_undefined(
    rules: &dyn KindRules,
    plan: &Plan,
    desired: &Desired<'_>,
    clusters: &Clusters,
    mut lacking: BTreeMap<ResourceId, Problem>,
) -> Result<(), PlanError> {
    let desired = desired.iter().map(|(id, resource)| (id, &**resource)).collect();
    let undefined = rules.undefined(plan, &desired, clusters, &lacking.keys().collect());
    let mut problems: Vec<Problem> = undefined.iter().filter_map(|id| lacking.remove(id)).collect();
    for problem in &mut problems {
        problem.message.push_str("; if another resource of the Spec brings the kind, add that resource to dependsOn");
    }
    problems.sort();
    if problems.is_empty() { Ok(()) } else { Err(PlanError::Problems(problems)) }
}

/// Rejects deletions that would delete objects of other deployments. Returns the warnings of the others.
///
/// This is the last check, and only for Namespaces and definitions, since it may list many objects. The runtime repeats
/// it before the deletion.
async fn reject_foreign_contents(
    runtime: &dyn Runtime,
    plan: &Plan,
    desired: &Desired<'_>,
    recorded: &BTreeMap<&ResourceId, &StateResource>,
    live: &BTreeMap<ResourceId, Live>,
) -> Result<Vec<String>, PlanError> {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    let uids: HashSet<&str> = recorded.values().filter_map(|record| record.uid()).collect();
    for planned in plan.actions.iter().filter(|it| matches!(it.action, Action::Delete | Action::Replace)) {
        let id = &planned.id;
        let Some(record) = recorded.get(planned.recorded_id()) else { continue };
        let live = match live.get(id) {
            Some(Live::Present(live)) => Some(live),
            Some(Live::Absent) => None,
            // The target cannot be read either.
            Some(Live::Unverified(_)) | None => continue,
        };
        let record = match desired.get(id) {
            Some(wanted) => Cow::Owned(record.replaced_by(wanted)),
            None => Cow::Borrowed(*record),
        };
        match runtime.kubernetes().foreign_contents(&record, live, &uids).await {
            Ok(DeletionVerdict { refusal: Some(refusal), .. }) => {
                problems.push(Problem::new(reason::HOLDS_OTHERS, refusal).of(id));
            }
            Ok(DeletionVerdict { refusal: None, warnings }) => notes.extend(warnings),
            // The former cluster of a moving object may be unavailable, which blocks no other.
            Err(error) if error.is_retryable() && live.is_none() => {}
            Err(error) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(error) => problems.push(problem(id, &error, &Sensitive::default())),
        }
    }
    if problems.is_empty() { Ok(notes) } else { Err(PlanError::Problems(problems)) }
}

type Answer = Result<(ResourceId, Option<Preview>), (ResourceId, RuntimeError)>;

/// Makes the dry runs of everything that the sketch would create, change or adopt. Returns the results and the
/// rejections.
async fn preview(
    runtime: &dyn Runtime,
    sketch: &Sketch<'_>,
    is_asked: &(dyn Fn(&PlannedAction) -> bool + Sync),
    desired: &Desired<'_>,
    prior: &BTreeMap<&ResourceId, &StateResource>,
    looked: &PlanInput<'_>,
    custom: &Custom<'_>,
) -> Result<(BTreeMap<ResourceId, Preview>, Vec<Problem>), PlanError> {
    // Boxed one by one: a stream over a mapped iterator of borrows could not be sent to another thread.
    let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
    for planned in sketch.actions.values().filter(|planned| is_asked(planned)) {
        let Some(resource) = desired.get(&planned.id) else { continue };
        let known = &sketch.desired[&planned.id];
        calls.push(Box::pin(async move {
            if let Some(waits) = known.waits() {
                return Ok((planned.id.clone(), Some(Preview::Unverified(waits))));
            }
            // A replacement is new, and so is an object that others created in place of the recorded one.
            let is_new = planned.action == Action::Replace || planned.recreated;
            let prior = prior.get(planned.recorded_id()).copied().filter(|_| !is_new);
            let live: Option<&Map<String, Value>> = match looked.live.get(&planned.id) {
                Some(Live::Present(live)) => Some(live),
                Some(Live::Absent | Live::Unverified(_)) | None => None,
            };
            let adopt = planned.action == Action::Adopt;
            let request = ApplyRequest { adopt, keys: Some(looked.keys), ..ApplyRequest::new(resource, prior) };
            match runtime.preview(&request, live).await {
                Ok(preview) => Ok((planned.id.clone(), Some(preview))),
                Err(error) => Err((planned.id.clone(), error)),
            }
        }));
    }
    let may_accept = OnceLock::new();
    let prerequisites_of = |id: &ResourceId, error: &RuntimeError| match error {
        RuntimeError::Rejected { message, .. } if !looked.refresh => {
            let wanted = |id: &ResourceId| desired.get(id).map(AsRef::as_ref);
            let recorded = |id: &ResourceId| prior.get(id).copied();
            let actions = &mut sketch.actions.values();
            let gathered = || looked.rules.may_accept(actions, &wanted, &recorded, looked.clusters);
            may_accept.get_or_init(gathered).after(&desired[id], message)
        }
        _ => Vec::new(),
    };
    let mut left = calls.len();
    let mut answers = stream::iter(calls).buffer_unordered(PREVIEWS);
    let mut previews = BTreeMap::new();
    let mut refused = Vec::new();
    let (begin, mut is_hopeless) = (Instant::now(), false);
    while let Some(answer) = answers.next().await {
        left -= 1;
        match answer {
            Ok((id, Some(preview))) => drop(previews.insert(id, preview)),
            Ok((_, None)) => {}
            Err((_, error)) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(refusal) => {
                // Nothing else in the plan makes up for it.
                is_hopeless |= !looked.refresh
                    && matches!(refusal.1, RuntimeError::Rejected { by_definition: false, .. })
                    && prerequisites_of(&refusal.0, &refusal.1).is_empty();
                refused.push(refusal);
            }
        }
        if is_hopeless && begin.elapsed() >= ENOUGH {
            break;
        }
    }
    let mut problems = Vec::new();
    if left > 0 {
        let message =
            format!("the plan fails, and {left} more resources were not checked within {} s", ENOUGH.as_secs());
        problems.push(Problem::new(reason::UNAVAILABLE, message));
    }
    let is_terminating = |(_, error): &(ResourceId, RuntimeError)| matches!(error, RuntimeError::Terminating(_));
    let namespaces =
        if refused.iter().any(is_terminating) { wanted_namespaces(desired, looked.clusters) } else { HashSet::new() };
    for (id, error) in refused {
        if let Some(why) = custom.outdated(&id, &error, &previews) {
            previews.insert(id, Preview::Unverified(why));
            continue;
        }
        if let RuntimeError::Terminating(namespace) = &error {
            let is_one_of_several = looked.clusters.names().len() > 1;
            let cluster = if is_one_of_several { format!(" in cluster {}", namespace.cluster) } else { String::new() };
            let why = format!("namespace {}{cluster} is being deleted", namespace.name);
            let place = (looked.clusters.server(&namespace.cluster), namespace.name.clone());
            if looked.refresh || namespaces.contains(&place) {
                previews.insert(id, Preview::Unverified(why));
            } else {
                let message = format!("{why}, and the Spec does not create it again; plan again after it is deleted");
                problems.push(Problem::new(reason::REJECTED, message).of(&id));
            }
            continue;
        }
        // A reference may have carried a sensitive value into what is refused.
        let sensitive = Sensitive::of(&desired[&id].attributes, &sketch.desired[&id].sensitive);
        let problem = problem(&id, &error, &sensitive);
        let by = prerequisites_of(&id, &error);
        if !by.is_empty() {
            let named = by.iter().take(NAMED).map(|id| id.0.as_str()).collect::<Vec<_>>().join(", ");
            let why = format!("rejected now, but may be accepted after {named}: {}", problem.message);
            previews.insert(id, Preview::RejectedUntil(why, by));
            continue;
        }
        if looked.refresh && is_refusal(&error) {
            previews.insert(id, Preview::Refused(problem.message));
        } else {
            problems.push(problem);
        }
    }
    Ok((previews, problems))
}

/// Whether the infrastructure or the owner of an object rejects a resource for good.
fn is_refusal(error: &RuntimeError) -> bool {
    matches!(error, RuntimeError::Conflict(_) | RuntimeError::Owned(_) | RuntimeError::Rejected { .. })
}

/// The problem of a runtime error about one resource.
pub(crate) fn problem(id: &ResourceId, error: &RuntimeError, sensitive: &Sensitive) -> Problem {
    runtime_problem(error, sensitive).of(id)
}

pub(crate) fn runtime_problem(error: &RuntimeError, sensitive: &Sensitive) -> Problem {
    let problem = error.problem();
    Problem { message: sensitive.redact(&problem.message), ..problem }
}
