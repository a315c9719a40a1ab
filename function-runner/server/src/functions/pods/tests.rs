//! Pods of a cluster in memory.

use std::convert::Infallible;

use hyper::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

fn state_of(status: &Value) -> State {
    state(&serde_json::from_value(json!({"metadata": {"name": "f"}, "status": status})).unwrap())
}

#[test]
fn pod_is_ready_with_address_and_condition() {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    assert_eq!(state_of(&json!({"phase": "Pending"})), State::Starting);
    assert_eq!(state_of(&json!({"phase": "Running", "podIP": "10.0.0.1"})), State::Starting);
    let running = json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": ready});
    assert_eq!(state_of(&running), State::Ready("10.0.0.1:9446".to_owned()));
    let other = json!({"phase": "Running", "podIP": "fd00::1", "conditions": ready});
    assert_eq!(state_of(&other), State::Ready("[fd00::1]:9446".to_owned()));
}

#[test]
fn broken_pod_says_why() {
    let waiting = json!([{
        "name": "function", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }]);
    let broken = state_of(&json!({"phase": "Pending", "containerStatuses": waiting}));
    assert_eq!(broken, State::Broken("ImagePullBackOff: no such image".to_owned()));
    let failed = state_of(&json!({"phase": "Failed", "reason": "DeadlineExceeded"}));
    assert_eq!(failed, State::Broken("its phase is Failed: DeadlineExceeded".to_owned()));
}

fn pods() -> Pods {
    let options = Options {
        namespace: "functions".to_owned(),
        images: vec!["registry.example.com/fn/".to_owned()],
        wrapper: "registry.example.com/wrapper:v1".to_owned(),
        kubeconfig: None,
    };
    Pods::new(options, Limits { memory: 1, processor: START, time: START, answer: 1 })
}

#[test]
fn only_allowed_images_run() {
    let pods = pods();
    assert!(pods.has("registry.example.com/fn/check:v1"));
    assert!(!pods.has("registry.example.com/other/check:v1") && !pods.has("example.com/registry.example.com/fn/a"));
}

#[test]
fn allowed_beginning_ends_with_a_part_of_the_name() {
    for (beginning, image, is_allowed) in [
        ("example.com/fn", "example.com/fn/check:v1", true),
        ("example.com/fn", "example.com/fn:v1", true),
        ("example.com/fn", "example.com/fn@sha256:00", true),
        ("example.com/fn", "example.com/fn-other/check:v1", false),
        ("example.com/fn", "example.com/fn2:v1", false),
        ("example.com/fn/check:v1", "example.com/fn/check:v1", true),
        ("example.com/fn/check:v1", "example.com/fn/check:v1@sha256:00", true),
        ("example.com/fn/check:v1", "example.com/fn/check:v10", false),
        ("example.com", "example.com/fn/check:v1", true),
        ("example.com", "example.com:5000/fn/check:v1", false),
        ("example.com", "example.com.other.org/fn/check:v1", false),
        ("", "example.com/fn/check:v1", false),
    ] {
        assert_eq!(super::is_allowed(image, beginning), is_allowed, "{beginning} {image}");
    }
}

#[test]
fn images_without_pod_keep_no_slot() {
    let pods = pods();
    drop(pods.slot("a"));
    let _used = pods.slot("b");
    drop(pods.slot("c"));
    let slots = pods.0.slots.lock().unwrap();
    assert!(!slots.contains_key("a") && slots.contains_key("b"));
}

/// The pods of a cluster. A new one is ready at once.
#[derive(Default)]
struct FakeCluster(SyncMutex<Vec<Value>>);

impl FakeCluster {
    /// A function-runner of this cluster.
    fn runner(self: &Arc<Self>) -> Pods {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        let runner = pods();
        assert!(runner.0.client.set(Client::new(service, "functions")).is_ok());
        runner
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let sent = body.collect_bytes().await.unwrap();
        let name = head.uri.path().strip_prefix("/api/v1/namespaces/functions/pods").unwrap();
        let name = name.trim_start_matches('/');
        let mut pods = self.0.lock().unwrap();
        let position = pods.iter().position(|pod| pod["metadata"]["name"] == name);
        let (code, body): (u16, Value) = match (head.method.as_str(), name, position) {
            ("POST", "", _) => {
                let mut pod: Value = serde_json::from_slice(&sent).unwrap();
                let number = pods.len();
                pod["metadata"]["name"] = format!("function-{number}").into();
                pod["metadata"]["creationTimestamp"] = Timestamp::now().to_string().into();
                let ready = json!([{"type": "Ready", "status": "True"}]);
                pod["status"] = json!({"phase": "Running", "podIP": format!("10.0.0.{number}"), "conditions": ready});
                pods.push(pod.clone());
                (201, pod)
            }
            ("GET", "", _) => (200, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": *pods})),
            ("GET", _, Some(at)) => (200, pods[at].clone()),
            ("DELETE", _, Some(at)) => (200, pods.remove(at)),
            (_, _, None) => {
                (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404}))
            }
            (method, ..) => panic!("{method} {name}"),
        };
        Response::builder().status(code).body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap()
    }

    fn change(&self, name: &str, pointer: &str, value: &str) {
        let mut pods = self.0.lock().unwrap();
        let pod = pods.iter_mut().find(|pod| pod["metadata"]["name"] == name).unwrap();
        *pod.pointer_mut(pointer).unwrap() = value.into();
    }

    fn names(&self) -> Vec<String> {
        let pods = self.0.lock().unwrap();
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The pod of a function by the digest of its image.
async fn obtained(runner: &Pods, digest: &str) -> Warm {
    let program = Program {
        image: format!("registry.example.com/fn/check@sha256:{digest}"),
        command: vec!["/function".to_owned()],
    };
    Box::pin(runner.obtain("registry.example.com/fn/check:v1", &program)).await.unwrap()
}

#[tokio::test]
async fn pod_with_the_label_alone_gets_no_calls() {
    let cluster = Arc::<FakeCluster>::default();
    let (one, other) = (cluster.runner(), cluster.runner());
    let first = obtained(&one, "00").await;
    cluster.change(&first.pod, "/spec/containers/0/image", "example.com/of-somebody-else:v1");
    let second = obtained(&other, "00").await;
    assert_ne!(second.pod, first.pod);
    assert_eq!(obtained(&one, "00").await.pod, second.pod);
}

#[tokio::test]
async fn runners_share_the_pod_of_a_function() {
    let cluster = Arc::<FakeCluster>::default();
    let (one, other) = (cluster.runner(), cluster.runner());
    let first = obtained(&one, "00").await;
    let same = obtained(&other, "00").await;
    assert_eq!((&first.pod, &first.address), (&same.pod, &same.address));
    let moved = obtained(&other, "01").await;
    assert_ne!(moved.pod, first.pod, "the tag moved to another image");
    // The end of a runner leaves its pods to the other one.
    one.shut_down().await;
    assert_eq!(cluster.names(), [first.pod.as_str(), moved.pod.as_str()]);
    // A pod that is too old is no longer shared.
    cluster.change(&first.pod, "/metadata/creationTimestamp", "2020-01-01T00:00:00Z");
    let next = obtained(&one, "00").await;
    assert_ne!(next.pod, first.pod);
    cluster.change(&first.pod, "/status/phase", "Failed");
    assert_eq!(obtained(&other, "00").await.pod, next.pod);
    assert_eq!(cluster.names(), [moved.pod.as_str(), next.pod.as_str()], "the ended pod is removed");
}
