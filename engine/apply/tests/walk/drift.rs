//! Tests of refreshes: drift from what was applied, and its owner.

use serde_json::{Value, json};
use stoa_engine::problem::reason;
use stoa_engine::{Action, PlannedAction, Spec};
use stoa_runtime::{Runtime as _, RuntimeError, fake::Operation};

use crate::fixtures::{Stack, config_map, id, maps, names, spec};
use crate::import::{named, planned};

/// ConfigMaps with these values.
fn with(values: &[(&str, &str)]) -> Spec {
    spec(values.iter().map(|(name, value)| config_map(name, &[], json!({"a": value}))).collect())
}

fn rejected() -> RuntimeError {
    RuntimeError::Rejected { message: "a policy says no".to_owned(), field: None, by_definition: false }
}

impl Stack {
    /// Somebody changes the value of a ConfigMap.
    fn edit(&self, name: &str, value: &str) {
        let mut live = self.cloud.live(&id(name)).unwrap();
        live["data"]["a"] = json!(value);
        self.cloud.put(&id(name), Value::Object(live));
    }

    /// The drifted resources, by a refresh with the Spec of the last release.
    async fn moved(&self, released: &Spec) -> Vec<PlannedAction> {
        let actions = self.refreshed(released).await.unwrap().plan.actions;
        actions.into_iter().filter(|planned| planned.drift).collect()
    }

    /// The names of what moved.
    async fn names_of_moved(&self, released: &Spec) -> String {
        let ids: Vec<_> = self.moved(released).await.into_iter().map(|planned| planned.id).collect();
        names(&ids).join(" ")
    }

    /// The one drifted resource, and why it cannot be reverted.
    async fn refused(&self, released: &Spec) -> (Action, String) {
        let moved = self.moved(released).await;
        let [planned] = &moved[..] else { panic!("{moved:?}") };
        (planned.action, planned.refused.clone().unwrap_or_default())
    }
}

#[tokio::test]
async fn drift_is_measured_from_failed_run() {
    let stack = Stack::default();
    let released = with(&[("a", "1"), ("b", "1")]);
    stack.bring(&released).await;
    assert_eq!(stack.names_of_moved(&released).await, "");

    stack.cloud.fail(Operation::Apply, &id("b"), rejected());
    assert!(!stack.apply(&with(&[("a", "2"), ("b", "2"), ("new", "2")])).await.succeeded);
    stack.cloud.clear_calls();
    assert_eq!(stack.names_of_moved(&released).await, "");
    assert!(stack.cloud.called(Operation::Preview).is_empty(), "nothing is to be decided about");

    stack.edit("a", "by hand");
    let moved = stack.moved(&released).await;
    let [change] = &moved[0].changes[..] else { panic!("{moved:?}") };
    assert_eq!((change.before.as_ref(), change.after.as_ref()), (Some(&json!("by hand")), Some(&json!("2"))));
    // As the last release says, which is not what was applied since.
    stack.edit("a", "1");
    assert_eq!(stack.names_of_moved(&released).await, "a");
    stack.edit("new", "by hand");
    assert_eq!(stack.names_of_moved(&released).await, "a new");
    stack.cloud.remove(&id("new"));
    assert_eq!(stack.names_of_moved(&released).await, "a new");
    assert!(stack.refreshed(&released).await.unwrap().table.contains("(it was recorded, but no longer exists)"));
    stack.edit("b", "by hand");
    assert_eq!(stack.names_of_moved(&released).await, "a b new");
    assert!(stack.cloud.called(Operation::Apply).is_empty());
}

#[tokio::test]
async fn imported_and_unapplied_resource_has_no_drift() {
    let stack = Stack::default();
    stack.bring(&with(&[("a", "1")])).await;
    let mut found = config_map("found", &[], json!({"a": "1"}))["attributes"].clone();
    found["metadata"]["uid"] = json!("uid-of-found");
    stack.cloud.put(&id("found"), found);
    let released = with(&[("a", "2"), ("found", "2"), ("missing", "2")]);
    let import = planned(&stack, &released, &named(&["found"])).await.unwrap();
    assert!(stack.execute(&released, &import, &[]).await.unwrap().succeeded);
    assert_eq!(stack.names_of_moved(&released).await, "");

    stack.edit("a", "by hand");
    assert_eq!(stack.names_of_moved(&released).await, "a");
    // Of what is only imported no field is on record.
    stack.edit("found", "by hand");
    assert_eq!(stack.names_of_moved(&released).await, "a");
    stack.cloud.remove(&id("found"));
    assert_eq!(stack.names_of_moved(&released).await, "a found");
}

#[tokio::test]
async fn drift_names_owner_that_blocks_its_revert() {
    let released = maps(&[("a", &[])]);
    let brought = async || {
        let stack = Stack::default();
        stack.bring(&released).await;
        stack
    };
    let stack = brought().await;
    stack.edit("a", "theirs");
    stack.cloud.claim(&id("a"), ["data", "a"], "flux", true);
    assert_eq!(stack.refusal(stack.runtime(), &released).await[0].reason, reason::CONFLICT);
    assert_eq!(stack.refused(&released).await, (Action::Update, "fields are managed by flux".to_owned()));
    let table = stack.refreshed(&released).await.unwrap().table;
    assert!(table.contains("(an apply would be refused: fields are managed by flux)"), "{table}");

    let stack = brought().await;
    let (live, second) = (stack.cloud.live(&id("a")).unwrap(), stack.beside("second"));
    stack.cloud.put(&id("a"), Value::Object(second.runtime().owner().marked(&live)));
    assert_eq!(stack.refusal(stack.runtime(), &released).await[0].reason, reason::OWNED_BY_ANOTHER);
    let theirs = (Action::Update, "fake/second/workspace owns it now".to_owned());
    assert_eq!(stack.refused(&released).await, theirs);
    assert_eq!(stack.refused(&Spec::default()).await, theirs, "wanted or not");

    let stack = brought().await;
    for is_gone in [false, true] {
        match is_gone {
            false => stack.edit("a", "by hand"),
            true => stack.cloud.remove(&id("a")),
        }
        stack.cloud.fail(Operation::Preview, &id("a"), rejected());
        let action = if is_gone { Action::Create } else { Action::Update };
        assert_eq!(stack.refused(&released).await, (action, "a policy says no".to_owned()));
    }
}

#[tokio::test]
async fn never_applied_resource_is_not_read() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    let second = stack.beside("second");
    second.bring(&maps(&[("theirs", &[])])).await;
    let released = maps(&[("a", &[]), ("missing", &[]), ("theirs", &[])]);
    stack.cloud.fail(Operation::Preview, &id("missing"), rejected());
    stack.cloud.clear_calls();
    assert_eq!(stack.names_of_moved(&released).await, "");
    assert!(stack.cloud.called(Operation::Preview).is_empty());
}
