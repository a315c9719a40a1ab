//! Calls whose ends nobody can find out: what is told to runners of them, and by what they are settled.

use stoa_proto::{FinishedEvent, Intent, IntentEvent, Place, Problem, ResultEvent, apply_event::Event};
use stoa_types::{Resource, delivery::ResourcePhase};
use tokio::sync::mpsc::UnboundedReceiver;

use super::fenced_runners::{A, Conversation};
use super::*;

fn intent(action: &str) -> Event {
    Event::Intent(IntentEvent { ids: vec![A.to_owned()], action: action.to_owned(), ..IntentEvent::default() })
}

fn result(action: &str, outcome: &str) -> Event {
    let (action, outcome) = (action.to_owned(), outcome.to_owned());
    Event::Result(ResultEvent { id: A.to_owned(), action, outcome, ..ResultEvent::default() })
}

fn failed(reason: &str) -> Event {
    let (reason, resource_id) = (reason.to_owned(), A.to_owned());
    let problems = vec![Problem { reason, resource_id, message: "who knows".to_owned(), ..Problem::default() }];
    Event::Finished(FinishedEvent { problems, ..FinishedEvent::default() })
}

impl Conversation {
    /// The call that the runner was told of.
    fn open(&self) -> Option<Intent> {
        self.start.state.iter().find(|entry| entry.id == A)?.intent.clone()
    }
}

impl TestServer {
    async fn retry(&self, name: &str, ids: &[&str]) {
        let spec = json!({"stack": "web", "workspace": "dev", "operation": "Destroy", "retry": ids});
        self.create("Run", name, spec).await;
    }

    /// Starts a run, which calls for something.
    async fn calls(&self, run: &str, conversations: &mut UnboundedReceiver<Conversation>, call: Event) -> Conversation {
        self.destroy(run).await;
        let mut talk = conversations.recv().await.unwrap();
        talk.begin("it").await;
        talk.ask(call).await;
        talk
    }

    /// What the one Resource says: which object it is and where, and its phase. Nothing where there is none.
    async fn resource(&self) -> Option<(String, ResourcePhase)> {
        let mut all = self.registry.api::<Resource>().list(Some("shop"), "").await.unwrap();
        assert!(all.len() <= 1, "{all:?}");
        let resource = all.pop()?;
        let object = resource.spec.kubernetes.unwrap_or_default();
        let object = format!("{}: {} {}/{}", object.cluster, object.kind, object.namespace, object.name);
        assert_eq!((resource.spec.id.as_str(), resource.spec.stack.as_str()), (A, "web"));
        Some((object, resource.status.unwrap().phase))
    }

    /// Why a run failed.
    async fn message(&self, name: &str) -> String {
        condition(&self.ended(name).await.conditions, reason::FAILED).unwrap().message.clone()
    }

    /// The action of the call that is on record, if there is one, and what came of the last.
    async fn on_record(&self) -> (Value, Value) {
        let entries = self.services.log.scan("/stoa/state/", None).await.unwrap().entries;
        let record = entries.iter().find(|entry| entry.key.as_str().ends_with(A)).unwrap();
        let record: Value = serde_json::from_slice(&record.value).unwrap();
        (record["intent"]["action"].clone(), record["result"]["outcome"].clone())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_field_settles_unresolved_call() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let mut talk = world.calls("one", &mut conversations, intent("Create")).await;
    talk.ask(result("Create", "Unknown")).await;
    talk.tell(failed("TimedOut")).await;
    let ended = world.ended("one").await;
    assert_eq!(ended.resources[0].phase, "Unknown");

    world.destroy("two").await;
    let mut talk = conversations.recv().await.unwrap();
    assert!(!talk.open().unwrap().retry, "nobody said anything");
    talk.begin("it").await;
    talk.tell(failed(reason::UNKNOWN_STATE)).await;
    assert_eq!(why(&world.ended("two").await.conditions), reason::UNKNOWN_STATE);

    world.retry("three", &[A]).await;
    let mut talk = conversations.recv().await.unwrap();
    assert!(talk.open().unwrap().retry);
    talk.begin("it").await;
    talk.ask(intent("Create")).await;
    drop(talk);
    // What it called for itself nobody looked for since.
    let mut talk = conversations.recv().await.unwrap();
    assert!(!talk.open().unwrap().retry);
    talk.begin("it").await;
    talk.tell(failed(reason::UNKNOWN_STATE)).await;
    assert_eq!(why(&world.ended("three").await.conditions), reason::UNKNOWN_STATE);

    world.retry("four", &[A]).await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    // By its turn it is known.
    world.retry("five", &[A]).await;
    talk.carry_out(&[A]).await;
    assert_eq!(world.ended("four").await.phase, RunPhase::Succeeded);
    assert_eq!(world.message("five").await, format!("spec.retry: the result of the last call is known for {A:?}"));
    assert_eq!(world.deployment().await, (Some("four".to_owned()), Some(RunPhase::Succeeded)), "it was never let in");
}

#[tokio::test(flavor = "multi_thread")]
async fn unresolved_creation_appears_as_resource_with_advice() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let is = |phase: ResourcePhase| Some(("east: ConfigMap shop/a".to_owned(), phase));
    let mut create = IntentEvent { ids: vec![A.to_owned()], action: "Create".to_owned(), ..IntentEvent::default() };
    create.places.push(Place { clusters: vec!["east".to_owned()], ..Place::default() });
    let advice = format!("the result of the call is unknown for {A:?}. The next Run checks it");

