//! Either process is killed at ten random moments while runs work on 200 objects and others write. After the last restart
//! every run ends well by itself, what is there is what was to be, nothing happened twice, and nothing that was
//! acknowledged is lost.
//!
//! What the runs do, [`Work`], and the moments are drawn from a seed ([`stoa_e2e::repeat`]); four rounds do everything.
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
use stoa_e2e::fixture::{ConfigMap, Objects, Organization, config_maps_in, spec_of};
use stoa_e2e::repeat::{Random, rounds};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, git};
use stoa_types::config::{Project, ProjectSpec};

const OBJECTS: usize = 200;
const CRASHES: usize = 10;
/// A crash comes at most this long after the run before it was seen at work or the restart.
const LONGEST: Duration = Duration::from_secs(4);
/// How long after the last restart a run may take.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long a request may find nobody at home after a restart.
const PATIENCE: Duration = Duration::from_secs(120);

/// What crashes and comes back.
trait Crashing: Server {
    /// Kills one of the two processes and brings both back.
    fn crash(&mut self, whole: bool);

    /// What there is in a namespace, where the organization deploys to.
    fn deployed(&self, organization: &Organization, namespace: &str) -> Objects;
}

impl Crashing for Cluster {
    fn crash(&mut self, server: bool) {
        self.kill(if server { "stoa" } else { "runner" });
        self.restart();
    }

    fn deployed(&self, _: &Organization, namespace: &str) -> Objects {
        config_maps_in(&self.kubectl(), namespace)
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

    /// Files have no uid.
    fn deployed(&self, organization: &Organization, namespace: &str) -> Objects {
        let folder = format!("{namespace}/");
        let search = ["grep", "-e", "^  value: ", "main", "--", &folder];
        // It fails where nothing is found.
        let found = Command::new("git").arg("--git-dir").arg(&organization.deploy).args(search).output().unwrap();
        let lines = String::from_utf8(found.stdout).unwrap();
        let object = |line: &str| {
            let (path, value) = line.split_once(":  value: ")?;
            let name = path.rsplit_once("/configmap-")?.1.strip_suffix(".yaml")?;
            Some((name.to_owned(), (String::new(), value.to_owned())))
        };
        lines.lines().map(|line| object(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }
}

/// What the runs that are interrupted do.
#[derive(Clone, Copy, Debug)]
enum Work {
    Create,
    /// A fifth of the objects goes, one is made anew, two are updated, and one stays; as many as go are new.
    Change,
    Destroy,
    /// Takes that back.
    Rollback,
}

const WORKS: [Work; 4] = [Work::Create, Work::Change, Work::Destroy, Work::Rollback];

/// What a stack is to have at first, or after [`Work::Change`].
fn wanted(is_changed: bool) -> impl Iterator<Item = ConfigMap<'static>> {
    (0..2 * OBJECTS).filter_map(move |number| {
        let (is_there, value) = match (is_changed, number % 5) {
            (true, 0) => (number >= OBJECTS, "b"),
            (true, 1..=3) => (number < OBJECTS, "b"),
            (true, _) | (false, _) => (number < OBJECTS, "a"),
        };
        is_there.then_some(ConfigMap { number, value, is_immutable: is_made_anew(number) })
    })
}

/// Whether an object is made anew to hold something else.
fn is_made_anew(number: usize) -> bool {
    number % 5 == 1
}

impl Work {
    /// What there is afterwards: values by name.
    fn leaves(self) -> BTreeMap<String, &'static str> {
        let wanted = match self {
            Self::Destroy => return BTreeMap::new(),
            Self::Create | Self::Rollback => wanted(false),
            Self::Change => wanted(true),
        };
        wanted.map(|object| (format!("c{}", object.number), object.value)).collect()
    }

    /// How many objects there ever were.
    fn touched(self) -> usize {
        match self {
            Self::Create | Self::Destroy => OBJECTS,
            Self::Change | Self::Rollback => OBJECTS + OBJECTS / 5,
        }
    }

    /// How often an object was created when all is done, before the run that is interrupted included.
    fn creations(self, number: usize) -> usize {
        match self {
            Self::Create | Self::Destroy => 1,
            Self::Change => 1 + usize::from(is_made_anew(number)),
            Self::Rollback if is_made_anew(number) => 3,
            // It went, and came back.
            Self::Rollback if number < OBJECTS && number.is_multiple_of(5) => 2,
            Self::Rollback => 1,
        }
    }

    /// Starts a run that does it, after those that it takes.
    fn start(self, server: &dyn Crashing, organization: &Organization, stack: String) -> Started {
        let namespace = format!("{}-{stack}", organization.name);
        let spec = |is_changed: bool| spec_of(&namespace, wanted(is_changed));
        let started = |start: &dyn Fn() -> Option<String>| eventually("a run can be started", PATIENCE, start);
        let then = |operation: &str, fields: &str| started(&|| organization.try_to_start(&stack, operation, fields));
        let change = || organization.source.commit(&format!("apps/{stack}/spec.yaml"), &spec(true));
        let is_deployed = |run: &String| {
            let ended = organization.ended(run, RECOVERY);
            assert_eq!(ended["status"]["phase"], "Succeeded", "before a crash: {ended:#}");
        };
        let mut runs = vec![started(&|| organization.try_start(&stack, &spec(false)))];
        let mut before = Objects::new();
        let next: &[(&str, &str, bool)] = match self {
            Self::Create => &[],
            Self::Change => &[("Apply", "", true)],
            Self::Destroy => &[("Destroy", "", false)],
            Self::Rollback => &[("Apply", "", true), ("Rollback", "release: 1", false)],
        };
        for (operation, fields, is_changed) in next {
            is_deployed(&runs[runs.len() - 1]);
            before = server.deployed(organization, &namespace);
            if *is_changed {
                change();
            }
            runs.push(then(operation, fields));
        }
        Started { work: self, stack, namespace, runs, before }
    }
}

/// A stack with the runs that there were of it, the last of which is interrupted.
struct Started {
    work: Work,
    stack: String,
    namespace: String,
    runs: Vec<String>,
    /// What there was before that.
    before: Objects,
}

impl Started {
    fn interrupted(&self) -> &str {
        &self.runs[self.runs.len() - 1]
    }

