//! A render that lasts longer than its request, by a function that waits for the test, and contents in memory.

use std::collections::BTreeMap;

use serde_json::json;
use stoa_proto::evaluator::{
    EvaluateFunctionRequest, EvaluateFunctionResponse,
    function_evaluator_server::{FunctionEvaluator, FunctionEvaluatorServer},
};
use stoa_runs::testing::{ANYWHERE, runner_at};
use stoa_types::reason;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

use super::*;
use crate::{
    controllers::package_renders,
    testing::{PATIENCE, TestServer},
};

const KPTFILE: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\npipeline:\n  mutators:\n  - image: \
                       example.com/slow:v1\n";

/// A function that changes nothing, and ends when the test releases it.
struct Slow(Arc<Notify>);

#[tonic::async_trait]
impl FunctionEvaluator for Slow {
    async fn evaluate_function(
        &self,
        request: Request<EvaluateFunctionRequest>,
    ) -> Result<Response<EvaluateFunctionResponse>, Status> {
        self.0.notified().await;
        let resource_list = request.into_inner().resource_list;
        Ok(Response::new(EvaluateFunctionResponse { resource_list, ..EvaluateFunctionResponse::default() }))
    }
}

struct Scene {
    world: TestServer,
    service: PackageService,
    released: Arc<Notify>,
}

impl Scene {
    async fn new() -> Self {
        let released = Arc::new(Notify::new());
        let incoming = TcpIncoming::bind(ANYWHERE).unwrap();
        let address = incoming.local_addr().unwrap();
        let server = Server::builder().add_service(FunctionEvaluatorServer::new(Slow(released.clone())));
        tokio::spawn(server.serve_with_incoming(incoming));
        let world = TestServer::with_runner(runner_at(address)).await;
        let patience = Duration::from_millis(100);
        let service = PackageService { patience, ..PackageService::new(world.services.clone()) };
        let repository = json!({
            "metadata": {"name": "blueprints", "namespace": "shop"},
            "spec": {"git": {"repo": "file:///r.git", "branch": "main"}},
        });
        let repository: Repository = serde_json::from_value(repository).unwrap();
        let context = RequestContext::internal("test").with_status();
        world.services.lookup.api().unwrap().with_context(context).create(&repository).await.unwrap();
        Self { world, service, released }
    }

    fn revisions(&self) -> stoa_machinery::registry::Api<PackageRevision> {
        let context = RequestContext::internal("test").with_status();
        self.world.services.lookup.api::<PackageRevision>().unwrap().with_context(context)
    }

    /// Creates a draft whose function still runs.
    async fn saved(&self) -> PackageRevision {
        let mut revision = PackageRevision::default();
        revision.metadata.namespace = Some("shop".to_owned());
        revision.spec = PackageRevisionSpec {
            package_name: "web".to_owned(),
            repository_name: "blueprints".to_owned(),
            workspace_name: "v1".to_owned(),
            ..PackageRevisionSpec::default()
        };
        let mut created = self.revisions().create(&revision).await.unwrap();
        let resources = BTreeMap::from([("Kptfile".to_owned(), KPTFILE.to_owned())]);
        let content = Content { resources, ..Content::default() };
        self.service.save(&RequestContext::internal("test"), content, &mut created).await.unwrap();
        let (namespace, name) = stoa_controller::queue::key_of(&created);
        let status = created.status.clone();
        let set = |object: &mut PackageRevision| object.status.clone_from(&status);
        self.revisions().update_with(&namespace, &name, set).await.unwrap()
    }

    /// Waits until the condition Rendered has a status.
    async fn until_rendered(&self, expected: &str) -> PackageRevision {
        let ask = async {
            loop {
                let found = self.revisions().get("shop", "blueprints.web.v1").await.unwrap();
                if rendered(&found) == Some(expected) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ask).await.unwrap()
    }
}

fn rendered(revision: &PackageRevision) -> Option<&str> {
    let conditions = &revision.status.as_ref()?.conditions;
    conditions.iter().find(|found| found.type_ == reason::RENDERED).map(|found| found.status.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_render_finishes_after_its_request() {
    let scene = Scene::new().await;
    let saved = scene.saved().await;
    assert_eq!(rendered(&saved), Some("Unknown"));
    let content = scene.service.content(&saved).await.unwrap();
    assert_eq!(content.resources["Kptfile"], KPTFILE, "the files as they were sent");
    let controller = tokio::spawn(package_renders::run(scene.service.clone(), CancellationToken::new()));
    scene.released.notify_one();
    let finished = scene.until_rendered("True").await;
    assert_ne!(digest(&finished), digest(&saved), "a watch of the files sees the results");
    let content = scene.service.content(&finished).await.unwrap();
    assert_eq!(content.render_status["result"]["items"][0]["image"], "example.com/slow:v1");
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_render_begins_anew() {
    let scene = Scene::new().await;
    scene.saved().await;
    // Another process, which knows no render that is in progress.
    let restarted = PackageService::new(scene.world.services.clone());
    let controller = tokio::spawn(package_renders::run(restarted, CancellationToken::new()));
    // The calls of both processes wait.
    let released = scene.released.clone();
    let release = tokio::spawn(async move {
        loop {
            released.notify_one();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    scene.until_rendered("True").await;
    release.abort();
    controller.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_content_is_read_from_memory() {
    let scene = Scene::new().await;
    let saved = scene.saved().await;
    scene.released.notify_one();
    std::fs::remove_dir_all(scene.service.documents()).unwrap();
    let content = scene.service.content(&saved).await.unwrap();
    assert_eq!(content.resources["Kptfile"], KPTFILE);
    // Another process has to read it.
    let restarted = PackageService::new(scene.world.services.clone());
    assert!(restarted.content(&saved).await.is_err());
}
