//! What is started, and what is not, over a log in memory and a runner that knows commits by heart.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;
use serde_json::Value;
use stoa_controller::conditions::set_condition;
use stoa_kinds::testing::deploying;
use stoa_machinery::{
    Object, Registry,
    admission::{self, AdmissionPlugin, Attributes, Chain, Reinvocation},
};
use stoa_proto::{CompareRequest, CompareResponse, ContentRequest, ContentResponse};
use stoa_runs::{
    runner::{self},
    testing::{Answer, FakeRunner, runner_at},
};
use stoa_types::{Condition, Source, common::condition, delivery::RunPhase};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

use super::{start::NAMES, *};
use crate::testing::TestServer as Runs;

mod people;

/// Longer than anything here takes, and shorter than a source is waited for.
const LONG: Duration = Duration::from_secs(20);

/// The contents of the stack's folder by commit, which commits are slow to be compared, and which are in all others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commits(
    pub(crate) Arc<Mutex<BTreeMap<String, String>>>,
    pub(crate) Arc<Slow>,
    pub(crate) Arc<Mutex<BTreeSet<String>>>,
);

/// The commits that are not compared for now, and those of which nothing is heard that are looked into.
#[derive(Debug, Default)]
pub(crate) struct Slow {
    commits: Mutex<BTreeSet<String>>,
    contents: Mutex<BTreeSet<String>>,
    /// Somebody waits for one.
    pub(crate) asked: tokio::sync::Notify,
}

impl Slow {
    pub(crate) fn hang(&self, commit: &str) {
        self.commits.lock().insert(commit.to_owned());
    }

    pub(crate) fn answer(&self, commit: &str) {
        self.commits.lock().remove(commit);
    }
}

#[tonic::async_trait]
impl FakeRunner for Commits {
    async fn compare(&self, request: Request<CompareRequest>) -> Answer<CompareResponse> {
        let CompareRequest { base, commit, mut paths, .. } = request.into_inner();
        let is_slow = self.1.commits.lock().contains(&commit);
        if is_slow {
            self.1.asked.notify_one();
            std::future::pending::<()>().await;
        }
        let commits = self.0.lock();
        let (Some(before), Some(after)) = (commits.get(&base), commits.get(&commit)) else {
            return Err(Status::not_found("no such commit"));
        };
        paths.retain(|path| path == "web" && before != after);
        Ok(Response::new(CompareResponse { changed: paths, is_in_base: self.2.lock().contains(&commit) }))
    }

    async fn content(&self, request: Request<ContentRequest>) -> Answer<ContentResponse> {
        let request = request.into_inner();
        assert_eq!(request.path, "web");
        let is_slow = self.1.contents.lock().contains(&request.commit);
        if is_slow {
            self.1.asked.notify_one();
            std::future::pending::<()>().await;
        }
        let found = self.0.lock().get(&request.commit).cloned();
        let digest = found.ok_or_else(|| Status::not_found("no such folder"))?;
        Ok(Response::new(ContentResponse { digest }))
    }
}

impl Commits {
    /// A runner that knows them.
    pub(crate) fn runner(&self) -> runner::Runner {
        runner_at(self.clone().serve())
    }
}

/// Looks at the stack `web` as a leader does that knows nothing yet.
pub(crate) async fn look_at_web(services: &Services) {
    Looker::default().look(services).await;
}

/// Looks at the stack `web`.
struct Looker {
    memory: Arc<Memory>,
    poked: tokio::sync::Mutex<mpsc::UnboundedReceiver<ObjectKey>>,
}

impl Default for Looker {
    fn default() -> Self {
        let (requeue, poked) = Requeue::new();
        Self { memory: Arc::new(Memory::new(requeue)), poked: poked.into() }
    }
}

impl Looker {
    /// Looks, and again when the source has answered that it asks; when it would again.
    async fn look(&self, services: &Services) -> Option<Duration> {
        loop {
            let key = ("shop".to_owned(), "web".to_owned());
            let again = look(services.clone(), self.memory.clone(), key).await.unwrap();
            if !self.memory.contents.is_asking() {
                return again;
            }
            self.poked.lock().await.recv().await;
        }
    }
}

struct World {
    runs: Runs,
    commits: Commits,
    looker: Looker,
}