    /// Waits for the end of the runs, after which what is there, released and recorded is what was to be.
    fn check(&self, server: &dyn Crashing, organization: &Organization, deadline: Instant) {
        let Self { work, stack, runs, before, .. } = self;
        for name in runs {
            let run = organization.ended(name, deadline.saturating_duration_since(Instant::now()));
            assert_eq!(run["status"]["phase"], "Succeeded", "{work:?}: {run:#}");
        }
        let count = u64::try_from(runs.len()).unwrap();
        assert_eq!(organization.revisions(stack), (1..=count).collect::<Vec<_>>(), "releases of {stack}, {work:?}");
        let (all, gone) = organization.recorded(stack);
        let wanted = work.leaves();
        let of_stack = if wanted.is_empty() { 0 } else { wanted.len() + 1 };
        assert_eq!((all, all - gone), (work.touched() + 1, of_stack), "records of {stack}, {work:?}");

        let deployed = server.deployed(organization, &self.namespace);
        let values: BTreeMap<String, &str> =
            deployed.iter().map(|(name, (_, value))| (name.clone(), value.as_str())).collect();
        assert_eq!(values, wanted, "{work:?} of {stack}");
        for (name, (uid, value)) in deployed.iter().filter(|(_, (uid, _))| !uid.is_empty()) {
            let Some((uid_before, value_before)) = before.get(name) else { continue };
            let is_another = is_made_anew(name[1..].parse().unwrap()) && value != value_before;
            assert_eq!(uid != uid_before, is_another, "{name} of {stack} is another object than before: {work:?}");
        }
        if !wanted.is_empty() {
            organization.nothing_is_left(stack, "Refresh");
        }
    }
}

/// Has one stack after another worked on until there were enough crashes; returns the stacks.
fn work_and_crash(
    server: &mut dyn Crashing,
    organization: &Organization,
    work: Work,
    random: &mut Random,
) -> Vec<Started> {
    let mut all: Vec<Started> = Vec::new();
    let mut crashes = 0;
    while crashes < CRASHES {
        let started = work.start(server, organization, format!("web-{}", all.len()));
        loop {
            let run = started.interrupted();
            let state = server.kubectl().watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
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
            eprintln!("crash {crashes}: {what}, after {delay:.1?} in run {run}, {state} before");
        }
        all.push(started);
    }
    all
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
fn survive(server: &mut dyn Crashing, organization: &Organization, random: &mut Random) -> Vec<Started> {
    let work = *random.turn(&WORKS);
    eprintln!("{work:?}");
    let end = AtomicBool::new(false);
    let kubectl = server.kubectl();
    let (all, acknowledged) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(write(kubectl.clone(), organization.name.clone(), &end))
        });
        // However this ends, the writer has to hear of it.
        let all = std::panic::AssertUnwindSafe(|| work_and_crash(server, organization, work, random));
        let all = std::panic::catch_unwind(all);
        end.store(true, Ordering::Relaxed);
        let acknowledged = writer.join().unwrap();
        (all.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), acknowledged)
    });
    let deadline = Instant::now() + RECOVERY;
    for started in &all {
        started.check(server, organization, deadline);
    }
    check_writes(&kubectl, &organization.name, &acknowledged);
    eprintln!(
        "{} stacks, {} acknowledged creations, label {}",
        all.len(),
        acknowledged.created.len(),
        acknowledged.label
    );
    all
}

