//! How a plan is made: what is read, and what is asked.

use serde_json::json;
use stoa_apply::PlanError;
use stoa_engine::Action;
use stoa_engine::problem::reason;
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::Operation;

use crate::support::{Stack, config_map, id, maps, names, secret, spec};

#[tokio::test]
async fn only_what_differs_is_previewed() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[])])).await;
    let wanted = spec(vec![
        config_map("a", &[], json!({"a": "1"})),
        config_map("b", &[], json!({"a": "2"})),
        config_map("c", &[], json!({})),
    ]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Read)), ["a", "b", "c"], "each is read once");
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["b", "c"]);
    assert_eq!(
        planned.table,
        format!(
            "~ update   {}\n    data.a: \"1\" → \"2\"\n+ create   {}\n\nPlan: 1 to create, 1 to update; 1 unchanged.\n",
            id("b"),
            id("c")
        )
    );
}

#[tokio::test]
async fn another_order_of_a_list_is_previewed_and_applied() {
    let stack = Stack::default();
    let pod = |first: &str, then: &str| {
        spec(vec![json!({"id": "v1:Pod:shop:web", "type": "Kubernetes", "attributes": {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"initContainers": [{"name": first, "image": "x"}, {"name": then, "image": "x"}]}}})])
    };
    stack.bring(&pod("a", "b")).await;
    let planned = stack.plan(&pod("b", "a")).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["web"]);
    let action = &planned.plan.actions[0];
    assert_eq!((action.action, action.drift), (Action::Update, false));
    assert!(planned.table.contains(r#"spec.initContainers: ["a","b"] → ["b","a"]"#), "{}", planned.table);
    stack.bring(&pod("b", "a")).await;
    assert!(stack.plan(&pod("b", "a")).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn what_is_not_read_of_a_spec_is_told_with_the_plan() {
    let stack = Stack::default();
    let mut wanted = spec(vec![config_map("a", &[], json!({"url": "http://$kusion_path.v1:ConfigMap:shop:a.x"}))]);
    wanted.context = Some(json!({"KUBECONFIG_PATH": "/home/deployer/.kube/config"}));
    let notes = stack.plan(&wanted).await.unwrap().notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("context of the Spec is not read") && notes[1].contains("data.url"), "{notes:?}");
}

#[tokio::test]
async fn what_the_infrastructure_refuses_is_told_before_anything_is_done() {
    let stack = Stack::default();
    let refused = RuntimeError::Rejected {
        message: "spec.replicas must not be negative".into(),
        field: Some("spec.replicas".into()),
    };
    stack.cloud.fail(Operation::Preview, &id("b"), refused);
    let problems = stack.refusal(stack.runtime(), &maps(&[("a", &[]), ("b", &[])])).await;
    let told: Vec<_> = problems.iter().map(|it| format!("{} {it}", it.reason)).collect();
    assert_eq!(told, [format!("Rejected {}: spec.replicas: spec.replicas must not be negative", id("b"))]);
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn infrastructure_that_is_away_may_be_asked_again() {
    let stack = Stack::default();
    let away = RuntimeError::Unavailable { message: "connection refused".to_owned() };
    stack.cloud.fail(Operation::Read, &id("a"), away);
    let Err(PlanError::Runtime(err)) = stack.plan(&maps(&[("a", &[])])).await else { panic!("it is away") };
    assert!(err.is_retryable());
}

#[tokio::test]
async fn values_that_are_known_later_are_not_asked_about() {
    let stack = Stack::default();
    let uid = format!("$kusion_path.{}.metadata.uid", id("a"));
    let wanted = spec(vec![config_map("a", &[], json!({})), config_map("b", &[], json!({"x": uid}))]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["a"]);
    assert_eq!(planned.plan.actions[1].unverified.as_deref(), Some("data.x known after apply"));
}

#[tokio::test]
async fn an_object_that_is_named_later_is_not_read() {
    let stack = Stack::default();
    let mut named = config_map("b", &[], json!({}));
    named["id"] = json!("v1:ConfigMap:shop:x");
    named["attributes"]["metadata"]["name"] = json!(format!("$kusion_path.{}.metadata.uid", id("a")));
    let planned = stack.plan(&spec(vec![config_map("a", &[], json!({})), named])).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Read)), ["a"]);
    let action = &planned.plan.actions[1];
    assert_eq!((action.action, action.unverified.is_some()), (Action::Create, true));
}

#[tokio::test]
async fn nothing_sensitive_goes_where_everybody_reads() {
    let stack = Stack::default();
    let reference = "$kusion_path.v1:Secret:shop:db.stringData.password";
    let wanted = spec(vec![
        secret("db", json!({"password": "hunter2-long"})),
        config_map("user", &[], json!({"p": reference})),
        config_map("other", &[], json!({"p": "plain"})),
    ]);
    let problems = stack.refusal(stack.runtime().in_the_open(), &wanted).await;
    let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            format!("{}: attributes.data.p: a sensitive value would be kept in the open here", id("user")),
            "v1:Secret:shop:db: attributes.stringData.password: a sensitive value would be kept in the open here"
                .to_owned(),
        ]
    );
    assert!(problems.iter().all(|it| it.reason == reason::INVALID_RESOURCE));
}

#[tokio::test]
async fn the_same_situation_gives_the_same_digest() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[]), ("b", &["a"])]);
    let first = stack.plan(&wanted).await.unwrap();
    assert_eq!(first.digest, stack.plan(&wanted).await.unwrap().digest);
    stack.bring(&maps(&[("a", &[])])).await;
    assert_ne!(first.digest, stack.plan(&wanted).await.unwrap().digest);
}
