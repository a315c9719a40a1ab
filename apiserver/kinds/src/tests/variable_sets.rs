//! VariableSets: their validation, the stacks that they select, and the permission to use them.

use std::collections::BTreeMap;

use stoa_types::{Stack, Workspace};

use super::*;
use crate::{values::Given, variable_set};

const PLATFORM: &str = "platform.stoa.dev/v1alpha1";

impl World {
    async fn make_set(&self, name: &str, spec: Value) -> Result<Object, ApiError> {
        self.make(PLATFORM, "VariableSet", "", json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    /// The values of the stack `web-dev` in the workspace `dev`, as `name=value of origin`; conflicts otherwise.
    async fn stack_values(&self) -> Vec<String> {
        let stack = self.registry.api::<Stack>().get("shop", "web-dev").await.unwrap();
        let workspace = self.registry.api::<Workspace>().get("", "dev").await.unwrap();
        let lookup = Lookup::of(&self.registry);
        match variable_set::values(&lookup, (&stack, &workspace), &BTreeMap::new()).await.unwrap() {
            Ok(chosen) => chosen
                .iter()
                .map(|it| match &it.given {
                    Given::Plain(value) => format!("{}={value} of {}", it.name, it.origin),
                    Given::Secret(secret) => format!("{}=<{}> of {}", it.name, secret.key, it.origin),
                })
                .collect(),
            Err(conflicts) => conflicts.iter().map(ToString::to_string).collect(),
        }
    }

    async fn label_organization(&self, organization: &str, labels: Value) {
        // An Organization adopts no namespace.
        self.lose(&format!("/registry/core/namespaces/{organization}")).await;
        let object = json!({ "metadata": { "name": organization, "labels": labels }, "spec": {} });
        self.make("config.stoa.dev/v1alpha1", "Organization", "", object).await.unwrap();
    }
}

#[tokio::test]
async fn set_is_validated_field_by_field() {
    let world = World::new().await;
    let secret = json!({ "namespace": "stoa-system", "name": "db", "key": "" });
    let error = world
        .make_set(
            "eu",
            json!({
                "owners": [{ "kind": "Robot", "name": "x" }],
                "values": { "region": "eu", "a.b": 1, "9": 2, "": 3 },
                "secrets": { "password": secret, "region": { "namespace": "a", "name": "b", "key": "c" } },
                "finalValues": ["region", "region", "none"],
                "organizations": ["shop", "shop"], "projects": [""], "stacks": ["a"],
                "workspaceSelector": { "matchExpressions": [{ "key": "tier", "operator": "Near" }] },
            }),
        )
        .await
        .unwrap_err();
    insta::assert_snapshot!(causes(&error).join("\n"), @r#"
    spec.finalValues[1]: Duplicate value: "region"
    spec.organizations[1]: Duplicate value: "shop"
    spec.owners[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"
    spec.values[]: Invalid value: "": must be at most 128 letters, digits, '-' and '_', and begin with a letter or '_'
    spec.values[9]: Invalid value: "9": must be at most 128 letters, digits, '-' and '_', and begin with a letter or '_'
    spec.values[a.b]: Invalid value: "a.b": must be at most 128 letters, digits, '-' and '_', and begin with a letter or '_'
    spec.finalValues[2]: Not found: "none"
    spec.secrets[password].key: Required value
    spec.secrets[region]: Duplicate value: "region"
    spec.projects[0]: Required value
    spec.workspaceSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator
    "#);
}

#[tokio::test]
async fn workspace_values_are_validated() {
    let world = World::new().await;
    let spec = json!({ "backend": { "name": "b" }, "gitops": { "repository": "file:///deploy.git" },
        "values": { "a b": 1 }, "finalValues": ["c"] });
    let error =
        world.make(PLATFORM, "Workspace", "", json!({ "metadata": { "name": "w" }, "spec": spec })).await.unwrap_err();
    assert_eq!(
        causes(&error),
        [
            "spec.values[a b]: Invalid value: \"a b\": must be at most 128 letters, digits, '-' and '_', and begin with a \
             letter or '_'",
            "spec.finalValues[0]: Not found: \"c\"",
        ]
    );
}

#[tokio::test]
async fn selectors_choose_stacks_and_levels() {
    let world = World::with_stack().await;
    world.label_organization("shop", json!({ "tier": "gold" })).await;
    let secret = json!({ "namespace": "stoa-system", "name": "db", "key": "password" });
    let gold = json!({ "matchLabels": { "tier": "gold" } });
    for (name, spec) in [
        ("all", json!({ "values": { "a": "all", "b": "all", "c": "all", "d": "all" } })),
        ("gold", json!({ "values": { "b": "gold", "c": "gold" }, "organizationSelector": gold })),
        ("project", json!({ "values": { "c": "project" }, "organizations": ["shop"], "projects": ["web", "api"] })),
        ("dev", json!({ "secrets": { "d": secret }, "workspaces": ["dev"] })),
        // These select something else.
        ("silver", json!({ "values": { "a": 1 }, "organizationSelector": { "matchLabels": { "tier": "silver" } } })),
        ("prod", json!({ "values": { "a": 1 }, "stacks": ["web-dev"], "workspaces": ["prod"] })),
        ("bank", json!({ "values": { "a": 1 }, "organizations": ["bank"], "organizationSelector": gold })),
        ("labels", json!({ "values": { "a": 1 }, "stackSelector": { "matchLabels": { "a": "b" } } })),
    ] {
        world.make_set(name, spec).await.unwrap();
    }
    assert_eq!(
        world.stack_values().await,
        [
            "a=\"all\" of VariableSet all",
            "b=\"gold\" of VariableSet gold",
            "c=\"project\" of VariableSet project",
            "d=<password> of VariableSet dev",
        ]
    );
    world.make_set("other", json!({ "values": { "c": 1 }, "projects": ["web"] })).await.unwrap();
    let tie = "value \"c\": VariableSets other and project of level project both set it; remove it from one of them, or \
               set it in the Workspace";
    assert_eq!(world.stack_values().await, [tie]);
}

#[tokio::test]
async fn run_needs_the_use_of_each_set_that_decides() {
    let world = World::with_stack().await;
    world.make_set("all", json!({ "values": { "a": 1 } })).await.unwrap();
    world.make_set("shop", json!({ "values": { "a": 2, "b": 3 }, "organizations": ["shop"] })).await.unwrap();
    let spec = || json!({ "stack": "web-dev", "operation": "Preview" });
    let mut allowed = vec!["create stacks/preview web-dev", "use workspaces dev", "use backends default"];
    let error = world.run(&allowed, spec()).await.unwrap_err();
    assert_eq!(error.code(), 403);
    assert!(error.message().contains("\"variablesets\""), "{}", error.message());
    assert!(error.message().contains("\"shop\" is forbidden"), "{}", error.message());
    // The set `all` decides no value.
    allowed.push("use variablesets shop");
    world.run(&allowed, spec()).await.unwrap();
    // A Destroy renders nothing.
    let destroy = ["create stacks/destroy web-dev", "use workspaces dev", "use backends default"];
    world.run(&destroy, json!({ "stack": "web-dev", "operation": "Destroy" })).await.unwrap();
}

#[tokio::test]
async fn labels_of_triggered_stack_need_use_of_sets() {
    use stoa_types::{Project, config::Trigger};
    const ALL: [&str; 4] =
        ["create runs ", "create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let of_label = |key: &str| json!({ "matchLabels": { key: "x" } });
    world.make_set("of-stack", json!({ "values": { "a": 1 }, "stackSelector": of_label("tier") })).await.unwrap();
    world.make_set("of-project", json!({ "values": { "b": 1 }, "projectSelector": of_label("team") })).await.unwrap();
    let allowed = |more: &[&'static str]| by("ann", &[&ALL[..], more].concat());
    let stacks = |more: &[&'static str]| world.registry.api::<Stack>().with_context(allowed(more));
    let projects = |more: &[&'static str]| world.registry.api::<Project>().with_context(allowed(more));
    stacks(&[]).update_with("shop", "web-dev", |stack: &mut Stack| stack.spec.trigger = Trigger::Apply).await.unwrap();
    let label = |meta: &mut kube::api::ObjectMeta, key: &str| {
        meta.labels.get_or_insert_default().insert(key.to_owned(), "x".to_owned());
    };
    let of_stack = |stack: &mut Stack| label(&mut stack.metadata, "tier");
    let of_project = |project: &mut Project| label(&mut project.metadata, "team");
    let refused = |error: ApiError, set: &str| {
        assert_eq!(error.code(), 403);
        assert!(error.message().contains(&format!("\"{set}\" is forbidden")), "{}", error.message());
    };
    refused(projects(&[]).update_with("shop", "web", of_project).await.unwrap_err(), "of-project");
    projects(&["use variablesets of-project"]).update_with("shop", "web", of_project).await.unwrap();
    let use_both = ["use variablesets of-project", "use variablesets of-stack"];
    refused(stacks(&use_both[..1]).update_with("shop", "web-dev", of_stack).await.unwrap_err(), "of-stack");
    // Two sets conflict, and either may decide later.
    let spec = json!({ "values": { "a": 2 }, "stackSelector": of_label("tier") });
    world.make_set("in-conflict", spec).await.unwrap();
    refused(stacks(&use_both).update_with("shop", "web-dev", of_stack).await.unwrap_err(), "in-conflict");
    let use_all = [use_both[0], use_both[1], "use variablesets in-conflict"];
    stacks(&use_all).update_with("shop", "web-dev", of_stack).await.unwrap();
}

#[tokio::test]
async fn run_cannot_override_a_final_value() {
    let world = World::with_stack().await;
    world.make_set("eu", json!({ "values": { "image": { "tag": "1" } }, "finalValues": ["image"] })).await.unwrap();
    let run = json!({ "metadata": { "name": "r" }, "spec": { "stack": "web-dev", "operation": "Apply",
        "parameters": { "image.tag": "2", "cell": "c1" } } });
    let error = world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap_err();
    assert_eq!(
        (error.code(), causes(&error)),
        (422, vec!["spec.parameters[image.tag]: Forbidden: the value is final in VariableSet eu".to_owned()])
    );
}
