//! Tests of deletions, which start after all other actions, and of the order of kinds.

use serde_json::{Value, json};
use stoa_apply::ResourceOutcome;
use stoa_engine::problem::reason;
use stoa_engine::{Action, Spec};
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::Operation;

use crate::fixtures::{Stack, config_map, id, maps, spec};

fn rejected(message: &str) -> RuntimeError {
    RuntimeError::Rejected { message: message.to_owned(), field: None, by_definition: false }
}

/// An object of a kind; one in the namespace `shop` if the kind has namespaces.
fn object(api_version: &str, kind: &str, name: &str, content: &Value) -> Value {
    let is_in_namespace = !matches!(kind, "ValidatingWebhookConfiguration" | "CustomResourceDefinition");
    let mut attributes = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    let namespace = if is_in_namespace { "shop:" } else { "" };
    if is_in_namespace {
        attributes["metadata"]["namespace"] = json!("shop");
    }
    attributes.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    json!({"id": format!("{api_version}:{kind}:{namespace}{name}"), "type": "Kubernetes", "attributes": attributes})
}

fn webhook() -> Value {
    object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "guard", &json!({"webhooks": []}))
}

fn deployment() -> Value {
    object("apps/v1", "Deployment", "guard", &json!({"spec": {}}))
}

fn widget(name: &str) -> Value {
    object("example.com/v1", "Widget", name, &json!({"spec": {}}))
}

impl Stack {
    /// The applies and deletions so far, each as `Operation Kind:name`.
    fn changes(&self) -> Vec<String> {
        let changes =
            self.cloud.calls().into_iter().filter(|(it, _)| matches!(it, Operation::Apply | Operation::Delete));
        changes
            .map(|(operation, id)| {
                let (rest, name) = id.0.rsplit_once(':').unwrap();
                let kind = rest.split(':').nth(1).unwrap();
                format!("{operation:?} {kind}:{name}")
            })
            .collect()
    }
}

#[tokio::test]
async fn a_deletion_begins_after_the_last_creation() {
    let stack = Stack::default();
    stack.bring(&maps(&[("old", &[])])).await;
    let gate = stack.cloud.gate(&id("new"));
    let spec = maps(&[("new", &[])]);
    let planned = stack.plan(&spec).await.unwrap();
    let (outcome, ()) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
        while stack.cloud.most_in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(stack.cloud.called(Operation::Delete).is_empty());
        gate.add_permits(1);
    });
    assert!(outcome.unwrap().succeeded);
    assert_eq!(stack.changes(), ["Apply ConfigMap:new", "Delete ConfigMap:old"]);
}

#[tokio::test]
async fn failed_change_postpones_deletions() {
    let stack = Stack::default();
    stack.bring(&maps(&[("b", &[]), ("a", &["b"]), ("stays", &[])])).await;
    let wanted = maps(&[("new", &[]), ("stays", &[])]);
    stack.cloud.fail(Operation::Apply, &id("new"), rejected("nothing new is admitted here"));
    let outcome = stack.apply(&wanted).await;
    assert!(stack.cloud.live(&id("a")).is_some() && stack.cloud.live(&id("b")).is_some());
    assert_eq!(
        stack.observer.results(),
        [format!("Failed {}", id("new")), format!("Skipped {}", id("a")), format!("Skipped {}", id("b"))]
    );
    assert!(stack.observer.result(&id("a")).message.starts_with("deletions wait for all changes"));
    let [left, failed] = outcome.problems.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(
        (left.reason.as_str(), failed.message.as_str()),
        (reason::DELETIONS_LEFT, "nothing new is admitted here")
    );
    let named = format!("{}, {}", id("a"), id("b"));
    let says = "the next run makes these deletions, because earlier steps failed: ";
    assert_eq!(left.message, format!("{says}{named}"));

    stack.observer.clear();
    assert!(stack.apply(&wanted).await.succeeded);
    assert_eq!(stack.cloud.ids(), [id("new").as_str().into(), id("stays").as_str().into()]);
    assert_eq!(stack.observer.state().resources.len(), 2);
}

