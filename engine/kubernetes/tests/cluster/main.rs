//! Tests against a real kube-apiserver and kube-controller-manager.
//!
//! `STOA_TEST_KUBECONFIG` names their kubeconfig; `hack/test` starts them. Every test has its own namespace.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

mod comparison;
mod deletions;
mod health;
mod replacing;
mod structural;
mod writes;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use stoa_engine::conflict::FORCE;
use stoa_engine::ignore::IGNORE_FIELDS;
use stoa_engine::owner::{LeftAlone, MARK, TAKE_OVER_FROM};
use stoa_engine::spec::RECREATE;
use stoa_engine::{
    DigestKeys, FieldConflict, Owner, PlanInput, Resource, ResourceId, ResourceType, Schema, Spec, State, StateResource,
};
use stoa_runtime::{
    Applied, ApplyRequest, Deleted, Found, Health, KubernetesChecks as _, Live, Preview, ReadRequest, Runtime as _,
    RuntimeError, conformance,
};
use stoa_runtime_kubernetes::{Access, ClusterConfig, KubernetesRuntime};

struct TestNamespace {
    runtime: KubernetesRuntime,
    client: Client,
    namespace: String,
}

fn kubeconfig() -> String {
    std::env::var("STOA_TEST_KUBECONFIG").expect("STOA_TEST_KUBECONFIG names a kubeconfig; hack/cluster up makes one")
}

fn owner(stack: &str) -> Owner {
    Owner {
        organization: "shop".to_owned(),
        stack: stack.to_owned(),
        workspace: "dev".to_owned(),
        stack_uid: format!("uid-of-{stack}"),
    }
}

async fn runtime_of(stack: &str) -> KubernetesRuntime {
    let access = Access::Own { kubeconfig: Some(kubeconfig().into()), context: None };
    KubernetesRuntime::new(&[ClusterConfig { name: "main".to_owned(), access }], owner(stack)).await.unwrap()
}

fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    format!("{prefix}-{now:x}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

impl TestNamespace {
    async fn new() -> Self {
        let config = kube::config::Kubeconfig::read_from(kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let namespace = unique("stoa-test");
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        Self { runtime: runtime_of("web").await, client, namespace }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn config_map(&self, name: &str, data: &Value) -> Resource {
        resource(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.namespace}, "data": data}),
        )
    }

    async fn apply(&self, desired: &Resource, prior: Option<&StateResource>) -> Result<Applied, RuntimeError> {
        self.runtime.apply(&ApplyRequest::new(desired, prior)).await
    }

    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        conformance::delete(&self.runtime, prior).await
    }

    async fn read(&self, desired: &Resource) -> Result<Live, RuntimeError> {
        self.runtime.read(&[ReadRequest { desired: Some(desired), prior: None }]).await.unwrap().remove(0)
    }
}

fn resource(object: Value) -> Resource {
    let Value::Object(attributes) = object else { panic!("{object}") };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &attributes["metadata"];
    let id =
        [&attributes["apiVersion"], &attributes["kind"], &metadata["namespace"], &metadata["name"]].map(text).join(":");
    Resource {
        id: ResourceId(id),
        kind: ResourceType::Kubernetes,
        attributes,
        depends_on: Vec::new(),
        extensions: Map::new(),
    }
}

fn recorded(desired: &Resource, live: Map<String, Value>) -> StateResource {
    StateResource {
        verified: true,
        id: desired.id.clone(),
        kind: desired.kind,
        attributes: desired.attributes.clone(),
        live,
        depends_on: Vec::new(),
        extensions: Map::new(),
        cluster: "main".to_owned(),
        unknown: false,
        adopted: false,
        masked: Vec::new(),
        digests_of: None,
        finished: false,
        provider_state: None,
        provider_version: None,
    }
}

fn ignore(_: Health, _: &str) {}

/// Those answers of the audit log that created `name`, dry runs left out.
fn creations(name: &str) -> usize {
    let log = std::path::Path::new(&kubeconfig()).with_file_name("logs").join("audit.log");
    let text = std::fs::read_to_string(&log).unwrap();
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| event["stage"] == "ResponseComplete" && event["responseStatus"]["code"] == 201)
        .filter(|event| event["objectRef"]["name"] == name)
        .filter(|event| !event["requestURI"].as_str().unwrap_or_default().contains("dryRun"))
        .count()
}