impl World {
    /// A stack `web` that applies what changes, in workspace `dev`, with a commit `a`.
    async fn new() -> Self {
        let commits = Commits::default();
        Self::over(Runs::with_runner(commits.runner()).await, commits).await
    }

    async fn over(runs: Runs, commits: Commits) -> Self {
        let world = Self { runs, commits, looker: Looker::default() };
        world.push("a", "1").await;
        let follow = |stack: &mut Stack| {
            stack.spec.trigger = stoa_types::config::Trigger::Apply;
            stack.spec.workspaces = vec!["dev".to_owned()];
        };
        world.change(follow).await;
        world
    }

    /// The source is found at a commit with this folder.
    async fn push(&self, commit: &str, content: &str) {
        let commit = commit.repeat(40);
        self.commits.0.lock().insert(commit.clone(), content.to_owned());
        let moved = |source: &mut Source| source.status.get_or_insert_default().observed_commit = Some(commit.clone());
        self.runs.registry.api::<Source>().update_status_with("shop", "config", moved).await.unwrap();
    }

    async fn change(&self, change: impl FnMut(&mut Stack) + Send) {
        self.runs.registry.api::<Stack>().update_with("shop", "web", change).await.unwrap();
    }

    async fn stack(&self) -> Stack {
        self.runs.registry.api::<Stack>().get("shop", "web").await.unwrap()
    }

    /// Looks as the controller does; the condition after that.
    async fn look(&self) -> Option<Condition> {
        self.looker.look(&self.runs.services).await;
        self.told().await
    }

    async fn told(&self) -> Option<Condition> {
        condition(&self.stack().await.status.unwrap().conditions, reason::TRIGGERED).cloned()
    }

    /// The runs there are, as `<workspace> <first letter of the commit>`.
    async fn started(&self) -> Vec<String> {
        let mut runs = self.runs.registry.api::<Run>().list(Some("shop"), "").await.unwrap();
        let number = |run: &Run| run.metadata.resource_version.as_ref().unwrap().parse::<u64>().unwrap();
        runs.sort_by_key(number);
        let told = |run: &Run| format!("{} {}", run.spec.workspace, &run.spec.version.as_ref().unwrap()[..1]);
        runs.iter().map(told).collect()
    }

    /// The run that the status names.
    async fn last(&self) -> Run {
        let name = self.stack().await.status.unwrap().trigger.unwrap().started[0].run.clone();
        self.runs.registry.api::<Run>().get("shop", &name).await.unwrap()
    }

    async fn end(&self, run: &Run, phase: RunPhase) {
        let end = |run: &mut Run| run.status.get_or_insert_default().phase = phase;
        self.runs.registry.api::<Run>().update_status_with("shop", &run.name_any(), end).await.unwrap();
    }
}

#[tokio::test]
async fn one_run_is_started_for_what_changed() {
    let world = World::new().await;
    world.look().await;
    assert_eq!(world.started().await, ["dev a"]);
    let run = world.last().await;
    assert_eq!(
        (run.spec.operation, &run.spec.on_conflict),
        (Operation::Apply, &stoa_types::delivery::OnConflict::Queue)
    );
    assert_eq!(status(&run).requester.username, trigger::USER);
    world.end(&run, RunPhase::Succeeded).await;

    for (what, expected) in [("nothing", 1), ("a push elsewhere", 1), ("a description", 1), ("a push", 2)] {
        match what {
            "a push elsewhere" => world.push("b", "1").await,
            "a description" => world.change(|stack| stack.spec.description = Some("Web".to_owned())).await,
            "a push" => world.push("c", "2").await,
            _ => {}
        }
        world.look().await;
        // As another leader would, which has looked at nothing yet.
        world.looker.memory.contents.forget(&("shop".to_owned(), "web".to_owned()));
        world.look().await;
        assert_eq!(world.started().await.len(), expected, "{what}");
    }
    world.end(&world.last().await, RunPhase::Succeeded).await;
    world.push("d", "1").await;
    let told = world.look().await.unwrap();
    assert_eq!(world.started().await, ["dev a", "dev c", "dev d"], "what goes back is a change");
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("True", reason::STARTED));
    world.end(&world.last().await, RunPhase::Succeeded).await;
    world.change(|stack| drop(stack.spec.generator.parameters.insert("cell".to_owned(), "c1".to_owned()))).await;
    world.look().await;
    world.look().await;
    assert_eq!(world.started().await, ["dev a", "dev c", "dev d", "dev d"]);
    // A commit by its name needs no source.
    world.end(&world.last().await, RunPhase::Succeeded).await;
    world.change(|stack| stack.spec.desired_version = "a".repeat(40)).await;
    world.look().await;
    assert_eq!(world.started().await.last().unwrap(), "dev a");
}

