//! Waits for the health of an object by a watch. `diagnosis` explains meanwhile why it is not ready.
//!
//! A Job that Kubernetes deletes after it has finished is watched to its end, because its end cannot be read later: for
//! a minute ([`TO_THE_END`]), or for the timeout of its resource.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use stoa_engine::declared::declared;
use stoa_engine::timeout::timeout;
use stoa_engine::{Problem, Resource, Sensitive};
use stoa_runtime::{Health, HealthReport, RuntimeError};
use tokio::time::Instant;

use crate::KubernetesRuntime;
use crate::cluster::Cluster;
use crate::diagnosis::{self, Diagnosis};
use crate::discovery::Discovered;
use crate::error::CallError;
use crate::kinds;
use crate::kstatus;
use crate::policy::HealthPolicy;
use crate::target::Target;
use crate::watch::{Followed, State};

/// How long a running Job is watched that Kubernetes deletes after it has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jobs {
    /// To its end: a Job that runs is `InProgress` until then.
    ToTheEnd,
    /// Not at all: a running Job is `Current`, as any other.
    AsTheyAre,
    /// Every Job and Pod until it has succeeded or failed, whatever its policy; other kinds until they exist.
    Completed,
}

/// How long a running Job is watched to its end, without a timeout of its resource.
const TO_THE_END: Duration = Duration::from_secs(60);

pub(crate) async fn wait_healthy(
    runtime: &KubernetesRuntime,
    desired: &Resource,
    jobs: Jobs,
    report: &HealthReport<'_>,
) -> Result<Health, RuntimeError> {
    let (index, target) = runtime.desired_target(desired)?;
    let cluster = runtime.cluster(index);
    let applied = runtime.take_applied(&desired.id);
    let own = HealthPolicy::of(desired).map_err(refused)?;
    let is_completion = jobs == Jobs::Completed;
    let policy = own.as_ref().or_else(|| runtime.policies.of(&target.gvk)).filter(|_| !is_completion);
    let exists = is_completion && !kstatus::completes(&target.gvk);
    if policy.is_none() && (exists || is_current_at_once(&target, applied.as_ref())) {
        report(Health::Current, "it exists");
        return Ok(Health::Current);
    }
    let sensitive = Sensitive::of(&desired.attributes, &declared(desired));
    let explain = |err: CallError| match err {
        // The server may not have heard of the kind that the one beside it serves.
        CallError::Status(failure) if failure.is_missing_kind() && cluster.is_new(&target.gvk) => {
            CallError::Unreachable(failure.status.message).into_runtime(&cluster.name, &sensitive)
        }
        err => err.into_runtime(&cluster.name, &sensitive),
    };
    let Discovered::Served(api) = cluster.discover(&target.gvk).await.map_err(explain)? else {
        return Err(kinds::unknown(&target, &cluster.name));
    };
    let first = match applied {
        Some(object) => Some(object),
        None => cluster.get(&cluster.path(&target, &api)).await.map_err(explain)?,
    };
    if let Some(object) = &first
        && policy.is_none()
        && !is_completion
        && let Some(message) = waits_for_consumer(cluster, &target, object).await.map_err(explain)?
    {
        report(Health::Current, &message);
        return Ok(Health::Current);
    }
    let said = Said { report, last: Mutex::default() };
    let mut followed = Followed::new(cluster, &target, &api, first);
    let diagnosis = Diagnosis::of(cluster, &target, &api);
    let settled = async {
        // Until when a Job that runs is followed to its end.
        let mut until: Option<Instant> = None;
        loop {
            let next = match until {
                Some(until) => match tokio::time::timeout_at(until, followed.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        report(Health::Current, "it was running and did not report its end");
                        return Ok(Health::Current);
                    }
                },
                None => followed.next().await,
            };
            let state = next.map_err(explain)?;
            let (mut health, mut message) = match (&state, policy) {
                (Some(object), Some(policy)) => policy.health(&target.gvk, object).await,
                (Some(object), None) => kstatus::health(&target.gvk, object),
                (None, _) => (Health::Failed, "it was deleted before it finished".to_owned()),
            };
            match &state {
                Some(object) if is_completion => {
                    if health == Health::Current && !kstatus::has_completed(&target.gvk, object) {
                        (health, message) = (Health::InProgress, format!("waiting for it to complete: {message}"));
                    }
                }
                Some(job) if kstatus::is_deleted_when_finished(&target.gvk, job) && kstatus::has_finished(job) => {
                    runtime.note_finished(&desired.id);
                }
                Some(job)
                    if jobs == Jobs::ToTheEnd
                        && policy.is_none()
                        && health == Health::Current
                        && kstatus::runs_to_its_end(&target.gvk, job) =>
                {
                    (health, message) = (Health::InProgress, format!("waiting for it to finish: {message}"));
                    let is_said = timeout(&desired.extensions, &desired.attributes).ok().flatten().is_some();
                    until = until.or((!is_said).then(|| Instant::now() + TO_THE_END));
                }
                Some(_) | None => {}
            }
            let why = match (health, &state) {
                (Health::Failed, Some(object)) => {
                    tokio::time::timeout(LAST_LOOK, diagnosis.read(object)).await.ok().flatten()
                }
                _ => None,
            };
            said.change(|last| {
                (last.health, last.message, last.object) = (Some(health), message, state);
                last.why = why.unwrap_or_else(|| std::mem::take(&mut last.why));
            });
            if matches!(health, Health::Current | Health::Failed) {
                return Ok(health);
            }
        }
    };
    tokio::select! {
        ended = settled => ended,
        never = said.diagnose_repeatedly(&diagnosis) => match never {},
    }
}

