//! Tests of deletions in a real cluster.

use std::collections::HashSet;

use stoa_kubernetes_model::UnlistedContents;
use stoa_runtime::DeletionVerdict;

use super::*;

#[tokio::test]
async fn deletion_waits_for_finalizers() {
    let test = TestNamespace::new().await;
    let mut desired = test.config_map("held", &json!({}));
    desired.attributes["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let live = test.apply(&desired, None).await.unwrap().live;
    let prior = recorded(&desired, live);
    let deletion = test.delete(&prior);
    tokio::pin!(deletion);
    let marked = kube::runtime::wait::await_condition(test.config_maps(), "held", |object: Option<&ConfigMap>| {
        object.is_some_and(|object| object.metadata.deletion_timestamp.is_some())
    });
    tokio::select! {
        done = &mut deletion => panic!("deleted while it is held: {done:?}"),
        marked = marked => drop(marked.unwrap()),
    }
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    test.config_maps().patch("held", &PatchParams::default(), &release).await.unwrap();
    deletion.await.unwrap();
    assert_eq!(test.read(&desired).await.unwrap(), Live::Absent);
    test.delete(&prior).await.unwrap();
}

#[tokio::test]
async fn namesake_is_not_deleted() {
    let test = TestNamespace::new().await;
    let desired = test.config_map("again", &json!({"a": "1"}));
    let first = recorded(&desired, test.apply(&desired, None).await.unwrap().live);
    test.config_maps().delete("again", &DeleteParams::default()).await.unwrap();
    test.apply(&desired, None).await.unwrap();
    let err = test.delete(&first).await.unwrap_err();
    assert!(matches!(&err, RuntimeError::Conflict(_)), "{err:?}");
    assert!(matches!(test.read(&desired).await.unwrap(), Live::Present(_)));
}

#[tokio::test]
async fn continuously_written_object_is_applied_and_deleted() {
    let test = TestNamespace::new().await;
    let desired = test.config_map("busy", &json!({"a": "1"}));
    test.apply(&desired, None).await.unwrap();
    let maps = test.config_maps();
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
            let desired = test.config_map("busy", &json!({"a": n.to_string()}));
            // Whoever runs a plan tries again what was merely busy.
            let live = loop {
                match test.apply(&desired, prior.as_ref()).await {
                    Ok(applied) => break applied.live,
                    Err(err) => assert!(err.is_retryable(), "{err:?}"),
                }
            };
            assert_eq!(live["data"]["a"], n.to_string());
            prior = Some(recorded(&desired, live));
        }
        let prior = prior.unwrap();
        loop {
            match test.delete(&prior).await {
                Ok(deleted) => break assert_eq!(deleted, Deleted::Gone),
                Err(err) => assert!(err.is_retryable(), "{err:?}"),
            }
        }
    };
    tokio::join!(writing, changing);
    assert_eq!(test.read(&desired).await.unwrap(), Live::Absent);
}

#[tokio::test]
async fn namespace_and_contents_are_deleted() {
    let test = TestNamespace::new().await;
    test.apply(&test.config_map("inside", &json!({})), None).await.unwrap();
    let desired = resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": test.namespace}}));
    let Live::Present(live) = test.read(&desired).await.unwrap() else { panic!("it is there") };
    test.delete(&recorded(&desired, live)).await.unwrap();
    assert_eq!(test.read(&desired).await.unwrap(), Live::Absent);
}

#[tokio::test]
async fn workload_is_deleted_after_its_dependents() {
    let test = TestNamespace::new().await;
    let desired = resource(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": test.namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.k8s.io/pause:3.10"}]}}}}),
    );
    let live = test.apply(&desired, None).await.unwrap().live;
    let sets: Api<k8s_openapi::api::apps::v1::ReplicaSet> = Api::namespaced(test.client.clone(), &test.namespace);
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
    test.delete(&recorded(&desired, live)).await.unwrap();
    assert!(
        sets.list(&Default::default()).await.unwrap().items.iter().all(|set| set.metadata.deletion_timestamp.is_some())
    );
}

