//! Tests of ownership: two deployments with the same object, which one of them owns until the other takes it over.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_apply::ResourceOutcome;
use stoa_engine::problem::reason;
use stoa_engine::spec::RECREATE;
use stoa_engine::{Action, Spec};
use stoa_runtime::{Runtime as _, fake::Operation};

use crate::fixtures::{Stack, config_map, id, maps, options, spec};

const FIRST: &str = "fake/stack/workspace";
const LEFT: &str = "fake/second/workspace owns it now, so it is not deleted";

/// One ConfigMap that is taken over from the first.
fn taking_over() -> Spec {
    let mut map = config_map("a", &[], json!({"a": "1"}));
    map["extensions"] = json!({"stoa.dev/take-over-from": FIRST});
    spec(vec![map])
}

/// A ConfigMap of the first stack, and both stacks.
async fn of_the_first() -> (Stack, Stack) {
    let first = Stack::default();
    first.bring(&maps(&[("a", &[])])).await;
    let second = first.beside("second");
    (first, second)
}

#[tokio::test]
async fn object_of_another_deployment_is_rejected() {
    let (first, second) = of_the_first().await;
    let before = first.cloud.live(&id("a"));
    let problems = second.refusal(second.runtime(), &maps(&[("a", &[]), ("b", &[])])).await;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].reason, reason::OWNED_BY_ANOTHER);
    let expected = format!("{}: ConfigMap a in namespace shop is owned by {FIRST}, ", id("a"));
    assert!(problems[0].to_string().starts_with(&expected), "{}", problems[0]);
    assert!(second.cloud.called(Operation::Apply).is_empty());
    assert_eq!(first.cloud.live(&id("a")), before);
    assert!(second.destroy().await.succeeded);
    assert_eq!(first.cloud.live(&id("a")), before, "it was never recorded as the second's");
}

#[tokio::test]
async fn owner_check_costs_no_calls_or_changes() {
    let (first, _) = of_the_first().await;
    let planned = first.plan(&maps(&[("a", &[])])).await.unwrap();
    assert!(planned.plan.is_unchanged(), "{}", planned.table);
    assert_eq!(first.cloud.calls().len(), 1, "one read: {:?}", first.cloud.calls());
}

#[tokio::test]
async fn unmarked_record_is_marked_with_next_change() {
    let (first, _) = of_the_first().await;
    let mut live = first.cloud.live(&id("a")).unwrap();
    live["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
    first.cloud.put(&id("a"), live.into());
    let unchanged = maps(&[("a", &[])]);
    assert!(first.plan(&unchanged).await.unwrap().plan.is_unchanged());
    first.bring(&unchanged).await;
    assert!(first.cloud.live(&id("a")).unwrap()["metadata"].get("annotations").is_none(), "the plan said so");

    let changed = spec(vec![config_map("a", &[], json!({"a": "2"}))]);
    let planned = first.plan(&changed).await.unwrap();
    let paths: Vec<&str> = planned.plan.actions[0].changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["data.a"], "the mark is no change");
    first.bring(&changed).await;
    let live = first.cloud.live(&id("a")).unwrap();
    assert_eq!(live["metadata"]["annotations"]["stoa.dev/owner"], "fake/stack/workspace/uid");
    assert!(first.destroy().await.succeeded);
    assert!(first.cloud.ids().is_empty());
}

#[tokio::test]
async fn unmarked_unrecorded_object_is_adopted() {
    let stack = Stack::default();
    stack.cloud.put(&id("a"), config_map("a", &[], json!({"a": "by hand"}))["attributes"].clone());
    let wanted = maps(&[("a", &[])]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Adopt);
    stack.bring(&wanted).await;
    let second = stack.beside("second");
    assert_eq!(second.refusal(second.runtime(), &wanted).await[0].reason, reason::OWNED_BY_ANOTHER);
}

