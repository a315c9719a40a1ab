//! Tests of objects that are not ready.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use stoa_engine::Resource;
use stoa_runtime::{Health, Runtime as _};

use super::*;
use crate::KubernetesRuntime;
use crate::connections::Connection;
use crate::testing::widget;

/// A server that answers paths and queries that have a text in them with a code and a body, the first that fits; what it was
/// asked. It never says anything on a watch.
fn server(answers: Vec<(&'static str, u16, Value)>) -> (Arc<Cluster>, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        seen.lock().unwrap().push(uri.clone());
        let found = answers.iter().find(|(part, ..)| uri.contains(part));
        let (code, body) = found.map_or((404, json!({})), |(_, code, body)| (*code, body.clone()));
        let (code, body) = match uri.contains("watch=") {
            true => (200, StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>()).boxed_unsync()),
            false => (code, Full::from(body.to_string()).boxed_unsync()),
        };
        let response = Response::builder().status(code).body(body);
        async move { Ok::<_, Infallible>(response.unwrap()) }
    });
    let connection = Connection::new("https://example.com".to_owned(), Client::new(service, "default"));
    (Arc::new(Cluster::new("main".to_owned(), connection)), asked)
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "d", "generation": 1, "resourceVersion": "7"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}},
        "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}})
}

fn pod(name: &str, created: u32, status: Value) -> Value {
    json!({"metadata": {"name": name, "uid": name, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")}, "status": status})
}

fn waiting(reason: &str, message: &str, last: Value) -> Value {
    let state = json!({"waiting": {"reason": reason, "message": message}});
    json!({"phase": "Pending", "containerStatuses": [{"name": "web", "ready": false, "state": state, "lastState": last}]})
}

/// What is said of an object whose Pods and Events a server answers with.
async fn explained(object: Value, answers: Vec<(&'static str, u16, Value)>) -> String {
    let (cluster, _) = server(answers);
    let resource = Resource { attributes: object.as_object().unwrap().clone(), ..widget("shop", "web") };
    let target = Target::of_desired(&resource).unwrap();
    let api = Api { plural: String::new(), namespaced: target.namespace.is_some() };
    Diagnosis::of(&cluster, &target, &api).read(&resource.attributes).await.unwrap()
}

fn pods(pods: &[Value]) -> (&'static str, u16, Value) {
    ("/namespaces/shop/pods?", 200, json!({ "items": pods }))
}

fn events(events: &[Value]) -> (&'static str, u16, Value) {
    ("/namespaces/shop/events?", 200, json!({ "items": events }))
}

#[tokio::test(start_paused = true)]
async fn failing_containers_are_named_with_reason() {
    let crashed = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let scheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]);
    for (status, expected) in [
        (
            waiting("ImagePullBackOff", "Back-off pulling image \"registry.invalid/web\"", json!({})),
            "Pod web-1: container web: ImagePullBackOff: Back-off pulling image \"registry.invalid/web\"",
        ),
        (
            waiting("CrashLoopBackOff", "back-off 20s restarting failed container", crashed.clone()),
            "Pod web-1: container web: CrashLoopBackOff, it ended with exit code 1 (Error)",
        ),
        (json!({"phase": "Pending", "conditions": scheduled}), "Pod web-1: Unschedulable: 0/3 nodes are available"),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}),
            "Pod web-1: Evicted: The node was low on memory.",
        ),
        (
            json!({"initContainerStatuses": [{"name": "migrate", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}),
            "Pod web-1: container migrate ended with exit code 137 (OOMKilled)",
        ),
        (waiting("ContainerCreating", "", json!({})), ""),
        (
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "web", "ready": true, "lastState": crashed}]}),
            "",
        ),
    ] {
        let said = explained(deployment(), vec![pods(&[pod("web-1", 1, status.clone())]), events(&[])]).await;
        assert_eq!(said, expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_with_same_problem_share_sentence() {
    let all: Vec<Value> =
        (0..50).map(|n| pod(&format!("web-{n}"), n, waiting("ErrImagePull", "not found", json!({})))).collect();
    let said = explained(deployment(), vec![pods(&all), events(&[])]).await;
    assert_eq!(said, "Pod web-49 and 49 more: container web: ErrImagePull: not found");
}

#[tokio::test(start_paused = true)]
async fn newest_warnings_are_reported_without_repeats() {
    let event = |reason: &str, message: &str, second: u32| json!({"reason": reason, "message": message, "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z")});
    let of_pod = [
        event("BackOff", "Back-off restarting failed container", 9),
        event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 8),
        event("Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 7),
        event("FailedMount", "secret \"db\" not found", 6),
        event("Older", "left out", 1),
    ];
    let crashed = json!({"terminated": {"exitCode": 2}});
    let answers = vec![
        pods(&[pod("web-1", 1, waiting("CrashLoopBackOff", "back-off", crashed))]),
        ("involvedObject%2Euid%3Dweb%2D1%2Ctype%3DWarning", 200, json!({"items": of_pod})),
        events(&[]),
    ];
    let expected = "Pod web-1: container web: CrashLoopBackOff, it ended with exit code 2; Warning Unhealthy of Pod web-1: \
                    Readiness probe failed: HTTP probe failed with statuscode: 503; Warning FailedMount of Pod web-1: secret \"db\" not found";
    assert_eq!(explained(deployment(), answers).await, expected);
}

#[tokio::test(start_paused = true)]
async fn explanation_shows_no_output_of_containers() {
    let crashed = json!({"terminated": {"exitCode": 1, "reason": "Error", "message": "login failed: hunter2"}});
    let event = |reason: &str, message: &str| json!({"reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"});
    for (status, warning, expected) in [
        (
            waiting("CrashLoopBackOff", "back-off", crashed.clone()),
            event("Unhealthy", "Readiness probe failed: login failed: hunter2"),
            "Pod web-1: container web: CrashLoopBackOff, it ended with exit code 1 (Error); Warning Unhealthy of Pod web-1: \
             Readiness probe failed",
        ),
        (
            json!({"initContainerStatuses": [{"name": "migrate", "state": crashed}]}),
            event("ProbeWarning", "Liveness probe warning: Probe terminated redirects, Response body: hunter2"),
            "Pod web-1: container migrate ended with exit code 1 (Error); Warning ProbeWarning of Pod web-1: \
             Liveness probe warning",
        ),
        (
            waiting("PostStartHookError", "Exec lifecycle hook ([sh]) failed - message: \"hunter2\"", json!({})),
            event("FailedPostStartHook", "Exec lifecycle hook ([sh]) failed - message: \"hunter2\""),
            "Pod web-1: container web: PostStartHookError; Warning FailedPostStartHook of Pod web-1: a lifecycle hook failed",
        ),
    ] {
        let of_pod = ("involvedObject%2Euid%3Dweb%2D1", 200, json!({"items": [warning]}));
        let said = explained(deployment(), vec![pods(&[pod("web-1", 1, status)]), of_pod, events(&[])]).await;
        assert_eq!(said, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn deployment_without_pods_reports_cause() {
    let mut object = deployment();
    object["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": "pods \"web-1\" is forbidden: exceeded quota"}]);
    let said = explained(object, vec![pods(&[]), events(&[])]).await;
    assert_eq!(said, "FailedCreate: pods \"web-1\" is forbidden: exceeded quota");
}

#[tokio::test(start_paused = true)]
async fn any_kind_reports_its_warning_events() {
    let warning = |reason: &str, message: &str| json!({"reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:00:00Z"});
    let object = |api_version: &str, kind: &str, namespace: Value| {
        let metadata = json!({"name": "data", "namespace": namespace, "uid": "u"});
        // It selects nothing that is shown.
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"selector": {"matchLabels": {"app": "web"}}}})
    };
    let said = [warning("ProvisioningFailed", "storage class fast is not there")];
    let expected = "Warning ProvisioningFailed: storage class fast is not there";
    for (api_version, kind) in [
        ("v1", "PersistentVolumeClaim"),
        ("v1", "Service"),
        ("networking.k8s.io/v1", "Ingress"),
        ("example.com/v1", "Database"),
    ] {
        let (cluster, asked) = server(vec![events(&said)]);
        let attributes = object(api_version, kind, json!("shop")).as_object().unwrap().clone();
        let target =
            Target::of_desired(&Resource { attributes: attributes.clone(), ..widget("shop", "data") }).unwrap();
        let api = Api { plural: String::new(), namespaced: true };
        assert_eq!(Diagnosis::of(&cluster, &target, &api).read(&attributes).await.unwrap(), expected, "{kind}");
        assert!(asked.lock().unwrap().iter().all(|uri| !uri.contains("/pods?")), "{kind} has no Pods");
    }
    // Events of a cluster-scoped object are in the namespace `default`.
    let events = ("/namespaces/default/events?", 200, json!({"items": said}));
    assert_eq!(explained(object("example.com/v1", "Zone", json!(null)), vec![events]).await, expected);
    let refused = ("/namespaces/default/events?", 403, json!({"kind": "Status", "message": "events is forbidden"}));
    let expected = "the cause is unknown: the workspace's credentials may not list events in namespace default";
    assert_eq!(explained(object("example.com/v1", "Zone", json!(null)), vec![refused]).await, expected);
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_one_sentence() {
    let refused = json!({"kind": "Status", "message": "pods is forbidden"});
    let ready = ("/readyz", 200, json!({}));
    let said = explained(deployment(), vec![ready, ("/namespaces/shop/", 403, refused)]).await;
    assert_eq!(
        said,
        "the cause is unknown: the workspace's credentials may not list pods and events in namespace shop"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_workload_is_diagnosed_every_ten_seconds() {
    let resources = json!({"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": true}]});
    let (cluster, asked) = server(vec![
        ("/deployments/web", 200, deployment()),
        pods(&[pod("web-1", 1, waiting("ErrImagePull", "not found", json!({})))]),
        events(&[]),
        ("/apis/apps/v1", 200, resources),
    ]);
    let runtime = KubernetesRuntime::of(vec![cluster], crate::testing::owner());
    let attributes = deployment().as_object().unwrap().clone();
    let desired = Resource { attributes, ..widget("shop", "web") };
    let heard = Mutex::new(Vec::new());
    let report = |health: Health, message: &str| heard.lock().unwrap().push((health, message.to_owned()));
    let wait = runtime.wait_healthy(&desired, &report);
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_err();
    let base = "0 of 2 updated replicas are available".to_owned();
    let why = format!("{base}; Pod web-1: container web: ErrImagePull: not found");
    assert_eq!(*heard.lock().unwrap(), [(Health::InProgress, base), (Health::InProgress, why)]);
    let asked = asked.lock().unwrap();
    let lists: Vec<_> = asked.iter().filter(|uri| uri.contains("/pods?")).collect();
    assert_eq!(lists.len(), 6, "after 5, 15, 25, 35, 45 and 55 s: {asked:?}");
    assert!(lists[0].contains("labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29"), "{}", lists[0]);
}