#[tokio::test]
async fn stopped_run_reports_postponed_deletions() {
    let stack = Stack::default();
    stack.bring(&maps(&[("old", &[])])).await;
    let gate = stack.cloud.gate(&id("new"));
    let spec = maps(&[("new", &[])]);
    let planned = stack.plan(&spec).await.unwrap();
    let (outcome, ()) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
        while stack.cloud.most_in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        stack.cancel.cancel();
        gate.add_permits(1);
    });
    let outcome = outcome.unwrap();
    assert!(outcome.canceled && outcome.problems.is_empty(), "{outcome:?}");
    let result = stack.observer.result(&id("old"));
    assert_eq!((result.outcome, &*result.message), (ResourceOutcome::Skipped, "the run was stopped before its turn"));
    assert!(stack.cloud.live(&id("old")).is_some() && stack.observer.state().open.is_empty());
}

#[tokio::test]
async fn resumed_run_continues_deletions() {
    let stack = Stack::default();
    stack.bring(&maps(&[("old", &[])])).await;
    let spec = maps(&[("new", &[])]);
    let planned = stack.plan(&spec).await.unwrap();
    stack.observer.leave_after(1);
    stack.execute(&spec, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    let done = stack.observer.done();
    assert_eq!(done, [id("new").as_str().into()]);
    assert!(stack.execute(&spec, &planned, &done).await.unwrap().succeeded);
    assert_eq!(stack.cloud.ids(), done);
}

#[tokio::test]
async fn port_is_released_before_another_service_claims_it() {
    let stack = Stack::default();
    let service =
        |name: &str, port: u16| object("v1", "Service", name, &json!({"spec": {"ports": [{"nodePort": port}]}}));
    stack.bring(&spec(vec![service("old", 30080), config_map("unused", &[], json!({}))])).await;
    let outcome = stack.apply(&spec(vec![service("new", 30080), config_map("a", &[], json!({}))])).await;
    assert!(outcome.succeeded, "{outcome:?}");
    let changes = stack.changes();
    let at = |what: &str| changes.iter().position(|it| it == what).unwrap();
    assert!(at("Delete Service:old") < at("Apply Service:new"), "{changes:?}");
    assert_eq!(at("Delete ConfigMap:unused"), 3, "{changes:?}");
}

#[tokio::test]
async fn failed_change_keeps_port_of_deleted_service() {
    let stack = Stack::default();
    let service = |name: &str| object("v1", "Service", name, &json!({"spec": {"ports": [{"nodePort": 30080}]}}));
    stack.bring(&spec(vec![service("old")])).await;
    stack.cloud.fail(Operation::Apply, &id("a"), rejected("no"));
    let outcome = stack.apply(&spec(vec![service("new"), config_map("a", &[], json!({}))])).await;
    assert!(!outcome.succeeded);
    assert!(stack.cloud.live("v1:Service:shop:old").is_some());
}

#[tokio::test]
async fn ingress_stays_while_successor_is_rejected() {
    let stack = Stack::default();
    let rules = json!({"spec": {"rules": [{"host": "shop.example.com", "http": {"paths": [{"path": "/"}]}}]}});
    let ingress = |name: &str| object("networking.k8s.io/v1", "Ingress", name, &rules);
    let [old, new] = ["old", "new"].map(|name| format!("networking.k8s.io/v1:Ingress:shop:{name}"));
    stack.bring(&spec(vec![ingress("old")])).await;
    stack.cloud.fail(Operation::Apply, &new, rejected("no"));
    assert!(!stack.apply(&spec(vec![ingress("new")])).await.succeeded);
    assert!(stack.cloud.live(&old).is_some());
    assert!(stack.apply(&spec(vec![ingress("new")])).await.succeeded);
    assert_eq!(stack.cloud.ids(), [new.as_str().into()]);
}

#[tokio::test]
async fn port_moves_between_services() {
    let stack = Stack::default();
    let service =
        |name: &str, port: u16| object("v1", "Service", name, &json!({"spec": {"ports": [{"nodePort": port}]}}));
    stack.bring(&spec(vec![service("b", 30080), service("a", 30081)])).await;
    assert!(stack.apply(&spec(vec![service("b", 30082), service("a", 30080)])).await.succeeded);
    assert_eq!(stack.changes(), ["Apply Service:b", "Apply Service:a"]);
}

#[tokio::test]
async fn admission_configurations_are_applied_last_deleted_first() {
    let stack = Stack::default();
    let all = || vec![webhook(), deployment(), config_map("guarded", &[], json!({}))];
    let outcome = stack.apply(&spec(all())).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.changes().last().unwrap(), "Apply ValidatingWebhookConfiguration:guard");
    stack.cloud.clear_calls();
    assert!(stack.destroy().await.succeeded);
    assert_eq!(stack.changes()[0], "Delete ValidatingWebhookConfiguration:guard");
}

