//! Functions of packages: built in, executables, WebAssembly and Starlark, each in its sandbox.
//!
//! The sample function (`tests/functions`, in Go) is built for this machine and for WASI.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use prost::bytes::Bytes;
use sha2::{Digest as _, Sha256};
use stoa_proto::evaluator::function_evaluator_client::FunctionEvaluatorClient;
use stoa_proto::evaluator::{EvaluateFunctionRequest, EvaluateFunctionResponse};
use stoa_proto::packages_client::PackagesClient;
use stoa_proto::{FunctionsRequest, FunctionsResponse, Source};
use stoa_test_registry::Registry;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::bed::{Bed, Origin, free_port, problem};
use crate::caller::git;

const CHECK: &str = "example.com/fn/check:v1";
const WASM: &str = "example.com/fn/wasm:v1";

/// The sample function, for this machine and for WASI.
struct Samples {
    program: PathBuf,
    module: PathBuf,
}

/// Nothing where Go is missing.
fn samples() -> Option<&'static Samples> {
    static BUILT: OnceLock<Option<Samples>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("functions");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/functions");
            let build = |output: &Path, environment: &[(&str, &str)]| {
                let mut go = Command::new("go");
                go.current_dir(&source).args(["build", "-o"]).arg(output).arg(".").envs(environment.iter().copied());
                go.status().is_ok_and(|status| status.success())
            };
            let (program, module) = (folder.join("check"), folder.join("check.wasm"));
            let wasi = [("GOOS", "wasip1"), ("GOARCH", "wasm")];
            let is_built = build(&program, &[("CGO_ENABLED", "0")]) && build(&module, &wasi);
            if !is_built {
                eprintln!("skipped: Go 1.26 is missing");
            }
            is_built.then_some(Samples { program, module })
        })
        .as_ref()
}

/// Porch's own client and server; nothing where Go or its module is missing.
fn porch() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("functions/porch");
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/functions/porch");
            let mut go = Command::new("go");
            go.current_dir(source).args(["build", "-o"]).arg(&program).arg(".");
            let is_built = go.status().is_ok_and(|status| status.success());
            if !is_built {
                eprintln!("skipped: Go 1.26 or the module of Porch is missing");
            }
            is_built.then_some(program)
        })
        .as_ref()
}

/// Porch's server, which ends with the value.
struct PorchServer {
    address: String,
    child: Child,
}

