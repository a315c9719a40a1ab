//! Function-runners that may only be cut off: what they are doing is over before another begins.

use std::{net::SocketAddr, sync::Mutex, time::Instant};

use prost::Message as _;
use stoa_engine::{
    Plan,
    render::{Colour, render},
};
use stoa_machinery::{Key, log};
use stoa_proto::{
    Ack, ApplyEvent, ApplyRequest, ApplyStart, AwaitedRequest, AwaitedResponse, CompareRequest, CompareResponse,
    FinishedEvent, GenerateRequest, GenerateResponse, HeartbeatEvent, IntentEvent, LookAtComplianceRequest,
    LookAtComplianceResponse, LookAtProposalRequest, Place, PlanRequest, PlanResponse, Problem, Proposal,
    ResolveRequest, ResolveResponse, ResultEvent, apply_event::Event, apply_request::Message,
};
use stoa_runs::testing::{ANYWHERE, Answer, Events, FakeRunner, runner_at};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::*;

/// How long the calls of a runner are waited for that is not heard of any more.
const WAITED_OUT: Duration = Duration::from_secs(8);
/// Longer than anything takes that is not waited for, and shorter than that.
pub(super) const SOON: Duration = Duration::from_secs(7);

/// What a scripted runner plans, which may change while it is at work.
pub(super) type Planned = Arc<Mutex<Plan>>;

/// What a scripted runner finds of pull request 7, which may change meanwhile.
#[derive(Debug)]
pub(super) struct Found {
    proposal: Mutex<Result<Proposal, Status>>,
    /// How often it was looked at.
    looks: watch::Sender<usize>,
}

pub(super) type Proposed = Arc<Found>;

impl Found {
    pub(super) fn new(proposal: Result<Proposal, Status>) -> Proposed {
        Arc::new(Self { proposal: Mutex::new(proposal), looks: watch::Sender::new(0) })
    }

    pub(super) fn set(&self, proposal: Result<Proposal, Status>) {
        *self.proposal.lock().unwrap() = proposal;
    }

    /// Waits until so many looks more were answered.
    pub(super) async fn looked_at(&self, times: usize) {
        assert!(self.is_looked_at(times, PATIENCE).await, "somebody looks");
    }

    /// Whether so many looks more are answered in time.
    pub(super) async fn is_looked_at(&self, times: usize, within: Duration) -> bool {
        let mut looks = self.looks.subscribe();
        let enough = *looks.borrow() + times;
        let looked = looks.wait_for(|looks| *looks >= enough);
        tokio::time::timeout(within, looked).await.is_ok()
    }
}

/// What a scripted runner finds in the clusters of a workspace, which may change meanwhile.
pub(super) type Clusters = Arc<Mutex<Vec<stoa_proto::ReconcilerCompliance>>>;

/// What a scripted runner waits for, which may change. It does not answer about a plan as long as there is something.
pub(super) type Awaits = watch::Sender<Vec<String>>;

/// What a scripted runner renders of any commit, with these warnings, which commits are in the history of all others, and which
/// version there is not. Without a Spec it has no room to look at commits; where it is held up it does not answer for now.
#[derive(Clone, Debug, Default)]
pub(super) struct Rendered {
    /// The version of its tool, which may change meanwhile.
    pub(super) generator_version: Arc<Mutex<String>>,
    pub(super) spec: &'static str,
    pub(super) warnings: Vec<String>,
    pub(super) earlier: Vec<String>,
    pub(super) lacking: &'static str,
    pub(super) held: Awaits,
}

/// A runner that plans what it is told, and lets the test carry it out.
#[derive(Debug)]
pub(super) struct Scripted {
    rendered: Rendered,
    planned: Planned,
    proposal: Proposed,
    clusters: Clusters,
    awaits: Awaits,
    conversations: mpsc::UnboundedSender<Conversation>,
}

/// The runner's side of an apply.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) start: ApplyStart,
    requests: Streaming<ApplyRequest>,
    events: mpsc::Sender<Result<ApplyEvent, Status>>,
    sequence: u64,
}

/// What a scripted runner says to whoever wants something rendered: a Destroy needs no source.
pub(super) const BUSY: &str = "the runner has no room for more";

/// Before deletions: where they go, which an earlier runner does not say.
fn intent(ids: &[String], places: Vec<Place>) -> Event {
    Event::Intent(IntentEvent { ids: ids.to_vec(), action: "Delete".to_owned(), places })
}

