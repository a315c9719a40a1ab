//! Against a real kube-apiserver and kube-controller-manager, whose kubeconfig `STOA_TEST_KUBECONFIG`
//! names; `hack/test` starts them. Every test has its own namespace.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use stoa_engine::conflict::FORCE;
use stoa_engine::ignore::IGNORE_FIELDS;
use stoa_engine::owner::{MARK, TAKE_OVER_FROM};
use stoa_engine::spec::RECREATE;
use stoa_engine::{
    DigestKeys, FieldConflict, Owner, PlanInput, Resource, ResourceId, ResourceType, Spec, State, StateResource,
};
use stoa_runtime::{
    Applied, ApplyRequest, Deleted, Found, Health, Live, LostCall, Preview, ReadRequest, Runtime as _, RuntimeError,
};
use stoa_runtime_kubernetes::{Access, ClusterConfig, KubernetesRuntime};

struct Bed {
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

impl Bed {
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
        id: desired.id.clone(),
        kind: desired.kind,
        attributes: desired.attributes.clone(),
        live,
        depends_on: Vec::new(),
        extensions: Map::new(),
        cluster: "main".to_owned(),
        unknown: false,
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
async fn an_object_is_created_once_however_often_it_is_applied() {
    let bed = Bed::new().await;
    let name = unique("once");
    let desired = bed.config_map(&name, &json!({"a": "1"}));
    assert_eq!(bed.read(&desired).await.unwrap(), Live::Absent);

    let request = ApplyRequest::new(&desired, None);
    let preview = bed.runtime.preview(&request, None).await.unwrap();
    assert!(matches!(&preview, Preview::Changed(object) if object["data"]["a"] == "1"), "{preview:?}");
    assert_eq!(bed.read(&desired).await.unwrap(), Live::Absent, "a preview changes nothing");

    let first = bed.apply(&desired, None).await.unwrap();
    for _ in 0..3 {
        assert_eq!(bed.apply(&desired, None).await.unwrap(), first, "a second call changes nothing");
    }
    assert_eq!(bed.read(&desired).await.unwrap(), Live::Present(first.live.clone()));
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
async fn many_objects_are_read_in_the_order_of_the_requests() {
    let bed = Bed::new().await;
    let there: Vec<Resource> = (0..4).map(|n| bed.config_map(&format!("c{n}"), &json!({"n": n.to_string()}))).collect();
    for desired in &there {
        bed.apply(desired, None).await.unwrap();
    }
    let missing = bed.config_map("missing", &json!({}));
    let namespace = resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bed.namespace}}));
    let elsewhere = resource(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c0", "namespace": unique("nowhere")}}),
    );
    let typo = resource(json!({"apiVersion": "v1", "kind": "ConfigMop", "metadata": {"name": "c0"}}));
    let all: Vec<&Resource> =
        [&missing, &namespace].into_iter().chain(there.iter().rev()).chain([&elsewhere, &typo]).collect();
    let requests: Vec<_> = all.iter().map(|desired| ReadRequest { desired: Some(desired), prior: None }).collect();
    let found = bed.runtime.read(&requests).await.unwrap();
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
    let namespace = format!("Namespace {}", bed.namespace);
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
async fn fields_of_others_are_taken_only_where_ours_is_recorded() {
    let bed = Bed::new().await;
    let by_hand = ConfigMap {
        metadata: serde_json::from_value(json!({"name": "owned"})).unwrap(),
        data: Some(BTreeMap::from([("a".to_owned(), "theirs".to_owned())])),
        ..ConfigMap::default()
    };
    bed.config_maps()
        .create(&PostParams { field_manager: Some("hand".to_owned()), ..PostParams::default() }, &by_hand)
        .await
        .unwrap();
    let desired = bed.config_map("owned", &json!({"a": "ours"}));
    let adopt = ApplyRequest::adopting(&desired);
    let live = bed.read(&desired).await.unwrap();
    let Live::Present(live) = live else { panic!("{live:?}") };
    let preview = bed.runtime.preview(&adopt, Some(&live)).await.unwrap_err();
    assert!(
        matches!(&preview, RuntimeError::Conflict(text) if text.contains("hand") && text.contains(".data.a")),
        "{preview:?}"
    );
    assert!(matches!(bed.runtime.apply(&adopt).await, Err(RuntimeError::Conflict(_))));
    assert_eq!(bed.config_maps().get("owned").await.unwrap().data.unwrap()["a"], "theirs");

    let applied = bed.apply(&desired, Some(&recorded(&desired, live))).await.unwrap();
    assert_eq!(applied.live["data"]["a"], "ours");
}

