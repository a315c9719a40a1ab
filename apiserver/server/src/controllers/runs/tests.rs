//! Runs over a log in memory, with no function-runner there: those that begin wait for it.

mod ambiguous_names;
mod approval;
mod buckets;
mod compliance;
mod deleted_runs;
mod destroyed_records;
mod drift;
mod fenced_runners;
mod full_backend;
mod generator_changes;
mod health_record;
mod health_waits;
mod merged_plans;
mod panics;
mod plans_and_logs;
mod proposals;
mod provider_states;
mod queue_status;
mod queueing;
mod rejected_runs;
mod rendering;
mod resource_releases;
mod unreachable_runner;
mod unresolved_calls;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use serde_json::{Value, json};
use stoa_kinds::testing::deploying;
use stoa_machinery::{Object, RequestContext, registry::DeleteOptions};
use stoa_runs::{StepError, testing::Shifted};
use stoa_storage::Clock;
use stoa_types::{Condition, Stack, common::condition, delivery::RunStatus};
use tempfile::TempDir;

use super::*;
use crate::testing::{PATIENCE, TestServer};

impl Scheduler {
    /// Waits until the task of a run has ended, and takes notice; the run's uid.
    async fn next_ends(&mut self) -> String {
        let ended = tokio::time::timeout(PATIENCE, self.tasks.join_next()).await.unwrap().unwrap().unwrap();
        let uid = ended.uid.clone();
        self.ended(ended).await;
        uid
    }
}

fn why(conditions: &[Condition]) -> &str {
    condition(conditions, reason::FAILED).map_or("", |failed| &failed.reason)
}

#[tokio::test]
async fn deleted_run_makes_way_for_the_next() {
    let world = TestServer::with_controller().await;
    world.apply("one").await;
    world.began("one").await;
    world.apply("two").await;
    assert_eq!(status(&world.registry.api::<Run>().get("shop", "two").await.unwrap()).phase, RunPhase::Pending);
    world.remove("one").await;
    world.began("two").await;
}

#[tokio::test]
async fn run_without_slot_waits_and_cancels() {
    let mut world = TestServer::new().await;
    world.services.max_runs = 1;
    let world = world.controlled();
    let preview = json!({"stack": "web", "workspace": "dev", "operation": "Preview"});
    for name in ["one", "two", "three"] {
        world.create("Run", name, preview.clone()).await;
    }
    world.began("one").await;
    // A run that only ends needs no place.
    world.change("two", |run| run.spec.cancel = true).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Canceled);
    assert_eq!(status(&world.registry.api::<Run>().get("shop", "three").await.unwrap()).phase, RunPhase::Pending);
    world.change("one", |run| run.spec.cancel = true).await;
    world.ended("one").await;
    world.began("three").await;
}

#[tokio::test]
async fn run_that_takes_too_long_says_so() {
    let world = TestServer::with_controller().await;
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "timeout": "1s"});
    world.create("Run", "slow", spec).await;
    let ended = world.ended("slow").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::TIMED_OUT));
}

#[tokio::test]
async fn run_that_never_began_says_nothing_about_the_deployment() {
    let world = TestServer::with_controller().await;
    world.apply("one").await;
    world.began("one").await;
    world.apply("two").await;
    world.change("two", |run| run.spec.cancel = true).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Canceled);
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "onConflict": "Refuse"});
    world.create("Run", "three", spec).await;
    assert_eq!(why(&world.ended("three").await.conditions), reason::CONFLICTING_RUN);
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Generating)));

    world.change("one", |run| run.spec.cancel = true).await;
    world.ended("one").await;
    // Whoever sees the end of the run sees it in the stack too.
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Canceled)));
}

/// Says of a run that it has begun, as after the write that is made first.
async fn say_begun(world: &TestServer, name: &str) {
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    let begun = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        status.phase = RunPhase::Generating;
        status.start_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.services.now()));
        status.stack_uid.clone_from(&stack.metadata.uid);
    };
    world.registry.api::<Run>().update_status_with("shop", name, begun).await.unwrap();
}

#[tokio::test]
async fn resumed_run_reports_beginning_to_stack() {
    let world = TestServer::new().await;
    world.apply("one").await;
    say_begun(&world, "one").await;
    let world = world.controlled();
    // By then it was tried once.
    let is_tried = |status: &RunStatus| {
        condition(&status.conditions, reason::WAITING).is_some_and(|waiting| waiting.reason == reason::WAITING)
    };
    world.until("one", is_tried).await;
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Generating)));
}

