//! How long it takes to plan 10,000 Deployments of one namespace, each after one before it, of which every hundredth was
//! changed by hand: `cargo run --release -p stoa-apply --example plan_ten_thousand`. It is all of [`plan`] on one core, from
//! the Spec to the table, what the fake cloud takes to answer among it. Ends with an error where it takes a second or more.

#![expect(clippy::print_stdout, reason = "it says what it measured")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use stoa_apply::{Planning, plan};
use stoa_engine::{DigestKeys, Resource, Spec, State, StateResource, resolve::Resolved};
use stoa_runtime::Runtime;
use stoa_runtime::fake::FakeCloud;

const DEPLOYMENTS: usize = 10_000;
const BOUND: Duration = Duration::from_secs(1);
/// The best of so many counts: whatever else runs on the machine only makes it slower.
const TRIES: usize = 5;
const NAMESPACE: &str = "v1:Namespace:shop";

fn id(number: usize) -> String {
    format!("apps/v1:Deployment:shop:web-{number}")
}

fn namespace() -> Value {
    json!({"id": NAMESPACE, "type": "Kubernetes", "attributes": {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}})
}

fn deployment(number: usize) -> Value {
    let container = json!({
        "name": "web", "image": format!("registry.example.com/shop/web:{number}"),
        "env": [{"name": "NUMBER", "value": number.to_string()}, {"name": "LOG", "value": "info"}],
        "ports": [{"containerPort": 8080}], "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
    });
    let labels = json!({"app": format!("web-{number}")});
    let before: Vec<String> = (number > 0).then(|| id(number / 2)).into_iter().collect();
    json!({"id": id(number), "type": "Kubernetes", "dependsOn": before, "attributes": {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": format!("web-{number}"), "namespace": "shop"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}})
}

/// What a server makes of an object besides what is wanted of it.
fn served(mut object: Map<String, Value>, number: usize) -> Map<String, Value> {
    object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
    object["metadata"]["resourceVersion"] = json!((number + 1_000).to_string());
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object.insert(
        "status".to_owned(),
        json!({"observedGeneration": 1, "replicas": 2, "conditions": [
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "it is there"}]}),
    );
    object
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (cloud, keys) = (FakeCloud::new(), DigestKeys::new(&[7; 32], &[]));
    let runtime: Arc<dyn Runtime> = Arc::new(cloud.runtime());
    let resources: Vec<Resource> = std::iter::once(namespace())
        .chain((0..DEPLOYMENTS).map(deployment))
        .map(|resource| serde_json::from_value(resource).expect("a resource is written as one"))
        .collect();
    let mut state = State::default();
    for (number, resource) in resources.iter().enumerate() {
        let mut live = served(runtime.owner().marked(&resource.attributes), number);
        let resolved = Resolved::plain(&resource.attributes);
        let record = StateResource::applied(resource, &resolved, live.clone(), &keys);
        state.resources.push(record.depending_on(resource.depends_on.clone()));
        if number % 100 == 1 {
            live["spec"]["replicas"] = json!(5);
        }
        cloud.put(&resource.id.0, live.into());
    }
    let spec = Spec { resources, ..Spec::default() };
    let spec_digest = &spec.digest();
    let planning = Planning {
        spec: &spec,
        spec_digest,
        state: &state,
        destroy: false,
        refresh: false,
        keys: &keys,
        forget_clusters: &[],
        hooks: None,
    };
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        let planned = plan(Arc::clone(&runtime), &planning).await.expect("nothing is wrong with it");
        best = best.min(start.elapsed());
        assert_eq!((planned.summary.update, planned.summary.unchanged), (100, 9_901));
    }
    println!("{} resources are planned in {best:?}", spec.resources.len());
    if best < BOUND { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
