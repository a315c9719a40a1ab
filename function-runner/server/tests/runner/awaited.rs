//! What is told of a run whose cluster takes connections and never answers.

use std::time::Duration;

use serde_json::json;
use stoa_engine::Spec;
use stoa_proto::{AwaitedRequest, AwaitedResponse};
use tokio::net::TcpListener;
use tonic::Code;

use crate::bed::{Bed, Client};
use crate::caller::Caller;

async fn awaited(client: &mut Client, run: &str) -> AwaitedResponse {
    client.awaited(AwaitedRequest { run_uid: run.to_owned() }).await.unwrap().into_inner()
}

#[tokio::test]
async fn pending_calls_of_a_plan_are_reported() {
    let bed = Bed::start();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": format!("http://{}", silent.local_addr().unwrap())}}],
        "users": [{"name": "it", "user": {}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    let mut caller = Caller::new(bed.client().await, &json!({"kubernetes": {"clusters": [{"name": "east"}]}}));
    let workspace = caller.target.workspace.as_mut().unwrap();
    workspace.kubeconfigs.insert("east".to_owned(), kubeconfig.to_string().into_bytes().into());
    let spec: Spec = serde_json::from_value(json!({"resources": [{
        "id": "v1:ConfigMap:shop:a", "type": "Kubernetes",
        "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}},
    }]}))
    .unwrap();
    let (run, mut client) = (caller.target.run_uid.clone(), bed.client().await);
    assert_eq!(awaited(&mut client, &run).await, AwaitedResponse::default());

    let listening = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(silent.accept().await.unwrap());
        }
    });
    let planning = tokio::spawn(async move { caller.plan(&spec, false).await });
    let told = async {
        loop {
            let told = awaited(&mut client, &run).await;
            if !told.awaited.is_empty() {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(40), told).await.expect("it is told in time");
    let said = "cluster east does not answer: waiting for GET /api/v1".to_owned();
    assert_eq!(told, AwaitedResponse { at_work: true, awaited: vec![said] });
    assert_eq!(awaited(&mut client, "another").await, AwaitedResponse::default());

    listening.abort();
    assert_eq!(planning.await.unwrap().unwrap_err().code(), Code::Unavailable);
    assert_eq!(awaited(&mut client, &run).await, AwaitedResponse::default());
}
