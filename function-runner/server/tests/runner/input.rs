//! Bad input: each is a clear status that names what is wrong and where.

use serde_json::json;
use stoa_engine::Spec;
use stoa_proto::{GenerateRequest, ResolveRequest};
use tonic::{Code, Status};

use crate::bed::{Bed, Origin, free_port, most_memory, problem};
use crate::caller::{Caller, git};

struct Scene {
    bed: Bed,
    origin: Origin,
    caller: Caller,
}

impl Scene {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same whose runner has more arguments.
    async fn with(arguments: &[&str]) -> Self {
        let bed = Bed::start_with(arguments);
        let origin = Origin::new(&bed.path("origin"));
        let caller = Caller::new(bed.client().await, &json!({}));
        Self { bed, origin, caller }
    }

    async fn generate(&mut self, files: &[(&str, &str)]) -> Result<Spec, Status> {
        let commit = self.origin.commit(files);
        self.caller.generate(&self.origin.remote(), &commit, "s").await
    }

    /// The code, reason, file, field and line of what is wrong.
    async fn wrong(&mut self, name: &str, text: &str) -> (Code, String, String, String, u32) {
        let status = self.generate(&[(&format!("s/{name}"), text)]).await.unwrap_err();
        let (code, problem) = problem(&status);
        assert!(status.message().contains(&problem.message), "{status:?}");
        (code, problem.reason, problem.file, problem.field, problem.line)
    }
}

fn named(code: Code, reason: &str, file: &str, field: &str, line: u32) -> (Code, String, String, String, u32) {
    (code, reason.to_owned(), file.to_owned(), field.to_owned(), line)
}

#[tokio::test]
async fn wrong_manifests_name_file_field_and_line() {
    let mut scene = Scene::new().await;
    assert_eq!(
        scene.wrong("a.yaml", "apiVersion: v1\nkind: [\n").await,
        named(Code::InvalidArgument, "MalformedYAML", "s/a.yaml", "", 2)
    );
    assert_eq!(
        scene.wrong("a.yaml", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: a}\n").await,
        named(Code::InvalidArgument, "UnknownKind", "s/a.yaml", "kind", 2)
    );
    assert_eq!(
        scene.wrong("a.yaml", "# nothing yet\napiVersion: v1\nkind: ConfigMap\n").await,
        named(Code::InvalidArgument, "MissingField", "s/a.yaml", "metadata.name", 2)
    );
}

#[tokio::test]
async fn oversized_file_is_rejected_before_unpacking() {
    // To fetch it takes it once; to unpack and copy it would take it twice.
    let mut scene = Scene::with(&["--source-memory-mib=192"]).await;
    let object = |number: usize| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c{number}}}\ndata: {{v: x}}\n---\n")
    };
    let large: String = (0..1_600_000).map(object).collect();
    assert!((100 << 20..128 << 20).contains(&large.len()));
    let allowed = "a stack's folder may hold 10000 files, 64 MiB and 32 levels, and 100000 entries in all";
    let commit = scene.origin.commit(&[("s/spec.yaml", &large)]);
    for path in ["s", "s/spec.yaml"] {
        let status = scene.caller.generate(&scene.origin.remote(), &commit, path).await.unwrap_err();
        let (code, problem) = problem(&status);
        assert_eq!(
            (code, problem.reason.as_str(), problem.file.as_str()),
            (Code::InvalidArgument, "TooLarge", "s/spec.yaml")
        );
        assert_eq!(problem.message, allowed);
    }
}

#[tokio::test]
async fn alias_bomb_is_rejected_cheaply() {
    let mut scene = Scene::new().await;
    // Whichever of them reads it.
    let workers = scene.bed.workers();
    let memory_of_all = || workers.iter().copied().map(most_memory).sum::<u64>();
    let before = memory_of_all();
    let mut bomb = "resources: []\ncontext:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("  a{n}: &a{n} [{aliases}]\n"));
    }
    let (code, reason, file, _, line) = scene.wrong("spec.yaml", &bomb).await;
    assert_eq!((code, reason.as_str(), file.as_str()), (Code::InvalidArgument, "TooLarge", "s/spec.yaml"));
    assert!((3..33).contains(&line), "{line}");
    assert!(!workers.is_empty() && scene.bed.workers() == workers, "one was replaced: {workers:?}");
    let more = memory_of_all() - before;
    assert!(more < 100 << 20, "{} MiB more", more >> 20);
}

#[tokio::test]
async fn dangling_reference_names_resource_and_field() {
    let mut scene = Scene::new().await;
    let object = |name: &str, data: &str| {
        format!(
            "- id: v1:ConfigMap:{name}\n  type: Kubernetes\n  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{v: '{data}'}}}}\n"
        )
    };
    let dangling = format!("resources:\n{}", object("a", "$kusion_path.v1:ConfigMap:gone.data.v"));
    assert_eq!(
        scene.wrong("spec.yaml", &dangling).await,
        named(Code::InvalidArgument, "DanglingReference", "s/spec.yaml", "attributes.data.v", 4)
    );
}