/// A definition of the kind `Disk` in a group of its own, served in these versions of `v1alpha1` and `v1`.
fn disks(group: &str, served: [bool; 2]) -> Resource {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version =
        |name: &str, served: bool| json!({"name": name, "served": served, "storage": name == "v1", "schema": schema});
    resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("disks.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "disks", "singular": "disk", "kind": "Disk"},
            "versions": [version("v1alpha1", served[0]), version("v1", served[1])]}}))
}

#[tokio::test]
async fn object_of_removed_version_is_read_and_deleted() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let definition = disks(&group, [true, true]);
    let crd = recorded(&definition, test.apply(&definition, None).await.unwrap().live);
    assert_eq!(test.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    let disk = |version: &str| {
        resource(json!({"apiVersion": format!("{group}/{version}"), "kind": "Disk",
            "metadata": {"name": "d", "namespace": test.namespace}}))
    };
    let prior = recorded(&disk("v1alpha1"), test.apply(&disk("v1alpha1"), None).await.unwrap().live);
    test.apply(&disks(&group, [false, true]), Some(&crd)).await.unwrap();
    let path = format!("/apis/{group}/v1alpha1");
    while test.client.request_text(http::Request::get(&path).body(Vec::new()).unwrap()).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for runtime in [&runtime_of("web").await, &test.runtime] {
        let read = runtime.read(&[ReadRequest { desired: None, prior: Some(&prior) }]).await.unwrap().remove(0);
        assert!(
            matches!(&read, Ok(Live::Present(object)) if stoa_engine::object::uid_of(object) == prior.uid()),
            "{read:?}"
        );
        let named = StateResource::named_by(&prior.id).unwrap();
        let found = runtime.inspect(&[&named]).await.unwrap().remove(0);
        assert!(matches!(found, Ok(Found::Ours(_))), "{found:?}");
    }
    assert_eq!(test.delete(&prior).await.unwrap(), Deleted::Gone);
    assert_eq!(test.read(&disk("v1")).await.unwrap(), Live::Absent);
    assert_eq!(test.delete(&crd).await.unwrap(), Deleted::Gone);
}

#[tokio::test]
async fn recreated_object_is_taken_over_explicitly_only() {
    let test = TestNamespace::new().await;
    let desired = test.config_map("again", &json!({"a": "1"}));
    let prior = recorded(&desired, test.apply(&desired, None).await.unwrap().live);
    test.config_maps().delete("again", &DeleteParams::default()).await.unwrap();
    let theirs: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "again"}, "data": {"a": "1", "b": "theirs"}})).unwrap();
    let theirs = test.config_maps().create(&PostParams::default(), &theirs).await.unwrap();

    assert_eq!(test.delete(&prior).await.unwrap(), Deleted::Left(LeftAlone::Recreated));
    let refused = test.apply(&desired, Some(&prior)).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Conflict(text) if text.contains("plan again")), "{refused:?}");
    assert_eq!(test.config_maps().get("again").await.unwrap(), theirs);
    let taken = test.runtime.apply(&ApplyRequest::adopting(&desired)).await.unwrap();
    assert_eq!(taken.live["data"], json!({"a": "1", "b": "theirs"}));
    assert_eq!(test.delete(&recorded(&desired, taken.live)).await.unwrap(), Deleted::Gone);
}