#[tokio::test]
async fn what_another_applies_is_taken_only_as_planned_and_what_was_edited_is_taken_back() {
    let bed = Bed::new().await;
    let mut desired = bed.config_map("claimed", &json!({"a": "ours", "b": "ours"}));
    let prior = recorded(&desired, bed.apply(&desired, None).await.unwrap().live);
    let claim = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "claimed"}});
    bed.config_maps().patch("claimed", &PatchParams::apply("flux").force(), &Patch::Apply(claim)).await.unwrap();
    let edit = Patch::Merge(json!({"data": {"b": "edited"}}));
    bed.config_maps()
        .patch("claimed", &PatchParams { field_manager: Some("hand".to_owned()), ..PatchParams::default() }, &edit)
        .await
        .unwrap();

    let request = ApplyRequest::new(&desired, Some(&prior));
    for refusal in
        [bed.runtime.preview(&request, None).await.unwrap_err(), bed.runtime.apply(&request).await.unwrap_err()]
    {
        let RuntimeError::Conflict(text) = &refusal else { panic!("{refusal:?}") };
        assert!(["flux", ".data.a", FORCE].iter().all(|part| text.contains(part)), "{text}");
    }
    desired.extensions.insert(FORCE.to_owned(), json!("true"));
    let request = ApplyRequest::new(&desired, Some(&prior));
    let preview = bed.runtime.preview(&request, None).await.unwrap();
    let Preview::Contested(object, taken) = preview else { panic!("{preview:?}") };
    assert_eq!(object["data"], json!({"a": "ours", "b": "ours"}));
    let conflict = |manager: &str, applies, field: &str| FieldConflict {
        manager: manager.to_owned(),
        applies,
        fields: vec![field.to_owned()],
    };
    assert_eq!(taken, [conflict("flux", true, ".data.a"), conflict("hand", false, ".data.b")]);
    let less = ApplyRequest { taken: Some(&taken[..1]), ..request.clone() };
    let unplanned = bed.runtime.apply(&less).await.unwrap_err();
    assert!(matches!(&unplanned, RuntimeError::Conflict(_)), "{unplanned:?}");
    assert_eq!(bed.config_maps().get("claimed").await.unwrap().data.unwrap()["a"], "claimed");
    let applied = bed.runtime.apply(&ApplyRequest { taken: Some(&taken), ..request }).await.unwrap();
    assert_eq!(applied.live["data"], json!({"a": "ours", "b": "ours"}));

    bed.config_maps()
        .patch("claimed", &PatchParams { field_manager: Some("hand".to_owned()), ..PatchParams::default() }, &edit)
        .await
        .unwrap();
    desired.extensions.clear();
    let request = ApplyRequest::new(&desired, Some(&prior));
    let preview = bed.runtime.preview(&request, None).await.unwrap();
    let Preview::Contested(_, taken) = preview else { panic!("{preview:?}") };
    assert_eq!(taken, [conflict("hand", false, ".data.b")]);
    let applied = bed.runtime.apply(&ApplyRequest { taken: Some(&taken), ..request }).await.unwrap();
    assert_eq!(applied.live["data"]["b"], "ours");
}

