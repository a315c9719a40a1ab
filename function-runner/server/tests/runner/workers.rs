//! Sources are read in processes that can do no harm: what takes too much, never ends or dies there fails alone.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use stoa_proto::{GenerateRequest, GenerateResponse};
use tokio::task::JoinHandle;
use tonic::{Code, Response, Status};

use crate::bed::{Bed, Origin, free_port, parent, problem};
use crate::caller::git;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(300);

const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

struct Scene {
    bed: Bed,
    origin: Origin,
    metrics: String,
}

impl Scene {
    fn new(arguments: &[&str]) -> Self {
        let metrics = format!("127.0.0.1:{}", free_port());
        let listen = format!("--metrics-listen={metrics}");
        let arguments: Vec<&str> = arguments.iter().copied().chain([listen.as_str()]).collect();
        let bed = Bed::start_in(&[("STOA_WORKER_TRIALS", "1"), ("STOA_TEST_SECRET", "hidden")], &arguments);
        let origin = Origin::new(&bed.path("origin"));
        Self { bed, origin, metrics }
    }

    /// Begins to generate what is in a file, for an organization.
    async fn begin(
        &self,
        organization: &str,
        generator: &str,
        text: &str,
    ) -> JoinHandle<Result<Response<GenerateResponse>, Status>> {
        let request = GenerateRequest {
            source: Some(git(&self.origin.remote())),
            commit: self.origin.commit(&[("s/a.yaml", text)]),
            path: "s".to_owned(),
            generator: generator.to_owned(),
            organization: organization.to_owned(),
            ..GenerateRequest::default()
        };
        let mut client = self.bed.client().await;
        tokio::spawn(async move { client.generate(request).await })
    }

    async fn generate(&self, generator: &str, text: &str) -> Result<GenerateResponse, Status> {
        let answer = tokio::time::timeout(PATIENCE, self.begin("shop", generator, text).await).await;
        answer.unwrap().unwrap().map(Response::into_inner)
    }

    /// What a trial came to.
    async fn trial(&self, name: &str) -> Result<Vec<String>, Status> {
        self.generate(&format!("Trial:{name}"), OBJECT).await.map(|answer| answer.warnings)
    }

    async fn still_works(&self) {
        let answer = self.generate("Auto", OBJECT).await.unwrap();
        assert_eq!(answer.generator, "Manifests");
    }

