//! Tests of changed ids: objects that move to a new id, and Runs that are interrupted meanwhile.

use serde_json::{Value, json};
use stoa_engine::spec::RECREATE;
use stoa_engine::{Action, Spec};
use stoa_runtime::fake::Operation;

use crate::fixtures::{Stack, config_map, id, spec};

const OLD: &str = "apps/v1beta1:Deployment:shop:web";
const NEW: &str = "apps/v1:Deployment:shop:web";

fn web(id: &str, kind: &str) -> Value {
    let version = id.split(':').next().unwrap();
    json!({"id": id, "type": "Kubernetes", "extensions": {RECREATE: "true"}, "attributes": {"apiVersion": version,
        "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "type": kind}})
}

impl Stack {
    /// Carries out a plan until that many results are recorded.
    async fn apply_until(&self, results: usize, spec: &Spec) {
        let planned = self.plan(spec).await.unwrap();
        self.observer.leave_after(results);
        self.execute(spec, &planned, &[]).await.unwrap_err();
        self.observer.stay();
    }

    async fn actions(&self, spec: &Spec) -> Vec<(Action, String)> {
        let planned = self.plan(spec).await.unwrap();
        planned.plan.actions.into_iter().map(|planned| (planned.action, planned.id.0)).collect()
    }

    /// The old id, and something that will not be wanted.
    async fn of_old(&self) {
        self.cloud.fix("type");
        self.bring(&spec(vec![web(OLD, "a"), config_map("a", &[], json!({}))])).await;
    }
}

#[tokio::test]
async fn interrupted_rename_does_not_delete_object() {
    // Also where the next run has to change it again.
    for (results, kind) in [(0, "b"), (1, "b"), (0, "c"), (1, "c")] {
        let stack = Stack::default();
        stack.bring(&spec(vec![web(OLD, "a")])).await;
        stack.apply_until(results, &spec(vec![web(NEW, "b")])).await;
        let changed = spec(vec![web(NEW, kind)]);
        assert!(stack.actions(&changed).await.contains(&(Action::Forget, OLD.to_owned())), "after {results} results");
        assert!(stack.apply(&changed).await.succeeded);
        assert!(stack.cloud.called(Operation::Delete).is_empty());
        assert_eq!(stack.cloud.live(NEW).unwrap()["type"], kind);
        let forgotten = stack.observer.result(OLD);
        let why = format!("the Spec has the same object as {NEW}, so it is not deleted");
        assert_eq!((forgotten.left, forgotten.message), (true, why));
        assert!(stack.plan(&changed).await.unwrap().plan.is_unchanged());
    }
}

#[tokio::test]
async fn object_with_two_records_is_deleted_once() {
    let stack = Stack::default();
    stack.of_old().await;
    // It was made anew under its new id, and the old record is still there.
    stack.apply_until(1, &spec(vec![web(NEW, "b"), config_map("a", &[], json!({}))])).await;
    let wanted = spec(vec![config_map("a", &[], json!({}))]);
    assert_eq!(
        stack.actions(&wanted).await,
        [(Action::Delete, NEW.to_owned()), (Action::Forget, OLD.to_owned()), (Action::Unchanged, id("a"))]
    );
    let outcome = stack.apply(&wanted).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.cloud.ids(), [id("a").as_str().into()]);
    assert_eq!(stack.observer.state().resources.len(), 1);
}

#[tokio::test]
async fn unrecorded_replacement_under_new_id_is_found() {
    let stack = Stack::default();
    stack.of_old().await;
    let wanted = spec(vec![web(NEW, "b"), config_map("a", &[], json!({}))]);
    let planned = stack.plan(&wanted).await.unwrap();
    stack.observer.leave_after(0);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.observer.record(NEW).uid(), stack.cloud.live(NEW).unwrap()["metadata"]["uid"].as_str());
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn replacement_keeps_old_id_when_reverted() {
    // Without and with a record under the new id.
    for results in [0, 1] {
        let stack = Stack::default();
        stack.of_old().await;
        stack.apply_until(results, &spec(vec![web(NEW, "b"), config_map("a", &[], json!({}))])).await;
        let wanted = spec(vec![web(OLD, "b"), config_map("a", &[], json!({}))]);
        assert!(stack.apply(&wanted).await.succeeded);
        let live = stack.cloud.live(OLD).or(stack.cloud.live(NEW)).unwrap();
        assert_eq!(stack.observer.record(OLD).uid(), live["metadata"]["uid"].as_str(), "after {results} results");
        assert!(stack.destroy().await.succeeded);
        assert!(stack.cloud.ids().is_empty());
    }
}

#[tokio::test]
async fn fields_of_old_id_are_removed() {
    let stack = Stack::default();
    let (old, mut new) = (spec(vec![web(OLD, "a")]), web(NEW, "a"));
    stack.bring(&old).await;
    new["attributes"]["more"] = json!("b");
    stack.apply_until(1, &spec(vec![new])).await;
    assert_eq!(stack.cloud.live(NEW).unwrap()["more"], "b");
    assert!(stack.apply(&old).await.succeeded);
    assert!(!stack.cloud.live(OLD).unwrap().contains_key("more"));
    assert!(stack.plan(&old).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn replacement_under_new_id_is_replaced_under_old() {
    let stack = Stack::default();
    stack.of_old().await;
    // It was made anew under its new id, and the old record is still there, of an object that is not.
    stack.apply_until(1, &spec(vec![web(NEW, "b"), config_map("a", &[], json!({}))])).await;
    let wanted = spec(vec![web(OLD, "c"), config_map("a", &[], json!({}))]);
    assert_eq!(
        stack.actions(&wanted).await,
        [(Action::Replace, OLD.to_owned()), (Action::Forget, NEW.to_owned()), (Action::Unchanged, id("a"))]
    );
    let outcome = stack.apply(&wanted).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.cloud.live(OLD).unwrap()["type"], "c");
    assert!(!stack.observer.result(NEW).left, "its object was removed for the new one");
    assert_eq!(stack.observer.record(OLD).uid(), stack.cloud.live(OLD).unwrap()["metadata"]["uid"].as_str());
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}
