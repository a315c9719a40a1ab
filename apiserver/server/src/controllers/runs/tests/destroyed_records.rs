//! The record of a destroyed deployment.

use stoa_kinds::destroyed::Destroyed;
use stoa_machinery::Key;
use stoa_proto::{FinishedEvent, ResultEvent, apply_event::Event};

use super::fenced_runners::A;
use super::*;

const B: &str = "v1:ConfigMap:shop:b";

#[tokio::test(flavor = "multi_thread")]
async fn destroy_records_all_that_was_deployed() {
    let (world, mut conversations) = TestServer::scripted(&[A, B]).await;
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    for id in [A, B] {
        talk.makes(id, id).await;
    }
    talk.tell(Event::Finished(FinishedEvent { succeeded: true, ..FinishedEvent::default() })).await;
    assert_eq!(world.ended("one").await.release, Some(1));

    // One try removes a part, the next one the rest.
    world.destroy("two").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.ask(Event::Intent(stoa_proto::IntentEvent {
        ids: vec![B.to_owned()],
        action: "Delete".to_owned(),
        places: Vec::new(),
    }))
    .await;
    let (action, outcome) = ("Delete".to_owned(), "Done".to_owned());
    talk.ask(Event::Result(ResultEvent { id: B.to_owned(), action, outcome, ..ResultEvent::default() })).await;
    talk.fails().await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Failed);

    world.destroy("three").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.carry_out(&[A]).await;
    assert_eq!(world.ended("three").await.release, Some(2));
    let recorded = world.services.log.read(&Key::new("/stoa/destroyed/shop/web/dev")).await.unwrap().unwrap();
    let Destroyed { stack, workspace, release, run, resources, .. } = serde_json::from_slice(&recorded.value).unwrap();
    assert_eq!((stack.as_str(), workspace.as_str(), release, run.as_str()), ("web", "dev", 2, "three"));
    let mut all = [A, B];
    all.sort_unstable();
    assert_eq!(resources, all);
}
