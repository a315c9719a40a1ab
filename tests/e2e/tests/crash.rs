//! Either process is killed at ten random moments while 200 objects are rolled out and others write. After the last
//! restart every run ends well by itself, nothing happened twice, and nothing that was acknowledged is lost.
//!
//! The moments are drawn from a seed ([`stoa_e2e::repeat`]).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::repeat::{Random, rounds};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, run};
use stoa_types::config::{Project, ProjectSpec};

const OBJECTS: usize = 200;
const CRASHES: usize = 10;
/// A crash comes at most this long after the run before it was seen at work or the restart.
const LONGEST: Duration = Duration::from_secs(4);
/// How long after the last restart a run may take.
const RECOVERY: Duration = Duration::from_secs(60);
/// How long a request may find nobody at home after a restart.
const PATIENCE: Duration = Duration::from_secs(60);

/// What crashes and comes back.
trait Crashing: Server {
    /// Kills one of the two processes and brings both back.
    fn crash(&mut self, whole: bool);
}

impl Crashing for Cluster {
    fn crash(&mut self, server: bool) {
        self.kill(if server { "stoa" } else { "runner" });
        self.restart();
    }
}

impl Crashing for Standalone {
    fn crash(&mut self, server: bool) {
        if server {
            self.kill();
            self.restart();
        } else {
            // The server starts it again by itself.
            self.kill_runner();
        }
    }
}

/// Rolls out one stack after another until there were enough crashes; returns the stacks' runs.
fn roll_out_and_crash(
    server: &mut dyn Crashing,
    organization: &Organization,
    random: &mut Random,
) -> Vec<(String, String)> {
    let mut runs: Vec<(String, String)> = Vec::new();
    let mut crashes = 0;
    while crashes < CRASHES {
        let stack = format!("web-{}", runs.len());
        let spec = config_maps(&format!("{}-{stack}", organization.name), OBJECTS, "a");
        let started = eventually("a run can be started", PATIENCE, || organization.try_start(&stack, &spec));
        runs.push((stack, started.clone()));
        loop {
            let state = server.kubectl().watch(&organization.name, &format!("run/{started}"), PATIENCE, |run| {
                let phase = run["status"]["phase"].as_str().unwrap_or("Pending");
                (phase != "Pending").then(|| phase.to_owned())
            });
            if crashes == CRASHES || matches!(state.as_str(), "Succeeded" | "Failed" | "Canceled") {
                break;
            }
            let (delay, whole) = (random.delay(LONGEST), random.below(2) == 0);
            thread::sleep(delay);
            server.crash(whole);
            crashes += 1;
            let what = if whole { "stoa-apiserver" } else { "function-runner" };
            eprintln!("crash {crashes}: {what}, after {delay:.1?} in run {started}, {state} before");
        }
    }
    runs
}

fn check_runs(organization: &Organization, runs: &[(String, String)]) {
    let deadline = Instant::now() + RECOVERY;
    for (stack, name) in runs {
        let run = organization.ended(name, deadline.saturating_duration_since(Instant::now()));
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        let releases = organization.of_stack("releases", stack);
        let revisions: Vec<&Value> = releases.iter().map(|release| &release["spec"]["revision"]).collect();
        assert_eq!(revisions, [1], "stack {stack} has other releases than its first");
        assert_eq!(organization.of_stack("resources", stack).len(), OBJECTS + 1, "records of stack {stack}");
    }
}

/// What a client was told is written.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Uid by name.
    created: BTreeMap<String, String>,
    /// The highest number that a label was set to.
    label: u64,
    /// The highest number that was tried.
    tried: u64,
}

const LABEL: &str = "stoa.dev/crash-test";

/// Creates projects, and sets a label on one of them to higher and higher numbers, until it is told to end.
async fn write(kubectl: Kubectl, namespace: String, end: &AtomicBool) -> Acknowledged {
    let kubeconfig = Kubeconfig::read_from(kubectl.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.read_timeout = Some(Duration::from_secs(5));
    let projects: Api<Project> = Api::namespaced(Client::try_from(config).unwrap(), &namespace);
    let mut acknowledged = Acknowledged::default();
    while !end.load(Ordering::Relaxed) {
        acknowledged.tried += 1;
        let number = acknowledged.tried;
        let mut project = Project::new(&format!("written-{number}"), ProjectSpec::default());
        project.spec.source.name = "config".to_owned();
        if let Ok(created) = projects.create(&PostParams::default(), &project).await {
            let name = created.metadata.name.unwrap();
            acknowledged.created.insert(name, created.metadata.uid.unwrap());
        }
        let patch = json!({"metadata": {"labels": {LABEL: number.to_string()}}});
        let on = projects.patch(&namespace, &PatchParams::default(), &Patch::Merge(patch)).await;
        if on.is_ok() {
            acknowledged.label = number;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    acknowledged
}

fn check_writes(kubectl: &Kubectl, namespace: &str, acknowledged: &Acknowledged) {
    let list = kubectl.get(&["projects", "--namespace", namespace]);
    let uid_of: BTreeMap<&str, &str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["metadata"]["name"].as_str().unwrap(), item["metadata"]["uid"].as_str().unwrap()))
        .collect();
    assert!(acknowledged.created.len() > 20, "hardly anything was written: {acknowledged:?}");
    for (name, uid) in &acknowledged.created {
        assert_eq!(uid_of.get(name.as_str()), Some(&uid.as_str()), "project {name} was acknowledged");
    }
    let label = kubectl.get(&["project", namespace, "--namespace", namespace])["metadata"]["labels"][LABEL].clone();
    let label: u64 = label.as_str().unwrap().parse().unwrap();
    // A write that was not acknowledged may have happened, and one that was has.
    assert!((acknowledged.label..=acknowledged.tried).contains(&label), "label {label} after {acknowledged:?}");
}

/// Crashes while one thread writes; then everything has to be as it should.
fn survive(server: &mut dyn Crashing, organization: &Organization, random: &mut Random) -> Vec<(String, String)> {
    let end = AtomicBool::new(false);
    let kubectl = server.kubectl();
    let (runs, acknowledged) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(write(kubectl.clone(), organization.name.clone(), &end))
        });
        // However this ends, the writer has to hear of it.
        let runs = std::panic::AssertUnwindSafe(|| roll_out_and_crash(server, organization, random));
        let runs = std::panic::catch_unwind(runs);
        end.store(true, Ordering::Relaxed);
        let acknowledged = writer.join().unwrap();
        (runs.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), acknowledged)
    });
    check_runs(organization, &runs);
    check_writes(&kubectl, &organization.name, &acknowledged);
    eprintln!(
        "{} runs, {} acknowledged creations, label {}",
        runs.len(),
        acknowledged.created.len(),
        acknowledged.label
    );
    runs
}

