//! Tests of references whose values change during a walk.

use serde_json::{Value, json};
use stoa_apply::{Outcome, Planned};
use stoa_engine::problem::reason;
use stoa_engine::{Action, DigestKeys, PlannedAction, Spec};
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::Operation;

use crate::fixtures::{Keys, Stack, config_map, id, names, secret, spec};

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
    [stack.cloud.live(&id("b")).unwrap(), stack.observer.record(&id("b")).attributes]
        .map(|it| it["data"]["port"].clone())
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
async fn value_of_recreated_object_is_known_after_apply() {
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
async fn preview_with_outdated_value_is_ignored() {
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
async fn unapplied_value_is_not_recorded() {
    let stack = deployed().await;
    let first = node_port(&stack);
    let changed = wanted(80, "2");
    let planned = stack.plan(&changed).await.unwrap();
    assert_eq!(actions(&planned), [Action::Update, Action::Unchanged]);
    // Between plan and apply it gets another one, which the next plan shows.
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(copies(&stack), [first.clone(), first]);
    assert_eq!(stack.observer.result(&id("b")).message, "a value that it refers to has changed; start another Run");
    stack.bring(&changed).await;
    assert_eq!(copies(&stack), ["moved", "moved"].map(Value::from));
}

#[tokio::test]
async fn value_applied_by_others_is_recorded() {
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
async fn record_stays_when_reference_is_not_read() {
    let stack = deployed().await;
    let wanted = wanted(80, "1");
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    // The second time nothing changes, and the record of the Service has the port of before.
    for _ in 0..2 {
        stack.bring(&wanted).await;
        assert_eq!(copies(&stack), ["moved", "moved"].map(Value::from));
    }
    let planned = stack.plan(&wanted).await.unwrap();
    stack.cloud.clear_calls();
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    assert!(stack.cloud.calls().is_empty(), "{:?}", stack.cloud.calls());
}

/// The Service, a ConfigMap with the values of these fields of it, and one that refers to nothing.
fn copied(fields: &[&str], other: &str) -> Spec {
    let data: Value =
        fields.iter().map(|field| (field.replace('.', "-"), json!(format!("$kusion_path.{WEB}.{field}")))).collect();
    let mut wanted = wanted(80, "1").resources;
    wanted.truncate(1);
    wanted.extend(spec(vec![config_map("b", &[], data), config_map("c", &[], json!({"v": other}))]).resources);
    Spec { resources: wanted, ..Spec::default() }
}

const NODE_PORT: &str = "spec.nodePort";
const VERSION: &str = "metadata.resourceVersion";

/// With a copy of these fields, and a plan to change the other ConfigMap.
async fn about_to_change_another(fields: &[&str]) -> (Stack, Spec, Planned) {
    let stack = Stack::default();
    stack.cloud.give(WEB, ["spec", "nodePort"], ["spec", "port"]);
    stack.bring(&copied(fields, "1")).await;
    let changed = copied(fields, "2");
    let planned = stack.plan(&changed).await.unwrap();
    let called: Vec<_> = planned.plan.actions.iter().filter(|it| it.action.is_call()).map(|it| it.id.clone()).collect();
    assert_eq!(names(&called), ["c"]);
    stack.cloud.clear_calls();
    (stack, changed, planned)
}

#[tokio::test]
async fn volatile_value_does_not_change_record() {
    let (stack, changed, planned) = about_to_change_another(&[VERSION]).await;
    let before = stack.observer.record(&id("b"));
    set(&stack, WEB, ["metadata", "resourceVersion"], json!("moved"));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.observer.record(&id("b")), before);
    assert!(stack.cloud.called(Operation::Preview).is_empty(), "nobody has to look");
}

fn only_problem(outcome: &Outcome) -> (&str, &str) {
    let [problem] = &outcome.problems[..] else { panic!("{outcome:?}") };
    assert_eq!(problem.resource_id.as_ref().unwrap().0, id("b"));
    (problem.reason.as_str(), problem.message.as_str())
}

#[tokio::test]
async fn object_deleted_since_plan_is_reported() {
    let (stack, changed, planned) = about_to_change_another(&[NODE_PORT]).await;
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    stack.cloud.remove(&id("b"));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    let why = "it was planned as Unchanged, but it no longer exists; plan again";
    assert_eq!(only_problem(&outcome), (reason::STALE_PLAN, why));
}

#[tokio::test(start_paused = true)]
async fn check_of_unchanged_resource_blocks_nothing() {
    let away = || RuntimeError::Unavailable { message: "connection refused".to_owned() };
    let (stack, changed, planned) = about_to_change_another(&[NODE_PORT]).await;
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    set(&stack, &id("b"), ["data", "spec-nodePort"], json!("moved"));
    (0..4).for_each(|_| stack.cloud.fail(Operation::Read, &id("b"), away()));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.observer.record(&id("b")).attributes["data"]["spec-nodePort"], "moved");
    let calls = stack.cloud.calls();
    let last_look = calls.iter().rposition(|call| *call == (Operation::Read, id("b").as_str().into()));
    let change = calls.iter().position(|call| *call == (Operation::Apply, id("c").as_str().into()));
    assert!(change < last_look, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn check_of_unchanged_resource_has_timeout() {
    let away = || RuntimeError::Unavailable { message: "connection refused".to_owned() };
    let (stack, changed, planned) = about_to_change_another(&[NODE_PORT]).await;
    set(&stack, WEB, ["spec", "nodePort"], json!("moved"));
    (0..1_000).for_each(|_| stack.cloud.fail(Operation::Read, &id("b"), away()));
    let outcome = stack.execute(&changed, &planned, &[]).await.unwrap();
    let why = "it took longer than 60s; last report: connection refused";
    assert_eq!(only_problem(&outcome), (reason::TIMED_OUT, why));
    assert_eq!(stack.cloud.live(&id("c")).unwrap()["data"]["v"], "2");
}

#[tokio::test]
async fn new_digest_key_needs_no_read() {
    let mut stack = Stack::default();
    let password = "$kusion_path.v1:Secret:shop:db.stringData.password";
    let wanted = |other: &str| {
        spec(vec![
            secret("db", json!({"password": "hunter2-long"})),
            config_map("b", &[], json!({"pw": password})),
            config_map("c", &[], json!({"v": other})),
        ])
    };
    stack.bring(&wanted("1")).await;
    let before = stack.observer.record(&id("b")).attributes;
    stack.keys = Keys(DigestKeys::new(&[8; 32], &[[7; 32]]));
    let planned = stack.plan(&wanted("2")).await.unwrap();
    stack.cloud.clear_calls();
    let outcome = stack.execute(&wanted("2"), &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    let looks = [Operation::Read, Operation::Preview].map(|operation| stack.cloud.called(operation).len());
    assert_eq!(looks, [0, 0], "{:?}", stack.cloud.calls());
    assert_ne!(stack.observer.record(&id("b")).attributes, before, "it is made with the new key");
}
