//! Tests of foreign contents: objects of other owners that prevent a deletion.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_apply::{PlanError, ResourceOutcome};
use stoa_engine::problem::reason;
use stoa_engine::spec::RECREATE;
use stoa_engine::{Problem, Spec};
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::Operation;

use crate::fixtures::{Stack, config_map, id, options, spec};

const NAMESPACE: &str = "v1:Namespace:shop";
const DEFINITION: &str = "apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.example.com";

fn namespace() -> Value {
    json!({"id": NAMESPACE, "type": "Kubernetes",
        "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}})
}

fn definition() -> Value {
    json!({"id": DEFINITION, "type": "Kubernetes", "attributes": {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1"}]}}})
}

fn widget() -> Value {
    json!({"id": "example.com/v1:Widget:other:it", "type": "Kubernetes", "attributes": {
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "it", "namespace": "other"}}})
}

/// A stack with a holder, and another one with an object in it.
async fn two(holder: Value, held: Value) -> (Stack, Stack) {
    let first = Stack::default();
    first.bring(&spec(vec![holder, config_map("ours", &[], json!({}))])).await;
    let second = first.beside("second");
    second.bring(&spec(vec![held])).await;
    (first, second)
}

/// The problems of a plan to delete everything.
async fn destroyed(stack: &Stack) -> Vec<Problem> {
    match stack.planned(Arc::new(stack.runtime()), &Spec::default(), true).await {
        Err(PlanError::Problems(problems)) => problems,
        other => panic!("{other:?} instead of problems"),
    }
}

#[tokio::test]
async fn foreign_contents_reject_plans_with_deletion() {
    for (holder, id, held, told) in [
        (namespace(), NAMESPACE, config_map("theirs", &[], json!({})), "(ConfigMap theirs of fake/second/workspace);"),
        (definition(), DEFINITION, widget(), "(Widget it in namespace other of fake/second/workspace);"),
    ] {
        let (first, second) = two(holder.clone(), held).await;
        for deferred in [false, true] {
            let runtime = || if deferred { first.runtime().deferred() } else { first.runtime() };
            let problems = first.refusal(runtime(), &Spec::default()).await;
            let found: Vec<_> = problems.iter().map(|it| (&*it.reason, it.resource_id.clone())).collect();
            assert_eq!(found, [(reason::HOLDS_OTHERS, Some(id.into()))]);
            assert!(problems[0].message.contains(told), "{problems:?}");
            assert_eq!(destroyed(&first).await, problems);
        }
        assert!(first.cloud.called(Operation::Delete).is_empty());
        // Who has nothing else in it and does not delete it hears nothing, and costs nothing.
        first.cloud.clear_calls();
        first.bring(&spec(vec![holder])).await;
        assert!(first.cloud.called(Operation::ForeignContents).is_empty());
        assert!(second.destroy().await.succeeded);
        assert!(first.destroy().await.succeeded);
        assert!(first.cloud.ids().is_empty());
    }
}

#[tokio::test]
async fn foreign_contents_reject_deletion_after_plan() {
    for deferred in [false, true] {
        let first = Stack::default();
        first.bring(&spec(vec![namespace()])).await;
        let (nothing, second) = (Spec::default(), first.beside("second"));
        let planned = first.plan(&nothing).await.unwrap();
        second.bring(&spec(vec![config_map("theirs", &[], json!({}))])).await;
        let runtime = if deferred { first.runtime().deferred() } else { first.runtime() };
        let outcome = first.execute_with(Arc::new(runtime), &nothing, &planned, &[], &options()).await.unwrap();
        assert_eq!(outcome.problems[0].reason, reason::HOLDS_OTHERS, "{outcome:?}");
        assert!(first.cloud.live(NAMESPACE).is_some() && first.observer.record(NAMESPACE).uid().is_some());
        if !deferred {
            assert_eq!(first.observer.result(NAMESPACE).outcome, ResourceOutcome::Failed, "nothing was called for");
            assert!(first.observer.state().open.is_empty());
        }
    }
}

#[tokio::test]
async fn annotation_allows_deletion_of_foreign_contents() {
    let theirs = || config_map("theirs", &[], json!({}));
    let says_so = |mut holder: Value| {
        holder["extensions"] = json!({"stoa.dev/delete-contents": "true"});
        holder
    };
    // As it was applied last.
    let (first, _second) = two(says_so(namespace()), theirs()).await;
    assert!(first.destroy().await.succeeded);
    assert!(first.cloud.called(Operation::ForeignContents).is_empty(), "nobody has to look");

    // As somebody has it say in the cluster.
    let (first, _second) = two(namespace(), theirs()).await;
    assert_eq!(destroyed(&first).await.len(), 1);
    let mut live = first.cloud.live(NAMESPACE).unwrap();
    live["metadata"]["annotations"]["stoa.dev/delete-contents"] = json!("true");
    first.cloud.put(NAMESPACE, live.into());
    assert!(first.destroy().await.succeeded);
    assert!(first.cloud.live(NAMESPACE).is_none());
}

#[tokio::test]
async fn recreation_needs_permission_for_foreign_contents() {
    let changed = |leave: Value| {
        let mut definition = definition();
        definition["attributes"]["spec"]["scope"] = json!("Cluster");
        definition["extensions"] = leave;
        spec(vec![definition])
    };
    let (first, _second) = two(definition(), widget()).await;
    first.cloud.fix("spec");
    let problems = first.refusal(first.runtime(), &changed(json!({ RECREATE: "true" }))).await;
    assert_eq!((problems.len(), &*problems[0].reason), (1, reason::HOLDS_OTHERS));
    let before = first.cloud.live(DEFINITION).unwrap();
    first.bring(&changed(json!({ RECREATE: "true", "stoa.dev/delete-contents": "true" }))).await;
    assert_ne!(first.cloud.live(DEFINITION).unwrap()["metadata"]["uid"], before["metadata"]["uid"]);

    // What was said for the last time does not count for the next.
    let mut third = definition();
    third["extensions"] = json!({ RECREATE: "true" });
    let problems = first.refusal(first.runtime(), &spec(vec![third])).await;
    assert_eq!((problems.len(), &*problems[0].reason), (1, reason::HOLDS_OTHERS));
}

#[tokio::test]
async fn unlistable_contents_prevent_plan() {
    let (first, _second) = two(namespace(), config_map("theirs", &[], json!({}))).await;
    first.cloud.fail(
        Operation::ForeignContents,
        NAMESPACE,
        RuntimeError::Unavailable { message: "y.dev/v1 is away".into() },
    );
    let error = first.plan(&Spec::default()).await.unwrap_err();
    assert!(matches!(&error, PlanError::Runtime(error) if error.to_string() == "y.dev/v1 is away"), "{error:?}");
}

#[tokio::test]
async fn unmarked_contents_block_deletion_of_adopted_object() {
    for (holder, id, contents, place) in [
        (namespace(), NAMESPACE, config_map("by-hand", &[], json!({})), "ConfigMap by-hand"),
        (definition(), DEFINITION, widget(), "Widget it in namespace other"),
    ] {
        for was_there in [false, true] {
            let stack = Stack::default();
            if was_there {
                let mut live = holder["attributes"].clone();
                live["metadata"]["uid"] = json!("u-1");
                stack.cloud.put(id, live);
            }
            stack.bring(&spec(vec![holder.clone()])).await;
            let mut changed = holder.clone();
            changed["attributes"]["metadata"]["labels"] = json!({"a": "1"});
            stack.bring(&spec(vec![changed])).await;
            assert_eq!(stack.observer.record(id).adopted, was_there, "each change keeps it in mind");
            let by_hand = contents["id"].as_str().unwrap();
            stack.cloud.put(by_hand, contents["attributes"].clone());
            if was_there {
                let problems = destroyed(&stack).await;
                assert_eq!((problems.len(), &*problems[0].reason), (1, reason::HOLDS_OTHERS));
                assert!(problems[0].message.contains(&format!("objects without an owner ({place});")), "{problems:?}");
                stack.cloud.remove(by_hand);
            } else {
                let planned = stack.plan(&Spec::default()).await.unwrap();
                assert_eq!(planned.notes, [format!("{id}: 1 object without an owner is deleted with it: {place}")]);
            }
            assert!(stack.destroy().await.succeeded);
        }
    }
}

#[tokio::test]
async fn recorded_object_without_mark_is_not_foreign() {
    let stack = Stack::default();
    let mut live = namespace()["attributes"].clone();
    live["metadata"]["uid"] = json!("u-1");
    stack.cloud.put(NAMESPACE, live);
    stack.bring(&spec(vec![namespace(), config_map("ours", &[], json!({}))])).await;
    let mut ours = stack.cloud.live(&id("ours")).unwrap();
    ours["metadata"].as_object_mut().unwrap().remove("annotations");
    stack.cloud.put(&id("ours"), ours.into());
    assert!(stack.destroy().await.succeeded);
}
