//! `runs/plan`: what a run is to change, as it is kept: complete at any size, with sensitive values masked. `origins=true` adds
//! where each resource comes from, and the values that its Spec was rendered with.

use std::collections::BTreeMap;

use bytes::Bytes;
use kube::ResourceExt as _;
use serde::Serialize;
use stoa_controller::{blocking::run_blocking, memory_budget};
use stoa_engine::{
    Plan, ResourceId, Spec, document,
    render::{Colour, render, render_with_origins},
    spec::{FILE, LINE},
};
use stoa_kinds::run_status::status;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
};
use stoa_runs::{Services, StepError, documents};
use stoa_types::{Run, common::condition, delivery::RunValue, reason};

use super::{
    failure,
    format::{Format, PLAIN, colour, flag},
    stored::{DocumentScope, StoredDocument},
};

/// What it comes in besides JSON and YAML.
pub(super) const PRODUCES: &[&str] = &[PLAIN];
const FORMATS: &[Format<Shown>] = &[Format::Json, Format::Yaml, Format::Text(Shown::table, "table", PLAIN)];

/// A plan, and how its table is to be coloured.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    plan: Plan,
    #[serde(skip)]
    colour: Colour,
    #[serde(flatten)]
    origins: Option<Origins>,
}

/// Where a plan comes from.
#[derive(Debug, Serialize)]
struct Origins {
    /// The file and line of each resource of the Spec, by its id.
    origins: BTreeMap<ResourceId, String>,
    /// The first values of the whole Spec, as in the status of the run.
    values: Vec<RunValue>,
}

impl Shown {
    fn table(&self) -> String {
        let Some(Origins { origins, values }) = &self.origins else { return render(&self.plan, self.colour) };
        let mut table = render_with_origins(&self.plan, self.colour, origins);
        let value = |RunValue { name, kind, object }: &RunValue| match object.as_str() {
            "" => format!("{name} of the {kind}"),
            object => format!("{name} of {kind} {object}"),
        };
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(value).collect();
            table = format!("{table}Values: {}.\n", values.join(", "));
        }
        table
    }
}

/// Query parameters: `format` is `json`, `yaml` or `table`; `color=true` (or `colour=true`) colours the table for a terminal;
/// `origins=true` adds the file and line of each resource, and the origins of the values.
pub(super) async fn run_plan(services: Services, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let colour = colour(&call.query)?;
    let services = &services;
    let run = services.lookup.api::<Run>()?.get(&call.namespace, &call.name).await?;
    let plan = find(services, &run).await?;
    let spec = if flag(&call.query, "origins")? { Some(find_spec(services, &run).await?) } else { None };
    // For both at once, as for two releases that are compared.
    let bytes = plan.bytes().saturating_add(spec.as_ref().map_or(0, StoredDocument::bytes));
    let room = memory_budget::take(&call.namespace, bytes).await?;
    let (kept, room) = plan.read_into(room).await?;
    let (spec, room) = match spec {
        Some(spec) => spec.read_into(room).await.map(|(spec, room)| (Some(spec), room))?,
        None => (None, room),
    };
    let write = move || {
        let plan = decoded(&kept, &run.name_any())?;
        let origins = spec.map(|spec| origins(spec, &run)).transpose()?;
        format.write(&call, &Shown { plan, colour, origins })
    };
    let (answer, room) = room.work(write).await;
    room.until_sent(answer?).await
}

/// A plan that no run has, in the format that a call asks for.
///
/// # Errors
///
/// 400 that names a query parameter.
pub(super) async fn written(
    call: SubresourceCall,
    plan: Plan,
    room: memory_budget::Memory,
) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let colour = colour(&call.query)?;
    let (answer, room) = room.work(move || format.write(&call, &Shown { plan, colour, origins: None })).await;
    room.until_sent(answer?).await
}

/// The plan of a run as people read it, for the server itself, as far as `keep` keeps it: it waits for the place that runs have, and
/// not for the room of clients.
///
/// # Errors
///
/// 404 when it has none or that is not kept any more, 422 when it cannot be understood, 503 when the Backend cannot be read.
pub(crate) async fn plan_text<T: Send + 'static>(
    services: &Services,
    run: &Run,
    keep: impl FnOnce(&str) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let (kept, place) = find(services, run).await?.read_for_server().await?;
    let (bytes, name) = (kept.len(), run.name_any());
    let text = move || {
        let plan = decoded(&kept, &name)?;
        drop((kept, place));
        Ok(keep(&render(&plan, Colour::Never)))
    };
    run_blocking(bytes, text).await
}

/// The document that the plan of a run is in.
async fn find(services: &Services, run: &Run) -> Result<StoredDocument, ApiError> {
    let (name, now) = (run.name_any(), status(run));
    let Some(plan) = now.plan.filter(|plan| !plan.document.is_empty()) else {
        let failed = condition(&now.conditions, reason::FAILED).map(|failed| format!(", {}", failed.message));
        let message = format!("run {name} has no plan; its phase is {:?}{}", now.phase, failed.unwrap_or_default());
        return Err(ApiError::new(404, "NotFound", message));
    };
    let place = DocumentScope::of_run(services, run).await?;
    place.find(services, &run.spec.workspace, &plan.document, &format!("run {name}")).await
}

/// The document with the Spec of a run.
async fn find_spec(services: &Services, run: &Run) -> Result<StoredDocument, ApiError> {
    let name = run.name_any();
    let digest = status(run).source.and_then(|source| source.spec_digest);
    let digest = digest.ok_or_else(|| ApiError::new(404, "NotFound", format!("run {name} has no Spec")))?;
    let place = DocumentScope::of_run(services, run).await?;
    place.find(services, &run.spec.workspace, &digest, &format!("run {name}")).await
}

fn origins(spec: Bytes, run: &Run) -> Result<Origins, ApiError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let message = format!("the Spec of run {} cannot be read: {error}", run.name_any());
        failure(StepError::failed(reason::PLAN_FAILED, message))
    };
    let shown = documents::shown(spec).map_err(|error| unreadable(&error))?;
    let spec: Spec = serde_json::from_slice(&shown).map_err(|error| unreadable(&error))?;
    let origin = |resource: stoa_engine::Resource| {
        let file = resource.extensions.get(FILE)?.as_str()?.to_owned();
        let line = resource.extensions.get(LINE).and_then(serde_json::Value::as_u64).filter(|line| *line > 0);
        Some((resource.id, line.map_or(file.clone(), |line| format!("{file}:{line}"))))
    };
    let origins = spec.resources.into_iter().filter_map(origin).collect();
    Ok(Origins { origins, values: status(run).values.map(|values| values.items).unwrap_or_default() })
}

fn decoded(kept: &[u8], run: &str) -> Result<Plan, ApiError> {
    document::decode(kept).map_err(|error| {
        let message = format!("the plan of run {run} cannot be read: {error}; {}", error.advice());
        failure(StepError::failed(reason::PLAN_FAILED, message))
    })
}
