//! Tests of waits for health.

use std::time::Duration;

use serde_json::json;
use stoa_engine::problem::reason;
use stoa_runtime::fake::Operation;
use stoa_runtime::{Health, JobEnd, RuntimeError};
use tokio::time::Instant;

use crate::fixtures::{Stack, config_map, id, maps, secret, spec};

#[tokio::test]
async fn health_is_reported_as_it_changes() {
    let stack = Stack::default();
    stack.cloud.set_health(&id("a"), &[(Health::InProgress, "0 of 1"), (Health::Current, "1 of 1")]);
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    let told: Vec<_> = stack.observer.healths().into_iter().map(|(_, health, message)| (health, message)).collect();
    assert_eq!(told, [(Health::InProgress, "0 of 1".to_owned()), (Health::Current, "1 of 1".to_owned())]);
}

#[tokio::test]
async fn secrets_are_redacted_before_message_is_cut() {
    let stack = Stack::default();
    // A container printed a Secret of the stack, which lies where the message is cut.
    let message = format!("{}hunter2-hunter2{}", "x".repeat(2040), "y".repeat(1000));
    stack.cloud.set_health(&id("a"), &[(Health::InProgress, &message), (Health::Current, "")]);
    let wanted = vec![secret("s", json!({"password": "hunter2-hunter2"})), config_map("a", &[], json!({}))];
    assert!(stack.apply(&spec(wanted)).await.succeeded);
    let shown = stack.observer.healths().into_iter().find(|(it, ..)| it.0 == id("a")).unwrap().2;
    assert!(shown.len() < 2100 && shown.ends_with('…') && !shown.contains('h'), "{shown}");
}

#[tokio::test]
async fn only_what_was_changed_is_watched() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[])])).await;
    assert!(stack.apply(&maps(&[("a", &[]), ("b", &[])])).await.succeeded);
    assert_eq!(stack.cloud.called(Operation::WaitHealthy), [id("b").as_str().into()]);
}