#[tokio::test]
async fn cycle_is_rejected_with_its_path() {
    let mut scene = Scene::new().await;
    let object = |name: &str, after: &str| {
        format!(
            "- id: v1:ConfigMap:{name}\n  type: Kubernetes\n  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}}}\n  dependsOn: ['v1:ConfigMap:{after}']\n"
        )
    };
    let cycle = format!("resources:\n{}{}", object("a", "b"), object("b", "a"));
    // Found when the Spec is read, so that the file can be named and no cluster need answer.
    let status = scene.generate(&[("s/spec.yaml", &cycle)]).await.unwrap_err();
    let (code, problem) = problem(&status);
    assert_eq!((code, problem.reason.as_str()), (Code::InvalidArgument, "CyclicDependency"));
    assert_eq!(problem.file, "s/spec.yaml");
    assert!(problem.message.contains("v1:ConfigMap:a → v1:ConfigMap:b → v1:ConfigMap:a"), "{problem:?}");
}

#[tokio::test]
async fn missing_source_differs_from_an_unreachable_one() {
    let mut scene = Scene::new().await;
    let commit = scene.origin.commit(&[("s/a.yaml", "")]);
    let mut resolve = async |remote: &str, version: &str| {
        let request =
            ResolveRequest { source: Some(git(remote)), version: version.to_owned(), ..ResolveRequest::default() };
        scene
            .caller
            .client
            .resolve(request)
            .await
            .map(|response| response.into_inner().commit)
            .map_err(|status| problem(&status).0)
    };
    assert_eq!(resolve(&scene.origin.remote(), "latest").await, Ok(commit));
    assert_eq!(resolve(&scene.origin.remote(), "v9").await, Err(Code::NotFound));
    assert_eq!(resolve("file:///nonexistent.git", "").await, Err(Code::NotFound));
    let port = free_port();
    assert_eq!(resolve(&format!("https://127.0.0.1:{port}/a.git"), "").await, Err(Code::Unavailable));
}

#[tokio::test]
async fn missing_path_and_unknown_generator_are_reported() {
    let mut scene = Scene::new().await;
    let commit = scene.origin.commit(&[("s/a.yaml", "")]);
    let request = |path: &str, generator: &str| GenerateRequest {
        source: Some(git(&scene.origin.remote())),
        commit: commit.clone(),
        path: path.to_owned(),
        generator: generator.to_owned(),
        ..GenerateRequest::default()
    };
    let status = scene.caller.client.generate(request("nope", "")).await.unwrap_err();
    assert_eq!((status.code(), problem(&status).1.file.as_str()), (Code::NotFound, "nope"));
    let status = scene.caller.client.generate(request("s", "KCL")).await.unwrap_err();
    let message = "generator KCL needs KCL's library, which this function-runner lacks; download the Python package kcl_lib \
                   0.13.2, and start function-runner with --kcl-library";
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, message));
}

#[tokio::test]
async fn undeployable_resource_names_its_workspace() {
    let mut scene = Scene::new().await;
    let terraform = "resources:\n- id: hashicorp:random:random_pet:a\n  type: Terraform\n  attributes: {length: 2}\n";
    let spec = scene.generate(&[("s/spec.yaml", terraform)]).await.unwrap();
    let status = scene.caller.plan(&spec, false).await.unwrap_err();
    let (code, found) = problem(&status);
    assert_eq!((code, found.reason.as_str()), (Code::InvalidArgument, "NoRuntime"));
    assert!(found.message.starts_with("workspace dev has no spec.terraform; set it"), "{found:?}");
    assert_eq!(found.resource_id, "hashicorp:random:random_pet:a");

    let spec = scene.generate(&[("s/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")]).await.unwrap();
    let status = scene.caller.plan(&spec, false).await.unwrap_err();
    let (code, found) = problem(&status);
    assert_eq!((code, found.reason.as_str()), (Code::InvalidArgument, "NoRuntime"));
    assert!(found.message.starts_with("workspace dev "), "{found:?}");
}

fn kubeconfig_of_nobody() -> Vec<u8> {
    let port = free_port();
    let server = format!("https://127.0.0.1:{port}");
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    })
    .to_string()
    .into_bytes()
}

#[tokio::test]
async fn unreachable_cluster_is_unavailable() {
    let mut scene = Scene::new().await;
    let mut caller = Caller::new(scene.bed.client().await, &json!({"kubernetes": {"clusters": [{"name": "main"}]}}));
    caller.target.workspace.as_mut().unwrap().kubeconfigs.insert("main".to_owned(), kubeconfig_of_nobody().into());
    let spec = scene.generate(&[("s/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")]).await.unwrap();
    let status = caller.plan(&spec, false).await.unwrap_err();
    let (code, found) = problem(&status);
    assert_eq!((code, found.reason.as_str()), (Code::Unavailable, "Unavailable"));
    assert!(found.message.starts_with("cluster main: "), "{found:?}");
}
