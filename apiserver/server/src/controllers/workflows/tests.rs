//! Workflows over a log in memory, with a runner that knows versions by heart; how runs end is up to the tests.

mod hooks;

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
    ApplyEvent, ApplyRequest, ContentRequest, ContentResponse, GenerateRequest, GenerateResponse, HealthRequest,
    HealthResponse, LookRequest, LookResponse, PlanRequest, PlanResponse, Problem, ReadFileRequest, ReadFileResponse,
    ResolveRequest, ResolveResponse, Unhealthy,
    function_runner_server::{FunctionRunner, FunctionRunnerServer},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::DropGuard;
use tonic::{Code, Request, Response, Status, Streaming, transport::server::TcpIncoming};

use super::*;
use crate::{controllers::runs::tests::World as Runs, runs::runner};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The commits of versions, by their first letters, what is not healthy, and the text of every file. Of a version or a resource
/// that is `…` nothing is heard; that somebody asked is.
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
impl FunctionRunner for Versions {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Result<Response<ResolveResponse>, Status> {
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
                Ok(Response::new(ResolveResponse { commit: letter.to_string().repeat(40), subject: String::new() }))
            }
            None => Err(Status::not_found(format!("no version {version}"))),
        }
    }

    async fn compare(
        &self,
        _: Request<stoa_proto::CompareRequest>,
    ) -> Result<Response<stoa_proto::CompareResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it"))
    }

    async fn content(&self, _: Request<ContentRequest>) -> Result<Response<ContentResponse>, Status> {
        Err(Status::unavailable("nothing is run"))
    }

    async fn look(&self, _: Request<LookRequest>) -> Result<Response<LookResponse>, Status> {
        Err(Status::unavailable("nothing is run"))
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Result<Response<ReadFileResponse>, Status> {
        let request = request.into_inner();
        assert_eq!((request.path.as_str(), request.max_bytes), ("ci/flow.yaml", 65_536));
        Ok(Response::new(ReadFileResponse { text: self.2.lock().clone(), path: request.path }))
    }

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let target = request.into_inner().target.unwrap();
        assert_eq!((target.stack.as_str(), target.requester.as_str()), ("web", "ann"));
        let bad = self.1.lock().clone();
        if bad == ["…"] {
            self.never().await;
        }
        let examples = bad.iter().map(|id| Unhealthy { id: (*id).to_owned(), message: "it is InProgress".to_owned() });
        let unhealthy = bad.len() as u32;
        Ok(Response::new(HealthResponse { total: 3, unhealthy, examples: examples.collect() }))
    }

    async fn generate(&self, _: Request<GenerateRequest>) -> Result<Response<GenerateResponse>, Status> {
        Err(Status::unavailable("nothing is run"))
    }

    async fn look_at_compliance(
        &self,
        _: Request<stoa_proto::LookAtComplianceRequest>,
    ) -> Result<Response<stoa_proto::LookAtComplianceResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it"))
    }

    async fn look_at_proposal(
        &self,
        _: Request<stoa_proto::LookAtProposalRequest>,
    ) -> Result<Response<stoa_proto::Proposal>, Status> {
        Err(Status::unimplemented("nobody asks for it"))
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        Err(Status::unavailable("nothing is run"))
    }

    async fn awaited(
        &self,
        _: Request<stoa_proto::AwaitedRequest>,
    ) -> Result<Response<stoa_proto::AwaitedResponse>, Status> {
        Err(Status::unimplemented("nobody asks for it"))
    }

    type ApplyStream = ReceiverStream<Result<ApplyEvent, Status>>;

    async fn apply(&self, _: Request<Streaming<ApplyRequest>>) -> Result<Response<Self::ApplyStream>, Status> {
        Err(Status::unavailable("nothing is run"))
    }
}

/// Allows everything but starting an Apply and having hooks called, once it is told so.
#[derive(Debug, Default)]
struct Revocable(AtomicBool);

