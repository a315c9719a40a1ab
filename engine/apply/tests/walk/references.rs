//! Values that are others once what has them is changed.

use serde_json::{Value, json};
use stoa_apply::Planned;
use stoa_engine::problem::reason;
use stoa_engine::{Action, PlannedAction, Spec};
use stoa_runtime::fake::Operation;

use crate::support::{Stack, config_map, id, names, spec};

const WEB: &str = "v1:Service:shop:web";

/// A Service whose server gives it a node port for its port, and a ConfigMap with that.
fn wanted(port: u16, label: &str) -> Spec {
    let metadata = json!({"name": "web", "namespace": "shop", "labels": {"v": label}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"port": port}});
    let reference = format!("$kusion_path.{WEB}.spec.nodePort");
    spec(vec![
        json!({"id": WEB, "type": "Kubernetes", "attributes": service}),
        config_map("b", &[], json!({"port": reference})),
    ])
}

async fn deployed() -> Stack {
    let stack = Stack::default();
    stack.cloud.give(WEB, ["spec", "nodePort"], ["spec", "port"]);
    stack.bring(&wanted(80, "1")).await;
    stack
}

fn node_port(stack: &Stack) -> Value {
    stack.cloud.live(WEB).unwrap()["spec"]["nodePort"].clone()
}

/// The port that the ConfigMap has, and the one that is recorded of it.
fn copies(stack: &Stack) -> [Value; 2] {
    [stack.cloud.live(&id("b")).unwrap(), stack.keeper.record(&id("b")).attributes].map(|it| it["data"]["port"].clone())
}

fn actions(planned: &Planned) -> Vec<Action> {
    planned.plan.actions.iter().map(|it| it.action).collect()
}

/// Somebody else sets a field.
fn set(stack: &Stack, of: &str, [outer, inner]: [&str; 2], value: Value) {
    let mut live = Value::Object(stack.cloud.live(of).unwrap());
    live[outer][inner] = value;
    stack.cloud.put(of, live);
}

#[tokio::test]
async fn what_the_server_gives_anew_is_known_after_apply() {
    let stack = deployed().await;
    let first = node_port(&stack);
    assert_eq!(copies(&stack), [first.clone(), first.clone()]);
    // A change that keeps it leaves it known.
    assert_eq!(actions(&stack.plan(&wanted(80, "2")).await.unwrap()), [Action::Update, Action::Unchanged]);

    let changed = wanted(8080, "1");
    let planned = stack.plan(&changed).await.unwrap();
    let PlannedAction { action, changes, unverified, .. } = &planned.plan.actions[1];
    let shown = (*action, &changes[0].before, &changes[0].after, unverified.as_deref());
    let later = Some(json!("(known after apply)"));
    assert_eq!(shown, (Action::Update, &Some(first.clone()), &later, Some("data.port known after apply")));
    assert_eq!(stack.plan(&changed).await.unwrap().digest, planned.digest);
    assert!(stack.execute(&changed, &planned, &[]).await.unwrap().succeeded);
    let given = node_port(&stack);
    assert_ne!(given, first);
    assert_eq!(copies(&stack), [given.clone(), given]);
    assert!(stack.plan(&changed).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn what_was_asked_about_with_a_value_that_is_another_by_then_is_not_believed() {
    let stack = deployed().await;
    // It is asked about, since somebody changed it.
    set(&stack, &id("b"), ["data", "port"], json!("by hand"));
    let planned = stack.plan(&wanted(8080, "1")).await.unwrap();
    assert_eq!(names(&stack.cloud.called(Operation::Preview)).len(), 2);
    let b = &planned.plan.actions[1];
    assert_eq!((b.action, b.unverified.as_deref()), (Action::Update, Some("data.port known after apply")));
    assert_eq!(b.changes[0].after, Some(json!("(known after apply)")));
}

#[tokio::test]
async fn a_value_that_was_never_applied_is_not_recorded() {
    let stack = deployed().await;
    let first = node_port(&stack);
    let changed = wanted(80, "2");
    let planned = stack.plan(&changed).await.unwrap();
    assert_eq!(actions(&planned), [Action::Update, Action::Unchanged]);
    // Between plan and apply it gets another one.
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    let [problem] = &outcome.problems[..] else { panic!("{outcome:?}") };
    assert_eq!(
        (problem.reason.as_str(), problem.resource_id.as_ref().unwrap().0.as_str()),
        (reason::STALE_PLAN, &*id("b"))
    );
    assert_eq!(copies(&stack), [first.clone(), first]);
    stack.bring(&changed).await;
    assert_eq!(copies(&stack), ["moved", "moved"].map(Value::from));
}

#[tokio::test]
async fn a_value_that_somebody_applied_already_is_recorded() {
    let stack = deployed().await;
    let changed = wanted(80, "2");
    let planned = stack.plan(&changed).await.unwrap();
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    set(&stack, &id("b"), ["data", "port"], json!("moved"));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(copies(&stack), ["moved", "moved"].map(Value::from));
}

#[tokio::test]
async fn what_is_recorded_stays_where_nothing_is_done_and_nobody_looks_what_it_refers_to() {
    let stack = deployed().await;
    let wanted = wanted(80, "1");
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    // The second time nothing changes, and the record of the Service has the port of before.
    for _ in 0..2 {
        stack.bring(&wanted).await;
        assert_eq!(copies(&stack), ["moved", "moved"].map(Value::from));
    }
}