#[tokio::test]
async fn what_cannot_be_changed_in_place_is_replaced_only_where_that_is_allowed() {
    let bed = Bed::new().await;
    let deployment = |label: &str| {
        resource(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": bed.namespace},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": label}}, "template": {
                "metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
        )
    };
    let mut fixed = bed.config_map("fixed", &json!({"a": "1"}));
    fixed.attributes.insert("immutable".to_owned(), json!(true));
    let mut changed = fixed.clone();
    changed.attributes.insert("data".to_owned(), json!({"a": "2"}));
    for (before, mut after) in [(deployment("a"), deployment("b")), (fixed, changed)] {
        let prior = recorded(&before, bed.apply(&before, None).await.unwrap().live);
        let refused = bed.runtime.preview(&ApplyRequest::new(&after, Some(&prior)), None).await.unwrap_err();
        let RuntimeError::Rejected { message, field: Some(_) } = &refused else { panic!("{refused:?}") };
        assert!(message.contains("immutable") && message.contains(RECREATE), "{message}");
        after.extensions.insert(RECREATE.to_owned(), json!("true"));
        let preview = bed.runtime.preview(&ApplyRequest::new(&after, Some(&prior)), None).await.unwrap();
        assert_eq!(preview, Preview::Replaced(None));
        // Only a plan says that something is replaced.
        let refused = bed.apply(&after, Some(&prior)).await.unwrap_err();
        assert!(matches!(refused, RuntimeError::Rejected { .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn a_field_that_is_no_longer_wanted_goes() {
    let bed = Bed::new().await;
    let both = bed.config_map("fields", &json!({"a": "1", "b": "2"}));
    let live = bed.apply(&both, None).await.unwrap().live;
    let one = bed.config_map("fields", &json!({"a": "1"}));
    let applied = bed.apply(&one, Some(&recorded(&both, live))).await.unwrap();
    assert_eq!(applied.live["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn what_the_server_refuses_names_the_field() {
    let bed = Bed::new().await;
    let service = |spec: Value| {
        resource(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": bed.namespace}, "spec": spec}),
        )
    };
    for (spec, expected) in [
        (json!({"ports": [{"port": 70000}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 80}], "replica": 3}), "spec.replica"),
        (json!({"ports": "many"}), "spec.ports"),
    ] {
        let desired = service(spec);
        let request = ApplyRequest::new(&desired, None);
        for err in
            [bed.runtime.preview(&request, None).await.unwrap_err(), bed.runtime.apply(&request).await.unwrap_err()]
        {
            assert!(matches!(&err, RuntimeError::Rejected { field: Some(field), .. } if field == expected), "{err:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_secret_is_not_quoted() {
    let bed = Bed::new().await;
    for data in [
        json!({"data": {"a": "hunter2 is no base64"}}),
        json!({"stringData": {"a/key": "hunter2"}}),
        json!({"data": {"a": ["hunter2"]}}),
    ] {
        let mut object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": bed.namespace}});
        object.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let err = bed.apply(&resource(object), None).await.unwrap_err().to_string();
        assert!(!err.contains("hunter2"), "{err}");
    }
}

#[tokio::test]
async fn what_needs_a_namespace_that_is_not_there_is_unverified() {
    let bed = Bed::new().await;
    let namespace = unique("later");
    let desired =
        resource(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}));
    let request = ApplyRequest::new(&desired, None);
    let preview = bed.runtime.preview(&request, None).await.unwrap();
    let unverified = Preview::Unverified(format!("namespace {namespace} is not in cluster main yet"));
    assert_eq!(preview, unverified);
    // What the fields may be is known without it.
    assert_eq!(bed.runtime.preview(&request, None).await.unwrap(), unverified);
    for (key, value, field) in [("data", json!({"a": 5}), "data.a"), ("dato", json!({}), "dato")] {
        let mut wrong = desired.clone();
        wrong.attributes.insert(key.to_owned(), value);
        let refused = bed.runtime.preview(&ApplyRequest::new(&wrong, None), None).await.unwrap_err();
        assert!(matches!(&refused, RuntimeError::Rejected { field: Some(at), .. } if at == field), "{refused:?}");
    }
    assert!(matches!(bed.runtime.apply(&request).await, Err(RuntimeError::Rejected { .. })));
}

#[tokio::test]
async fn a_deletion_waits_for_finalizers_and_may_be_repeated() {
    let bed = Bed::new().await;
    let mut desired = bed.config_map("held", &json!({}));
    desired.attributes["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let live = bed.apply(&desired, None).await.unwrap().live;
    let prior = recorded(&desired, live);
    let deletion = bed.runtime.delete(&prior);
    tokio::pin!(deletion);
    let marked = kube::runtime::wait::await_condition(bed.config_maps(), "held", |object: Option<&ConfigMap>| {
        object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
    });
    tokio::select! {
        done = &mut deletion => panic!("deleted while it is held: {done:?}"),
        marked = marked => drop(marked.unwrap()),
    }
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    bed.config_maps().patch("held", &PatchParams::default(), &release).await.unwrap();
    deletion.await.unwrap();
    assert_eq!(bed.read(&desired).await.unwrap(), Live::Absent);
    bed.runtime.delete(&prior).await.unwrap();
}

#[tokio::test]
async fn another_object_of_the_same_name_is_not_deleted() {
    let bed = Bed::new().await;
    let desired = bed.config_map("again", &json!({"a": "1"}));
    let first = recorded(&desired, bed.apply(&desired, None).await.unwrap().live);
    bed.config_maps().delete("again", &DeleteParams::default()).await.unwrap();
    bed.apply(&desired, None).await.unwrap();
    let err = bed.runtime.delete(&first).await.unwrap_err();
    assert!(matches!(&err, RuntimeError::Conflict(_)), "{err:?}");
    assert!(matches!(bed.read(&desired).await.unwrap(), Live::Present(_)));
}

#[tokio::test]
async fn what_somebody_else_keeps_writing_is_applied_and_deleted_all_the_same() {
    let bed = Bed::new().await;
    let desired = bed.config_map("busy", &json!({"a": "1"}));
    bed.apply(&desired, None).await.unwrap();
    let maps = bed.config_maps();
    let writing = async {
        for n in 0.. {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {"n": n.to_string()}}}));
            if maps.patch("busy", &PatchParams::default(), &patch).await.is_err() {
                break;
            }
        }
    };
    let changing = async {
        let mut prior = None;
        for n in 0..20 {
            let desired = bed.config_map("busy", &json!({"a": n.to_string()}));
            // Whoever runs a plan tries again what was merely busy.
            let live = loop {
                match bed.apply(&desired, prior.as_ref()).await {
                    Ok(applied) => break applied.live,
                    Err(err) => assert!(err.is_retryable(), "{err:?}"),
                }
            };
            assert_eq!(live["data"]["a"], n.to_string());
            prior = Some(recorded(&desired, live));
        }
        let prior = prior.unwrap();
        loop {
            match bed.runtime.delete(&prior).await {
                Ok(deleted) => break assert_eq!(deleted, Deleted::Gone),
                Err(err) => assert!(err.is_retryable(), "{err:?}"),
            }
        }
    };
    tokio::join!(writing, changing);
    assert_eq!(bed.read(&desired).await.unwrap(), Live::Absent);
}

#[tokio::test]
async fn the_mark_is_applied_with_the_object_and_can_be_taken_off_by_hand() {
    let bed = Bed::new().await;
    let desired = bed.config_map("marked", &json!({"a": "1"}));
    let applied = bed.apply(&desired, None).await.unwrap();
    assert_eq!(applied.live["metadata"]["annotations"][MARK], "shop/web/dev/uid-of-web");
    let managed = bed.config_maps().get("marked").await.unwrap().metadata.managed_fields.unwrap();
    assert_eq!(managed.iter().filter_map(|entry| entry.manager.as_deref()).collect::<Vec<_>>(), ["stoa"]);

    let other = runtime_of("api").await;
    let adopt = ApplyRequest::adopting(&desired);
    let refused = other.apply(&adopt).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Owned(text) if text.contains("shop/web/dev")), "{refused:?}");
    let unmark = Patch::Merge(json!({"metadata": {"annotations": {MARK: null}}}));
    bed.config_maps().patch("marked", &PatchParams::default(), &unmark).await.unwrap();
    let taken = other.apply(&adopt).await.unwrap();
    assert_eq!(taken.live["metadata"]["annotations"][MARK], "shop/api/dev/uid-of-api");
    let prior = recorded(&desired, applied.live);
    assert_eq!(bed.runtime.delete(&prior).await.unwrap(), Deleted::Left("shop/api/dev".to_owned()));

    let mut wanted = bed.config_map("marked", &json!({"b": "2"}));
    wanted.extensions.insert(TAKE_OVER_FROM.to_owned(), "shop/api/dev".into());
    let back = bed.runtime.apply(&ApplyRequest::adopting(&wanted)).await.unwrap();
    assert_eq!(back.live["data"], json!({"b": "2"}), "what the other wanted goes");
    assert_eq!(bed.runtime.delete(&recorded(&wanted, back.live)).await.unwrap(), Deleted::Gone);
}

#[tokio::test]
async fn what_a_lost_call_may_have_made_is_ours_by_its_mark_or_recorded_uid_alone() {
    let bed = Bed::new().await;
    let desired = bed.config_map("lost", &json!({"a": "1"}));
    let prior = recorded(&desired, bed.apply(&desired, None).await.unwrap().live);
    let named = StateResource::named_by(&desired.id).unwrap();
    let look = async || {
        let calls = [&named, &prior].map(|resource| LostCall { resource, run: "r" });
        let found = bed.runtime.look_for(&calls).await.unwrap();
        found.into_iter().map(|found| matches!(found, Ok(Found::Ours(_)))).collect::<Vec<_>>()
    };
    assert_eq!(look().await, [true, true]);
    for (mark, expected) in [(Value::Null, [false, true]), (json!("shop/api/dev/u"), [false, false])] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {MARK: mark}}}));
        bed.config_maps().patch("lost", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(look().await, expected);
    }
}

