//! What is recorded.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use stoa_engine::masks::is_masked;
use stoa_engine::spec::FILE;
use stoa_engine::{Action, DigestKeys, StateResource, digest::digest_bytes};
use stoa_runtime::fake::Operation;
use tokio::{sync::Barrier, time::timeout};

use crate::support::{Keys, Stack, config_map, id, maps, secret, spec};

#[tokio::test]
async fn secrets_are_recorded_as_digests_wherever_they_flow() {
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
    let record = stack.keeper.record(&id("user"));
    for recorded in [&record.attributes, &record.live] {
        assert!(is_masked(&recorded["data"]["whole"]) && is_masked(&recorded["data"]["inside"]));
        assert_eq!(recorded["data"]["plain"], "x");
    }
    assert!(is_masked(&stack.keeper.record("v1:Secret:shop:db").attributes["stringData"]["password"]));
    for text in [
        serde_json::to_string(&stack.keeper.state()).unwrap(),
        serde_json::to_string(&planned.plan).unwrap(),
        planned.table,
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn a_record_says_where_it_is_and_what_it_depends_on() {
    let stack = Stack::default();
    let mut wanted = maps(&[("a", &["b"]), ("b", &[])]);
    wanted.resources[0].extensions = Map::from_iter([("GVK".to_owned(), json!("/v1, Kind=ConfigMap"))]);
    stack.apply(&wanted).await;
    let record = stack.keeper.record(&id("a"));
    assert_eq!(record.depends_on, [id("b").as_str().into()]);
    assert_eq!((record.cluster.as_str(), record.extensions.len()), ("fake", 1));
    assert!(record.live["metadata"]["uid"].is_string());
    let place = stack.keeper.result(&id("a")).kubernetes.unwrap();
    assert_eq!((place.kind.as_str(), place.namespace.as_str(), place.name.as_str()), ("ConfigMap", "shop", "a"));
}

#[tokio::test]
async fn what_is_there_already_is_adopted() {
    let stack = Stack::default();
    let mut object = config_map("a", &[], json!({"a": "old", "theirs": "x"}))["attributes"].clone();
    object["metadata"]["uid"] = json!("their-uid");
    stack.cloud.put(&id("a"), object);
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert_eq!(stack.keeper.result(&id("a")).action, Action::Adopt);
    assert_eq!(stack.cloud.live(&id("a")).unwrap()["data"], json!({"a": "1", "theirs": "x"}));
    assert_eq!(stack.keeper.record(&id("a")).live["metadata"]["uid"], "their-uid");
}

#[tokio::test]
async fn what_is_gone_and_unwanted_is_forgotten_without_a_call() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[])])).await;
    stack.cloud.remove(&id("b"));
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert!(stack.cloud.called(Operation::Delete).is_empty());
    assert_eq!(stack.keeper.state().resources.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn records_that_are_behind_are_brought_up_to_date_together() {
    const MAPS: usize = 100;
    let stack = Stack::default();
    let names: Vec<String> = (0..MAPS).map(|number| format!("m{number}")).collect();
    let all: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &[][..])).collect();
    let mut wanted = maps(&all);
    stack.bring(&wanted).await;
    for resource in &mut wanted.resources {
        resource.extensions.insert(FILE.to_owned(), json!("moved.yaml"));
    }
    *stack.keeper.together.lock() = Some(Arc::new(Barrier::new(MAPS)));
    assert!(timeout(Duration::from_secs(60), stack.apply(&wanted)).await.expect("nobody waits for another").succeeded);
    assert!(names.iter().all(|name| stack.keeper.record(&id(name)).extensions[FILE] == "moved.yaml"));
}

#[tokio::test]
async fn a_record_that_is_behind_is_brought_up_to_date_without_a_call() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[])])).await;
    // Only what it depends on is new; the object stays as it is.
    assert!(stack.apply(&maps(&[("a", &["b"]), ("b", &[])])).await.succeeded);
    assert!(stack.cloud.called(Operation::Apply).is_empty());
    assert_eq!(stack.keeper.results(), [format!("Done {}", id("a"))]);
    assert_eq!(stack.keeper.record(&id("a")).depends_on, [id("b").as_str().into()]);
    // And a second time there is nothing to say.
    stack.keeper.clear();
    assert!(stack.apply(&maps(&[("a", &["b"]), ("b", &[])])).await.succeeded);
    assert!(stack.keeper.results().is_empty());
}

#[tokio::test]
async fn an_object_under_a_new_id_is_neither_made_again_nor_removed() {
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
    let ids: Vec<_> = stack.keeper.state().resources.into_iter().map(|it| it.id.0).collect();
    assert_eq!(ids, ["apps/v1:Deployment:shop:web"]);
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn what_changed_its_type_is_replaced() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    let record = stack.keeper.record(&id("a"));
    stack.keeper.keep(StateResource { kind: stoa_engine::ResourceType::Terraform, ..record });
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert_eq!(stack.keeper.result(&id("a")).action, Action::Replace);
    assert_eq!(stack.cloud.called(Operation::Delete).len(), 1);
    assert_eq!(stack.cloud.called(Operation::Apply).len(), 1);
    assert!(stack.cloud.live(&id("a")).is_some());
}

#[tokio::test]
async fn digests_of_other_keys_and_of_none_are_no_change_and_are_made_anew() {
    let mut stack = Stack::default();
    let wanted = spec(vec![secret("db", json!({"password": "hunter2-long"}))]);
    stack.bring(&wanted).await;
    let id = "v1:Secret:shop:db";
    let digest = |stack: &Stack| stack.keeper.record(id).attributes["stringData"]["password"]["$sensitive"].clone();
    let first = digest(&stack);
    // As it was recorded before there were keys: SHA-256 of the id and the value.
    let old = |value: &str| {
        let digest = digest_bytes(&[id.as_bytes(), b"\0", format!("{value:?}").as_bytes()]);
        json!({ "$sensitive": digest })
    };
    let mut record = stack.keeper.record(id);
    record.attributes["stringData"]["password"] = old("hunter2-long");
    record.live["stringData"]["password"] = old("hunter2-long");
    stack.keeper.keep(record);
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
    assert!(stack.apply(&wanted).await.succeeded);
    assert!(stack.cloud.called(Operation::Apply).is_empty());
    assert_eq!(digest(&stack), first);
    let state = serde_json::to_string(&stack.keeper.state()).unwrap();
    assert!(!state.contains("\"sha256:"), "a digest that can be guessed is left: {state}");
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
