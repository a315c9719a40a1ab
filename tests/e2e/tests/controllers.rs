//! The controllers of the cluster on Stoa's kinds: the garbage collector and the namespace controller.

#[path = "controllers/stacks.rs"]
mod stacks;

use std::time::Duration;

use serde_json::{Value, json};
use stoa_e2e::{Caller, Cluster, Kubectl, Server as _, unique};

/// The garbage collector finds kinds that are new to it within half a minute.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long what has to stay is looked at.
const A_WHILE: Duration = Duration::from_secs(5);

/// Where objects of a kind are made, and an object of it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Source,
    Backend,
    ConfigMap,
    ClusterRole,
}

impl Kind {
    fn of_stoa(self) -> bool {
        matches!(self, Self::Source | Self::Backend)
    }

    fn path(self, namespace: &str) -> String {
        match self {
            Self::Source => format!("/apis/config.stoa.dev/v1alpha1/namespaces/{namespace}/sources"),
            Self::Backend => "/apis/platform.stoa.dev/v1alpha1/backends".to_owned(),
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::ClusterRole => "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        }
    }

    fn object(self, name: &str) -> Value {
        let (version, kind) = match self {
            Self::Source => ("config.stoa.dev/v1alpha1", "Source"),
            Self::Backend => ("platform.stoa.dev/v1alpha1", "Backend"),
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::ClusterRole => ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        };
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        match self {
            Self::Source => object["spec"] = json!({"remote": format!("file:///{name}.git"), "pollInterval": "1h"}),
            Self::Backend => object["spec"] = json!({"type": "Local"}),
            Self::ConfigMap | Self::ClusterRole => {}
        }
        object
    }
}

/// A reference to an owner that waits for what refers to it.
fn reference(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "blockOwnerDeletion": true})
}

struct Stage {
    caller: Caller,
    kubectl: Kubectl,
    namespace: String,
}

impl Stage {
    fn new() -> Self {
        let cluster = Cluster::shared();
        let namespace = unique("gc");
        let kubectl = cluster.kubectl();
        kubectl.run(&["create", "namespace", &namespace]);
        Self { caller: cluster.front_door(), kubectl, namespace }
    }

    fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", kind.path(&self.namespace))
    }

    async fn write(&self, method: &str, path: &str, body: &Value) -> Value {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let answer = self.caller.ask(method, path, &[("Content-Type", content)], body).await;
        assert!(matches!(answer.code, 200..=202), "{method} {path}: {answer:?}");
        answer.body
    }

    async fn create(&self, kind: Kind, name: &str) -> Value {
        self.write("POST", &kind.path(&self.namespace), &kind.object(name)).await
    }

    /// Creates an object that belongs to another.
    async fn create_owned(&self, kind: Kind, name: &str, owner: &Value, held: bool) -> Value {
        self.create_of_owners(kind, name, &[owner], held).await
    }

    async fn create_of_owners(&self, kind: Kind, name: &str, owners: &[&Value], held: bool) -> Value {
        let mut object = kind.object(name);
        object["metadata"]["ownerReferences"] = owners.iter().map(|owner| reference(owner)).collect();
        if held {
            object["metadata"]["finalizers"] = json!(["example.com/held"]);
        }
        self.write("POST", &kind.path(&self.namespace), &object).await
    }

    async fn let_go(&self, kind: Kind, name: &str) {
        self.write("PATCH", &self.path(kind, name), &json!({"metadata": {"finalizers": null}})).await;
    }

    async fn delete(&self, kind: Kind, name: &str, policy: &str) -> Value {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        self.write("DELETE", &self.path(kind, name), &options).await
    }

    /// The object, or null.
    async fn read(&self, kind: Kind, name: &str) -> Value {
        let answer = self.caller.get(&self.path(kind, name), &[]).await;
        assert!(matches!(answer.code, 200 | 404), "{answer:?}");
        if answer.code == 200 { answer.body } else { Value::Null }
    }

    async fn until(&self, kind: Kind, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let object = self.read(kind, name).await;
            if wanted(&object) {
                return object;
            }
            assert!(tokio::time::Instant::now() < deadline, "{name} is not {what}: {object:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn until_gone(&self, kind: Kind, name: &str) {
        self.until(kind, name, "gone", Value::is_null).await;
    }

    fn end(self) {
        self.kubectl.run(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

/// Owner and dependent: at least one of them is Stoa's, in one scope or two.
const PAIRS: [(Kind, Kind); 7] = [
    (Kind::Source, Kind::Source),
    (Kind::Source, Kind::ConfigMap),
    (Kind::ConfigMap, Kind::Source),
    (Kind::Backend, Kind::Backend),
    (Kind::Backend, Kind::ClusterRole),
    (Kind::ClusterRole, Kind::Backend),
    (Kind::Backend, Kind::Source),
];

#[test]
fn every_pair_has_a_kind_of_stoa() {
    assert!(PAIRS.iter().all(|(owner, dependent)| owner.of_stoa() || dependent.of_stoa()));
}

fn names(pair: usize, policy: &str) -> (String, String) {
    let id = unique(&format!("{}-{pair}", policy.to_lowercase()));
    (format!("{id}-owner"), format!("{id}-dependent"))
}

#[tokio::test]
async fn background_deletion_removes_dependents() {
    let stage = Stage::new();
    let mut made = Vec::new();
    for (pair, (owner_kind, dependent_kind)) in PAIRS.into_iter().enumerate() {
        let (owner, dependent) = names(pair, "Background");
        let object = stage.create(owner_kind, &owner).await;
        stage.create_owned(dependent_kind, &dependent, &object, false).await;
        stage.delete(owner_kind, &owner, "Background").await;
        assert!(stage.read(owner_kind, &owner).await.is_null(), "{owner_kind:?} waits for {dependent_kind:?}");
        made.push((dependent_kind, dependent));
    }
    // An owner that never was is one that is gone.
    for kind in [Kind::Source, Kind::ConfigMap] {
        let mut owner = Kind::Source.object("never");
        owner["metadata"]["uid"] = "4ab3b4ba-3c4c-4e8b-9e2c-6f1a2b3c4d5e".into();
        let name = unique("absent");
        stage.create_owned(kind, &name, &owner, false).await;
        made.push((kind, name));
    }
    for (kind, name) in &made {
        stage.until_gone(*kind, name).await;
    }
    stage.end();
}

#[tokio::test]
async fn owner_waits_in_the_foreground_for_what_blocks_it() {
    let stage = Stage::new();
    let mut made = Vec::new();
    for (pair, (owner_kind, dependent_kind)) in PAIRS.into_iter().enumerate() {
        let (owner, dependent) = names(pair, "Foreground");
        let object = stage.create(owner_kind, &owner).await;
        stage.create_owned(dependent_kind, &dependent, &object, true).await;
        made.push((owner_kind, owner, dependent_kind, dependent));
    }
    // The collector has to have seen the dependents, or it finds none to wait for.
    tokio::time::sleep(A_WHILE).await;
    for (owner_kind, owner, ..) in &made {
        let waiting = stage.delete(*owner_kind, owner, "Foreground").await;
        assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{waiting:#}");
        assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting:#}");
    }
    for (.., dependent_kind, dependent) in &made {
        let ending = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        stage.until(*dependent_kind, dependent, "being deleted", ending).await;
    }
    tokio::time::sleep(A_WHILE).await;
    for (owner_kind, owner, dependent_kind, dependent) in &made {
        assert!(!stage.read(*owner_kind, owner).await.is_null(), "{owner_kind:?} did not wait for {dependent_kind:?}");
        stage.let_go(*dependent_kind, dependent).await;
    }
    for (owner_kind, owner, dependent_kind, dependent) in &made {
        stage.until_gone(*dependent_kind, dependent).await;
        stage.until_gone(*owner_kind, owner).await;
    }
    stage.end();
}

#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let stage = Stage::new();
    let mut made = Vec::new();
    for (pair, (owner_kind, dependent_kind)) in PAIRS.into_iter().enumerate() {
        let (owner, dependent) = names(pair, "Orphan");
        let object = stage.create(owner_kind, &owner).await;
        let before = stage.create_owned(dependent_kind, &dependent, &object, false).await;
        made.push((owner_kind, owner, dependent_kind, dependent, before));
    }
    tokio::time::sleep(A_WHILE).await;
    for (owner_kind, owner, ..) in &made {
        let waiting = stage.delete(*owner_kind, owner, "Orphan").await;
        assert_eq!(waiting["metadata"]["finalizers"], json!(["orphan"]), "{waiting:#}");
    }
    for (owner_kind, owner, ..) in &made {
        stage.until_gone(*owner_kind, owner).await;
    }
    tokio::time::sleep(A_WHILE).await;
    for (_, _, kind, dependent, before) in &made {
        let object = stage.read(*kind, dependent).await;
        let metadata = &object["metadata"];
        assert_eq!(metadata["uid"], before["metadata"]["uid"], "{dependent} is another one: {object:#}");
        assert!(metadata["ownerReferences"].is_null() && metadata["deletionTimestamp"].is_null(), "{object:#}");
        stage.delete(*kind, dependent, "Background").await;
    }
    stage.end();
}

#[tokio::test]
async fn second_owner_keeps_what_the_first_leaves() {
    let stage = Stage::new();
    let (first, second) = (stage.create(Kind::Source, "first").await, stage.create(Kind::ConfigMap, "second").await);
    stage.create_of_owners(Kind::Source, "both", &[&first, &second], false).await;
    tokio::time::sleep(A_WHILE).await;
    stage.delete(Kind::Source, "first", "Background").await;
    let one = |object: &Value| object["metadata"]["ownerReferences"] == json!([reference(&second)]);
    stage.until(Kind::Source, "both", "left to its second owner", one).await;
    stage.delete(Kind::ConfigMap, "second", "Background").await;
    stage.until_gone(Kind::Source, "both").await;
    stage.end();
}

#[tokio::test]
async fn namespace_deletion_removes_contents_after_finalizers() {
    let stage = Stage::new();
    let namespace = stage.namespace.clone();
    stage.create(Kind::Source, "free").await;
    stage.create(Kind::ConfigMap, "built-in").await;
    let owner = stage.create(Kind::Source, "owner").await;
    stage.create_owned(Kind::Source, "held", &owner, true).await;
    let runs = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/runs");

    stage.kubectl.run(&["delete", "namespace", &namespace, "--wait=false"]);
    let path = format!("/api/v1/namespaces/{namespace}");
    let condition = |namespace: &Value, kind: &str| {
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let held = loop {
        let now = stage.caller.get(&path, &[]).await.body;
        let held = condition(&now, "NamespaceFinalizersRemaining");
        if held["status"] == "True" {
            assert_eq!(condition(&now, "NamespaceDeletionDiscoveryFailure")["status"], "False", "{now:#}");
            assert_eq!(condition(&now, "NamespaceDeletionContentFailure")["status"], "False", "{now:#}");
            break held;
        }
        assert!(tokio::time::Instant::now() < deadline, "{now:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(held["message"].as_str().unwrap().contains("example.com/held in 1 resource instances"), "{held:#}");
    stage.until_gone(Kind::Source, "free").await;
    assert!(stage.read(Kind::Source, "held").await["metadata"]["deletionTimestamp"].is_string());

    // Nothing new comes into it.
    for (path, object) in [
        (Kind::Source.path(&namespace), Kind::Source.object("late")),
        (
            runs,
            json!({"apiVersion": "delivery.stoa.dev/v1alpha1", "kind": "Run", "metadata": {"name": "late"},
            "spec": {"stack": "web", "operation": "Preview"}}),
        ),
    ] {
        let answer = stage.caller.ask("POST", &path, &[("Content-Type", "application/json")], &object).await;
        assert_eq!((answer.code, &answer.body["reason"]), (403, &json!("Forbidden")), "{answer:?}");
        let causes = &answer.body["details"]["causes"];
        assert_eq!(causes[0]["reason"], "NamespaceTerminating", "{answer:?}");
    }
    stage.let_go(Kind::Source, "held").await;
    stage.kubectl.run(&["wait", "--for=delete", &format!("namespace/{namespace}"), "--timeout=120s"]);
    // Nothing is left behind that a namespace of the same name would find.
    stage.kubectl.run(&["create", "namespace", &namespace]);
    let list = stage.caller.get(&Kind::Source.path(&namespace), &[]).await;
    assert_eq!(list.body["items"], json!([]), "{list:?}");
    stage.end();
}
