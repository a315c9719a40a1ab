//! What is in etcd and does not decode: an error for itself alone, whatever is done around it.
//!
//! Elsewhere: `state` has what is recorded of deployments, by which a run is refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use stoa_e2e::{Answer, Caller, Cluster, Etcd, Server as _, unique};
use stoa_types::config::Source;
use tokio::task::block_in_place;

#[path = "undecodable/state.rs"]
mod state;

/// How long anything that has to happen may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(90);
const BROKEN: &[u8] = b"not JSON";
const IGNORING: &str = "?ignoreStoreReadErrorWithClusterBreakingPotential=true";
/// Lets bob delete Sources, and no more.
const DELETERS: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: deletes-sources}
rules:
- {apiGroups: [config.stoa.dev], resources: [sources], verbs: [delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: deletes-sources}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: deletes-sources}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
";

struct Stage {
    cluster: Cluster,
    etcd: Etcd,
    /// The admin, by way of kube-apiserver.
    door: Caller,
    /// The admin at Stoa itself.
    stoa: Client,
    namespace: String,
}

impl Stage {
    fn set() -> Self {
        let cluster = Cluster::replicated(1);
        let namespace = unique("broken");
        cluster.kubectl().run(&["create", "namespace", &namespace]);
        let (etcd, door, stoa) = (cluster.etcd(), cluster.front_door(), cluster.replicas().swap_remove(0));
        Self { cluster, etcd, door, stoa, namespace }
    }

    fn path(&self, name: &str) -> String {
        format!("/apis/config.stoa.dev/v1alpha1/namespaces/{}/sources/{name}", self.namespace)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.door.ask(method, path, &[("content-type", media)], body).await
    }

    async fn create(&self, name: &str) -> Answer {
        let source = json!({"apiVersion": "config.stoa.dev/v1alpha1", "kind": "Source", "metadata": {"name": name},
            "spec": {"remote": format!("file:///{name}.git"), "pollInterval": "1h"}});
        self.ask("POST", self.path("").trim_end_matches('/'), &source).await
    }

    fn sources(&self) -> Api<Source> {
        Api::namespaced(self.stoa.clone(), &self.namespace)
    }

    async fn names(&self) -> Vec<String> {
        self.sources().list(&Default::default()).await.unwrap().iter().map(|source| source.name_any()).collect()
    }

    fn key(&self, name: &str) -> String {
        format!("/registry/config.stoa.dev/sources/{}/{name}", self.namespace)
    }

    /// Writes to etcd past Stoa.
    async fn put(&self, name: &str, value: &[u8]) {
        self.etcd.put(&self.key(name), value).await;
    }

    /// What etcd has of an object.
    async fn stored(&self, name: &str) -> Option<Vec<u8>> {
        self.etcd.get(&self.key(name)).await
    }

    /// Waits until the metric of Sources that do not decode has this value.
    async fn counts(&self, expected: u64) {
        let line = format!("stoa_undecodable_objects{{group=\"config.stoa.dev\",resource=\"sources\"}} {expected}\n");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
            let metrics = self.stoa.request_text(request).await.unwrap();
            if metrics.contains(&line) {
                return;
            }
            let there: Vec<_> = metrics.lines().filter(|line| line.contains("undecodable")).collect();
            assert!(Instant::now() < deadline, "not {line}: {there:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What holds as long as `broken` does not decode.
    async fn is_an_error_for_itself_alone(&self) {
        assert_eq!(self.names().await, ["good"]);
        for (method, body) in [("GET", Value::Null), ("PATCH", json!({"spec": {"ref": "x"}})), ("DELETE", Value::Null)]
        {
            let answer = self.ask(method, &self.path("broken"), &body).await;
            assert_eq!((answer.code, &answer.body["reason"]), (500, &json!("InternalError")), "{method}: {answer:?}");
            let message = answer.message();
            assert!(message.contains("object not decodable") && !message.contains("not JSON"), "{message}");
        }
        let answer = self.create("broken").await;
        assert_eq!((answer.code, &answer.body["reason"]), (409, &json!("AlreadyExists")), "{answer:?}");
        assert_eq!(self.stored("broken").await.unwrap(), BROKEN);
        let answer = self.ask("PATCH", &self.path("good"), &json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!(answer.code, 200, "{answer:?}");
        self.counts(1).await;
    }
}

/// Waits for an event of `broken`. Only changes may come before it, such as of the status.
async fn happens(expected: &str, events: &mut BoxStream<'_, kube::Result<WatchEvent<Source>>>) {
    loop {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time").unwrap().unwrap();
        let (what, source) = match event {
            WatchEvent::Added(source) => ("ADDED", source),
            WatchEvent::Modified(source) => ("MODIFIED", source),
            WatchEvent::Deleted(source) => ("DELETED", source),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{status:?}"),
        };
        if source.name_any() != "broken" {
            continue;
        }
        if what == expected {
            return;
        }
        assert_eq!(what, "MODIFIED", "instead of {expected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupted_object_fails_alone() {
    let stage = block_in_place(Stage::set);
    for name in ["good", "broken"] {
        let answer = stage.create(name).await;
        assert_eq!(answer.code, 201, "{answer:?}");
    }
    stage.counts(0).await;
    let whole = stage.stored("broken").await.unwrap();
    let since = stage.sources().list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
    let sources = stage.sources();
    let mut events = sources.watch(&WatchParams::default(), &since).await.unwrap().boxed();

    stage.put("broken", BROKEN).await;
    happens("DELETED", &mut events).await;
    stage.is_an_error_for_itself_alone().await;

    stage.put("broken", &whole).await;
    happens("ADDED", &mut events).await;
    assert_eq!(stage.names().await, ["broken", "good"]);
    let answer = stage.ask("PATCH", &stage.path("broken"), &json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    happens("MODIFIED", &mut events).await;
    stage.counts(0).await;

    stage.put("broken", BROKEN).await;
    happens("DELETED", &mut events).await;
    drop(events);
    block_in_place(|| {
        stage.cluster.kill_replica(0);
        stage.cluster.restart();
        stage.cluster.kubectl().run(&[
            "wait",
            "--for=condition=Available",
            "--timeout=120s",
            "apiservice",
            "v1alpha1.config.stoa.dev",
        ]);
    });
    stage.is_an_error_for_itself_alone().await;

    // It keeps nothing else from going.
    let answer = stage.ask("DELETE", stage.path("").trim_end_matches('/'), &Value::Null).await;
    assert_eq!(answer.code, 200, "{answer:?}");
    assert_eq!(stage.names().await, [""; 0]);
    let kubectl = stage.cluster.kubectl();
    block_in_place(|| {
        kubectl.apply(DELETERS);
        kubectl.run(&["delete", "namespace", &stage.namespace, "--timeout=120s"])
    });
    assert_eq!(stage.stored("broken").await.unwrap(), BROKEN);
    stage.counts(1).await;

    let path = format!("{}{IGNORING}", stage.path("broken"));
    let refused = stage.door.ask("DELETE", &path, &[("impersonate-user", "bob")], &Value::Null).await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert!(refused.message().contains("cannot unsafe-delete-ignore-read-errors"), "{refused:?}");
    let deleted = stage.ask("DELETE", &path, &Value::Null).await;
    assert_eq!((deleted.code, &deleted.body["status"]), (200, &json!("Success")), "{deleted:?}");
    assert_eq!(stage.stored("broken").await, None);
    stage.counts(0).await;
    let gone = stage.ask("GET", &stage.path("broken"), &Value::Null).await;
    assert_eq!(gone.code, 404, "{gone:?}");
}
