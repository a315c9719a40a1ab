//! Tests of calls that fail, hang or are stopped.

use std::time::Duration;

use serde_json::json;
use stoa_apply::ResourceOutcome;
use stoa_engine::problem::reason;
use stoa_engine::timeout::TIMEOUT;
use stoa_runtime::RuntimeError;
use stoa_runtime::fake::Operation;
use tokio::time::Instant;

use crate::fixtures::{Stack, config_map, id, maps, names, secret, spec};

fn unavailable() -> RuntimeError {
    RuntimeError::Unavailable { message: "connection refused".to_owned() }
}

fn rejected(message: &str) -> RuntimeError {
    RuntimeError::Rejected { message: message.to_owned(), field: Some("data.a".to_owned()), by_definition: false }
}

#[tokio::test]
async fn failure_stops_dependents_only() {
    let stack = Stack::default();
    stack.cloud.fail(Operation::Apply, &id("b"), rejected("no"));
    let outcome = stack.apply(&maps(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["c"]), ("e", &["a"])])).await;
    assert!(!outcome.succeeded && !outcome.canceled);
    assert_eq!(
        stack.observer.results(),
        [
            format!("Done {}", id("a")),
            format!("Done {}", id("e")),
            format!("Failed {}", id("b")),
            format!("Skipped {}", id("c")),
            format!("Skipped {}", id("d")),
        ]
    );
    let [problem] = outcome.problems.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((problem.reason.as_str(), problem.to_string()), (reason::REJECTED, format!("{}: data.a: no", id("b"))));
    assert_eq!(stack.observer.result(&id("d")).message, format!("{} comes first, but was not done", id("b")));
}

#[tokio::test]
async fn id_is_checked_once_name_is_known() {
    let stack = Stack::default();
    let mut named = config_map("b", &[], json!({}));
    named["attributes"]["metadata"]["name"] = json!(format!("$kusion_path.{}.metadata.uid", id("a")));
    let outcome = stack.apply(&spec(vec![config_map("a", &[], json!({})), named])).await;
    assert_eq!(stack.observer.results(), [format!("Done {}", id("a")), format!("Failed {}", id("b"))]);
    let [problem] = outcome.problems.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((&*problem.reason, &*problem.field), (reason::INVALID_RESOURCE_ID, "attributes.metadata.name"));
}

#[tokio::test]
async fn deletion_waits_for_failed_update() {
    let stack = Stack::default();
    stack.bring(&maps(&[("user", &["used"]), ("used", &[])])).await;
    stack.cloud.fail(Operation::Apply, &id("user"), rejected("no"));
    stack.apply(&spec(vec![config_map("user", &[], json!({"a": "2"}))])).await;
    assert!(stack.cloud.live(&id("used")).is_some(), "it is still used");
    assert_eq!(stack.observer.record(&id("user")).attributes["data"], json!({"a": "1"}));
}

#[tokio::test(start_paused = true)]
async fn only_retryable_errors_are_retried() {
    let stack = Stack::default();
    for _ in 0..3 {
        stack.cloud.fail(Operation::Apply, &id("a"), unavailable());
    }
    stack.cloud.fail(Operation::Apply, &id("b"), rejected("no"));
    let outcome = stack.apply(&maps(&[("a", &[]), ("b", &[])])).await;
    assert_eq!(outcome.problems.len(), 1);
    let calls = |name: &str| stack.cloud.called(Operation::Apply).iter().filter(|it| it.0 == id(name)).count();
    assert_eq!((calls("a"), calls("b")), (4, 1));
    assert_eq!(stack.observer.result(&id("a")).outcome, ResourceOutcome::Done);
}

#[tokio::test(start_paused = true)]
async fn retries_end_with_last_error() {
    let stack = Stack::default();
    for _ in 0..1_000 {
        stack.cloud.fail(Operation::Apply, &id("a"), unavailable());
    }
    let outcome = stack.apply(&maps(&[("a", &[])])).await;
    let problem = &outcome.problems[0];
    assert_eq!(problem.reason, reason::TIMED_OUT);
    assert_eq!(problem.message, "it took longer than 60s; last report: connection refused");
}

#[tokio::test(start_paused = true)]
async fn hanging_call_times_out() {
    let stack = Stack::default();
    let _hangs = stack.cloud.gate(&id("a"));
    let outcome = stack.apply(&maps(&[("a", &[]), ("b", &[]), ("c", &["a"])])).await;
    assert_eq!(outcome.problems[0].message, "it took longer than 60s");
    assert_eq!(stack.observer.result(&id("b")).outcome, ResourceOutcome::Done);
    assert_eq!(stack.observer.result(&id("c")).outcome, ResourceOutcome::Skipped);
}

#[tokio::test(start_paused = true)]
async fn resource_timeout_is_configurable() {
    let stack = Stack::default();
    let slow = |name: &str, timeout: &str| {
        let mut map = config_map(name, &[], json!({"a": "1"}));
        map["extensions"] = json!({TIMEOUT: timeout});
        map
    };
    let _hang = [stack.cloud.gate(&id("a")), stack.cloud.gate(&id("b"))];
    let start = Instant::now();
    let outcome = stack.apply(&spec(vec![slow("a", "5s"), slow("b", "10m"), config_map("c", &[], json!({}))])).await;
    let messages: Vec<&str> = outcome.problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages, ["it took longer than 5s", "it took longer than 600s"]);
    assert!(start.elapsed() >= Duration::from_secs(600));

    let problems = stack.refusal(stack.runtime(), &spec(vec![slow("d", "soon")])).await;
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let message = "`soon` is not a duration such as 90s, 15m or 1h30m";
    assert_eq!(told, [format!("{}: extensions[\"{TIMEOUT}\"]: {message}", id("d"))]);
}

