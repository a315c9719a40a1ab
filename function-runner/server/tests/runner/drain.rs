//! A runner that is told to end takes no more calls, says so, and hands over what it was at.

use std::sync::Arc;
use std::time::Duration;

use stoa_git::testing::Behaviour;
use stoa_proto::ResolveRequest;
use stoa_proto::apply_event::Event;
use stoa_proto::function_runner_server::SERVICE_NAME;
use tokio::sync::Notify;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::bed::{Bed, free_port, problem};
use crate::caller::Reaction;
use crate::grants::{PATIENCE, at_a_server};

async fn is_serving(client: &mut HealthClient<Channel>, service: &str) -> bool {
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.unwrap().get_ref().status() == ServingStatus::Serving
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_is_handed_over_to_another_runner() {
    let (mut scene, server, spec, plan) = at_a_server().await;
    scene.caller.lease = PATIENCE;
    let server = Arc::new(server);
    let mut health = HealthClient::new(scene.bed.channel().await);
    assert!(is_serving(&mut health, "").await && is_serving(&mut health, SERVICE_NAME).await);
    let told = Arc::new(Notify::new());
    let meanwhile = tokio::spawn({
        let (told, server, mut client) = (Arc::clone(&told), Arc::clone(&server), scene.bed.client().await);
        async move {
            told.notified().await;
            while is_serving(&mut health, SERVICE_NAME).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(!is_serving(&mut health, "").await);
            let refused = client.resolve(ResolveRequest::default()).await.unwrap_err();
            assert_eq!((problem(&refused).0, problem(&refused).1.reason.as_str()), (Code::Unavailable, "Draining"));
            // Only now what was under way comes to its end.
            server.behave(Behaviour::Normal);
        }
    });
    let (bed, before) = (&scene.bed, server.requests());
    let mut is_told = false;
    let applied = scene
        .caller
        .apply_with(&spec, &plan, &[], |event| {
            let is_heartbeat = matches!(event.event, Some(Event::Heartbeat(_)));
            if is_heartbeat && !is_told && server.requests() > before {
                // It waits for the repository's server.
                bed.terminate();
                told.notify_one();
                is_told = true;
            }
            Reaction::Keep
        })
        .await;
    meanwhile.await.unwrap();
    let status = applied.error.as_ref().unwrap_or_else(|| panic!("{applied:?}"));
    assert_eq!((problem(status).0, problem(status).1.reason.as_str()), (Code::Unavailable, "Draining"));
    let written = scene.commits();
    assert_eq!(written.len(), 1, "what was under way was finished");

    let another = Bed::start();
    scene.caller.client = another.client().await;
    let state = scene.caller.state.clone();
    let again = scene.caller.apply(&spec, &plan).await;
    assert!(again.finished().succeeded && again.instance != applied.instance, "{again:?}");
    assert!(state.values().all(|entry| entry.intent.is_none()), "what was done was told: {state:?}");
    assert_eq!(scene.commits(), written, "nothing is written twice");
    let ended = tokio::time::timeout(PATIENCE, scene.bed.ended()).await.unwrap();
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_check_needs_no_certificate() {
    let port = free_port();
    let _bed = Bed::start_with(&[&format!("--health-listen=127.0.0.1:{port}")]);
    let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap().connect().await.unwrap();
    assert!(is_serving(&mut HealthClient::new(channel.clone()), SERVICE_NAME).await);
    let mut stranger = stoa_proto::function_runner_client::FunctionRunnerClient::new(channel);
    assert_eq!(stranger.resolve(ResolveRequest::default()).await.unwrap_err().code(), Code::Unimplemented);
}