/// The timeout of the diagnosis of a failure.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// The last report of an object, so that none is repeated.
struct Said<'a> {
    report: &'a HealthReport<'a>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    health: Option<Health>,
    message: String,
    /// The diagnosis; empty without one.
    why: String,
    object: State,
    reported: Option<(Health, String)>,
}

impl Said<'_> {
    /// Takes in a change, and reports what follows from it.
    fn change(&self, change: impl FnOnce(&mut Last)) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut last);
        let Some(health) = last.health else { return };
        let is_explained = !last.why.is_empty() && !health.is_settled();
        let message = if is_explained { format!("{}; {}", last.message, last.why) } else { last.message.clone() };
        let now = Some((health, message));
        if last.reported != now {
            if let Some((health, message)) = &now {
                (self.report)(*health, message);
            }
            last.reported = now;
        }
    }

    /// Repeats the diagnosis.
    async fn diagnose_repeatedly(&self, diagnosis: &Diagnosis<'_>) -> Infallible {
        tokio::time::sleep(diagnosis::FIRST).await;
        loop {
            let object = self.last.lock().unwrap_or_else(PoisonError::into_inner).object.clone();
            if let Some(object) = object
                && let Some(why) = diagnosis.read(&object).await
            {
                self.change(|last| last.why = why);
            }
            tokio::time::sleep(diagnosis::AGAIN).await;
        }
    }
}

/// A policy that could be read when the Spec was, and cannot be now.
fn refused(problems: Vec<Problem>) -> RuntimeError {
    let first = problems.into_iter().next();
    let (message, field) = first.map(|problem| (problem.message, problem.field)).unwrap_or_default();
    RuntimeError::Invalid { message, field: Some(field) }
}

/// Whether the applied object is Current without a read. A terminating object still accepts an apply, and is deleted a
/// moment later.
fn is_current_at_once(target: &Target, applied: Option<&Map<String, Value>>) -> bool {
    kstatus::is_current_at_once(&target.gvk) && applied.is_none_or(|object| kstatus::unobserved(object).is_none())
}

/// Whether a claim waits for its first consumer: it stays pending until something uses it, so that a wait for it would
/// never end.
async fn waits_for_consumer(
    cluster: &Arc<Cluster>,
    target: &Target,
    claim: &Map<String, Value>,
) -> Result<Option<String>, CallError> {
    let Some(class) = pending_class(target, claim) else { return Ok(None) };
    let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
    let object = match cluster.get(&path).await {
        // Whoever may not read the class waits for the claim to be bound.
        Err(err) if err.is_refusal() => None,
        found => found?,
    };
    let mode = object.as_ref().and_then(|object| object.get("volumeBindingMode")?.as_str());
    Ok((mode == Some("WaitForFirstConsumer")).then(|| format!("storage class {class} binds it on first use")))
}