    let mut talk = world.calls("unanswered", &mut conversations, Event::Intent(create.clone())).await;
    assert_eq!(world.resource().await, None, "it is under way");
    talk.ask(result("Create", "Unknown")).await;
    talk.tell(failed("TimedOut")).await;
    let message = world.message("unanswered").await;
    assert!(message.contains(&advice) && message.contains("spec.retry"), "{message}");
    assert_eq!(world.resource().await, is(ResourcePhase::Unknown));

    // Nothing is there, and nothing was made.
    let mut talk = world.calls("refused", &mut conversations, Event::Intent(create.clone())).await;
    talk.ask(result("Create", "Failed")).await;
    talk.tell(failed("Rejected")).await;
    assert!(!world.message("refused").await.contains(&advice));
    assert_eq!(world.resource().await, is(ResourcePhase::Failed));

    // It was stopped before anything was heard.
    let mut talk = world.calls("stopped", &mut conversations, Event::Intent(create.clone())).await;
    world.change("stopped", |run| run.spec.cancel = true).await;
    talk.tell(Event::Finished(FinishedEvent { canceled: true, ..FinishedEvent::default() })).await;
    let ended = world.ended("stopped").await;
    let message = &condition(&ended.conditions, reason::FAILED).unwrap().message;
    assert!(ended.phase == RunPhase::Canceled && message.contains(&advice), "{message}");
    assert_eq!((&*ended.resources[0].phase, world.resource().await), ("Unknown", is(ResourcePhase::Unknown)));

    world.retry("gone", &[A]).await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.carry_out(&[A]).await;
    assert_eq!(world.ended("gone").await.phase, RunPhase::Succeeded);
    assert_eq!(world.resource().await, is(ResourcePhase::Destroyed));
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_call_of_lost_runner_becomes_resource() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let mut talk = world.calls("one", &mut conversations, intent("Create")).await;
    world.change("one", |run| run.spec.cancel = true).await;
    talk.told_to_stop().await;
    drop(talk);
    let ended = world.ended("one").await;
    let message = &condition(&ended.conditions, reason::FAILED).unwrap().message;
    assert!(ended.phase == RunPhase::Canceled && message.contains("the result of the call is unknown"), "{message}");
    assert_eq!(world.resource().await, Some((": ConfigMap shop/a".to_owned(), ResourcePhase::Unknown)));
}

#[tokio::test(flavor = "multi_thread")]
async fn import_settles_call_only_after_finding_object() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let mut talk = world.calls("one", &mut conversations, intent("Create")).await;
    talk.ask(result("Create", "Unknown")).await;
    // A call of the same run as well as of an earlier one.
    for outcome in ["Failed", "Done"] {
        talk.ask(intent("Import")).await;
        let before = (json!("Create"), json!("Unknown"));
        assert_eq!(world.on_record().await, before);
        talk.ask(result("Import", outcome)).await;
        let expected = if outcome == "Done" { (Value::Null, json!("Done")) } else { before };
        assert_eq!(world.on_record().await, expected, "{outcome}");
    }
    talk.ask(intent("Import")).await;
    talk.ask(result("Import", "Failed")).await;
    assert_eq!(world.on_record().await, (Value::Null, json!("Failed")), "it called for nothing itself");
    talk.tell(failed("NotThere")).await;
    world.ended("one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_plan_without_changes_reports_plan_stale() {
    let stale = stoa_engine::problem::reason::STALE_PLAN;
    for ([call, outcome, end], expected) in [
        ([intent("Delete"), result("Delete", "Skipped"), failed(stale)], reason::PLAN_STALE),
        ([intent("Delete"), result("Delete", "Done"), failed(stale)], reason::APPLY_FAILED),
        ([intent("Delete"), result("Delete", "Skipped"), failed("Conflict")], reason::APPLY_FAILED),
    ] {
        let (world, mut conversations) = TestServer::scripted(&[A]).await;
        let mut talk = world.calls("one", &mut conversations, call).await;
        talk.ask(outcome).await;
        talk.tell(end).await;
        let ended = world.ended("one").await;
        assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, expected));
    }
}
