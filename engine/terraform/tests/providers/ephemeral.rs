//! Ephemeral resources: values that nothing stores.

use serde_json::{Value, json};
use stoa_apply::ResourceOutcome;
use stoa_engine::{Action, Spec};

use crate::support::{Deployment, action, ephemeral, id, object, of, resource, spec};

/// An object with a secret of an ephemeral resource.
fn with_token(token: Value, thing: Value) -> Spec {
    let mut attributes = json!({"name": "n", "write_only": of("frame_token", "t", "value")});
    attributes.as_object_mut().unwrap().extend(thing.as_object().unwrap().clone());
    let mut wanted = json!({"name": "t"});
    wanted.as_object_mut().unwrap().extend(token.as_object().unwrap().clone());
    spec(vec![ephemeral("frame_token", "t", wanted), resource("frame_thing", "a", attributes)])
}

/// The calls of the token, a line for each.
fn calls(deployment: &Deployment) -> String {
    std::fs::read_to_string(deployment.folder.path().join("token-t")).unwrap_or_default()
}

#[tokio::test]
async fn ephemeral_value_reaches_a_write_only_attribute_alone() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let wanted = with_token(json!({}), json!({}));
    let planned = deployment.plan(&wanted).await;
    assert_eq!(action(&planned, &id("frame_token", "t")).action, Action::Read);
    assert!(!planned.table.contains("frame_token:t") && !planned.table.contains("write_only"), "{}", planned.table);
    assert_eq!(calls(&deployment), "", "a plan opens nothing");
    deployment.apply(&wanted).await;
    assert_eq!(calls(&deployment), "open\nclose\n");
    let written = std::fs::read_to_string(deployment.folder.path().join("id-n")).unwrap();
    assert_eq!(written, "hunter2-t-1");
    // Neither the records nor the state of the provider have it.
    let recorded = serde_json::to_string(&deployment.recorder.state().resources).unwrap();
    assert!(!recorded.contains("hunter2") && recorded.matches("\"id\":\"hashicorp:").count() == 1, "{recorded}");
    assert!(!deployment.recorder.shown().contains("hunter2"));
    assert_eq!(deployment.attributes(&id("frame_thing", "a")).unwrap()["write_only"], Value::Null);

    // Another value alone is no change, so nothing is opened.
    let again = deployment.apply(&wanted).await;
    assert!(again.plan.is_unchanged(), "{}", again.table);
    assert!(deployment.refresh(&wanted).await.plan.is_unchanged());
    assert_eq!(calls(&deployment), "open\nclose\n");
    deployment.apply(&with_token(json!({}), json!({"both": "x"}))).await;
    assert_eq!(calls(&deployment), "open\nclose\nopen\nclose\n");
    deployment.destroy().await;
    assert_eq!(calls(&deployment), "open\nclose\nopen\nclose\n");
}

#[tokio::test]
async fn unchanged_resource_needs_no_ephemeral_value() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    deployment.apply(&with_token(json!({}), json!({}))).await;
    let opened = calls(&deployment);
    // The record gets the new lock, although nothing changes.
    let mut wanted = with_token(json!({}), json!({}));
    let lock = json!({"file": ".terraform.lock.hcl", "version": "2.0.0"});
    wanted.resources[1].extensions.insert("stoa.dev/provider-lock".to_owned(), lock.clone());
    assert!(deployment.apply(&wanted).await.plan.is_unchanged());
    let record = deployment.recorder.record(&id("frame_thing", "a"));
    assert_eq!(record.extensions["stoa.dev/provider-lock"], lock);
    // So does the record under a new id.
    wanted.resources[1].id = id("frame_thing", "b").as_str().into();
    let extensions = &mut wanted.resources[1].extensions;
    extensions.insert("stoa.dev/moved-from".to_owned(), id("frame_thing", "a").into());
    let planned = deployment.apply(&wanted).await;
    assert_eq!(action(&planned, &id("frame_thing", "b")).action, Action::Unchanged, "{}", planned.table);
    let ids: Vec<String> = deployment.recorder.state().resources.into_iter().map(|it| it.id.0).collect();
    assert_eq!((ids, calls(&deployment)), (vec![id("frame_thing", "b")], opened));
}

#[tokio::test]
async fn value_is_opened_after_the_commit() {
    let Some(mut deployment) = Deployment::with(&["frame"]) else { return };
    deployment.in_git = true;
    let mut wanted = with_token(json!({}), json!({}));
    let file = object("ConfigMap", "m", json!({"data": {"a": "b"}}));
    wanted.resources.push(serde_json::from_value(file).unwrap());
    wanted.resources[1].depends_on.push("v1:ConfigMap:shop:m".into());
    deployment.apply(&wanted).await;
    assert_eq!(calls(&deployment), "open\nclose\n");
}

