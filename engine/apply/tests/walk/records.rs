//! Tests of records.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use stoa_engine::secret_digest::is_masked;
use stoa_engine::spec::FILE;
use stoa_engine::{Action, DigestKeys, StateResource};
use stoa_runtime::fake::Operation;
use tokio::{sync::Barrier, time::timeout};

use crate::fixtures::{Keys, Stack, config_map, id, maps, secret, spec};

#[tokio::test]
async fn secrets_are_recorded_as_digests() {
    let stack = Stack::default();
    let reference = "$kusion_path.v1:Secret:shop:db.stringData.password";
    let inside = "postgres://app:${kusion_path.v1:Secret:shop:db.stringData.password}@db";
    let wanted = spec(vec![
        secret("db", json!({"password": "hunter2-long"})),
        config_map("user", &[], json!({"whole": reference, "inside": inside, "plain": "x"})),
    ]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    let live = stack.cloud.live(&id("user")).unwrap();
    assert_eq!(live["data"]["inside"], "postgres://app:hunter2-long@db");
    let record = stack.observer.record(&id("user"));
    for recorded in [&record.attributes, &record.live] {
        assert!(is_masked(&recorded["data"]["whole"]) && is_masked(&recorded["data"]["inside"]));
        assert_eq!(recorded["data"]["plain"], "x");
    }
    assert!(is_masked(&stack.observer.record("v1:Secret:shop:db").attributes["stringData"]["password"]));
    for text in [
        serde_json::to_string(&stack.observer.state()).unwrap(),
        serde_json::to_string(&planned.plan).unwrap(),
        planned.table,
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn record_has_location_and_dependencies() {
    let stack = Stack::default();
    let mut wanted = maps(&[("a", &["b"]), ("b", &[])]);
    wanted.resources[0].extensions = Map::from_iter([("GVK".to_owned(), json!("/v1, Kind=ConfigMap"))]);
    stack.apply(&wanted).await;
    let record = stack.observer.record(&id("a"));
    assert_eq!(record.depends_on, [id("b").as_str().into()]);
    assert_eq!((record.cluster.as_str(), record.extensions.len()), ("fake", 1));
    assert!(record.live["metadata"]["uid"].is_string());
    let place = stack.observer.result(&id("a")).kubernetes.unwrap();
    assert_eq!((place.kind.as_str(), place.namespace.as_str(), place.name.as_str()), ("ConfigMap", "shop", "a"));
}

#[tokio::test]
async fn existing_object_is_adopted() {
    let stack = Stack::default();
    let mut object = config_map("a", &[], json!({"a": "old", "theirs": "x"}))["attributes"].clone();
    object["metadata"]["uid"] = json!("their-uid");
    stack.cloud.put(&id("a"), object);
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert_eq!(stack.observer.result(&id("a")).action, Action::Adopt);
    assert_eq!(stack.cloud.live(&id("a")).unwrap()["data"], json!({"a": "1", "theirs": "x"}));
    assert_eq!(stack.observer.record(&id("a")).live["metadata"]["uid"], "their-uid");
}

#[tokio::test]
async fn absent_unwanted_resource_is_forgotten_without_call() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[])])).await;
    stack.cloud.remove(&id("b"));
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert!(stack.cloud.called(Operation::Delete).is_empty());
    assert_eq!(stack.observer.state().resources.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn outdated_records_are_updated_together() {
    const MAPS: usize = 100;
    let stack = Stack::default();
    let names: Vec<String> = (0..MAPS).map(|number| format!("m{number}")).collect();
    let all: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let mut wanted = maps(&all);
    stack.bring(&wanted).await;
    for resource in &mut wanted.resources {
        resource.extensions.insert(FILE.to_owned(), json!("moved.yaml"));
    }
    *stack.observer.together.lock() = Some(Arc::new(Barrier::new(MAPS)));
    assert!(timeout(Duration::from_secs(60), stack.apply(&wanted)).await.expect("nobody waits for another").succeeded);
    assert!(names.iter().all(|name| stack.observer.record(&id(name)).extensions[FILE] == "moved.yaml"));
}

#[tokio::test]
async fn outdated_record_is_updated_without_call() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[])])).await;
    // Only what it depends on is new; the object stays as it is.
    assert!(stack.apply(&maps(&[("a", &["b"]), ("b", &[])])).await.succeeded);
    assert!(stack.cloud.called(Operation::Apply).is_empty());
    assert_eq!(stack.observer.results(), [format!("Done {}", id("a"))]);
    assert_eq!(stack.observer.record(&id("a")).depends_on, [id("b").as_str().into()]);
    // And a second time there is nothing to say.
    stack.observer.clear();
    assert!(stack.apply(&maps(&[("a", &["b"]), ("b", &[])])).await.succeeded);
    assert!(stack.observer.results().is_empty());
}

#[tokio::test]
async fn renamed_resource_is_neither_recreated_nor_deleted() {
    let stack = Stack::default();
    let old = json!({"id": "apps/v1beta1:Deployment:shop:web", "type": "Kubernetes", "attributes": {
        "apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}});
    stack.bring(&spec(vec![old.clone()])).await;
    let mut new = old;
    new["id"] = json!("apps/v1:Deployment:shop:web");
    new["attributes"]["apiVersion"] = json!("apps/v1");
    // The server serves the object in either version.
    let mut live = Value::Object(stack.cloud.live("apps/v1beta1:Deployment:shop:web").unwrap());
    live["apiVersion"] = json!("apps/v1");
    stack.cloud.put("apps/v1:Deployment:shop:web", live);
    let wanted = spec(vec![new]);
    assert!(stack.apply(&wanted).await.succeeded);
    assert!(stack.cloud.called(Operation::Delete).is_empty());
    let ids: Vec<_> = stack.observer.state().resources.into_iter().map(|it| it.id.0).collect();
    assert_eq!(ids, ["apps/v1:Deployment:shop:web"]);
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn resource_with_new_type_is_replaced() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    let record = stack.observer.record(&id("a"));
    stack.observer.keep(StateResource { kind: stoa_engine::ResourceType::Terraform, ..record });
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert_eq!(stack.observer.result(&id("a")).action, Action::Replace);
    assert_eq!(stack.cloud.called(Operation::Delete).len(), 1);
    assert_eq!(stack.cloud.called(Operation::Apply).len(), 1);
    assert!(stack.cloud.live(&id("a")).is_some());
}

#[tokio::test]
async fn digests_with_old_keys_are_renewed() {
    let mut stack = Stack::default();
    let wanted = spec(vec![secret("db", json!({"password": "hunter2-long"}))]);
    stack.bring(&wanted).await;
    let id = "v1:Secret:shop:db";
    let digest = |stack: &Stack| stack.observer.record(id).attributes["stringData"]["password"]["$sensitive"].clone();
    let first = digest(&stack);
    // A new key before the old one.
    stack.keys = Keys(DigestKeys::new(&[8; 32], &[[7; 32]]));
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
    // What somebody changed is drift, whichever key its record was made with.
    let mut live = serde_json::Value::Object(stack.cloud.live(id).unwrap());
    live["stringData"]["password"] = json!("by hand");
    stack.cloud.put(id, live);
    assert!(stack.plan(&wanted).await.unwrap().plan.actions[0].drift);
    assert!(stack.apply(&wanted).await.succeeded);
    assert!(digest(&stack) != first && digest(&stack).as_str().unwrap().starts_with("hmac-sha256:"));
}