#[tokio::test]
async fn restart_finds_run_created_before_crash() {
    let world = World::new().await;
    let (stack, commit) = (world.stack().await, "a".repeat(40));
    let cause = cause_of(&stack, Operation::Apply, "1");
    let create = || start(&world.runs.services, &stack, "dev", Operation::Apply, &commit, &cause);
    // The server ends before it notes what it did, and so does the next.
    let first = create().await.unwrap();
    assert_eq!(create().await.unwrap(), first);
    world.look().await;
    assert_eq!(world.started().await, ["dev a"]);
    assert_eq!(world.last().await.name_any(), first.run);
}

#[tokio::test]
async fn source_revert_supersedes_run_created_before_crash() {
    for is_noted_there in [true, false] {
        let world = World::new().await;
        world.look().await;
        let (noted, runs) = (world.last().await, world.runs.registry.api::<Run>());
        world.end(&noted, RunPhase::Succeeded).await;
        // The server ends before it notes what it started for a commit that is gone by the time it is back.
        let (stack, commit) = (world.stack().await, "b".repeat(40));
        let cause = cause_of(&stack, Operation::Apply, "2");
        let lost = start(&world.runs.services, &stack, "dev", Operation::Apply, &commit, &cause).await.unwrap().run;
        if !is_noted_there {
            let unhold = |run: &mut Run| run.finalizers_mut().clear();
            runs.delete("shop", &noted.name_any(), &Default::default()).await.unwrap();
            runs.update_with("shop", &noted.name_any(), unhold).await.unwrap();
        }
        let world = World { looker: Looker::default(), ..world };
        world.look().await;
        assert!(runs.get("shop", &lost).await.unwrap().spec.cancel, "nobody wants it any more");
        let last = world.last().await;
        assert_eq!(last.spec.version, Some("a".repeat(40)));
        assert_ne!(last.metadata.name, noted.metadata.name);
        let started = 3 - usize::from(!is_noted_there);
        assert_eq!(world.started().await.len(), started);
        world.end(&world.last().await, RunPhase::Succeeded).await;
        world.look().await;
        let world = World { looker: Looker::default(), ..world };
        world.look().await;
        assert_eq!(world.started().await.len(), started, "once is enough");
    }
}

#[tokio::test]
async fn name_that_somebody_took_keeps_nothing_from_being_started() {
    let world = World::new().await;
    let stack = world.stack().await;
    let name = name_of(&stack, "dev", &cause_of(&stack, Operation::Apply, "1"), 1);
    let taken = json!({"stack": "web", "workspace": "dev", "operation": "Preview", "version": "x"});
    world.runs.create("Run", &name, taken).await;
    world.look().await;
    assert_eq!(world.started().await, ["dev x", "dev a"]);
}

#[tokio::test]
async fn returning_workspace_counts_as_new() {
    let world = World::new().await;
    world.look().await;
    world.end(&world.last().await, RunPhase::Succeeded).await;
    for (workspaces, runs) in [(vec![], 1), (vec!["dev".to_owned()], 2)] {
        world.change(|stack| stack.spec.workspaces.clone_from(&workspaces)).await;
        world.look().await;
        assert_eq!(world.started().await.len(), runs, "{workspaces:?}");
    }
}

#[tokio::test]
async fn concurrent_stack_change_overrides_source_answer() {
    let world = World::new().await;
    let memory = &world.looker.memory;
    let follow = async |stack: Stack| {
        let (told, again) = follow(&world.runs.services, memory, stack, Operation::Apply).await.unwrap();
        (told.is_some(), again)
    };
    let before = world.stack().await;
    assert_eq!(follow(before.clone()).await, (false, Some(AGAIN)), "the source is asked");
    world.looker.poked.lock().await.recv().await.unwrap();
    world.change(|stack| stack.spec.trigger = stoa_types::config::Trigger::Manual).await;
    assert_eq!(follow(before).await, (false, Some(Duration::ZERO)));
    assert_eq!(world.started().await, [""; 0]);
    let now = world.stack().await;
    assert_eq!(follow(now).await, (true, None));
    assert_eq!(world.started().await, ["dev a"]);
}