#[tokio::test]
async fn run_end_reaches_stack_without_workspace() {
    let world = TestServer::new().await;
    world.apply("one").await;
    world.registry.api::<stoa_types::Workspace>().delete("", "dev", &DeleteOptions::default()).await.unwrap();
    say_begun(&world, "one").await;
    let begin = deploying(json!([{"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "one"}]));
    world.registry.api::<Stack>().update_status_with("shop", "web", begin).await.unwrap();
    let world = world.controlled();
    assert_eq!(why(&world.ended("one").await.conditions), reason::REFERENCE_NOT_FOUND);
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Failed)));
}

#[tokio::test]
async fn rollback_to_missing_release_leaves_deployment_unchanged() {
    let world = TestServer::new().await;
    let stacks = world.registry.api::<Stack>();
    let healthy = deploying(json!([{"workspace": "dev", "release": 1, "phase": "Succeeded", "resources": 3}]));
    let before = stacks.update_status_with("shop", "web", healthy).await.unwrap();
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Rollback", "release": 7});
    let uid = before.metadata.uid.clone();
    let release = json!({"stack": "web", "stackUID": uid, "workspace": "dev", "revision": 7, "run": "r",
        "planDigest": "", "specDigest": "", "stateDigest": ""});
    world.create("Release", "web.dev.7", release).await;
    world.create("Run", "back", spec).await;
    let releases = world.registry.api::<stoa_types::Release>();
    releases.delete("shop", "web.dev.7", &DeleteOptions::default()).await.unwrap();
    let world = world.controlled();
    assert_eq!(why(&world.ended("back").await.conditions), reason::REFERENCE_NOT_FOUND);
    assert_eq!(stacks.get("shop", "web").await.unwrap(), before);
}

#[tokio::test]
async fn ended_run_is_not_taken_up_again() {
    let world = TestServer::new().await;
    world.apply("one").await;
    let runs = world.registry.api::<Run>();
    let seen = runs.get("shop", "one").await.unwrap();
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Failed;
    let ended = runs.update_status_with("shop", "one", end).await.unwrap();
    let stops = Stops { end: world.end.clone(), ..Stops::default() };
    let began = Stopwatch::new(&seen, world.services.now());
    let taken_up = take_up(world.services.clone(), seen, began, stops, Attempts::default());
    tokio::time::timeout(PATIENCE, taken_up).await.unwrap();
    assert_eq!(runs.get("shop", "one").await.unwrap(), ended);
}

#[tokio::test]
async fn late_server_leaves_ended_run_unchanged() {
    let world = TestServer::new().await;
    world.apply("one").await;
    say_begun(&world, "one").await;
    let (runs, stacks) = (world.registry.api::<Run>(), world.registry.api::<Stack>());
    let seen = runs.get("shop", "one").await.unwrap();
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
    let ended = runs.update_status_with("shop", "one", end).await.unwrap();
    let stack = stacks.get("shop", "web").await.unwrap();
    // As of before it was suspended.
    let late = executor::fail_alone(world.services.clone(), seen.clone(), reason::TIMED_OUT, "it took too long").await;
    assert!(matches!(late, Err(StepError::Abandoned(_))), "{late:?}");
    executor::fail(world.services.clone(), seen, reason::TIMED_OUT, "it took too long").await.unwrap();
    assert_eq!(runs.get("shop", "one").await.unwrap(), ended);
    assert_eq!(stacks.get("shop", "web").await.unwrap(), stack);
}

#[tokio::test]
async fn deletion_cancels_all_but_what_the_server_destroys_itself() {
    let world = TestServer::new().await;
    let deleted = |name: &'static str| {
        let runs = world.registry.api::<Run>();
        async move {
            runs.delete("shop", name, &DeleteOptions::default()).await.unwrap();
            runs.get("shop", name).await.unwrap()
        }
    };
    world.apply("apply").await;
    world.create("Run", "destroy", json!({"stack": "web", "workspace": "dev", "operation": "Destroy"})).await;
    assert!(wants_end(&deleted("apply").await));
    let mut destroy = deleted("destroy").await;
    assert!(!wants_end(&destroy));
    destroy.spec.cancel = true;
    assert!(wants_end(&destroy));
    destroy.spec.cancel = false;
    destroy.status.get_or_insert_default().requester.groups.clear();
    assert!(wants_end(&destroy));
}