#[tokio::test]
async fn a_namespace_and_what_is_in_it_are_gone_when_its_deletion_returns() {
    let bed = Bed::new().await;
    bed.apply(&bed.config_map("inside", &json!({})), None).await.unwrap();
    let desired = resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": bed.namespace}}));
    let Live::Present(live) = bed.read(&desired).await.unwrap() else { panic!("it is there") };
    bed.runtime.delete(&recorded(&desired, live)).await.unwrap();
    assert_eq!(bed.read(&desired).await.unwrap(), Live::Absent);
}

#[tokio::test]
async fn a_workload_is_gone_after_its_dependents() {
    let bed = Bed::new().await;
    let desired = resource(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": bed.namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.k8s.io/pause:3.10"}]}}}}),
    );
    let live = bed.apply(&desired, None).await.unwrap().live;
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::namespaced(bed.client.clone(), &bed.namespace);
    let first_set = async {
        use futures_util::StreamExt as _;
        let mut seen = Box::pin(kube::runtime::watcher(sets.clone(), Default::default()));
        while let Some(event) = seen.next().await {
            if let Ok(kube::runtime::watcher::Event::Apply(_) | kube::runtime::watcher::Event::InitApply(_)) = event {
                return;
            }
        }
    };
    first_set.await;
    bed.runtime.delete(&recorded(&desired, live)).await.unwrap();
    assert!(
        sets.list(&Default::default()).await.unwrap().items.iter().all(|set| set.metadata.deletion_timestamp.is_some())
    );
}