fn nothing_proposed() -> Proposed {
    Found::new(Err(Status::not_found("there is none")))
}

/// A plan that deletes these.
pub(super) fn deleting(ids: &[&str]) -> Plan {
    let actions: Vec<Value> =
        ids.iter().map(|id| json!({"id": id, "type": "Kubernetes", "action": "Delete", "changes": []})).collect();
    serde_json::from_value(json!({"schemaVersion": 1, "specDigest": "", "actions": actions})).unwrap()
}

impl Scripted {
    /// Starts one whose plans delete these.
    pub(super) async fn start(ids: &[&str]) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        Self::planning(Arc::new(Mutex::new(deleting(ids)))).await
    }

    /// Starts one that plans what it finds there.
    pub(super) async fn planning(planned: Planned) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        Self::proposing(planned, nothing_proposed()).await
    }

    /// Starts one that finds this of a pull request.
    pub(super) async fn proposing(
        planned: Planned,
        proposal: Proposed,
    ) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        Self::answering(ANYWHERE, planned, proposal, Clusters::default())
    }

    /// Starts one that finds this in the clusters.
    pub(super) async fn reconciling(
        planned: Planned,
        clusters: Clusters,
    ) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        Self::answering(ANYWHERE, planned, nothing_proposed(), clusters)
    }

    /// Starts one that says what it waits for.
    pub(super) async fn awaiting(ids: &[&str], awaits: Awaits) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        let (conversations, received) = mpsc::unbounded_channel();
        let (planned, proposal) = (Arc::new(Mutex::new(deleting(ids))), nothing_proposed());
        let clusters = Clusters::default();
        let scripted = Self { rendered: Rendered::default(), planned, proposal, clusters, awaits, conversations };
        (scripted.serve(), received)
    }

    /// Starts one that renders this.
    pub(super) async fn rendering(
        planned: Planned,
        rendered: Rendered,
    ) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        Self::rendering_and_proposing(planned, rendered, nothing_proposed()).await
    }

    /// Starts one that does both.
    pub(super) async fn rendering_and_proposing(
        planned: Planned,
        rendered: Rendered,
        proposal: Proposed,
    ) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        let (conversations, received) = mpsc::unbounded_channel();
        let (clusters, awaits) = (Clusters::default(), Awaits::default());
        (Self { rendered, planned, proposal, clusters, awaits, conversations }.serve(), received)
    }

    /// Starts one at an address that is free.
    pub(super) async fn start_at(address: SocketAddr, ids: &[&str]) -> mpsc::UnboundedReceiver<Conversation> {
        let planned = Arc::new(Mutex::new(deleting(ids)));
        Self::answering(address, planned, nothing_proposed(), Clusters::default()).1
    }

    fn answering(
        address: SocketAddr,
        planned: Planned,
        proposal: Proposed,
        clusters: Clusters,
    ) -> (SocketAddr, mpsc::UnboundedReceiver<Conversation>) {
        let (conversations, received) = mpsc::unbounded_channel();
        let (rendered, awaits) = (Rendered::default(), Awaits::default());
        let scripted = Self { rendered, planned, proposal, clusters, awaits, conversations };
        (scripted.serve_at(address), received)
    }
}

#[tonic::async_trait]
impl FakeRunner for Scripted {
    async fn compare(&self, request: Request<CompareRequest>) -> Answer<CompareResponse> {
        let is_in_base = self.rendered.earlier.contains(&request.into_inner().commit);
        Ok(Response::new(CompareResponse { is_in_base, ..CompareResponse::default() }))
    }

    async fn generate(&self, _: Request<GenerateRequest>) -> Answer<GenerateResponse> {
        let (spec, warnings) = (self.rendered.spec.into(), self.rendered.warnings.clone());
        Ok(Response::new(GenerateResponse {
            spec,
            warnings,
            generator: "Spec".to_owned(),
            generator_version: self.rendered.generator_version.lock().unwrap().clone(),
            ..GenerateResponse::default()
        }))
    }

    async fn resolve(&self, request: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        let mut held = self.rendered.held.subscribe();
        held.wait_for(Vec::is_empty).await.expect("the runner is there");
        if !self.rendered.spec.is_empty() {
            let commit = request.into_inner().version;
            if commit == self.rendered.lacking {
                let (reason, message) = (reason::VERSION_NOT_FOUND.to_owned(), format!("it has no commit {commit:?}"));
                let problem = Problem { reason, message: message.clone(), ..Problem::default() };
                return Err(Status::with_details(Code::NotFound, message, problem.encode_to_vec().into()));
            }
            return Ok(Response::new(ResolveResponse { commit, ..ResolveResponse::default() }));
        }
        let problem = Problem { reason: "Busy".to_owned(), message: BUSY.to_owned(), ..Problem::default() };
        Err(Status::with_details(Code::ResourceExhausted, BUSY, problem.encode_to_vec().into()))
    }