#[tokio::test]
async fn failed_destroy_retries_with_backoff_or_after_change() {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
    let mut world = TestServer::new().await;
    // What follows is long after all that there is was made.
    let clock = Arc::new(AtomicI64::new(24 * 3_600_000));
    world.services.clock = Arc::new(Shifted(clock.clone()));
    let stacks = world.registry.api::<Stack>();
    let mut stack = stacks
        .update_status_with("shop", "web", deploying(json!([{"workspace": "dev", "resources": 1}])))
        .await
        .unwrap();
    let runs = world.registry.api::<Run>();
    let destroys = async |stack: &Stack| {
        crate::controllers::stacks::destroy(&world.services, stack).await.unwrap();
        runs.list(Some("shop"), "").await.unwrap().len()
    };
    let fail = async || {
        let now = world.services.now();
        for run in runs.list(Some("shop"), "").await.unwrap() {
            let change = |run: &mut Run| {
                let status = run.status.get_or_insert_default();
                if !status.phase.is_terminal() {
                    status.phase = RunPhase::Failed;
                    (status.start_time, status.completion_time) = (Some(Time(now)), Some(Time(now)));
                }
            };
            runs.update_status_with("shop", &run.name_any(), change).await.unwrap();
        }
    };
    let pass = |seconds: i64| clock.fetch_add(seconds * 1_000, Ordering::Relaxed);
    assert_eq!((destroys(&stack).await, destroys(&stack).await), (1, 1), "one is under way");
    for (failures, wait) in [(1, 60), (2, 120), (3, 240), (4, 480), (5, 960), (6, 1_920), (7, 3_600), (8, 3_600)] {
        fail().await;
        pass(wait - 10);
        assert_eq!(destroys(&stack).await, failures, "one has just failed");
        pass(20);
        assert_eq!(destroys(&stack).await, failures + 1);
    }
    fail().await;
    pass(10);
    let mut changed = async |subresource: &str| {
        let entry = ManagedFieldsEntry {
            subresource: Some(subresource.to_owned()),
            time: Some(Time(world.services.now())),
            ..ManagedFieldsEntry::default()
        };
        stack.metadata.managed_fields = Some(vec![entry]);
        destroys(&stack).await
    };
    assert_eq!(changed("status").await, 9, "nobody has changed it");
    assert_eq!(changed("").await, 10);
}

#[tokio::test]
async fn ttl_removes_finished_run_after_restart() {
    let world = TestServer::new().await;
    for (name, ttl) in [("brief", json!(1)), ("kept", Value::Null), ("long", json!(3600))] {
        let operation =
            json!({"stack": "web", "workspace": "dev", "operation": "Preview", "ttlSecondsAfterFinished": ttl});
        world.create("Run", name, operation).await;
        let end = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            status.phase = RunPhase::Succeeded;
            status.completion_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now()));
        };
        world.registry.api::<Run>().update_status_with("shop", name, end).await.unwrap();
    }
    // A server that has not seen them end.
    let world = world.controlled();
    let runs = world.registry.api::<Run>();
    let names = async || -> Vec<String> {
        runs.list(Some("shop"), "").await.unwrap().iter().map(|run| run.name_any()).collect()
    };
    let gone = async {
        while names().await.len() > 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("one goes");
    assert_eq!(names().await, ["kept", "long"]);
}

#[tokio::test]
async fn run_without_its_source_can_still_destroy() {
    let world = TestServer::with_controller().await;
    world.lose("/registry/config.stoa.dev/sources/shop/config").await;
    world.create("Run", "destroy", json!({"stack": "web", "workspace": "dev", "operation": "Destroy"})).await;
    // The Spec of a Destroy is known without a source; the plan waits for the runner.
    world.until("destroy", |status| status.phase == RunPhase::Planning).await;
    world.change("destroy", |run| run.spec.cancel = true).await;
    world.ended("destroy").await;
    world.apply("apply").await;
    let ended = world.ended("apply").await;
    let failed = condition(&ended.conditions, reason::FAILED).unwrap();
    assert_eq!(
        (failed.reason.as_str(), failed.message.as_str()),
        (reason::REFERENCE_NOT_FOUND, "source \"config\" does not exist")
    );
}