#[async_trait]
impl Authorizer for Revocable {
    async fn authorize(&self, user: &UserInfo, asked: &Attributes) -> Result<Decision, ApiError> {
        let is_revoked = self.0.load(std::sync::atomic::Ordering::Relaxed);
        let is_denied = asked.subresource == "apply" || asked.resource == "hookhosts";
        let is_denied = is_revoked && user.name == "ann" && is_denied;
        Ok(if is_denied { Decision::Deny(String::new()) } else { Decision::Allow })
    }
}

struct World {
    runs: Runs,
    versions: Versions,
    memory: Arc<Memory>,
    authorizer: Arc<Revocable>,
}

impl World {
    /// A stack `web` that desires `main`, and workspaces `dev`, `eu` and `us`, of which the last two are labelled so.
    async fn new() -> Self {
        let versions = Versions::default();
        versions.0.lock().insert("main".to_owned(), 'a');
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let runner = runner::at(incoming.local_addr().unwrap());
        let service = FunctionRunnerServer::new(versions.clone());
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        let mut runs = Runs::with_runner_and_secrets(runner).await;
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
        Self { runs, versions, memory: Arc::default(), authorizer }
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

    async fn workflow(&self) -> Workflow {
        self.runs.registry.api::<Workflow>().get("shop", "w").await.unwrap()
    }

    async fn look(&self) -> Option<Duration> {
        let key = ("shop".to_owned(), "w".to_owned());
        look(self.runs.services.clone(), self.memory.clone(), key).await.unwrap()
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
        runs.update_with("shop", &run.name_any(), |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
        runs.delete("shop", &run.name_any(), &DeleteOptions::default()).await.unwrap();
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
async fn dev_goes_before_prod_with_one_commit_and_for_whoever_asked() {
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
async fn a_run_that_was_started_right_before_a_crash_is_found_again() {
    let world = World::new().await;
    world.create(chain()).await;
    assert_eq!(world.look().await, Some(Duration::ZERO));
    assert!(world.all_runs().await.is_empty(), "the commit is recorded first");
    // What is pushed meanwhile is another workflow's.
    world.versions.0.lock().insert("main".to_owned(), 'b');
    // Nor does anything start that is paused meanwhile.
    world.change(|workflow| workflow.spec.paused = true).await;
    world.look().await;
    assert!(world.all_runs().await.is_empty());
    world.change(|workflow| workflow.spec.paused = false).await;
    let before = world.workflow().await.status;
    world.look().await;
    // The status was never written.
    let forget = |workflow: &mut Workflow| workflow.status.clone_from(&before);
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    world.look().await;
    assert_eq!(world.all_runs().await.len(), 1);
    let run = world.run_in("dev").await;
    assert_eq!(run.spec.version.as_deref(), Some("a".repeat(40).as_str()));
    let dev = step_of(&status(&world.workflow().await), "dev").clone();
    assert_eq!(
        (dev.phase, &dev.runs[0].name, dev.runs[0].phase),
        (StepPhase::Running, &run.name_any(), RunPhase::Pending)
    );
    for _ in 0..3 {
        world.look().await;
    }
    assert_eq!(world.all_runs().await.len(), 1);

    // It is cancelled with the others though no status names it.
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    world.change(|workflow| (workflow.spec.paused, workflow.spec.cancel) = (true, true)).await;
    world.look().await;
    assert!(world.run_in("dev").await.spec.cancel);
    assert!(!status(&world.workflow().await).phase.is_terminal(), "it is still under way");
    world.end("dev", RunPhase::Canceled).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Canceled);
}

#[tokio::test]
async fn another_run_of_that_name_is_not_taken_for_ones_own() {
    let world = World::new().await;
    world.create(chain()).await;
    let uid = world.workflow().await.uid().unwrap();
    let name = machine::run_name("w", &uid, "dev", "dev");
    world.runs.create("Run", &name, json!({"stack": "web", "workspace": "dev", "operation": "Apply"})).await;
    for _ in 0..3 {
        world.look().await;
    }
    let ended = status(&world.workflow().await);
    assert_eq!(ended.phase, WorkflowPhase::Failed);
    let message = format!("step dev: run {name} in workspace dev did not succeed: another run is called {name}");
    assert_eq!(told(&ended, reason::FAILED), (reason::STEP_FAILED, message.as_str()));
}

#[tokio::test]
async fn a_run_that_admission_changed_is_found_again() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    let before = world.workflow().await.status;
    world.look().await;
    // As if a webhook had set these when it was created.
    let made = world.run_in("dev").await;
    world.remove(&made).await;
    let mut changed = Run::new(&made.name_any(), made.spec.clone());
    (changed.spec.timeout, changed.spec.require_approval) = ("2h".into(), true);
    changed.metadata.namespace = Some("shop".to_owned());
    changed.metadata.owner_references.clone_from(&made.metadata.owner_references);
    changed.metadata.labels.clone_from(&made.metadata.labels);
    let services = &world.runs.services;
    let runs = world.runs.registry.api::<Run>();
    runs.with_context(context(services, &before.clone().unwrap())).create(&changed).await.unwrap();
    let forget = |workflow: &mut Workflow| workflow.status.clone_from(&before);
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", forget).await.unwrap();
    world.look().await;
    let dev = step_of(&status(&world.workflow().await), "dev").clone();
    assert_eq!((dev.phase, dev.runs[0].phase), (StepPhase::Running, RunPhase::Pending));

    let with = |change: fn(&mut RunSpec)| {
        let mut other = made.spec.clone();
        change(&mut other);
        is_for_same(&other, &made.spec)
    };
    assert!(with(|spec| spec.cancel = true));
    for change in [
        (|spec| spec.stack.push('x')) as fn(&mut RunSpec),
        |spec| spec.workspace.push('x'),
        |spec| spec.version = None,
        |spec| spec.release = Some(1),
        |spec| spec.operation = stoa_types::delivery::Operation::Preview,
    ] {
        assert!(!with(change));
    }
}

#[tokio::test]
async fn a_run_stays_the_workflows_when_its_label_is_taken_away() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    world.look().await;
    let name = world.run_in("dev").await.name_any();
    let runs = world.runs.registry.api::<Run>();
    runs.update_with("shop", &name, |run: &mut Run| run.metadata.labels = None).await.unwrap();
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.look().await;
    assert!(world.run_in("dev").await.spec.cancel);
}

#[tokio::test]
async fn a_run_stays_the_workflows_when_its_owner_is_taken_away() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    world.look().await;
    let run = world.run_in("dev").await;
    assert_eq!(step_of(&status(&world.workflow().await), "dev").runs[0].uid, run.uid().unwrap());
    let runs = world.runs.registry.api::<Run>();
    let let_go = |run: &mut Run| run.metadata.owner_references = None;
    runs.update_with("shop", &run.name_any(), let_go).await.unwrap();
    world.look().await;
    assert_eq!(step_of(&status(&world.workflow().await), "dev").phase, StepPhase::Running);
    world.end("dev", RunPhase::Succeeded).await;
    world.look().await;
    assert_eq!(step_of(&status(&world.workflow().await), "ok").phase, StepPhase::AwaitingApproval);
    world.approve("ok").await;
    world.look().await;
    let eu = world.run_in("eu").await;
    runs.update_with("shop", &eu.name_any(), let_go).await.unwrap();
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.look().await;
    assert!(world.run_in("eu").await.spec.cancel, "it is cancelled with the others");
    // Another run of its name is none of the workflow's.
    world.remove(&world.run_in("us").await).await;
    let mut other = Run::new(&world.run_in("eu").await.name_any(), eu.spec.clone());
    world.remove(&eu).await;
    other.metadata.namespace = Some("shop".to_owned());
    other.metadata.labels.clone_from(&eu.metadata.labels);
    runs.create(&other).await.unwrap();
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Canceled);
    assert!(!world.run_in("eu").await.spec.cancel);
}

