//! The end of Jobs that no longer exist: Kubernetes deleted them after their end, or somebody did before.
//!
//! Start at [`ends`]. An Event says how a Job ended, for one hour by default (`--event-ttl` of kube-apiserver). Without
//! one, the time since its creation excludes a part of the cases: Kubernetes deletes no Job before its TTL has passed.
//! Otherwise the end is assumed: a migration that runs again does more harm than one that somebody deleted and that
//! does not run.
//!
//! Source: `k8s.io/kubernetes/pkg/controller/job/job_controller.go` (`recordJobFinished`) and
//! `pkg/controller/ttlafterfinished`.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use stoa_engine::{Sensitive, StateResource};
use stoa_runtime::{JobEnd, RuntimeError};

use crate::KubernetesRuntime;
use crate::diagnosis::{escaped, list};

/// The number of parallel reads of Events.
const READS: usize = 16;

/// The reason of the Event of a Job that has finished.
const COMPLETED: &str = "Completed";

/// The reasons of Warnings about Jobs that have failed: those of the condition `Failed` (`k8s.io/api/batch/v1/types.go`).
const FAILED: [&str; 5] =
    ["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    reason: Option<String>,
}

/// The ends of these Jobs, which no longer exist, in their order.
pub(crate) async fn ends(runtime: &KubernetesRuntime, jobs: &[&StateResource]) -> Result<Vec<JobEnd>, RuntimeError> {
    let now = Timestamp::now();
    let asked: Vec<_> = jobs.iter().map(|job| end(runtime, job, now)).collect();
    stream::iter(asked).buffered(READS).try_collect().await
}

async fn end(runtime: &KubernetesRuntime, job: &StateResource, now: Timestamp) -> Result<JobEnd, RuntimeError> {
    let by_time = by_time(job, now);
    let (index, target) = runtime.prior_target(job)?;
    let cluster = runtime.cluster(index);
    let Some(uid) = job.uid() else { return Ok(by_time) };
    let namespace = target.namespace.as_deref().unwrap_or_else(|| cluster.default_namespace());
    let query = format!("fieldSelector={}", escaped(&format!("involvedObject.uid={uid}")));
    match list::<Event>(cluster, namespace, "events", &query).await {
        Ok(events) => Ok(by_events(&events).unwrap_or(by_time)),
        Err(error) if error.is_refusal() => Ok(by_time),
        Err(error) => Err(error.into_runtime(&cluster.name, &Sensitive::default())),
    }
}

fn by_events(events: &[Event]) -> Option<JobEnd> {
    let has = |reasons: &[&str]| events.iter().filter_map(|it| it.reason.as_deref()).any(|it| reasons.contains(&it));
    match () {
        () if has(&FAILED) => Some(JobEnd::Missing),
        () if has(&[COMPLETED]) => Some(JobEnd::Finished),
        () => None,
    }
}

/// The end of a Job by the time since its creation.
fn by_time(job: &StateResource, now: Timestamp) -> JobEnd {
    let spec = |field: &str| job.attributes.get("spec").and_then(|spec| spec.get(field));
    // A suspended Job does not end.
    let is_suspended = spec("suspend") == Some(&Value::Bool(true));
    let ttl = spec("ttlSecondsAfterFinished").and_then(Value::as_i64).map(SignedDuration::from_secs);
    let created = job.live.get("metadata").and_then(|metadata| metadata.get("creationTimestamp"));
    let created = created.and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());
    let earliest = created.zip(ttl).and_then(|(created, ttl)| created.checked_add(ttl).ok());
    match earliest {
        Some(earliest) if earliest <= now && !is_suspended => JobEnd::Assumed,
        Some(_) | None => JobEnd::Missing,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::cluster::Cluster;
    use crate::connections::Connection;

    fn job(created: &str, spec: Value) -> StateResource {
        let metadata = json!({"name": "a", "namespace": "shop", "uid": "u", "creationTimestamp": created});
        let object = |metadata: Value| {
            let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
            object.as_object().unwrap().clone()
        };
        let attributes = object(json!({"name": "a", "namespace": "shop"}));
        StateResource { attributes, live: object(metadata), ..StateResource::default() }
    }

    const NOON: &str = "2026-01-01T12:00:00Z";

    #[test]
    fn job_absent_before_its_ttl_is_missing() {
        let now: Timestamp = NOON.parse().unwrap();
        let ttl = |seconds: i64| json!({"ttlSecondsAfterFinished": seconds});
        for (created, spec, expected) in [
            ("2026-01-01T11:00:00Z", ttl(3600), JobEnd::Assumed),
            ("2026-01-01T11:00:01Z", ttl(3600), JobEnd::Missing),
            (NOON, ttl(0), JobEnd::Assumed),
            ("2026-01-01T11:00:00Z", json!({"ttlSecondsAfterFinished": 0, "suspend": true}), JobEnd::Missing),
            ("2026-01-01T11:00:00Z", json!({}), JobEnd::Missing),
            ("a while ago", ttl(0), JobEnd::Missing),
        ] {
            assert_eq!(by_time(&job(created, spec.clone()), now), expected, "{created} {spec}");
        }
    }

    #[tokio::test]
    async fn events_tell_how_job_ended() {
        let event = |reason: &str| json!({"reason": reason, "type": "Normal"});
        let old = || job("2026-01-01T11:00:00Z", json!({"ttlSecondsAfterFinished": 0}));
        let new = || {
            job(&(Timestamp::now() + SignedDuration::from_hours(1)).to_string(), json!({"ttlSecondsAfterFinished": 0}))
        };
        for (job, code, events, expected) in [
            (old(), 200, json!([event("SuccessfulCreate"), event("Completed")]), JobEnd::Finished),
            (new(), 200, json!([event("Completed")]), JobEnd::Finished),
            (old(), 200, json!([event("BackoffLimitExceeded")]), JobEnd::Missing),
            (old(), 200, json!([event("SuccessfulCreate")]), JobEnd::Assumed),
            (old(), 200, json!(null), JobEnd::Assumed),
            (old(), 403, json!([]), JobEnd::Assumed),
            (new(), 403, json!([]), JobEnd::Missing),
        ] {
            let body = Bytes::from(json!({ "items": events }).to_string());
            let service = tower::service_fn(move |request: Request<Body>| {
                // A server that refuses is asked whether it is ready, too.
                let uri = request.uri().to_string();
                let is_asked = uri.contains("/namespaces/shop/events?") && uri.contains("involvedObject%2Euid%3Du");
                let code = if is_asked { code } else { 200 };
                let response = Response::builder().status(code).body(Full::new(body.clone())).unwrap();
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = Connection::new("https://example.com".to_owned(), Client::new(service, "default"));
            let cluster = Arc::new(Cluster::new("main".to_owned(), connection));
            let runtime = KubernetesRuntime::of(vec![cluster], stoa_engine::Owner::default());
            assert_eq!(ends(&runtime, &[&job]).await.unwrap(), [expected], "{code} {events}");
        }
    }
}