#[tokio::test]
async fn a_custom_resource_follows_its_definition_at_once_and_its_health_is_watched() {
    let bed = Bed::new().await;
    let group = format!("{}.example.com", unique("g"));
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}));
    let mut widget = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": bed.namespace}, "spec": {"size": 1}}));
    let requests = [&definition, &widget].map(|desired| ReadRequest { desired: Some(desired), prior: None });
    let found = bed.runtime.read(&requests).await.unwrap();
    assert!(matches!(found.as_slice(), [Ok(Live::Absent), Ok(Live::Unverified(_))]), "{found:?}");

    let crd = bed.apply(&definition, None).await.unwrap();
    assert_eq!(bed.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    widget.attributes["metadata"]["finalizers"] = json!(["example.com/hold"]);
    bed.apply(&widget, None).await.unwrap();

    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    let widgets: Api<DynamicObject> = Api::namespaced_with(bed.client.clone(), &bed.namespace, &kind);
    let status = |ready: &str| {
        Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": ready, "message": "because"}]}}))
    };
    widgets.patch_status("w", &PatchParams::default(), &status("False")).await.unwrap();
    // The health as of the apply is taken first, which knew of no condition.
    assert_eq!(bed.runtime.wait_healthy(&widget, &ignore).await.unwrap(), Health::Current);
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let report = move |health: Health, message: &str| drop(heard.send((health, message.to_owned())));
    let healthy = bed.runtime.wait_healthy(&widget, &report);
    tokio::pin!(healthy);
    let in_progress = (Health::InProgress, "because".to_owned());
    tokio::select! {
        health = &mut healthy => panic!("not ready, and yet {health:?}"),
        first = told.recv() => assert_eq!(first, Some(in_progress)),
    }
    widgets.patch_status("w", &PatchParams::default(), &status("True")).await.unwrap();
    assert_eq!(healthy.await.unwrap(), Health::Current);
    assert_eq!(told.recv().await, Some((Health::Current, "because".to_owned())));

    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    widgets.patch("w", &PatchParams::default(), &release).await.unwrap();
    let object = widgets.get("w").await.unwrap();
    assert_eq!(object.name_any(), "w");
    bed.runtime.delete(&recorded(&definition, crd.live)).await.unwrap();
    let found =
        bed.runtime.read(&[ReadRequest { desired: None, prior: Some(&recorded(&widget, Map::new())) }]).await.unwrap();
    assert!(matches!(found.as_slice(), [Ok(Live::Absent)]), "what has no kind is not there: {found:?}");
    bed.runtime.delete(&recorded(&widget, Map::new())).await.unwrap();
}

