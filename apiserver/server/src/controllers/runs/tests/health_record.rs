//! What is seen of a run that waits until what it changed is healthy.

use stoa_controller::testing::FaultyLog;
use stoa_proto::{FinishedEvent, HealthEvent, Problem, apply_event::Event};
use stoa_runs::testing::runner_at;
use stoa_types::Resource;

use super::fenced_runners::{A, Scripted};
use super::*;

fn health(health: &str, message: &str, over: bool) -> Event {
    let (id, health, message) = (A.to_owned(), health.to_owned(), message.to_owned());
    Event::Health(HealthEvent { id, health, message, over, ..HealthEvent::default() })
}

fn waits(status: &RunStatus) -> Option<Condition> {
    condition(&status.conditions, reason::WAITING).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn run_reports_unhealthy_resources_while_waiting() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.makes(A, "u1").await;
    talk.tell(health("InProgress", "0 of 1 are there", false)).await;
    let waiting = world.until("one", |status| waits(status).is_some()).await;
    let told = waits(&waiting).unwrap();
    let expected = ("Verifying", format!("not healthy yet: {A}: 0 of 1 are there"));
    assert_eq!((told.reason.as_str(), told.message), expected);
    assert_eq!(waiting.phase, RunPhase::Verifying);
    let resources = world.registry.api::<Resource>().list(Some("shop"), "").await.unwrap();
    let seen: Vec<_> = resources.iter().map(|of| (&*of.spec.id, of.spec.release)).collect();
    assert_eq!(seen, [(A, None)]);
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    let deployment = &stack.status.unwrap().deployments[0];
    assert_eq!((deployment.resources, deployment.phase), (1, Some(RunPhase::Verifying)));

    talk.tell(health("Current", "", false)).await;
    world.until("one", |status| waits(status).is_none()).await;
    talk.tell(Event::Finished(FinishedEvent { succeeded: true, ..FinishedEvent::default() })).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
    let resources = world.registry.api::<Resource>().list(Some("shop"), "").await.unwrap();
    assert_eq!(resources[0].spec.release, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_survives_large_messages_and_write_errors() {
    let log = FaultyLog::new(0);
    let (address, mut conversations) = Scripted::start(&[A]).await;
    let world = TestServer::over(log.clone(), runner_at(address), |builder| builder).await.controlled();
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.makes(A, "u1").await;
    log.refuse(Some("not healthy yet"));
    talk.tell(health("InProgress", &"ü".repeat(1 << 20), false)).await;
    tokio::time::timeout(PATIENCE, log.hangs.notified()).await.expect("it is to be told");
    log.refuse(None);
    let waiting = world.until("one", |status| waits(status).is_some()).await;
    let message = waits(&waiting).unwrap().message;
    assert!(message.chars().count() < 600 && message.ends_with("üü…"), "{} bytes", message.len());

    // It is not waited for any more, though the run still goes on.
    talk.tell(health("InProgress", "it is not healthy in time", true)).await;
    world.until("one", |status| waits(status).is_none()).await;
    let problems = vec![Problem { message: "it is not healthy in time".to_owned(), ..Problem::default() }];
    talk.tell(Event::Finished(FinishedEvent { problems, ..FinishedEvent::default() })).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Failed);
    assert!(conversations.try_recv().is_err(), "it was one conversation");
}
