//! How long it takes to plan 10,000 Deployments, each after one before it, of which every hundredth was changed by hand:
//! `cargo run --release -p stoa-engine --example plan_ten_thousand`. Ends with an error where it takes a second or more.

#![expect(clippy::print_stdout, reason = "it says what it measured")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoa_engine::planner::draft;
use stoa_engine::{
    DigestKeys, Live, Owner, PlanInput, Resource, ResourceId, Spec, State, StateResource, resolve::Resolved,
};

const RESOURCES: usize = 10_000;
const BOUND: Duration = Duration::from_secs(1);
/// The best of so many counts: whatever else runs on the machine only makes it slower.
const TRIES: usize = 5;

fn id(number: usize) -> String {
    format!("apps/v1:Deployment:shop:web-{number}")
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

fn main() -> ExitCode {
    let resources: Vec<Resource> = (0..RESOURCES)
        .map(|number| serde_json::from_value(deployment(number)).expect("a resource is written as one"))
        .collect();
    let (keys, owner) = (DigestKeys::new(&[7; 32], &[]), Owner::default());
    let mut state = State::default();
    let mut live: BTreeMap<ResourceId, Live> = BTreeMap::new();
    for (number, resource) in resources.iter().enumerate() {
        let mut object = resource.attributes.clone();
        let resolved = Resolved { attributes: object.clone(), ..Resolved::default() };
        let record = StateResource::applied(resource, &resolved, object.clone(), &keys);
        state.resources.push(record.depending_on(resource.depends_on.clone()));
        if number % 100 == 0 {
            object["spec"]["replicas"] = json!(5);
        }
        live.insert(resource.id.clone(), Live::Present(object));
    }
    let spec = Spec { resources, ..Spec::default() };
    let input = PlanInput { live: &live, ..PlanInput::blind(&spec, &state, &owner, &keys) };
    let mut best = Duration::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        let summary = draft(&input).expect("nothing is wrong with it").plan.summary();
        best = best.min(start.elapsed());
        assert_eq!((summary.update, summary.unchanged), (100, 9_900));
    }
    println!("{RESOURCES} resources are planned in {best:?}");
    if best < BOUND { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
