//! Tests of replacements of immutable fields, in built-in and custom kinds.

use super::*;

/// An object, and what of it is to be what else.
struct Change {
    before: Value,
    pointer: &'static str,
    value: Value,
}

/// Describes a change of an object of this `apiVersion` and kind, which is in a namespace where one is given.
fn change(kind: [&str; 2], namespace: Option<&str>, rest: Value, (pointer, value): (&'static str, Value)) -> Change {
    let mut before = json!({"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": unique("fixed")}});
    if let Some(namespace) = namespace {
        before["metadata"]["namespace"] = namespace.into();
    }
    before.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    Change { before, pointer, value }
}

/// Puts a value where a pointer leads, whether something is there or not.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match parent.as_array_mut() {
        Some(items) => items[key.parse::<usize>().unwrap()] = value,
        None => drop(parent.as_object_mut().unwrap().insert(key.to_owned(), value)),
    }
}

fn in_namespace(namespace: &str) -> Vec<Change> {
    let of = |kind, rest, to| change(kind, Some(namespace), rest, to);
    let workload = |label: &str| {
        json!({"selector": {"matchLabels": {"app": label}}, "template": {"metadata": {"labels": {"app": label}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}})
    };
    let selector = |kind| of(["apps/v1", kind], json!({"spec": workload("a")}), ("/spec", workload("b")));
    let pod = json!({"spec": {"serviceAccountName": "runner", "containers": [{"name": "c", "image": "i", "command": ["a"]}]}});
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "a", "resources": {"requests": {"storage": "1Gi"}}}});
    vec![
        selector("Deployment"),
        selector("DaemonSet"),
        selector("ReplicaSet"),
        of(["v1", "ConfigMap"], json!({"immutable": true, "data": {"a": "1"}}), ("/data/a", json!("2"))),
        of(["v1", "Secret"], json!({"type": "example.com/a"}), ("/type", json!("example.com/b"))),
        of(["v1", "Secret"], json!({"immutable": true, "stringData": {"a": "1"}}), ("/stringData/a", json!("2"))),
        of(["v1", "Service"], json!({"spec": {"ports": [{"port": 80}]}}), ("/spec/clusterIP", json!("None"))),
        of(["v1", "Pod"], pod, ("/spec/containers/0/command", json!(["b"]))),
        of(["v1", "PersistentVolumeClaim"], claim.clone(), ("/spec/storageClassName", json!("b"))),
        of(["v1", "PersistentVolumeClaim"], claim, ("/spec/accessModes", json!(["ReadOnlyMany"]))),
        of(
            ["v1", "ResourceQuota"],
            json!({"spec": {"scopes": ["BestEffort"]}}),
            ("/spec/scopes", json!(["NotBestEffort"])),
        ),
        of(["apps/v1", "ControllerRevision"], json!({"revision": 1, "data": {"a": "1"}}), ("/data", json!({"a": "2"}))),
        of(["apps/v1", "StatefulSet"], json!({"spec": workload("a")}), ("/spec/serviceName", json!("other"))),
        of(
            ["batch/v1", "Job"],
            json!({"spec": {"parallelism": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
            ("/spec/template/spec/containers/0/image", json!("j")),
        ),
        of(
            ["discovery.k8s.io/v1", "EndpointSlice"],
            json!({"addressType": "IPv4", "endpoints": []}),
            ("/addressType", json!("IPv6")),
        ),
        of(["rbac.authorization.k8s.io/v1", "RoleBinding"], json!({"roleRef": role("a")}), ("/roleRef", role("b"))),
        of(
            ["storage.k8s.io/v1", "CSIStorageCapacity"],
            json!({"storageClassName": "a"}),
            ("/storageClassName", json!("b")),
        ),
        of(
            ["resource.k8s.io/v1", "ResourceClaimTemplate"],
            json!({"spec": {"spec": {}}}),
            ("/spec/metadata", json!({"labels": {"a": "b"}})),
        ),
    ]
}

fn in_no_namespace() -> Vec<Change> {
    let of = |kind, rest, to| change(kind, None, rest, to);
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    vec![
        of(
            ["rbac.authorization.k8s.io/v1", "ClusterRoleBinding"],
            json!({"roleRef": role("a")}),
            ("/roleRef", role("b")),
        ),
        of(["scheduling.k8s.io/v1", "PriorityClass"], json!({"value": 1}), ("/value", json!(2))),
        of(
            ["storage.k8s.io/v1", "StorageClass"],
            json!({"provisioner": "example.com/a", "parameters": {"a": "1"}}),
            ("/parameters/a", json!("2")),
        ),
        of(
            ["storage.k8s.io/v1", "StorageClass"],
            json!({"provisioner": "example.com/a"}),
            ("/provisioner", json!("b.c/d")),
        ),
        of(
            ["storage.k8s.io/v1", "VolumeAttributesClass"],
            json!({"driverName": "a.example.com", "parameters": {"a": "1"}}),
            ("/parameters/a", json!("2")),
        ),
        of(
            ["storage.k8s.io/v1", "CSIDriver"],
            json!({"spec": {"attachRequired": true}}),
            ("/spec/attachRequired", json!(false)),
        ),
        of(
            ["networking.k8s.io/v1", "IngressClass"],
            json!({"spec": {"controller": "example.com/a"}}),
            ("/spec/controller", json!("example.com/b")),
        ),
        of(["node.k8s.io/v1", "RuntimeClass"], json!({"handler": "a"}), ("/handler", json!("b"))),
        of(
            ["v1", "PersistentVolume"],
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}}),
            ("/spec/hostPath/path", json!("/b")),
        ),
    ]
}

