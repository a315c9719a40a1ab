//! Plans of providers: each is made after those of the resources that it refers to, whose planned values it needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use serde_json::{Map, Value};
use stoa_engine::{
    FieldPath, Live, PlanInput, Preview, Problem, Resource, ResourceId, Sensitive, StateResource,
    planner::{Outline, Sketch, with_attributes},
};
use stoa_runtime::{ApplyRequest, Runtime, RuntimeError};

use crate::planning::{PlanError, problem};

/// The number of parallel plans.
const AT_ONCE: usize = 16;

/// The paths of resources that are sensitive by the schemas of their providers.
type SensitivePaths = BTreeMap<ResourceId, BTreeSet<FieldPath>>;

/// The plans of providers.
#[derive(Debug, Default)]
pub(crate) struct Provided {
    pub(crate) previews: BTreeMap<ResourceId, Preview>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<String>,
}

/// Gets the runtime ready for the resources that it decides about.
pub(crate) async fn prepare<'r>(
    runtime: &dyn Runtime,
    resources: impl Iterator<Item = &'r Resource>,
) -> Result<(), PlanError> {
    let decided: Vec<&Resource> = resources.filter(|resource| runtime.decides(resource.kind)).collect();
    if decided.is_empty() {
        return Ok(());
    }
    let answers = runtime.prepare(&decided).await.map_err(PlanError::Runtime)?;
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
    let decided = resources.filter(|resource| runtime.decides(resource.kind));
    decided.map(|it| (it.id.clone(), runtime.sensitive_paths(it, &it.attributes))).collect()
}

/// The same with those of live objects.
pub(crate) fn with_live<'r>(
    runtime: &dyn Runtime,
    resources: impl Iterator<Item = &'r Resource>,
    live: &BTreeMap<ResourceId, Live>,
    wanted: &SensitivePaths,
) -> SensitivePaths {
    let mut paths = wanted.clone();
    for resource in resources.filter(|resource| runtime.decides(resource.kind)) {
        if let Some(Live::Present(live)) = live.get(&resource.id) {
            let more = runtime.sensitive_paths(resource, live);
            paths.entry(resource.id.clone()).or_default().extend(more);
        }
    }
    paths
}

/// Asks the providers for their plans, as many at once as do not refer to each other. A refresh compares with records
/// instead.
pub(crate) async fn plans<'s>(
    runtime: &dyn Runtime,
    outline: &'s Outline<'_>,
    looked: &PlanInput<'s>,
    recorded: &BTreeMap<&ResourceId, &StateResource>,
) -> Result<Provided, PlanError> {
    let mut provided = Provided::default();
    let is_decided = looked.spec.resources.iter().any(|resource| runtime.decides(resource.kind));
    if !is_decided || looked.destroy || looked.refresh {
        return Ok(provided);
    }
    let wanted: HashMap<&ResourceId, &Resource> = looked.spec.resources.iter().map(|it| (&it.id, it)).collect();
    let sketch = outline.sketch(looked).map_err(PlanError::Problems)?;
    let layers = layers(outline, &sketch, |id| wanted.get(id).is_some_and(|it| runtime.decides(it.kind)));
    drop(sketch);
    for layer in layers {
        let previews = std::mem::take(&mut provided.previews);
        let input = PlanInput { previews: &previews, ..*looked };
        let sketch = outline.sketch(&input).map_err(PlanError::Problems)?;
        let mut calls: Vec<BoxFuture<'_, (ResourceId, Result<Preview, (Problem, RuntimeError)>)>> = Vec::new();
        for id in layer {
            let (Some(resource), Some(resolved)) = (wanted.get(&id), sketch.desired.get(&id)) else { continue };
            let desired = with_attributes(resource, resolved.attributes.clone().into_owned());
            let live: Option<&Map<String, Value>> = match looked.live.get(&id) {
                Some(Live::Present(live)) => Some(live),
                Some(Live::Absent | Live::Unverified(_)) | None => None,
            };
            let prior = recorded.get(&id).copied();
            calls.push(Box::pin(async move {
                let sensitive = Sensitive::of(&desired.attributes, &resolved.sensitive);
                let request = ApplyRequest {
                    adopt: prior.is_none() && live.is_some(),
                    unknown: Some(&resolved.unknown),
                    sensitive: Some(&sensitive),
                    keys: Some(looked.keys),
                    ..ApplyRequest::new(&desired, prior)
                };
                let preview = runtime.preview(&request, live).await;
                let preview = preview.map_err(|error| (problem(&id, &error, &sensitive), error));
                (id, preview)
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
        drop(answers);
        drop(sketch);
        provided.previews = previews;
        provided.previews.extend(found);
        if !provided.problems.is_empty() {
            // The plans of others would need values that are not known.
            break;
        }
    }
    for (id, preview) in &provided.previews {
        if let Preview::Planned(plan) = preview {
            provided.warnings.extend(plan.warnings.iter().map(|warning| format!("{id}: {warning}")));
        }
    }
    Ok(provided)
}

/// The resources that are decided about, in layers: a layer needs only values of those before it.
fn layers(
    outline: &Outline<'_>,
    sketch: &Sketch<'_>,
    is_decided: impl Fn(&ResourceId) -> bool,
) -> Vec<Vec<ResourceId>> {
    let mut depths: HashMap<&ResourceId, usize> = HashMap::new();
    let mut layers: Vec<Vec<ResourceId>> = Vec::new();
    for id in outline.order() {
        let before = sketch.actions.get(id).map(|planned| &planned.depends_on[..]).unwrap_or_default();
        let after = |before: &ResourceId| depths.get(before).map_or(0, |depth| depth + usize::from(is_decided(before)));
        let depth = before.iter().map(after).max().unwrap_or_default();
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
