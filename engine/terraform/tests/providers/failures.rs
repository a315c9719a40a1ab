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
async fn object_that_differs_from_its_plan_is_reported() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let lying = thing(json!({"fail": "create:lie"}));
    let planned = deployment.plan(&lying).await;
    let outcome = deployment.execute(&lying, &planned).await;
    assert!(!outcome.succeeded && outcome.problems.len() == 1, "{:?}", outcome.problems);
    assert!(outcome.problems[0].field.contains("size"), "{:?}", outcome.problems);
    // The object exists, so it is recorded as it is.
    assert_eq!(deployment.attributes(&id("frame_thing", "a")).unwrap()["size"], 99);
    deployment.apply(&thing(json!({}))).await;
    assert_eq!(deployment.attributes(&id("frame_thing", "a")).unwrap()["size"], 1);
}

#[tokio::test]
async fn warnings_name_the_line_of_the_resource() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let warned = |fail: &str| {
        let mut wanted = thing(json!({ "fail": fail }));
        let extensions = &mut wanted.resources[0].extensions;
        extensions.extend([("stoa.dev/file".to_owned(), "spec.yaml".into()), ("stoa.dev/line".to_owned(), 7.into())]);
        wanted
    };
    let messages = || {
        let results = deployment.recorder.results.lock().unwrap();
        results.iter().map(|result| result.message.clone()).collect::<Vec<_>>().join("\n")
    };
    deployment.apply(&warned("create:warn")).await;
    assert!(messages().starts_with("the provider warns about spec.yaml:7: "), "{}", messages());
    assert!(messages().contains("The configuration asks for it."), "{}", messages());
    deployment.apply(&warned("read:warn")).await;
    for fail in ["read:warn", "plan:warn"] {
        let planned = deployment.plan(&warned(fail)).await;
        let start = format!("{} in spec.yaml:7: ", id("frame_thing", "a"));
        let found: Vec<_> = planned.notes.iter().filter(|note| note.starts_with(&start)).collect();
        assert!(found.iter().any(|note| note.contains("The configuration asks for it.")), "{:?}", planned.notes);
    }
}

#[tokio::test]
async fn flood_of_a_provider_is_no_failure() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    deployment.apply(&thing(json!({"fail": "create:flood"}))).await;
    assert!(deployment.plan(&thing(json!({"fail": "create:flood"}))).await.plan.is_unchanged());
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
async fn provider_is_asked_about_deletions_by_the_plan() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    deployment.apply(&thing(json!({"fail": "destroy:error"}))).await;
    let problems = deployment.refusal(&spec(Vec::new())).await;
    assert_eq!((problems.len(), problems[0].field.as_str()), (1, "attributes.fail"), "{problems:?}");
    deployment.apply(&thing(json!({}))).await;
    let planned = deployment.destroy().await;
    assert!(planned.notes.iter().any(|note| note.contains("The object is deleted.")), "{:?}", planned.notes);
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
