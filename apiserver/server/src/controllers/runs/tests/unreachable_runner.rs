//! Runs that get nowhere, since no function-runner is there: who has their places, and what is still theirs.

use std::sync::atomic::AtomicUsize;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stoa_proto::{
    ApplyEvent, ApplyRequest, HeartbeatEvent, PlanRequest, PlanResponse, ResolveRequest, ResolveResponse,
    apply_event::Event,
};
use stoa_runs::testing::{Answer, Events, FakeRunner, runner_at_each};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::fenced_runners::{A, deleting};
use super::*;

/// Longer than a run is tried with its place kept, and shorter than anybody waits.
const LONG: Duration = Duration::from_secs(11);

impl TestServer {
    /// A scheduler with so many places that has seen these runs.
    async fn scheduling(&mut self, places: usize, names: &[&str]) -> Scheduler {
        self.services.max_runs = places;
        let mut scheduler = Scheduler::new(self.services.clone(), self.end.clone());
        for name in names {
            scheduler.see(self.run(name).await).await;
        }
        scheduler
    }

    async fn run(&self, name: &str) -> Run {
        self.registry.api::<Run>().get("shop", name).await.unwrap()
    }

    async fn uid(&self, name: &str) -> String {
        self.run(name).await.uid().unwrap()
    }

    async fn start_preview(&self, name: &str, timeout: &str) {
        let spec = json!({"stack": "web", "workspace": "dev", "operation": "Preview", "timeout": timeout});
        self.create("Run", name, spec).await;
    }

