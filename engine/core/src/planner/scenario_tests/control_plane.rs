//! Objects that controllers write or delete after they were applied.

use super::*;

fn action(plan: &Plan) -> (Action, bool) {
    (plan.actions[0].action, plan.actions[0].drift)
}

fn refreshed(world: &World, spec: &Spec) -> Plan {
    plan(&PlanInput { refresh: true, ..world.input(spec, &world.full(spec)) }).unwrap()
}

fn role(labels: Value, rules: Value) -> Value {
    json!({"id": "rbac.authorization.k8s.io/v1:ClusterRole:everything", "type": "Kubernetes", "attributes": {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "everything", "labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"aggregate": "true"}}]}, "rules": rules}})
}

#[test]
fn rules_of_an_aggregated_role_are_not_compared() {
    let wanted = |labels: Value| spec(json!([role(labels, json!([]))]));
    let made = World::default().plan(&wanted(json!({})));
    assert!(made.actions[0].changes.iter().all(|change| change.path != "rules"), "{made:?}");

    let mut world = World::applied(json!([role(json!({}), json!([]))]));
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let id = world.state.resources[0].id.clone();
    let Some(Live::Present(live)) = world.live.get_mut(&id) else { panic!("it is live") };
    live["rules"] = rules;
    assert_eq!(action(&world.plan(&wanted(json!({})))), (Action::Unchanged, false));
    assert_eq!(action(&refreshed(&world, &wanted(json!({})))), (Action::Unchanged, false));
    let labelled = world.plan(&wanted(json!({"a": "b"})));
    let paths: Vec<&str> = labelled.actions[0].changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!((labelled.actions[0].action, paths), (Action::Update, vec!["metadata.labels.a"]));
}
