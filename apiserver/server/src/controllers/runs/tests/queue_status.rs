//! What runs say that wait for their turn or a place.

use stoa_controller::testing::FaultyLog;
use stoa_proto::{FinishedEvent, IntentEvent, apply_event::Event};
use stoa_runs::testing::{runner_at, unreachable_runner};

use super::fenced_runners::{A, Awaits, Scripted};
use super::*;

fn waits(status: &RunStatus) -> Option<(&str, &str)> {
    condition(&status.conditions, reason::WAITING).map(|waits| (waits.reason.as_str(), waits.message.as_str()))
}

impl TestServer {
    /// Waits until a run says that it waits for this reason; what it says.
    async fn told(&self, name: &str, why: &str) -> String {
        let status = self.until(name, |status| waits(status).is_some_and(|(reason, _)| reason == why)).await;
        waits(&status).unwrap().1.to_owned()
    }

    async fn version(&self, name: &str) -> Option<String> {
        self.registry.api::<Run>().get("shop", name).await.unwrap().metadata.resource_version
    }
}

#[tokio::test]
async fn queued_run_names_its_predecessor() {
    let world = TestServer::with_controller().await;
    for name in ["one", "two", "three"] {
        world.apply(name).await;
    }
    let after = |name: &str| format!("run {name} is first in the queue of stack web in workspace dev");
    assert_eq!(world.told("two", reason::QUEUED).await, after("one"));
    assert_eq!(world.told("three", reason::QUEUED).await, after("two"));
    let before = world.version("three").await;
    world.change("one", |run| run.spec.cancel = true).await;
    world.began("two").await;
    let second = status(&world.registry.api::<Run>().get("shop", "two").await.unwrap());
    assert!(waits(&second).is_none_or(|(why, _)| why != reason::QUEUED), "{second:?}");
    // The queue moved on, and whoever is behind the same run has nothing to be told: nor in the round before that of `five`.
    for name in ["four", "five"] {
        world.apply(name).await;
        world.told(name, reason::QUEUED).await;
    }
    assert_eq!(world.version("three").await, before);
    world.change("three", |run| run.spec.cancel = true).await;
    assert_eq!(waits(&world.ended("three").await), None);
}

#[tokio::test]
async fn run_without_slot_reports_slot_usage() {
    let preview = json!({"stack": "web", "workspace": "dev", "operation": "Preview"});
    for (places, why, message) in [
        (1, reason::NO_PLACE, "the only slot for runs is in use"),
        (
            3,
            reason::NAMESPACE_SHARE_USED,
            "namespace shop has its share of the 3 slots for runs; the free slots are for namespaces with fewer runs",
        ),
    ] {
        let mut world = TestServer::new().await;
        world.services.max_runs = places;
        let world = world.controlled();
        for name in ["one", "two", "three"] {
            world.create("Run", name, preview.clone()).await;
        }
        assert_eq!(world.told("three", why).await, message);
        world.change("one", |run| run.spec.cancel = true).await;
        world.change("two", |run| run.spec.cancel = true).await;
        world.began("three").await;
    }
}

#[tokio::test]
async fn queue_status_updates_in_limited_batches() {
    let world = TestServer::new().await;
    let runs = world.registry.api::<Run>();
    for number in 0..20 {
        world.apply(&format!("run-{number:02}")).await;
    }
    let all = runs.list(Some("shop"), "").await.unwrap();
    let said = async || {
        let all = runs.list(Some("shop"), "").await.unwrap();
        let mut said = std::collections::BTreeMap::<String, usize>::new();
        for run in all {
            *said.entry(waits(&status(&run)).map_or("", |(why, _)| why).to_owned()).or_default() += 1;
        }
        said.into_iter().map(|(why, count)| format!("{why} {count}")).collect::<Vec<_>>()
    };
    let say = async |told: &mut queue_status::Reported, causes: Vec<(&Run, Cause)>| {
        let due = told.due(causes.into_iter());
        told.note(crate::controllers::runs::queue_status::tell(runs.clone(), due).await);
    };
    let mut told = queue_status::Reported::default();
    let all_places = || all.iter().map(|run| (run, Cause::Places(1)));
    say(&mut told, all_places().collect()).await;
    assert_eq!(said().await, [" 4", "NoPlace 16"]);
    say(&mut told, all_places().collect()).await;
    assert_eq!(said().await, ["NoPlace 20"]);
    let share = || all.iter().map(|run| (run, Cause::Share(4)));
    say(&mut told, share().collect()).await;
    assert_eq!(said().await, ["NoPlace 20"], "they have just been told something");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    say(&mut told, share().collect()).await;
    assert_eq!(said().await, ["NamespaceShareUsed 16", "NoPlace 4"]);
    // One that begins or is to end meanwhile is left alone.
    world.change("run-00", |run| run.spec.cancel = true).await;
    let begin = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Generating;
    runs.update_status_with("shop", "run-01", begin).await.unwrap();
    let before = [world.version("run-00").await, world.version("run-01").await];
    let mut another = queue_status::Reported::default();
    say(&mut another, all.iter().map(|run| (run, Cause::Turn("x".to_owned()))).collect()).await;
    assert_eq!([world.version("run-00").await, world.version("run-01").await], before);
}