#[tokio::test]
async fn unresponsive_sources_block_no_other_stack() {
    let world = World::new().await;
    let slow = "f".repeat(40);
    world.commits.1.contents.lock().insert(slow.clone());
    world.change(|stack| stack.spec.trigger = stoa_types::config::Trigger::Manual).await;
    let end = CancellationToken::new();
    let _guard = end.clone().drop_guard();
    tokio::spawn(run(world.runs.services.clone(), end));
    // More than are looked at at once, and more than are asked for at once.
    for number in 0..40 {
        let spec =
            json!({"project": "web", "path": "web", "desiredVersion": slow, "trigger": "Apply", "workspaces": ["dev"]});
        world.runs.create("Stack", &format!("slow-{number}"), spec).await;
    }
    tokio::time::timeout(LONG, world.commits.1.asked.notified()).await.expect("they are asked for");
    // A look of one that lists no workspace asks for nothing.
    let idle = json!({"project": "web", "path": "web", "trigger": "Apply"});
    world.runs.create("Stack", "idle", idle).await;
    let stacks = world.runs.registry.api::<Stack>();
    let mut changes = stacks.subscribe(None);
    let told = async {
        loop {
            let status = stacks.get("shop", "idle").await.unwrap().status.unwrap_or_default();
            if let Some(told) = condition(&status.conditions, reason::TRIGGERED) {
                return told.reason.clone();
            }
            changes.next().await.unwrap();
        }
    };
    let told = tokio::time::timeout(LONG, told).await.expect("it is looked at");
    assert_eq!(told, reason::NO_WORKSPACES);
}

/// Sets the stack to Manual while its next run is being created.
#[derive(Debug, Default)]
struct Meddler(Mutex<Option<Arc<Registry>>>);

#[async_trait]
impl AdmissionPlugin for Meddler {
    fn name(&self) -> &'static str {
        "Meddler"
    }

    fn admits(&self, attributes: &Attributes<'_>) -> bool {
        attributes.definition.kind == "Run" && attributes.operation == admission::Operation::Create
    }

    async fn admit(&self, _: &Attributes<'_>, _: Option<&mut Object>, _: &mut Reinvocation) -> Result<(), ApiError> {
        let registry = self.0.lock().take();
        let Some(registry) = registry else { return Ok(()) };
        let manual = |stack: &mut Stack| stack.spec.trigger = stoa_types::config::Trigger::Manual;
        registry.api::<Stack>().update_with("shop", "web", manual).await.map(drop)
    }
}

#[tokio::test]
async fn what_was_decided_between_two_workspaces_counts() {
    let (commits, meddler) = (Commits::default(), Arc::new(Meddler::default()));
    let plugin: Arc<dyn AdmissionPlugin> = meddler.clone();
    let chain = Chain::new(vec![plugin]);
    let runs = Runs::with(commits.runner(), |builder| builder.admission(chain)).await;
    let world = World::over(runs, commits).await;
    let prod = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///prod.git"}});
    world.runs.create("Workspace", "prod", prod).await;
    world.change(|stack| stack.spec.workspaces = vec!["dev".to_owned(), "prod".to_owned()]).await;
    *meddler.0.lock() = Some(world.runs.registry.clone());
    world.look().await;
    assert_eq!(world.started().await, ["dev a"]);
}

