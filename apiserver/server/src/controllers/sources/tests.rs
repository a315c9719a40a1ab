//! When sources are looked at, and what is told of that.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Event;
use serde_json::json;
use stoa_proto::{LookRequest, LookResponse};
use stoa_runs::testing::{Answer, FakeRunner, runner_at};
use stoa_types::delivery::{RunPhase, RunSource};
use tokio::{sync::Notify, time::error::Elapsed};
use tokio_util::sync::DropGuard;
use tonic::{Request, Response};

use super::*;
use crate::testing::TestServer;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has sources looked at until what this returns is dropped.
fn controlled(world: &TestServer) -> DropGuard {
    let end = CancellationToken::new();
    tokio::spawn(run(world.services.clone(), end.clone()));
    end.drop_guard()
}

fn found() -> Answer<LookResponse> {
    Ok(Response::new(LookResponse { latest: "a".repeat(40), ..LookResponse::default() }))
}

/// Finds a commit when the test says so.
#[derive(Clone, Debug, Default)]
struct GatedLook {
    asked: Arc<Notify>,
    answer: Arc<Notify>,
}

impl GatedLook {
    /// Waits until it is asked.
    async fn is_asked(&self) -> Result<(), Elapsed> {
        tokio::time::timeout(PATIENCE, self.asked.notified()).await
    }
}

#[tonic::async_trait]
impl FakeRunner for GatedLook {
    async fn look(&self, _: Request<LookRequest>) -> Answer<LookResponse> {
        self.asked.notify_one();
        self.answer.notified().await;
        found()
    }
}

#[tokio::test]
async fn recreated_source_ignores_results_of_predecessor() {
    let held = GatedLook::default();
    let world = TestServer::with_runner(runner_at(held.clone().serve())).await;
    let sources = world.registry.api::<Source>();
    let _end = controlled(&world);
    held.is_asked().await.expect("it is looked at");
    world.lose("/registry/config.stoa.dev/sources/shop/config").await;
    world.create("Source", "config", json!({"remote": "file:///config.git"})).await;
    held.answer.notify_one();
    held.is_asked().await.expect("the other is looked at");
    let found = async || sources.get("shop", "config").await.unwrap().status.unwrap_or_default().observed_commit;
    assert_eq!(found().await, None);
    held.answer.notify_one();
    let is_found = async {
        while found().await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_found).await.expect("and told of");
}

#[tokio::test]
async fn run_with_new_commit_triggers_source_check() {
    let held = GatedLook::default();
    let world = TestServer::with_runner(runner_at(held.clone().serve())).await;
    let _end = controlled(&world);
    held.is_asked().await.expect("it is looked at");
    held.answer.notify_one();
    world.create("Run", "one", json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
    let find = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        let (commit, path) = ("b".repeat(40), "web".to_owned());
        status.phase = RunPhase::Generating;
        status.source = Some(RunSource { commit, path, ..RunSource::default() });
    };
    // Sooner than after the minute that passes between two looks.
    world.registry.api::<Run>().update_status_with("shop", "one", find).await.unwrap();
    held.is_asked().await.expect("it is looked at again");
}

#[tokio::test]
async fn source_says_every_few_minutes_that_looks_succeed() {
    let held = GatedLook::default();
    let world = TestServer::with_runner(runner_at(held.clone().serve())).await;
    let sources = world.registry.api::<Source>();
    let synced = async || sources.get("shop", "config").await.unwrap().status.and_then(|it| it.last_sync_time);
    // A webhook asks for a look, the last before which succeeded then, or when it is said to have.
    let ask = async |last: Option<Timestamp>| {
        let set = |source: &mut Source| {
            let status = source.status.get_or_insert_default();
            status.last_sync_time = last.map(Time).or_else(|| status.last_sync_time.take());
            status.last_webhook_time = Some(MicroTime(Timestamp::now()));
        };
        sources.update_status_with("shop", "config", set).await.unwrap();
        held.is_asked().await.expect("it is looked at");
    };
    let _end = controlled(&world);
    held.is_asked().await.expect("it is looked at");
    held.answer.notify_one();
    let is_noted = async |before: Option<Timestamp>| {
        while synced().await.map(|Time(at)| at) == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_noted(None)).await.expect("it is noted");

    let long_ago = Timestamp::UNIX_EPOCH;
    ask(Some(long_ago)).await;
    held.answer.notify_one();
    tokio::time::timeout(PATIENCE, is_noted(Some(long_ago))).await.expect("it is noted again");

    let recently = Timestamp::from_second(Timestamp::now().as_second() - 60).unwrap();
    ask(Some(recently)).await;
    held.answer.notify_one();
    // The next look begins when this one is over.
    ask(None).await;
    let Time(found) = synced().await.unwrap();
    assert_eq!(found, recently, "a write for nothing");
}

