//! Programs in KCL in the processes of a runner, where `STOA_TEST_KCL` names the library.

use std::time::{Duration, Instant};

use stoa_engine::Spec;
use stoa_proto::{GenerateRequest, Workspace};
use tonic::{Code, Response, Status};

use crate::bed::{Bed, Origin, parent, problem};
use crate::caller::git;
use crate::render::{REGIONS, of_workspace};

const OBJECT: &str = "apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = ";

struct Scene {
    bed: Bed,
    origin: Origin,
}

impl Scene {
    /// A runner with the library; nothing without it.
    fn new(arguments: &[&str]) -> Option<Self> {
        let Some(file) = std::env::var_os("STOA_TEST_KCL") else {
            eprintln!("skipped: STOA_TEST_KCL is not set; see CONTRIBUTING.md");
            return None;
        };
        let library = format!("--kcl-library={}", file.display());
        let arguments: Vec<&str> = arguments.iter().copied().chain([library.as_str()]).collect();
        let bed = Bed::start_in(&[("STOA_TEST_SECRET", "hidden")], &arguments);
        let origin = Origin::new(&bed.path("origin"));
        Some(Self { bed, origin })
    }

    fn request(&self, commit: &str, path: &str) -> GenerateRequest {
        GenerateRequest {
            source: Some(git(&self.origin.remote())),
            commit: commit.to_owned(),
            path: path.to_owned(),
            organization: "shop".to_owned(),
            project: "web".to_owned(),
            stack: "prod".to_owned(),
            ..GenerateRequest::default()
        }
    }

    async fn render(&self, commit: &str, path: &str) -> Result<Spec, Status> {
        let request = self.request(commit, path);
        let answer = self.bed.client().await.generate(request).await.map(Response::into_inner)?;
        Ok(serde_json::from_slice(&answer.spec).unwrap())
    }

    async fn program(&self, text: &str) -> Result<Spec, Status> {
        self.render(&self.origin.commit(&[("s/main.k", text)]), "s").await
    }

    /// The processes with the library.
    fn workers(&self) -> Vec<u32> {
        let has_library = |pid: &u32| {
            let said = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&said).contains("--kcl-object=")
        };
        self.bed.children().into_iter().filter(has_library).collect()
    }

    async fn still_works(&self) {
        let spec = self.program(&format!("a = {{{OBJECT}\"still\"}}\n")).await.unwrap();
        assert_eq!(spec.resources[0].id.0, "v1:ConfigMap:still");
    }
}

fn first_problem(status: &Status) -> (Code, String, String) {
    let (code, problem) = problem(status);
    (code, problem.file, problem.message)
}

#[tokio::test]
async fn stacks_of_a_commit_share_a_warm_process() {
    let Some(scene) = Scene::new(&[]) else { return };
    let object = |name: &str| format!("a = {{{OBJECT}\"{name}\"}}\n");
    let commit = scene.origin.commit(&[("dev/main.k", &object("dev")), ("prod/main.k", &object("prod"))]);
    let spec = scene.render(&commit, "dev").await.unwrap();
    assert_eq!(spec.resources[0].id.0, "v1:ConfigMap:dev");
    let workers = scene.workers();
    assert_eq!(workers.len(), 1);
    let spec = scene.render(&commit, "prod").await.unwrap();
    assert_eq!(spec.resources[0].id.0, "v1:ConfigMap:prod");
    assert_eq!(scene.workers(), workers);
}

#[tokio::test]
async fn programs_that_break_the_library_fail_alone() {
    let Some(scene) = Scene::new(&["--worker-memory-mib=128", "--worker-cpu-seconds=5", "--worker-timeout-seconds=20"])
    else {
        return;
    };
    let start = Instant::now();
    let status = scene.program("f = lambda n {\n    f(n + 1)\n}\na = f(1)\n").await.unwrap_err();
    let (code, file, message) = first_problem(&status);
    assert_eq!((code, file.as_str()), (Code::InvalidArgument, "s"));
    // Each level takes longer than the one before, so either limit may come first.
    let expected = ["the program ends KCL's library, as endless recursion does (signal: ", "rendering took more than "];
    assert!(expected.iter().any(|it| message.starts_with(it)), "{message}");
    scene.still_works().await;
    let status = scene.program("a = ['x' * 1000 for i in range(100000000)]\n").await.unwrap_err();
    let (code, _, message) = first_problem(&status);
    assert!(code == Code::InvalidArgument && message.starts_with("rendering took more than "), "{message}");
    scene.still_works().await;
    assert!(start.elapsed() < Duration::from_secs(180), "{:?}", start.elapsed());
}

#[tokio::test]
async fn built_in_functions_reach_nothing() {
    let Some(scene) = Scene::new(&[]) else { return };
    let call = async |call: &str| {
        let program = format!("import file\na = {{{OBJECT}\"a\", data.found = \"${{file.{call}}}\"}}\n");
        match scene.program(&program).await {
            Ok(spec) => spec.resources[0].attributes["data"]["found"].as_str().unwrap().to_owned(),
            Err(status) => first_problem(&status).2,
        }
    };
    for (text, expected) in [
        ("read('/etc/hostname')", "path '/etc/hostname' escapes module root"),
        ("read('/proc/self/environ')", "path '/proc/self/environ' escapes module root"),
        ("read_env('STOA_TEST_SECRET')", "Undefined"),
        ("read_env('PATH')", "Undefined"),
        ("write('own.txt', 'x')", "ermission denied"),
        ("mkdir('own')", "Operation not permitted"),
    ] {
        let found = call(text).await;
        assert!(found.contains(expected), "{text}: {found}");
    }
    scene.still_works().await;
}