#[tokio::test]
async fn stopped_walk_finishes_calls_in_flight() {
    let stack = Stack::default();
    let gate = stack.cloud.gate(&id("a"));
    let spec = maps(&[("a", &[]), ("b", &["a"])]);
    let planned = stack.plan(&spec).await.unwrap();
    let (outcome, ()) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
        while stack.cloud.most_in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        stack.cancel.cancel();
        gate.add_permits(1);
    });
    let outcome = outcome.unwrap();
    assert!(outcome.canceled && !outcome.succeeded && outcome.problems.is_empty(), "{outcome:?}");
    assert_eq!(stack.observer.results(), [format!("Done {}", id("a"))]);
    assert_eq!(stack.cloud.called(Operation::Apply).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopped_walk_ends_after_grace_period() {
    let stack = Stack::default();
    let _hangs = stack.cloud.gate(&id("a"));
    let spec = maps(&[("a", &[])]);
    let planned = stack.plan(&spec).await.unwrap();
    let (outcome, ()) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
        while stack.cloud.most_in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        stack.cancel.cancel();
    });
    let outcome = outcome.unwrap();
    assert!(outcome.canceled);
    assert_eq!(outcome.problems[0].message, "the call was still running 10s after the run was stopped");
}

#[tokio::test(start_paused = true)]
async fn walk_waits_until_lost_calls_cannot_arrive() {
    let spec = maps(&[("a", &[]), ("b", &[])]);
    // Cut off when the grace of a stop is over, or because it took too long, or answered by nobody until the stop.
    for (is_stopped, answer, takes) in [(true, None, 12), (false, None, 62), (true, Some(unavailable()), 2)] {
        let stack = Stack::default();
        let gate = stack.cloud.gate(&id("a"));
        if let Some(error) = answer {
            stack.cloud.fail(Operation::Apply, &id("a"), error);
            gate.add_permits(1);
        }
        let planned = stack.plan(&spec).await.unwrap();
        let start = Instant::now();
        let (_, told) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
            stack.observer.until(|observer| !observer.done().is_empty()).await;
            if is_stopped {
                stack.cancel.cancel();
            }
            stack.observer.until(|observer| observer.results().len() == 2).await;
            start.elapsed().as_secs()
        });
        assert_eq!(stack.observer.result(&id("a")).outcome, ResourceOutcome::Unknown);
        assert_eq!((told, start.elapsed().as_secs()), (takes - 2, takes), "its result is told at once");
    }
    // What was answered is over.
    let stack = Stack::default();
    let start = Instant::now();
    stack.cloud.fail(Operation::Apply, &id("a"), rejected("no"));
    assert!(!stack.apply(&spec).await.succeeded);
    assert_eq!(start.elapsed().as_secs(), 0);
}

#[tokio::test]
async fn messages_hold_no_secrets() {
    let stack = Stack::default();
    let user = format!("$kusion_path.{}.stringData.password", "v1:Secret:shop:db");
    stack.cloud.fail(Operation::Apply, "v1:Secret:shop:db", rejected("Invalid value: \"hunter2-long\""));
    let outcome = stack.apply(&spec(vec![secret("db", json!({"password": "hunter2-long"}))])).await;
    assert_eq!(outcome.problems[0].message, "Invalid value: \"(sensitive)\"");

    stack.cloud.fail(Operation::Apply, &id("user"), rejected("no hunter2-long here"));
    let both = vec![secret("db", json!({"password": "hunter2-long"})), config_map("user", &[], json!({"p": user}))];
    let outcome = stack.apply(&spec(both)).await;
    assert_eq!(outcome.problems[0].message, "no (sensitive) here");
    assert_eq!(stack.observer.result(&id("user")).message, "no (sensitive) here");
}

#[tokio::test]
async fn a_plan_of_another_spec_is_refused() {
    let stack = Stack::default();
    let planned = stack.plan(&maps(&[("a", &[])])).await.unwrap();
    let outcome = stack.execute(&maps(&[("b", &[])]), &planned, &[]).await.unwrap();
    assert_eq!(outcome.problems[0].reason, reason::STALE_PLAN);
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn value_missing_after_apply_is_reported() {
    let stack = Stack::default();
    let reference = format!("$kusion_path.{}.status.address", id("a"));
    let outcome =
        stack.apply(&spec(vec![config_map("a", &[], json!({})), config_map("b", &[], json!({"x": reference}))])).await;
    let problem = &outcome.problems[0];
    assert_eq!((problem.reason.as_str(), problem.field.as_str()), (reason::DANGLING_REFERENCE, "attributes.data.x"));
    assert!(problem.message.contains("has no status.address"), "{problem}");
}

#[tokio::test]
async fn reference_expansion_limit_fails_resource_before_call() {
    let stack = Stack::default();
    stack.cloud.admit(&id("a"), ["data", "long"], json!("A".repeat(1 << 20)));
    let long = format!("${{kusion_path.{}.data.long}}", id("a"));
    let outcome = stack
        .apply(&spec(vec![
            config_map("a", &[], json!({"x": "y"})),
            config_map("b", &[], json!({"x": long.repeat(17)})),
            config_map("c", &[], json!({"x": long.repeat(16)})),
            config_map("d", &["b"], json!({})),
        ]))
        .await;
    let [problem] = outcome.problems.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((problem.reason.as_str(), problem.field.as_str()), (reason::TOO_LARGE, "attributes.data.x"));
    assert_eq!(problem.resource_id, Some(id("b").as_str().into()));
    assert_eq!(names(&stack.cloud.called(Operation::Apply)), ["a", "c"]);
}
