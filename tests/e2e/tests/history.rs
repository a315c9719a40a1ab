//! What the log has let go of, behind kube-apiserver with two Stoas on etcd that keep changes for a second: what people wrote
//! is read as it was at any version all the same, and watchers and pages whose version is gone are told so and miss nothing.
//!
//! Elsewhere: `client_go` does the latter with the log on local files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use http::Request;
use kube::api::{Api, ListParams};
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use stoa_e2e::fixture::Organization;
use stoa_e2e::remote::ControlRemote;
use stoa_e2e::{
    Caller, Cluster, Follower, SHORT_HISTORY, Server as _, Versions, eventually, go_tests_of_short_history, new_leader,
    unique,
};
use stoa_types::platform::Backend;
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

const REPLICAS: usize = 2;
/// How long anything that has to happen may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(120);
const BACKENDS: &str = "/apis/platform.stoa.dev/v1alpha1/backends";
const LABEL: &str = "stoa.dev/history-test";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn git_serves_history_compacted_from_log() {
    // The replica that does not lead has no copy of the control repository, and fetches what it is asked for.
    let remote = ControlRemote::start().await;
    let mut arguments = remote.arguments();
    arguments.extend(SHORT_HISTORY.map(str::to_owned));
    let cluster = block_in_place(|| Cluster::replicated_with(REPLICAS, &arguments));
    past_is_read_at_any_version(&cluster).await;
    kube_rs_misses_nothing(&cluster).await;
    block_in_place(|| go_tests_of_short_history(&cluster));
}

/// Reads a path at a Stoa itself: the code and the answer.
async fn read(client: &Client, path: &str) -> (u16, Value) {
    match client.request(Request::get(path).body(Vec::new()).unwrap()).await {
        Ok(answer) => (200, answer),
        Err(kube::Error::Api(status)) => (status.code, Value::Null),
        Err(error) => panic!("{path}: {error}"),
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

async fn write(front: &Caller, method: &str, path: &str, body: &Value) -> Value {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let answer = front.ask(method, path, &[("Content-Type", media)], body).await;
    assert!(answer.code < 300, "{method} {path}: {answer:?}");
    answer.body
}

/// Changes objects until a server has let go of a version of all their kinds.
async fn outlive(front: &Caller, replicas: &[Client], objects: &[String], gone: u64) {
    let deadline = Instant::now() + PATIENCE;
    for round in 0.. {
        for object in objects {
            let patch = json!({"metadata": {"labels": {"stoa.dev/round": round.to_string()}}});
            write(front, "PATCH", object, &patch).await;
        }
        let mut remembered = Vec::new();
        for (number, client) in replicas.iter().enumerate() {
            for object in objects {
                // Of a page without any more said, upstream takes the version for the very one that is wanted.
                let (list, _) = object.rsplit_once('/').unwrap();
                let (code, _) = read(client, &format!("{list}?resourceVersion={gone}&limit=500")).await;
                if code != 410 {
                    remembered.push((number, list));
                }
            }
        }
        if remembered.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "not forgotten within {PATIENCE:?}: {gone} by {remembered:?}");
    }
}

/// Changes an object until the log itself has let go of a version.
async fn outlive_in_the_log(cluster: &Cluster, front: &Caller, object: &str, gone: u64) {
    let etcd = cluster.etcd();
    let deadline = Instant::now() + PATIENCE;
    for round in 0.. {
        if etcd.has_let_go_of(gone).await {
            return;
        }
        assert!(Instant::now() < deadline, "the log is not compacted behind {gone} within {PATIENCE:?}");
        write(front, "PATCH", object, &json!({"metadata": {"labels": {"stoa.dev/log": round.to_string()}}})).await;
    }
}

/// What there was at a version: the names of the stacks, and what was said of one and of the workspace.
#[derive(Debug)]
struct Moment {
    version: u64,
    stacks: &'static [&'static str],
    web: Option<&'static str>,
    workspace: Option<&'static str>,
}

/// An organization whose stacks come, change and go.
struct Past {
    stacks: String,
    workspace: String,
    moments: Vec<Moment>,
}

