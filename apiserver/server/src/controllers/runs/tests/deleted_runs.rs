//! Runs whose objects go while they are executed.

use stoa_proto::{FinishedEvent, IntentEvent, apply_event::Event};

use super::fenced_runners::A;
use super::*;

/// Has a run vanish that is deleted: somebody takes its finalizer away.
pub(super) async fn vanish(world: &TestServer, name: &str) {
    let runs = world.registry.api::<Run>();
    runs.delete("shop", name, &DeleteOptions::default()).await.unwrap();
    world.change(name, |run| run.finalizers_mut().clear()).await;
    assert!(runs.get_opt("shop", name).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn stack_learns_end_of_vanished_run() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    // The second one tells of a change when there is nothing any more where that could be shown.
    for (name, has_more) in [("one", false), ("two", true)] {
        world.destroy(name).await;
        let mut talk = tokio::time::timeout(PATIENCE, conversations.recv()).await.expect("it has its turn").unwrap();
        talk.begin("it").await;
        let run = world.until(name, |status| status.progress.is_some()).await;
        assert_eq!(run.phase, RunPhase::Applying);
        vanish(&world, name).await;
        talk.told_to_stop().await;
        if has_more {
            let (ids, action) = (vec![A.to_owned()], "Delete".to_owned());
            talk.ask(Event::Intent(IntentEvent { ids, action, ..IntentEvent::default() })).await;
        } else {
            talk.tell(Event::Finished(FinishedEvent { canceled: true, ..FinishedEvent::default() })).await;
        }
        world.deployed(|of| of.last_run.as_deref() == Some(name) && of.phase == Some(RunPhase::Canceled)).await;
    }
}

#[tokio::test]
async fn stack_ignores_late_reports_of_vanished_run() {
    let world = TestServer::new().await;
    world.apply("one").await;
    say_begun(&world, "one").await;
    let stacks = world.registry.api::<Stack>();
    let seen = world.registry.api::<Run>().get("shop", "one").await.unwrap();
    vanish(&world, "one").await;
    for (phase, last) in [("Succeeded", "one"), ("Generating", "two")] {
        let deployed = deploying(json!([{"workspace": "dev", "resources": 0, "phase": phase, "lastRun": last}]));
        let stack = stacks.update_status_with("shop", "web", deployed).await.unwrap();
        executor::fail(world.services.clone(), seen.clone(), reason::TIMED_OUT, "it took too long").await.unwrap();
        assert_eq!(stacks.get("shop", "web").await.unwrap(), stack);
    }
    let deployed = deploying(json!([{"workspace": "dev", "resources": 0, "phase": "Applying", "lastRun": "one"}]));
    stacks.update_status_with("shop", "web", deployed).await.unwrap();
    executor::fail(world.services.clone(), seen, reason::TIMED_OUT, "it took too long").await.unwrap();
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Failed)));
}

#[tokio::test]
async fn stack_learns_end_of_run_with_reused_name() {
    let world = TestServer::new().await;
    let runs = world.registry.api::<Run>();
    world.apply("one").await;
    say_begun(&world, "one").await;
    let seen = runs.get("shop", "one").await.unwrap();
    let deployed = deploying(json!([{"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "one"}]));
    world.registry.api::<Stack>().update_status_with("shop", "web", deployed).await.unwrap();
    vanish(&world, "one").await;
    world.apply("one").await;
    let other = runs.get("shop", "one").await.unwrap();
    executor::fail(world.services.clone(), seen, reason::TIMED_OUT, "it took too long").await.unwrap();
    assert_eq!(world.deployment().await, (Some("one".to_owned()), Some(RunPhase::Failed)));
    assert_eq!(runs.get("shop", "one").await.unwrap(), other);
}

#[tokio::test]
async fn stack_ignores_late_reports_after_name_reuse() {
    let world = TestServer::new().await;
    let runs = world.registry.api::<Run>();
    world.apply("one").await;
    say_begun(&world, "one").await;
    let seen = runs.get("shop", "one").await.unwrap();
    vanish(&world, "one").await;
    world.apply("one").await;
    say_begun(&world, "one").await;
    let deployed = deploying(json!([{"workspace": "dev", "resources": 0, "phase": "Generating", "lastRun": "one"}]));
    let stacks = world.registry.api::<Stack>();
    let stack = stacks.update_status_with("shop", "web", deployed).await.unwrap();
    executor::fail(world.services.clone(), seen, reason::TIMED_OUT, "it took too long").await.unwrap();
    assert_eq!(stacks.get("shop", "web").await.unwrap(), stack, "it is the other one's");
}