#[tokio::test]
async fn failed_resource_is_recorded_and_reported() {
    let stack = Stack::default();
    stack.cloud.set_health(&id("a"), &[(Health::Failed, "it crashes")]);
    let outcome = stack.apply(&maps(&[("a", &[])])).await;
    assert!(!outcome.succeeded);
    assert_eq!(outcome.problems[0].reason, reason::UNHEALTHY);
    assert_eq!(outcome.problems[0].message, "it was applied but failed: it crashes");
    assert_eq!(stack.observer.state().resources.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn health_timeout_does_not_delay_other_resources() {
    let stack = Stack::default();
    stack.cloud.set_health(&id("a"), &[(Health::InProgress, "0 of 1")]);
    let outcome = stack.apply(&maps(&[("a", &[]), ("b", &[])])).await;
    assert_eq!(outcome.problems.len(), 1);
    let late = "it was applied but did not become healthy in time: 0 of 1";
    assert_eq!(outcome.problems[0].message, late);
    assert!(stack.observer.healths().iter().any(|(it, health, _)| it.0 == id("b") && *health == Health::Current));
    // Whoever follows the walk hears that it does not wait any more.
    let timed_out: Vec<_> =
        stack.observer.health_timed_out().into_iter().map(|(it, health, why)| (it.0, health, why)).collect();
    assert_eq!(timed_out, [(id("a"), Health::InProgress, late.to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn resource_is_checked_even_after_health_timeout() {
    const AT_ONCE: usize = 1_024;
    let stack = Stack::default();
    let all: Vec<String> = (0..AT_ONCE + 76).map(|number| format!("m{number:04}")).collect();
    let (hanging, waiting) = all.split_at(AT_ONCE);
    hanging.iter().for_each(|name| stack.cloud.set_health(&id(name), &[(Health::InProgress, "0 of 1")]));
    waiting.iter().for_each(|name| stack.cloud.delay_health(&id(name), Duration::from_secs(1)));
    let start = Instant::now();
    let outcome = stack.apply(&spec(all.iter().map(|name| config_map(name, &[], json!({}))).collect())).await;
    assert_eq!((outcome.problems.len(), start.elapsed().as_secs()), (AT_ONCE, 61));
    assert!(outcome.problems.iter().all(|problem| problem.message.ends_with("not become healthy in time: 0 of 1")));
    // What is not told by then never is.
    let stack = Stack::default();
    hanging.iter().for_each(|name| stack.cloud.set_health(&id(name), &[(Health::InProgress, "0 of 1")]));
    waiting.iter().for_each(|name| stack.cloud.delay_health(&id(name), Duration::from_secs(600)));
    let start = Instant::now();
    let outcome = stack.apply(&spec(all.iter().map(|name| config_map(name, &[], json!({}))).collect())).await;
    assert_eq!((outcome.problems.len(), start.elapsed().as_secs()), (all.len(), 65));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_is_begun_again() {
    let stack = Stack::default();
    let broken = RuntimeError::Unavailable { message: "connection reset".to_owned() };
    stack.cloud.fail(Operation::WaitHealthy, &id("a"), broken);
    assert!(stack.apply(&maps(&[("a", &[])])).await.succeeded);
    assert_eq!(stack.cloud.called(Operation::WaitHealthy).len(), 2);
}

#[tokio::test]
async fn a_stopped_walk_waits_for_no_health() {
    let stack = Stack::default();
    stack.cloud.set_health(&id("a"), &[(Health::InProgress, "0 of 1")]);
    let spec = maps(&[("a", &[])]);
    let planned = stack.plan(&spec).await.unwrap();
    let (outcome, ()) = tokio::join!(stack.execute(&spec, &planned, &[]), async {
        while stack.observer.healths().is_empty() {
            tokio::task::yield_now().await;
        }
        stack.cancel.cancel();
    });
    let outcome = outcome.unwrap();
    assert!(outcome.canceled && !outcome.succeeded);
}

#[tokio::test(start_paused = true)]
async fn unhealthy_unchanged_resource_is_checked_again() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[]), ("b", &[])]);
    stack.cloud.set_health(&id("a"), &[(Health::InProgress, "0 of 1")]);
    assert!(!stack.apply(&wanted).await.succeeded);
    for _ in 0..2 {
        stack.cloud.clear_calls();
        let planned = stack.plan(&wanted).await.unwrap();
        assert!(planned.plan.is_unchanged());
        let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
        assert_eq!(outcome.problems[0].message, "it was applied but did not become healthy in time: 0 of 1");
        assert_eq!(stack.cloud.called(Operation::WaitHealthy), [id("a").as_str().into()], "only what is owed");
    }
    stack.cloud.set_health(&id("a"), &[(Health::Current, "1 of 1")]);
    stack.bring(&wanted).await;
    assert!(stack.apply(&wanted).await.succeeded);
    assert!(stack.cloud.called(Operation::WaitHealthy).is_empty(), "nothing is owed any more");
}

#[tokio::test]
async fn unchanged_job_is_recorded_as_finished() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[]), ("b", &[])]);
    stack.bring(&wanted).await;
    let has_finished = || [id("a"), id("b")].map(|id| stack.observer.record(&id).finished);
    assert_eq!(has_finished(), [false, false]);
    // It ran longer than the first Run followed it.
    stack.cloud.finish_job(&id("a"));
    stack.cloud.clear_calls();
    assert!(stack.apply(&wanted).await.succeeded);
    assert_eq!(has_finished(), [true, false]);
    assert!(stack.apply(&wanted).await.succeeded);
    assert_eq!(
        stack.cloud.called(Operation::WaitHealthy),
        [id("a").as_str().into()],
        "it is checked until it has finished"
    );
    // The infrastructure deletes it.
    stack.cloud.remove(&id("a"));
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
}