/// The class of a claim that may still be bound.
fn pending_class<'c>(target: &Target, claim: &'c Map<String, Value>) -> Option<&'c str> {
    let phase = claim.get("status").and_then(|status| status.get("phase")?.as_str());
    if !target.gvk.is("", "PersistentVolumeClaim")
        || phase.is_some_and(|phase| phase != "Pending")
        || kstatus::unobserved(claim).is_some()
    {
        return None;
    }
    claim.get("spec")?.get("storageClassName")?.as_str().filter(|class| !class.is_empty())
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use stoa_engine::StateResource;
    use stoa_runtime::{KubernetesChecks as _, Runtime as _};

    use crate::connections::Connection;
    use crate::testing::widget;

    fn target(object: &Value) -> Target {
        let attributes = object.as_object().unwrap().clone();
        Target::of_desired(&Resource { attributes, ..widget("shop", "a") }).unwrap()
    }

    fn claim(status: Value) -> Map<String, Value> {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
            "spec": {"storageClassName": "local"}, "status": status});
        claim.as_object().unwrap().clone()
    }

    /// A cluster that answers everything so.
    fn cluster(code: u16, document: &Value) -> Arc<Cluster> {
        let document = Bytes::from(document.to_string());
        let service = tower::service_fn(move |_: Request<Body>| {
            let response = Response::builder().status(code).body(Full::new(document.clone())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = Connection::new("https://example.com".to_owned(), Client::new(service, "default"));
        Arc::new(Cluster::new("main".to_owned(), connection))
    }

    #[tokio::test(start_paused = true)]
    async fn pending_claim_with_late_binding_is_current() {
        let pending = claim(json!({"phase": "Pending"}));
        let target = target(&Value::Object(pending.clone()));
        let class = |mode: &str| cluster(200, &json!({"volumeBindingMode": mode}));
        let message = waits_for_consumer(&class("WaitForFirstConsumer"), &target, &pending).await.unwrap();
        assert_eq!(message.as_deref(), Some("storage class local binds it on first use"));
        let immediate = waits_for_consumer(&class("Immediate"), &target, &pending).await.unwrap();
        assert_eq!(immediate, None);
        // Who may not read the class has to wait, and whom nobody answers knows nothing yet.
        assert_eq!(waits_for_consumer(&cluster(403, &json!({})), &target, &pending).await.unwrap(), None);
        waits_for_consumer(&cluster(503, &json!({})), &target, &pending).await.unwrap_err();

        assert_eq!(pending_class(&target, &claim(json!({}))), Some("local"), "nobody has seen it yet");
        assert_eq!(pending_class(&target, &claim(json!({"phase": "Lost"}))), None);
        let mut going = pending;
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(pending_class(&target, &going), None);
    }

    #[test]
    fn terminating_object_is_not_current() {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let target = target(&object);
        assert!(is_current_at_once(&target, None) && is_current_at_once(&target, object.as_object()));
        object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!is_current_at_once(&target, object.as_object()));
    }
    #[tokio::test]
    async fn job_deleted_after_finish_is_current() {
        let job = |version: &str, conditions: Value, rest: Value| {
            let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": version},
                "spec": {"ttlSecondsAfterFinished": 0}, "status": {"startTime": "x", "conditions": conditions}});
            job["metadata"].as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            job
        };
        let check = async |ended: Value| {
            let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
            let events = [
                json!({"type": "MODIFIED", "object": job("2", json!([]), json!({}))}),
                json!({"type": "MODIFIED", "object": job("3", ended.clone(), json!({}))}),
                json!({"type": "DELETED", "object": job("4", ended, going)}),
            ];
            // The wait sees only the last of them.
            let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
            let service = tower::service_fn(move |request: Request<Body>| {
                let resources = json!({"resources": [{"name": "jobs", "kind": "Job", "namespaced": true}]});
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                if is_watch {
                    let query = request.uri().query().unwrap();
                    assert!(query.contains("resourceVersion=1&") && query.contains("metadata.name%3Da"), "{query}");
                }
                let body = if is_watch { lines.clone() } else { resources.to_string() };
                let response = Response::builder().status(200).body(Full::new(Bytes::from(body))).unwrap();
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = Connection::new("https://example.com".to_owned(), Client::new(service, "default"));
            let cluster = Arc::new(Cluster::new("main".to_owned(), connection));
            let runtime = KubernetesRuntime::of(vec![cluster], stoa_engine::Owner::default());
            let applied = job("1", json!([]), json!({})).as_object().unwrap().clone();
            let desired = Resource { attributes: applied.clone(), ..widget("shop", "a") };
            runtime.remember(&desired.id, &applied);
            let health = wait_healthy(&runtime, &desired, Jobs::ToTheEnd, &|_, _| {}).await.unwrap();
            (health, runtime.has_finished(&desired.id))
        };
        assert_eq!(check(json!([{"type": "Complete", "status": "True"}])).await, (Health::Current, true));
        assert_eq!(check(json!([{"type": "Failed", "status": "True"}])).await, (Health::Failed, false));
        assert_eq!(check(json!([])).await, (Health::Failed, false), "somebody deleted it");
    }
    #[tokio::test(start_paused = true)]
    async fn running_job_is_watched_for_one_minute() {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
            "spec": {"ttlSecondsAfterFinished": 600}, "status": {"startTime": "x", "active": 1}});
        let service = tower::service_fn(|request: Request<Body>| async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let resources = json!({"resources": [{"name": "jobs", "kind": "Job", "namespaced": true}]});
            // Nothing happens.
            let body = if is_watch { String::new() } else { resources.to_string() };
            let body = Full::new(Bytes::from(body));
            Ok::<_, Infallible>(Response::builder().status(200).body(body).unwrap())
        });
        let connection = Connection::new("https://example.com".to_owned(), Client::new(service, "default"));
        let cluster = Arc::new(Cluster::new("main".to_owned(), connection));
        let runtime = KubernetesRuntime::of(vec![cluster], stoa_engine::Owner::default());
        let desired = Resource { attributes: job.as_object().unwrap().clone(), ..widget("shop", "a") };
        let begun = Instant::now();
        let wait = async |desired: &Resource| {
            runtime.remember(&desired.id, &desired.attributes);
            let wait = wait_healthy(&runtime, desired, Jobs::ToTheEnd, &|_, _| {});
            tokio::time::timeout(Duration::from_secs(300), wait).await
        };
        assert_eq!(wait(&desired).await.unwrap().unwrap(), Health::Current);
        assert_eq!((begun.elapsed().as_secs(), runtime.has_finished(&desired.id)), (TO_THE_END.as_secs(), false));
        // A check of its health does not wait for that.
        let begun = Instant::now();
        runtime.remember(&desired.id, &desired.attributes);
        let heard = Mutex::new(Vec::new());
        let report = |health: Health, _: &str| heard.lock().unwrap().push(health);
        assert_eq!(runtime.check_health(&desired, &report).await.unwrap(), Health::Current);
        assert_eq!((begun.elapsed(), heard.into_inner().unwrap()), (Duration::ZERO, vec![Health::Current]));
        // It may take longer where its resource says so.
        let extensions = Map::from_iter([("stoa.dev/timeout".to_owned(), "10m".into())]);
        wait(&Resource { extensions, ..desired }).await.unwrap_err();
    }

    #[tokio::test]
    async fn check_records_finished_job() {
        let resources = json!({"resources": [{"name": "jobs", "kind": "Job", "namespaced": true}]});
        for (kind, ttl, noted) in
            [("Complete", json!(600), true), ("Failed", json!(600), false), ("Complete", json!(null), false)]
        {
            let job = json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "1"},
                "spec": {"ttlSecondsAfterFinished": ttl}, "status": {"startTime": "x",
                    "conditions": [{"type": kind, "status": "True"}]}});
            let runtime = KubernetesRuntime::of(vec![cluster(200, &resources)], stoa_engine::Owner::default());
            let desired = Resource { attributes: job.as_object().unwrap().clone(), ..widget("shop", "a") };
            runtime.remember(&desired.id, &desired.attributes);
            runtime.check_health(&desired, &|_, _| {}).await.unwrap();
            let recorded = StateResource { attributes: desired.attributes.clone(), ..StateResource::default() };
            let found = (runtime.is_deleted_when_finished(&recorded), runtime.has_finished(&desired.id));
            assert_eq!(found, (ttl.is_number(), noted), "{job}");
        }
    }
}