impl Past {
    async fn make(front: &Caller, organization: &str) -> Self {
        let stacks = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{organization}/stacks");
        let workspace = format!("/apis/platform.stoa.dev/v1alpha1/workspaces/{organization}");
        let web = format!("{stacks}/web");
        let stack = |name: &str, description: &str| {
            json!({
                "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Stack", "metadata": {"name": name},
                "spec": {"project": organization, "description": description},
            })
        };
        let describe = |description: &str| json!({"spec": {"description": description}});
        let mut moments = Vec::new();
        let mut moment = |object: &Value, stacks, web, workspace| {
            moments.push(Moment { version: version(object), stacks, web, workspace });
        };
        moment(&front.get(&stacks, &[]).await.body, &[], None, None);
        moment(&write(front, "POST", &stacks, &stack("web", "first")).await, &["web"], Some("first"), None);
        moment(&write(front, "PATCH", &web, &describe("second")).await, &["web"], Some("second"), None);
        moment(
            &write(front, "PATCH", &workspace, &describe("changed")).await,
            &["web"],
            Some("second"),
            Some("changed"),
        );
        let api = write(front, "POST", &stacks, &stack("api", "")).await;
        moment(&api, &["api", "web"], Some("second"), Some("changed"));
        write(front, "DELETE", &web, &Value::Null).await;
        let deadline = Instant::now() + PATIENCE;
        while front.get(&web, &[]).await.code != 404 {
            assert!(Instant::now() < deadline, "the stack is not gone within {PATIENCE:?}");
            sleep(Duration::from_millis(100)).await;
        }
        moment(&front.get(&stacks, &[]).await.body, &["api"], None, Some("changed"));
        Self { stacks, workspace, moments }
    }

    /// Reads all of it by kubectl, and looks whether every replica says the same.
    async fn is_told(&self, cluster: &Cluster, replicas: &[Client]) {
        let kubectl = cluster.kubectl();
        let web = format!("{}/web", self.stacks);
        for moment in &self.moments {
            let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", moment.version);
            let get = async |path: &str, query: &str| {
                let path = format!("{path}?{exact}{query}");
                let raw = ["get", "--raw", &path];
                let told: Value = serde_json::from_str(&block_in_place(|| kubectl.run(&raw))).unwrap();
                for (number, client) in replicas.iter().enumerate() {
                    assert_eq!(read(client, &path).await, (200, told.clone()), "{path} at replica {number}");
                }
                told
            };
            let names = |list: &Value| -> Vec<String> {
                let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
                list["items"].as_array().unwrap().iter().map(name).collect()
            };
            let list = get(&self.stacks, "").await;
            assert_eq!(
                (names(&list), version(&list)),
                (moment.stacks.iter().map(ToString::to_string).collect(), moment.version)
            );
            if let [first, second] = moment.stacks {
                let page = get(&self.stacks, "&limit=1").await;
                assert_eq!(names(&page), [*first], "{moment:?}");
                let next = page["metadata"]["continue"].as_str().unwrap();
                let path = format!("{}?limit=1&continue={next}", self.stacks);
                for client in replicas {
                    let (code, page) = read(client, &path).await;
                    assert_eq!((code, names(&page), version(&page)), (200, vec![(*second).to_owned()], moment.version));
                }
            }
            match moment.web {
                Some(said) => assert_eq!(get(&web, "").await["spec"]["description"], said, "{moment:?}"),
                None => {
                    let path = format!("{web}?{exact}");
                    let refused = block_in_place(|| kubectl.refused(&["get", "--raw", &path]));
                    assert!(refused.contains("NotFound"), "{refused}");
                    for client in replicas {
                        assert_eq!(read(client, &path).await.0, 404, "{path}");
                    }
                }
            }
            let workspace = get(&self.workspace, "").await;
            assert_eq!(workspace["spec"].get("description"), moment.workspace.map(|said| json!(said)).as_ref());
        }
    }
}