#[tokio::test]
async fn run_fails_on_unreadable_state_without_changing_it() {
    use stoa_machinery::{Key, log};
    let world = TestServer::with_controller().await;
    let uid = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
    let newer = json!({"schemaVersion": 1000, "id": "v1:Namespace:a", "resource": {"of": "the future"}}).to_string();
    for (name, value) in [("newer", newer.as_str()), ("corrupt", "{\"id\":\"v1:Na")] {
        let write = log::Write::new(
            Key::new(format!("/stoa/state/{uid}/dev/resources/v1:Namespace:a")),
            log::Expect::Any,
            log::Change::Put(value.to_owned().into()),
        );
        world.services.log.append(write).await.unwrap();
        let before = world.services.log.scan("/stoa/state/", None).await.unwrap().entries;
        world.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": "Destroy"})).await;
        let ended = world.ended(name).await;
        let failed = condition(&ended.conditions, reason::FAILED).unwrap();
        assert_eq!((ended.phase, failed.reason.as_str()), (RunPhase::Failed, reason::UNREADABLE_STATE));
        assert!(failed.message.contains("v1:Namespace:a"), "{}", failed.message);
        assert_eq!(world.services.log.scan("/stoa/state/", None).await.unwrap().entries, before);
        assert_eq!(world.deployment().await, (Some(name.to_owned()), Some(RunPhase::Failed)));
    }
}

#[tokio::test]
async fn clock_that_is_set_back_ends_no_run() {
    let mut world = TestServer::new().await;
    let shift = Arc::<AtomicI64>::default();
    world.services.clock = Arc::new(Shifted(shift.clone()));
    world.apply("one").await;
    let started = world.services.now();
    let begin = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        status.phase = RunPhase::Generating;
        status.start_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(started));
    };
    world.registry.api::<Run>().update_status_with("shop", "one", begin).await.unwrap();
    // The run began two hours from now, and may take one.
    shift.store(-2 * 3_600_000, Ordering::Relaxed);
    let world = world.controlled();
    let seen = world.until("one", |s| s.phase.is_terminal() || condition(&s.conditions, reason::WAITING).is_some());
    assert!(!seen.await.phase.is_terminal(), "it waits for the runner");
}

#[test]
fn stopwatch_adds_earlier_and_current_time() {
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
    let mut run = Run::new("one", serde_json::from_value(spec).unwrap());
    let start = Timestamp::from_second(1_000_000).unwrap();
    run.status.get_or_insert_default().start_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(start));
    let check = |offset: i64| {
        let mut began = Stopwatch::new(&run, start + jiff::SignedDuration::from_secs(offset));
        began.at = began.at.map(|at| at - Duration::from_secs(5));
        began.spent().as_secs()
    };
    assert_eq!((check(60), check(-3600)), (65, 5));
}

#[tokio::test]
async fn unresolved_call_starts_destroy_before_stack_deletion() {
    use stoa_machinery::{Key, log};
    let world = TestServer::new().await;
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    let open = json!({"id": "v1:Namespace:a", "intent": {"action": "Create", "run": "lost"}}).to_string();
    let write = log::Write::new(
        Key::new(format!("/stoa/state/{}/dev/resources/v1:Namespace:a", stack.uid().unwrap())),
        log::Expect::Absent,
        log::Change::Put(open.into()),
    );
    crate::controllers::stacks::destroy(&world.services, &stack).await.unwrap();
    let runs = world.registry.api::<Run>();
    assert!(runs.list(Some("shop"), "").await.unwrap().is_empty(), "nothing was deployed");
    world.services.log.append(write).await.unwrap();
    crate::controllers::stacks::destroy(&world.services, &stack).await.unwrap();
    let started = runs.list(Some("shop"), "").await.unwrap();
    assert_eq!(started.iter().map(|run| run.spec.workspace.as_str()).collect::<Vec<_>>(), ["dev"]);
}

#[tokio::test]
async fn runs_of_same_second_queue_in_creation_order() {
    let world = TestServer::new().await;
    let names = ["z", "b", "y", "a"];
    for name in names {
        world.apply(name).await;
    }
    let mut all = world.registry.api::<Run>().list(Some("shop"), "").await.unwrap();
    all.sort_by_cached_key(turn);
    assert_eq!(all.iter().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), names);
    // What an earlier version made comes before what was made in the same second since, and before what is not begun what is.
    let of = |run: &mut Run, began: bool| {
        let status = run.status.get_or_insert_default();
        status.queued_time = None;
        status.start_time = began.then_some(Time(Timestamp::MAX));
    };
    of(&mut all[3], false);
    of(&mut all[1], true);
    all.sort_by_cached_key(turn);
    assert_eq!(kube::ResourceExt::name_any(&all[0]), "b");
    assert_eq!(all.iter().position(|run| kube::ResourceExt::name_any(run) == "a"), Some(1));
}
