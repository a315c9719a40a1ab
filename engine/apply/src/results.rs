//! What is told of one resource, by what came of it.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use stoa_engine::{Action, ObjectRef, PlannedAction, Problem, StateResource};
use stoa_runtime::KubernetesObject;

use crate::observer::{Abandoned, Observer, ResourceOutcome, ResourceResult};

pub(crate) fn done(
    planned: &PlannedAction,
    resource: Option<StateResource>,
    kubernetes: Option<KubernetesObject>,
) -> ResourceResult {
    ResourceResult {
        id: planned.id.clone(),
        action: planned.action,
        outcome: ResourceOutcome::Done,
        message: String::new(),
        resource,
        kubernetes,
        left: false,
        depends_on: planned.depends_on.clone(),
        problem: None,
    }
}

/// What Kubernetes calls what a record is of.
pub(crate) fn place(record: &StateResource) -> Option<KubernetesObject> {
    ObjectRef::of(&record.attributes).map(|object| KubernetesObject {
        cluster: record.cluster.clone(),
        uid: record.uid().unwrap_or_default().to_owned(),
        group: object.group,
        version: object.version,
        kind: object.kind,
        namespace: record.default_namespace().map_or(object.namespace, str::to_owned),
        name: object.name,
    })
}

/// The result of what is only to be on record from now on.
pub(crate) fn noted(record: StateResource) -> ResourceResult {
    let planned = PlannedAction::new(record.id.clone(), record.kind, Action::Unchanged);
    let (place, depends_on) = (place(&record), record.depends_on.clone());
    ResourceResult { depends_on, ..done(&planned, Some(record), place) }
}

/// The result of what is on record under another id, and under this no more. Nobody has to be told of the object again.
pub(crate) fn dropped(record: &StateResource) -> ResourceResult {
    let planned = PlannedAction::new(record.id.clone(), record.kind, Action::Unchanged);
    ResourceResult { left: true, ..done(&planned, None, None) }
}

/// The result of what was to be removed and is left as it is.
pub(crate) fn left(result: ResourceResult, message: String) -> ResourceResult {
    ResourceResult { left: true, message, ..result }
}

pub(crate) fn failed(planned: &PlannedAction, problem: Problem) -> ResourceResult {
    ResourceResult {
        outcome: ResourceOutcome::Failed,
        message: problem.message.clone(),
        problem: Some(problem),
        ..done(planned, None, None)
    }
}

pub(crate) fn skipped(planned: &PlannedAction, why: &str) -> ResourceResult {
    ResourceResult { outcome: ResourceOutcome::Skipped, message: why.to_owned(), ..done(planned, None, None) }
}

/// Reports results together, and waits until all of them are recorded.
pub(crate) async fn tell(
    observer: &dyn Observer,
    results: impl IntoIterator<Item = ResourceResult>,
) -> Result<(), Abandoned> {
    let mut telling: FuturesUnordered<_> = results.into_iter().map(|result| observer.result(result)).collect();
    while let Some(told) = telling.next().await {
        told?;
    }
    Ok(())
}
