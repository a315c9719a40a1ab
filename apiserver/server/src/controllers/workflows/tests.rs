//! Workflows over a log in memory, with a runner that knows versions by heart; how runs end is up to the tests.

mod ends;
mod gates;
mod hooks;
mod runs;
mod templates;

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::{Value, json};
use stoa_machinery::{
    Object,
    auth::{AllowAll, Attributes, Authorizer, Decision},
    registry::{DeleteOptions, Target, UpdateSource},
    request::UserInfo,
};
use stoa_proto::{
    HealthRequest, HealthResponse, Problem, ReadFileRequest, ReadFileResponse, ResolveRequest, ResolveResponse,
    Unhealthy,
};
use stoa_runs::testing::{Answer, FakeRunner, runner_at};
use stoa_types::delivery::RunPhase;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use tonic::{Code, Request, Response, Status};

use super::*;
use crate::testing::TestServer as Runs;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a runner says that has no time.
const BUSY: &str = "the function-runner has reached its limit of 9 concurrent calls; retry later";

/// The commits of versions, by their first letters, what is not healthy, and the text of every file. Of a version or a resource
/// that is `…` nothing is heard; that somebody asked is. For a resource that is `!` there is no time.
#[derive(Clone, Debug, Default)]
struct Versions(
    Arc<Mutex<BTreeMap<String, char>>>,
    Arc<Mutex<Vec<&'static str>>>,
    Arc<Mutex<String>>,
    Arc<tokio::sync::Notify>,
);

impl Versions {
    async fn never(&self) {
        self.3.notify_one();
        std::future::pending().await
    }
}

#[tonic::async_trait]
impl FakeRunner for Versions {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        let version = request.into_inner().version;
        let letter = self.0.lock().get(&version).copied();
        match letter {
            Some('…') => {
                self.never().await;
                Err(Status::unavailable("nothing is heard"))
            }
            Some('!') => {
                let problem = Problem {
                    reason: "SourceUnavailable".to_owned(),
                    message: "the repository is away".to_owned(),
                    ..Problem::default()
                };
                Err(Status::with_details(Code::Unavailable, "", problem.encode_to_vec().into()))
            }
            Some(letter) => {
                let commit = letter.to_string().repeat(40);
                Ok(Response::new(ResolveResponse { commit, ..ResolveResponse::default() }))
            }
            None => Err(Status::not_found(format!("no version {version}"))),
        }
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Answer<ReadFileResponse> {
        let request = request.into_inner();
        assert_eq!((request.path.as_str(), request.max_bytes), ("ci/flow.yaml", 65_536));
        let text = self.2.lock().clone();
        Ok(Response::new(ReadFileResponse { text, path: request.path, is_verified: false }))
    }

    async fn health(&self, request: Request<HealthRequest>) -> Answer<HealthResponse> {
        let target = request.into_inner().target.unwrap();
        assert_eq!((target.stack.as_str(), target.requester.as_str()), ("web", "ann"));
        let bad = self.1.lock().clone();
        if bad == ["…"] {
            self.never().await;
        }
        if bad == ["!"] {
            let problem = Problem { reason: "Busy".to_owned(), message: BUSY.to_owned(), ..Problem::default() };
            return Err(Status::with_details(Code::ResourceExhausted, BUSY, problem.encode_to_vec().into()));
        }
        let examples = bad.iter().map(|id| Unhealthy { id: (*id).to_owned(), message: "it is InProgress".to_owned() });
        let unhealthy = bad.len() as u32;
        Ok(Response::new(HealthResponse { total: 3, unhealthy, examples: examples.collect() }))
    }
}

