//! Data sources: read for the plan where their arguments are known, and by the apply otherwise.

use serde_json::{Value, json};
use stoa_apply::ResourceOutcome;
use stoa_engine::{Action, Spec};

use crate::support::{Deployment, action, data, data_id, id, object, of, resource, spec};

/// A reference to an attribute of a data source.
fn of_data(kind: &str, name: &str, path: &str) -> String {
    format!("$kusion_path.{}.{path}", data_id(kind, name))
}

fn motd(deployment: &Deployment) -> std::path::PathBuf {
    deployment.folder.path().join("motd")
}

/// A file that others wrote, and a ConfigMap with its content.
fn existing(deployment: &Deployment) -> Spec {
    spec(vec![
        data("local_file", "motd", json!({"filename": motd(deployment)})),
        object("ConfigMap", "motd", json!({"data": {"text": of_data("local_file", "motd", "content")}})),
    ])
}

#[tokio::test]
async fn data_source_is_read_for_the_plan() {
    let Some(deployment) = Deployment::with(&["local"]) else { return };
    std::fs::write(motd(&deployment), "hello").unwrap();
    let wanted = existing(&deployment);
    let planned = deployment.apply(&wanted).await;
    assert_eq!(action(&planned, &data_id("local_file", "motd")).action, Action::Read);
    assert!(planned.table.contains(r#"{"text":"hello"}"#), "{}", planned.table);
    assert!(planned.table.ends_with("Plan: 1 to create; 1 read.\n"), "{}", planned.table);
    assert_eq!(deployment.cloud.live("v1:ConfigMap:shop:motd").unwrap()["data"]["text"], "hello");
    // Nothing is recorded of it, so nothing has to be deleted.
    let ids: Vec<String> = deployment.recorder.state().resources.into_iter().map(|it| it.id.0).collect();
    assert_eq!(ids, ["v1:ConfigMap:shop:motd"]);
    let again = deployment.plan(&wanted).await;
    assert!(again.plan.is_unchanged() && again.summary.read == 1, "{}", again.table);
    assert!(deployment.refresh(&wanted).await.plan.is_unchanged());

    std::fs::write(motd(&deployment), "bye").unwrap();
    let changed = deployment.plan(&wanted).await;
    assert_eq!(action(&changed, "v1:ConfigMap:shop:motd").action, Action::Update, "{}", changed.table);
    assert!(changed.table.contains("\"hello\" → \"bye\""), "{}", changed.table);
    deployment.destroy().await;
    assert_eq!(std::fs::read_to_string(motd(&deployment)).unwrap(), "bye");
}

#[tokio::test]
async fn data_source_of_new_object_is_read_by_the_apply() {
    let Some(deployment) = Deployment::with(&["local", "random"]) else { return };
    let wanted = |length: u32| {
        spec(vec![
            resource("random_pet", "name", json!({"length": length})),
            resource(
                "local_file",
                "motd",
                json!({"filename": motd(&deployment), "content": of("random_pet", "name", "id")}),
            ),
            data("local_file", "motd", json!({"filename": of("local_file", "motd", "filename")})),
            resource("random_pet", "echo", json!({"prefix": of_data("local_file", "motd", "content")})),
            object("ConfigMap", "motd", json!({"data": {"text": of_data("local_file", "motd", "content")}})),
        ])
    };
    let planned = deployment.plan(&wanted(1)).await;
    let read = action(&planned, &data_id("local_file", "motd"));
    assert_eq!((read.action, read.after.clone()), (Action::Read, vec![id("local_file", "motd").as_str().into()]));
    assert!(planned.table.contains("< read"), "{}", planned.table);
    assert!(planned.table.contains("+ content: (known after apply)"), "{}", planned.table);
    assert!(planned.table.contains("+ prefix: (known after apply)"), "{}", planned.table);
    let content = |deployment: &Deployment| std::fs::read_to_string(motd(deployment)).unwrap();
    for length in [1, 2] {
        deployment.apply(&wanted(length)).await;
        let text = content(&deployment);
        assert_eq!(deployment.cloud.live("v1:ConfigMap:shop:motd").unwrap()["data"]["text"], text.as_str());
        assert_eq!(deployment.attributes(&id("random_pet", "echo")).unwrap()["prefix"], text.as_str());
        let again = deployment.plan(&wanted(length)).await;
        assert!(again.plan.is_unchanged(), "{}", again.table);
    }
}

#[tokio::test]
async fn explicit_dependency_that_changes_comes_first() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    let wanted = |size: u32| {
        let mut echo = data("frame_echo", "all", json!({"value": {"a": [1, "x"]}}));
        echo["dependsOn"] = json!([id("frame_thing", "a")]);
        let thing = resource("frame_thing", "a", json!({"name": "n", "size": size}));
        spec(vec![
            thing,
            echo,
            object("ConfigMap", "echo", json!({"data": {"text": of_data("frame_echo", "all", "text")}})),
        ])
    };
    for (size, is_later) in [(1, true), (1, false), (2, true)] {
        let planned = deployment.plan(&wanted(size)).await;
        let read = action(&planned, &data_id("frame_echo", "all"));
        assert_eq!(read.is_shown(), is_later, "{}", planned.table);
        let outcome = deployment.execute(&wanted(size), &planned).await;
        assert!(outcome.succeeded, "{:?}", outcome.problems);
    }
}

#[tokio::test]
async fn sensitive_attributes_stay_sensitive() {
    let Some(deployment) = Deployment::with(&["local"]) else { return };
    std::fs::write(motd(&deployment), "hunter2-of-the-file").unwrap();
    let wanted = spec(vec![
        data("local_sensitive_file", "motd", json!({"filename": motd(&deployment)})),
        object("Secret", "motd", json!({"stringData": {"p": of_data("local_sensitive_file", "motd", "content")}})),
    ]);
    let planned = deployment.apply(&wanted).await;
    assert!(!planned.table.contains("hunter2"), "{}", planned.table);
    assert!(!deployment.recorder.shown().contains("hunter2"));
    let live = deployment.cloud.live("v1:Secret:shop:motd").unwrap();
    assert_eq!(live["stringData"]["p"], "hunter2-of-the-file");
}

#[tokio::test]
async fn unchanged_stack_reads_sensitive_arguments() {
    let Some(deployment) = Deployment::with(&["frame", "random"]) else { return };
    let wanted = spec(vec![
        resource("random_password", "p", json!({"length": 20})),
        data("frame_echo", "e", json!({"value": of("random_password", "p", "result")})),
        object("Secret", "s", json!({"stringData": {"p": of_data("frame_echo", "e", "text")}})),
    ]);
    deployment.apply(&wanted).await;
    let live = deployment.cloud.live("v1:Secret:shop:s");
    let again = deployment.apply(&wanted).await;
    assert!(again.plan.is_unchanged(), "{}", again.table);
    assert_eq!(deployment.cloud.live("v1:Secret:shop:s"), live);
}

#[tokio::test]
async fn problems_name_the_data_source_and_its_field() {
    let Some(deployment) = Deployment::with(&["local", "frame"]) else { return };
    let missing = data("local_file", "motd", json!({"filename": motd(&deployment)}));
    let with = |mut data: Value, name: &str, value: Value| {
        data["extensions"][name] = value;
        data
    };
    for (wanted, field, message) in [
        (missing.clone(), "", "no such file"),
        (data("local_file", "motd", json!({})), "attributes", "filename"),
        (data("local_file", "motd", json!({"filename": "x", "content": "y"})), "attributes.content", "provider"),
        (data("frame_thing", "a", json!({"name": "n"})), "extensions.resourceType", "is a resource type"),
        (data("frame_none", "a", json!({})), "extensions.resourceType", "no data source \"frame_none\""),
        (with(missing.clone(), "mode", "read".into()), "extensions.mode", "must be one of"),
        (
            with(missing.clone(), "kusionstack.io/import-id", "x".into()),
            "extensions.kusionstack.io/import-id",
            "only read",
        ),
    ] {
        if field.is_empty() || field == "extensions.kusionstack.io/import-id" {
            // The provider reads it before anything else can be wrong.
            std::fs::remove_file(motd(&deployment)).ok();
        }
        if field == "extensions.kusionstack.io/import-id" {
            std::fs::write(motd(&deployment), "hello").unwrap();
        }
        let problems = deployment.refusal(&spec(vec![wanted])).await;
        assert_eq!((problems.len(), problems[0].field.as_str()), (1, field), "{problems:?}");
        assert!(problems[0].message.contains(message), "{problems:?}");
        assert!(problems[0].resource_id.is_some());
    }
    // The object of a resource needs its id.
    let thing = resource("frame_thing", "a", json!({"name": "n"}));
    deployment.apply(&spec(vec![thing.clone()])).await;
    let mut echo = data("frame_echo", "a", json!({}));
    echo["id"] = thing["id"].clone();
    let problems = deployment.refusal(&spec(vec![echo])).await;
    assert!(problems[0].message.contains("an object is recorded under this id"), "{problems:?}");
}

#[tokio::test]
async fn failed_read_of_the_apply_skips_what_refers_to_it() {
    let Some(deployment) = Deployment::with(&["local"]) else { return };
    std::fs::write(motd(&deployment), "hello").unwrap();
    let wanted = existing(&deployment);
    let planned = deployment.plan(&wanted).await;
    std::fs::remove_file(motd(&deployment)).unwrap();
    let outcome = deployment.execute(&wanted, &planned).await;
    assert!(!outcome.succeeded && outcome.problems.len() == 1, "{:?}", outcome.problems);
    assert_eq!(outcome.problems[0].resource_id.as_ref().unwrap().0, data_id("local_file", "motd"));
    let results = deployment.recorder.results.lock().unwrap().clone();
    let outcomes: Vec<_> = results.iter().map(|it| (it.id.0.as_str(), it.outcome)).collect();
    let map = "v1:ConfigMap:shop:motd";
    let read = data_id("local_file", "motd");
    assert_eq!(outcomes, [(read.as_str(), ResourceOutcome::Failed), (map, ResourceOutcome::Skipped)]);
    assert!(deployment.cloud.ids().is_empty());
}