#[tokio::test]
async fn needed_namespace_or_definition_is_not_deleted() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let namespace =
        resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique("stoa-test")}}));
    let name = &namespace.attributes["metadata"]["name"];
    let disk = resource(
        json!({"apiVersion": format!("{group}/v1"), "kind": "Disk", "metadata": {"name": "d", "namespace": name}}),
    );
    let all = [disks(&group, [true, true]), namespace.clone(), disk.clone()];
    let mut state = State::default();
    for desired in &all {
        let live = test.apply(desired, None).await.unwrap().live;
        assert_eq!(test.runtime.wait_healthy(desired, &ignore).await.unwrap(), Health::Current);
        state.resources.push(recorded(desired, live));
    }
    let (runtime, keys) = (std::sync::Arc::new(runtime_of("web").await), DigestKeys::new(&[7; 32], &[]));
    let plan = async |resources: &[Resource]| {
        let spec = Spec { resources: resources.to_vec(), ..Spec::default() };
        let planning = stoa_apply::Planning {
            spec: &spec,
            spec_digest: "digest",
            state: &state,
            destroy: false,
            refresh: false,
            keys: &keys,
            forget_clusters: &[],
            hooks: None,
        };
        stoa_apply::plan(runtime.clone(), &planning).await
    };
    let Err(stoa_apply::PlanError::Problems(problems)) = plan(&all[2..]).await else { panic!("both are needed") };
    let told: Vec<_> = problems.iter().map(|it| (&*it.reason, it.resource_id.as_ref().unwrap())).collect();
    assert_eq!(told, [("StillNeeded", &all[0].id), ("StillNeeded", &namespace.id)]);
    assert!(problems.iter().all(|problem| problem.message.contains(&disk.id.0)), "{problems:?}");
    assert_eq!(plan(&[]).await.unwrap().summary.delete, 3);
    for prior in state.resources.iter().rev() {
        assert_eq!(test.delete(prior).await.unwrap(), Deleted::Gone);
    }
}

/// The first of two deployments plans to have nothing any more of what it has recorded.
async fn planned_without(records: &[StateResource]) -> Result<stoa_apply::Planned, stoa_apply::PlanError> {
    let state = State { resources: records.to_vec(), ..State::default() };
    let planning = stoa_apply::Planning {
        spec: &Spec::default(),
        spec_digest: "digest",
        state: &state,
        destroy: true,
        refresh: false,
        keys: &DigestKeys::new(&[7; 32], &[]),
        forget_clusters: &[],
        hooks: None,
    };
    stoa_apply::plan(std::sync::Arc::new(runtime_of("web").await), &planning).await
}

#[tokio::test]
async fn foreign_contents_prevent_deletion() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let name = unique("stoa-test");
    let holders = [
        disks(&group, [true, true]),
        resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
    ];
    let mut ours = Vec::new();
    for holder in &holders {
        ours.push(recorded(holder, test.apply(holder, None).await.unwrap().live));
        assert_eq!(test.runtime.wait_healthy(holder, &ignore).await.unwrap(), Health::Current);
    }
    // What the cluster itself makes is nobody's, and what its controllers copy a mark to is not held.
    let other = runtime_of("api").await;
    let disk = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Disk",
        "metadata": {"name": "d", "namespace": test.namespace}}));
    let deployment = resource(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "registry.k8s.io/pause:3.10"}]}}}}));
    let secret = resource(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "key", "namespace": name}, "stringData": {"key": "never-told"}}));
    let mut theirs = Vec::new();
    for desired in [&disk, &deployment, &secret] {
        theirs.push(recorded(desired, other.apply(&ApplyRequest::new(desired, None)).await.unwrap().live));
    }
    assert_eq!(other.wait_healthy(&deployment, &ignore).await.unwrap(), Health::Current);

    let Err(stoa_apply::PlanError::Problems(problems)) = planned_without(&ours).await else { panic!("both hold") };
    let told: Vec<_> = problems.iter().map(|it| (&*it.reason, it.resource_id.clone().unwrap())).collect();
    assert_eq!(told, [("HoldsOthers", holders[0].id.clone()), ("HoldsOthers", holders[1].id.clone())]);
    let in_kind = format!("(Disk d in namespace {} of shop/api/dev)", test.namespace);
    assert!(problems[0].message.contains(&in_kind), "{problems:?}");
    assert!(
        problems[1].message.contains("(Deployment web of shop/api/dev, Secret key of shop/api/dev)"),
        "{problems:?}"
    );
    for (prior, problem) in ours.iter().zip(&problems) {
        let error = test.delete(prior).await.unwrap_err();
        assert!(matches!(&error, RuntimeError::ForeignContents(message) if *message == problem.message), "{error:?}");
    }
    assert_eq!(other.read(&[ReadRequest { desired: Some(&disk), prior: None }]).await.unwrap().len(), 1);

    // One of them says that it may go, and the other is left by whoever had something in it.
    let leave = Patch::Merge(json!({"metadata": {"annotations": {"stoa.dev/delete-contents": "true"}}}));
    let namespaces = Api::<Namespace>::all(test.client.clone());
    namespaces.patch(&name, &PatchParams::default(), &leave).await.unwrap();
    conformance::delete(&other, &theirs[0]).await.unwrap();
    assert_eq!(planned_without(&ours).await.unwrap().summary.delete, 2);
    for prior in &ours {
        assert_eq!(test.delete(prior).await.unwrap(), Deleted::Gone);
    }
}