#[tokio::test]
async fn cancelling_does_not_wait_for_repositories() {
    let world = World::new().await;
    world.versions.0.lock().insert("main".to_owned(), '…');
    let _controller = world.controlled();
    world.create(chain()).await;
    tokio::time::timeout(PATIENCE, world.versions.3.notified()).await.expect("the version is asked for");
    let begin = tokio::time::Instant::now();
    world.change(|workflow| workflow.spec.cancel = true).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!((ended.phase, world.all_runs().await.len()), (WorkflowPhase::Canceled, 0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn cancelling_does_not_wait_for_clusters() {
    let world = World::new().await;
    world.versions.1.lock().push("…");
    let _controller = world.controlled();
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "0s"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    world.end("dev", RunPhase::Succeeded).await;
    tokio::time::timeout(PATIENCE, world.versions.3.notified()).await.expect("it is looked at");
    let begin = tokio::time::Instant::now();
    world.change(|workflow| workflow.spec.cancel = true).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Canceled);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn what_ends_a_workflow_in_its_only_step_is_why_it_ended() {
    let one = |timeout: &str| {
        let run = json!({"operation": "Apply", "workspaces": ["dev"]});
        json!({"stack": "web", "timeout": timeout, "steps": [{"name": "dev", "run": run}]})
    };
    for (timeout, phase, told_of) in [
        ("1h", WorkflowPhase::Canceled, (reason::CANCELED, "the workflow was cancelled")),
        ("1s", WorkflowPhase::Failed, (reason::TIMED_OUT, "the workflow took longer than 1s")),
    ] {
        let world = World::new().await;
        let _controller = world.controlled();
        world.create(one(timeout)).await;
        world.until(|status| status.phase == WorkflowPhase::Running).await;
        if phase == WorkflowPhase::Canceled {
            world.change(|workflow| workflow.spec.cancel = true).await;
        }
        let mut changes = world.runs.registry.api::<Run>().subscribe(None);
        let canceled = async {
            while !world.run_in("dev").await.spec.cancel {
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, canceled).await.expect("the run is cancelled");
        world.end("dev", RunPhase::Canceled).await;
        let ended = world.until(|status| status.phase.is_terminal()).await;
        assert_eq!((ended.phase, told(&ended, reason::FAILED)), (phase, told_of));
        assert_eq!(step_of(&ended, "dev").phase, StepPhase::Canceled);
    }
}

#[tokio::test]
async fn runs_are_started_only_while_who_asked_may_start_them() {
    let world = World::new().await;
    let _controller = world.controlled();
    world.create(chain()).await;
    world.end("dev", RunPhase::Succeeded).await;
    world.until(|status| status.phase == WorkflowPhase::AwaitingApproval).await;
    world.authorizer.0.store(true, std::sync::atomic::Ordering::Relaxed);
    world.approve("ok").await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let (why, message) = told(&ended, reason::FAILED);
    assert_eq!(why, reason::STEP_FAILED);
    assert!(message.contains("User \"ann\" cannot create resource \"stacks/apply\""), "{message}");
    assert_eq!(world.all_runs().await.len(), 1);
}

#[tokio::test]
async fn cancelling_ends_it_once_its_runs_have_ended() {
    let world = World::new().await;
    let _controller = world.controlled();
    world.create(chain()).await;
    world.run_in("dev").await;
    world.until(|status| status.phase == WorkflowPhase::Running).await;
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.until(|status| step_of(status, "ok").phase == StepPhase::Canceled).await;
    let runs = world.runs.registry.api::<Run>();
    let canceled = async {
        let mut changes = runs.subscribe(None);
        while !world.run_in("dev").await.spec.cancel {
            changes.next().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, canceled).await.expect("the run is cancelled");
    assert!(!status(&world.workflow().await).phase.is_terminal());
    world.end("dev", RunPhase::Canceled).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Canceled);
    assert_eq!(told(&ended, reason::FAILED), (reason::CANCELED, "the workflow was cancelled"));
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
async fn a_version_that_is_not_there_ends_it_and_a_source_that_is_away_is_waited_for() {
    let world = World::new().await;
    world.versions.0.lock().insert("away".to_owned(), '!');
    let mut spec = chain();
    spec["version"] = json!("away");
    world.create(spec.clone()).await;
    assert_eq!(world.look().await, Some(AGAIN));
    assert_eq!(told(&status(&world.workflow().await), reason::WAITING).1, "the repository is away");
    world.versions.0.lock().remove("away");
    world.look().await;
    let ended = status(&world.workflow().await);
    assert_eq!((ended.phase, told(&ended, reason::FAILED).0), (WorkflowPhase::Failed, reason::SOURCE_NOT_FOUND));
    assert!(condition(&ended.conditions, reason::WAITING).is_none() && world.all_runs().await.is_empty());
}

#[tokio::test]
async fn its_time_is_up() {
    let world = World::new().await;
    let _controller = world.controlled();
    let mut spec = chain();
    spec["timeout"] = json!("1s");
    world.create(spec).await;
    world.run_in("dev").await;
    world.until(|status| step_of(status, "ok").phase == StepPhase::Canceled).await;
    world.end("dev", RunPhase::Canceled).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Failed);
    assert_eq!(told(&ended, reason::FAILED), (reason::TIMED_OUT, "the workflow took longer than 1s"));
}

#[tokio::test]
async fn workspaces_are_selected_by_label_when_the_step_begins() {
    let world = World::new().await;
    let waves = json!([{"workspaces": ["us"]}, {"workspaceSelector": {"matchLabels": {"tier": "prod"}}}]);
    let run = json!({"operation": "Apply", "waves": waves, "maxParallel": 10, "timeout": "1h"});
    world.create(json!({"stack": "web", "steps": [{"name": "prod", "run": run}]})).await;
    world.look().await;
    assert_eq!(world.look().await, Some(Duration::ZERO));
    assert!(world.all_runs().await.is_empty(), "what is selected is recorded first");
    let selected = step_of(&status(&world.workflow().await), "prod").selected.clone();
    assert_eq!(selected.iter().map(|wave| wave.workspaces.join(",")).collect::<Vec<_>>(), ["us", "eu"]);
    let spec = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}});
    world.runs.create("Workspace", "late", spec).await;
    let unlabel = |workspace: &mut stoa_types::Workspace| workspace.metadata.labels = None;
    world.runs.registry.api::<stoa_types::Workspace>().update_with("", "eu", unlabel).await.unwrap();
    world.look().await;
    world.end("us", RunPhase::Succeeded).await;
    world.look().await;
    world.end("eu", RunPhase::Succeeded).await;
    world.look().await;
    let ended = status(&world.workflow().await);
    assert_eq!((ended.phase, world.all_runs().await.len()), (WorkflowPhase::Succeeded, 2));
    assert!(step_of(&ended, "prod").selected.is_empty(), "what is over needs no names");
}

#[tokio::test]
async fn a_step_succeeds_once_what_it_deployed_was_healthy_for_long_enough() {
    let world = World::new().await;
    world.versions.1.lock().push("v1:Pod:shop:web");
    let spec = |timeout: &str| {
        let run =
            json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "1s", "timeout": timeout}});
        json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})
    };
    world.create(spec("1h")).await;
    let controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    let message = "what wave 1 of 1 deployed is not healthy: workspace dev: v1:Pod:shop:web: it is InProgress";
    world.until(|status| step_of(status, "dev").message == message).await;
    world.versions.1.lock().clear();
    let healthy = "what wave 1 of 1 deployed is healthy, and has to be for 1s";
    world.until(|status| step_of(status, "dev").message == healthy).await;
    // Had it been healthy all the time, it would have ended: it begins anew.
    world.versions.1.lock().push("v1:Pod:shop:web");
    world.until(|status| step_of(status, "dev").message == message).await;
    world.versions.1.lock().clear();
    let ended = world.until(|status| status.phase.is_terminal()).await;
    assert_eq!(ended.phase, WorkflowPhase::Succeeded);
    drop(controller);
}