/// Finds no repository until that is mended.
#[derive(Clone, Debug, Default)]
struct Mended(Arc<AtomicBool>);

#[tonic::async_trait]
impl FakeRunner for Mended {
    async fn look(&self, _: Request<LookRequest>) -> Answer<LookResponse> {
        match self.0.load(Ordering::Relaxed) {
            true => found(),
            false => Err(tonic::Status::not_found("there is no such repository")),
        }
    }
}

#[tokio::test]
async fn events_report_source_failure_and_recovery() {
    let mended = Mended::default();
    let world = TestServer::with_runner_and_secrets(runner_at(mended.clone().serve())).await;
    let until = async |kind: &str, text: &str| {
        let is_it = |event: &Event| {
            let is_of_kind = event.type_.as_deref() == Some(kind);
            is_of_kind && event.message.as_ref().is_some_and(|message| message.contains(text))
        };
        let is_told = async {
            while !world.registry.api::<Event>().list(Some("shop"), "").await.unwrap().iter().any(is_it) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_told).await.expect("an Event tells of it");
    };
    let _end = controlled(&world);
    until("Warning", "there is no such repository").await;
    mended.0.store(true, Ordering::Relaxed);
    let ask = |source: &mut Source| {
        source.status.get_or_insert_default().last_webhook_time = Some(MicroTime(Timestamp::now()));
    };
    world.registry.api::<Source>().update_status_with("shop", "config", ask).await.unwrap();
    until("Normal", "the repository can be read again").await;
}

/// Has no branch that a source names.
#[derive(Clone, Copy, Debug)]
struct Refless;

#[tonic::async_trait]
impl FakeRunner for Refless {
    async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
        use prost::Message as _;
        let LookRequest { source, r#ref, .. } = request.into_inner();
        if r#ref.is_empty() {
            return found();
        }
        let message = format!("{} has no branch, tag or commit {ref:?}", source.unwrap_or_default().remote);
        let reason = reason::VERSION_NOT_FOUND.to_owned();
        let problem = stoa_proto::Problem { reason, message: message.clone(), ..stoa_proto::Problem::default() };
        Err(tonic::Status::with_details(tonic::Code::NotFound, message, problem.encode_to_vec().into()))
    }
}

#[tokio::test]
async fn source_without_its_ref_says_so() {
    let world = TestServer::with_runner(runner_at(Refless.serve())).await;
    let sources = world.registry.api::<Source>();
    let set = |source: &mut Source| source.spec.reference = "nope".to_owned();
    sources.update_with("shop", "config", set).await.unwrap();
    let mut changes = sources.subscribe(None);
    let _end = controlled(&world);
    let told = async {
        loop {
            let status = sources.get("shop", "config").await.unwrap().status.unwrap_or_default();
            if let Some(ready) = condition(&status.conditions, reason::READY) {
                return (ready.status.clone(), ready.reason.clone(), ready.message.clone());
            }
            changes.next().await.unwrap();
        }
    };
    let (status, why, message) = tokio::time::timeout(PATIENCE, told).await.expect("it is looked at");
    assert_eq!((&*status, &*why), ("False", reason::REF_NOT_FOUND));
    let expected = "spec.ref: file:///config.git has no branch, tag or commit \"nope\"";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn status_records_successful_check_every_five_minutes() {
    let at = |second: i64| Time(Timestamp::from_second(second).unwrap());
    let now = at(1_000_000);
    for (last, expected) in [(999_701, false), (999_700, true), (1_000_000, false), (1_000_300, true)] {
        assert_eq!(is_to_note(Some(&at(last)), &now), expected, "{last}");
    }
    assert!(is_to_note(None, &now));
}

/// Does not answer about what is slow.
#[derive(Clone, Copy, Debug)]
struct Slow;

const SLOW: &str = "file:///slow-";

#[tonic::async_trait]
impl FakeRunner for Slow {
    async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
        if request.into_inner().source.is_some_and(|source| source.remote.starts_with(SLOW)) {
            std::future::pending::<()>().await;
        }
        found()
    }
}

