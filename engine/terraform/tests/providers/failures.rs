//! Failures of providers, and bad input.

use serde_json::json;
use stoa_apply::ResourceOutcome;
use stoa_engine::{Action, Spec};

use crate::support::{Deployment, action, id, resource, spec};

fn thing(extra: serde_json::Value) -> Spec {
    let mut attributes = json!({"name": "n", "size": 1});
    attributes.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    spec(vec![resource("frame_thing", "a", attributes)])
}

#[tokio::test]
async fn wrong_configuration_names_the_attribute() {
    let Some(deployment) = Deployment::with(&["random"]) else { return };
    for (kind, attributes, field, message) in [
        ("random_password", json!({"length": "long"}), "attributes.length", "number"),
        ("random_password", json!({"length": 8, "color": "red"}), "attributes", "color"),
        ("random_password", json!({}), "attributes", "length"),
        ("random_password", json!({"length": 0}), "attributes.length", "at least 1"),
        ("random_passwort", json!({}), "extensions.resourceType", "random_passwort"),
    ] {
        let problems = deployment.refusal(&spec(vec![resource(kind, "a", attributes)])).await;
        assert_eq!(problems.len(), 1, "{problems:?}");
        let problem = &problems[0];
        assert_eq!(problem.resource_id.as_ref().unwrap().0, id(kind, "a"));
        assert_eq!(problem.field, field, "{problem}");
        assert!(problem.message.contains(message), "{problem}");
    }
    let mut unnamed = resource("random_id", "a", json!({"byte_length": 1}));
    unnamed["extensions"] = json!({});
    let problems = deployment.refusal(&spec(vec![unnamed])).await;
    assert_eq!(problems[0].field, "extensions.provider");
}

#[tokio::test]
async fn half_made_object_is_replaced() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let failing = thing(json!({"fail": "create:half"}));
    let planned = deployment.plan(&failing).await;
    let outcome = deployment.execute(&failing, &planned).await;
    assert!(!outcome.succeeded && outcome.problems.len() == 1, "{:?}", outcome.problems);
    assert_eq!(deployment.provider_state(&id("frame_thing", "a"))["tainted"], true);
    let mended = deployment.apply(&thing(json!({}))).await;
    assert_eq!(action(&mended, &id("frame_thing", "a")).action, Action::Replace, "{}", mended.table);
    assert!(deployment.plan(&thing(json!({}))).await.plan.is_unchanged());
}

#[tokio::test]
async fn lost_creation_is_unknown_until_somebody_decides() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let failing = thing(json!({"fail": "create:panic"}));
    let planned = deployment.plan(&failing).await;
    let outcome = deployment.execute(&failing, &planned).await;
    assert!(!outcome.succeeded);
    let unknown = deployment.recorder.results.lock().unwrap().last().cloned().unwrap();
    assert_eq!(unknown.outcome, ResourceOutcome::Unknown, "{unknown:?}");
    let problems = deployment.refusal(&thing(json!({}))).await;
    assert_eq!(problems[0].reason, "UnknownState", "{problems:?}");
    deployment.recorder.retry();
    deployment.apply(&thing(json!({}))).await;
}

#[tokio::test]
async fn rejected_creation_leaves_nothing() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let failing = thing(json!({"fail": "create:error"}));
    let planned = deployment.plan(&failing).await;
    let outcome = deployment.execute(&failing, &planned).await;
    assert!(!outcome.succeeded);
    assert!(deployment.recorder.state().resources.is_empty() && deployment.recorder.state().open.is_empty());
    let problems = deployment.refusal(&thing(json!({"fail": "plan:error"}))).await;
    assert_eq!(problems[0].reason, "Rejected", "{problems:?}");
    let problems = deployment.refusal(&thing(json!({"fail": "plan:panic"}))).await;
    assert!(problems[0].message.contains("ended"), "{problems:?}");
}

#[tokio::test]
async fn failed_deletion_keeps_the_record() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    deployment.apply(&thing(json!({"fail": "delete:error"}))).await;
    let nothing = spec(Vec::new());
    let planned = deployment.plan(&nothing).await;
    let outcome = deployment.execute(&nothing, &planned).await;
    assert!(!outcome.succeeded);
    assert!(deployment.recorder.record(&id("frame_thing", "a")).provider_state.is_some());
    deployment.apply(&thing(json!({}))).await;
    deployment.apply(&nothing).await;
    assert!(deployment.recorder.state().resources.is_empty());
}