#[tokio::test]
async fn for_how_long_it_was_healthy_outlives_the_server() {
    let world = World::new().await;
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "1h", "timeout": "2h"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    let controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    world.until(|status| status.steps.first().is_some_and(|step| step.message.contains("is healthy, and"))).await;
    drop(controller);
    // As a server noted it that was up for longer.
    let nearly = |workflow: &mut Workflow| {
        workflow.status.as_mut().unwrap().steps[0].wave_healthy_seconds = Some(3_599);
    };
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", nearly).await.unwrap();
    let memory = Memory::default();
    let of = status(&world.workflow().await);
    let waves = HashMap::from([("dev".to_owned(), vec![vec!["dev".to_owned()]])]);
    let (poke, mut poked) = mpsc::unbounded_channel();
    let look = async || {
        let workflow = world.workflow().await;
        memory.gates.look(&world.runs.services, &workflow, &of, &waves, &Poke(poke.clone()))
    };
    assert_eq!(look().await.get("dev"), None, "nobody looked yet");
    tokio::time::timeout(PATIENCE, poked.recv()).await.unwrap();
    let seen = look().await;
    let machine::Gate::Healthy(long) = &seen["dev"] else { panic!("{seen:?}") };
    assert!((3_599..3_601).contains(&long.as_secs()), "{long:?}");
}