#[tokio::test]
async fn unresponsive_namespace_blocks_no_other_source() {
    let world = TestServer::with_runner(runner_at(Slow.serve())).await;
    // It comes first in every order.
    for number in 0..200 {
        let remote = format!("{SLOW}{number}.git");
        world.create_in("a-slow-one", "Source", &format!("s{number}"), json!({ "remote": remote })).await;
    }
    let _end = controlled(&world);
    let sources = world.registry.api::<Source>();
    let is_found = async {
        while sources.get("shop", "config").await.unwrap().status.unwrap_or_default().observed_commit.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_found).await.expect("it is looked at");
}

#[tokio::test(start_paused = true)]
async fn runner_breaking_source_waits_despite_spec_change() {
    let of = |uid: &str, generation: i64| (Some(uid.to_owned()), Some(generation));
    let versions = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let wait = Duration::from_secs(480);
    let last = |broke: usize| Looked {
        at: Instant::now(),
        wait,
        failures: 4,
        broke,
        of: of("uid", 1),
        webhook: None,
        versions: versions(&["v1"]),
    };
    let (failed, once, twice) = (last(0), last(1), last(2));
    let webhook = MicroTime(Timestamp::UNIX_EPOCH);
    for looked in [&failed, &once, &twice] {
        assert_eq!(looked.left(&of("uid", 1), None, &versions(&["v1"])), Some(wait));
        assert_eq!(looked.left(&of("another", 1), None, &versions(&["v1"])), None);
    }
    let changes = [
        (of("uid", 2), None, versions(&["v1"])),
        (of("uid", 1), Some(&webhook), versions(&["v1"])),
        (of("uid", 1), None, versions(&["v1", "v2"])),
    ];
    for (of, webhook, versions) in &changes {
        assert_eq!(failed.left(of, *webhook, versions), None);
        assert_eq!(once.left(of, *webhook, versions), None, "that runner may have gone away by itself");
        assert_eq!(twice.left(of, *webhook, versions), Some(wait));
    }
    tokio::time::advance(wait).await;
    for (of, webhook, versions) in &changes {
        assert_eq!(twice.left(of, *webhook, versions), None);
    }
}

#[test]
fn broken_runner_count_resets_after_answer() {
    let unseen = |broke| Unseen { reason: reason::SOURCE_UNREACHABLE, message: String::new(), broke };
    for (broke, before, after) in
        [(Some(1), 0, 1), (Some(1), 1, 2), (Some(2), 0, 2), (Some(0), 1, 1), (Some(0), 0, 0), (None, 3, 0)]
    {
        assert_eq!(unseen(broke).broke_after(before), after, "{broke:?} after {before}");
    }
}

#[test]
fn failing_source_check_interval_grows() {
    let minute = Duration::from_secs(60);
    assert_eq!(wait_after(0, minute), minute);
    let around = |wait: Duration, seconds: f64| {
        let found = wait.as_secs_f64();
        assert!((seconds * 0.8..=seconds * 1.2).contains(&found), "{found} is not around {seconds}");
    };
    for (failures, seconds) in [(1, 120.0), (2, 240.0), (3, 480.0), (4, 600.0), (1000, 600.0)] {
        around(wait_after(failures, minute), seconds);
    }
    around(wait_after(5, Duration::from_secs(3600)), 3600.0);
    let waits: BTreeSet<Duration> = (0..20).map(|_| wait_after(3, minute)).collect();
    assert!(waits.len() > 1, "all at the same moment");
}
