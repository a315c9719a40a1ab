//! Tests of objects in a namespace that is being deleted.

use serde_json::{Value, json};
use stoa_apply::PlanError;
use stoa_engine::owner::TAKE_OVER_FROM;
use stoa_engine::problem::reason;
use stoa_engine::{Action, Spec};
use stoa_runtime::fake::Operation;
use stoa_runtime::{KubernetesObject, RuntimeError};

use crate::fixtures::{Stack, config_map, id, maps, names, spec};

const SHOP: &str = "v1:Namespace:shop";

fn namespace() -> Value {
    json!({"id": SHOP, "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop"}}})
}

/// The namespace, a ConfigMap in it, and one with the uid of that.
fn wanted() -> Spec {
    let uid = format!("$kusion_path.{}.metadata.uid", id("a"));
    spec(vec![namespace(), config_map("a", &[], json!({"v": "1"})), config_map("b", &[], json!({"uid": uid}))])
}

/// A stack whose namespace terminates slowly, with all wanted objects in it.
async fn with_namespace_that_goes() -> Stack {
    let stack = Stack::default();
    stack.bring(&wanted()).await;
    begin_to_delete(&stack, SHOP);
    stack
}

/// Another client deletes an object with a finalizer.
fn begin_to_delete(stack: &Stack, id: &str) {
    stack.cloud.hold(id);
    let mut live = Value::Object(stack.cloud.live(id).unwrap());
    live["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    stack.cloud.put(id, live);
}

/// Lets something go once it is waited for.
async fn let_go(stack: &Stack, id: &str) {
    while stack.cloud.called(Operation::WaitGone).is_empty() {
        tokio::task::yield_now().await;
    }
    stack.cloud.let_go(id);
}

fn uid(stack: &Stack, of: &str) -> Value {
    stack.cloud.live(of).unwrap()["metadata"]["uid"].clone()
}

#[tokio::test]
async fn contents_of_terminating_namespace_are_recreated() {
    let stack = with_namespace_that_goes().await;
    let before = uid(&stack, &id("a"));
    let planned = stack.plan(&wanted()).await.unwrap();
    let shown: Vec<_> = planned.plan.actions.iter().map(|it| (it.id.0.as_str(), it.action, it.drift)).collect();
    let (a, b) = (id("a"), id("b"));
    assert_eq!(shown, [SHOP, &a, &b].map(|id| (id, Action::Create, true)));
    let (wanted, gone) = (wanted(), async {
        let_go(&stack, SHOP).await;
        assert!(stack.cloud.called(Operation::Apply).iter().all(|called| called.0 == SHOP), "it comes first");
        ["a", "b"].iter().for_each(|name| stack.cloud.remove(&id(name)));
    });
    let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), gone);
    let outcome = outcome.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    let after = uid(&stack, &a);
    assert_ne!(after, before);
    assert_eq!(stack.cloud.live(&b).unwrap()["data"]["uid"], after);
    assert_eq!(stack.observer.record(&a).uid(), after.as_str());
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn contents_of_terminating_namespace_count_as_absent() {
    let stack = with_namespace_that_goes().await;
    let seen = stack.refreshed(&wanted()).await.unwrap();
    assert!(seen.plan.actions.iter().all(|it| it.action == Action::Create && it.drift), "{}", seen.table);
    let seen = stack.refreshed(&spec(Vec::new())).await.unwrap();
    assert!(seen.plan.actions.iter().all(|it| it.action == Action::Create && it.drift), "{}", seen.table);
}

#[tokio::test]
async fn kept_contents_of_terminating_namespace_are_rejected() {
    let stack = with_namespace_that_goes().await;
    // Another stack has it by now, so that it is left alone.
    let mut live = Value::Object(stack.cloud.live(SHOP).unwrap());
    live["metadata"]["annotations"] = json!({"stoa.dev/owner": "fake/other/workspace/uid-of-other"});
    stack.cloud.put(SHOP, live);
    let problems = stack.refusal(stack.runtime(), &spec(vec![config_map("a", &[], json!({"v": "1"}))])).await;
    let told: Vec<_> = problems.iter().map(|it| (it.reason.as_str(), it.to_string())).collect();
    let why = format!(
        "{SHOP}: it is being deleted; deleting it deletes all objects in it, but the Spec keeps {}; plan again after it is \
         deleted",
        id("a")
    );
    assert_eq!(told, [(reason::STILL_NEEDED, why)]);
    // What is not wanted either goes.
    let outcome = stack.apply(&spec(Vec::new())).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(names(&stack.cloud.ids()), ["shop"]);
}

#[tokio::test]
async fn creation_in_terminating_namespace_needs_its_recreation() {
    let stack = Stack::default();
    let going = || {
        let (version, kind, name) = ("v1".to_owned(), "Namespace".to_owned(), "shop".to_owned());
        RuntimeError::Terminating(Box::new(KubernetesObject { version, kind, name, ..KubernetesObject::default() }))
    };
    let fail = || stack.cloud.fail(Operation::Preview, &id("a"), going());
    fail();
    let Err(PlanError::Problems(problems)) = stack.plan(&maps(&[("a", &[])])).await else { panic!("there is a plan") };
    let told: Vec<_> = problems.iter().map(|it| (it.reason.as_str(), it.to_string())).collect();
    let why = "namespace shop is being deleted, and the Spec does not create it again; plan again after it is deleted";
    assert_eq!(told, [(reason::REJECTED, format!("{}: {why}", id("a")))]);
    fail();
    let planned = stack.plan(&spec(vec![namespace(), config_map("a", &[], json!({}))])).await.unwrap();
    let a = &planned.plan.actions[1];
    assert_eq!((a.action, a.unverified.as_deref()), (Action::Create, Some("namespace shop is being deleted")));
}

#[tokio::test]
async fn terminating_object_is_recreated_not_adopted() {
    let stack = Stack::default();
    stack.beside("other").bring(&maps(&[("a", &[])])).await;
    let a = id("a");
    begin_to_delete(&stack, &a);
    let mut taken = config_map("a", &[], json!({"a": "1"}));
    taken["extensions"] = json!({TAKE_OVER_FROM: "fake/other/workspace"});
    let wanted = spec(vec![taken]);
    let planned = stack.plan(&wanted).await.unwrap();
    let action = &planned.plan.actions[0];
    assert_eq!((action.action, &action.owned_by), (Action::Create, &None));
    let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), let_go(&stack, &a));
    let outcome = outcome.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert!(!stack.observer.record(&a).adopted, "nobody had it before");
}
