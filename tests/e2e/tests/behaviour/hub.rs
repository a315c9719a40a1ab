//! The hub: clusters report their deployments, and the states and the history survive a crash. No Flux is here: a test writes
//! the status of its objects as it does.

use std::io::Write as _;
use std::process::Stdio;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use stoa_e2e::fixture::Organization;
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, eventually};

use crate::PATIENCE;
use crate::compliance::define_kinds;

const NAMESPACE: &str = "drones";
const ENDPOINT: &str = "https://git.example.com/hello-world-gitops";

/// A descriptor of Kalypso's sample workload in an environment, with the commit of its manifests.
fn descriptor(environment: &str, version: &str, commit: &str) -> String {
    format!(
        "apiVersion: hub.kalypso.io/v1alpha1
kind: DeploymentDescriptor
metadata:
  name: hello-world-{environment}
  namespace: {NAMESPACE}
  annotations: {{stoa.dev/gitops-commit-id: {commit}}}
spec:
  workload:
    name: hello-world
    source: {{repo: \"https://git.example.com/hello-world\", branch: main, path: .}}
    application: {{name: greeting-service, workspace: {{name: kaizentm}}}}
  deploymentTarget:
    name: functional-test
    environment: {environment}
    manifests: {{repo: \"{ENDPOINT}\", branch: {environment}, path: ./functional-test}}
  workloadVersion: {{version: {version}, build: build-1, commit: ca9ee9d, buildTime: \"2023-04-27T23:25:05Z\"}}
"
    )
}

fn reconciler(host: &str, environment: &str) -> String {
    format!(
        "apiVersion: hub.kalypso.io/v1alpha1
kind: Reconciler
metadata: {{name: {host}-hello, namespace: {NAMESPACE}}}
spec:
  hostName: {host}
  reconcilerName: hello
  reconcilerType: flux
  manifestsEndpoint: {ENDPOINT}/{environment}/functional-test
"
    )
}

fn path(rest: &str) -> String {
    path_in(NAMESPACE, rest)
}

fn path_in(namespace: &str, rest: &str) -> String {
    format!("/apis/hub.kalypso.io/v1alpha1/namespaces/{namespace}/{rest}")
}

fn deployed(host: &str, commit: &str, status: &str) -> Value {
    json!({"reconciler": format!("{host}-hello"), "gitOpsCommitId": commit, "status": status})
}

fn report(kubectl: &Kubectl, deployments: &Value) -> Result<Value, String> {
    report_in(kubectl, NAMESPACE, deployments)
}

/// Sends a report as a program without a client library does; the status of the answer, or what kubectl says.
pub(crate) fn report_in(kubectl: &Kubectl, namespace: &str, deployments: &Value) -> Result<Value, String> {
    let report = json!({
        "apiVersion": "hub.kalypso.io/v1alpha1", "kind": "DeploymentReport", "spec": {"deployments": deployments},
    });
    let mut command =
        kubectl.command(&["create", "--raw", &path_in(namespace, "deploymentreports"), "--filename", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(report.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice::<Value>(&output.stdout).unwrap()["status"].clone()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn counts(status: &Value) -> (u64, u64) {
    (status["transitions"].as_u64().unwrap(), status["heartbeats"].as_u64().unwrap())
}

/// Host, version and state of each DeploymentState that a field selector selects.
fn states(kubectl: &Kubectl, selector: &str) -> Vec<(String, String, String)> {
    let selector = format!("--field-selector={selector}");
    let list = kubectl.get(&["deploymentstates.hub.kalypso.io", "--namespace", NAMESPACE, &selector]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let state = |state: &Value| {
        (text(&state["spec"]["host"]), text(&state["status"]["version"]), text(&state["status"]["state"]))
    };
    list["items"].as_array().unwrap().iter().map(state).collect()
}

fn rows(kubectl: &Kubectl, query: &str) -> Vec<Value> {
    let rows: Value =
        serde_json::from_str(&kubectl.run(&["get", "--raw", &path(&format!("deploymentqueries/{query}"))])).unwrap();
    rows.as_array().unwrap().clone()
}

/// The hosts and commits of the history, the newest first.
fn history(kubectl: &Kubectl, query: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = rows(kubectl, &format!("history/rows?{query}"));
    rows.iter().map(|row| (text(&row["host"]), text(&row["gitOpsCommitId"]))).collect()
}

fn tuple(host: &str, version: &str, state: &str) -> (String, String, String) {
    (host.to_owned(), version.to_owned(), state.to_owned())
}

#[test]
fn reports_become_states_and_a_history_that_survives_a_crash() {
    let mut server = Standalone::start();
    let kubectl = server.kubectl();
    kubectl.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"));
    let objects = [
        descriptor("dev", "0.0.1", "c1"),
        descriptor("prod", "0.0.1", "p1"),
        reconciler("alpha", "dev"),
        reconciler("beta", "dev"),
        reconciler("gamma", "prod"),
    ];
    for object in &objects {
        kubectl.apply(object);
    }
    assert_eq!(states(&kubectl, "spec.environment=prod"), [tuple("gamma", "", "unknown")]);

    // A report by a file, as a person sends it.
    let file = format!(
        "apiVersion: hub.kalypso.io/v1alpha1
kind: DeploymentReport
metadata: {{namespace: {NAMESPACE}}}
spec:
  deployments:
  - {{reconciler: alpha-hello, gitOpsCommitId: c1, status: success}}
  - {{reconciler: gamma-hello, gitOpsCommitId: p1, status: success}}
"
    );
    let mut command = kubectl.command(&["create", "--filename", "-", "--output=json", "--validate=false"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(counts(&answer["status"]), (2, 0), "{answer:#}");

    // A new version reaches one cluster, and fails on the other.
    kubectl.apply(&descriptor("dev", "0.0.2", "c2"));
    let status = report(&kubectl, &json!([deployed("alpha", "c2", "success"), deployed("beta", "c2", "failure")]));
    assert_eq!(counts(&status.unwrap()), (2, 0));
    let again = report(&kubectl, &json!([deployed("alpha", "c2", "success")])).unwrap();
    assert_eq!(counts(&again), (0, 1));
    let expected =
        [tuple("alpha", "0.0.2", "success"), tuple("beta", "0.0.2", "failure"), tuple("gamma", "0.0.1", "success")];
    assert_eq!(states(&kubectl, "spec.workload=hello-world"), expected);
    assert_eq!(states(&kubectl, "status.state=failure"), expected[1..2]);
    let table = kubectl.run(&["get", "deploymentstates", "--namespace", NAMESPACE, "--no-headers"]);
    assert!(table.contains("hello-world") && table.contains("0.0.2") && table.contains("failure"), "{table}");

    // The pages of a list go on while clusters report, and show what it began with.
    let page = |more: &str| -> Value {
        let list = kubectl.run(&["get", "--raw", &path(&format!("deploymentstates?limit=2{more}"))]);
        serde_json::from_str(&list).unwrap()
    };
    let first = page("");
    assert_eq!(first["items"].as_array().unwrap().len(), 2, "{first:#}");
    report(&kubectl, &json!([deployed("gamma", "p1", "in_progress")])).unwrap();
    let last = page(&format!("&continue={}", first["metadata"]["continue"].as_str().unwrap()));
    assert_eq!((&last["items"][0]["spec"]["host"], last["items"].as_array().unwrap().len()), (&json!("gamma"), 1));
    assert_eq!(last["items"][0]["status"]["state"], "success", "{last:#}");
    assert_eq!(states(&kubectl, "spec.host=gamma"), [tuple("gamma", "0.0.1", "in_progress")]);
    report(&kubectl, &json!([deployed("gamma", "p1", "success")])).unwrap();

    // Bad reports change nothing.
    let refused = report(&kubectl, &json!([deployed("alpha", "c3", "success"), deployed("delta", "c3", "success")]));
    assert!(refused.unwrap_err().contains("spec.deployments[1].reconciler"));
    let many: Vec<Value> = (0..1001).map(|_| deployed("alpha", "c3", "success")).collect();
    assert!(report(&kubectl, &json!(many)).unwrap_err().contains("spec.deployments"));
    let unknown = report(&kubectl, &json!([deployed("beta", "c9", "in_progress")])).unwrap();
    assert_eq!(unknown["warnings"][0]["reason"], "UnknownCommit", "{unknown:#}");
    let nobody = kubectl.impersonate("ann");
    assert!(report(&nobody, &json!([deployed("alpha", "c3", "success")])).unwrap_err().contains("Forbidden"));
    assert!(nobody.refused(&["get", "--raw", &path("deploymentqueries/history/rows")]).contains("Forbidden"));

    // What is acknowledged survives a crash.
    server.kill();
    server.restart();
    let kubectl = server.kubectl();
    assert_eq!(states(&kubectl, "spec.host=beta"), [tuple("beta", "", "in_progress")]);
    let of_alpha = [("alpha".to_owned(), "c2".to_owned()), ("alpha".to_owned(), "c1".to_owned())];
    assert_eq!(history(&kubectl, "host=alpha&since=1d"), of_alpha);

    // The archive takes the transitions over, and answers the same.
    let is_archived = || {
        let list = kubectl.get(&["reconcilers.hub.kalypso.io", "--namespace", NAMESPACE]);
        let mut items = list["items"].as_array().unwrap().iter();
        items.all(|item| item["status"]["transitions"].as_array().is_none_or(Vec::is_empty)).then_some(())
    };
    eventually("the transitions are in the archive", PATIENCE, is_archived);
    assert_eq!(history(&kubectl, "host=alpha"), of_alpha);
    assert_eq!(history(&kubectl, "reconciler=beta-hello&limit=1"), [("beta".to_owned(), "c9".to_owned())]);
    server.kill();
    server.restart();
    let kubectl = server.kubectl();
    assert_eq!(history(&kubectl, "host=alpha"), of_alpha);

    // Tables for dashboards.
    let differences = rows(&kubectl, "differences/rows?environment=dev&with=prod");
    assert_eq!(differences.len(), 1, "{differences:#?}");
    assert_eq!((&differences[0]["versions"], &differences[0]["otherVersions"]), (&json!("0.0.2, c9"), &json!("0.0.1")));
    assert_eq!(differences[0]["isSame"], false);
    let counts = rows(&kubectl, "counts/rows?environment=dev");
    let numbers = ["total", "succeeded", "failed", "inProgress", "unknown"].map(|name| &counts[0][name]);
    assert_eq!((counts.len(), numbers), (1, [&json!(2), &json!(1), &json!(0), &json!(1), &json!(0)]), "{counts:#?}");
    let rollouts = rows(&kubectl, "lag/rows?environment=dev&since=30d");
    let rollout = rollouts.iter().find(|row| row["gitOpsCommitId"] == "c2").unwrap();
    assert_eq!(
        (&rollout["version"], &rollout["reconcilers"], &rollout["succeeded"], &rollout["failed"]),
        (&json!("0.0.2"), &json!(2), &json!(1), &json!(1))
    );
    let queries = kubectl.run(&["get", "deploymentqueries", "--namespace", NAMESPACE, "--output=name"]);
    assert_eq!(queries.lines().count(), 4, "{queries}");
    let wrong = kubectl.refused(&["get", "--raw", &path("deploymentqueries/history/rows?since=soon")]);
    assert!(wrong.contains("since"), "{wrong}");
}

/// Writes the status of a Kustomization as Flux does after it applied a commit.
fn applied(kubectl: &Kubectl, namespace: &str, commit: &str, time: &str) {
    let revision = format!("main@sha1:{commit}");
    let ready = json!({"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "applied",
        "observedGeneration": 1, "lastTransitionTime": time});
    let status = json!({"observedGeneration": 1, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "conditions": [ready]});
    let patch = json!({"status": status}).to_string();
    let object = ["patch", "kustomization.kustomize.toolkit.fluxcd.io/hello", "--namespace", namespace];
    kubectl.run(&[&object[..], &["--type=merge", "--subresource=status", "--patch", &patch]].concat());
}

/// Waits until a Reconciler has a deployment of this commit; its time.
fn deployed_since(kubectl: &Kubectl, namespace: &str, name: &str, commit: &str) -> String {
    let deployment = || {
        let reconciler = kubectl.get(&["reconcilers.hub.kalypso.io", name, "--namespace", namespace]);
        let deployment = &reconciler["status"]["deployment"];
        (deployment["gitOpsCommitId"] == commit).then(|| deployment["since"].as_str().unwrap().to_owned())
    };
    eventually("the agent has reported the commit", PATIENCE, deployment)
}

#[test]
fn agent_reports_what_flux_applied() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    define_kinds(&kubectl);
    let organization = Organization::create(&cluster);
    let namespace = organization.name.as_str();
    let host = format!("drone-of-{namespace}");
    kubectl.apply(&format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: hello, namespace: {namespace}}}
spec: {{interval: 1m}}
---
apiVersion: hub.kalypso.io/v1alpha1
kind: Reconciler
metadata: {{name: drone-hello, namespace: {namespace}}}
spec:
  hostName: {host}
  reconcilerName: {namespace}/hello
  reconcilerType: flux
  manifestsEndpoint: {ENDPOINT}/dev/functional-test
"
    ));
    let seconds_ago = |seconds: i64| {
        let now = Timestamp::now().as_second();
        Timestamp::from_second(now - seconds).unwrap()
    };
    let (first, second) = ("1".repeat(40), "2".repeat(40));
    let (earlier, later) = (seconds_ago(600), seconds_ago(300));
    applied(&kubectl, namespace, &first, &earlier.to_string());
    let folder = tempfile::tempdir().unwrap();
    let queue = folder.path().join("queue.json");
    let agent = cluster.agent(namespace, &host, &queue);
    let since = deployed_since(&kubectl, namespace, "drone-hello", &first);
    assert_eq!(since.parse::<Timestamp>().unwrap(), earlier);

    // The next commit is applied while no agent is there.
    drop(agent);
    applied(&kubectl, namespace, &second, &later.to_string());
    let _agent = cluster.agent(namespace, &host, &queue);
    let since = deployed_since(&kubectl, namespace, "drone-hello", &second);
    assert_eq!(since.parse::<Timestamp>().unwrap(), later);
}