/// Allows everything but starting an Apply and having hooks called, once it is told so. Of the object of this name it cannot say
/// anything.
#[derive(Debug, Default)]
struct Revocable(AtomicBool, Mutex<&'static str>);

#[async_trait]
impl Authorizer for Revocable {
    async fn authorize(&self, user: &UserInfo, asked: &Attributes) -> Result<Decision, ApiError> {
        if !asked.name.is_empty() && asked.name == *self.1.lock() {
            return Err(ApiError::service_unavailable("the authorizer is away"));
        }
        let is_revoked = self.0.load(std::sync::atomic::Ordering::Relaxed);
        let is_denied = asked.subresource == "apply" || asked.resource == "hookhosts";
        let is_denied = is_revoked && user.name == "ann" && is_denied;
        Ok(if is_denied { Decision::Deny(String::new()) } else { Decision::Allow(String::new()) })
    }
}

struct World {
    runs: Runs,
    versions: Versions,
    memory: Arc<Memory>,
    poked: tokio::sync::Mutex<mpsc::UnboundedReceiver<ObjectKey>>,
    authorizer: Arc<Revocable>,
}

impl World {
    /// A stack `web` that desires `main`, and workspaces `dev`, `eu` and `us`, of which the last two are labelled so.
    async fn new() -> Self {
        let versions = Versions::default();
        versions.0.lock().insert("main".to_owned(), 'a');
        let mut runs = Runs::with_runner_and_secrets(runner_at(versions.clone().serve())).await;
        let authorizer = Arc::new(Revocable::default());
        runs.services.authorizer = authorizer.clone();
        for name in ["eu", "us"] {
            let spec = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}});
            runs.create("Workspace", name, spec).await;
            let label = |workspace: &mut stoa_types::Workspace| {
                workspace.labels_mut().insert("tier".to_owned(), "prod".to_owned());
            };
            runs.registry.api::<stoa_types::Workspace>().update_with("", name, label).await.unwrap();
        }
        let desire = |stack: &mut Stack| stack.spec.desired_version = "main".to_owned();
        runs.registry.api::<Stack>().update_with("shop", "web", desire).await.unwrap();
        let (requeue, poked) = Requeue::new();
        Self {
            runs,
            versions,
            memory: Arc::new(Memory { requeue, ..Memory::default() }),
            poked: poked.into(),
            authorizer,
        }
    }

    /// Starts the controller, until the guard goes.
    fn controlled(&self) -> DropGuard {
        let end = CancellationToken::new();
        tokio::spawn(run(self.runs.services.clone(), end.clone()));
        end.drop_guard()
    }

    /// Ann creates a workflow `w`.
    async fn create(&self, spec: Value) {
        self.create_called("w", spec).await;
    }

    async fn create_called(&self, name: &str, spec: Value) {
        let ann = UserInfo { name: "ann".to_owned(), groups: vec!["devs".to_owned()], ..UserInfo::default() };
        let context = RequestContext::new(ann, self.authorizer.clone());
        let Value::Object(workflow) = json!({"metadata": {"name": name}, "spec": spec}) else { unreachable!("a map") };
        self.store().create(&context, "shop", Object(workflow)).await.unwrap();
    }

    fn store(&self) -> &Arc<stoa_machinery::registry::Store> {
        self.runs.registry.store("delivery.stoa.dev", "v1alpha1", "workflows").unwrap()
    }

    async fn change(&self, change: impl FnMut(&mut Workflow) + Send) {
        self.runs.registry.api::<Workflow>().update_with("shop", "w", change).await.unwrap();
    }

    /// Makes it one that began two hours ago.
    async fn age(&self) {
        let long_ago = Time(self.runs.services.now() - jiff::SignedDuration::from_hours(2));
        let age = |workflow: &mut Workflow| workflow.status.as_mut().unwrap().start_time = Some(long_ago.clone());
        self.runs.registry.api::<Workflow>().update_status_with("shop", "w", age).await.unwrap();
    }

    async fn workflow(&self) -> Workflow {
        self.runs.registry.api::<Workflow>().get("shop", "w").await.unwrap()
    }

    /// Looks, and again when a repository has answered that it asks.
    async fn look(&self) -> Option<Duration> {
        loop {
            let key = ("shop".to_owned(), "w".to_owned());
            let again = look(self.runs.services.clone(), self.memory.clone(), key).await.unwrap();
            if !self.memory.templates.is_asking() && !self.memory.versions.is_asking() {
                return again;
            }
            self.poked.lock().await.recv().await;
        }
    }

    /// Waits until the status is as expected.
    async fn until(&self, is_there: impl Fn(&WorkflowStatus) -> bool) -> WorkflowStatus {
        let workflows = self.runs.registry.api::<Workflow>();
        let mut changes = workflows.subscribe(None);
        let found = async {
            loop {
                let found = status(&self.workflow().await);
                if is_there(&found) {
                    return found;
                }
                changes.next().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("it does not get there: {:?}", self.workflow().await.status),
        }
    }

    async fn all_runs(&self) -> Vec<Run> {
        self.runs.registry.api::<Run>().list(Some("shop"), "").await.unwrap()
    }

    /// The run in a workspace, once it is there.
    async fn run_in(&self, workspace: &str) -> Run {
        let runs = self.runs.registry.api::<Run>();
        let mut changes = runs.subscribe(None);
        let found = async {
            loop {
                if let Some(run) = self.all_runs().await.into_iter().find(|run| run.spec.workspace == workspace) {
                    return run;
                }
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("there is no run in {workspace}"))
    }

    async fn end(&self, workspace: &str, phase: RunPhase) -> Run {
        let run = self.run_in(workspace).await;
        let end = |run: &mut Run| run.status.get_or_insert_default().phase = phase;
        self.runs.registry.api::<Run>().update_status_with("shop", &run.name_any(), end).await.unwrap()
    }

    /// Removes a run, whatever keeps it.
    async fn remove(&self, run: &Run) {
        let runs = self.runs.registry.api::<Run>();
        runs.delete("shop", &run.name_any(), &DeleteOptions::default()).await.unwrap();
        runs.update_with("shop", &run.name_any(), |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
        assert!(runs.get_opt("shop", &run.name_any()).await.unwrap().is_none());
    }

    async fn approve(&self, step: &str) {
        let bob = UserInfo { name: "bob".to_owned(), ..UserInfo::default() };
        let change = UpdateSource::transform(|current: &Object| {
            let mut new = current.clone();
            new.0["status"]["approvals"] = json!([{"step": step, "decision": "Approved"}]);
            Ok(new)
        });
        let context = RequestContext::new(bob, Arc::new(AllowAll));
        self.store().update(&context, "shop", "w", Target::Part("approval"), change).await.unwrap();
    }
}

fn step_of<'a>(status: &'a WorkflowStatus, name: &str) -> &'a stoa_types::delivery::StepStatus {
    status.steps.iter().find(|step| step.name == name).unwrap()
}