#[tokio::test]
async fn failed_run_closes_what_it_opened() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let wanted = with_token(json!({}), json!({"fail": "create:error"}));
    let planned = deployment.plan(&wanted).await;
    let outcome = deployment.execute(&wanted, &planned).await;
    assert!(!outcome.succeeded);
    assert_eq!(calls(&deployment), "open\nclose\n");
    assert!(!format!("{:?}", outcome.problems).contains("hunter2"), "{:?}", outcome.problems);
}

#[tokio::test]
async fn open_resource_is_renewed() {
    let Some(deployment) = Deployment::with(&["frame", "time"]) else { return };
    let mut wanted = with_token(json!({"renew": true}), json!({}));
    let sleep = resource("time_sleep", "s", json!({"create_duration": "1500ms"}));
    wanted.resources.push(serde_json::from_value(sleep).unwrap());
    wanted.resources[1].depends_on.push(id("time_sleep", "s").as_str().into());
    deployment.apply(&wanted).await;
    let calls = calls(&deployment);
    assert!(calls.starts_with("open\nrenew\nrenew\n") && calls.ends_with("close\n"), "{calls}");
}

#[tokio::test]
async fn hanging_renewal_ends_with_the_run() {
    let Some(deployment) = Deployment::with(&["frame", "time"]) else { return };
    let mut wanted = with_token(json!({"renew": true, "fail": "renew:hang"}), json!({}));
    let sleep = resource("time_sleep", "s", json!({"create_duration": "1s"}));
    wanted.resources.push(serde_json::from_value(sleep).unwrap());
    wanted.resources[1].depends_on.push(id("time_sleep", "s").as_str().into());
    deployment.apply(&wanted).await;
    assert_eq!(calls(&deployment), "open\nrenew\nclose\n");
}

#[tokio::test]
async fn value_that_would_be_stored_is_a_problem() {
    let Some(deployment) = Deployment::with(&["frame", "random"]) else { return };
    let token = || ephemeral("frame_token", "t", json!({"name": "t"}));
    let value = of("frame_token", "t", "value");
    let map = object("ConfigMap", "m", json!({"data": {"a": {"b": 1}, "t": value}}));
    let inside = format!("x-${{{}}}", value.trim_start_matches('$'));
    let nested = resource("frame_thing", "a", json!({"name": "n", "labels": {"l": inside}}));
    let pet = resource("random_pet", "p", json!({"prefix": value}));
    for (user, field) in [(map, "attributes.data.t"), (nested, "attributes.labels.l"), (pet, "attributes.prefix")] {
        let problems = deployment.refusal(&spec(vec![token(), user])).await;
        assert_eq!((problems.len(), problems[0].field.as_str()), (1, field), "{problems:?}");
        assert!(problems[0].message.contains("is ephemeral, and would be stored here"), "{problems:?}");
    }
    // Another ephemeral resource stores nothing.
    let other = ephemeral("frame_token", "u", json!({"name": of("frame_token", "t", "name")}));
    let thing = resource("frame_thing", "a", json!({"name": "n", "write_only": of("frame_token", "u", "value")}));
    deployment.apply(&spec(vec![token(), other, thing])).await;
    assert_eq!(calls(&deployment), "open\nopen\nclose\nclose\n");

    let none = ephemeral("frame_thing", "a", json!({"name": "n"}));
    let problems = deployment.refusal(&spec(vec![none])).await;
    assert!(problems[0].message.contains("no ephemeral resource \"frame_thing\""), "{problems:?}");
    let wrong = ephemeral("frame_token", "t", json!({"nam": "t"}));
    assert!(!deployment.refusal(&spec(vec![wrong])).await.is_empty());
}

#[tokio::test]
async fn failed_open_skips_what_needs_it() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let wanted = with_token(json!({"fail": "open:error"}), json!({}));
    let planned = deployment.plan(&wanted).await;
    let outcome = deployment.execute(&wanted, &planned).await;
    assert_eq!(outcome.problems.len(), 1, "{:?}", outcome.problems);
    assert_eq!(outcome.problems[0].field, "attributes.fail");
    let results = deployment.recorder.results.lock().unwrap().clone();
    assert_eq!(results.last().unwrap().outcome, ResourceOutcome::Skipped);
    assert_eq!(calls(&deployment), "");
}