impl TestNamespace {
    /// What becomes of a change of an object that is there: without being allowed to make it anew, and with that.
    async fn changed(&self, change: &Change) -> (StateResource, [Result<Preview, RuntimeError>; 2]) {
        let before = resource(change.before.clone());
        let what = before.id.clone();
        let live = self.apply(&before, None).await.unwrap_or_else(|err| panic!("{what}: {err}")).live;
        let prior = recorded(&before, live);
        let mut object = change.before.clone();
        put(&mut object, change.pointer, change.value.clone());
        let mut after = resource(object);
        let refused = self.runtime.preview(&ApplyRequest::new(&after, Some(&prior)), None).await;
        after.extensions.insert(RECREATE.to_owned(), json!("true"));
        let allowed = self.runtime.preview(&ApplyRequest::new(&after, Some(&prior)), None).await;
        // Only a plan says that something is replaced.
        let applied = self.apply(&after, Some(&prior)).await.expect_err(&what.0);
        assert!(matches!(applied, RuntimeError::Rejected { .. }), "{what}: {applied:?}");
        (prior, [refused, allowed])
    }
}

#[tokio::test]
async fn immutable_change_is_replaced_only_if_allowed() {
    let test = TestNamespace::new().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "runner", "namespace": test.namespace}});
    test.apply(&resource(account), None).await.unwrap();
    let mut wrong = Vec::new();
    for change in in_namespace(&test.namespace).into_iter().chain(in_no_namespace()) {
        let (prior, [refused, allowed]) = test.changed(&change).await;
        let is_told = matches!(&refused, Err(RuntimeError::Rejected { message, field: Some(_), .. }) if message.contains(RECREATE));
        if !is_told || allowed.as_ref().ok() != Some(&Preview::Replaced(None)) {
            wrong.push(format!("{} {}: {refused:?}, {allowed:?}", prior.id, change.pointer));
        }
        if change.before["metadata"].get("namespace").is_none() {
            test.delete(&prior).await.unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn existing_object_does_not_prevent_replacement() {
    let test = TestNamespace::new().await;
    let spec = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/a", "ports": [{"port": 80}]});
    let of = |spec: &Value, to| change(["v1", "Service"], Some(&test.namespace), json!({"spec": spec}), to);
    let live = test.apply(&resource(of(&spec, ("", Value::Null)).before), None).await.unwrap().live;
    let mut with_port = spec.clone();
    with_port["ports"][0]["nodePort"] = live["spec"]["ports"][0]["nodePort"].clone();
    with_port["loadBalancerClass"] = json!("example.com/b");
    let mut service = of(&spec, ("/spec", with_port));
    service.before["metadata"]["name"] = live["metadata"]["name"].clone();
    let (_, [refused, allowed]) = test.changed(&service).await;
    assert!(refused.unwrap_err().to_string().contains(RECREATE));
    assert_eq!(allowed.unwrap(), Preview::Replaced(None));
}

#[tokio::test]
async fn rejected_new_object_is_not_replaced() {
    let test = TestNamespace::new().await;
    let namespace = Some(test.namespace.as_str());
    let template = |label: &str| json!({"metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = |label: &str| json!({"selector": {"matchLabels": {"app": label}}, "template": template(label)});
    let mut both = spec("b");
    both["replicas"] = json!(-1);
    let service = json!({"spec": {"ports": [{"port": 80}]}});
    for (change, told) in [
        (change(["v1", "Service"], namespace, service, ("/spec/ports/0/port", json!(70000))), "spec.ports[0].port"),
        (change(["apps/v1", "Deployment"], namespace, json!({"spec": spec("a")}), ("/spec", both)), "spec.replicas"),
        // Of a value that may not change only that is told, though no new object may have it.
        (
            change(
                ["scheduling.k8s.io/v1", "PriorityClass"],
                None,
                json!({"value": 1}),
                ("/value", json!(2_000_000_000)),
            ),
            "recreating it would fail too: ",
        ),
    ] {
        let (prior, answers) = test.changed(&change).await;
        for answer in answers {
            let refused = answer.unwrap_err();
            let RuntimeError::Rejected { message, .. } = &refused else { panic!("{refused:?}") };
            assert!(message.contains(told) && !message.contains(RECREATE), "{message}");
        }
        if change.before["metadata"].get("namespace").is_none() {
            test.delete(&prior).await.unwrap();
        }
    }
}

#[tokio::test]
async fn immutable_custom_field_is_replaced() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let size = json!({"type": "integer", "minimum": 1, "x-kubernetes-validations": [
        {"rule": "self >= oldSelf", "message": "a disk does not shrink"}]});
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("disks.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "disks", "singular": "disk", "kind": "Disk"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": size}}}}}}]}}));
    let crd = test.apply(&definition, None).await.unwrap();
    assert_eq!(test.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    let version = format!("{group}/v1");
    let disk = |to: i32| {
        change([&version, "Disk"], Some(&test.namespace), json!({"spec": {"size": 10}}), ("/spec/size", json!(to)))
    };
    let (_, [refused, allowed]) = test.changed(&disk(5)).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("a disk does not shrink") && refused.contains(RECREATE), "{refused}");
    assert_eq!(allowed.unwrap(), Preview::Replaced(None));
    let (_, answers) = test.changed(&disk(0)).await;
    for refused in answers.map(|answer| answer.unwrap_err().to_string()) {
        assert!(!refused.contains(RECREATE), "{refused}");
    }
    test.delete(&recorded(&definition, crd.live)).await.unwrap();
}
