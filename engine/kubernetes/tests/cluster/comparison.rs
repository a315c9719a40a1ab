//! What is planned of what is live, recorded and wanted.

use super::*;

/// The changes that a plan would make of what is recorded as it is wanted, by what is live and by what the cluster says of
/// its kind.
async fn planned(runtime: &KubernetesRuntime, desired: &Resource) -> Vec<String> {
    let requests = [ReadRequest { desired: Some(desired), prior: None }];
    let live = BTreeMap::from([(desired.id.clone(), runtime.read(&requests).await.unwrap().remove(0).unwrap())]);
    let schemas = runtime.schemas(&[desired]).await.unwrap();
    assert_eq!(schemas.len(), 1, "the cluster says nothing of the kind");
    let spec = Spec { resources: vec![desired.clone()], ..Spec::default() };
    let state = State { resources: vec![recorded(desired, Map::new())], ..State::default() };
    let keys = DigestKeys::new(&[7; 32], &[]);
    let input = PlanInput {
        live: &live,
        schemas: &schemas,
        clusters: runtime.clusters(),
        ..PlanInput::blind(&spec, &state, runtime.owner(), &keys)
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
