//! What Runs and Workflows may say of themselves.

use stoa_machinery::{
    Key,
    log::{Change, Expect, Origin, Write},
    strategy::Strategy as _,
};
use stoa_types::{Run, Stack, Workflow};

use super::*;
use crate::run::RunStrategy;

const DELIVERY: &str = "delivery.stoa.dev/v1alpha1";

impl World {
    async fn made(&self, kind: &str, name: &str, spec: Value) -> Result<Object, ApiError> {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.make(DELIVERY, kind, "shop", object).await
    }
}

#[tokio::test]
async fn names_of_parameters_are_checked_when_set() {
    let world = World::with_stack().await;
    let parameters = |name: &str| json!({ "cell": "c1", name: "1" });
    let is_wrong = |error: ApiError, field: &str| {
        let found = causes(&error);
        let expected = format!("{field}: Invalid value: \"region,final\": must begin with a letter or _");
        assert!(error.code() == 422 && found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
    };
    for name in ["image.tag", "region,final"] {
        let run = json!({ "stack": "web-dev", "operation": "Apply", "parameters": parameters(name) });
        let steps = json!([{ "name": "a", "run": { "operation": "Apply", "parameters": parameters(name) } }]);
        let generator = json!({ "parameters": parameters(name) });
        let stack = json!({ "metadata": { "name": format!("s{}", name.len()) }, "spec": { "project": "web", "path": "s",
            "desiredVersion": "latest", "workspaces": ["dev"], "generator": generator } });
        let run = world.made("Run", &format!("r{}", name.len()), run).await;
        let workflow = json!({ "stack": "web-dev", "steps": steps });
        let workflow = world.made("Workflow", &format!("w{}", name.len()), workflow).await;
        let stack = world.make("config.stoa.dev/v1alpha1", "Stack", "shop", stack).await;
        if name == "image.tag" {
            run.unwrap();
            workflow.unwrap();
            stack.unwrap();
            continue;
        }
        is_wrong(run.unwrap_err(), "spec.parameters");
        is_wrong(workflow.unwrap_err(), "spec.steps[0].run.parameters");
        is_wrong(stack.unwrap_err(), "spec.generator.parameters");
    }
    let stacks = world.registry.api::<Stack>();
    let added = stacks.update_with("shop", "web-dev", |stack| {
        stack.spec.generator.parameters.insert("region,final".to_owned(), "1".to_owned());
    });
    is_wrong(added.await.unwrap_err(), "spec.generator.parameters");
}

#[tokio::test]
async fn version_and_parameters_are_for_what_is_rendered() {
    let world = World::with_stack().await;
    let run = |more: Value| {
        let mut spec = json!({ "stack": "web-dev", "version": "main", "parameters": { "cell": "c1" } });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let none = "spec.version: Forbidden: this operation deploys no version";
    let nothing = "spec.parameters: Forbidden: this operation renders nothing";
    let refresh = "spec.version: Forbidden: a Refresh always compares with the last release";
    let version = "spec.version: Forbidden: may not be set together with plan, which was made for a version";
    let parameters = "spec.parameters: Forbidden: may not be set together with plan, whose Spec is rendered already";
    for (spec, expected) in [
        (json!({ "operation": "Destroy" }), [none, nothing]),
        (json!({ "operation": "Rollback", "release": 1 }), [none, nothing]),
        (json!({ "operation": "Preview", "of": "Destroy" }), [none, nothing]),
        (json!({ "operation": "Preview", "of": "Rollback", "release": 1 }), [none, nothing]),
        (json!({ "operation": "Refresh" }), [refresh, nothing]),
        (json!({ "operation": "Apply", "plan": "p" }), [version, parameters]),
        (json!({ "operation": "Destroy", "plan": "p" }), [version, parameters]),
    ] {
        let error = world.made("Run", "r", run(spec.clone())).await.unwrap_err();
        assert_eq!((error.code(), causes(&error)), (422, expected.map(str::to_owned).to_vec()), "{spec}");
    }
    let rendered = [
        json!({ "operation": "Apply" }),
        json!({ "operation": "Import" }),
        json!({ "operation": "Preview" }),
        json!({ "operation": "Preview", "of": "Import" }),
    ];
    for (i, spec) in rendered.into_iter().enumerate() {
        world.made("Run", &format!("r{i}"), run(spec)).await.unwrap();
    }
    let step = json!({ "operation": "Destroy", "parameters": { "cell": "c1" } });
    let steps = json!([{ "name": "a", "run": { "operation": "Apply" } }, { "name": "b", "run": step }]);
    let error = world.made("Workflow", "w", json!({ "stack": "web-dev", "steps": steps })).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.steps[1].run.parameters: Forbidden: this operation renders nothing"]);
}

#[tokio::test]
async fn a_cluster_that_the_workspace_has_cannot_be_forgotten() {
    let world = World::with_stack().await;
    let clusters = json!([{ "name": "main", "inCluster": true }, { "name": "east", "inCluster": true }]);
    let spec = json!({ "backend": { "name": "default" }, "kubernetes": { "clusters": clusters } });
    let workspace = json!({ "metadata": { "name": "clustered" }, "spec": spec });
    world.make("platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await.unwrap();
    let stack = json!({ "metadata": { "name": "web-all" }, "spec": { "project": "web", "workspaces": ["clustered"] } });
    world.make("config.stoa.dev/v1alpha1", "Stack", "shop", stack).await.unwrap();
    let run = |operation: &str, forgotten: &[&str]| json!({ "stack": "web-all", "operation": operation, "forgetClusters": forgotten });
    let why = "the workspace still has this cluster; a Destroy removes the recorded resources there";
    for operation in ["Preview", "Apply", "Destroy"] {
        let error = world.made("Run", "r", run(operation, &["old", "east"])).await.unwrap_err();
        assert_eq!(causes(&error), [format!("spec.forgetClusters[1]: Invalid value: \"east\": {why}")], "{operation}");
    }
    world.made("Run", "r", run("Apply", &["old"])).await.unwrap();
}

#[tokio::test]
async fn only_what_became_of_no_call_is_retried() {
    let world = World::with_stack().await;
    let uid = world.registry.api::<stoa_types::Stack>().get("shop", "web-dev").await.unwrap().metadata.uid.unwrap();
    let record = async |workspace: &str, id: &str, value: &str| {
        let write = Write {
            key: Key::new(format!("/stoa/state/{uid}/{workspace}/resources/{id}")),
            expect: Expect::Any,
            change: Change::Put(value.to_owned().into()),
            fence: None,
            origin: Origin::default(),
        };
        world.registry.log().append(write).await.unwrap();
    };
    let intent = r#"{"action": "Create", "run": "lost"}"#;
    record("dev", "open", &format!(r#"{{"id": "open", "intent": {intent}}}"#)).await;
    record("dev", "settled", r#"{"id": "settled"}"#).await;
    record("prod", "elsewhere", &format!(r#"{{"id": "elsewhere", "intent": {intent}}}"#)).await;
    // The run says what is wrong with it.
    record("dev", "later", r#"{"schemaVersion": 1000, "id": "later"}"#).await;
    let run = |operation: &str, ids: &[&str]| json!({ "stack": "web-dev", "operation": operation, "retry": ids });
    let why = "no unresolved call for this resource in workspace dev";
    for id in ["foo", "settled", "elsewhere"] {
        for operation in ["Preview", "Apply", "Destroy"] {
            let error = world.made("Run", "r", run(operation, &["open", id])).await.unwrap_err();
            let told = format!("spec.retry[1]: Invalid value: \"{id}\": {why}");
            assert_eq!((error.code(), causes(&error)), (422, vec![told]), "{operation}");
        }
    }
    world.made("Run", "r", run("Apply", &["open", "later"])).await.unwrap();
}

#[test]
fn run_from_before_a_rule_can_be_cancelled() {
    let spec = json!({ "stack": "web", "operation": "Destroy", "version": "v1", "parameters": { "cell": "c1" } });
    let run = json!({ "apiVersion": DELIVERY, "kind": "Run", "metadata": { "name": "r" }, "spec": spec });
    let old: Run = serde_json::from_value(run).unwrap();
    let mut new = old.clone();
    new.spec.cancel = true;
    let strategy = RunStrategy { lookup: Lookup::default() };
    let errors = [strategy.validate(&new), strategy.validate_update(&new, &old)].concat();
    assert!(errors.is_empty(), "{errors:?}");
}

#[tokio::test]
async fn run_and_workflow_carry_description_and_owners() {
    let world = World::with_stack().await;
    let steps = json!([{ "name": "a", "run": { "operation": "Preview" } }]);
    for (kind, spec) in [
        ("Run", json!({ "stack": "web-dev", "operation": "Preview" })),
        ("Workflow", json!({ "stack": "web-dev", "steps": steps })),
    ] {
        let mut spec = spec;
        spec["description"] = "For the fair".into();
        spec["owners"] = json!([{ "kind": "Robot", "name": "r2" }]);
        let error = world.made(kind, "one", spec.clone()).await.unwrap_err();
        assert!(causes(&error)[0].starts_with("spec.owners[0].kind: Unsupported value"), "{kind}: {error}");
        spec["owners"] = json!([{ "kind": "Group", "name": "leads" }]);
        let made = world.made(kind, "one", spec).await.unwrap();
        assert_eq!(made.get_path(&["spec", "description"]), Some(&json!("For the fair")), "{kind}");
        assert_eq!(made.0["spec"]["owners"][0]["name"], "leads", "{kind}");
    }
    let runs = world.registry.api::<Run>();
    let described = |run: &mut Run| run.spec.description = Some("For another".to_owned());
    assert_eq!(runs.update_with("shop", "one", described).await.unwrap_err().code(), 422);
    let workflows = world.registry.api::<Workflow>();
    let disowned = |workflow: &mut Workflow| workflow.spec.owners.clear();
    assert_eq!(workflows.update_with("shop", "one", disowned).await.unwrap_err().code(), 422);
}

#[tokio::test]
async fn missing_stack_is_not_hidden_by_a_forbidden_workspace() {
    let world = World::with_stack().await;
    let spec = json!({ "stack": "wbe-dev", "workspace": "dev", "operation": "Apply" });
    for allowed in [&["create stacks/apply wbe-dev"][..], &["create stacks/apply wbe-dev", "use workspaces dev"]] {
        let error = world.run(allowed, spec.clone()).await.unwrap_err();
        assert_eq!((error.code(), causes(&error)), (422, vec!["spec.stack: Not found: \"wbe-dev\"".to_owned()]));
    }
    assert_eq!(world.run(&[], spec).await.unwrap_err().code(), 403);
}