fn told<'a>(status: &'a WorkflowStatus, type_: &str) -> (&'a str, &'a str) {
    let found = condition(&status.conditions, type_).unwrap_or_else(|| panic!("{type_} is told in {status:?}"));
    assert_eq!(found.status, "True");
    (&found.reason, &found.message)
}

/// dev, then an approval, then prod.
fn chain() -> Value {
    json!({"stack": "web", "steps": [
        {"name": "dev", "run": {"operation": "Apply", "workspaces": ["dev"], "maxParallel": 10, "timeout": "1h"}},
        {"name": "ok", "dependsOn": ["dev"], "approval": {"message": "is dev all right?"}},
        {"name": "prod", "dependsOn": ["ok"], "run": {"operation": "Apply", "workspaces": ["eu", "us"],
            "maxParallel": 10, "timeout": "1h", "parameters": {"size": "large"}}},
    ]})
}

#[tokio::test]
async fn workflow_deploys_same_commit_in_order() {
    let world = World::new().await;
    let _controller = world.controlled();
    world.create(chain()).await;
    let dev = world.run_in("dev").await;
    // What is pushed meanwhile is another workflow's.
    world.versions.0.lock().insert("main".to_owned(), 'b');
    world.end("dev", RunPhase::Succeeded).await;
    let waiting = world.until(|status| status.phase == WorkflowPhase::AwaitingApproval).await;
    let asked = "step ok waits for approval: is dev all right?";
    assert_eq!(told(&waiting, reason::AWAITING_APPROVAL), ("AwaitingApproval", asked));
    assert_eq!(world.all_runs().await.len(), 1);
    world.approve("ok").await;
    let (eu, us) = (world.run_in("eu").await, world.run_in("us").await);
    let workflow = world.workflow().await;
    for run in [&dev, &eu, &us] {
        assert_eq!(run.spec.version.as_deref(), Some("a".repeat(40).as_str()));
        let requester = status_of_run(run).requester;
        assert_eq!((requester.username.as_str(), requester.groups.as_slice()), ("ann", &["devs".to_owned()][..]));
        assert_eq!(run.labels()[labels::WORKFLOW], "w");
        let owner = &run.owner_references()[0];
        assert_eq!(
            (owner.kind.as_str(), Some(&owner.uid), owner.controller),
            ("Workflow", workflow.metadata.uid.as_ref(), Some(true))
        );
    }
    assert_eq!(eu.spec.parameters["size"], "large");
    world.end("eu", RunPhase::Succeeded).await;
    world.end("us", RunPhase::Succeeded).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Succeeded);
    assert_eq!(told(&ended, reason::COMPLETE), ("Succeeded", "all 3 steps succeeded"));
    assert!(condition(&ended.conditions, reason::AWAITING_APPROVAL).is_none());
    assert_eq!(step_of(&ended, "ok").message, "bob approved step ok");
    assert!(ended.steps.iter().all(|step| step.start_time.is_some() && step.completion_time.is_some()));
    assert_eq!(world.all_runs().await.len(), 3);
}

#[tokio::test]
async fn a_paused_workflow_begins_nothing_until_it_is_resumed() {
    let world = World::new().await;
    let _controller = world.controlled();
    let mut spec = chain();
    spec["paused"] = json!(true);
    world.create(spec).await;
    let paused = world.until(|status| status.phase == WorkflowPhase::Paused).await;
    assert_eq!(told(&paused, reason::PAUSED).0, reason::PAUSED);
    assert!(paused.start_time.is_none() && world.all_runs().await.is_empty());
    world.change(|workflow| workflow.spec.paused = false).await;
    world.run_in("dev").await;
    let going = world.until(|status| status.phase == WorkflowPhase::Running).await;
    assert!(condition(&going.conditions, reason::PAUSED).is_none());
}

#[tokio::test]
async fn missing_version_ends_workflow_and_outage_waits() {
    let world = World::new().await;
    world.versions.0.lock().insert("away".to_owned(), '!');
    let mut spec = chain();
    spec["version"] = json!("away");
    world.create(spec.clone()).await;
    assert_eq!(world.look().await, Some(AGAIN));
    assert_eq!(told(&status(&world.workflow().await), reason::WAITING).1, "the repository is away");
    world.versions.0.lock().remove("away");
    assert_eq!(world.look().await, Some(AGAIN), "it is not asked again at once");
    tokio::time::pause();
    tokio::time::advance(AGAIN).await;
    tokio::time::resume();
    world.look().await;
    let ended = status(&world.workflow().await);
    assert_eq!((ended.phase, told(&ended, reason::FAILED).0), (WorkflowPhase::Failed, reason::SOURCE_NOT_FOUND));
    assert!(condition(&ended.conditions, reason::WAITING).is_none() && world.all_runs().await.is_empty());
}