#[test]
fn killed_cluster_runs_create_nothing_twice() {
    let mut cluster = Cluster::start();
    rounds(|random| work_on_a_cluster(&mut cluster, random));
}

fn work_on_a_cluster(cluster: &mut Cluster, random: &mut Random) {
    let organization = Organization::create(cluster);
    let all = survive(cluster, &organization, random);

    let mut requests: BTreeMap<(String, String), Vec<Answer>> = BTreeMap::new();
    for event in cluster.audit(&organization.name) {
        // A dry run answers 201 too, and creates nothing.
        let dry = event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
        let object = &event["objectRef"];
        let (namespace, name) = (object["namespace"].as_str().unwrap_or(""), object["name"].as_str().unwrap_or(""));
        // What is in a namespace that goes is deleted by the cluster, all at once.
        let is_ours = !["", "kube-root-ca.crt"].contains(&name);
        let verb = event["verb"].as_str().unwrap_or("");
        if is_ours && object["resource"] == "configmaps" && !dry && !["list", "get", "watch"].contains(&verb) {
            let answer = Answer { is_deletion: verb == "delete", status: event["responseStatus"].clone() };
            requests.entry((namespace.to_owned(), name.to_owned())).or_default().push(answer);
        }
    }
    for Started { work, namespace, .. } in &all {
        let of_stack: Vec<_> = requests.iter().filter(|((there, _), _)| there == namespace).collect();
        assert_eq!(of_stack.len(), work.touched(), "objects of {namespace} that were asked for");
        let as_often = |name: &str| work.creations(name[1..].parse().unwrap());
        let others: Vec<_> =
            of_stack.iter().filter(|((_, name), answers)| !are_creations(answers, as_often(name))).collect();
        assert!(others.is_empty(), "not created as often as {work:?} has to: {others:#?}");
    }
}

/// What a request was answered that was to change an object.
#[derive(Debug)]
struct Answer {
    is_deletion: bool,
    status: Value,
}

/// Whether the answers to the requests for one object tell that so many of them, and no more, created it.
///
/// When the client is killed while its request is carried out, kube-apiserver notes 504 and not 201 even if the object
/// was created; and then whoever asks finds the object there, or gone.
fn are_creations(answers: &[Answer], expected: usize) -> bool {
    let is_cut_off = |status: &Value| status["message"].as_str().is_some_and(|text| text.ends_with("context canceled"));
    let (mut created, mut perhaps) = (0, 0);
    for Answer { is_deletion, status } in answers {
        match status["code"].as_u64() {
            Some(201) => created += 1,
            Some(200) => {}
            Some(404) if *is_deletion => {}
            Some(504) if is_cut_off(status) => perhaps += usize::from(!is_deletion),
            _ => return false,
        }
    }
    (created..=created + perhaps).contains(&expected)
}

#[test]
fn killed_git_runs_make_one_commit_each() {
    let mut server = Standalone::start();
    rounds(|random| work_on_git(&mut server, random));
}

fn work_on_git(server: &mut Standalone, random: &mut Random) {
    let organization = Organization::create(server);
    let all = survive(server, &organization, random);

    let log = git(&organization.deploy, &["log", "--format=%H", "main"]);
    let mut commits: Vec<String> = log.lines().map(str::to_owned).collect();
    let mut of_runs: Vec<String> = all
        .iter()
        .flat_map(|started| &started.runs)
        .map(|name| organization.run(name)["status"]["gitopsCommit"].as_str().unwrap_or_default().to_owned())
        .collect();
    commits.sort();
    of_runs.sort();
    assert_eq!(commits, of_runs, "the deployment repository has other commits than one for each run");
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
            serde_json::from_str(&server.kubectl().raw(&path)).unwrap()
        };
        assert_eq!(raw(&format!("/{name}"))["spec"]["description"], *text);
        let list = raw("");
        assert_eq!(list["metadata"]["resourceVersion"], *version, "{list:#}");
        let items = list["items"].as_array().unwrap();
        let here = items.iter().find(|item| item["metadata"]["name"] == *name).unwrap();
        assert_eq!(here["spec"]["description"], *text);
    }
}
