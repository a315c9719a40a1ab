//! `runs/plan`: what a run is to change, as it is kept: complete at any size, with sensitive values masked.

use kube::ResourceExt as _;
use serde::{Serialize, Serializer};
use stoa_controller::blocking::run_blocking;
use stoa_engine::{
    Plan, document,
    render::{Colour, render},
};
use stoa_kinds::run_status::status;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
};
use stoa_runs::{Services, StepError};
use stoa_types::{Run, common::condition, reason};

use super::{
    failure,
    format::{Format, PLAIN, colour},
    stored::{DocumentScope, StoredDocument},
};

/// What it comes in besides JSON and YAML.
pub(super) const PRODUCES: &[&str] = &[PLAIN];
const FORMATS: &[Format<Shown>] =
    &[Format::Json, Format::Yaml, Format::Text(|shown| render(&shown.plan, shown.colour), "table", PLAIN)];

/// A plan, and how its table is to be coloured.
#[derive(Debug)]
struct Shown {
    plan: Plan,
    colour: Colour,
}

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.plan.serialize(serializer)
    }
}

/// Query parameters: `format` is `json`, `yaml` or `table`; `color=true` (or `colour=true`) colours the table for a terminal.
pub(super) async fn run_plan(services: Services, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let colour = colour(&call.query)?;
    let services = &services;
    let run = services.lookup.api::<Run>()?.get(&call.namespace, &call.name).await?;
    let (kept, room) = find(services, &run).await?.read().await?;
    let write = move || {
        let plan = decoded(&kept, &run.name_any())?;
        format.write(&call, &Shown { plan, colour })
    };
    let (answer, room) = room.work(write).await;
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

fn decoded(kept: &[u8], run: &str) -> Result<Plan, ApiError> {
    document::decode(kept).map_err(|error| {
        let message = format!("the plan of run {run} cannot be read: {error}; {}", error.advice());
        failure(StepError::failed(reason::PLAN_FAILED, message))
    })
}