#[tokio::test]
async fn encrypted_files_of_a_program_are_decrypted_and_sensitive() {
    const ENCRYPTED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/secret.enc.yaml"));
    const KEYS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/keys.txt"));
    let Some(scene) = Scene::new(&[]) else { return };
    let program = format!(
        "import file\nimport yaml\n_documents = yaml.decode_all(file.read(\"secrets.yaml\"))\n\
         a = {{{OBJECT}\"a\", data.found = _documents[0].stringData.password}}\n"
    );
    let files = [("s/kcl.mod", "[package]\nname = \"s\"\n"), ("s/main.k", &program), ("s/secrets.yaml", ENCRYPTED)];
    let request = scene.request(&scene.origin.commit(&files), "s");
    let generate = async |keys: &str| {
        let age_keys =
            if keys.is_empty() { Default::default() } else { [("a.agekey".to_owned(), keys.to_owned().into())].into() };
        let workspace = Some(Workspace { name: "dev".to_owned(), age_keys, ..Workspace::default() });
        let answer = scene.bed.client().await.generate(GenerateRequest { workspace, ..request.clone() }).await;
        answer.map(|answer| serde_json::from_slice::<Spec>(&answer.into_inner().spec).unwrap())
    };
    let found = |spec: &Spec| spec.resources[0].attributes["data"]["found"].as_str().unwrap().to_owned();
    let spec = generate(KEYS).await.unwrap();
    assert_eq!(found(&spec), "hunter2-and-more");
    assert!(spec.resources[0].extensions["stoa.dev/sensitive"].to_string().contains("found"), "{spec:?}");
    // Without a key, the file stays as it is.
    assert!(found(&generate("").await.unwrap()).starts_with("ENC[AES256_GCM,"));
    let (_, file, message) = first_problem(&generate("AGE-SECRET-KEY-1\n").await.unwrap_err());
    assert!(file.is_empty() && message.contains("the Secret of spec.sops of the Workspace"), "{file}: {message}");
    scene.still_works().await;
}

#[tokio::test]
async fn links_out_of_the_tree_lead_nowhere() {
    let Some(scene) = Scene::new(&[]) else { return };
    let commit = scene.origin.commit_with_link(&[("s/main.k", "a = 1\n")], ("s/outside.k", "/etc/hostname"));
    let status = scene.render(&commit, "s").await.unwrap_err();
    let (code, _, message) = first_problem(&status);
    assert_eq!(code, Code::InvalidArgument, "{message}");
}

#[tokio::test]
async fn errors_on_standard_error_never_block_a_worker() {
    let Some(scene) = Scene::new(&[]) else { return };
    // Each one writes more than a kilobyte, and a pipe has 64.
    let wrong: Vec<(String, &str)> =
        (0..100).map(|n| (format!("{n}/main.k"), "a = 9223372036854775807 + 1\n")).collect();
    let files: Vec<(&str, &str)> = wrong.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let commit = scene.origin.commit(&files);
    for n in 0..100 {
        let status = scene.render(&commit, &n.to_string()).await.unwrap_err();
        assert_eq!(first_problem(&status).2, "9223372036854775808: A 64 bit integer overflow");
    }
    assert_eq!(scene.workers().len(), 1);
}

#[tokio::test]
async fn processes_end_with_their_runner() {
    let Some(scene) = Scene::new(&[]) else { return };
    scene.still_works().await;
    let workers = scene.workers();
    assert_eq!(workers.len(), 1);
    drop(scene);
    let start = Instant::now();
    while workers.iter().any(|pid| parent(*pid).is_some()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{workers:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_program_differs_by_the_values_of_workspaces() {
    let (Some(scene), Some(other)) = (Scene::new(&[]), Scene::new(&[])) else { return };
    let program = "a = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {name = \"a\", namespace = \"shop\"}, \
                   data = {region = option(\"region\"), replicas = str(option(\"replicas\") * 2), cell = option(\"cell\")}}\n";
    let overlay =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {level: '${stoa_value.replicas}', cell: null}\n";
    let files = [("s/main.k", program), ("s/workspaces/prod/a.yaml", overlay)];
    let (commit, same) = (scene.origin.commit(&files), other.origin.commit(&files));
    for (workspace, region, replicas) in REGIONS {
        let request =
            |scene: &Scene, commit: &str| of_workspace(scene.request(commit, "s"), workspace, region, replicas);
        let answer = scene.bed.client().await.generate(request(&scene, &commit)).await.unwrap().into_inner();
        let spec: Spec = serde_json::from_slice(&answer.spec).unwrap();
        let mut data = serde_json::json!({"region": region, "replicas": (replicas * 2).to_string()});
        match workspace {
            "prod" => data["level"] = "30".into(),
            _ => data["cell"] = format!("c-{workspace}").into(),
        }
        assert_eq!(spec.resources[0].attributes["data"], data, "{workspace}");
        let elsewhere = other.bed.client().await.generate(request(&other, &same)).await.unwrap().into_inner();
        assert_eq!(elsewhere.spec, answer.spec, "another runner");
    }
}

#[tokio::test]
async fn program_that_reads_a_clock_is_not_cached() {
    let Some(scene) = Scene::new(&[]) else { return };
    let program = "import datetime\na = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {name = \"a\", namespace = \"shop\"}, \
                   data = {at = str(datetime.ticks())}}\n";
    let commit = scene.origin.commit(&[("s/main.k", program)]);
    let at = async || scene.render(&commit, "s").await.unwrap().resources[0].attributes["data"]["at"].clone();
    let first = at().await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_ne!(at().await, first);
}
