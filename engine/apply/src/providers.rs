//! Plans of providers: each is made after those of the resources that it refers to, whose planned values it needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use serde_json::{Map, Value};
use stoa_engine::{
    Action, FieldPath, Live, Plan, PlanInput, PlannedAction, Preview, Problem, Resource, ResourceId, Sensitive, Spec,
    StateResource,
    planner::{Outline, Sketch, is_read_later, with_attributes},
    resolve::Resolved,
};
use stoa_runtime::{ApplyRequest, Runtime, RuntimeError};

use crate::planning::{PlanError, problem};

/// The number of parallel plans.
const AT_ONCE: usize = 16;

/// The paths of resources that are sensitive by the schemas of their providers.
pub(crate) type SensitivePaths = BTreeMap<ResourceId, BTreeSet<FieldPath>>;

/// The plan of one resource, or its problem.
type Answer = (ResourceId, Result<Preview, (Problem, RuntimeError)>);

/// The plans of providers.
#[derive(Debug, Default)]
pub(crate) struct Provided {
    pub(crate) previews: BTreeMap<ResourceId, Preview>,
    /// The sensitive paths of wanted attributes, live objects and planned ones.
    pub(crate) sensitive: SensitivePaths,
    pub(crate) problems: Vec<Problem>,
    /// Data sources that only the apply can read, because something that they depend on changes first.
    read_later: BTreeSet<ResourceId>,
}

/// Gets the runtime ready for the resources that it decides about.
pub(crate) async fn prepare<'r>(
    runtime: &dyn Runtime,
    resources: impl Iterator<Item = &'r Resource>,
) -> Result<(), PlanError> {
    let decided: Vec<&Resource> = resources.filter(|resource| runtime.providers().decides(resource.kind)).collect();
    if decided.is_empty() {
        return Ok(());
    }
    let answers = runtime.providers().prepare(&decided).await.map_err(PlanError::Runtime)?;
    let mut problems = Vec::new();
    for (resource, answer) in decided.iter().zip(answers) {
        match answer {
            Ok(()) => {}
            Err(error) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(error) => problems.push(problem(&resource.id, &error, &Sensitive::default())),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(PlanError::Problems(problems)) }
}

/// The sensitive paths of wanted attributes.
pub(crate) fn sensitive_paths<'r>(
    runtime: &dyn Runtime,
    resources: impl Iterator<Item = &'r Resource>,
) -> SensitivePaths {
    let decided = resources.filter(|resource| runtime.providers().decides(resource.kind));
    decided.map(|it| (it.id.clone(), runtime.providers().sensitive_paths(it, &it.attributes))).collect()
}

/// The same with those of live objects.
pub(crate) fn with_live<'r>(
    runtime: &dyn Runtime,
    resources: impl Iterator<Item = &'r Resource>,
    live: &BTreeMap<ResourceId, Live>,
    wanted: &SensitivePaths,
) -> SensitivePaths {
    let mut paths = wanted.clone();
    for resource in resources.filter(|resource| runtime.providers().decides(resource.kind)) {
        if let Some(Live::Present(live)) = live.get(&resource.id) {
            let more = runtime.providers().sensitive_paths(resource, live);
            paths.entry(resource.id.clone()).or_default().extend(more);
        }
    }
    paths
}

/// The plans of providers for one plan.
pub(crate) struct Planners<'p> {
    pub(crate) runtime: &'p dyn Runtime,
    pub(crate) recorded: &'p BTreeMap<&'p ResourceId, &'p StateResource>,
    /// The wanted resources that providers decide about.
    wanted: HashMap<&'p ResourceId, &'p Resource>,
}

impl<'p> Planners<'p> {
    /// A destruction needs no plans, and a refresh compares with records instead.
    pub(crate) fn new(
        runtime: &'p dyn Runtime,
        recorded: &'p BTreeMap<&'p ResourceId, &'p StateResource>,
        looked: &PlanInput<'p>,
    ) -> Self {
        let is_planned =
            |resource: &&Resource| runtime.providers().decides(resource.kind) && !looked.destroy && !looked.refresh;
        let wanted = looked.spec.resources.iter().filter(is_planned).map(|it| (&it.id, it)).collect();
        Self { runtime, recorded, wanted }
    }

