//! Three Stoas on one etcd: writes anywhere, consistent reads everywhere, watches that move from one to the other.
//!
//! While that goes on every process is killed and comes back, etcd too. Then nothing that was acknowledged is missing,
//! no watch has missed or repeated anything, the control repository has each write once, every event was delivered, and no
//! hook of a workflow was called again that had passed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::remote::{ControlRemote, committed};
use stoa_e2e::repeat::repeat;
use stoa_e2e::{Cluster, Server as _, eventually, eventually_or, new_leader};
use stoa_git::testing::Behaviour;
use stoa_types::config::{Project, ProjectSpec, Source};
use tokio::task::JoinHandle;

#[path = "replicas/told.rs"]
mod told;

const REPLICAS: usize = 3;
/// How long anything that has to happen may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long it may take, after the replica that leads was killed, until another does.
const FAILOVER: Duration = Duration::from_secs(60);
/// How long a call may take before whoever made it gives it up: a process that is killed may leave one unanswered.
const ANSWER: Duration = Duration::from_secs(10);
/// How many objects a run has, so that whoever leads can be killed in the middle of it.
const OBJECTS: usize = 200;
const COUNT: &str = "test.stoa.dev/count";

/// What the writers know.
#[derive(Debug, Default)]
struct WriteRecord {
    /// The versions of acknowledged creations, by name.
    created: BTreeMap<String, u64>,
    /// The versions of acknowledged increments.
    counted: BTreeSet<u64>,
    /// Increments that may or may not have been made.
    unknown: u64,
}

impl WriteRecord {
    /// Waits until every acknowledged write is in Git, and each is there once.
    fn are_committed_once(&self, cluster: &Cluster, repository: &Path) {
        let acknowledged = || self.created.values().chain(&self.counted);
        let is_complete = |commits: &BTreeMap<u64, usize>| acknowledged().all(|version| commits.contains_key(version));
        let commits = eventually_or(
            PATIENCE,
            || Some(committed(repository)).filter(is_complete),
            || {
                let commits = committed(repository);
                let missing: Vec<_> = acknowledged().filter(|version| !commits.contains_key(version)).collect();
                format!("every write is in Git; {} are, and not {missing:?}\n{}", commits.len(), told_of_git(cluster))
            },
        );
        let doubled: Vec<_> = commits.iter().filter(|(_, count)| **count > 1).collect();
        assert!(doubled.is_empty(), "committed more than once: {doubled:?}");
    }
}

/// What the Stoas told of who led, and of the projection to Git.
fn told_of_git(cluster: &Cluster) -> String {
    const OF_INTEREST: [&str; 5] = ["leads", "renewed", "has failed", "ended badly", "projection"];
    let mut told = String::new();
    for log in cluster.logs() {
        let text = std::fs::read_to_string(&log).unwrap();
        let lines = text.lines().filter(|line| OF_INTEREST.iter().any(|part| line.contains(part)));
        told += &format!("{}\n{}\n", log.display(), lines.collect::<Vec<_>>().join("\n"));
    }
    told
}

/// What goes on all the time, until it is stopped or dropped.
struct Traffic {
    end: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    writers: Vec<JoinHandle<WriteRecord>>,
    watchers: Vec<JoinHandle<Vec<(String, u64)>>>,
}

fn version(project: &Project) -> u64 {
    project.resource_version().unwrap().parse().unwrap()
}

