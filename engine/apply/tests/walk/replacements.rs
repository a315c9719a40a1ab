//! Tests of replacements that are interrupted between or after their two calls.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_apply::{Planned, ResourceOutcome};
use stoa_engine::{Action, Spec, owner::MARK, spec::RECREATE};
use stoa_runtime::fake::Operation;

use crate::fixtures::{Stack, config_map, id, spec};

/// A config map with an immutable type.
fn web(kind: &str) -> Spec {
    let mut map = config_map("a", &[], json!({"a": "1"}));
    map["extensions"] = json!({RECREATE: "true"});
    map["attributes"]["type"] = json!(kind);
    spec(vec![map])
}

impl Stack {
    /// A stack with the first version, and the plan to replace it.
    async fn with_first() -> (Self, Spec, Planned) {
        let stack = Self::default();
        stack.cloud.fix("type");
        stack.bring(&web("x")).await;
        let wanted = web("y");
        let planned = stack.plan(&wanted).await.unwrap();
        assert_eq!(planned.plan.actions[0].action, Action::Replace);
        stack.cloud.clear_calls();
        (stack, wanted, planned)
    }

    /// Lets this many calls for the object pass, and the next one hang until the run drops it.
    async fn end_after(&self, calls: usize, wanted: &Spec, planned: &Planned) {
        let gate = self.cloud.gate(&id("a"));
        gate.add_permits(calls);
        assert!(!self.execute(wanted, planned, &[]).await.unwrap().succeeded);
        assert_eq!(self.observer.result(&id("a")).outcome, ResourceOutcome::Unknown);
        gate.add_permits(1_000);
    }

    /// Carries the plan out once more, successfully; returns the uid of the object.
    async fn resume(&self, wanted: &Spec, planned: &Planned) -> String {
        let outcome = self.execute(wanted, planned, &[]).await.unwrap();
        assert!(outcome.succeeded, "{outcome:?}");
        let live = self.cloud.live(&id("a")).unwrap();
        assert_eq!((&live["type"], &live["data"]["a"]), (&json!("y"), &json!("1")));
        let record = self.observer.record(&id("a"));
        assert!(self.observer.state().open.is_empty() && !record.is_only_found());
        assert_eq!(record.uid(), live["metadata"]["uid"].as_str());
        record.uid().unwrap().to_owned()
    }

    fn calls_made(&self) -> (usize, usize) {
        (self.cloud.called(Operation::Delete).len(), self.cloud.called(Operation::Apply).len())
    }

    fn uid(&self) -> Option<String> {
        self.cloud.live(&id("a"))?["metadata"]["uid"].as_str().map(str::to_owned)
    }
}

#[tokio::test(start_paused = true)]
async fn unrecorded_replacement_is_kept_with_contents() {
    let (stack, wanted, planned) = Stack::with_first().await;
    let first = stack.uid();
    stack.observer.leave_after(0);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    let made = stack.uid();
    assert_ne!(made, first);
    let mut held = Value::from(stack.cloud.live(&id("a")).unwrap());
    held["data"]["theirs"] = json!("2");
    stack.cloud.put(&id("a"), held);
    assert_eq!(Some(stack.resume(&wanted, &planned).await), made);
    assert_eq!(stack.cloud.live(&id("a")).unwrap()["data"]["theirs"], "2");
    assert_eq!(stack.calls_made(), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn deleted_object_is_created_by_second_try() {
    let (stack, wanted, planned) = Stack::with_first().await;
    stack.end_after(1, &wanted, &planned).await;
    assert!(stack.cloud.ids().is_empty());
    stack.resume(&wanted, &planned).await;
}

#[tokio::test(start_paused = true)]
async fn undeleted_object_is_replaced_by_second_try() {
    let (stack, wanted, planned) = Stack::with_first().await;
    let first = stack.uid();
    stack.end_after(0, &wanted, &planned).await;
    assert_eq!(stack.uid(), first);
    assert_ne!(Some(stack.resume(&wanted, &planned).await), first);
    assert_eq!(stack.calls_made(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn object_of_earlier_lost_call_is_replaced() {
    let stack = Stack::default();
    stack.cloud.fix("type");
    stack.bring(&web("x")).await;
    // It is made again, and nobody records that.
    stack.cloud.remove(&id("a"));
    stack.observer.leave_after(0);
    let (first, wanted) = (web("x"), web("y"));
    let planned = stack.plan(&first).await.unwrap();
    stack.execute(&first, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    let unrecorded = stack.uid();
    assert_ne!(stack.observer.record(&id("a")).uid(), unrecorded.as_deref());

    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Replace);
    stack.cloud.clear_calls();
    stack.end_after(0, &wanted, &planned).await;
    assert_eq!(stack.uid(), unrecorded);
    assert_ne!(Some(stack.resume(&wanted, &planned).await), unrecorded);
    assert_eq!(stack.calls_made(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn replacement_recreated_by_others_is_not_adopted() {
    let (stack, wanted, planned) = Stack::with_first().await;
    stack.observer.leave_after(0);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "shop", "uid": "theirs"}});
    stack.cloud.remove(&id("a"));
    stack.cloud.put(&id("a"), theirs.clone());
    assert!(!stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    assert_eq!(stack.cloud.live(&id("a")).map(Value::from), Some(theirs));
}

#[tokio::test(start_paused = true)]
async fn object_with_new_owner_is_not_deleted() {
    let (stack, wanted, planned) = Stack::with_first().await;
    stack.end_after(0, &wanted, &planned).await;
    let planned = stack.planned(Arc::new(stack.runtime()), &Spec::default(), true).await.unwrap();
    let mut live = stack.cloud.live(&id("a")).unwrap();
    live["metadata"]["annotations"] = json!({MARK: "fake/second/workspace"});
    stack.cloud.put(&id("a"), live.into());
    let before = stack.cloud.live(&id("a"));
    assert!(stack.execute(&Spec::default(), &planned, &[]).await.unwrap().succeeded);
    let result = stack.observer.result(&id("a"));
    assert_eq!((result.outcome, result.left), (ResourceOutcome::Done, true));
    assert_eq!(result.message, "fake/second/workspace owns it now, so it is not deleted");
    assert!(stack.observer.state().open.is_empty() && stack.observer.state().resources.is_empty());
    assert_eq!(stack.cloud.live(&id("a")), before);
}