#[tokio::test]
async fn previous_owner_leaves_object_alone() {
    for deferred in [false, true] {
        let (first, second) = of_the_first().await;
        let planned = second.plan(&taking_over()).await.unwrap();
        assert!(
            planned.table.starts_with(&format!("> adopt    {}  (taken over from {FIRST})\n", id("a"))),
            "{}",
            planned.table
        );
        second.bring(&taking_over()).await;
        let taken = first.cloud.live(&id("a"));
        assert!(second.plan(&taking_over()).await.unwrap().plan.is_unchanged(), "it means nothing any more");

        assert_eq!(first.refusal(first.runtime(), &maps(&[("a", &[])])).await[0].reason, reason::OWNED_BY_ANOTHER);
        let nothing = Spec::default();
        let planned = first.plan(&nothing).await.unwrap();
        assert_eq!(planned.table, format!(". forget   {}  ({LEFT})\n\nPlan: 1 to forget.\n", id("a")));
        let runtime = first.runtime();
        let runtime = if deferred { runtime.deferred() } else { runtime };
        let outcome = first.execute_with(Arc::new(runtime), &nothing, &planned, &[], &options()).await.unwrap();
        assert!(outcome.succeeded, "{outcome:?}");
        assert_eq!(first.observer.result(&id("a")).message, LEFT, "the log tells");
        assert!(first.observer.state().resources.is_empty());
        assert_eq!(first.cloud.live(&id("a")), taken);
        assert!(second.destroy().await.succeeded);
        assert!(first.cloud.ids().is_empty());
    }
}

#[tokio::test]
async fn object_taken_over_after_plan_is_not_deleted() {
    for deferred in [false, true] {
        let (first, second) = of_the_first().await;
        let nothing = Spec::default();
        let planned = first.plan(&nothing).await.unwrap();
        assert_eq!(planned.plan.actions[0].action, Action::Delete);
        second.bring(&taking_over()).await;
        let taken = first.cloud.live(&id("a"));
        let runtime = first.runtime();
        let runtime = if deferred { runtime.deferred() } else { runtime };
        let outcome = first.execute_with(Arc::new(runtime), &nothing, &planned, &[], &options()).await.unwrap();
        assert!(outcome.succeeded, "{outcome:?}");
        let result = first.observer.result(&id("a"));
        assert_eq!((result.outcome, result.message.as_str()), (ResourceOutcome::Done, LEFT));
        assert!(first.observer.state().resources.is_empty());
        assert_eq!(first.cloud.live(&id("a")), taken);
    }
}

#[tokio::test]
async fn object_owned_after_plan_is_not_changed() {
    let first = Stack::default();
    let wanted = maps(&[("a", &[])]);
    let planned = first.plan(&wanted).await.unwrap();
    let second = first.beside("second");
    second.bring(&spec(vec![config_map("a", &[], json!({"a": "theirs"}))])).await;
    let outcome = first.execute(&wanted, &planned, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::OWNED_BY_ANOTHER);
    assert_eq!(first.observer.result(&id("a")).outcome, ResourceOutcome::Failed, "it is known what became of the call");
    assert!(first.observer.state().open.is_empty() && first.observer.state().resources.is_empty());
    assert_eq!(first.cloud.live(&id("a")).unwrap()["data"]["a"], "theirs");
}

#[tokio::test]
async fn object_created_after_plan_is_not_adopted() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[])]);
    let planned = stack.plan(&wanted).await.unwrap();
    let by_hand = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"},
        "data": {"theirs": "x"}});
    stack.cloud.put(&id("a"), by_hand);
    let there = stack.cloud.live(&id("a"));
    let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::CONFLICT);
    assert_eq!(stack.observer.result(&id("a")).outcome, ResourceOutcome::Failed, "it is known what became of the call");
    assert!(stack.observer.state().open.is_empty() && stack.observer.state().resources.is_empty());
    assert_eq!(stack.cloud.live(&id("a")), there);
    // A plan that shows it takes it.
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Adopt);
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
}

const RECREATED: &str = "the applied object no longer exists; another object has its name and is not deleted";

impl Stack {
    /// Somebody removes an object, and makes another of its name.
    fn recreate(&self, name: &str, uid: &str) {
        self.cloud.remove(&id(name));
        let metadata = json!({"name": name, "namespace": "shop", "uid": uid});
        let data = json!({"a": "1", "theirs": "x"});
        self.cloud.put(&id(name), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}));
    }
}

