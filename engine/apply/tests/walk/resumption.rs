//! Tests of interrupted walks that are resumed.

use serde_json::json;
use stoa_apply::{Abandoned, Interrupted};
use stoa_engine::problem::reason;
use stoa_runtime::{RuntimeError, fake::Operation};

use crate::fixtures::{Stack, config_map, id, maps, names, secret, spec};

#[tokio::test]
async fn lost_observer_ends_walk() {
    let stack = Stack::default();
    stack.observer.leave_after(1);
    let spec = maps(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]);
    let planned = stack.plan(&spec).await.unwrap();
    assert_eq!(stack.execute(&spec, &planned, &[]).await, Err(Abandoned.into()));
    assert_eq!(names(&stack.cloud.called(Operation::Apply)), ["a", "b"]);
}

#[tokio::test]
async fn recorded_actions_are_not_repeated() {
    let stack = Stack::default();
    stack.observer.leave_after(1);
    let spec = maps(&[("a", &[]), ("b", &["a"]), ("c", &["b"])]);
    let planned = stack.plan(&spec).await.unwrap();
    stack.execute(&spec, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    stack.cloud.clear_calls();
    let before = stack.cloud.live(&id("b"));

    let outcome = stack.execute(&spec, &planned, &stack.observer.done()).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(names(&stack.cloud.called(Operation::Apply)), ["b", "c"]);
    assert_eq!(stack.cloud.live(&id("b")), before, "applying twice changed nothing");
    assert_eq!(stack.observer.state().resources.len(), 3);
}

#[tokio::test]
async fn values_of_finished_resources_are_read_again() {
    let stack = Stack::default();
    let uid = format!("$kusion_path.{}.metadata.uid", id("a"));
    let password = "$kusion_path.v1:Secret:shop:db.data.password";
    let wanted = spec(vec![
        config_map("a", &[], json!({})),
        secret("db", json!({"password": "hunter2-long"})),
        config_map("b", &[], json!({"uid": uid, "again": "x"})),
        config_map("c", &[], json!({"of-b": format!("$kusion_path.{}.data.uid", id("b")), "password": password})),
    ]);
    let planned = stack.plan(&wanted).await.unwrap();
    stack.observer.leave_after(3);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    let outcome = stack.execute(&wanted, &planned, &stack.observer.done()).await.unwrap();
    assert!(outcome.succeeded, "{outcome:?}");
    let uid = stack.cloud.live(&id("a")).unwrap()["metadata"]["uid"].clone();
    assert_eq!(stack.cloud.live(&id("c")).unwrap()["data"]["of-b"], uid);
    // Base64 of hunter2-long.
    assert_eq!(stack.cloud.live(&id("c")).unwrap()["data"]["password"], "aHVudGVyMi1sb25n");
}

#[tokio::test]
async fn unchanged_resource_can_be_referenced() {
    let stack = Stack::default();
    let uid = format!("$kusion_path.{}.metadata.uid", id("a"));
    let of_a = |value: &str| config_map("a", &[], json!({"v": value}));
    let b = config_map("b", &[], json!({"uid": uid}));
    stack.bring(&spec(vec![of_a("1"), b.clone()])).await;
    let c = config_map("c", &[], json!({"x": format!("$kusion_path.{}.data.uid", id("b"))}));
    let outcome = stack.apply(&spec(vec![of_a("2"), b, c])).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(names(&stack.cloud.called(Operation::Apply)), ["a", "c"]);
    let uid = stack.cloud.live(&id("a")).unwrap()["metadata"]["uid"].clone();
    assert_eq!(stack.cloud.live(&id("c")).unwrap()["data"]["x"], uid);
}

#[tokio::test]
async fn unrecorded_deletion_is_repeated() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    let nothing = spec(vec![]);
    let planned = stack.plan(&nothing).await.unwrap();
    stack.observer.leave_after(0);
    stack.execute(&nothing, &planned, &[]).await.unwrap_err();
    assert!(stack.cloud.ids().is_empty());
    stack.observer.stay();
    assert!(stack.execute(&nothing, &planned, &[]).await.unwrap().succeeded);
    assert!(stack.observer.state().resources.is_empty());
}

#[tokio::test]
async fn failed_read_before_calls_is_retryable() {
    let away = || RuntimeError::Unavailable { message: "connection refused".to_owned() };
    let refused = || RuntimeError::Rejected { message: "no".to_owned(), field: None, by_definition: false };
    let uid = format!("$kusion_path.{}.metadata.uid", id("a"));
    let wanted = spec(vec![config_map("a", &[], json!({})), config_map("b", &[], json!({"uid": uid}))]);
    for operation in [Operation::LookFor, Operation::Read] {
        let stack = Stack::default();
        let planned = stack.plan(&wanted).await.unwrap();
        // The call for b is open then, and a, which it refers to, is done.
        stack.observer.leave_after(1);
        stack.execute(&wanted, &planned, &[]).await.unwrap_err();
        stack.observer.stay();
        let done = stack.observer.done();
        let sought = if operation == Operation::LookFor { id("b") } else { id("a") };
        stack.cloud.clear_calls();
        stack.cloud.fail(operation, &sought, away());
        let interrupted = stack.execute(&wanted, &planned, &done).await.unwrap_err();
        assert!(
            matches!(&interrupted, Interrupted::Unreadable(problem) if problem.reason == reason::UNAVAILABLE),
            "{interrupted:?}"
        );
        assert!(stack.cloud.called(Operation::Apply).is_empty());
        // What no wait mends is the end.
        stack.cloud.fail(operation, &sought, refused());
        let outcome = stack.execute(&wanted, &planned, &done).await.unwrap();
        assert_eq!((outcome.succeeded, outcome.problems.len()), (false, 1), "{outcome:?}");
        assert!(stack.execute(&wanted, &planned, &done).await.unwrap().succeeded);
    }
}