#[tokio::test]
async fn failed_run_creation_cancels_no_waiting_run() {
    let world = World::new().await;
    world.look().await;
    let (stack, commit) = (world.stack().await, "b".repeat(40));
    let cause = cause_of(&stack, Operation::Apply, "2");
    let create = || start(&world.runs.services, &stack, "dev", Operation::Apply, &commit, &cause);
    for number in 2..=NAMES + 1 {
        let taken = json!({"stack": "web", "workspace": "dev", "operation": "Preview", "version": "x"});
        world.runs.create("Run", &name_of(&stack, "dev", &cause, number), taken).await;
    }
    create().await.unwrap_err();
    assert!(!world.last().await.spec.cancel);
    let runs = world.runs.registry.api::<Run>();
    let last = name_of(&stack, "dev", &cause, NAMES + 1);
    runs.delete("shop", &last, &Default::default()).await.unwrap();
    runs.update_with("shop", &last, |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
    create().await.unwrap();
    assert!(world.last().await.spec.cancel, "another takes its place");
}

#[tokio::test]
async fn what_failed_is_not_started_again_until_something_changes() {
    let world = World::new().await;
    world.look().await;
    world.end(&world.last().await, RunPhase::Failed).await;
    let told = world.look().await.unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", reason::RUN_FAILED));
    assert!(told.message.contains("for commit aaaaaaaa in workspace dev did not succeed"), "{}", told.message);
    // The record of the run is not what counts.
    let runs = world.runs.registry.api::<Run>();
    let last = world.last().await.name_any();
    runs.delete("shop", &last, &Default::default()).await.unwrap();
    runs.update_with("shop", &last, |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
    assert_eq!(world.look().await.unwrap().reason, reason::RUN_FAILED);
    assert_eq!(world.started().await, [""; 0]);
    // A person who tries it again, with more luck.
    let mended = deploying(json!([{"workspace": "dev", "phase": "Succeeded", "commit": "a".repeat(40)}]));
    world.runs.registry.api::<Stack>().update_status_with("shop", "web", mended).await.unwrap();
    assert_eq!(world.look().await.unwrap().reason, reason::STARTED);
    world.push("b", "2").await;
    world.look().await;
    assert_eq!(world.started().await, ["dev b"]);
}

/// A clock that stands at so many seconds.
#[derive(Debug, Default)]
struct Standing(std::sync::atomic::AtomicI64);

impl stoa_storage::Clock for Standing {
    fn now_ms(&self) -> i64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed) * 1_000
    }
}

#[tokio::test]
async fn failed_run_retries_after_source_recovery() {
    let mut world = World::new().await;
    let clock = Arc::new(Standing::default());
    world.runs.services.clock = clock.clone();
    let at = |seconds: i64| clock.0.store(seconds, std::sync::atomic::Ordering::Relaxed);
    let source = async |is_ready: bool| {
        let change = |source: &mut Source| {
            let conditions = &mut source.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::READY, is_ready, reason::SOURCE_UNREACHABLE, "", None);
        };
        world.runs.registry.api::<Source>().update_status_with("shop", "config", change).await.unwrap();
    };
    let fail = async |why: &'static str| {
        let (run, now) = (world.last().await, Time(world.runs.services.now()));
        let fail = |run: &mut Run| {
            let status = run.status.get_or_insert_default();
            (status.phase, status.completion_time) = (RunPhase::Failed, Some(now.clone()));
            set_condition(&mut status.conditions, reason::FAILED, true, why, "", None);
        };
        world.runs.registry.api::<Run>().update_status_with("shop", &run.name_any(), fail).await.unwrap();
    };
    let look = async || {
        let again = world.looker.look(&world.runs.services).await;
        (world.started().await.len(), again.map(|again| again.as_secs()))
    };
    assert_eq!(look().await, (1, None));
    fail(reason::SOURCE_UNREACHABLE).await;
    assert_eq!(look().await, (1, Some(60)));
    let told = world.told().await.unwrap();
    assert_eq!(told.reason, reason::RUN_FAILED);
    assert!(told.message.ends_with("readable, at 1970-01-01T00:01:00Z at the earliest"), "{}", told.message);
    // A clock that is set back keeps nobody waiting until it is there again.
    at(-86_400);
    source(false).await;
    assert_eq!(look().await, (1, Some(10)));
    // However long it stays away, that uses up nothing.
    at(3_600);
    assert_eq!(look().await, (1, Some(10)));
    source(true).await;
    assert_eq!(look().await, (2, None));
    assert_eq!(world.started().await, ["dev a", "dev a"]);
    assert_eq!(world.told().await.unwrap().reason, reason::STARTED);
    for (number, wait) in [(2, 120), (3, 240), (4, 480), (5, 960)] {
        fail(reason::SOURCE_UNREACHABLE).await;
        assert_eq!(look().await, (number, Some(wait)));
        at(world.runs.services.now().as_second() + i64::try_from(wait).unwrap());
        assert_eq!(look().await, (number + 1, None));
    }
    fail(reason::SOURCE_UNREACHABLE).await;
    assert_eq!(look().await, (6, None), "that was often enough");
    assert!(world.told().await.unwrap().message.ends_with("until the source or the stack changes"));

    // What changed is another matter, and so is what failed of itself or was mended by somebody.
    world.push("b", "2").await;
    assert_eq!(look().await, (7, None));
    fail(reason::PLAN_FAILED).await;
    assert_eq!(look().await, (7, None));
    world.push("c", "3").await;
    assert_eq!(look().await, (8, None));
    fail(reason::SOURCE_UNREACHABLE).await;
    assert_eq!(look().await, (8, Some(60)));
    let mended = deploying(json!([{"workspace": "dev", "phase": "Succeeded", "commit": "c".repeat(40)}]));
    world.runs.registry.api::<Stack>().update_status_with("shop", "web", mended).await.unwrap();
    at(1_000_000);
    assert_eq!(look().await, (8, None));
}