    /// All metrics, as text.
    fn metrics(&self) -> String {
        let mut connection = TcpStream::connect(&self.metrics).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: runner\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        text
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    /// Waits until a metric has a value.
    async fn until(&self, name: &str, value: u64) {
        let start = Instant::now();
        while self.metric(name) != value {
            assert!(start.elapsed() < PATIENCE, "{name} is {} and not {value}", self.metric(name));
            // A fast machine is busy for a moment only.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

const BUSY: &str = r#"runner_workers{state="busy"}"#;
const IDLE: &str = r#"runner_workers{state="idle"}"#;
/// Has a value for each cause that there was.
const ENDED: &str = "runner_workers_ended_total";

fn ended(cause: &str) -> String {
    format!("{ENDED}{{cause={cause:?}}}")
}

/// The code, reason, file and message of what is wrong.
fn told(status: &Status) -> (Code, String, String, String) {
    let (code, problem) = problem(status);
    (code, problem.reason, problem.file, problem.message)
}

fn wrong(reason: &str, file: &str, message: &str) -> (Code, String, String, String) {
    (Code::InvalidArgument, reason.to_owned(), file.to_owned(), message.to_owned())
}

async fn until_gone(processes: &[u32]) {
    let start = Instant::now();
    while processes.iter().any(|pid| parent(*pid).is_some()) {
        assert!(start.elapsed() < PATIENCE, "{processes:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn source_above_the_memory_limit_fails_alone() {
    let scene = Scene::new(&[
        "--workers=2",
        "--worker-memory-mib=96",
        "--worker-cpu-seconds=300",
        "--worker-timeout-seconds=300",
    ]);
    scene.still_works().await;
    let before = scene.bed.most_memory();
    // No more values than a file may have, and each takes a hundred times its text.
    let bomb = format!("{OBJECT}x: [{}]\n", "{a: 1},".repeat(300_000));
    let begun = scene.begin("hostile", "Auto", &bomb).await;
    scene.until(BUSY, 1).await;
    scene.still_works().await;
    let status = begun.await.unwrap().unwrap_err();
    assert_eq!(
        told(&status),
        wrong("TooLarge", "s/a.yaml", "rendering took more than 96 MiB of memory; split the stack")
    );
    let more = scene.bed.most_memory() - before;
    assert!(more < 64 << 20, "{} MiB more in the runner", more >> 20);
    assert_eq!(scene.metric(&ended("memory")), 1);
    scene.until(IDLE, 2).await;
    let status = scene.trial("memory").await.unwrap_err();
    assert_eq!(told(&status), wrong("TooLarge", "s", "rendering took more than 96 MiB of memory; split the stack"));
    scene.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_job_is_killed() {
    let scene = Scene::new(&["--workers=1", "--worker-cpu-seconds=1"]);
    let status = scene.trial("spin").await.unwrap_err();
    assert_eq!(told(&status), wrong("TookTooLong", "s", "rendering took more than 1 s of CPU time; split the stack"));
    assert_eq!(scene.metric(&ended("processor")), 1);
    scene.still_works().await;

    let scene = Scene::new(&["--workers=1", "--worker-timeout-seconds=10"]);
    let status = scene.trial("wait").await.unwrap_err();
    assert_eq!(told(&status), wrong("TookTooLong", "s", "rendering took more than 10 s; split the stack"));
    assert_eq!(scene.metric(&ended("time")), 1);
    scene.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_spec_is_rejected() {
    let scene = Scene::new(&["--worker-output-mib=1"]);
    let large = format!("{OBJECT}data: {{v: {}}}\n", "x".repeat(2 << 20));
    let status = scene.generate("Auto", &large).await.unwrap_err();
    assert_eq!(told(&status), wrong("TooLarge", "s", "renders to a Spec of more than 1 MiB; split the stack"));
    scene.still_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_worker_fails_its_job_alone() {
    let scene = Scene::new(&["--workers=1"]);
    let kill = |workers: Vec<u32>| {
        let [worker] = workers.as_slice() else { panic!("{workers:?}") };
        assert!(std::process::Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap().success());
        *worker
    };
    let idle = kill(scene.bed.workers());
    until_gone(&[idle]).await;
    scene.still_works().await;
    let begun = scene.begin("shop", "Trial:wait", OBJECT).await;
    scene.until(BUSY, 1).await;
    let worker = kill(scene.bed.workers());
    let (code, reason, ..) = told(&begun.await.unwrap().unwrap_err());
    assert_eq!((code, reason.as_str()), (Code::Unavailable, "Unavailable"));
    scene.still_works().await;
    assert!(parent(worker).is_none() && scene.bed.workers().len() == 1, "{:?}", scene.bed.workers());
    for trial in ["abort", "panic"] {
        let (code, reason, ..) = told(&scene.trial(trial).await.unwrap_err());
        assert_eq!((code, reason.as_str()), (Code::Internal, "InternalError"), "{trial}");
        scene.still_works().await;
    }
    let causes = ["killed", "died", "panic"].map(|cause| scene.metric(&ended(cause)));
    assert_eq!(causes, [2, 1, 1]);

    // A worker comes to the end of its job when the runner is told to end, though it is told, too.
    let large = format!("{OBJECT}x: [{}]\n", "{a: 1},".repeat(290_000));
    let begun = scene.begin("shop", "Auto", &large).await;
    scene.until(BUSY, 1).await;
    let last = scene.bed.workers();
    // First, since afterwards it is gone as soon as it has come to that end.
    assert!(std::process::Command::new("kill").arg(last[0].to_string()).status().unwrap().success());
    scene.bed.terminate();
    begun.await.unwrap().unwrap();
    let status = tokio::time::timeout(PATIENCE, scene.bed.ended()).await.unwrap();
    assert!(status.success(), "{status:?}");
    until_gone(&last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_expressions_are_read_in_workers() {
    let scene = Scene::new(&["--workers=1"]);
    let widget = |expression: &str| {
        let annotations = format!("{{stoa.dev/health-current: \"{expression}\"}}");
        format!("apiVersion: a.example.com/v1\nkind: Widget\nmetadata: {{name: w, annotations: {annotations}}}\n")
    };
    let generate = async |expression: &str| scene.begin("shop", "Auto", &widget(expression)).await.await.unwrap();
    generate("status.phase == 'Running'").await.unwrap();
    let deep = format!("{}1", "1+".repeat(4_000));
    for (expression, why) in [("status.phase ==", "compilation failed"), (&deep, "recursion limit")] {
        let (code, _, file, message) = told(&generate(expression).await.unwrap_err());
        assert_eq!((code, file.as_str()), (Code::InvalidArgument, "s/a.yaml"));
        assert!(message.contains(why), "{message}");
    }
    let metrics = scene.metrics();
    assert!(metrics.contains(IDLE) && !metrics.contains(ENDED), "a worker was replaced:\n{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_reaches_nothing_outside() {
    let scene = Scene::new(&["--workers=1"]);
    let found = scene.trial("reach").await.unwrap();
    assert_eq!(found.len(), 11, "{found:?}");
    for reached in &found {
        assert!(reached.ends_with(": PermissionDenied"), "{reached}");
    }
    assert_eq!(scene.trial("environment").await.unwrap(), ["STOA_WORKER_TRIALS"]);
    let workers = scene.bed.workers();
    let [worker] = workers.as_slice() else { panic!("{workers:?}") };
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    let says = |field: &str| status.lines().find_map(|line| line.strip_prefix(field)).map(str::trim);
    assert_eq!((says("NoNewPrivs:"), says("Threads:")), (Some("1"), Some("1")), "{status}");
    // A process that may not be looked into shows these to root alone.
    if let Ok(open) = std::fs::read_dir(format!("/proc/{worker}/fd")) {
        assert_eq!(open.count(), 3, "two pipes and the one for its last words");
    }
    for mechanism in ["landlock", "seccomp"] {
        assert_eq!(scene.metric(&format!("runner_worker_restricted{{mechanism={mechanism:?}}}")), 1, "{mechanism}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_outlives_a_runner_that_is_killed() {
    let scene = Scene::new(&["--workers=3"]);
    let (_spins, _waits) = (scene.begin("a", "Trial:spin", OBJECT).await, scene.begin("b", "Trial:wait", OBJECT).await);
    scene.until(BUSY, 2).await;
    scene.until(IDLE, 1).await;
    let workers = scene.bed.workers();
    assert_eq!(workers.len(), 3, "{workers:?}");
    scene.bed.signal("KILL");
    until_gone(&workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_job_ends_at_once() {
    let scene = Scene::new(&["--workers=1", "--worker-cpu-seconds=3600", "--worker-timeout-seconds=3600"]);
    let begun = scene.begin("shop", "Trial:spin", OBJECT).await;
    scene.until(BUSY, 1).await;
    begun.abort();
    scene.still_works().await;
    assert_eq!(scene.metric(&ended("cancelled")), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn full_job_queue_is_busy() {
    let scene = Scene::new(&["--workers=1", "--max-waiting-jobs=1"]);
    let first = scene.begin("a", "Trial:wait", OBJECT).await;
    scene.until(BUSY, 1).await;
    let second = scene.begin("a", "Auto", OBJECT).await;
    scene.until("runner_worker_jobs_waiting", 1).await;
    let (code, reason, ..) = told(&scene.generate("Auto", OBJECT).await.unwrap_err());
    assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "Busy"));
    first.abort();
    second.await.unwrap().unwrap();
}