#[tokio::test]
async fn repeated_apply_creates_one_object() {
    let test = TestNamespace::new().await;
    let name = unique("once");
    let desired = test.config_map(&name, &json!({"a": "1"}));
    assert_eq!(test.read(&desired).await.unwrap(), Live::Absent);

    let request = ApplyRequest::new(&desired, None);
    let preview = test.runtime.preview(&request, None).await.unwrap();
    assert!(matches!(&preview, Preview::Changed(object) if object["data"]["a"] == "1"), "{preview:?}");
    assert_eq!(test.read(&desired).await.unwrap(), Live::Absent, "a preview changes nothing");

    let first = test.apply(&desired, None).await.unwrap();
    for _ in 0..3 {
        assert_eq!(test.apply(&desired, None).await.unwrap(), first, "a second call changes nothing");
    }
    assert_eq!(test.read(&desired).await.unwrap(), Live::Present(first.live.clone()));
    let place = first.kubernetes.unwrap();
    assert_eq!(
        (place.cluster.as_str(), place.kind.as_str(), place.name.as_str()),
        ("main", "ConfigMap", name.as_str())
    );
    assert_eq!(first.live["metadata"]["uid"], json!(place.uid));
    assert!(!place.uid.is_empty() && first.live["metadata"].get("managedFields").is_none());
    assert_eq!(creations(&name), 1);
}

#[tokio::test]
async fn reads_keep_request_order() {
    let test = TestNamespace::new().await;
    let there: Vec<Resource> =
        (0..4).map(|n| test.config_map(&format!("c{n}"), &json!({"n": n.to_string()}))).collect();
    for desired in &there {
        test.apply(desired, None).await.unwrap();
    }
    let missing = test.config_map("missing", &json!({}));
    let namespace = resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": test.namespace}}));
    let elsewhere = resource(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c0", "namespace": unique("nowhere")}}),
    );
    let typo = resource(json!({"apiVersion": "v1", "kind": "ConfigMop", "metadata": {"name": "c0"}}));
    let all: Vec<&Resource> =
        [&missing, &namespace].into_iter().chain(there.iter().rev()).chain([&elsewhere, &typo]).collect();
    let requests: Vec<_> = all.iter().map(|desired| ReadRequest { desired: Some(desired), prior: None }).collect();
    let found = test.runtime.read(&requests).await.unwrap();
    let names: Vec<String> = found
        .iter()
        .map(|live| match live {
            Ok(Live::Present(object)) => {
                format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
            }
            Ok(other) => format!("{other:?}"),
            Err(err) => err.to_string(),
        })
        .collect();
    let namespace = format!("Namespace {}", test.namespace);
    assert_eq!(
        names,
        [
            "Absent",
            &namespace,
            "ConfigMap c3",
            "ConfigMap c2",
            "ConfigMap c1",
            "ConfigMap c0",
            "Absent",
            "cluster main has no kind \"ConfigMop\" in apiVersion \"v1\"",
        ]
    );
}

#[tokio::test]
async fn object_in_missing_namespace_is_unverified() {
    let test = TestNamespace::new().await;
    let namespace = unique("later");
    let desired =
        resource(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}));
    let request = ApplyRequest::new(&desired, None);
    let preview = test.runtime.preview(&request, None).await.unwrap();
    let unverified = Preview::MissingNamespace(format!("namespace {namespace} does not exist in cluster main yet"));
    assert_eq!(preview, unverified);
    // What the fields may be is known without it.
    assert_eq!(test.runtime.preview(&request, None).await.unwrap(), unverified);
    for (key, value, field) in [("data", json!({"a": 5}), "data.a"), ("dato", json!({}), "dato")] {
        let mut wrong = desired.clone();
        wrong.attributes.insert(key.to_owned(), value);
        let refused = test.runtime.preview(&ApplyRequest::new(&wrong, None), None).await.unwrap_err();
        assert!(matches!(&refused, RuntimeError::Rejected { field: Some(at), .. } if at == field), "{refused:?}");
    }
    assert!(matches!(test.runtime.apply(&request).await, Err(RuntimeError::Rejected { .. })));
}