#[tokio::test]
async fn slow_status_write_delays_no_run() {
    let log = FaultyLog::new(0);
    let world = TestServer::over(log.clone(), unreachable_runner(), |builder| builder).await;
    log.hang("\"Queued\"");
    let world = world.controlled();
    world.apply("one").await;
    world.apply("two").await;
    // It is told that it waits for its turn, which takes for ever.
    tokio::time::timeout(PATIENCE, log.hangs.notified()).await.expect("it is told");
    world.create("Run", "three", json!({"stack": "web", "workspace": "dev", "operation": "Preview"})).await;
    world.began("three").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_names_unreachable_runner_until_recovery() {
    let address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    world.destroy("one").await;
    let said = world.told("one", reason::WAITING).await;
    assert!(said.starts_with(&format!("the function-runner at http://{address} cannot be reached: ")), "{said}");
    assert!(said.ends_with("; it is retried every few seconds"), "{said}");

    let mut conversations = Scripted::start_at(address, &[A]).await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    world.until("one", |status| waits(status).is_none() && status.phase == RunPhase::Applying).await;
    let intent = IntentEvent { ids: vec![A.to_owned()], action: "Delete".to_owned(), ..IntentEvent::default() };
    talk.ask(Event::Intent(intent)).await;
    drop(talk);
    let said = world.told("one", reason::WAITING).await;
    assert!(said.starts_with(&format!("the function-runner at http://{address} disconnected: ")), "{said}");
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    // Nothing came of it yet.
    world.until("one", |status| waits(status).is_none() && status.phase == RunPhase::Applying).await;
    talk.carry_out(&[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_reports_current_wait_of_runner() {
    let said = "cluster east does not answer: GET /api/v1 is waited for".to_owned();
    let awaits = Awaits::default();
    let awaited = |what: &[&String]| drop(awaits.send_replace(what.iter().map(|what| (*what).clone()).collect()));
    let (address, mut conversations) = Scripted::awaiting(&[A], awaits.clone()).await;
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    awaited(&[&said]);
    let start = Instant::now();
    world.destroy("one").await;
    assert_eq!(world.told("one", reason::WAITING).await, said);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(world.journal("one").await.contains(&said));
    awaited(&[]);
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    world.until("one", |status| waits(status).is_none() && status.phase == RunPhase::Applying).await;

    // What is done meanwhile says nothing of what is waited for.
    awaited(&[&said, &said]);
    assert_eq!(world.told("one", reason::WAITING).await, format!("{said}; {said}"));
    let intent = IntentEvent { ids: vec![A.to_owned()], action: "Delete".to_owned(), ..IntentEvent::default() };
    talk.ask(Event::Intent(intent)).await;
    let status = world.until("one", |status| status.resources[0].phase == "InProgress").await;
    assert!(waits(&status).is_some());
    awaited(&[]);
    world.until("one", |status| waits(status).is_none() && status.phase == RunPhase::Applying).await;
    talk.carry_out(&[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_run_reports_calls_in_progress() {
    let (address, mut conversations) = Scripted::awaiting(&[A], Awaits::default()).await;
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    world.destroy("one").await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    let intent = IntentEvent { ids: vec![A.to_owned()], action: "Delete".to_owned(), ..IntentEvent::default() };
    talk.ask(Event::Intent(intent)).await;
    world.change("one", |run| run.spec.cancel = true).await;
    talk.told_to_stop().await;
    let said = world.told("one", reason::WAITING).await;
    assert_eq!(said, "the run stops once the calls in progress are answered");
    talk.tell(Event::Finished(FinishedEvent { canceled: true, ..FinishedEvent::default() })).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, waits(&ended)), (RunPhase::Canceled, None));
}