/// Makes a kind `Widget` in a group of its own, and what is wanted of one of its objects.
async fn widget_kind(bed: &Bed) -> (Resource, Resource, Api<DynamicObject>) {
    let group = format!("{}.example.com", unique("g"));
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}));
    let widget = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": bed.namespace}, "spec": {"size": 1}}));
    bed.apply(&definition, None).await.unwrap();
    assert_eq!(bed.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    (definition, widget, Api::namespaced_with(bed.client.clone(), &bed.namespace, &kind))
}

#[tokio::test]
async fn a_health_policy_decides_in_place_of_the_conventions() {
    let bed = Bed::new().await;
    let (definition, mut widget, widgets) = widget_kind(&bed).await;
    widget.extensions.insert(
        "healthPolicy".to_owned(),
        json!({"cel": {"current": "status.phase == 'Running'", "failed": "status.phase == 'Broken'"}}),
    );
    bed.apply(&widget, None).await.unwrap();
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let report = move |health: Health, message: &str| drop(heard.send((health, message.to_owned())));
    let mut healthy = std::pin::pin!(bed.runtime.wait_healthy(&widget, &report));
    let mut next = async || {
        tokio::select! {
            health = &mut healthy => panic!("it is not running, and yet {health:?}"),
            told = told.recv() => told.unwrap(),
        }
    };
    // By the conventions a widget without conditions would be there.
    let (health, message) = next().await;
    assert_eq!(
        (health, message.as_str()),
        (Health::InProgress, "`failed` of its health policy cannot be evaluated: no such attribute(s): status")
    );
    let set = |status: Value| Patch::Merge(json!({ "status": status }));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    widgets
        .patch_status("w", &PatchParams::default(), &set(json!({"phase": "Starting", "conditions": ready})))
        .await
        .unwrap();
    let (health, message) = next().await;
    assert_eq!((health, message.as_str()), (Health::InProgress, "`current` of its health policy does not hold yet"));
    widgets.patch_status("w", &PatchParams::default(), &set(json!({"phase": "Running"}))).await.unwrap();
    assert_eq!(healthy.await.unwrap(), Health::Current);
    widgets.patch_status("w", &PatchParams::default(), &set(json!({"phase": "Broken"}))).await.unwrap();
    assert_eq!(bed.runtime.wait_healthy(&widget, &ignore).await.unwrap(), Health::Failed);
    let crd = bed.read(&definition).await.unwrap();
    let Live::Present(crd) = crd else { panic!("{crd:?}") };
    bed.runtime.delete(&recorded(&definition, crd)).await.unwrap();
}