    async fn look_at_proposal(&self, request: Request<LookAtProposalRequest>) -> Answer<Proposal> {
        let LookAtProposalRequest { workspace, number, .. } = request.into_inner();
        assert_eq!((workspace.unwrap().name.as_str(), number), ("dev", 7));
        let found = self.proposal.proposal.lock().unwrap().clone();
        self.proposal.looks.send_modify(|looks| *looks += 1);
        Ok(Response::new(found?))
    }

    async fn look_at_compliance(&self, request: Request<LookAtComplianceRequest>) -> Answer<LookAtComplianceResponse> {
        let reconcilers = self.clusters.lock().unwrap().clone();
        let of = |commit| stoa_proto::Compliance { commit, reconcilers: reconcilers.clone() };
        let commits = request.into_inner().commits.into_iter().map(of).collect();
        Ok(Response::new(LookAtComplianceResponse { commits }))
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Answer<PlanResponse> {
        let mut awaits = self.awaits.subscribe();
        awaits.wait_for(Vec::is_empty).await.expect("the runner is there");
        let planned = self.planned.lock().unwrap().clone();
        let plan = serde_json::to_vec(&planned).unwrap().into();
        let table = render(&planned, Colour::Never);
        let (digest, warnings) = (planned.digest(), planned.warnings);
        Ok(Response::new(PlanResponse { plan, digest, table, warnings, ..PlanResponse::default() }))
    }

    async fn awaited(&self, _: Request<AwaitedRequest>) -> Answer<AwaitedResponse> {
        let awaited = self.awaits.borrow().clone();
        Ok(Response::new(AwaitedResponse { at_work: true, awaited }))
    }

    async fn apply(&self, request: Request<Streaming<ApplyRequest>>) -> Answer<Events> {
        let mut requests = request.into_inner();
        let start = requests.message().await?;
        let Some(ApplyRequest { message: Some(Message::Start(start)) }) = start else { panic!("{start:?}") };
        let (events, stream) = mpsc::channel(16);
        self.conversations.send(Conversation { start, requests, events, sequence: 0 }).unwrap();
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

impl Conversation {
    pub(super) async fn tell(&mut self, event: Event) {
        self.sequence += 1;
        self.events.send(Ok(ApplyEvent { sequence: self.sequence, event: Some(event) })).await.unwrap();
    }

    /// Tells something and waits for its ack.
    pub(super) async fn ask(&mut self, event: Event) -> Ack {
        self.tell(event).await;
        let heard = tokio::time::timeout(PATIENCE, self.requests.message()).await.expect("it is acked").unwrap();
        match heard.and_then(|heard| heard.message) {
            Some(Message::Ack(ack)) if ack.sequence == self.sequence => ack,
            other => panic!("{other:?} is no ack of event {}", self.sequence),
        }
    }

    /// Asks to begin as this process; what is granted.
    pub(super) async fn begin(&mut self, instance: &str) -> Ack {
        self.ask(Event::Heartbeat(HeartbeatEvent { instance: instance.to_owned() })).await
    }

    /// Waits until it is told to stop.
    pub(super) async fn told_to_stop(&mut self) {
        let heard = tokio::time::timeout(PATIENCE, self.requests.message()).await.expect("it is told").unwrap();
        let heard = heard.and_then(|heard| heard.message);
        assert!(matches!(heard, Some(Message::Cancel(_))), "{heard:?} tells nobody to stop");
    }

    /// Deletes the resources and ends in order.
    pub(super) async fn carry_out(self, ids: &[&str]) {
        self.commit(ids, "").await;
    }

    /// The same by a commit in a repository.
    pub(super) async fn commit(mut self, ids: &[&str], commit: &str) {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        self.ask(intent(&ids, Vec::new())).await;
        for id in ids {
            let (action, outcome) = ("Delete".to_owned(), "Done".to_owned());
            self.ask(Event::Result(ResultEvent { id, action, outcome, ..ResultEvent::default() })).await;
        }
        let gitops_commit = commit.to_owned();
        self.tell(Event::Finished(FinishedEvent { succeeded: true, gitops_commit, ..FinishedEvent::default() })).await;
    }

    /// Proposes to delete the resource.
    pub(super) async fn propose(mut self, id: &str, proposal: Proposal) {
        self.ask(intent(&[id.to_owned()], Vec::new())).await;
        let (action, outcome) = ("Delete".to_owned(), "Skipped".to_owned());
        let result = ResultEvent { id: id.to_owned(), action, outcome, ..ResultEvent::default() };
        self.ask(Event::Result(result)).await;
        self.tell(Event::Finished(FinishedEvent { proposal: Some(proposal), ..FinishedEvent::default() })).await;
    }

    /// Ends with an error.
    async fn fail(self, status: Status) {
        self.events.send(Err(status)).await.unwrap();
    }
}

impl TestServer {
    /// One with the controller at work and a scripted runner whose plans delete these.
    pub(super) async fn scripted(ids: &[&str]) -> (Self, mpsc::UnboundedReceiver<Conversation>) {
        let (address, conversations) = Scripted::start(ids).await;
        (Self::with_runner(runner_at(address)).await.controlled(), conversations)
    }

    pub(super) async fn destroy(&self, name: &str) {
        self.create("Run", name, json!({"stack": "web", "workspace": "dev", "operation": "Destroy"})).await;
    }

    pub(super) async fn head_key(&self) -> Key {
        let uid = self.registry.api::<Stack>().get("shop", "web").await.unwrap().uid().unwrap();
        Key::new(format!("/stoa/state/{uid}/dev/head"))
    }

    /// What the head says, once it does about its runner what is expected.
    async fn head(&self, runner: Option<&str>) -> Value {
        let key = self.head_key().await;
        let expected = runner.map_or(Value::Null, Value::from);
        let found = async {
            let there = self.services.log.scan(key.as_str(), None).await.unwrap();
            let mut head: Value =
                there.entries.first().map_or(Value::Null, |e| serde_json::from_slice(&e.value).unwrap());
            let mut records = self.services.log.follow(there.version).await.unwrap();
            while head["runner"] != expected {
                let record = records.next().await.expect("the log goes on").unwrap();
                if let (true, log::Change::Put(value)) = (record.key == key, &record.change) {
                    head = serde_json::from_slice(value).unwrap();
                }
            }
            head
        };
        tokio::time::timeout(SOON, found).await.unwrap_or_else(|_| panic!("the head never says {runner:?}"))
    }

    pub(super) async fn journal(&self, run: &str) -> String {
        self.get(&format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/{run}/log")).await.text().await
    }
}

pub(super) const A: &str = "v1:ConfigMap:shop:a";

#[tokio::test(flavor = "multi_thread")]
async fn second_runner_waits_for_expired_lease() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut first = conversations.recv().await.unwrap();
    let ack = first.begin("first").await;
    assert!((1_000..=6_000).contains(&ack.lease_millis), "{ack:?}");
    // It was written before the ack.
    let key = world.head_key().await;
    let head = world.services.log.scan(key.as_str(), None).await.unwrap().entries.remove(0);
    let written: Value = serde_json::from_slice(&head.value).unwrap();
    assert_eq!((&written["runner"], &written["dirty"]), (&json!("first"), &json!(true)));
    let place = Place {
        clusters: vec!["east".to_owned(), "main".to_owned()],
        import_id: "shop/a".to_owned(),
        r#type: "Kubernetes".to_owned(),
    };
    let ack = first.ask(intent(&[A.to_owned()], vec![place.clone()])).await;
    assert!(ack.lease_millis > 1_000, "{ack:?}");

    // The same process sees itself to it that nothing of the first conversation is under way any more.
    drop(first);
    let mut second = tokio::time::timeout(SOON, conversations.recv()).await.unwrap().unwrap();
    tokio::time::timeout(SOON, second.begin("first")).await.expect("it begins at once");
    let [entry] = &second.start.state[..] else { panic!("{:?}", second.start.state) };
    assert_eq!(
        (&*entry.id, entry.intent.as_ref().unwrap().place.as_ref()),
        (A, Some(&place)),
        "it knows where to look"
    );
    let now = world.services.log.scan(key.as_str(), None).await.unwrap().entries.remove(0);
    assert_eq!(now.version, head.version, "nothing new had to be written");

    // What is between the two says that it is gone, and knows nothing of the calls.
    let broken = Instant::now();
    second.fail(Status::unavailable("connection reset")).await;
    let mut third = tokio::time::timeout(SOON, conversations.recv()).await.unwrap().unwrap();
    third.begin("another").await;
    let waited = broken.elapsed();
    assert!(waited >= WAITED_OUT, "{waited:?}");
    world.head(Some("another")).await;
    assert!(world.journal("one").await.contains("the connection to another function-runner was lost"));
    third.carry_out(&[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
    assert_eq!(world.head(None).await["dirty"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_runner_starts_immediately_after_reported_end() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut first = conversations.recv().await.unwrap();
    first.begin("first").await;
    let problem = Problem { message: "the runner was told to end".to_owned(), ..Problem::default() };
    let status = Status::with_details(Code::Unavailable, "it ends", problem.encode_to_vec().into());
    first.fail(status).await;
    assert_eq!(world.head(None).await["dirty"], true);
    let mut second = tokio::time::timeout(SOON, conversations.recv()).await.unwrap().unwrap();
    tokio::time::timeout(SOON, second.begin("another")).await.expect("it begins at once");
    // So does the next run after one that failed.
    second.tell(Event::Finished(FinishedEvent::default())).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Failed);
    world.head(None).await;
    world.destroy("two").await;
    let mut third = conversations.recv().await.unwrap();
    tokio::time::timeout(SOON, third.begin("a third")).await.expect("it begins at once");
    third.carry_out(&[A]).await;
    assert_eq!(world.ended("two").await.phase, RunPhase::Succeeded);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_runner_starts_after_silence_timeout() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    world.destroy("one").await;
    let mut first = conversations.recv().await.unwrap();
    let silent = Instant::now();
    first.begin("first").await;
    let mut second = tokio::time::timeout(WAITED_OUT + SOON, conversations.recv()).await.unwrap().unwrap();
    assert!(silent.elapsed() >= WAITED_OUT, "{:?}", silent.elapsed());
    tokio::time::timeout(SOON, second.begin("another")).await.expect("it begins at once");
    second.carry_out(&[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_that_jumps_changes_nothing_of_an_apply() {
    let (address, mut conversations) = Scripted::start(&[A]).await;
    let mut world = TestServer::with_runner(runner_at(address)).await;
    let shift = Arc::<AtomicI64>::default();
    world.services.clock = Arc::new(Shifted(shift.clone()));
    let world = world.controlled();
    world.destroy("one").await;
    let mut only = conversations.recv().await.unwrap();
    only.begin("only").await;
    for days in [-400, 400] {
        shift.store(days * 86_400_000, Ordering::Relaxed);
        let ack = only.ask(Event::Heartbeat(HeartbeatEvent { instance: "only".to_owned() })).await;
        assert!((1_000..=6_000).contains(&ack.lease_millis), "{ack:?} after {days} days");
    }
    only.carry_out(&[A]).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded);
    assert!(conversations.try_recv().is_err(), "one runner did it");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_awaiting_lost_runner_accepts_cancellation() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let head = json!({"run": "lost", "dirty": true, "lastRelease": 0, "lastReleaseRun": "", "runner": "lost"});
    let write = log::Write::new(world.head_key().await, log::Expect::Absent, log::Change::Put(head.to_string().into()));
    world.services.log.append(write).await.unwrap();
    world.destroy("one").await;
    let mut waiting = conversations.recv().await.unwrap();
    waiting.tell(Event::Heartbeat(HeartbeatEvent { instance: "another".to_owned() })).await;
    let heard = tokio::time::timeout(WAITED_OUT / 4, waiting.requests.message()).await;
    assert!(heard.is_err(), "{heard:?} though the lost one may have calls under way");
    world.change("one", |run| run.spec.cancel = true).await;
    let ended = tokio::time::timeout(SOON, world.ended("one")).await.expect("it ends at once");
    assert_eq!(ended.phase, RunPhase::Canceled);
    world.head(Some("lost")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_without_changes_writes_nothing_of_its_runner() {
    let (address, mut conversations) = Scripted::start(&[]).await;
    let world = TestServer::with_runner(runner_at(address)).await.controlled();
    world.destroy("one").await;
    let mut only = conversations.recv().await.unwrap();
    only.begin("only").await;
    only.carry_out(&[]).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, ended.runner), (RunPhase::Succeeded, Some(address.to_string())));
    assert!(world.services.log.scan("/stoa/state/", None).await.unwrap().entries.is_empty());
}
