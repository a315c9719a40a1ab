//! Plans against what is live: one read of everything, then a dry run of only what would change.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use serde_json::{Map, Value};
use stoa_engine::{
    Action, Live, Plan, PlanInput, Preview, Problem, Resource, ResourceId, Sensitive, Spec, State, StateResource, Summary,
    planner::{self, Draft},
    problem::reason,
    render::{Colour, render},
};
use stoa_runtime::{ApplyRequest, ReadRequest, Runtime, RuntimeError};

/// How many dry runs are under way at once.
const PREVIEWS: usize = 16;

/// A plan as it is shown and kept.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Its digest, `sha256:<hex>`.
    pub digest: String,
    /// How many resources there are of each action.
    pub summary: Summary,
    /// The plan for people, without colours.
    pub table: String,
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

/// Plans to bring the infrastructure to `spec`, or to remove everything that is recorded.
///
/// # Errors
///
/// [`PlanError::Problems`] with everything that is wrong; [`PlanError::Runtime`] when nothing could
/// be read.
pub async fn plan(runtime: Arc<dyn Runtime>, spec: &Spec, state: &State, destroy: bool) -> Result<Planned, PlanError> {
    let none = BTreeMap::new();
    // Drafted once without a look, for the references that the Spec alone answers: the objects to
    // read are named only then.
    let blind = PlanInput { spec, state, live: &none, previews: &none_of(), destroy };
    let draft = planner::draft(&blind).map_err(PlanError::Problems)?;
    let desired = resolved(spec, &draft, destroy);
    let live = read(&*runtime, &desired, state).await?;
    let looked = PlanInput { live: &live, ..blind };
    let draft = planner::draft(&looked).map_err(PlanError::Problems)?;
    let desired = resolved(spec, &draft, destroy);
    let previews = preview(&*runtime, &draft, &desired, state, &live).await?;
    let decided = PlanInput { previews: &previews, ..looked };
    let plan = planner::plan(&decided).map_err(PlanError::Problems)?;
    let (digest, summary, table) = (plan.digest(), plan.summary(), render(&plan, Colour::Never));
    Ok(Planned { plan, digest, summary, table })
}

fn none_of() -> BTreeMap<ResourceId, Preview> {
    BTreeMap::new()
}

/// The wanted resources with the references replaced that are known.
fn resolved(spec: &Spec, draft: &Draft, destroy: bool) -> BTreeMap<ResourceId, Resource> {
    let wanted = spec.resources.iter().filter(|_| !destroy);
    wanted
        .filter_map(|resource| {
            let attributes = draft.desired.get(&resource.id)?.attributes.clone();
            Some((resource.id.clone(), Resource { attributes, ..resource.clone() }))
        })
        .collect()
}

async fn read(
    runtime: &dyn Runtime,
    desired: &BTreeMap<ResourceId, Resource>,
    state: &State,
) -> Result<BTreeMap<ResourceId, Live>, PlanError> {
    let prior: BTreeMap<&ResourceId, &StateResource> = state.resources.iter().map(|r| (&r.id, r)).collect();
    let wanted =
        desired.iter().map(|(id, resource)| ReadRequest { desired: Some(resource), prior: prior.get(id).copied() });
    let recorded = prior.iter().filter(|(id, _)| !desired.contains_key(**id));
    let recorded = recorded.map(|(_, prior)| ReadRequest { desired: None, prior: Some(prior) });
    let requests: Vec<ReadRequest<'_>> = wanted.chain(recorded).collect();
    if requests.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = runtime.read(&requests).await.map_err(PlanError::Runtime)?;
    let mut live = BTreeMap::new();
    let mut problems = Vec::new();
    for (request, found) in requests.iter().zip(found) {
        match found {
            Ok(found) => drop(live.insert(request.id().clone(), found)),
            Err(error) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(error) => problems.push(problem(request.id(), &error)),
        }
    }
    if problems.is_empty() { Ok(live) } else { Err(PlanError::Problems(problems)) }
}

type Answer = Result<(ResourceId, Option<Preview>), (ResourceId, RuntimeError)>;

/// Asks the infrastructure about everything that the draft would create, change or take over.
async fn preview(
    runtime: &dyn Runtime,
    draft: &Draft,
    desired: &BTreeMap<ResourceId, Resource>,
    state: &State,
    live: &BTreeMap<ResourceId, Live>,
) -> Result<BTreeMap<ResourceId, Preview>, PlanError> {
    // Boxed one by one: a stream over a mapped iterator of borrows could not be sent to another thread.
    let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
    for planned in &draft.plan.actions {
        if !matches!(planned.action, Action::Create | Action::Update | Action::Adopt) {
            continue;
        }
        let Some(resource) = desired.get(&planned.id) else { continue };
        let known = &draft.desired[&planned.id];
        calls.push(Box::pin(async move {
            if !known.unknown.is_empty() {
                let waits = known.unknown.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                return Ok((planned.id.clone(), Some(Preview::Unverified(format!("{waits} known after apply")))));
            }
            let recorded = planned.recorded_as.as_ref().unwrap_or(&planned.id);
            let prior = state.get(recorded);
            let live: Option<&Map<String, Value>> = match live.get(&planned.id) {
                Some(Live::Present(live)) => Some(live),
                Some(Live::Absent | Live::Unverified(_)) | None => None,
            };
            let request = ApplyRequest { desired: resource, prior, adopt: planned.action == Action::Adopt };
            match runtime.preview(&request, live).await {
                Ok(preview) => Ok((planned.id.clone(), Some(preview))),
                Err(error) => Err((planned.id.clone(), error)),
            }
        }));
    }
    let mut answers = stream::iter(calls).buffer_unordered(PREVIEWS);
    let mut previews = BTreeMap::new();
    let mut problems = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok((id, Some(preview))) => drop(previews.insert(id, preview)),
            Ok((_, None)) => {}
            Err((_, error)) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err((id, error)) => {
                // A reference may have carried a sensitive value into what is refused.
                let sensitive = Sensitive::of(&desired[&id].attributes, &draft.desired[&id].sensitive);
                let mut problem = problem(&id, &error);
                problem.message = sensitive.redact(&problem.message);
                problems.push(problem);
            }
        }
    }
    problems.sort();
    if problems.is_empty() { Ok(previews) } else { Err(PlanError::Problems(problems)) }
}

/// What a runtime says is wrong with one resource.
pub(crate) fn problem(id: &ResourceId, error: &RuntimeError) -> Problem {
    let (why, field) = match error {
        RuntimeError::Rejected { field, .. } => (reason::REJECTED, field.as_deref()),
        RuntimeError::Conflict(_) => (reason::CONFLICT, None),
        RuntimeError::Unavailable { .. } => (reason::UNAVAILABLE, None),
        RuntimeError::Invalid { field, .. } => (reason::INVALID_RESOURCE, field.as_deref()),
    };
    let problem = Problem::new(why, error.to_string()).of(id);
    match field {
        Some(field) => problem.at(field),
        None => problem,
    }
}