    /// Asks the providers for their plans, as many at once as do not refer to each other.
    pub(crate) async fn plans(&self, outline: &Outline<'_>, looked: &PlanInput<'_>) -> Result<Provided, PlanError> {
        let mut provided = Provided { sensitive: looked.sensitive.clone(), ..Provided::default() };
        for layer in self.layers(outline) {
            let (previews, known) = (std::mem::take(&mut provided.previews), provided.sensitive.clone());
            let input = PlanInput { previews: &previews, sensitive: &known, ..*looked };
            let Sketch { actions, desired } = outline.sketch(&input).map_err(PlanError::Problems)?;
            let is_read_later = |id: &&ResourceId| {
                let data_source = self.wanted.get(*id).filter(|resource| resource.is_only_read());
                let waits = |resource| outline.before(id).any(|before| is_read_later(resource, before, &actions));
                data_source.is_some_and(|resource| waits(resource))
            };
            provided.read_later.extend(layer.iter().filter(is_read_later).cloned());
            drop(actions);
            let found = self.ask(&layer, &desired, looked, &mut provided).await?;
            drop(desired);
            provided.previews = previews;
            provided.previews.extend(found);
            if !provided.problems.is_empty() {
                // The plans of others would need values that are not known.
                break;
            }
        }
        Ok(provided)
    }

    /// Repeats the plans that were made with values which dry runs have shown to be unknown. `previews` has all results.
    pub(crate) async fn repeat(
        &self,
        outline: &Outline<'_>,
        looked: &PlanInput<'_>,
        provided: &mut Provided,
        previews: &mut BTreeMap<ResourceId, Preview>,
    ) -> Result<(), PlanError> {
        let mut layers = self.layers(outline).into_iter();
        while layers.len() > 0 {
            let known = provided.sensitive.clone();
            let input = PlanInput { previews: &*previews, sensitive: &known, ..*looked };
            let desired = outline.resolved(&input).map_err(PlanError::Problems)?;
            let is_outdated = |id: &ResourceId| match (previews.get(id), desired.get(id)) {
                (Some(Preview::Planned(plan)), Some(desired)) => !desired.unknown.is_subset(&plan.config_unknown),
                _ => false,
            };
            // Values of a repeated plan may be unknown to later layers alone.
            let mut outdated = layers.by_ref().map(|layer| layer.into_iter().filter(is_outdated).collect::<Vec<_>>());
            let Some(outdated) = outdated.find(|outdated| !outdated.is_empty()) else { break };
            let found = self.ask(&outdated, &desired, looked, provided).await?;
            drop(desired);
            previews.extend(found);
            if !provided.problems.is_empty() {
                return Err(PlanError::Problems(std::mem::take(&mut provided.problems)));
            }
        }
        Ok(())
    }

