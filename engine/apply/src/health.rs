//! One-time health check of all recorded resources, and detection of finished Jobs.

use std::{pin::pin, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use stoa_engine::object::is_terminating;
use stoa_engine::{Resource, ResourceId, State, StateResource};
use stoa_runtime::{Health, Live, ReadRequest, Runtime, RuntimeError};
use tokio::sync::mpsc;

use crate::{absent_jobs, observer::Observer};

/// The number of parallel checks.
const AT_ONCE: usize = 64;
/// The timeout of one check.
const PATIENCE: Duration = Duration::from_secs(5);

/// A resource that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy {
    /// Its id.
    pub id: ResourceId,
    /// A message without texts of the infrastructure, which may contain anything: `it is InProgress`.
    pub message: String,
}

/// The recorded resources that no longer exist, are not healthy, or cannot be read, in the order of the state. Unknown
/// health is no problem, but a lost call is. Changes nothing.
pub async fn unhealthy(runtime: &dyn Runtime, state: &State) -> Result<Vec<Unhealthy>, RuntimeError> {
    let open = state
        .open
        .iter()
        .map(|call| Unhealthy { id: call.id.clone(), message: "the result of a call is unknown".to_owned() });
    let mut found: Vec<Unhealthy> = open.collect();
    let requests: Vec<ReadRequest<'_>> =
        state.resources.iter().map(|recorded| ReadRequest { desired: None, prior: Some(recorded) }).collect();
    let live = runtime.read(&requests).await?;
    let absent = state.resources.iter().zip(&live).filter(|(_, live)| matches!(live, Ok(Live::Absent)));
    let ended = &absent_jobs::of_absent(runtime, absent.map(|(recorded, _)| recorded)).await?;
    let looks: Vec<BoxFuture<'_, Option<Unhealthy>>> = state
        .resources
        .iter()
        .zip(live)
        .map(|(recorded, live)| -> BoxFuture<'_, _> {
            Box::pin(of_one(runtime, recorded, live, ended.has(&recorded.id)))
        })
        .collect();
    let looks: Vec<Option<Unhealthy>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    found.extend(looks.into_iter().flatten());
    Ok(found)
}

async fn of_one(
    runtime: &dyn Runtime,
    recorded: &StateResource,
    live: Result<Live, RuntimeError>,
    has_ended: bool,
) -> Option<Unhealthy> {
    let message = match live {
        Err(error) => Some(error.to_string()),
        Ok(Live::Absent) if recorded.finished || has_ended => None,
        Ok(Live::Present(object)) if is_terminating(&object) && recorded.finished => None,
        Ok(Live::Absent) => Some("it no longer exists".to_owned()),
        Ok(Live::Unverified(_)) => Some("it cannot be read yet".to_owned()),
        // The health check reads no objects of kinds without a status.
        Ok(Live::Present(object)) if is_terminating(&object) => Some(format!("it is {}", Health::Terminating)),
        Ok(Live::Present(_)) => check_one(runtime, recorded).await,
    };
    message.map(|message| Unhealthy { id: recorded.id.clone(), message })
}

/// Reports the recorded Jobs that have finished since they were applied, of those that the infrastructure deletes then. A Job
/// that failed is none of them: the next Apply makes it again. A Job that cannot be read is no failure of the Run. Those that
/// no longer exist and count as finished are recorded as such.
pub(crate) async fn report_finished(
    runtime: &dyn Runtime,
    observer: &dyn Observer,
    recorded: impl Iterator<Item = &StateResource>,
) {
    let is_running = |job: &&StateResource| !job.finished && runtime.kubernetes().is_deleted_when_finished(job);
    let running: Vec<&StateResource> = recorded.filter(is_running).collect();
    let ended = absent_jobs::find(runtime, running.iter().copied()).await.unwrap_or_default();
    for id in ended.ids() {
        observer.finished(id).await;
    }
    let checks: Vec<BoxFuture<'_, ()>> = running
        .into_iter()
        .filter(|job| !ended.has(&job.id))
        .map(|job| -> BoxFuture<'_, _> {
            Box::pin(async move {
                if first_health(runtime, job).await.is_ok() && runtime.kubernetes().has_finished(&job.id) {
                    observer.finished(&job.id).await;
                }
            })
        })
        .collect();
    stream::iter(checks).buffer_unordered(AT_ONCE).for_each(std::future::ready).await;
}

/// The problem of an existing resource, by its first reported health.
async fn check_one(runtime: &dyn Runtime, recorded: &StateResource) -> Option<String> {
    match first_health(runtime, recorded).await {
        Ok(health) => (!health.is_settled()).then(|| format!("it is {health}")),
        Err(message) => Some(message),
    }
}

/// The first health that is reported of a recorded resource, or why none is.
async fn first_health(runtime: &dyn Runtime, recorded: &StateResource) -> Result<Health, String> {
    let resource = Resource {
        id: recorded.id.clone(),
        kind: recorded.kind,
        attributes: recorded.attributes.clone(),
        depends_on: Vec::new(),
        extensions: recorded.extensions.clone(),
    };
    let (reports, mut heard) = mpsc::unbounded_channel::<Health>();
    let report = move |health: Health, _: &str| {
        // The receiver lives as long as the check.
        let _ = reports.send(health);
    };
    let mut wait = pin!(tokio::time::timeout(PATIENCE, runtime.check_health(&resource, &report)));
    tokio::select! {
        biased;
        Some(health) = heard.recv() => Ok(health),
        ended = &mut wait => match ended {
            Ok(Ok(health)) => Ok(health),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("its health was not reported in time".to_owned()),
        },
    }
}