impl PorchServer {
    fn start(program: &Path) -> Self {
        let mut child =
            Command::new(program).arg("server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { address: address.trim().to_owned(), child }
    }
}

impl Drop for PorchServer {
    fn drop(&mut self) {
        // It has ended already in a test that waits for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The function worker beside the runner; nothing where it was not built.
fn worker() -> Option<String> {
    let beside = Path::new(env!("CARGO_BIN_EXE_function-runner")).with_file_name("stoa-function-worker");
    let worker = std::env::var_os("STOA_TEST_FUNCTION_WORKER").map_or(beside, PathBuf::from);
    if !worker.exists() {
        eprintln!("skipped: {} does not exist", worker.display());
        return None;
    }
    Some(format!("--function-worker={}", worker.display()))
}

fn digest(file: &Path) -> String {
    Sha256::digest(std::fs::read(file).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A runner with the sample functions, and more arguments.
struct Scene {
    bed: Bed,
    client: FunctionEvaluatorClient<Channel>,
    _folder: TempDir,
}

impl Scene {
    async fn new(samples: &Samples, arguments: &[&str]) -> Self {
        let program = digest(&samples.program);
        let settings = format!(
            "functions:\n- {{images: ['{CHECK}'], program: '{}', sha256: '{program}', types: [validator], idempotent: true}}\n\
             - {{images: ['example.com/fn/other'], program: '{}', sha256: '{}'}}\n\
             - {{images: ['{WASM}'], wasm: '{}', sha256: '{}'}}\n",
            samples.program.display(),
            samples.program.display(),
            "00".repeat(32),
            samples.module.display(),
            digest(&samples.module),
        );
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("functions.yaml");
        std::fs::write(&file, settings).unwrap();
        let functions = format!("--functions={}", file.display());
        let bed = Bed::start_in(&[("SECRET", "of the runner")], &[&[functions.as_str()], arguments].concat());
        let client = FunctionEvaluatorClient::new(bed.channel().await).max_decoding_message_size(64 << 20);
        Self { bed, client, _folder: folder }
    }

    async fn run(&self, image: &str, mode: &str) -> Result<Response<EvaluateFunctionResponse>, Status> {
        self.client.clone().evaluate_function(request(image, mode)).await
    }
}

fn list(mode: &str) -> Bytes {
    let list = format!(
        "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    \
         name: a # ours\n  data:\n    team: none\nfunctionConfig:\n  apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: \
         function-input\n  data:\n    mode: {mode}\n"
    );
    list.into_bytes().into()
}

fn request(image: &str, mode: &str) -> EvaluateFunctionRequest {
    EvaluateFunctionRequest { resource_list: list(mode), image: image.to_owned() }
}

fn text(answer: &Response<EvaluateFunctionResponse>) -> String {
    String::from_utf8(answer.get_ref().resource_list.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn executable_runs_by_its_digest() {
    let Some(samples) = samples() else { return };
    let scene = Scene::new(samples, &[]).await;
    let answer = scene.run(CHECK, "set-team").await.unwrap();
    assert!(text(&answer).contains("team: sample\n") && text(&answer).contains("name: a # ours\n"));
    assert_eq!(answer.get_ref().log, "set the team\n");
    let (code, other) = problem(&scene.run("example.com/fn/other:v7", "set-team").await.unwrap_err());
    assert_eq!((code, other.reason.as_str()), (Code::FailedPrecondition, "NotAvailable"));
    assert!(other.message.contains(&digest(&samples.program)), "{}", other.message);
    let (code, unknown) = problem(&scene.run("example.com/fn/check:v2", "set-team").await.unwrap_err());
    assert_eq!((code, unknown.reason.as_str()), (Code::NotFound, "UnknownFunction"));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_function_keeps_its_results() {
    let Some(samples) = samples() else { return };
    let scene = Scene::new(samples, &[]).await;
    let failed = scene.run(CHECK, "fail").await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (
            Code::FailedPrecondition,
            "function \"example.com/fn/check:v1\" failed: exit code 3; [error]: no team; [warning]: an old team; stderr: the check failed"
        )
    );
    let mut request = Request::new(request(CHECK, "fail"));
    request.metadata_mut().insert("stoa-reads-exit-code", "true".parse().unwrap());
    let answer = scene.client.clone().evaluate_function(request).await.unwrap();
    assert_eq!(answer.metadata().get("stoa-exit-code").unwrap(), "3");
    assert!(text(&answer).contains("severity: warning"));
    let crashed = scene.run(CHECK, "crash").await.unwrap_err();
    assert!(crashed.message().contains("crashed on purpose"), "{crashed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn executable_reaches_nothing_and_has_limits() {
    let Some(samples) = samples() else { return };
    let limits = ["--worker-timeout-seconds=15", "--worker-output-mib=1", "--worker-memory-mib=256"];
    let scene = Scene::new(samples, &limits).await;
    let answer = scene.run(CHECK, "reach").await;
    assert!(answer.is_ok(), "{answer:?}");
    for (mode, reason) in [("loop", "TookTooLong"), ("large", "TooLarge"), ("memory", "FunctionFailed")] {
        let failed = scene.run(CHECK, mode).await.unwrap_err();
        let (code, failed) = problem(&failed);
        assert_eq!((code, failed.reason.as_str()), (Code::FailedPrecondition, reason), "{mode}: {}", failed.message);
    }
    // Nothing remains of the calls.
    let remaining =
        scene.bed.children().into_iter().filter(|process| {
            std::fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|exe| exe == samples.program)
        });
    assert_eq!(remaining.count(), 0);
    assert!(scene.run(CHECK, "set-team").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn module_is_compiled_once_and_runs_like_an_executable() {
    let (Some(samples), Some(worker)) = (samples(), worker()) else { return };
    let arguments = [worker.as_str(), "--worker-timeout-seconds=60", "--worker-output-mib=1"];
    let scene = Scene::new(samples, &arguments).await;
    let answer = scene.run(WASM, "set-team").await.unwrap();
    assert!(text(&answer).contains("team: sample\n"));
    assert_eq!(answer.get_ref().log, "set the team\n");
    let compiled = || {
        let folders = std::fs::read_dir(scene.bed.path("cache/0/functions")).unwrap();
        folders.filter(|folder| folder.as_ref().unwrap().path().join("code").exists()).count()
    };
    assert_eq!(compiled(), 1);
    let failed = scene.run(WASM, "fail").await.unwrap_err();
    assert!(failed.message().contains("exit code 3; [error]: no team"), "{failed}");
    let answer = scene.run(WASM, "reach").await;
    assert!(answer.is_ok(), "{answer:?}");
    // A slow machine reaches the limit of time first.
    for (mode, parts) in [
        ("loop", ["instructions", "no answer within"]),
        ("large", ["more than 1 MiB"; 2]),
        ("memory", ["exit code 2"; 2]),
    ] {
        let failed = scene.run(WASM, mode).await.unwrap_err();
        assert_eq!(failed.code(), Code::FailedPrecondition, "{mode}: {failed}");
        assert!(parts.iter().any(|part| failed.message().contains(part)), "{mode}: {failed}");
    }
    assert_eq!(compiled(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn starlark_program_changes_objects() {
    let Some(worker) = worker() else { return };
    let bed = Bed::start_with(&[&worker]);
    let mut client = FunctionEvaluatorClient::new(bed.channel().await);
    let mut run = async |source: &str| {
        let list = serde_json::json!({
            "apiVersion": "config.kubernetes.io/v1",
            "kind": "ResourceList",
            "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}],
            "functionConfig": {
                "apiVersion": "fn.kpt.dev/v1alpha1", "kind": "StarlarkRun", "metadata": {"name": "s"}, "source": source,
            },
        });
        let image = "starlark:v0.5".to_owned();
        let request = EvaluateFunctionRequest { resource_list: list.to_string().into_bytes().into(), image };
        client.evaluate_function(request).await
    };
    let answer =
        run("for item in ctx.resource_list[\"items\"]:\n  item[\"metadata\"][\"namespace\"] = \"prod\"\n").await;
    assert!(text(&answer.unwrap()).contains(r#""namespace":"prod""#));
    let failed = run("fail(\"no team\")").await.unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition);
    assert!(failed.message().contains("no team"), "{failed}");
    let endless = "def loop():\n  for a in range(100000):\n    for b in range(100000):\n      pass\nloop()\n";
    assert!(run(endless).await.unwrap_err().message().contains("failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_worker_fails_only_functions_that_need_it() {
    let bed = Bed::start_with(&["--function-worker=/nowhere/stoa-function-worker"]);
    let mut client = FunctionEvaluatorClient::new(bed.channel().await);
    let failed = client.evaluate_function(request("starlark:v0.5", "any")).await.unwrap_err();
    let (code, failed) = problem(&failed);
    assert_eq!((code, failed.reason.as_str()), (Code::FailedPrecondition, "NotAvailable"));
    assert!(failed.message.contains("needs the program stoa-function-worker"), "{}", failed.message);
    let built_in = client.evaluate_function(request("set-annotations:v0.1", "any")).await;
    assert!(built_in.is_ok(), "{built_in:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn porch_server_reaches_functions_without_tls() {
    let listen = format!("127.0.0.1:{}", free_port());
    let _bed = Bed::start_with(&[&format!("--functions-listen={listen}")]);
    let channel = Endpoint::from_shared(format!("http://{listen}")).unwrap().connect().await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    let status = health.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    assert_eq!(status.into_inner().status, 1);
    let mut client = FunctionEvaluatorClient::new(channel.clone());
    let answer = client.evaluate_function(request("set-annotations:v0.1", "any")).await.unwrap();
    assert!(text(&answer).contains("annotations:"));
    let other = PackagesClient::new(channel).functions(FunctionsRequest::default()).await.unwrap_err();
    assert_eq!(other.code(), Code::Unimplemented, "only functions are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn porch_client_runs_functions_and_asks_for_health() {
    let Some(program) = porch() else { return };
    let listen = format!("127.0.0.1:{}", free_port());
    let _bed = Bed::start_with(&[&format!("--functions-listen={listen}")]);
    let run = async |image: &str| {
        let mut client = Command::new(program);
        client.args(["client", listen.as_str(), image]);
        let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = client.spawn().unwrap();
        tokio::task::spawn_blocking(move || {
            child.stdin.take().unwrap().write_all(&list("any")).unwrap();
            child.wait_with_output().unwrap()
        })
        .await
        .unwrap()
    };
    let done = run("set-annotations:v0.1").await;
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8(done.stdout).unwrap().contains("annotations:"));
    assert!(String::from_utf8(done.stderr).unwrap().contains("SERVING"));
    let missing = run("example.com/fn/missing").await;
    assert!(!missing.status.success());
    assert!(String::from_utf8(missing.stderr).unwrap().contains("code = NotFound"));
}

#[tokio::test(flavor = "multi_thread")]
async fn function_runner_of_porch_runs_other_functions() {
    let Some(program) = porch() else { return };
    let server = PorchServer::start(program);
    let bed = Bed::start_with(&[&format!("--function-evaluator={}", server.address)]);
    let mut client = FunctionEvaluatorClient::new(bed.channel().await);
    let answer = client.evaluate_function(request("example.com/porch/upper", "any")).await.unwrap();
    assert!(text(&answer).contains("team: NONE"));
    assert_eq!(answer.get_ref().log, "upper\n");
    let failed = client.evaluate_function(request("example.com/porch/fails", "any")).await.unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition);
    assert!(failed.message().contains("no team"), "{failed}");
    let (code, missing) =
        problem(&client.evaluate_function(request("example.com/porch/none", "any")).await.unwrap_err());
    assert_eq!((code, missing.reason.as_str()), (Code::NotFound, "UnknownFunction"));
    let built_in = client.evaluate_function(request("set-annotations:v0.1", "any")).await.unwrap();
    assert!(text(&built_in).contains("annotations:"));
    drop(server);
    let away = client.evaluate_function(request("example.com/porch/upper", "any")).await.unwrap_err();
    assert_eq!(away.code(), Code::Unavailable, "{away}");
}

async fn functions(bed: &Bed, source: Option<Source>) -> Result<FunctionsResponse, Status> {
    let branch = "main".to_owned();
    let request = FunctionsRequest { source, branch, directory: String::new() };
    PackagesClient::new(bed.channel().await).functions(request).await.map(Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_lists_its_functions() {
    let Some(samples) = samples() else { return };
    let scene = Scene::new(samples, &[]).await;
    let found = functions(&scene.bed, None).await.unwrap().functions;
    let images: Vec<&str> = found.iter().map(|function| function.image.as_str()).collect();
    assert!(images.is_sorted());
    for image in
        [CHECK, WASM, "ghcr.io/kptdev/krm-functions-catalog/set-image", "ghcr.io/kptdev/krm-functions-catalog/starlark"]
    {
        assert!(images.contains(&image), "{image}: {images:?}");
    }
    let check = found.iter().find(|function| function.image == CHECK).unwrap();
    assert_eq!((check.types.as_slice(), check.idempotent), (&["validator".to_owned()][..], Some(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_a_repository_are_found_by_their_descriptions() {
    let bed = Bed::start();
    let origin = Origin::new(&bed.path("origin"));
    let commit = origin.commit(&[
        (
            "fn/set-team/metadata.yaml",
            "image: example.com/fn/set-team\ntags: [mutator, team]\ndescription: Sets teams.\n",
        ),
        ("fn/broken/metadata.yaml", "image: [\n"),
        ("fn/other/metadata.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
    ]);
    let source = git(&origin.remote());
    let found = functions(&bed, Some(source.clone())).await.unwrap();
    assert_eq!(found.revision, commit);
    let [team] = &found.functions[..] else { panic!("{found:?}") };
    assert_eq!((team.image.as_str(), team.path.as_str()), ("example.com/fn/set-team", "fn/set-team"));
    assert_eq!(
        (team.types.as_slice(), team.keywords.as_slice()),
        (&["mutator".to_owned()][..], &["team".to_owned()][..])
    );
    let [broken] = &found.problems[..] else { panic!("{found:?}") };
    assert_eq!(broken.file, "fn/broken/metadata.yaml");
    let request = FunctionsRequest { source: Some(source), branch: "other".to_owned(), directory: String::new() };
    let missing = PackagesClient::new(bed.channel().await).functions(request).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_a_registry_are_its_images() {
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY or STOA_TEST_ORAS is not set");
        return;
    }
    let bed = Bed::start();
    let (registry, files) = (Registry::start(), TempDir::new().unwrap());
    std::fs::write(files.path().join("a.txt"), "a").unwrap();
    let words = [
        "--annotation",
        "dev.kpt.fn.meta.types=mutator",
        "--annotation",
        "dev.kpt.fn.meta.description=Sets teams.",
        "a.txt",
    ];
    for tag in ["v1", "v2"] {
        registry.push(&format!("fn/set-team:{tag}"), &words, files.path());
    }
    registry.push("other/set-team:v1", &words, files.path());
    let of = |name: &str| Source {
        provider: "OCI".to_owned(),
        remote: format!("{}/{name}", registry.host()),
        organization: "shop".to_owned(),
        ..Source::default()
    };
    for name in ["fn/set-team", "fn"] {
        let found = functions(&bed, Some(of(name))).await.unwrap();
        let images: Vec<&str> = found.functions.iter().map(|function| function.image.as_str()).collect();
        let expected = ["v1", "v2"].map(|tag| format!("{}/fn/set-team:{tag}", registry.host()));
        assert_eq!(images, expected, "{name}");
        assert_eq!(found.functions[0].types, ["mutator"]);
        assert_eq!(found.functions[0].description, "Sets teams.");
    }
}