    /// Waits until a run says that something is in its way.
    async fn gets_nowhere(&self, name: &str) {
        let is_told = |status: &RunStatus| {
            condition(&status.conditions, reason::WAITING).is_some_and(|waits| waits.reason == reason::WAITING)
        };
        self.until(name, is_told).await;
        // Its task goes on from there.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

/// The scheduler of a world in which the run `one` got nowhere and has given its place, the only one, to the run `two`; the uid
/// of `one`, which has so much time.
async fn stuck_one(world: &mut TestServer, timeout: &str) -> (Scheduler, String) {
    Box::pin(world.start_preview("one", timeout)).await;
    Box::pin(world.start_preview("two", "1h")).await;
    let mut scheduler = Box::pin(world.scheduling(1, &["one", "two"])).await;
    Box::pin(world.gets_nowhere("one")).await;
    pass(LONG).await;
    scheduler.next_ends().await;
    (scheduler, world.uid("one").await)
}

impl Scheduler {
    /// Whether a run is executed, and then whether it has a place.
    fn has_place(&self, uid: &str) -> Option<bool> {
        self.active.get(uid).map(|active| active.has_place)
    }
}

/// Lets time pass that nobody has to wait for.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn stuck_run_occupies_slot_only_during_attempts() {
    let mut world = TestServer::new().await;
    world.start_preview("one", "1h").await;
    world.start_preview("two", "1h").await;
    let mut scheduler = world.scheduling(1, &["one", "two"]).await;
    let (one, two) = (world.uid("one").await, world.uid("two").await);
    world.gets_nowhere("one").await;
    assert!(scheduler.tasks.join_next().now_or_never().is_none(), "what is in the way may pass at once");
    pass(LONG).await;
    assert_eq!(scheduler.next_ends().await, one);
    assert_eq!((scheduler.has_place(&one), scheduler.has_place(&two)), (None, Some(true)));
    assert_eq!(status(&world.run("one").await).phase, RunPhase::Generating, "it has begun, and has not ended");

    // What it wrote last is not news.
    scheduler.see(world.run("one").await).await;
    scheduler.sweep().await;
    assert_eq!(scheduler.slots.waiting().count(), 0, "it is not tried again at once");
    pass(LONG).await;
    scheduler.sweep().await;
    assert_eq!((scheduler.slots.waiting().count(), scheduler.waiting().count()), (1, 0), "it says what is in its way");
    world.gets_nowhere("two").await;
    pass(LONG).await;
    assert_eq!(scheduler.next_ends().await, two);
    assert_eq!((scheduler.has_place(&one), scheduler.has_place(&two)), (Some(true), None), "they take turns");
    // It is tried once.
    assert_eq!(scheduler.next_ends().await, one);
    assert_eq!(scheduler.has_place(&one), None);
}

#[tokio::test]
async fn cancellation_ends_stuck_run_immediately() {
    for is_queued in [false, true] {
        let mut world = TestServer::new().await;
        let (mut scheduler, one) = stuck_one(&mut world, "1h").await;
        if is_queued {
            scheduler.later.values_mut().for_each(|at| *at = Instant::now());
            scheduler.sweep().await;
        }
        assert_eq!(scheduler.slots.waiting().count(), usize::from(is_queued));
        world.change("one", |run| run.spec.cancel = true).await;
        scheduler.see(world.run("one").await).await;
        assert_eq!(scheduler.has_place(&one), Some(false), "it needs none to end");
        assert_eq!(scheduler.next_ends().await, one);
        assert_eq!(status(&world.run("one").await).phase, RunPhase::Canceled);
        assert!(!scheduler.stuck.contains_key(&one) && !scheduler.began.contains_key(&one));
        assert_eq!(scheduler.slots.waiting().count(), 0);
    }
}

#[tokio::test]
async fn timeout_ends_stuck_run_in_any_queue() {
    for is_queued in [false, true] {
        let mut world = TestServer::new().await;
        let (mut scheduler, one) = stuck_one(&mut world, "60s").await;
        if is_queued {
            scheduler.later.values_mut().for_each(|at| *at = Instant::now());
        } else {
            scheduler.later.clear();
        }
        scheduler.sweep().await;
        assert_eq!((scheduler.has_place(&one), scheduler.slots.waiting().count()), (None, usize::from(is_queued)));
        pass(Duration::from_secs(50)).await;
        scheduler.sweep().await;
        assert_eq!(scheduler.has_place(&one), Some(false), "it needs none to end");
        let mut ended = String::new();
        while ended != one {
            ended = scheduler.next_ends().await;
        }
        let end = status(&world.run("one").await);
        assert_eq!((end.phase, why(&end.conditions)), (RunPhase::Failed, reason::TIMED_OUT));
        let message = &condition(&end.conditions, reason::FAILED).unwrap().message;
        assert!(message.contains("the run took longer than 60s; it was waiting: "), "{message}");
    }
}

#[tokio::test]
async fn stuck_applying_run_retains_its_turn() {
    let mut world = TestServer::new().await;
    for name in ["one", "two"] {
        world.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": "Destroy"})).await;
    }
    // As it is left by a server that ended.
    let start = Some(Time(world.services.now()));
    let applying = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        (status.phase, status.start_time) = (RunPhase::Applying, start.clone());
    };
    world.registry.api::<Run>().update_status_with("shop", "one", applying).await.unwrap();
    let start = status(&world.run("one").await).start_time;
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
    let mut scheduler = world.scheduling(8, &["one", "two"]).await;
    let (one, two) = (world.uid("one").await, world.uid("two").await);
    world.gets_nowhere("one").await;
    for times in 1..4 {
        pass(LONG).await;
        scheduler.sweep().await;
        assert_eq!((scheduler.has_place(&one), scheduler.has_place(&two)), (Some(true), None), "{times}");
        assert_eq!(scheduler.next_ends().await, one);
        assert_eq!((scheduler.has_place(&one), scheduler.lanes.has_turn(&one)), (None, true), "{times}");
        let status = status(&world.run("one").await);
        assert_eq!((status.phase, &status.start_time, status.completion_time), (RunPhase::Applying, &start, None));
        // Its time goes on, and no lease is held that would keep another server from going on with it.
        let spent = scheduler.began[&one].spent();
        assert!(spent >= LONG * times, "{spent:?}");
        let lease = world.services.log.acquire(&format!("run/{stack}/dev"), "another", LONG).await.unwrap();
        world.services.log.release(&lease).await.unwrap();
        scheduler.see(world.run("two").await).await;
        assert_eq!(scheduler.has_place(&two), None, "it is not its turn");
    }
    world.change("one", |run| run.spec.cancel = true).await;
    scheduler.see(world.run("one").await).await;
    assert_eq!(scheduler.next_ends().await, one);
    assert_eq!(status(&world.run("one").await).phase, RunPhase::Canceled);
    assert_eq!(scheduler.has_place(&two), Some(true), "its turn comes");
}