    /// Asks for the plans of some resources. Notes their problems and sensitive paths.
    async fn ask(
        &self,
        ids: &[ResourceId],
        desired: &BTreeMap<ResourceId, Resolved<'_>>,
        looked: &PlanInput<'_>,
        provided: &mut Provided,
    ) -> Result<BTreeMap<ResourceId, Preview>, PlanError> {
        let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
        for id in ids {
            let (Some(resource), Some(resolved)) = (self.wanted.get(id), desired.get(id)) else { continue };
            let desired = with_attributes(resource, resolved.attributes.clone().into_owned());
            let live: Option<&Map<String, Value>> = match looked.live.get(id) {
                Some(Live::Present(live)) => Some(live),
                Some(Live::Absent | Live::Unverified(_)) | None => None,
            };
            let prior = self.recorded.get(id).copied();
            let read_later = provided.read_later.contains(id);
            calls.push(Box::pin(async move {
                let sensitive = Sensitive::of(&desired.attributes, &resolved.sensitive);
                let request = ApplyRequest {
                    adopt: prior.is_none() && live.is_some(),
                    unknown: Some(&resolved.unknown),
                    sensitive: Some(&sensitive),
                    keys: Some(looked.keys),
                    read_later,
                    ..ApplyRequest::new(&desired, prior)
                };
                let preview = self.runtime.preview(&request, live).await;
                (id.clone(), preview.map_err(|error| (problem(id, &error, &sensitive), error)))
            }));
        }
        let mut answers = stream::iter(calls).buffer_unordered(AT_ONCE);
        let mut found = BTreeMap::new();
        while let Some((id, answer)) = answers.next().await {
            match answer {
                Ok(preview) => drop(found.insert(id, preview)),
                Err((_, error)) if error.is_retryable() => return Err(PlanError::Runtime(error)),
                Err((problem, _)) => provided.problems.push(problem),
            }
        }
        for (id, preview) in &found {
            if let Preview::Planned(plan) = preview {
                provided.sensitive.entry(id.clone()).or_default().extend(plan.sensitive.iter().cloned());
            }
        }
        Ok(found)
    }

    /// The resources that are decided about, in layers: a layer needs only values of those before it.
    fn layers(&self, outline: &Outline<'_>) -> Vec<Vec<ResourceId>> {
        let mut depths: HashMap<&ResourceId, usize> = HashMap::new();
        let mut layers: Vec<Vec<ResourceId>> = Vec::new();
        for id in outline.order().iter().filter(|_| !self.wanted.is_empty()) {
            let is_decided = |id: &ResourceId| self.wanted.contains_key(id);
            let after = |before: &ResourceId| depths.get(before).map_or(0, |it| it + usize::from(is_decided(before)));
            let depth = outline.before(id).map(after).max().unwrap_or_default();
            depths.insert(id, depth);
            if is_decided(id) {
                if layers.len() <= depth {
                    layers.resize_with(depth + 1, Vec::new);
                }
                layers[depth].push(id.clone());
            }
        }
        layers
    }
}

/// Asks providers about the deletions of a plan. Returns their warnings.
///
/// # Errors
///
/// The deletions that they reject.
pub(crate) async fn deletions(
    runtime: &dyn Runtime,
    plan: &Plan,
    recorded: &BTreeMap<&ResourceId, &StateResource>,
    live: &BTreeMap<ResourceId, Live>,
) -> Result<Vec<String>, PlanError> {
    let is_asked = |planned: &&PlannedAction| {
        let is_there = matches!(live.get(&planned.id), Some(Live::Present(_)));
        planned.action == Action::Delete && is_there && runtime.providers().decides(planned.kind)
    };
    let deleted = plan.actions.iter().filter(is_asked).filter_map(|planned| recorded.get(&planned.id));
    let calls: Vec<_> =
        deleted.map(|record| async move { (&record.id, runtime.providers().preview_delete(record).await) }).collect();
    let mut answers = stream::iter(calls).buffered(AT_ONCE);
    let (mut warnings, mut problems) = (Vec::new(), Vec::new());
    while let Some((id, answer)) = answers.next().await {
        match answer {
            Ok(told) => warnings.extend(told.into_iter().map(|warning| format!("{id}: {warning}"))),
            Err(error) if error.is_retryable() => return Err(PlanError::Runtime(error)),
            Err(error) => problems.push(problem(id, &error, &Sensitive::default())),
        }
    }
    problems.sort();
    if problems.is_empty() { Ok(warnings) } else { Err(PlanError::Problems(problems)) }
}

/// The warnings of plans of providers, each with the line of its resource.
pub(crate) fn warnings(spec: &Spec, previews: &BTreeMap<ResourceId, Preview>) -> Vec<String> {
    let warned = |resource: &Resource| match previews.get(&resource.id) {
        Some(Preview::Planned(plan)) => {
            plan.warnings.iter().map(|warning| format!("{}: {warning}", resource.named())).collect()
        }
        _ => Vec::new(),
    };
    spec.resources.iter().flat_map(warned).collect()
}
