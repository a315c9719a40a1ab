//! Tests of order: admission prerequisites, released claims, and admission dependencies.

use stoa_engine::stage::Stage;

use super::*;

/// An object in the namespace `shop`.
fn object(api_version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut attributes =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
    attributes.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    json!({"id": format!("{api_version}:{kind}:shop:{name}"), "type": "Kubernetes", "attributes": attributes})
}

fn after(plan: &Plan, id: &str) -> Vec<String> {
    let action = plan.actions.iter().find(|it| it.id.0 == id).unwrap();
    action.after.iter().map(|id| id.0.clone()).collect()
}

#[test]
fn admission_prerequisite_precedes_its_users() {
    let pod = object("v1", "Pod", "x", json!({"spec": {"serviceAccountName": "a", "priorityClassName": "none"}}));
    let limits = object("v1", "LimitRange", "l", json!({}));
    let (account, other) =
        (object("v1", "ServiceAccount", "a", json!({})), object("v1", "ServiceAccount", "b", json!({})));
    let mut scenario = Scenario::default();
    let wanted = spec(json!([pod, limits, account, other]));
    let plan = scenario.plan(&wanted);
    assert_eq!(after(&plan, "v1:Pod:shop:x"), ["v1:LimitRange:shop:l", "v1:ServiceAccount:shop:a"]);
    // And is deleted after it.
    scenario.carry_out(&wanted, &plan);
    let plan = scenario.plan(&spec(json!([])));
    assert_eq!(after(&plan, "v1:ServiceAccount:shop:a"), ["v1:Pod:shop:x"]);
    // What people wrote wins.
    let mut account = object("v1", "ServiceAccount", "a", json!({}));
    account["dependsOn"] = json!(["v1:Pod:shop:x"]);
    let pod = object("v1", "Pod", "x", json!({"spec": {"serviceAccountName": "a"}}));
    let plan = Scenario::default().plan(&spec(json!([pod, account])));
    assert_eq!(after(&plan, "v1:Pod:shop:x"), [""; 0]);
}

#[test]
fn deletion_precedes_only_service_that_claims_its_port() {
    let service =
        |name: &str, port: u16| object("v1", "Service", name, json!({"spec": {"ports": [{"nodePort": port}]}}));
    let mut scenario = Scenario::default();
    let before = spec(json!([service("old", 30080), service("unused", 30081)]));
    let plan = scenario.plan(&before);
    scenario.carry_out(&before, &plan);
    let plan = scenario.plan(&spec(json!([service("new", 30080)])));
    assert_eq!(after(&plan, "v1:Service:shop:new"), ["v1:Service:shop:old"]);
    let stage = |id: &str| plan.actions.iter().find(|it| it.id.0 == id).unwrap().stage();
    assert_eq!(stage("v1:Service:shop:old"), Stage::Exchanges);
    assert_eq!(stage("v1:Service:shop:unused"), Stage::Deletions);
    // Two that swap their ports are in no order that works; both are tried.
    let swapped = spec(json!([service("old", 30081), service("unused", 30080)]));
    assert_eq!(scenario.plan(&swapped).summary().update, 2);
}

#[test]
fn ingress_is_deleted_after_its_successor() {
    let rules = json!({"spec": {"rules": [{"host": "shop.example.com", "http": {"paths": [{"path": "/"}]}}]}});
    let ingress = |name: &str| object("networking.k8s.io/v1", "Ingress", name, rules.clone());
    let mut scenario = Scenario::default();
    let before = spec(json!([ingress("old")]));
    let plan = scenario.plan(&before);
    scenario.carry_out(&before, &plan);
    let plan = scenario.plan(&spec(json!([ingress("new")])));
    assert_eq!(after(&plan, "networking.k8s.io/v1:Ingress:shop:new"), [""; 0]);
    assert_eq!(plan.actions.iter().map(PlannedAction::stage).max(), Some(Stage::Deletions));
}

#[test]
fn admission_dependency_precedes_rejected_object() {
    let quota = |count: &str| object("v1", "ResourceQuota", "q", json!({"spec": {"hard": {"pods": count}}}));
    let mut scenario = Scenario::default();
    let before = spec(json!([quota("1")]));
    let plan = scenario.plan(&before);
    scenario.carry_out(&before, &plan);
    let lifted = Preview::RejectedUntil("exceeded quota".to_owned(), vec!["v1:ResourceQuota:shop:q".into()]);
    scenario.previews.insert("v1:ConfigMap:shop:a".into(), lifted);
    let plan = scenario.plan(&spec(json!([quota("2"), config_map("a", &[], json!({}))])));
    assert_snapshot!(table(&plan), @r#"
    ~ update   v1:ResourceQuota:shop:q
        spec.hard.pods: "1" → "2"
    + create   v1:ConfigMap:shop:a  (unverified: exceeded quota)
        + data: {}

    Plan: 1 to create, 1 to update; 1 unverified.
    "#);
    assert_eq!(after(&plan, "v1:ConfigMap:shop:a"), ["v1:ResourceQuota:shop:q"]);
}
