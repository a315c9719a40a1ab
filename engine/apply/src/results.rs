//! Results of one resource, as they are reported to the observer.

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use stoa_engine::{ObjectRef, PlannedAction, Problem, ResourceType, StateResource};
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

pub(crate) fn kubernetes_object(record: &StateResource) -> Option<KubernetesObject> {
    let object = ObjectRef::of(&record.attributes).filter(|_| record.kind == ResourceType::Kubernetes);
    object.map(|object| KubernetesObject {
        cluster: record.cluster.clone(),
        uid: record.uid().unwrap_or_default().to_owned(),
        group: object.group,
        version: object.version,
        kind: object.kind,
        namespace: record.default_namespace().map_or(object.namespace, str::to_owned),
        name: object.name,
    })
}

/// The result of what was to be removed and is left as it is.
pub(crate) fn not_deleted(result: ResourceResult, message: String) -> ResourceResult {
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
pub(crate) async fn report(
    observer: &dyn Observer,
    results: impl IntoIterator<Item = ResourceResult>,
) -> Result<(), Abandoned> {
    let mut reports: FuturesUnordered<_> = results.into_iter().map(|result| observer.result(result)).collect();
    while let Some(reported) = reports.next().await {
        reported?;
    }
    Ok(())
}