#[tokio::test]
async fn many_objects_of_a_kind_are_waited_for_by_one_watch() {
    let bed = Bed::new().await;
    let (definition, widget, widgets) = widget_kind(&bed).await;
    let set = |ready: &str| Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}));
    let wanted: Vec<Resource> = (0..20)
        .map(|n| {
            let mut object = Value::Object(widget.attributes.clone());
            object["metadata"]["name"] = format!("w{n}").into();
            resource(object)
        })
        .collect();
    for (n, desired) in wanted.iter().enumerate() {
        bed.apply(desired, None).await.unwrap();
        widgets.patch_status(&format!("w{n}"), &PatchParams::default(), &set("False")).await.unwrap();
        // The health as of the apply, which knew of no condition, is taken first.
        assert_eq!(bed.runtime.wait_healthy(desired, &ignore).await.unwrap(), Health::Current);
    }
    let ready = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        for n in 0..20 {
            widgets.patch_status(&format!("w{n}"), &PatchParams::default(), &set("True")).await.unwrap();
        }
    };
    let healthy =
        futures_util::future::join_all(wanted.iter().map(|desired| bed.runtime.wait_healthy(desired, &ignore)));
    let (healthy, ()) = tokio::join!(healthy, ready);
    assert!(healthy.into_iter().all(|health| health.unwrap() == Health::Current));
    let log = std::path::Path::new(&kubeconfig()).with_file_name("logs").join("audit.log");
    let text = std::fs::read_to_string(&log).unwrap();
    let collection = format!("/{}/widgets?", bed.namespace);
    let watches = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        // Its end is logged at some time after the last who waited is gone.
        .filter(|event| event["verb"] == "watch" && event["stage"] == "ResponseStarted")
        .filter(|event| event["requestURI"].as_str().is_some_and(|uri| uri.contains(&collection)))
        .count();
    assert_eq!(watches, 1);
    let crd = bed.read(&definition).await.unwrap();
    let Live::Present(crd) = crd else { panic!("{crd:?}") };
    bed.runtime.delete(&recorded(&definition, crd)).await.unwrap();
}

#[tokio::test]
async fn a_kind_that_nobody_defines_is_named() {
    let bed = Bed::new().await;
    let desired = resource(json!({"apiVersion": "nobody.example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}));
    assert!(matches!(bed.read(&desired).await.unwrap(), Live::Unverified(_)));
    let err = bed.apply(&desired, None).await.unwrap_err();
    assert!(matches!(&err, RuntimeError::Invalid { field: Some(field), .. } if field == "attributes.kind"), "{err:?}");
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

/// The changes that a plan would make of what is recorded as it is wanted, by what is live and by what the cluster says of
/// its kind.
async fn planned(runtime: &KubernetesRuntime, desired: &Resource) -> Vec<String> {
    let requests = [ReadRequest { desired: Some(desired), prior: None }];
    let live = BTreeMap::from([(desired.id.clone(), runtime.read(&requests).await.unwrap().remove(0).unwrap())]);
    let schemas = runtime.schemas(&[desired]).await.unwrap();
    assert_eq!(schemas.len(), 1, "the cluster says nothing of the kind");
    let spec = Spec { resources: vec![desired.clone()], ..Spec::default() };
    let state = State { resources: vec![recorded(desired, Map::new())], ..State::default() };
    let (previews, keys) = (BTreeMap::new(), DigestKeys::new(&[7; 32], &[]));
    let input = PlanInput {
        spec: &spec,
        state: &state,
        given_up: &stoa_engine::GivenUp::new(),
        live: &live,
        previews: &previews,
        schemas: &schemas,
        destroy: false,
        owner: runtime.owner(),
        spec_digest: "",
        keys: &keys,
        clusters: runtime.clusters(),
    };
    let action = stoa_engine::plan(&input).unwrap().actions.remove(0);
    action.changes.into_iter().map(|change| format!("{}{}", if change.drift { "!" } else { "" }, change.path)).collect()
}

#[tokio::test]
async fn lists_of_a_custom_resource_are_compared_as_its_definition_says() {
    let bed = Bed::new().await;
    let group = format!("{}.example.com", unique("g"));
    let item = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "value": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {
        "shared": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
        "ports": {"type": "array", "items": item}}});
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}}));
    let crd = bed.apply(&definition, None).await.unwrap();
    assert_eq!(bed.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    let ours = json!([{"name": "a", "value": "1"}]);
    let widget = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": bed.namespace}, "spec": {"shared": ours, "ports": ours}}));
    bed.apply(&widget, None).await.unwrap();
    // The server takes a moment to describe what it serves already.
    let mut waits = 0;
    while runtime_of("web").await.schemas(&[&widget]).await.unwrap().is_empty() {
        waits += 1;
        assert!(waits < 100, "the kind is never described");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let runtime = runtime_of("web").await;
    assert_eq!(planned(&runtime, &widget).await, [""; 0]);

    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    let widgets: Api<DynamicObject> = Api::namespaced_with(bed.client.clone(), &bed.namespace, &kind);
    let theirs = json!({"name": "theirs", "value": "2"});
    let applied =
        Patch::Apply(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "spec": {"shared": [theirs]}}));
    widgets.patch("w", &PatchParams::apply("others"), &applied).await.unwrap();
    assert_eq!(planned(&runtime, &widget).await, [""; 0], "they may add to a list that is shared");
    let by_hand = Patch::Merge(json!({"spec": {"ports": [ours[0], theirs]}}));
    widgets.patch("w", &PatchParams::default(), &by_hand).await.unwrap();
    assert_eq!(planned(&runtime, &widget).await, ["!spec.ports[name=theirs]"]);
    bed.runtime.delete(&recorded(&widget, Map::new())).await.unwrap();
    bed.runtime.delete(&recorded(&definition, crd.live)).await.unwrap();
}