#[tokio::test]
async fn a_step_fails_when_what_it_deployed_is_not_healthy_in_time() {
    let world = World::new().await;
    world.versions.1.lock().extend(["v1:Pod:shop:web", "v1:Pod:shop:db"]);
    let run = json!({"operation": "Apply", "workspaces": ["dev"], "health": {"healthyFor": "0s", "timeout": "1s"}});
    world.create(json!({"stack": "web", "steps": [{"name": "dev", "run": run}]})).await;
    let _controller = world.controlled();
    world.end("dev", RunPhase::Succeeded).await;
    let ended = world.until(|status| status.phase.is_terminal()).await;
    let message = "step dev: what wave 1 of 1 deployed is not healthy: workspace dev: v1:Pod:shop:web: it is InProgress; \
                   and 1 more resources after 1s";
    assert_eq!(told(&ended, reason::FAILED), (reason::STEP_FAILED, message));
}

/// A workflow of a file with this step.
async fn of_template(world: &World, step: &str) {
    let head = "apiVersion: delivery.stoa.dev/v1alpha1\nkind: Workflow\nspec:\n  stack: ${app}\n  steps:\n";
    *world.versions.2.lock() = format!("{head}  - {step}\n");
    let template = json!({"project": "web", "path": "ci/flow.yaml", "parameters": {"app": "web"}});
    world.create(json!({"version": "main", "template": template})).await;
}

