//! The hub: reports of clusters become transitions, and states follow from them.

use stoa_machinery::registry::ListOptions;
use stoa_types::hub::{DeploymentState, Reconciler};

use super::*;

const HUB: &str = "hub.kalypso.io/v1alpha1";

fn descriptor(name: &str, environment: &str, version: &str, commit: &str) -> Value {
    let folder =
        |branch: &str, path: &str| json!({ "repo": "https://git.example.com/web", "branch": branch, "path": path });
    json!({
        "metadata": { "name": name, "annotations": { "stoa.dev/gitops-commit-id": commit } },
        "spec": {
            "workload": {
                "name": "web",
                "source": folder("main", "."),
                "application": { "name": "greeting", "workspace": { "name": "kaizen" } },
            },
            "deploymentTarget": { "name": "test", "environment": environment, "manifests": folder(environment, "./test") },
            "workloadVersion": { "version": version, "commit": "abc" },
        },
    })
}

fn reconciler(name: &str, host: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "hostName": host, "reconcilerName": name, "reconcilerType": "flux",
            "manifestsEndpoint": "https://git.example.com/web/dev/test",
        },
    })
}

impl World {
    /// Sends a report, and returns the status of the answer.
    async fn report(&self, deployments: Value) -> Result<Value, ApiError> {
        let store = self.registry.store("hub.kalypso.io", "v1alpha1", "deploymentreports").unwrap();
        let handler = store.definition().ephemeral.clone().unwrap();
        let metadata = json!({ "name": "", "namespace": "shop" });
        let report = json!({ "apiVersion": HUB, "kind": "DeploymentReport", "metadata": metadata, "spec": { "deployments": deployments } });
        let context = RequestContext::internal("tests");
        let answer = store.answer_ephemeral(&context, Object(report.as_object().unwrap().clone()), &*handler).await?;
        Ok(answer.object().0["status"].clone())
    }

    async fn states(&self, field_selector: &str) -> Vec<(String, String, String)> {
        let options = ListOptions { field_selector: Some(field_selector.to_owned()), ..ListOptions::default() };
        let states = self.registry.api::<DeploymentState>().list_with(Some("shop"), &options).await.unwrap();
        let shown = states.into_iter().map(|state| {
            let status = state.status.unwrap();
            (state.metadata.name.unwrap(), status.version, status.state)
        });
        shown.collect()
    }
}

#[tokio::test]
async fn reports_become_transitions_and_states() {
    let world = World::new().await;
    world.make(HUB, "DeploymentDescriptor", "shop", descriptor("web-dev", "dev", "1.0", "c1")).await.unwrap();
    for (name, host) in [("a-web", "a"), ("b-web", "b")] {
        world.make(HUB, "Reconciler", "shop", reconciler(name, host)).await.unwrap();
    }
    let unknown = |name: &str| (format!("{name}.web-dev"), String::new(), "unknown".to_owned());
    assert_eq!(world.states("").await, [unknown("a-web"), unknown("b-web")]);

    let now = |name: &str, commit: &str, status: &str| json!({ "reconciler": name, "gitOpsCommitId": commit, "status": status });
    let status = world.report(json!([now("a-web", "c1", "success"), now("b-web", "c9", "failure")])).await.unwrap();
    assert_eq!((&status["transitions"], &status["heartbeats"]), (&json!(2), &json!(0)));
    assert_eq!(status["warnings"][0]["field"], "spec.deployments[1].gitOpsCommitId");
    assert_eq!(status["warnings"][0]["reason"], "UnknownCommit");
    let state =
        |name: &str, version: &str, state: &str| (format!("{name}.web-dev"), version.to_owned(), state.to_owned());
    assert_eq!(world.states("").await, [state("a-web", "1.0", "success"), state("b-web", "", "failure")]);
    assert_eq!(world.states("status.state=failure").await, [state("b-web", "", "failure")]);
    assert_eq!(world.states("spec.host=a").await, [state("a-web", "1.0", "success")]);

    // A repeated state is no write.
    let api = world.registry.api::<Reconciler>();
    let before = api.get("shop", "a-web").await.unwrap();
    let status = world.report(json!([now("a-web", "c1", "success")])).await.unwrap();
    assert_eq!((&status["transitions"], &status["heartbeats"]), (&json!(0), &json!(1)));
    assert_eq!(api.get("shop", "a-web").await.unwrap().metadata.resource_version, before.metadata.resource_version);
    assert_eq!(before.status.unwrap().transitions.len(), 1);

    // A report with an unknown reconciler is rejected whole, and so is one without any.
    let wrong = world.report(json!([now("a-web", "c2", "success"), now("c-web", "c2", "success")])).await.unwrap_err();
    assert_eq!(wrong.code(), 422, "{wrong}");
    assert!(wrong.message().contains("spec.deployments[1].reconciler"), "{wrong}");
    assert_eq!(world.states("spec.host=a").await, [state("a-web", "1.0", "success")]);
    assert_eq!(world.report(json!([])).await.unwrap_err().code(), 422);

    // A time before the retention is not recorded.
    let mut old = now("a-web", "c0", "success");
    old["time"] = json!("2000-01-01T00:00:00Z");
    let status = world.report(json!([old])).await.unwrap();
    assert_eq!((&status["transitions"], &status["heartbeats"]), (&json!(0), &json!(0)));
    assert_eq!(status["warnings"][0]["reason"], "OlderThanRetention");
}

#[tokio::test]
async fn deployment_in_the_spec_is_a_report() {
    let world = World::new().await;
    world.make(HUB, "DeploymentDescriptor", "shop", descriptor("web-dev", "dev", "1.0", "c1")).await.unwrap();
    let mut object = reconciler("a-web", "a");
    object["spec"]["deployment"] = json!({ "gitOpsCommitId": "c1", "status": "success", "statusMessage": "" });
    world.make(HUB, "Reconciler", "shop", object.clone()).await.unwrap();
    let state = ("a-web.web-dev".to_owned(), "1.0".to_owned(), "success".to_owned());
    assert_eq!(world.states("").await, [state]);

    // As clients in Go write a deployment that they do not have.
    object["metadata"]["name"] = json!("b-web");
    object["spec"]["deployment"] = json!({ "gitOpsCommitId": "", "status": "", "statusMessage": "" });
    world.make(HUB, "Reconciler", "shop", object.clone()).await.unwrap();
    object["metadata"]["name"] = json!("c-web");
    object["spec"]["deployment"]["status"] = json!("done");
    let wrong = world.make(HUB, "Reconciler", "shop", object).await.unwrap_err();
    assert!(wrong.message().contains("spec.deployment.status"), "{wrong}");
}

#[tokio::test]
async fn reconciler_with_a_full_status_is_asked_to_wait() {
    let world = World::new().await;
    world.make(HUB, "Reconciler", "shop", reconciler("a-web", "a")).await.unwrap();
    let many = |from: usize| {
        let one = |at: usize| json!({ "reconciler": "a-web", "gitOpsCommitId": format!("c{at}"), "status": "success" });
        Value::from((from..from + 60).map(one).collect::<Vec<_>>())
    };
    world.report(many(0)).await.unwrap();
    let busy = world.report(many(100)).await.unwrap_err();
    assert_eq!(busy.code(), 429, "{busy}");
    let status = world.registry.api::<Reconciler>().get("shop", "a-web").await.unwrap().status.unwrap();
    assert_eq!(status.transitions.len(), 60, "none of the second report is recorded");
}