#[tokio::test]
async fn deleted_stuck_run_leaves_no_state() {
    let mut world = TestServer::new().await;
    world.apply("one").await;
    world.apply("two").await;
    let mut scheduler = world.scheduling(8, &["one", "two"]).await;
    let (one, two) = (world.uid("one").await, world.uid("two").await);
    world.gets_nowhere("one").await;
    pass(LONG).await;
    scheduler.next_ends().await;
    assert!(scheduler.stuck.contains_key(&one));
    scheduler.gone(&world.run("one").await);
    assert!(scheduler.stuck.is_empty() && !scheduler.began.contains_key(&one));
    assert_eq!(scheduler.has_place(&two), Some(true));
}

/// A function-runner that goes away, as far as its callers see, when something is to be resolved, or an apply begins.
#[derive(Clone)]
struct Mortal(Arc<AtomicUsize>);

impl Mortal {
    fn ends(&self) -> Status {
        self.0.fetch_add(1, Ordering::Relaxed);
        Status::unknown("transport error")
    }
}

#[tonic::async_trait]
impl FakeRunner for Mortal {
    async fn resolve(&self, _: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        Err(self.ends())
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Answer<PlanResponse> {
        let planned = deleting(&[A]);
        let plan = serde_json::to_vec(&planned).unwrap().into();
        Ok(Response::new(PlanResponse { plan, digest: planned.digest(), ..PlanResponse::default() }))
    }

    async fn apply(&self, _: Request<Streaming<ApplyRequest>>) -> Answer<Events> {
        let (events, stream) = mpsc::channel(2);
        let begin = Event::Heartbeat(HeartbeatEvent { instance: "it".to_owned() });
        for event in [Ok(ApplyEvent { sequence: 1, event: Some(begin) }), Err(self.ends())] {
            events.send(event).await.unwrap();
        }
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Starts a run in whose calls all of so many function-runners go away, and waits until it fails.
async fn run_ends_runners(operation: &str, runners: usize) {
    let mortal = Mortal(Arc::default());
    let addresses: Vec<_> = (0..runners).map(|_| mortal.clone().serve()).collect();
    let mut world = TestServer::with_runner(runner_at_each(&addresses)).await;
    world.create("Run", "one", json!({"stack": "web", "workspace": "dev", "operation": operation})).await;
    let mut scheduler = world.scheduling(1, &["one"]).await;
    let one = world.uid("one").await;
    for seconds in [10, 20, 40, 80] {
        assert_eq!(scheduler.next_ends().await, one);
        assert_eq!(scheduler.has_place(&one), None, "others have it");
        let wait = scheduler.stuck[&one].tries.again();
        assert!(wait >= Duration::from_secs(seconds), "{wait:?} for {seconds} s");
        let said = world.run("one").await.status.unwrap();
        let said = &condition(&said.conditions, reason::WAITING).unwrap().message;
        assert!(said.contains("disconnected") && said.ends_with("; it is retried after a while"), "{said}");
        scheduler.later.values_mut().for_each(|at| *at = Instant::now());
        scheduler.sweep().await;
    }
    assert_eq!(scheduler.next_ends().await, one);
    let end = status(&world.run("one").await);
    assert_eq!((end.phase, why(&end.conditions)), (RunPhase::Failed, reason::RUNNER_UNAVAILABLE));
    let said = &condition(&end.conditions, reason::FAILED).unwrap().message;
    assert!(said.contains("in the middle of 6 consecutive calls of this run"), "{said}");
    // Before a runner has said that it is there nobody takes it for one that ended.
    assert!(mortal.0.load(Ordering::Relaxed) >= 6, "{:?}", mortal.0);
    assert!(!scheduler.stuck.contains_key(&one));
}

#[tokio::test]
async fn run_that_breaks_runners_backs_off_and_fails() {
    Box::pin(run_ends_runners("Preview", 1)).await;
}

#[tokio::test]
async fn run_ends_six_function_runners_however_many_there_are() {
    Box::pin(run_ends_runners("Preview", 4)).await;
}

#[tokio::test]
async fn apply_that_breaks_runners_backs_off_and_fails() {
    Box::pin(run_ends_runners("Destroy", 4)).await;
}
