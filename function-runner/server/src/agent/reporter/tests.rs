//! Reports to a hub in the same process, on a paused clock.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use stoa_runtime_gitops::Progress;
use tempfile::TempDir;

use super::*;

/// Reconciler, commit and time of a reported deployment.
type Row = (String, String, Option<i64>);

/// A hub with one Reconciler.
#[derive(Default)]
struct FakeHub {
    /// The codes of the next reports with their Retry-After. Later reports are recorded.
    failures: Mutex<VecDeque<(u16, Option<&'static str>)>>,
    /// The status of the Reconciler.
    status: Mutex<Value>,
    /// The reports, with the codes of their answers.
    reports: Mutex<Vec<(u16, Vec<Row>)>>,
}

fn row(deployment: &Value) -> Row {
    let text = |field: &str| deployment[field].as_str().unwrap().to_owned();
    let time = deployment["time"].as_str().map(|time| time.parse::<Timestamp>().unwrap().as_second());
    (text("reconciler"), text("gitOpsCommitId"), time)
}

impl FakeHub {
    fn client(self: &Arc<Self>) -> Client {
        let hub = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let hub = hub.clone();
            async move { Ok::<_, Infallible>(hub.answer(request).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let folder = "/apis/hub.kalypso.io/v1alpha1/namespaces/drones";
        if head.method == "GET" {
            assert_eq!(head.uri.path(), format!("{folder}/reconcilers"));
            assert!(head.uri.query().unwrap().contains("spec.hostName"), "{}", head.uri);
            let spec = |host: &str| json!({"hostName": host, "reconcilerName": "web", "reconcilerType": "flux", "manifestsEndpoint": "e"});
            let reconciler = json!({
                "metadata": {"name": "drone-web"}, "spec": spec("drone"), "status": *self.status.lock().unwrap(),
            });
            let other = json!({"metadata": {"name": "other-web"}, "spec": spec("other")});
            return response(200, None, &json!({"metadata": {}, "items": [reconciler, other]}));
        }
        assert_eq!((head.method.as_str(), head.uri.path()), ("POST", format!("{folder}/deploymentreports").as_str()));
        let mut report: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap();
        let rows: Vec<Row> = report["spec"]["deployments"].as_array().unwrap().iter().map(row).collect();
        let is_wrong = rows.iter().any(|(_, commit, _)| commit == "wrong");
        let failure = self.failures.lock().unwrap().pop_front();
        let (code, wait) = failure.unwrap_or(if is_wrong { (422, None) } else { (201, None) });
        self.reports.lock().unwrap().push((code, rows));
        report["status"] = json!({"transitions": 1, "heartbeats": 0});
        let problem = json!({"kind": "Status", "message": "no"});
        response(code, wait, if code == 201 { &report } else { &problem })
    }

    fn reports(&self) -> Vec<(u16, Vec<Row>)> {
        std::mem::take(&mut *self.reports.lock().unwrap())
    }
}

fn response(code: u16, wait: Option<&str>, body: &Value) -> Response<Body> {
    let mut response = Response::builder().status(code);
    if let Some(wait) = wait {
        response = response.header("retry-after", wait);
    }
    response.body(Body::from(body.to_string().into_bytes())).unwrap()
}

/// An agent and its hub.
struct World {
    hub: Arc<FakeHub>,
    reporter: Reporter,
    folder: TempDir,
}

impl World {
    fn new(hub: FakeHub) -> Self {
        let (hub, folder) = (Arc::new(hub), tempfile::tempdir().unwrap());
        let client = HubClient::new(hub.client(), "drones".to_owned(), "drone".to_owned());
        let queue = Queue::open(&folder.path().join("queue.json"), 100).unwrap();
        let reporter = Reporter::new(client, queue, Duration::from_secs(60), AgentMetrics::new().unwrap());
        Self { hub, reporter, folder }
    }

    fn list(&mut self, commit: &str, second: i64) {
        let objects = vec![(web(), Some(deployment(commit, second)))];
        self.reporter.take(Change::Listed("Kustomization", objects), at(1000));
    }

    fn apply(&mut self, commit: &str, second: i64) {
        self.reporter.take(Change::Applied(web(), Some(deployment(commit, second))), at(1000));
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn web() -> ObjectId {
    ObjectId { kind: "Kustomization".to_owned(), namespace: "flux-system".to_owned(), name: "web".to_owned() }
}

fn deployment(commit: &str, second: i64) -> Deployment {
    let (revision, since) = (commit.to_owned(), at(second).to_string());
    Deployment { revision, progress: Progress::Ready, message: String::new(), since }
}

fn report(code: u16, rows: &[(&str, Option<i64>)]) -> (u16, Vec<Row>) {
    let rows = rows.iter().map(|(commit, second)| ("drone-web".to_owned(), (*commit).to_owned(), *second));
    (code, rows.collect())
}

/// The values of the metrics with names of the agent, by name and outcome.
fn metrics(reporter: &Reporter) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let families = reporter.metrics.registry().gather();
    for family in families.iter().filter(|family| family.name().starts_with("agent_")) {
        for metric in family.get_metric() {
            let outcome = metric.get_label().iter().map(|label| format!("/{}", label.value())).collect::<String>();
            let name = format!("{}{outcome}", family.name().trim_start_matches("agent_"));
            // One of them is there.
            found.insert(name, metric.get_counter().get_value() + metric.get_gauge().get_value());
        }
    }
    found
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn outage_delays_deployments_and_loses_none() {
    let failures = VecDeque::from([(503, None), (429, Some("7"))]);
    let mut world = World::new(FakeHub { failures: Mutex::new(failures), ..FakeHub::default() });
    world.list("c1", 10);
    world.reporter.work().await;
    world.apply("c2", 20);
    world.reporter.work().await;
    assert_eq!(world.hub.reports(), [report(503, &[("c1", Some(10))])]);
    let counted = metrics(&world.reporter);
    let expected = [("queue_deployments", 2.0), ("reports_total/failed", 1.0), ("last_success_timestamp_seconds", 0.0)];
    assert!(expected.iter().all(|(name, value)| counted.get(*name) == Some(value)), "{counted:?}");
    // The file has both before the hub has any.
    let copy = world.folder.path().join("copy.json");
    std::fs::copy(world.folder.path().join("queue.json"), &copy).unwrap();
    assert!(!Queue::open(&copy, 100).unwrap().is_empty());

    pass(1).await;
    world.reporter.work().await;
    let both = [("c1", Some(10)), ("c2", Some(20))];
    assert_eq!(world.hub.reports(), [report(429, &both)]);
    pass(6).await;
    world.reporter.work().await;
    assert!(world.hub.reports().is_empty());
    pass(1).await;
    world.reporter.work().await;
    // The heartbeat follows, with the time of the cluster: the hub has no deployment of this Reconciler.
    assert_eq!(world.hub.reports(), [report(201, &both), report(201, &[("c2", Some(20))])]);
    assert!(Queue::open(&world.folder.path().join("queue.json"), 100).unwrap().is_empty());
    let counted = metrics(&world.reporter);
    let expected = [("queue_deployments", 0.0), ("reports_total/failed", 2.0), ("reports_total/recorded", 2.0)];
    assert!(expected.iter().all(|(name, value)| counted.get(*name) == Some(value)), "{counted:?}");
    assert!(counted["last_success_timestamp_seconds"] > 0.0, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn rejected_deployment_holds_up_no_other() {
    let mut world = World::new(FakeHub::default());
    world.list("c1", 10);
    world.apply("wrong", 20);
    world.apply("c3", 30);
    world.reporter.work().await;
    let recorded: Vec<_> = world.hub.reports().into_iter().filter(|(code, _)| *code == 201).collect();
    let c3 = report(201, &[("c3", Some(30))]);
    assert_eq!(recorded, [report(201, &[("c1", Some(10))]), c3.clone(), c3]);
    assert_eq!(metrics(&world.reporter)["dropped_deployments_total"], 1.0);
}

#[tokio::test(start_paused = true)]
async fn heartbeat_repeats_the_state_of_a_watched_cluster() {
    let status = json!({"deployment": {"gitOpsCommitId": "c1", "status": "success", "since": "2026-03-01T12:00:00Z"}});
    let mut world = World::new(FakeHub { status: Mutex::new(status), ..FakeHub::default() });
    world.reporter.work().await;
    assert!(world.hub.reports().is_empty());
    world.list("c1", 10);
    world.reporter.work().await;
    let heartbeat = report(201, &[("c1", None)]);
    assert_eq!(world.hub.reports(), [report(201, &[("c1", Some(10))]), heartbeat.clone()]);
    pass(59).await;
    world.reporter.work().await;
    assert!(world.hub.reports().is_empty());
    pass(1).await;
    world.reporter.work().await;
    assert_eq!(world.hub.reports(), [heartbeat]);

    // The state of a cluster that does not answer is unknown, and so is that of a deleted object.
    world.reporter.take(Change::Failed("Kustomization"), at(1000));
    pass(60).await;
    world.reporter.work().await;
    assert!(world.hub.reports().is_empty());
    world.list("c1", 10);
    world.reporter.take(Change::Deleted(web()), at(1000));
    pass(60).await;
    world.reporter.work().await;
    assert!(world.hub.reports().is_empty());
}
