//! Tests of objects in a missing namespace.

use serde_json::{Value, json};

use crate::fixtures::{Stack, config_map, id, maps, spec};

fn namespace() -> Value {
    json!({"id": "v1:Namespace:shop", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop"}}})
}

#[tokio::test]
async fn missing_namespace_is_reported() {
    let stack = Stack::default();
    stack.cloud.lack_namespace("shop");
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let nothing: &[&str] = &[];
    let planned = stack.plan(&maps(&names.map(|name| (name, nothing)))).await.unwrap();
    let named = names[..5].iter().map(|name| id(name)).collect::<Vec<_>>().join(", ");
    let note = "namespace shop does not exist, and the Spec does not create it; applying";
    assert_eq!(planned.notes, [format!("{note} {named} and 2 more fails until something else does")]);
    let why = planned.plan.actions[0].unverified.as_deref();
    assert_eq!(why, Some("there is no namespace shop yet, and the Spec does not create it"));
    assert!(planned.table.contains("the Spec does not create it"), "{}", planned.table);
}

#[tokio::test]
async fn created_or_existing_namespace_is_not_reported() {
    let stack = Stack::default();
    let wanted = spec(vec![namespace(), config_map("a", &[], json!({}))]);
    assert_eq!(stack.plan(&maps(&[("a", &[])])).await.unwrap().notes, [""; 0]);
    stack.cloud.lack_namespace("shop");
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
    let why: Vec<_> = planned.plan.actions.iter().filter_map(|planned| planned.unverified.as_deref()).collect();
    assert_eq!(why, ["there is no namespace shop yet"]);
}
