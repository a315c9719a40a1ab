//! What is seen of a run that waits until what it changed is healthy.

use stoa_proto::{FinishedEvent, HealthEvent, apply_event::Event};
use stoa_types::Resource;

use super::{fenced::A, *};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_healthy_for_a_while_is_told_and_can_be_looked_at() {
    let (world, mut conversations) = World::scripted(&[A]).await;
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.makes(A, "u1").await;
    let health = |health: &str, message: &str| {
        Event::Health(HealthEvent { id: A.to_owned(), health: health.to_owned(), message: message.to_owned() })
    };
    talk.tell(health("InProgress", "0 of 1 are there")).await;
    let waits = |status: &RunStatus| condition(&status.conditions, reason::WAITING).cloned();
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

    talk.tell(health("Current", "")).await;
    world.until("one", |status| waits(status).is_none()).await;
    talk.tell(Event::Finished(FinishedEvent { succeeded: true, ..FinishedEvent::default() })).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
    let resources = world.registry.api::<Resource>().list(Some("shop"), "").await.unwrap();
    assert_eq!(resources[0].spec.release, Some(1));
}