#[tokio::test]
async fn the_steps_of_a_template_are_read_once() {
    let world = World::new().await;
    of_template(&world, "{name: dev, run: {operation: Apply, workspaces: [dev]}}").await;
    assert_eq!(world.look().await, Some(Duration::ZERO));
    let read = status(&world.workflow().await).template.unwrap();
    assert_eq!((read.commit, read.stack.as_str(), read.steps.len()), ("a".repeat(40), "web", 1));
    assert!(world.all_runs().await.is_empty(), "what is done is recorded first");
    // What is pushed meanwhile is another workflow's.
    *world.versions.2.lock() = "other".to_owned();
    world.look().await;
    world.look().await;
    let run = world.end("dev", RunPhase::Succeeded).await;
    assert_eq!((run.spec.stack.as_str(), status_of_run(&run).requester.username.as_str()), ("web", "ann"));
    world.look().await;
    let ended = world.workflow().await;
    assert_eq!(status(&ended).phase, WorkflowPhase::Succeeded);
    assert!(ended.spec.steps.is_empty() && ended.metadata.generation == Some(1), "the spec stays as it was sent");
}

#[tokio::test]
async fn a_template_that_is_none_is_refused_with_file_line_and_field() {
    for (step, why, expected) in [
        (
            "{name: dev, run: {operation: Apply, workspaces: [mars]}}",
            reason::INVALID_TEMPLATE,
            "ci/flow.yaml: line 6: spec.steps[0].run.workspaces[0]: Not found: \"mars\"",
        ),
        (
            "{name: dev, run: {operation: Apply, maxParallel: 0, workspaces: [dev]}}",
            reason::INVALID_TEMPLATE,
            "ci/flow.yaml: line 6: spec.steps[0].run.maxParallel: Invalid value: 0: must be from 1 to 100",
        ),
    ] {
        let world = World::new().await;
        of_template(&world, step).await;
        world.look().await;
        let ended = status(&world.workflow().await);
        assert_eq!((ended.phase, told(&ended, reason::FAILED)), (WorkflowPhase::Failed, (why, expected)));
    }
}