#[tokio::test]
async fn recreated_object_is_adopted_if_wanted() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[])]);
    stack.bring(&wanted).await;
    stack.recreate("a", "theirs-1");
    let planned = stack.plan(&wanted).await.unwrap();
    let action = &planned.plan.actions[0];
    assert_eq!((action.action, action.recreated, action.drift), (Action::Adopt, true, true));
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    let live = stack.cloud.live(&id("a")).unwrap();
    assert!(stack.runtime().owner().has(&live), "{live:?}");
    assert_eq!((&live["data"]["theirs"], stack.observer.record(&id("a")).uid()), (&json!("x"), Some("theirs-1")));
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
    assert!(stack.destroy().await.succeeded);
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn recreated_object_is_forgotten_if_unwanted() {
    for is_planned in [true, false] {
        let stack = Stack::default();
        stack.bring(&maps(&[("a", &[])])).await;
        let nothing = Spec::default();
        if is_planned {
            stack.recreate("a", "theirs-1");
        }
        let planned = stack.plan(&nothing).await.unwrap();
        let expected = if is_planned { Action::Forget } else { Action::Delete };
        assert_eq!(planned.plan.actions[0].action, expected);
        stack.recreate("a", "theirs-1");
        let theirs = stack.cloud.live(&id("a"));
        let outcome = stack.execute(&nothing, &planned, &[]).await.unwrap();
        assert!(outcome.succeeded, "{outcome:?}");
        let result = stack.observer.result(&id("a"));
        assert_eq!((result.outcome, result.left, result.message.as_str()), (ResourceOutcome::Done, true, RECREATED));
        assert!(stack.observer.state().resources.is_empty() && stack.observer.state().open.is_empty());
        assert_eq!(stack.cloud.live(&id("a")), theirs);
    }
}

#[tokio::test]
async fn object_recreated_after_plan_is_not_adopted() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    let wanted = spec(vec![config_map("a", &[], json!({"a": "2"}))]);
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Update);
    stack.recreate("a", "theirs-1");
    let (theirs, record) = (stack.cloud.live(&id("a")), stack.observer.record(&id("a")));
    let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::CONFLICT);
    assert!(outcome.problems[0].message.contains("plan again to take it over"), "{outcome:?}");
    assert_eq!((stack.cloud.live(&id("a")), stack.observer.record(&id("a"))), (theirs, record));
    // A plan that shows it takes it.
    let planned = stack.plan(&wanted).await.unwrap();
    assert_eq!(planned.plan.actions[0].action, Action::Adopt);
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
}

#[tokio::test]
async fn object_created_during_replacement_is_not_adopted() {
    let web = |value: &str| {
        let mut map = config_map("a", &[], json!({"a": "1"}));
        map["extensions"] = json!({RECREATE: "true"});
        map["attributes"]["type"] = json!(value);
        spec(vec![map])
    };
    for takes_over in [false, true] {
        let stack = Stack::default();
        stack.cloud.fix("type");
        stack.bring(&web("x")).await;
        let mut planned = stack.plan(&web("y")).await.unwrap();
        assert_eq!(planned.plan.actions[0].action, Action::Replace);
        planned.plan.actions[0].takes_over = takes_over;
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}});
        let gate = stack.cloud.gate(&id("a"));
        let others = async {
            gate.add_permits(1);
            while stack.cloud.live(&id("a")).is_some() {
                tokio::task::yield_now().await;
            }
            stack.cloud.put(&id("a"), theirs.clone());
            gate.add_permits(1);
        };
        let wanted = web("y");
        let (outcome, ()) = tokio::join!(stack.execute(&wanted, &planned, &[]), others);
        let outcome = outcome.unwrap();
        assert_eq!(outcome.succeeded, takes_over, "{outcome:?}");
        if !takes_over {
            assert_eq!(outcome.problems[0].reason, reason::CONFLICT);
            assert_eq!(stack.cloud.live(&id("a")).map(Value::from), Some(theirs));
        }
    }
}