/// A runtime of the deployment `web` with no other rights than a service account of the namespace has.
async fn runtime_as(test: &TestNamespace, account: &str) -> KubernetesRuntime {
    let mut config = kube::config::Kubeconfig::read_from(kubeconfig()).unwrap();
    for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.impersonate = Some(format!("system:serviceaccount:{}:{account}", test.namespace));
    }
    let bytes = serde_json::to_vec(&config).unwrap();
    let access = Access::Kubeconfig { bytes, context: None };
    KubernetesRuntime::new(&[ClusterConfig { name: "main".to_owned(), access }], owner("web")).await.unwrap()
}

#[tokio::test]
async fn unlistable_kinds_prevent_deletion_by_default() {
    let test = TestNamespace::new().await;
    let (user, name) = (unique("user"), unique("stoa-test"));
    let role = resource(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": user}, "rules": [
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "create", "patch", "delete"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}));
    let binding = resource(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": user}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": test.namespace}]}));
    let mut grants = Vec::new();
    for desired in [&role, &binding] {
        grants.push(recorded(desired, test.apply(desired, None).await.unwrap().live));
    }
    let limited = runtime_as(&test, "default").await;
    let namespace = resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let prior = recorded(&namespace, test.apply(&namespace, None).await.unwrap().live);
    let nothing = HashSet::new();
    // The authorizer of the cluster reads a new binding a moment later.
    let mut waits = 0;
    let refusal = loop {
        let held = limited.kubernetes().foreign_contents(&prior, None, &nothing).await;
        let refusal = held.as_ref().ok().and_then(|held| held.refusal.clone());
        if let Some(refusal) = refusal.filter(|refusal| !refusal.contains("configmaps")) {
            break refusal;
        }
        waits += 1;
        assert!(waits < 300, "{held:?}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(refusal.contains("cannot list ") && refusal.contains("verbs: [\"list\"]"), "{refusal}");
    assert!(!refusal.contains("events"), "{refusal}");
    let error = limited.delete(&prior).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::ForeignContents(message) if *message == refusal), "{error:?}");
    let ignoring = runtime_as(&test, "default").await.with_unlisted_contents(UnlistedContents::Ignore);
    let held = ignoring.kubernetes().foreign_contents(&prior, None, &nothing).await.unwrap();
    assert!(held.refusal.is_none() && !held.warnings.is_empty(), "{held:?}");
    let all = test.runtime.kubernetes().foreign_contents(&prior, None, &nothing).await.unwrap();
    assert_eq!(all, DeletionVerdict::default());
    for prior in [prior].iter().chain(&grants) {
        assert_eq!(test.delete(prior).await.unwrap(), Deleted::Gone);
    }
}