#[tokio::test]
async fn newest_commit_takes_the_place_of_those_that_wait() {
    let mut world = World::new().await;
    world.look().await;
    let running = world.last().await;
    world.runs = world.runs.controlled();
    world.runs.began(&running.name_any()).await;
    let mut waiting = Vec::new();
    for (commit, content) in [("b", "2"), ("c", "3"), ("d", "4")] {
        world.push(commit, content).await;
        world.look().await;
        waiting.push(world.last().await.name_any());
    }
    for (skipped, by) in [(0, 1), (1, 2)] {
        let ended = world.runs.ended(&waiting[skipped]).await;
        let why = condition(&ended.conditions, reason::FAILED).unwrap();
        assert_eq!((ended.phase, why.reason.as_str()), (RunPhase::Canceled, reason::SUPERSEDED));
        assert!(why.message.contains(&waiting[by]), "{}", why.message);
    }
    let runs = world.runs.registry.api::<Run>();
    let now = async |name: &str| runs.get("shop", name).await.unwrap();
    assert!(!now(&running.name_any()).await.spec.cancel, "what began is finished");
    assert_eq!(status(&now(&waiting[2]).await).phase, RunPhase::Pending);
    let told = world.look().await.unwrap();
    assert_eq!(told.reason, reason::STARTED);
    runs.update_with("shop", &running.name_any(), |run: &mut Run| run.spec.cancel = true).await.unwrap();
    world.runs.began(&waiting[2]).await;
}

#[tokio::test]
async fn newest_commit_supersedes_run_awaiting_approval() {
    let world = World::new().await;
    world.look().await;
    let (runs, first) = (world.runs.registry.api::<Run>(), world.last().await.name_any());
    let wait = |run: &mut Run| {
        let status = run.status.get_or_insert_default();
        status.phase = RunPhase::AwaitingApproval;
        status.start_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now()));
    };
    runs.update_status_with("shop", &first, wait).await.unwrap();
    world.push("b", "2").await;
    world.look().await;
    assert!(runs.get("shop", &first).await.unwrap().spec.cancel, "its plan is out of date");
}

#[tokio::test]
async fn run_that_is_cancelled_before_it_began_never_does() {
    use stoa_runs::executor::{self, Attempts, Stops};
    let world = World::new().await;
    world.look().await;
    let seen = world.last().await;
    let runs = world.runs.registry.api::<Run>();
    runs.update_with("shop", &seen.name_any(), |run: &mut Run| run.spec.cancel = true).await.unwrap();
    // Taken up as it was before, by a task that has not heard of it.
    let services = world.runs.services.clone();
    Box::pin(executor::run_to_completion(services, seen.clone(), Stops::default(), Attempts::default())).await;
    let ended = runs.get("shop", &seen.name_any()).await.unwrap();
    assert_eq!(status(&ended).phase, RunPhase::Canceled);
    assert!(world.stack().await.status.unwrap().deployments.is_empty(), "it says nothing about the deployment");
}

