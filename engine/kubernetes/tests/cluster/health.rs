//! Tests of waits for health in a real cluster.

use super::*;

#[tokio::test]
async fn custom_resource_follows_definition_and_is_watched() {
    let test = TestNamespace::new().await;
    let (definition, mut widget, widgets) = widgets(&test);
    let requests = [&definition, &widget].map(|desired| ReadRequest { desired: Some(desired), prior: None });
    let found = test.runtime.read(&requests).await.unwrap();
    assert!(matches!(found.as_slice(), [Ok(Live::Absent), Err(RuntimeError::UnknownKind(_))]), "{found:?}");

    let crd = test.apply(&definition, None).await.unwrap();
    assert_eq!(test.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    widget.attributes["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.apply(&widget, None).await.unwrap();

    let status = |ready: &str| {
        Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": ready, "message": "because"}]}}))
    };
    widgets.patch_status("w", &PatchParams::default(), &status("False")).await.unwrap();
    // The health as of the apply is taken first, which knew of no condition.
    assert_eq!(test.runtime.wait_healthy(&widget, &ignore).await.unwrap(), Health::Current);
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let report = move |health: Health, message: &str| drop(heard.send((health, message.to_owned())));
    let healthy = test.runtime.wait_healthy(&widget, &report);
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
    test.delete(&recorded(&definition, crd.live)).await.unwrap();
    let found =
        test.runtime.read(&[ReadRequest { desired: None, prior: Some(&recorded(&widget, Map::new())) }]).await.unwrap();
    assert!(matches!(found.as_slice(), [Ok(Live::Absent)]), "what has no kind is not there: {found:?}");
    test.delete(&recorded(&widget, Map::new())).await.unwrap();
}

#[tokio::test]
async fn condition_of_earlier_generation_is_not_health() {
    let test = TestNamespace::new().await;
    let (_, mut widget, widgets) = widget_kind(&test).await;
    let first = recorded(&widget, test.apply(&widget, None).await.unwrap().live);
    let ready = async || {
        let observed = widgets.get("w").await.unwrap().metadata.generation;
        let condition = json!({"type": "Ready", "status": "True", "observedGeneration": observed});
        let status = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        widgets.patch_status("w", &PatchParams::default(), &status).await.unwrap();
    };
    ready().await;
    widget.attributes.insert("spec".to_owned(), json!({"size": 2}));
    test.apply(&widget, Some(&first)).await.unwrap();
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let report = move |health: Health, message: &str| drop(heard.send((health, message.to_owned())));
    let healthy = test.runtime.wait_healthy(&widget, &report);
    tokio::pin!(healthy);
    tokio::select! {
        health = &mut healthy => panic!("nobody has looked at the change, and yet {health:?}"),
        first = told.recv() => {
            let outdated = "condition Ready is of generation 1, and 2 is not observed yet".to_owned();
            assert_eq!(first, Some((Health::InProgress, outdated)));
        }
    }
    ready().await;
    assert_eq!(healthy.await.unwrap(), Health::Current);
}

/// A definition of a kind `Widget` in a group of its own, and one of its objects.
fn widgets(test: &TestNamespace) -> (Resource, Resource, Api<DynamicObject>) {
    let group = format!("{}.example.com", unique("g"));
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}));
    let widget = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": test.namespace}, "spec": {"size": 1}}));
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Widget"), "widgets");
    (definition, widget, Api::namespaced_with(test.client.clone(), &test.namespace, &kind))
}

/// The same, and makes the kind.
async fn widget_kind(test: &TestNamespace) -> (Resource, Resource, Api<DynamicObject>) {
    let (definition, widget, widgets) = widgets(test);
    test.apply(&definition, None).await.unwrap();
    assert_eq!(test.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    (definition, widget, widgets)
}

#[tokio::test]
async fn health_policy_replaces_conventions() {
    let test = TestNamespace::new().await;
    let (definition, mut widget, widgets) = widget_kind(&test).await;
    widget.extensions.insert(
        "healthPolicy".to_owned(),
        json!({"cel": {"current": "status.phase == 'Running'", "failed": "status.phase == 'Broken'"}}),
    );
    test.apply(&widget, None).await.unwrap();
    let (heard, mut told) = tokio::sync::mpsc::unbounded_channel();
    let report = move |health: Health, message: &str| drop(heard.send((health, message.to_owned())));
    let mut healthy = std::pin::pin!(test.runtime.wait_healthy(&widget, &report));
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
    assert_eq!(test.runtime.wait_healthy(&widget, &ignore).await.unwrap(), Health::Failed);
    let crd = test.read(&definition).await.unwrap();
    let Live::Present(crd) = crd else { panic!("{crd:?}") };
    test.delete(&recorded(&definition, crd)).await.unwrap();
}

#[tokio::test]
async fn objects_of_kind_share_one_watch() {
    let test = TestNamespace::new().await;
    let (definition, widget, widgets) = widget_kind(&test).await;
    let set = |ready: &str| Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}}));
    let wanted: Vec<Resource> = (0..20)
        .map(|n| {
            let mut object = Value::Object(widget.attributes.clone());
            object["metadata"]["name"] = format!("w{n}").into();
            resource(object)
        })
        .collect();
    for (n, desired) in wanted.iter().enumerate() {
        test.apply(desired, None).await.unwrap();
        widgets.patch_status(&format!("w{n}"), &PatchParams::default(), &set("False")).await.unwrap();
        // The health as of the apply, which knew of no condition, is taken first.
        assert_eq!(test.runtime.wait_healthy(desired, &ignore).await.unwrap(), Health::Current);
    }
    let log = std::path::Path::new(&kubeconfig()).with_file_name("logs").join("audit.log");
    let collection = format!("/{}/widgets?", test.namespace);
    let watches = || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            // The log has the end of a watch at some time after the last waiter has ended.
            .filter(|event| event["verb"] == "watch" && event["stage"] == "ResponseStarted")
            .filter(|event| event["requestURI"].as_str().is_some_and(|uri| uri.contains(&collection)))
            .count()
    };
    let ready = async {
        let mut waits = 0;
        while watches() == 0 {
            waits += 1;
            assert!(waits < 120, "nothing is watched");
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        for n in 0..20 {
            widgets.patch_status(&format!("w{n}"), &PatchParams::default(), &set("True")).await.unwrap();
        }
    };
    let healthy =
        futures_util::future::join_all(wanted.iter().map(|desired| test.runtime.wait_healthy(desired, &ignore)));
    let (healthy, ()) = tokio::join!(healthy, ready);
    assert!(healthy.into_iter().all(|health| health.unwrap() == Health::Current));
    assert_eq!(watches(), 1);
    let crd = test.read(&definition).await.unwrap();
    let Live::Present(crd) = crd else { panic!("{crd:?}") };
    test.delete(&recorded(&definition, crd)).await.unwrap();
}
