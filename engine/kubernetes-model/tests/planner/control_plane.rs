//! Tests of objects that controllers write or delete after an apply.

use super::*;

fn job(image: &str) -> Value {
    json!({"id": "batch/v1:Job:shop:migrate", "type": "Kubernetes", "attributes": {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate", "namespace": "shop"},
        "spec": {"ttlSecondsAfterFinished": 0, "template": {"spec": {"containers": [{"name": "a", "image": image}]}}}}})
}

/// A Job that was applied and is not there any more.
fn removed(finished: bool) -> Scenario {
    let mut scenario = Scenario::applied(json!([job("a:1")]));
    scenario.state.resources[0].finished = finished;
    let id = scenario.state.resources[0].id.clone();
    scenario.live.insert(id, Live::Absent);
    scenario
}

fn action(plan: &Plan) -> (Action, bool) {
    (plan.actions[0].action, plan.actions[0].drift)
}

fn refreshed(scenario: &Scenario, spec: &Spec) -> Plan {
    plan(&PlanInput { refresh: true, ..scenario.input(spec, &scenario.full(spec)) }).unwrap()
}

#[test]
fn finished_job_is_recreated_when_manifest_changes() {
    let (same, changed) = (spec(json!([job("a:1")])), spec(json!([job("a:2")])));
    let finished = removed(true);
    assert_eq!(action(&finished.plan(&same)), (Action::Unchanged, false));
    assert_eq!(action(&refreshed(&finished, &same)), (Action::Unchanged, false));
    assert_eq!(finished.plan(&changed).actions[0].action, Action::Create);
    // Its removal from the source leaves nothing to delete.
    assert_eq!(finished.plan(&Spec::default()).actions[0].action, Action::Forget);
    assert_eq!(action(&refreshed(&finished, &Spec::default())), (Action::Unchanged, false));
}

#[test]
fn unfinished_deleted_job_is_missing() {
    let same = spec(json!([job("a:1")]));
    let deleted = removed(false);
    assert_eq!(action(&deleted.plan(&same)), (Action::Create, true));
    assert_eq!(action(&refreshed(&deleted, &same)), (Action::Create, true));
}

fn role(labels: Value, rules: Value) -> Value {
    json!({"id": "rbac.authorization.k8s.io/v1:ClusterRole:everything", "type": "Kubernetes", "attributes": {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "everything", "labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"aggregate": "true"}}]}, "rules": rules}})
}

#[test]
fn aggregated_role_rules_are_not_compared() {
    let wanted = |labels: Value| spec(json!([role(labels, json!([]))]));
    let made = Scenario::default().plan(&wanted(json!({})));
    assert!(made.actions[0].changes.iter().all(|change| change.path != "rules"), "{made:?}");

    let mut scenario = Scenario::applied(json!([role(json!({}), json!([]))]));
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let id = scenario.state.resources[0].id.clone();
    let Some(Live::Present(live)) = scenario.live.get_mut(&id) else { panic!("it is live") };
    live["rules"] = rules;
    assert_eq!(action(&scenario.plan(&wanted(json!({})))), (Action::Unchanged, false));
    assert_eq!(action(&refreshed(&scenario, &wanted(json!({})))), (Action::Unchanged, false));
    let labelled = scenario.plan(&wanted(json!({"a": "b"})));
    let paths: Vec<&str> = labelled.actions[0].changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!((labelled.actions[0].action, paths), (Action::Update, vec!["metadata.labels.a"]));
}