#[test]
fn killed_rollouts_to_a_cluster_end_well_and_create_nothing_twice() {
    let mut cluster = Cluster::start();
    rounds(|random| roll_out_to_a_cluster(&mut cluster, random));
}

fn roll_out_to_a_cluster(cluster: &mut Cluster, random: &mut Random) {
    let organization = Organization::create(cluster);
    let runs = survive(cluster, &organization, random);

    let mut requests: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in cluster.audit() {
        // A dry run answers 201 too, and creates nothing.
        let dry = event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
        let object = &event["objectRef"];
        let (namespace, name) = (object["namespace"].as_str().unwrap_or(""), object["name"].as_str().unwrap_or(""));
        let is_ours = namespace.starts_with(&format!("{}-web-", organization.name)) && name != "kube-root-ca.crt";
        if is_ours
            && object["resource"] == "configmaps"
            && !dry
            && !["list", "get", "watch"].contains(&event["verb"].as_str().unwrap_or(""))
        {
            requests.entry(format!("{namespace}/{name}")).or_default().push(event["responseStatus"].clone());
        }
    }
    assert_eq!(requests.len(), runs.len() * OBJECTS, "objects that were asked for");
    let others: Vec<_> = requests.iter().filter(|(_, statuses)| !is_created_once(statuses)).collect();
    assert!(others.is_empty(), "not created exactly once: {others:#?}");
}

/// Whether the answers to the requests for one object tell that one of them, and only one, created it.
///
/// When the client is killed while its request is carried out, kube-apiserver notes 504 and not 201 even if the object
/// was created; then all requests after it found the object there.
fn is_created_once(answers: &[Value]) -> bool {
    let count = |code: u16| answers.iter().filter(|answer| answer["code"] == code).count();
    let is_cut_off = |answer: &Value| {
        answer["code"] == 504 && answer["message"].as_str().is_some_and(|text| text.ends_with("context canceled"))
    };
    let cut_off = answers.iter().filter(|answer| is_cut_off(answer)).count();
    let found = count(200);
    count(201) + cut_off + found == answers.len() && (count(201) == 1 || (count(201) == 0 && cut_off > 0 && found > 0))
}

#[test]
fn killed_rollouts_to_git_end_well_in_one_commit_each() {
    let mut server = Standalone::start();
    rounds(|random| roll_out_to_git(&mut server, random));
}

fn roll_out_to_git(server: &mut Standalone, random: &mut Random) {
    let organization = Organization::create(server);
    let runs = survive(server, &organization, random);

    let git = |args: &[&str]| run(Command::new("git").arg("--git-dir").arg(&organization.deploy).args(args));
    let mut commits: Vec<String> = git(&["log", "--format=%H", "main"]).lines().map(str::to_owned).collect();
    let mut of_runs: Vec<String> = runs
        .iter()
        .map(|(_, name)| organization.run(name)["status"]["gitopsCommit"].as_str().unwrap_or_default().to_owned())
        .collect();
    commits.sort();
    of_runs.sort();
    assert_eq!(commits, of_runs, "the deployment repository has other commits than one for each run");
    let files = git(&["ls-tree", "-r", "--name-only", "main"]);
    let config_maps = files.lines().filter(|file| !file.to_lowercase().contains("namespace_")).count();
    assert!(config_maps >= runs.len() * OBJECTS, "files in the deployment repository:\n{files}");
}

#[test]
fn every_version_can_be_read_after_a_crash() {
    let mut server = Standalone::start();
    let name = Organization::create(&server).name;
    let describe = |server: &Standalone, text: &str| {
        let patch = json!({"spec": {"description": text}}).to_string();
        let arguments = ["patch", "organization", &name, "--type=merge", "--output=json", &format!("--patch={patch}")];
        let organization: Value = serde_json::from_str(&server.kubectl().run(&arguments)).unwrap();
        organization["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let versions: Vec<(String, String)> =
        (0..5).map(|number| format!("Version {number}")).map(|text| (describe(&server, &text), text)).collect();
    server.kill();
    server.restart();
    describe(&server, "After the crash");
    for (version, text) in versions {
        let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
        let raw = |path: &str| -> Value {
            let path = format!("/apis/config.stoa.dev/v1alpha1/organizations{path}?{exact}");
            serde_json::from_str(&server.kubectl().run(&["get", "--raw", &path])).unwrap()
        };
        assert_eq!(raw(&format!("/{name}"))["spec"]["description"], *text);
        let list = raw("");
        assert_eq!(list["metadata"]["resourceVersion"], *version, "{list:#}");
        let items = list["items"].as_array().unwrap();
        let here = items.iter().find(|item| item["metadata"]["name"] == *name).unwrap();
        assert_eq!(here["spec"]["description"], *text);
    }
}
