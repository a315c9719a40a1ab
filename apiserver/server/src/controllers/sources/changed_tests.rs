//! What is told of a source that was changed while it was looked at.

use k8s_openapi::api::core::v1::Event;
use stoa_proto::{LookRequest, LookResponse};
use stoa_runs::testing::{Answer, FakeRunner, runner_at};
use tokio::sync::Notify;
use tonic::Request;

use super::*;
use crate::testing::TestServer;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Finds nothing, when the test says so.
#[derive(Clone, Debug, Default)]
struct Missing {
    asked: Arc<Notify>,
    answer: Arc<Notify>,
}

#[tonic::async_trait]
impl FakeRunner for Missing {
    async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
        self.asked.notify_one();
        self.answer.notified().await;
        let remote = request.into_inner().source.unwrap_or_default().remote;
        Err(tonic::Status::not_found(format!("there is no {remote}")))
    }
}

#[tokio::test]
async fn event_omits_results_of_changed_source() {
    let missing = Missing::default();
    let world = TestServer::with_runner_and_secrets(runner_at(missing.clone().serve())).await;
    let sources = world.registry.api::<Source>();
    let is_asked = || tokio::time::timeout(PATIENCE, missing.asked.notified());
    let end = CancellationToken::new();
    tokio::spawn(run(world.services.clone(), end.clone()));
    let _end = end.drop_guard();
    is_asked().await.expect("it is looked at");
    let before = sources.get("shop", "config").await.unwrap().spec.remote;
    let changed = "file:///another.git";
    sources.update_with("shop", "config", |s: &mut Source| changed.clone_into(&mut s.spec.remote)).await.unwrap();
    missing.answer.notify_one();
    is_asked().await.expect("it is looked at as it is");
    missing.answer.notify_one();
    let told = async || {
        let events = world.registry.api::<Event>().list(Some("shop"), "").await.unwrap();
        events.into_iter().filter_map(|event| event.message).collect::<Vec<String>>()
    };
    let names = |told: &[String], remote: &str| told.iter().any(|told| told.contains(&format!("there is no {remote}")));
    let is_told = async {
        while !names(&told().await, changed) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_told).await.expect("an Event tells of it");
    // Events are written one after the other.
    let told = told().await;
    assert!(!names(&told, &before), "{told:?}");
}