async fn past_is_read_at_any_version(cluster: &Cluster) {
    let organization = block_in_place(|| Organization::create(cluster));
    let (front, replicas) = (cluster.front_door(), cluster.replicas());
    let past = Past::make(&front, &organization.name).await;
    let gone = past.moments.last().unwrap().version;
    outlive(&front, &replicas, &[format!("{}/api", past.stacks), past.workspace.clone()], gone).await;
    outlive_in_the_log(cluster, &front, &past.workspace, gone).await;
    new_leader(&replicas, PATIENCE).await;
    past.is_told(cluster, &replicas).await;

    block_in_place(|| {
        for replica in 0..REPLICAS {
            cluster.kill_replica(replica);
        }
        cluster.restart();
        let serves = || cluster.kubectl().succeeds(&["get", "--raw", &past.stacks]).then_some(());
        eventually("the first is registered again", PATIENCE, serves);
    });
    // Nobody needs to lead for that.
    past.is_told(cluster, &replicas).await;
}

/// A client whose requests wait while the gate is shut, and are counted.
fn waiting(client: Client, gate: watch::Receiver<bool>, count: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, mut gate, count) = (client.clone(), gate.clone(), count.clone());
        async move {
            count.fetch_add(1, SeqCst);
            // It fails when the test is over, and so is this.
            let _ = gate.wait_for(|is_open| *is_open).await;
            count.fetch_sub(1, SeqCst);
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn kube_rs_misses_nothing(cluster: &Cluster) {
    let (front, id) = (cluster.front_door(), unique("history"));
    let selector = format!("{LABEL}={id}");
    let backend = |number: usize| {
        json!({
            "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Backend",
            "metadata": {"name": format!("{id}-{number}"), "labels": {LABEL: id}},
            "spec": {"type": "Local", "local": {"directory": id}},
        })
    };
    let path = |number: usize| format!("{BACKENDS}/{id}-{number}");
    for number in 0..4 {
        write(&front, "POST", BACKENDS, &backend(number)).await;
    }
    let (gate, is_open) = watch::channel(true);
    let waits = Arc::<AtomicUsize>::default();
    let client = waiting(front.client(), is_open, waits.clone());
    let (objects, metadata) = (Api::<Backend>::all(client.clone()), Api::<PartialObjectMeta<Backend>>::all(client));
    // Each watch takes a second, and the next one goes on where it ended.
    let config = || Config::default().labels(&selector).timeout(1);
    let followers = [
        Follower::new("lists", watcher(objects.clone(), config().page_size(2))),
        Follower::new("streamed lists", watcher(objects, config().streaming_lists())),
        Follower::new("streamed metadata", watcher(metadata, config().streaming_lists())),
    ];
    let backends: Api<Backend> = Api::all(front.client());
    let at_the_truth = async || {
        let list = backends.list(&ListParams::default().labels(&selector)).await.unwrap();
        let entry = |object: &Backend| (object.name_any(), object.resource_version().unwrap_or_default());
        let truth: Versions = list.items.iter().map(entry).collect();
        followers.iter().all(|follower| follower.look(|told| told.there == truth))
    };
    until("all are at what is there", &at_the_truth).await;

    gate.send_replace(false);
    until("all wait", async || waits.load(SeqCst) == followers.len()).await;
    let heard: Vec<_> =
        followers.iter().map(|follower| follower.look(|told| (told.lists, told.errors.len()))).collect();
    write(&front, "PATCH", &path(0), &json!({"spec": {"description": "changed"}})).await;
    let last = version(&front.get(&path(0), &[]).await.body);
    write(&front, "DELETE", &path(1), &Value::Null).await;
    write(&front, "POST", BACKENDS, &backend(4)).await;
    write(&front, "DELETE", &path(2), &Value::Null).await;
    write(&front, "POST", BACKENDS, &backend(2)).await;
    outlive(&front, &cluster.replicas(), &[path(3)], last).await;
    gate.send_replace(true);
    until("all are at what is there again", &at_the_truth).await;
    for (follower, (lists, errors)) in followers.iter().zip(heard) {
        follower.look(|told| {
            let said: Vec<_> = told.errors.iter().skip(errors).map(|error| format!("{error:?}")).collect();
            let name = follower.name;
            assert!(told.faults.is_empty(), "{name}: {:?}", told.faults);
            assert!(!said.is_empty() && said.iter().all(|said| said.contains("Expired")), "{name}: {said:?}");
            assert!(told.lists > lists, "{name} listed {} times", told.lists);
        });
    }
}