/// The managers that have a field of `data`.
async fn managers_of(bed: &Bed, name: &str, key: &str) -> Vec<String> {
    let entries = bed.config_maps().get(name).await.unwrap().metadata.managed_fields.unwrap_or_default();
    let field = format!("f:{key}");
    let has = |fields: &Value| fields["f:data"].get(&field).is_some();
    let holders = entries.into_iter().filter(|entry| entry.fields_v1.as_ref().is_some_and(|fields| has(&fields.0)));
    holders.filter_map(|entry| entry.manager).collect()
}

#[tokio::test]
async fn ignored_fields_are_left_to_who_has_them() {
    let bed = Bed::new().await;
    let mut desired = bed.config_map("shared", &json!({"ours": "1", "theirs": "at first"}));
    let prior = recorded(&desired, bed.apply(&desired, None).await.unwrap().live);
    desired.extensions.insert(IGNORE_FIELDS.to_owned(), json!(["data.theirs"]));
    desired.attributes["data"] = json!({"ours": "2", "theirs": "written anew"});
    let data = |applied: &Applied| applied.live["data"].clone();
    // Nobody else has it yet: left out, it would go.
    let first = bed.apply(&desired, Some(&prior)).await.unwrap();
    assert_eq!(data(&first), json!({"ours": "2", "theirs": "at first"}));
    assert_eq!(managers_of(&bed, "shared", "theirs").await, ["stoa"]);

    let autoscaler = PatchParams { field_manager: Some("autoscaler".to_owned()), ..PatchParams::default() };
    let moved = Patch::Merge(json!({"data": {"theirs": "moved"}}));
    bed.config_maps().patch("shared", &autoscaler, &moved).await.unwrap();
    desired.attributes["data"]["ours"] = json!("3");
    let preview = bed.runtime.preview(&ApplyRequest::new(&desired, Some(&prior)), None).await.unwrap();
    assert!(matches!(&preview, Preview::Changed(object) if object["data"]["theirs"] == "moved"), "{preview:?}");
    let second = bed.apply(&desired, Some(&prior)).await.unwrap();
    assert_eq!(data(&second), json!({"ours": "3", "theirs": "moved"}));
    assert_eq!(managers_of(&bed, "shared", "theirs").await, ["autoscaler"]);
    assert_eq!(managers_of(&bed, "shared", "ours").await, ["stoa"]);
}