#[tokio::test]
async fn job_that_ended_unseen_is_not_created_again() {
    for (end, is_left, warnings) in
        [(JobEnd::Finished, true, 0), (JobEnd::Assumed, true, 1), (JobEnd::Missing, false, 0)]
    {
        let stack = Stack::default();
        let wanted = maps(&[("a", &[]), ("b", &[])]);
        stack.bring(&wanted).await;
        stack.cloud.end_job(&id("a"), end);
        let planned = stack.plan(&wanted).await.unwrap();
        assert_eq!((planned.plan.is_unchanged(), planned.notes.len()), (is_left, warnings), "{end:?}");
        assert_eq!(stack.refreshed(&wanted).await.unwrap().plan.is_unchanged(), is_left, "{end:?}");
        let unhealthy = stoa_apply::unhealthy(&stack.cloud.runtime(), &stack.observer.state()).await.unwrap();
        assert_eq!(unhealthy.is_empty(), is_left, "{end:?}");
        // A changed manifest runs it again.
        let changed = spec(vec![config_map("a", &[], json!({"a": "2"})), config_map("b", &[], json!({"a": "1"}))]);
        assert_eq!(stack.plan(&changed).await.unwrap().summary.create, 1, "{end:?}");
        // An Apply records the end, and warns no more.
        assert!(stack.apply(&wanted).await.succeeded);
        assert_eq!(stack.observer.record(&id("a")).finished, is_left, "{end:?}");
        assert_eq!(stack.plan(&wanted).await.unwrap().notes, [""; 0], "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn job_that_was_never_healthy_is_created_again() {
    let stack = Stack::default();
    let wanted = maps(&[("a", &[])]);
    stack.cloud.set_health(&id("a"), &[(Health::Failed, "it gave up")]);
    assert!(!stack.apply(&wanted).await.succeeded);
    stack.cloud.end_job(&id("a"), JobEnd::Assumed);
    assert_eq!(stack.plan(&wanted).await.unwrap().summary.create, 1);
}

#[tokio::test(start_paused = true)]
async fn deleted_resource_needs_no_health_check() {
    let stack = Stack::default();
    stack.cloud.set_health(&id("a"), &[(Health::Failed, "it crashes")]);
    assert!(!stack.apply(&maps(&[("a", &[]), ("b", &[])])).await.succeeded);
    assert!(stack.apply(&maps(&[("b", &[])])).await.succeeded);
    assert!(stack.destroy().await.succeeded);
}

#[tokio::test]
async fn health_check_reports_without_changes() {
    let stack = Stack::default();
    stack.bring(&maps(&[("a", &[]), ("b", &[]), ("c", &[]), ("d", &[]), ("f", &[])])).await;
    let runtime = stack.cloud.runtime();
    let mut state = stack.observer.state();
    assert_eq!(stoa_apply::unhealthy(&runtime, &state).await.unwrap(), []);

    stack.cloud.remove(&id("a"));
    stack.cloud.set_health(&id("b"), &[(Health::InProgress, "0 of 1: hunter2")]);
    let broken = RuntimeError::Unavailable { message: "connection reset".to_owned() };
    stack.cloud.fail(Operation::WaitHealthy, &id("c"), broken);
    stack.cloud.set_health(&id("d"), &[(Health::Unknown, "who knows")]);
    let mut going = stack.cloud.live(&id("f")).unwrap();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    stack.cloud.put(&id("f"), going.into());
    state.open.push(stoa_engine::OpenCall {
        id: id("e").as_str().into(),
        action: stoa_engine::Action::Create,
        run: "r".to_owned(),
        place: stoa_engine::record::CallTarget::default(),
        retry: false,
    });
    stack.cloud.clear_calls();
    let found = stoa_apply::unhealthy(&runtime, &state).await.unwrap();
    let told: Vec<_> = found.iter().map(|of| format!("{}: {}", of.id, of.message)).collect();
    let expected = [
        format!("{}: the result of a call is unknown", id("e")),
        format!("{}: it no longer exists", id("a")),
        format!("{}: it is InProgress", id("b")),
        format!("{}: connection reset", id("c")),
        format!("{}: it is Terminating", id("f")),
    ];
    assert_eq!(told, expected);
    let changes = [Operation::Apply, Operation::Delete];
    assert!(changes.iter().all(|change| stack.cloud.called(*change).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn health_check_resolves_live_references() {
    let stack = Stack::default();
    let secret = secret("s", json!({"user": "ann"}));
    stack.bring(&spec(vec![secret.clone()])).await;
    let of_secret = "v1:Secret:shop:s";
    let mut live = stack.cloud.live(of_secret).unwrap();
    // As a controller fills in.
    live.insert("data".to_owned(), json!({"user": "YW5u", "token": "aHVudGVyMg=="}));
    stack.cloud.put(of_secret, live.into());
    let wanted = spec(vec![secret, config_map("a", &[], json!({"v": "$kusion_path.v1:Secret:shop:s.data.token"}))]);
    stack.cloud.set_health(&id("a"), &[(Health::InProgress, "0 of 1")]);
    assert!(!stack.apply(&wanted).await.succeeded);
    for _ in 0..2 {
        stack.cloud.clear_calls();
        let planned = stack.plan(&wanted).await.unwrap();
        assert!(planned.plan.is_unchanged(), "{}", planned.table);
        let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
        assert_eq!(outcome.problems[0].message, "it was applied but did not become healthy in time: 0 of 1");
        // As a run does that goes on when all is done.
        let outcome = stack.execute(&wanted, &planned, &[id("a").as_str().into()]).await.unwrap();
        assert_eq!(outcome.problems[0].message, "it was applied but did not become healthy in time: 0 of 1");
    }
    stack.cloud.set_health(&id("a"), &[(Health::Current, "1 of 1")]);
    stack.bring(&wanted).await;
}
