//! Tests of objects that are created between a plan and its calls.

use super::*;

/// A plan to create an object, which another client creates first with this metadata; returns the outcome.
async fn made_first(metadata: Value) -> (Deployment, Spec, Outcome) {
    let deployment = Deployment::new();
    let wanted = spec(vec![in_cluster("", "web", "a", false)]);
    let planned = deployment.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Create);
    deployment.main.make("shop", "web", metadata);
    let (outcome, _) = deployment.carry_out(&wanted, &planned).await;
    (deployment, wanted, outcome)
}

#[tokio::test(start_paused = true)]
async fn object_created_after_plan_needs_new_plan() {
    let (deployment, wanted, outcome) = made_first(json!({})).await;
    assert_eq!(outcome.problems[0].reason, "Conflict");
    assert_eq!((deployment.values("web"), deployment.state()), ([Some(Value::Null), None], State::default()));
    assert_eq!(deployment.brings(&wanted).await, [("web".to_owned(), Action::Adopt)]);
    assert_eq!(deployment.values("web"), [Some(json!("a")), None]);
}

#[tokio::test(start_paused = true)]
async fn object_of_earlier_try_is_ours_without_mark() {
    let entry =
        |manager: &str, operation: &str| json!({"managedFields": [{"manager": manager, "operation": operation}]});
    for (metadata, is_ours) in
        [(entry("stoa", "Apply"), true), (entry("stoa", "Update"), false), (entry("kubectl", "Apply"), false)]
    {
        let (_, _, outcome) = made_first(metadata.clone()).await;
        assert_eq!(outcome.succeeded, is_ours, "{metadata}: {outcome:?}");
    }
}