fn projects(client: &Client, namespace: &str) -> Api<Project> {
    Api::namespaced(client.clone(), namespace)
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Makes a call; one that is not answered in time fails like one whose connection broke off.
async fn answered<T>(what: &str, call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    tokio::time::timeout(ANSWER, call).await.unwrap_or_else(|late| {
        eprintln!("{what} was not answered within {ANSWER:?}");
        Err(kube::Error::Service(late.into()))
    })
}

impl Traffic {
    async fn start(clients: &[Client], namespace: &str) -> Self {
        let (end, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let apis: Vec<Api<Project>> = clients.iter().map(|client| projects(client, namespace)).collect();
        let since = apis[0].list(&Default::default()).await.unwrap().metadata.resource_version.unwrap();
        let writers = (0..REPLICAS)
            .map(|number| tokio::spawn(write(apis.clone(), number, end.clone(), written.clone())))
            .collect();
        let watchers = (0..2)
            .map(|number| tokio::spawn(watch(apis.clone(), number, since.parse().unwrap(), end.clone())))
            .collect();
        Self { end, written, writers, watchers }
    }

    /// Ends it; returns what the writers know, and what the watchers will have seen.
    async fn stop(mut self) -> (WriteRecord, Vec<JoinHandle<Vec<(String, u64)>>>) {
        self.end.store(true, Ordering::Relaxed);
        let mut told = WriteRecord::default();
        for writer in mem::take(&mut self.writers) {
            let of_one = writer.await.unwrap();
            told.created.extend(of_one.created);
            told.counted.extend(of_one.counted);
            told.unknown += of_one.unknown;
        }
        eprintln!("{} creations, {} increments, {} unknown", told.created.len(), told.counted.len(), told.unknown);
        (told, mem::take(&mut self.watchers))
    }

    /// Returns once so many more writes were acknowledged.
    async fn goes_on(&self, count: u64) {
        let goal = self.written.load(Ordering::Relaxed) + count;
        let waited = tokio::time::timeout(PATIENCE, async {
            while self.written.load(Ordering::Relaxed) < goal {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.expect("writes go on");
    }
}

/// A test that fails leaves it behind: calls of clients whose runtime ends fail at once, so that a writer which only
/// asked for the end would never give its thread back, and the test would hang instead of saying why it failed.
impl Drop for Traffic {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Creates projects and counts in one that all writers share, now here and now there, and reads each of its writes
/// elsewhere.
async fn write(apis: Vec<Api<Project>>, number: usize, end: Arc<AtomicBool>, written: Arc<AtomicU64>) -> WriteRecord {
    let mut told = WriteRecord::default();
    let mut turn = number;
    while !end.load(Ordering::Relaxed) {
        turn += 1;
        let (here, there) = (&apis[turn % REPLICAS], &apis[(turn + 1) % REPLICAS]);
        let name = format!("written-{number}-{turn}");
        let mut project = Project::new(&name, ProjectSpec::default());
        project.spec.source.name = "config".to_owned();
        match answered("a creation", here.create(&PostParams::default(), &project)).await {
            Ok(created) => {
                written.fetch_add(1, Ordering::Relaxed);
                told.created.insert(name.clone(), version(&created));
                match answered("a read", there.get(&name)).await {
                    Ok(read) => assert!(version(&read) >= version(&created), "{name} was read as it was before"),
                    Err(kube::Error::Api(status)) => assert_ne!(status.code, 404, "{name} is not everywhere"),
                    // It is down.
                    Err(_) => {}
                }
            }
            // A name that nobody else uses is taken only if a write was called failed and was done.
            Err(error) => assert!(!is_conflict(&error), "{name}: {error}"),
        }
        count(here, there, &mut told).await;
    }
    told
}

async fn count(here: &Api<Project>, there: &Api<Project>, told: &mut WriteRecord) {
    let Ok(mut shared) = answered("a read", there.get("shared")).await else { return };
    let before: u64 = shared.labels().get(COUNT).map_or(0, |count| count.parse().unwrap());
    shared.labels_mut().insert(COUNT.to_owned(), (before + 1).to_string());
    match answered("an update", here.replace("shared", &PostParams::default(), &shared)).await {
        Ok(replaced) => assert!(told.counted.insert(version(&replaced)), "one version for two writes"),
        Err(error) if is_conflict(&error) => {}
        Err(_) => told.unknown += 1,
    }
}

/// Watches here and there; returns the name and version of every event.
async fn watch(apis: Vec<Api<Project>>, number: usize, since: u64, end: Arc<AtomicBool>) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    let mut position = since;
    let params = WatchParams::default().timeout(20);
    for turn in number.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let position_text = position.to_string();
        let opened = apis[turn % REPLICAS].watch(&params, &position_text);
        let Ok(stream) = answered("a watch", opened).await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut stream = std::pin::pin!(stream);
        // Some events, and then the next replica.
        for _ in 0..5 + turn * 7 % 40 {
            let next = tokio::time::timeout(Duration::from_secs(2), stream.next()).await;
            // It has ended or broken off, or nothing happens.
            let Ok(Some(Ok(event))) = next else { break };
            match event {
                WatchEvent::Added(project) | WatchEvent::Modified(project) | WatchEvent::Deleted(project) => {
                    position = version(&project);
                    seen.push((project.name_any(), position));
                }
                WatchEvent::Bookmark(bookmark) => position = bookmark.metadata.resource_version.parse().unwrap(),
                WatchEvent::Error(status) => panic!("watcher {number} at {position}: {status:?}"),
            }
        }
    }
    seen
}

/// Runs that go on whoever leads: some that are in the middle of it when the leader is killed, and one whose plan waits to
/// be approved all the time.
struct Runs<'a> {
    cluster: &'a Cluster,
    organization: &'a Organization,
    /// By their stacks.
    applied: BTreeMap<String, String>,
    waiting: String,
    digest: String,
}

impl<'a> Runs<'a> {
    fn start(cluster: &'a Cluster, organization: &'a Organization) -> Self {
        organization.stack("gate", &config_maps(&format!("{}-gate", organization.name), 1, "a"));
        let waiting = organization.start("gate", "Apply", "requireApproval: true");
        let digest = cluster.kubectl().watch(&organization.name, &format!("run/{waiting}"), PATIENCE, |run| {
            let waits = run["status"]["phase"] == "AwaitingApproval";
            waits.then(|| run["status"]["plan"]["digest"].as_str().unwrap().to_owned())
        });
        Self { cluster, organization, applied: BTreeMap::new(), waiting, digest }
    }

    /// Starts one, and returns once some of its objects are there.
    fn begin(&mut self) {
        let stack = format!("web-{}", self.applied.len());
        let spec = config_maps(&format!("{}-{stack}", self.organization.name), OBJECTS, "a");
        let run = eventually("a run can be started", PATIENCE, || self.organization.try_start(&stack, &spec));
        let done = self.cluster.kubectl().watch(&self.organization.name, &format!("run/{run}"), PATIENCE, |run| {
            run["status"]["progress"]["done"].as_u64().filter(|done| *done > 0)
        });
        eprintln!("{done} of {OBJECTS} objects of {stack} are there");
        self.applied.insert(stack, run);
    }

    /// Approves what waits, and waits until everything has ended well, each object made once; the runs by their stacks.
    fn end(self) -> BTreeMap<String, String> {
        let Self { cluster, organization, mut applied, waiting, digest } = self;
        assert_eq!(organization.run(&waiting)["status"]["phase"], "AwaitingApproval");
        let approval = json!({"status": {"approval": {"planDigest": digest, "decision": "Approved"}}});
        let patch = format!("--patch={approval}");
        let namespace = format!("--namespace={}", organization.name);
        cluster.kubectl().run(&[
            "patch",
            "run",
            &waiting,
            "--subresource=approval",
            "--type=merge",
            &patch,
            &namespace,
        ]);
        applied.insert("gate".to_owned(), waiting);
        for (stack, run) in &applied {
            let ended = organization.ended(run, PATIENCE);
            assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}");
            let releases = organization.of_stack("releases", stack);
            let revisions: Vec<_> = releases.iter().map(|release| &release["spec"]["revision"]).collect();
            assert_eq!(revisions, [1], "stack {stack}");
            let objects = if stack == "gate" { 1 } else { OBJECTS };
            assert_eq!(organization.of_stack("resources", stack).len(), objects + 1, "stack {stack}");
        }
        // How often each was answered to be made, and may have been: when etcd or whoever asked goes while a request is
        // carried out, kube-apiserver notes a failure even if the object was made.
        let mut made: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
        for event in cluster.audit(&organization.name) {
            let (object, dry) = (&event["objectRef"], event["requestURI"].as_str().unwrap_or_default());
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            if object["resource"] == "configmaps"
                && (code == 201 || event["verb"] == "patch" && code >= 500)
                && !dry.contains("dryRun=")
                && object["namespace"].as_str().unwrap_or_default().starts_with(&organization.name)
            {
                let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
                let (once, perhaps) = made.entry((text("namespace"), text("name"))).or_default();
                *if code == 201 { once } else { perhaps } += 1;
            }
        }
        // Those that the cluster itself puts into every namespace are there, too.
        made.retain(|(namespace, name), _| name != "kube-root-ca.crt" && !namespace.ends_with("-hooked"));
        assert_eq!(made.len(), OBJECTS * (applied.len() - 1) + 1);
        let others: Vec<_> =
            made.iter().filter(|(_, (once, perhaps))| !(*once..=once + perhaps).contains(&1)).collect();
        assert!(others.is_empty(), "not created once: {others:?}");
        applied
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_lose_and_repeat_nothing_whatever_is_killed() {
    for _ in 0..repeat() {
        kill_everything_once().await;
    }
}

async fn kill_everything_once() {
    let cluster = Arc::new(tokio::task::spawn_blocking(|| Cluster::replicated(REPLICAS)).await.unwrap());
    let of_cluster = cluster.clone();
    let blocking = move |work: Box<dyn FnOnce(&Cluster) + Send>| {
        let cluster = of_cluster.clone();
        async move { tokio::task::spawn_blocking(move || work(&cluster)).await.unwrap() }
    };
    let making = cluster.clone();
    let organization = tokio::task::spawn_blocking(move || Organization::create(&*making)).await.unwrap();
    let namespace = organization.name.clone();
    let clients = cluster.replicas();
    let mut shared = Project::new("shared", ProjectSpec::default());
    shared.spec.source.name = "config".to_owned();
    projects(&clients[1], &namespace).create(&PostParams::default(), &shared).await.unwrap();
    let others = tokio::task::block_in_place(|| told::NotifiedOrganization::start(&cluster, &organization));
    let mut runs = tokio::task::block_in_place(|| Runs::start(&cluster, &organization));
    let traffic = Traffic::start(&clients, &namespace).await;

    traffic.goes_on(60).await;
    let first = new_leader(&clients, PATIENCE).await;
    tokio::task::block_in_place(|| runs.begin());
    blocking(Box::new(move |cluster| cluster.kill_replica(first))).await;
    let killed = Instant::now();
    others.turn();
    let second = new_leader(&clients, PATIENCE).await;
    let failover = killed.elapsed();
    eprintln!("replica {second} leads {failover:.1?} after replica {first} was killed");
    assert_ne!(first, second);
    assert!(failover < FAILOVER, "it took {failover:?}");
    traffic.goes_on(60).await;
    others.come_back();
    blocking(Box::new(Cluster::restart)).await;
    for replica in 0..REPLICAS {
        traffic.goes_on(60).await;
        if new_leader(&clients, PATIENCE).await == replica {
            tokio::task::block_in_place(|| runs.begin());
        }
        blocking(Box::new(move |cluster| cluster.kill_replica(replica))).await;
        traffic.goes_on(20).await;
        blocking(Box::new(Cluster::restart)).await;
    }
    for _ in 0..2 {
        traffic.goes_on(60).await;
        blocking(Box::new(|cluster| cluster.kill("etcd"))).await;
        blocking(Box::new(Cluster::restart)).await;
    }
    traffic.goes_on(60).await;
    let (told, watchers) = traffic.stop().await;
    for (number, client) in clients.iter().enumerate() {
        let list = projects(client, &namespace).list(&Default::default()).await.unwrap();
        let listed: BTreeSet<String> = list.items.iter().map(ResourceExt::name_any).collect();
        let missing: Vec<_> = told.created.keys().filter(|name| !listed.contains(*name)).collect();
        assert!(missing.is_empty(), "acknowledged, and not at replica {number}: {missing:?}");
        let shared = projects(client, &namespace).get("shared").await.unwrap();
        let count: u64 = shared.labels()[COUNT].parse().unwrap();
        let acknowledged = u64::try_from(told.counted.len()).unwrap();
        assert!((acknowledged..=acknowledged + told.unknown).contains(&count), "{count} after {told:?}");
    }
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        assert!(seen.is_sorted_by(|a, b| a.1 < b.1), "a watch went back or repeated something");
        let (Some((_, first)), Some((_, last))) = (seen.first(), seen.last()) else { panic!("nothing was watched") };
        let versions: BTreeSet<u64> = seen.iter().map(|(_, version)| *version).collect();
        let acknowledged = told.created.values().chain(&told.counted);
        let missed: Vec<_> = acknowledged.filter(|v| (first..=last).contains(v) && !versions.contains(v)).collect();
        assert!(missed.is_empty(), "a watch missed {missed:?}");
        eprintln!("a watch saw {} events", seen.len());
    }
    told.are_committed_once(&cluster, &Path::new(&cluster.env("STOA_DATA_DIR")).join("control.git"));
    tokio::task::block_in_place(|| others.end(runs.end().into_values()));
}

/// A project as people write it.
fn pushed(namespace: &str) -> String {
    format!(
        "apiVersion: config.stoa.dev/v1alpha1\nkind: Project\nmetadata:\n  name: pushed\n  namespace: {namespace}\nspec:\n  \
         source:\n    name: config\n"
    )
}

/// A pushed file of a source that is invalid.
struct InvalidFile {
    namespace: String,
    path: String,
    /// The commit that has it, as it is told.
    commit: String,
}

impl InvalidFile {
    fn push(remote: &ControlRemote, namespace: &str) -> Self {
        let path = format!("organizations/{namespace}/sources/config.yaml");
        eventually("the file is there", PATIENCE, || remote.file(&path));
        remote.push(&path, |text| text.unwrap().replace("pollInterval: 1s", "pollInterval: ["));
        let commit = remote.last_commit_of(&path)[..8].to_owned();
        Self { namespace: namespace.to_owned(), path, commit }
    }

    fn mend(&self, remote: &ControlRemote) {
        remote.push(&self.path, |text| text.unwrap().replace("pollInterval: [", "pollInterval: 2s"));
    }

    /// Whether a replica refuses a write of the object, and says why.
    async fn keeps_from_writing(&self, client: &Client) -> bool {
        let sources: Api<Source> = Api::namespaced(client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({"spec": {"ref": "next"}}));
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match answered("a patch", sources.patch("config", &params, &patch)).await {
                Ok(_) => return false,
                Err(error) if is_conflict(&error) => {
                    let said = error.to_string();
                    assert!(said.contains(&self.path) && said.contains(&self.commit), "{said}");
                    return true;
                }
                // A replica that begins anew, or is busy.
                Err(error) => assert!(Instant::now() < deadline, "no answer: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until all replicas refuse writes, or take them.
    async fn keeps_all_from_writing(&self, clients: &[Client], refused: bool) {
        let deadline = Instant::now() + PATIENCE;
        for client in clients {
            while self.keeps_from_writing(client).await != refused {
                assert!(Instant::now() < deadline, "writes are not refused, or still are; refused: {refused}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replica_without_remote_copy_succeeds_leader() {
    let remote = ControlRemote::start().await;
    let arguments = remote.arguments();
    let making = move || Cluster::replicated_with(REPLICAS, &arguments);
    let cluster = Arc::new(tokio::task::spawn_blocking(making).await.unwrap());
    let organization = tokio::task::block_in_place(|| Organization::create(&*cluster));
    let namespace = organization.name.clone();
    let clients = cluster.replicas();
    let mut shared = Project::new("shared", ProjectSpec::default());
    shared.spec.source.name = "config".to_owned();
    projects(&clients[0], &namespace).create(&PostParams::default(), &shared).await.unwrap();
    let traffic = Traffic::start(&clients, &namespace).await;
    let copy = |replica: usize| {
        Path::new(&cluster.env("STOA_DATA_DIR")).join(format!("replica-{replica}/control.git/refs/heads/main"))
    };

    let mut led = BTreeSet::new();
    let invalid = tokio::task::block_in_place(|| InvalidFile::push(&remote, &namespace));
    invalid.keeps_all_from_writing(&clients, true).await;
    for round in 0..REPLICAS {
        traffic.goes_on(40).await;
        let leader = new_leader(&clients, PATIENCE).await;
        assert!(led.insert(leader), "replica {leader} leads again");
        // Whoever was killed is known to have led.
        for alive in (0..REPLICAS).filter(|replica| *replica == leader || !led.contains(replica)) {
            assert!(
                invalid.keeps_from_writing(&clients[alive]).await,
                "replica {alive} takes a write in round {round}"
            );
        }
        tokio::task::block_in_place(|| {
            eventually("its copy is there", PATIENCE, || copy(leader).exists().then_some(()));
            let others = (0..REPLICAS).filter(|replica| !led.contains(replica));
            assert!(others.into_iter().all(|replica| !copy(replica).exists()), "others have copies before they lead");
        });
        if round == 1 {
            remote.server.behave(Behaviour::Away);
            traffic.goes_on(40).await;
            remote.server.behave(Behaviour::Normal);
            let path = format!("organizations/{namespace}/projects/pushed/project.yaml");
            tokio::task::block_in_place(|| remote.push(&path, |_| pushed(&namespace)));
        }
        if round + 1 < REPLICAS {
            tokio::task::block_in_place(|| cluster.kill_replica(leader));
        }
    }
    traffic.goes_on(40).await;
    let last = clients[*led.last().unwrap()].clone();
    tokio::task::block_in_place(|| cluster.restart());
    for (replica, client) in clients.iter().enumerate() {
        assert!(invalid.keeps_from_writing(client).await, "replica {replica} takes a write after a restart");
    }
    tokio::task::block_in_place(|| invalid.mend(&remote));
    invalid.keeps_all_from_writing(&clients, false).await;
    let (told, watchers) = traffic.stop().await;
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        assert!(seen.is_sorted_by(|a, b| a.1 < b.1), "a watch went back or repeated something");
    }
    tokio::task::block_in_place(|| told.are_committed_once(&cluster, &remote.repository()));
    let deadline = Instant::now() + PATIENCE;
    while projects(&last, &namespace).get_opt("pushed").await.unwrap().is_none() {
        assert!(Instant::now() < deadline, "what was pushed does not come");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let shared = projects(&clients[0], &namespace).get("shared").await.unwrap();
    let count = format!("{COUNT}: \"{}\"", shared.labels()[COUNT]);
    let file = format!("organizations/{namespace}/projects/shared/project.yaml");
    // An increment whose answer was lost may wait for the next push.
    let is_there = || remote.file(&file).filter(|stored| stored.contains(&count));
    tokio::task::block_in_place(|| eventually("the last increment is in Git", PATIENCE, is_there));
}

/// What the cluster would make of a folder with a kustomization.
fn applied(folder: &Path) -> serde_json::Value {
    let applied = Cluster::shared().kubectl().run(&[
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--output=json",
        "--kustomize",
        folder.to_str().unwrap(),
    ]);
    serde_json::from_str(&applied).unwrap()
}

/// An object of a list.
fn object<'a>(list: &'a serde_json::Value, kind: &str) -> &'a serde_json::Value {
    object_of("stoa-apiserver", list, kind)
}

fn object_of<'a>(name: &str, list: &'a serde_json::Value, kind: &str) -> &'a serde_json::Value {
    let is_it = |object: &&serde_json::Value| object["kind"] == kind && object["metadata"]["name"] == name;
    list["items"].as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("no {kind} in {list:#}"))
}

#[test]
fn manifests_of_replicas_are_valid() {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/ha").canonicalize().unwrap();
    let plain = applied(&manifests);
    object(&plain, "PodDisruptionBudget");
    for kind in ["PodDisruptionBudget", "Service", "NetworkPolicy"] {
        object_of("function-runner", &plain, kind);
    }
    // The programs know all the arguments that they are given there.
    for program in ["stoa-apiserver", "function-runner"] {
        let container = &object_of(program, &plain, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
        let binary = Path::new(&std::env::var_os("STOA_TEST_BIN_DIR").unwrap()).join(program);
        stoa_e2e::run(std::process::Command::new(binary).args(arguments).arg("--help"));
    }
    let plain = &object(&plain, "Deployment")["spec"]["template"]["spec"];

    // An overlay with the components for a remote of record and for where both programs may go, as an operator has it.
    let overlay = tempfile::tempdir().unwrap();
    let up = "../".repeat(overlay.path().canonicalize().unwrap().components().count() - 1);
    let relative = format!("{up}{}", manifests.display().to_string().trim_start_matches('/'));
    let kustomization = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{relative}]\ncomponents: [{relative}/remote, {relative}/egress, {relative}/egress-apiserver]\n"
    );
    std::fs::write(overlay.path().join("kustomization.yaml"), kustomization).unwrap();
    let with_remote = applied(overlay.path());
    for program in ["function-runner", "stoa-apiserver"] {
        object_of(&format!("{program}-egress"), &with_remote, "NetworkPolicy");
    }
    let with_remote = &object(&with_remote, "Deployment")["spec"]["template"]["spec"];
    let list = |spec: &serde_json::Value, path: &str| spec.pointer(path).and_then(|list| list.as_array()).cloned();
    let added = |path: &str| {
        let before = list(plain, path).unwrap_or_default();
        let after = list(with_remote, path).unwrap_or_default();
        assert!(before.iter().all(|item| after.contains(item)), "{path} lacks some of {before:#?}");
        after.into_iter().filter(|item| !before.contains(item)).collect::<Vec<_>>()
    };
    let reference = json!({"secretKeyRef": {"name": "stoa-git-remote", "key": "url"}});
    assert_eq!(added("/containers/0/env"), [json!({"name": "STOA_GIT_REMOTE", "valueFrom": reference})]);
    let arguments = ["--git-remote=$(STOA_GIT_REMOTE)", "--git-remote-credentials-dir=/git"];
    assert_eq!(added("/containers/0/args"), arguments);
    assert_eq!(added("/containers/0/volumeMounts"), [json!({"name": "git", "mountPath": "/git", "readOnly": true})]);
    let volumes = added("/volumes");
    assert_eq!((volumes.len(), &volumes[0]["secret"]["secretName"]), (1, &json!("stoa-git-remote")));
}
