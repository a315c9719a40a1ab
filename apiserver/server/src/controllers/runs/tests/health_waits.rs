//! What a run has to wait for until it is healthy, as function-runners are told.

use stoa_proto::{FinishedEvent, HealthEvent, IntentEvent, Problem, ResultEvent, apply_event::Event};

use super::fenced_runners::{A, Conversation};
use super::*;

impl Conversation {
    /// Creates a resource, which has this uid then.
    pub(super) async fn makes(&mut self, id: &str, uid: &str) {
        let (ids, action) = (vec![id.to_owned()], "Create".to_owned());
        self.ask(Event::Intent(IntentEvent { ids, action, ..IntentEvent::default() })).await;
        self.ask(done("Create", id, uid)).await;
    }

    /// Ends with a problem.
    pub(super) async fn fails(&mut self) {
        let problems = vec![Problem { message: "something else is wrong".to_owned(), ..Problem::default() }];
        self.tell(Event::Finished(FinishedEvent { problems, ..FinishedEvent::default() })).await;
    }
}

/// The object of this uid is on record under this id from now on.
fn done(action: &str, id: &str, uid: &str) -> Event {
    let name = id.rsplit(':').next().unwrap();
    let attributes = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}});
    let live = json!({"metadata": {"uid": uid}});
    let resource = json!({"id": id, "type": "Kubernetes", "attributes": attributes, "live": live});
    let resource = serde_json::to_vec(&resource).unwrap().into();
    let (id, action, outcome) = (id.to_owned(), action.to_owned(), "Done".to_owned());
    Event::Result(ResultEvent { id, action, outcome, resource, ..ResultEvent::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_run_awaits_no_renamed_object() {
    let (renamed, other) = ("v1:ConfigMap:shop:renamed", "v1:ConfigMap:shop:other");
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.makes(A, "u1").await;
    let (id, health) = (A.to_owned(), "Current".to_owned());
    talk.tell(Event::Health(HealthEvent { id, health, ..HealthEvent::default() })).await;
    talk.fails().await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Failed);

    world.destroy("two").await;
    let mut talk = conversations.recv().await.unwrap();
    assert!(talk.start.owed.is_empty(), "{:?} though it was seen healthy", talk.start.owed);
    talk.begin("it").await;
    talk.ask(done("Unchanged", renamed, "u1")).await;
    talk.ask(done("Unchanged", other, "u2")).await;
    drop(talk);
    let talk = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    assert_eq!(talk.start.owed, [other]);
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_job_stays_recorded_until_changed() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.makes(A, "u1").await;
    let (id, health) = (A.to_owned(), "Current".to_owned());
    talk.tell(Event::Health(HealthEvent { id, health, finished: true, ..HealthEvent::default() })).await;
    talk.fails().await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Failed);

    world.destroy("two").await;
    // Whether it has finished, and whether it was healthy after its last change.
    let recorded = |talk: &Conversation| -> Vec<[bool; 2]> {
        talk.start.state.iter().map(|it| [it.finished, it.verified]).collect()
    };
    let mut talk = conversations.recv().await.unwrap();
    assert_eq!(recorded(&talk), [[true; 2]]);
    talk.begin("it").await;
    talk.ask(done("Unchanged", A, "u1")).await;
    drop(talk);
    let mut talk = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    assert_eq!(recorded(&talk), [[true; 2]], "it was left as it is");
    talk.begin("it").await;
    talk.makes(A, "u2").await;
    drop(talk);
    let talk = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
    assert_eq!(recorded(&talk), [[false; 2]], "it is another Job");
}
