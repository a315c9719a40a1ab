//! Who has its turn: a run that was put down before its end, and what it goes on with.

use stoa_machinery::log::{Change, Expect, Write};
use stoa_runs::testing::runner_at;

use super::fenced_runners::{A, Scripted, deleting};
use super::*;

const B: &str = "v1:ConfigMap:shop:b";

impl TestServer {
    /// Asks for the plan of a Destroy.
    async fn preview(&self, name: &str, more: Value) {
        let mut spec = json!({"stack": "web", "workspace": "dev", "operation": "Preview", "of": "Destroy"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.create("Run", name, spec).await;
        assert_eq!(self.ended(name).await.phase, RunPhase::Succeeded);
    }

    /// Carries out what was previewed.
    async fn carry_out(&self, name: &str, preview: &str) {
        let spec = json!({"stack": "web", "workspace": "dev", "operation": "Destroy", "plan": preview});
        self.create("Run", name, spec).await;
    }

    async fn is_pending(&self, name: &str) -> bool {
        status(&self.registry.api::<Run>().get("shop", name).await.unwrap()).phase == RunPhase::Pending
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_lost_lease_precedes_waiting_runs() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut first = conversations.recv().await.unwrap();
    first.begin("only").await;
    world.destroy("two").await;
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
    let one = world.registry.api::<Run>().get("shop", "one").await.unwrap().uid().unwrap();
    // From now on its own lease is an older one.
    let (lease, holder) = (format!("run/{stack}/dev"), format!("{}/{one}", world.services.identity));
    world.services.log.acquire(&lease, &holder, Duration::from_secs(30)).await.unwrap();

    let mut again = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    drop(first);
    again.begin("only").await;
    assert!(world.is_pending("two").await, "it would undo what this one does, or the other way round");
    again.carry_out(&[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
    let mut next = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    next.begin("only").await;
    next.carry_out(&[A]).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_unreadable_end_releases_turn() {
    let (address, _conversations) = Scripted::start(&[A]).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let mut scheduler = Scheduler::new(world.services.clone(), world.end.clone());
    let runs = world.registry.api::<Run>();
    for name in ["one", "two"] {
        world.destroy(name).await;
        scheduler.see(runs.get("shop", name).await.unwrap()).await;
    }
    // As it is left when its task has ended and the log does not answer.
    scheduler.tasks.shutdown().await;
    scheduler.active.clear();
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
    runs.update_status_with("shop", "one", end).await.unwrap();
    scheduler.later.insert(("shop".to_owned(), "one".to_owned()), Instant::now());
    scheduler.sweep().await;
    let two = runs.get("shop", "two").await.unwrap().uid().unwrap();
    assert!(scheduler.lanes.has_turn(&two), "nobody else would let it begin");
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_run_applies_only_valid_plan() {
    let planned = Arc::new(std::sync::Mutex::new(deleting(&[A])));
    let (address, mut conversations) = Scripted::planning(planned.clone()).await;
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    world.destroy("one").await;
    let mut first = conversations.recv().await.unwrap();
    first.begin("only").await;
    // As if another server had let another run begin meanwhile.
    let key = world.head_key().await;
    let head = world.services.log.scan(key.as_str(), None).await.unwrap().entries.remove(0);
    let mut other: Value = serde_json::from_slice(&head.value).unwrap();
    other["run"] = json!("another");
    let change = Change::Put(other.to_string().into());
    let write = Write::new(key, Expect::Any, change);
    world.services.log.append(write).await.unwrap();
    *planned.lock().unwrap() = deleting(&[A, B]);
    drop(first);
    let ended = world.ended("one").await;
    let (_, why, message) = super::approval::told(&ended, reason::FAILED);
    assert_eq!((ended.phase, why), (RunPhase::Failed, reason::PLAN_STALE), "{message}");
    assert!(message.contains("the plan that was made no longer holds") && message.contains(B), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_applies_admitted_plan_after_preview_deletion() {
    let planned = Arc::new(std::sync::Mutex::new(deleting(&[A])));
    let (address, mut conversations) = Scripted::planning(planned.clone()).await;
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    world.destroy("one").await;
    let mut one = conversations.recv().await.unwrap();
    one.begin("only").await;
    world.preview("look", json!({})).await;
    for name in ["two", "three"] {
        world.carry_out(name, "look").await;
    }
    // Another has its name by their turns, and planned otherwise.
    world.remove("look").await;
    *planned.lock().unwrap() = deleting(&[A, B]);
    world.preview("look", json!({})).await;
    *planned.lock().unwrap() = deleting(&[A]);
    assert!(world.is_pending("two").await && world.is_pending("three").await);
    one.carry_out(&[A]).await;
    let mut two = tokio::time::timeout(PATIENCE, conversations.recv()).await.expect("it is carried out").unwrap();
    two.begin("only").await;
    *planned.lock().unwrap() = deleting(&[A, B]);
    two.carry_out(&[A]).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Succeeded);
    let ended = world.ended("three").await;
    let (_, why, message) = super::approval::told(&ended, reason::FAILED);
    assert_eq!((ended.phase, why), (RunPhase::Failed, reason::PLAN_STALE), "{message}");
    assert!(message.contains("the plan of look no longer holds") && message.contains(B), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_rejects_recreated_preview_of_same_name() {
    let (address, _conversations) = Scripted::start(&[A]).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let look = || json!({"stack": "web", "workspace": "dev", "operation": "Preview", "of": "Destroy"});
    world.create("Run", "look", look()).await;
    world.carry_out("two", "look").await;
    // It is gone before it has made its plan.
    world.registry.api::<Run>().delete("shop", "look", &DeleteOptions::default()).await.unwrap();
    world.change("look", |run| run.finalizers_mut().clear()).await;
    world.create("Run", "look", look()).await;
    let world = world.controlled();
    let ended = world.ended("two").await;
    let (_, why, message) = super::approval::told(&ended, reason::FAILED);
    assert_eq!((ended.phase, why), (RunPhase::Failed, reason::PLAN_STALE), "{message}");
    assert!(message.contains("is no longer the Preview to carry out"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_with_unsuitable_plan_leaves_deployment_unchanged() {
    let (address, mut conversations) = Scripted::start(&[A]).await;
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    world.preview("look", json!({})).await;
    world.destroy("one").await;
    let mut one = conversations.recv().await.unwrap();
    one.begin("only").await;
    one.carry_out(&[A]).await;
    world.ended("one").await;
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Apply", "plan": "look"});
    world.create("Run", "two", spec).await;
    let ended = world.ended("two").await;
    let (_, why, message) = super::approval::told(&ended, reason::FAILED);
    assert_eq!((ended.phase, why), (RunPhase::Failed, reason::PLAN_STALE), "{message}");
    assert!(message.contains("is a Preview of a Destroy, and this is an Apply"), "{message}");
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Succeeded)));
}

#[tokio::test(flavor = "multi_thread")]
async fn referenced_preview_outlives_its_ttl() {
    let (address, _conversations) = Scripted::start(&[A]).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let mut scheduler = Scheduler::new(world.services.clone(), world.end.clone());
    let runs = world.registry.api::<Run>();
    let spec = json!({"stack": "web", "workspace": "dev", "operation": "Preview", "of": "Destroy",
        "ttlSecondsAfterFinished": 0});
    world.create("Run", "look", spec).await;
    scheduler.see(runs.get("shop", "look").await.unwrap()).await;
    scheduler.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(world.ended("look").await.phase, RunPhase::Succeeded);
    world.carry_out("two", "look").await;
    let look = runs.get("shop", "look").await.unwrap();
    scheduler.see(look).await;
    scheduler.sweep().await;
    scheduler.kept.settled().await;
    assert!(runs.get("shop", "look").await.unwrap().metadata.deletion_timestamp.is_none(), "its plan is needed");
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Canceled;
    runs.update_status_with("shop", "two", end).await.unwrap();
    assert_eq!(scheduler.kept.hurry(), 1, "it is looked at again");
    scheduler.sweep().await;
    scheduler.kept.settled().await;
    assert!(runs.get("shop", "look").await.unwrap().metadata.deletion_timestamp.is_some());
}