#[tokio::test]
async fn what_keeps_it_from_being_started_is_told() {
    let world = World::new().await;
    world.change(|stack| stack.spec.workspaces.clear()).await;
    let told = world.look().await.unwrap();
    assert_eq!((told.status.as_str(), told.reason.as_str()), ("False", reason::NO_WORKSPACES));
    world.change(|stack| stack.spec.desired_version = "release".to_owned()).await;
    world.change(|stack| stack.spec.workspaces = vec!["dev".to_owned(), "new".to_owned()]).await;
    let told = world.look().await.unwrap();
    assert_eq!(told.reason, reason::VERSION_NOT_FOUND);
    assert_eq!(told.message, "the commit of version \"release\" is not known");
    world.push("b", "2").await;
    let observed = |source: &mut Source| {
        let versions = json!([{"version": "release", "commit": "b".repeat(40)}]);
        source.status.get_or_insert_default().versions = serde_json::from_value(versions).unwrap();
    };
    world.runs.registry.api::<Source>().update_status_with("shop", "config", observed).await.unwrap();
    let told = world.look().await.unwrap();
    assert_eq!(told.reason, reason::NOT_STARTED);
    assert!(told.message.starts_with("workspace new: "), "{}", told.message);
    assert_eq!(world.started().await, ["dev b"], "the others do not wait");
    let spec = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///new.git"}});
    world.runs.create("Workspace", "new", spec).await;
    assert_eq!(world.look().await.unwrap().reason, reason::STARTED);
    assert_eq!(world.started().await, ["dev b", "new b"]);
    // A commit without the folder is told and nothing else.
    world.change(|stack| stack.spec.desired_version = "f".repeat(40)).await;
    assert_eq!(world.look().await.unwrap().status, "False");
    assert_eq!(world.started().await.len(), 2);
}

#[tokio::test]
async fn trigger_that_is_set_again_starts_again() {
    let world = World::new().await;
    world.look().await;
    world.end(&world.last().await, RunPhase::Succeeded).await;
    let set = |trigger| move |stack: &mut Stack| stack.spec.trigger = trigger;
    world.change(set(stoa_types::config::Trigger::Manual)).await;
    assert_eq!(world.look().await, None);
    world.push("b", "2").await;
    world.look().await;
    assert_eq!(world.started().await, ["dev a"]);
    world.push("c", "1").await;
    world.change(set(stoa_types::config::Trigger::Apply)).await;
    world.look().await;
    assert_eq!(world.started().await, ["dev a", "dev c"]);
    world.end(&world.last().await, RunPhase::Succeeded).await;
    world.change(set(stoa_types::config::Trigger::Preview)).await;
    world.look().await;
    assert_eq!(world.last().await.spec.operation, Operation::Preview);
}

#[test]
fn cause_says_what_a_run_depends_on() {
    let stack = |spec: Value| {
        let mut stack = Stack::new("web", serde_json::from_value(spec).unwrap());
        stack.metadata.uid = Some("u".to_owned());
        stack
    };
    let one = stack(json!({"project": "web"}));
    let cause = cause_of(&one, Operation::Apply, "1");
    assert_eq!(cause_of(&stack(json!({"project": "web", "driftInterval": "1h"})), Operation::Apply, "1"), cause);
    let others = [
        cause_of(&one, Operation::Preview, "1"),
        cause_of(&one, Operation::Apply, "2"),
        cause_of(&stack(json!({"project": "web", "path": "a"})), Operation::Apply, "1"),
        cause_of(&stack(json!({"project": "web", "desiredVersion": "main"})), Operation::Apply, "1"),
        cause_of(&stack(json!({"project": "web", "generator": {"type": "Spec"}})), Operation::Apply, "1"),
    ];
    assert!(others.iter().all(|other| *other != cause));
    let names =
        [("dev", 1), ("dev", 2), ("prod", 1)].map(|(workspace, number)| name_of(&one, workspace, &cause, number));
    assert!(names.iter().all(|name| name.len() == "web-".len() + 10));
    assert!(names[0] != names[1] && names[0] != names[2]);
}

#[tokio::test]
async fn moved_source_starts_run_before_the_stack_has_its_commit() {
    let world = World::new().await;
    let end = CancellationToken::new();
    let _guard = end.clone().drop_guard();
    tokio::spawn(run(world.runs.services.clone(), end));
    let mut changes = world.runs.registry.api::<Run>().subscribe(None);
    for (commit, content, expected) in [("a", "1", 1), ("b", "2", 2)] {
        world.push(commit, content).await;
        let starts = async {
            while world.started().await.len() < expected {
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(LONG, starts).await.expect("the trigger starts a run");
    }
    let observed = world.stack().await.status.unwrap().observed_commit;
    assert_eq!(observed, Some("a".repeat(40)), "no controller of stacks runs here");
}