#[tokio::test]
async fn who_asked_for_a_template_may_create_its_runs() {
    let world = World::new().await;
    of_template(&world, "{name: dev, run: {operation: Apply, workspaces: [dev]}}").await;
    world.authorizer.0.store(true, std::sync::atomic::Ordering::Relaxed);
    world.look().await;
    let ended = status(&world.workflow().await);
    let (why, message) = told(&ended, reason::FAILED);
    assert_eq!(why, reason::PERMISSION_DENIED);
    assert!(message.contains("User \"ann\" cannot create resource \"stacks/apply\""), "{message}");
}

#[tokio::test]
async fn a_workflow_that_ends_before_its_template_is_read_has_done_nothing() {
    let world = World::new().await;
    of_template(&world, "{name: dev, run: {operation: Apply, workspaces: [dev]}}").await;
    world.change(|workflow| workflow.spec.paused = true).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Paused);
    world.change(|workflow| workflow.spec.cancel = true).await;
    world.look().await;
    assert_eq!(status(&world.workflow().await).phase, WorkflowPhase::Canceled);
}

#[tokio::test]
async fn its_runs_are_cancelled_first_and_go_with_it() {
    let world = World::new().await;
    world.create(chain()).await;
    world.look().await;
    world.look().await;
    let (workflows, runs) = (world.runs.registry.api::<Workflow>(), world.runs.registry.api::<Run>());
    workflows.delete("shop", "w", &DeleteOptions::default()).await.unwrap();
    world.look().await;
    let run = world.run_in("dev").await;
    assert!(run.spec.cancel && run.metadata.deletion_timestamp.is_none());
    world.end("dev", RunPhase::Canceled).await;
    world.look().await;
    world.look().await;
    assert!(workflows.get_opt("shop", "w").await.unwrap().is_none());
    let left = runs.get_opt("shop", &run.name_any()).await.unwrap();
    assert!(left.is_none_or(|run| run.metadata.deletion_timestamp.is_some()));
}

#[tokio::test]
async fn it_goes_when_its_time_to_be_kept_is_over() {
    let world = World::new().await;
    let mut spec = chain();
    (spec["cancel"], spec["ttlSecondsAfterFinished"]) = (json!(true), json!(0));
    world.create(spec).await;
    world.look().await;
    world.look().await;
    world.look().await;
    assert!(world.runs.registry.api::<Workflow>().get_opt("shop", "w").await.unwrap().is_none());
}

#[tokio::test]
async fn clock_that_was_set_back_keeps_what_is_to_be_kept() {
    let world = World::new().await;
    let mut spec = chain();
    (spec["cancel"], spec["ttlSecondsAfterFinished"]) = (json!(true), json!(i64::MAX));
    world.create(spec).await;
    world.look().await;
    let hour = jiff::SignedDuration::from_hours(1);
    let later = Time(world.runs.services.now() + hour);
    let end_later = |workflow: &mut Workflow| {
        workflow.status.get_or_insert_default().completion_time = Some(later.clone());
    };
    world.runs.registry.api::<Workflow>().update_status_with("shop", "w", end_later).await.unwrap();
    assert_eq!(world.look().await, Some(Duration::from_secs(3600)));
}