#[tokio::test]
async fn admission_configuration_waits_for_its_server() {
    let stack = Stack::default();
    stack.cloud.fail(Operation::Apply, "apps/v1:Deployment:shop:guard", rejected("no"));
    let outcome = stack.apply(&spec(vec![webhook(), deployment()])).await;
    assert_eq!(outcome.problems.len(), 1);
    let id = webhook()["id"].as_str().unwrap().to_owned();
    assert_eq!(stack.observer.result(&id).outcome, ResourceOutcome::Skipped);
    assert!(stack.cloud.live(&id).is_none());
}

#[tokio::test]
async fn explicit_dependency_wins_over_kind_order() {
    let stack = Stack::default();
    let mut after = config_map("after", &[], json!({}));
    after["dependsOn"] = json!([webhook()["id"]]);
    let outcome = stack.apply(&spec(vec![webhook(), after, config_map("before", &[], json!({}))])).await;
    assert!(outcome.succeeded, "{outcome:?}");
    let expected = ["Apply ConfigMap:before", "Apply ValidatingWebhookConfiguration:guard", "Apply ConfigMap:after"];
    assert_eq!(stack.changes(), expected);
}

#[tokio::test]
async fn a_controller_outlives_its_custom_resources() {
    let stack = Stack::default();
    stack.bring(&spec(vec![deployment(), widget("a"), widget("b")])).await;
    let held = "example.com/v1:Widget:shop:a";
    stack.cloud.hold(held);
    let (planned, none) =
        (stack.planned(std::sync::Arc::new(stack.runtime()), &Spec::default(), true).await.unwrap(), Spec::default());
    let (outcome, ()) = tokio::join!(stack.execute(&none, &planned, &[]), async {
        while !stack.cloud.calls().iter().any(|(it, _)| *it == Operation::WaitGone) {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(stack.cloud.live("apps/v1:Deployment:shop:guard").is_some());
        stack.cloud.let_go(held);
    });
    assert!(outcome.unwrap().succeeded);
    assert_eq!(stack.changes().last().unwrap(), "Delete Deployment:guard");
}

#[tokio::test(start_paused = true)]
async fn planned_change_makes_rejected_resource_acceptable() {
    let stack = Stack::default();
    let quota = |count: &str| object("v1", "ResourceQuota", "objects", &json!({"spec": {"count/configmaps": count}}));
    stack.bring(&spec(vec![quota("1"), config_map("one", &[], json!({}))])).await;
    let wanted = spec(vec![quota("2"), config_map("one", &[], json!({})), config_map("another", &[], json!({}))]);
    let exceeded =
        || rejected("configmaps \"another\" is forbidden: exceeded quota: objects, requested: count/configmaps=1");
    stack.cloud.fail(Operation::Preview, &id("another"), exceeded());
    // A controller takes a moment to bring the status of the quota up to date.
    for _ in 0..3 {
        stack.cloud.fail(Operation::Apply, &id("another"), exceeded());
    }
    let planned = stack.plan(&wanted).await.unwrap();
    let another = planned.plan.actions.iter().find(|it| it.id.0 == id("another")).unwrap();
    assert_eq!((another.action, planned.summary.unverified), (Action::Create, 1));
    assert_eq!(another.after, ["v1:ResourceQuota:shop:objects".into()]);
    let why = another.unverified.as_deref().unwrap();
    assert!(
        why.starts_with("rejected now, but may be accepted after v1:ResourceQuota:shop:objects: configmaps"),
        "{why}"
    );
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    assert!(stack.cloud.live(&id("another")).is_some());
}

#[tokio::test]
async fn unrelated_rejection_fails_plan() {
    let stack = Stack::default();
    let class = json!({"id": "scheduling.k8s.io/v1:PriorityClass:high", "type": "Kubernetes", "attributes": {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}});
    let pod = object("v1", "Pod", "a", &json!({"spec": {"priorityClassName": "hihg"}}));
    let message = "pods \"a\" is forbidden: no PriorityClass with name hihg was found";
    stack.cloud.fail(Operation::Preview, "v1:Pod:shop:a", rejected(message));
    let problems = stack.refusal(stack.runtime(), &spec(vec![class, pod])).await;
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(told, [format!("v1:Pod:shop:a: {message}")]);
}
