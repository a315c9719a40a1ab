//! Workspaces with a scripted function-runner in front of their repositories.

use std::sync::Arc;

use parking_lot::Mutex;
use prost::Message as _;
use serde_json::json;
use stoa_controller::probes::Requeue;
use stoa_proto::{LookRequest, LookResponse, Problem};
use stoa_runs::testing::{Answer, FakeRunner, runner_at};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::{
    super::{
        run,
        tests::{told, until, with_backend},
    },
    *,
};
use crate::testing::TestServer;

const AVAILABLE: &str = "True Available: the backend is ready";

/// A runner with its answers by repository. It never answers about other repositories.
#[derive(Clone, Debug, Default)]
struct Scripted {
    answers: Arc<Mutex<HashMap<&'static str, Result<(), Status>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn refuse(&self, repository: &'static str, code: Code, reason: &str, message: &str) {
        let problem = Problem { reason: reason.to_owned(), message: message.to_owned(), ..Problem::default() };
        let status = Status::with_details(code, message, problem.encode_to_vec().into());
        self.answers.lock().insert(repository, Err(status));
    }

    fn count(&self, repository: &str) -> usize {
        self.asked.lock().iter().filter(|asked| *asked == repository).count()
    }
}

#[tonic::async_trait]
impl FakeRunner for Scripted {
    async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
        let LookRequest { source, r#ref, versions, branch_only } = request.into_inner();
        assert_eq!((r#ref.as_str(), versions.len(), branch_only), ("live", 0, true));
        let remote = source.unwrap_or_default().remote;
        let name = remote.rsplit('/').next().unwrap_or_default().to_owned();
        self.asked.lock().push(name.clone());
        let answer = self.answers.lock().get(name.as_str()).cloned();
        match answer {
            Some(answer) => {
                answer.map(|()| Response::new(LookResponse { latest: "a".repeat(40), ..LookResponse::default() }))
            }
            None => std::future::pending().await,
        }
    }
}

async fn with_workspace(world: &TestServer, name: &str, remote: &str, create_branch: bool) {
    let gitops = json!({"repository": remote, "branch": "live", "createBranch": create_branch});
    world.create("Workspace", name, json!({"backend": {"name": "default"}, "gitops": gitops})).await;
}

#[tokio::test]
async fn workspace_reports_its_repository_and_branch() {
    let scripted = Scripted::default();
    let world = TestServer::with_runner(runner_at(scripted.clone().serve())).await;
    with_backend(&world).await;
    scripted.refuse("lacking", Code::NotFound, "VersionNotFound", "there is no branch live");
    scripted.refuse("gone", Code::NotFound, "SourceNotFound", "repository gone does not exist");
    scripted.refuse("refused", Code::InvalidArgument, "SourceUnauthorized", "the credentials are refused");
    scripted.answers.lock().insert("good", Ok(()));
    let no_branch = "False BranchNotFound: the repository has no branch \"live\"; create the branch, or set \
                     spec.gitops.createBranch: true";
    let expected = [
        ("a", "lacking", false, no_branch),
        ("b", "lacking", true, AVAILABLE),
        ("c", "gone", true, "False RepositoryNotFound: repository gone does not exist"),
        ("d", "refused", true, "False RepositoryRefused: the credentials are refused"),
        ("e", "good", false, AVAILABLE),
    ];
    for (name, repository, create_branch, _) in expected {
        with_workspace(&world, name, &format!("https://git.example.com/{repository}"), create_branch).await;
        assert!(told(&world, name).await.starts_with("Unknown Progressing: "));
    }
    let end = CancellationToken::new();
    let driven = tokio::spawn(run(world.services.clone(), end.clone()));
    for (name, _, _, ready) in expected {
        until(&world, name, ready).await;
    }
    assert_eq!(scripted.count("lacking"), 1, "two workspaces share the answer");
    end.cancel();
    driven.await.unwrap();
    // Without the controller, a change of something else keeps the results.
    for (name, _, _, ready) in expected {
        let describe = |workspace: &mut Workspace| workspace.spec.description = Some("Production".to_owned());
        world.registry.api::<Workspace>().update_with("", name, describe).await.unwrap();
        assert_eq!(told(&world, name).await, ready);
    }
}

#[tokio::test]
async fn servers_that_do_not_answer_hold_no_other_workspace() {
    let scripted = Scripted::default();
    let world = TestServer::with_runner(runner_at(scripted.clone().serve())).await;
    with_backend(&world).await;
    scripted.answers.lock().insert("good", Ok(()));
    let dead: Vec<String> = (0..=super::super::AT_ONCE).map(|number| format!("dead-{number}")).collect();
    for name in &dead {
        with_workspace(&world, name, &format!("https://dead.example.com/{name}"), false).await;
    }
    with_workspace(&world, "good", "https://git.example.com/good", false).await;
    let end = CancellationToken::new();
    let driven = tokio::spawn(run(world.services.clone(), end.clone()));
    until(&world, "good", AVAILABLE).await;
    for name in &dead {
        assert!(told(&world, name).await.starts_with("Unknown Progressing: "), "the controller does not wait");
    }
    end.cancel();
    driven.await.unwrap();
}

#[tokio::test]
async fn question_ends_with_the_last_workspace_that_has_it() {
    let world = TestServer::with_runner(runner_at(Scripted::default().serve())).await;
    let repositories = Repositories::new(Requeue::default());
    for name in ["a", "b", "c"] {
        let server = if name == "c" { "other.example.com" } else { "git.example.com" };
        with_workspace(&world, name, &format!("https://{server}/silent"), false).await;
    }
    for name in ["a", "b"] {
        let workspace = world.registry.api::<Workspace>().get("", name).await.unwrap();
        let gitops = workspace.spec.gitops.clone().unwrap();
        let (found, again) = find(&repositories, &world.services, &workspace, &gitops);
        assert!(matches!(found, Referents::Unseen), "{found:?}");
        assert_eq!(again, SOON);
    }
    let key = |name: &str| (String::new(), name.to_owned());
    repositories.forget(&key("a"));
    assert!(repositories.is_asking(), "the other workspace waits for it");
    let other = world.registry.api::<Workspace>().get("", "c").await.unwrap().spec.gitops.unwrap();
    repositories.set(&key("b"), [Repository::of(&other)].into());
    assert!(!repositories.is_asking(), "the other workspace has another repository now");
}

#[test]
fn server_is_the_host_of_an_address() {
    for remote in [
        "https://git.example.com/a.git",
        "ssh://git@git.example.com:22/a",
        "git@git.example.com:a.git",
        "git.example.com",
    ] {
        assert_eq!(server_of(remote), "git.example.com", "{remote}");
    }
}