#[tokio::test]
async fn owner_annotation_can_be_removed_by_hand() {
    let test = TestNamespace::new().await;
    let desired = test.config_map("marked", &json!({"a": "1"}));
    let applied = test.apply(&desired, None).await.unwrap();
    assert_eq!(applied.live["metadata"]["annotations"][MARK], "shop/web/dev/uid-of-web");
    let managed = test.config_maps().get("marked").await.unwrap().metadata.managed_fields.unwrap();
    assert_eq!(managed.iter().filter_map(|entry| entry.manager.as_deref()).collect::<Vec<_>>(), ["stoa"]);

    let other = runtime_of("api").await;
    let adopt = ApplyRequest::adopting(&desired);
    let refused = other.apply(&adopt).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Owned(text) if text.contains("shop/web/dev")), "{refused:?}");
    let unmark = Patch::Merge(json!({"metadata": {"annotations": {MARK: null}}}));
    test.config_maps().patch("marked", &PatchParams::default(), &unmark).await.unwrap();
    let taken = other.apply(&adopt).await.unwrap();
    assert_eq!(taken.live["metadata"]["annotations"][MARK], "shop/api/dev/uid-of-api");
    let prior = recorded(&desired, applied.live);
    assert_eq!(test.delete(&prior).await.unwrap(), Deleted::Left(LeftAlone::Owned("shop/api/dev".to_owned())));

    let mut wanted = test.config_map("marked", &json!({"b": "2"}));
    wanted.extensions.insert(TAKE_OVER_FROM.to_owned(), "shop/api/dev".into());
    let back = test.runtime.apply(&ApplyRequest::adopting(&wanted)).await.unwrap();
    assert_eq!(back.live["data"], json!({"b": "2"}), "what the other wanted goes");
    assert_eq!(test.delete(&recorded(&wanted, back.live)).await.unwrap(), Deleted::Gone);
}

#[tokio::test]
async fn lost_call_is_recognized_by_mark_or_uid() {
    let test = TestNamespace::new().await;
    let desired = test.config_map("lost", &json!({"a": "1"}));
    let prior = recorded(&desired, test.apply(&desired, None).await.unwrap().live);
    let named = StateResource::named_by(&desired.id).unwrap();
    let look = async || {
        let found = test.runtime.inspect(&[&named, &prior]).await.unwrap();
        found.into_iter().map(|found| matches!(found, Ok(Found::Ours(_)))).collect::<Vec<_>>()
    };
    assert_eq!(look().await, [true, true]);
    for (mark, expected) in [(Value::Null, [false, true]), (json!("shop/api/dev/u"), [false, false])] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {MARK: mark}}}));
        test.config_maps().patch("lost", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(look().await, expected);
    }
}

#[tokio::test]
async fn undefined_kind_is_named() {
    let test = TestNamespace::new().await;
    let desired = resource(json!({"apiVersion": "nobody.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}));
    for err in [test.read(&desired).await.unwrap_err(), test.apply(&desired, None).await.unwrap_err()] {
        assert!(matches!(&err, RuntimeError::UnknownKind(message) if message.contains("\"Thing\"")), "{err:?}");
    }
}

#[tokio::test]
async fn a_cluster_out_of_reach_is_unavailable() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n\
         users: [{{name: u, user: {{token: secret-token}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    let access = Access::Kubeconfig { bytes: kubeconfig.into_bytes(), context: None };
    let runtime =
        KubernetesRuntime::new(&[ClusterConfig { name: "edge".to_owned(), access }], owner("web")).await.unwrap();
    let desired = resource(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}));
    let err = runtime.read(&[ReadRequest { desired: Some(&desired), prior: None }]).await.unwrap_err();
    assert!(err.is_retryable() && err.to_string().starts_with("cluster edge: "), "{err:?}");
    assert!(!err.to_string().contains("secret-token"));
}
