//! Kustomizations and charts of commits, rendered by the renderer in its sandbox, and by a stand-in that fails.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use stoa_proto::{
    CompareRequest, ContentsRequest, GenerateRequest, GenerateResponse, HelmOptions, ValuesFiles, Workspace,
};
use tonic::{Code, Status};

use crate::bed::{Bed, Origin, problem};
use crate::caller::git;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The path of a program that `hack/test` builds; nothing where it is not set.
fn program(variable: &str) -> Option<String> {
    let program = std::env::var(variable).ok();
    if program.is_none() {
        eprintln!("skipped: {variable} is not set");
    }
    program
}

struct Scene {
    bed: Bed,
    origin: Origin,
}

impl Scene {
    /// With the real renderer.
    fn real() -> Option<Self> {
        Some(Self::with(&[&format!("--renderer={}", program("STOA_TEST_RENDERER")?)]))
    }

    /// With a stand-in for it.
    fn standin(arguments: &[&str]) -> Option<Self> {
        let renderer = format!("--renderer={}", program("STOA_TEST_STANDIN_RENDERER")?);
        Some(Self::with(&[&[renderer.as_str()], arguments].concat()))
    }

    fn with(arguments: &[&str]) -> Self {
        let bed = Bed::start_in(&[("STOA_WORKER_TRIALS", "1"), ("STOA_TEST_SECRET", "hidden")], arguments);
        let origin = Origin::new(&bed.path("origin"));
        Self { bed, origin }
    }

    fn request(&self, commit: &str, path: &str, generator: &str) -> GenerateRequest {
        GenerateRequest {
            source: Some(git(&self.origin.remote())),
            commit: commit.to_owned(),
            path: path.to_owned(),
            generator: generator.to_owned(),
            organization: "shop".to_owned(),
            project: "web".to_owned(),
            stack: "dev".to_owned(),
            workspace: Some(Workspace { name: "dev".to_owned(), ..Workspace::default() }),
            ..GenerateRequest::default()
        }
    }

    async fn send(&self, request: GenerateRequest) -> Result<GenerateResponse, Status> {
        let mut client = self.bed.client().await;
        let answer = tokio::time::timeout(PATIENCE, client.generate(request)).await.unwrap();
        answer.map(tonic::Response::into_inner)
    }

    async fn generate(&self, files: &[(&str, &str)], path: &str, generator: &str) -> Result<GenerateResponse, Status> {
        let commit = self.origin.commit(files);
        self.send(self.request(&commit, path, generator)).await
    }
}

fn spec(response: &GenerateResponse) -> Value {
    serde_json::from_slice(&response.spec).unwrap()
}

fn ids(response: &GenerateResponse) -> Vec<String> {
    let spec = spec(response);
    spec["resources"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

/// The file, line and message of a refusal.
fn refusal(status: &Status) -> (String, u32, String) {
    let (code, problem) = problem(status);
    assert_eq!(code, Code::InvalidArgument, "{problem:?}");
    (problem.file, problem.line, problem.message)
}

const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 1\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      - {name: web, image: example.org/web}\n";
const OVERLAY: &str = "resources: [../../base]\nnamespace: shop-dev\nconfigMapGenerator:\n- name: settings\n  literals: [mode=dev]\nreplicas:\n- {name: web, count: 3}\n";

fn kustomization() -> [(&'static str, &'static str); 3] {
    [
        ("base/kustomization.yaml", "resources: [deployment.yaml]\n"),
        ("base/deployment.yaml", DEPLOYMENT),
        ("overlays/dev/kustomization.yaml", OVERLAY),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn overlay_of_a_base_elsewhere_is_rendered() {
    let Some(scene) = Scene::real() else { return };
    for generator in ["Auto", "Kustomize"] {
        let response = scene.generate(&kustomization(), "overlays/dev", generator).await.unwrap();
        let [map, deployment] = &ids(&response)[..] else { panic!("{:?}", ids(&response)) };
        // The suffix is kustomize's hash of the content.
        assert!(map.starts_with("v1:ConfigMap:shop-dev:settings-") && map.len() == 41, "{map}");
        assert_eq!(deployment, "apps/v1:Deployment:shop-dev:web");
        assert_eq!(response.generator, "Kustomize");
        assert!(response.generator_version.starts_with("kustomize v"), "{}", response.generator_version);
        assert_eq!(
            response.files,
            ["base/deployment.yaml", "base/kustomization.yaml", "overlays/dev/kustomization.yaml"]
        );
        assert_eq!(response.warnings, [""; 0]);
        let deployment = &spec(&response)["resources"][1];
        assert_eq!(deployment["attributes"]["spec"]["replicas"], 3);
    }
}

const CHART: &str = "apiVersion: v2\nname: shop\nversion: 1.0.0\n";
const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  level: {{ .Values.level | quote }}\n  from: {{ .Values.from }}\n  found: {{ (lookup \"v1\" \"Secret\" \"\" \"\") | toJson | quote }}\n";
const HOOKS: &str = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\n  annotations: {helm.sh/hook: 'pre-install,pre-upgrade'}\n---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: announce\n  annotations: {helm.sh/hook: post-install}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: check\n  annotations: {helm.sh/hook: test}\n";

#[tokio::test(flavor = "multi_thread")]
async fn values_file_elsewhere_is_an_origin_and_a_dependency() {
    let Some(scene) = Scene::real() else { return };
    let chart = [
        ("chart/Chart.yaml", CHART),
        ("chart/values.yaml", "# of the chart\nlevel: 1\nfrom: chart\n"),
        ("chart/templates/a.yaml", TEMPLATE),
    ];
    let with = |file: (&'static str, &'static str)| scene.origin.commit(&[chart.as_slice(), &[file]].concat());
    let commits = [with(("env/dev.yaml", "from: dev\n")), with(("env/dev.yaml", "from: eu\n"))];
    let values_files = vec!["../env/dev.yaml".to_owned()];
    let helm = Some(HelmOptions { values_files: values_files.clone(), ..HelmOptions::default() });
    let request = GenerateRequest { helm, ..scene.request(&commits[0], "chart", "Helm") };
    let response = scene.send(request).await.unwrap();
    let origins: Vec<String> = response
        .origins
        .iter()
        .map(|of| format!("{} {} {}:{} {}", of.name, of.kind, of.file, of.line, of.is_stronger))
        .collect();
    let expected = [
        "from Default chart/values.yaml:3 false",
        "from File env/dev.yaml:1 true",
        "level Default chart/values.yaml:2 false",
    ];
    assert_eq!(origins, expected);
    assert!(response.files.contains(&"env/dev.yaml".to_owned()), "{:?}", response.files);

    let mut client = scene.bed.client().await;
    let by_path = || [("chart".to_owned(), ValuesFiles { values_files: values_files.clone() })].into();
    let (source, paths) = (Some(git(&scene.origin.remote())), vec!["chart".to_owned()]);
    let mut digests = Vec::new();
    for (commit, values_files) in [
        (&commits[0], by_path()),
        (&commits[1], by_path()),
        (&commits[0], HashMap::new()),
        (&commits[1], HashMap::new()),
    ] {
        let (source, paths, commit) = (source.clone(), paths.clone(), commit.clone());
        let request = ContentsRequest { source, commit, paths, values_files };
        digests.push(client.contents(request).await.unwrap().into_inner().digests["chart"].clone());
    }
    assert_ne!(digests[0], digests[1]);
    assert_eq!(digests[2], digests[3], "a stack that names no file depends on none");
    let [base, commit] = commits;
    let request = CompareRequest { source, base, commit, paths, values_files: by_path() };
    assert_eq!(client.compare(request).await.unwrap().into_inner().changed, ["chart"]);
}

const VERSIONED: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {version: '{{ .Capabilities.KubeVersion.Version }}'}\n";

#[tokio::test(flavor = "multi_thread")]
async fn chart_is_rendered_for_the_version_of_its_workspace() {
    let Some(scene) = Scene::real() else { return };
    let files = [("chart/Chart.yaml", CHART), ("chart/templates/a.yaml", VERSIONED)];
    let commit = scene.origin.commit(&files);
    for generator in ["Auto", "Helm"] {
        for (version, expected) in [("1.33", "v1.33.0"), ("1.36", "v1.36.0"), ("1.33", "v1.33.0")] {
            let spec_of = format!(
                r#"{{"gitops": {{"repository": "https://git.example/x", "branch": "main", "kubernetesVersion": "{version}"}}}}"#
            );
            let workspace = Some(Workspace { name: "dev".to_owned(), spec: spec_of.into(), ..Workspace::default() });
            let request = GenerateRequest { workspace, ..scene.request(&commit, "chart", generator) };
            let response = scene.send(request).await.unwrap();
            assert_eq!(response.kubernetes, expected);
            assert_eq!(spec(&response)["resources"][0]["attributes"]["data"]["version"], expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_gets_release_values_and_parameters() {
    let Some(scene) = Scene::real() else { return };
    let files = [
        ("chart/Chart.yaml", CHART),
        ("chart/values.yaml", "level: 1\nfrom: chart\n"),
        ("chart/templates/a.yaml", TEMPLATE),
        ("chart/templates/hooks.yaml", HOOKS),
        ("env/dev.yaml", "level: 2\nfrom: file\n"),
    ];
    let response = scene.generate(&files, "chart", "Auto").await.unwrap();
    assert_eq!(response.generator, "Helm");
    assert!(response.generator_version.starts_with("helm v4."), "{}", response.generator_version);
    let (map, migrate, announce) = ("v1:ConfigMap:web-dev", "batch/v1:Job:migrate", "batch/v1:Job:announce");
    let mut found = ids(&response);
    found.sort();
    assert_eq!(found, [announce, migrate, map]);
    assert_eq!((response.warnings.as_slice(), response.kubernetes.as_str()), (&[][..], "v1.35.0"), "tests never run");
    let annotation = |id: &str| {
        let spec = spec(&response);
        let resource = spec["resources"].as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
        resource["attributes"]["metadata"]["annotations"]["helm.sh/hook"].clone()
    };
    assert_eq!([migrate, announce].map(annotation), ["pre-install,pre-upgrade", "post-install"]);
    let data = |response: &GenerateResponse| {
        let spec = spec(response);
        let map =
            spec["resources"].as_array().unwrap().iter().find(|it| it["attributes"]["kind"] == "ConfigMap").unwrap();
        map["attributes"]["data"].clone()
    };
    assert_eq!(data(&response), serde_json::json!({ "level": "1", "from": "chart", "found": "{}" }));

    let commit = scene.origin.commit(&files);
    let request = GenerateRequest {
        parameters: HashMap::from([("level".to_owned(), "3".to_owned())]),
        helm: Some(HelmOptions {
            release_name: "shop".to_owned(),
            namespace: "eu".to_owned(),
            values_files: vec!["../env/dev.yaml".to_owned()],
        }),
        ..scene.request(&commit, "chart", "Helm")
    };
    let response = scene.send(request).await.unwrap();
    assert_eq!(data(&response), serde_json::json!({ "level": "3", "from": "file", "found": "{}" }));
    let mut found = ids(&response);
    found.sort();
    assert_eq!(found, ["batch/v1:Job:eu:announce", "batch/v1:Job:eu:migrate", "v1:ConfigMap:eu:shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn problem_of_a_tool_names_file_and_line() {
    let Some(scene) = Scene::real() else { return };
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    for (files, path, expected) in [
        (
            vec![("s/kustomization.yaml", "resources:\n- https://example.org/a.yaml\n")],
            "s",
            ("s/kustomization.yaml", 2, "\"https://example.org/a.yaml\" is remote"),
        ),
        (
            vec![("s/kustomization.yaml", "resources:\n- ../../up\n")],
            "s",
            ("s/kustomization.yaml", 2, "\"../../up\" leads out of the repository"),
        ),
        (
            vec![("s/kustomization.yaml", "resources:\n- ../base\n")],
            "s",
            ("s/kustomization.yaml", 2, "\"../base\" does not exist"),
        ),
        (
            vec![
                ("c/Chart.yaml", CHART),
                ("c/values.yaml", "replicas: many\n"),
                ("c/values.schema.json", r#"{"properties": {"replicas": {"type": "integer"}}}"#),
                ("c/templates/a.yaml", object),
            ],
            "c",
            ("c/values.yaml", 1, "values don't meet the specifications of the schema(s)"),
        ),
        (
            vec![("c/Chart.yaml", CHART), ("c/kustomization.yaml", "resources: []\n")],
            "c",
            (
                "c/kustomization.yaml",
                0,
                "is for generator Kustomize, and c/Chart.yaml is for generator Helm; set spec.generator.type of the Stack to one of them",
            ),
        ),
        (
            vec![("s/a.yaml", object), ("s/sub/kustomization.yaml", "resources: []\n")],
            "s",
            ("s/sub/kustomization.yaml", 0, "is a kustomization, which generator Manifests does not deploy in part"),
        ),
    ] {
        let (file, line, message) = refusal(&scene.generate(&files, path, "Auto").await.unwrap_err());
        assert_eq!((file.as_str(), line), (expected.0, expected.1), "{message}");
        assert!(message.starts_with(expected.2), "{message}");
    }
    let large = format!("a: {}\n", "x".repeat(100 << 20));
    let files = [("c/Chart.yaml", CHART), ("c/values.yaml", large.as_str()), ("c/templates/a.yaml", object)];
    let (file, _, message) = refusal(&scene.generate(&files, "c", "Helm").await.unwrap_err());
    assert_eq!((file.as_str(), message.as_str()), ("c/values.yaml", "is larger than 5 MiB"));
}

#[tokio::test(flavor = "multi_thread")]
async fn link_out_of_the_repository_is_refused() {
    let Some(scene) = Scene::real() else { return };
    let commit = scene.origin.commit_with_link(
        &[("s/kustomization.yaml", "resources:\n- a.yaml\n")],
        ("s/a.yaml", "../../../../../../../../etc/passwd"),
    );
    let (file, line, message) = refusal(&scene.send(scene.request(&commit, "s", "Kustomize")).await.unwrap_err());
    assert_eq!((file.as_str(), line), ("s/kustomization.yaml", 2));
    assert!(message.contains("leads out of the repository"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_renderer_fails_only_those_who_need_it() {
    let scene = Scene::with(&["--renderer=/nowhere/stoa-renderer"]);
    let status = scene.generate(&kustomization(), "overlays/dev", "Auto").await.unwrap_err();
    let (_, problem) = problem(&status);
    assert_eq!(problem.reason, "NotAvailable");
    assert!(problem.message.starts_with("generator Kustomize needs the program stoa-renderer"), "{}", problem.message);
    let response =
        scene.generate(&[("s/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")], "s", "Auto");
    assert_eq!(response.await.unwrap().generator, "Manifests");
}

/// Files whose path tells the stand-in what to play.
fn play(part: &'static str) -> [(&'static str, &'static str); 1] {
    let path = match part {
        "sleep" => "sleep/kustomization.yaml",
        "allocate" => "allocate/kustomization.yaml",
        "exit" => "exit/kustomization.yaml",
        "probe" => "probe/kustomization.yaml",
        _ => "well/kustomization.yaml",
    };
    [(path, "resources: []\n")]
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_renderer_fails_one_request() {
    let Some(scene) = Scene::standin(&["--worker-timeout-seconds=15", "--worker-memory-mib=256"]) else { return };
    let well = async || scene.generate(&play("well"), "well", "Kustomize").await.unwrap();
    well().await;
    for (part, expected) in [
        ("sleep", "rendering took more than 15 s; split the stack"),
        ("allocate", "rendering took more than 256 MiB of memory; split the stack"),
        ("exit", "the renderer ended while it rendered the stack (exit status: 3); see the log of the function-runner"),
    ] {
        let start = Instant::now();
        let status = scene.generate(&play(part), part, "Kustomize").await.unwrap_err();
        let (file, _, message) = refusal(&status);
        assert_eq!((file.as_str(), message.as_str()), (part, expected));
        assert!(start.elapsed() < Duration::from_secs(60), "{part} took {:?}", start.elapsed());
        well().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_stays_for_the_next_request_of_its_organization() {
    let Some(scene) = Scene::standin(&[]) else { return };
    let name = async |organization: &str, stack: &str| {
        let commit = scene.origin.commit(&play("well"));
        let mut request = scene.request(&commit, "well", "Kustomize");
        (request.organization, request.stack) = (organization.to_owned(), stack.to_owned());
        if let Some(source) = &mut request.source {
            source.organization = organization.to_owned();
        }
        ids(&scene.send(request).await.unwrap())
    };
    let first = name("a", "1").await;
    assert_eq!(name("a", "2").await, first);
    assert_ne!(name("b", "1").await, first, "organizations share no process");
    assert_eq!(name("a", "3").await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn renderer_reads_its_tree_and_nothing_else() {
    let Some(scene) = Scene::standin(&[]) else { return };
    let commit = scene.origin.commit_with_link(&play("probe"), ("link", "/etc/hostname"));
    let warnings = scene.send(scene.request(&commit, "probe", "Kustomize")).await.unwrap().warnings;
    let probes: Vec<&str> =
        warnings.iter().map(String::as_str).filter(|it| *it != "the stack has no objects").collect();
    let (environment, rest) = probes.split_last().unwrap();
    assert!(!environment.contains("STOA_TEST_SECRET") && !environment.contains("PATH"), "{environment}");
    assert_eq!(rest[0], "read of its tree: done");
    for probe in &rest[1..] {
        // An empty file in its folder is no content.
        let is_own = *probe == "write to its folder: done";
        assert!(is_own || probe.ends_with(": denied") || probe.contains("operation not permitted"), "{probe}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(debug_assertions)]
async fn worker_with_a_tree_reads_it_and_nothing_else() {
    let scene = Scene::with(&[]);
    let files = [("s/a.k", "a = 1\n"), ("shared/b.k", "b = 2\n")];
    let commit = scene.origin.commit(&files);
    let request = GenerateRequest {
        parameters: HashMap::from([("cell".to_owned(), "c1".to_owned())]),
        ..scene.request(&commit, "./s/", "Trial:tree")
    };
    let warnings = scene.send(request).await.unwrap().warnings;
    assert_eq!(warnings[..2], ["s/a.k: Ok(\"a = 1\\n\")", "shared/b.k: Ok(\"b = 2\\n\")"]);
    assert!(warnings.contains(&"path: s".to_owned()) && warnings.contains(&"cell: c1".to_owned()), "{warnings:?}");
    assert!(warnings.contains(&"write to the tree: Err(PermissionDenied)".to_owned()), "{warnings:?}");
    let reached: Vec<&String> = warnings.iter().skip_while(|it| !it.starts_with("read: ")).collect();
    assert!(reached.len() > 8 && reached.iter().all(|it| it.ends_with("PermissionDenied")), "{reached:?}");
    // Its tree is there for the next one, and is no part of the source's cache.
    let trees = |path: &Path| {
        let folders = std::fs::read_dir(path).unwrap().filter_map(Result::ok);
        folders.filter(|it| it.file_name().to_string_lossy().starts_with("trees-")).count()
    };
    assert_eq!(trees(&scene.bed.path("cache/0")), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_gets_values_of_the_platform() {
    let Some(scene) = Scene::real() else { return };
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  region: {{ .Values.region }}\n  \
                    url: db://shop:{{ .Values.password }}@db\n  cell: {{ .Values.cell }}\n";
    let files =
        [("c/Chart.yaml", CHART), ("c/values.yaml", "region: none\ncell: none\n"), ("c/templates/a.yaml", template)];
    let commit = scene.origin.commit(&files);
    let value = |name: &str, json: &str, sensitive: bool| stoa_proto::Value {
        name: name.to_owned(),
        json: json.to_owned(),
        origin: "VariableSet eu".to_owned(),
        sensitive,
        is_final: false,
    };
    let request = GenerateRequest {
        parameters: HashMap::from([("cell".to_owned(), "c1".to_owned())]),
        values: vec![value("region", "\"eu\"", false), value("password", "\"hunter22\"", true)],
        ..scene.request(&commit, "c", "Helm")
    };
    let response = scene.send(request).await.unwrap();
    let resource = &spec(&response)["resources"][0];
    let data = serde_json::json!({"region": "eu", "url": "db://shop:hunter22@db", "cell": "c1"});
    assert_eq!(resource["attributes"]["data"], data);
    assert_eq!(resource["extensions"]["stoa.dev/sensitive"], serde_json::json!(["data.url"]));
    // An error of the tool quotes no secret value.
    let schema = "{\"properties\": {\"password\": {\"type\": \"string\", \"enum\": [\"x\"]}}}";
    let files = [("c/Chart.yaml", CHART), ("c/values.schema.json", schema), ("c/templates/a.yaml", template)];
    let commit = scene.origin.commit(&files);
    let request = GenerateRequest {
        values: vec![value("password", "\"hunter22\"", true)],
        ..scene.request(&commit, "c", "Helm")
    };
    let refused = scene.send(request).await.unwrap_err();
    let (_, _, message) = refusal(&refused);
    assert!(message.contains("password") && !refused.message().contains("hunter22"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn overlay_changes_resources_for_its_workspace() {
    let bed = Bed::start();
    let origin = Origin::new(&bed.path("origin"));
    let scene = Scene { bed, origin };
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {x: '1', z: '1'}\n";
    let patch = |value: &str| object.replace("{x: '1', z: '1'}", value);
    let (dev, prod) = (patch("{x: dev}"), patch("{x: prod, z: null}"));
    let files =
        [("s/a.yaml", object), ("s/workspaces/dev/a.yaml", dev.as_str()), ("s/workspaces/prod/a.yaml", prod.as_str())];
    let commit = scene.origin.commit(&files);
    for (workspace, data) in [
        ("dev", serde_json::json!({"x": "dev", "z": "1"})),
        ("prod", serde_json::json!({"x": "prod"})),
        ("stage", serde_json::json!({"x": "1", "z": "1"})),
    ] {
        let request = GenerateRequest {
            workspace: Some(Workspace { name: workspace.to_owned(), ..Workspace::default() }),
            ..scene.request(&commit, "s", "Auto")
        };
        let response = scene.send(request).await.unwrap();
        assert_eq!(ids(&response).len(), 1, "{workspace}");
        assert_eq!(spec(&response)["resources"][0]["attributes"]["data"], data, "{workspace}");
    }
    let lost = patch("{x: dev}").replace("name: a", "name: b");
    let refused = scene.generate(&[("s/a.yaml", object), ("s/workspaces/dev/a.yaml", &lost)], "s", "Auto").await;
    let (file, line, message) = refusal(&refused.unwrap_err());
    assert_eq!((file.as_str(), line), ("s/workspaces/dev/a.yaml", 1));
    assert!(message.starts_with("fits no resource of the stack: v1 ConfigMap shop b"), "{message}");
}

/// A value of the platform for each workspace.
pub(crate) const REGIONS: [(&str, &str, u64); 3] = [("dev", "eu", 1), ("stage", "us", 2), ("prod", "ap", 30)];

pub(crate) fn of_workspace(request: GenerateRequest, workspace: &str, region: &str, replicas: u64) -> GenerateRequest {
    let value = |name: &str, json: String| stoa_proto::Value {
        name: name.to_owned(),
        json,
        origin: format!("Workspace {workspace}"),
        ..stoa_proto::Value::default()
    };
    GenerateRequest {
        workspace: Some(Workspace { name: workspace.to_owned(), ..Workspace::default() }),
        parameters: HashMap::from([("cell".to_owned(), format!("c-{workspace}"))]),
        values: vec![value("region", format!("{region:?}")), value("replicas", replicas.to_string())],
        ..request
    }
}

/// A folder of each generator whose Deployment has a region, replicas, and a cell, which its overlay of prod changes.
fn stacks() -> Vec<(String, String)> {
    let labels = |region: &str, cell: &str| {
        DEPLOYMENT.replace(
            "metadata: {name: web}",
            &format!("metadata:\n  name: web\n  namespace: shop\n  labels:\n    region: {region}\n    cell: {cell}"),
        )
    };
    let manifest =
        labels("${stoa_value.region}", "${stoa_value.cell}").replace("replicas: 1", "replicas: ${stoa_value.replicas}");
    let attributes: String = manifest.lines().map(|line| format!("    {line}\n")).collect();
    let spec =
        format!("resources:\n- id: apps/v1:Deployment:shop:web\n  type: Kubernetes\n  attributes:\n{attributes}");
    let template =
        labels("{{ .Values.region }}", "{{ .Values.cell }}").replace("replicas: 1", "replicas: {{ .Values.replicas }}");
    let replacement = |key: &str, field: &str| {
        format!(
            "- source: {{kind: ConfigMap, name: values, fieldPath: data.{key}}}\n  targets: [{{select: {{kind: Deployment}}, fieldPaths: [{field}]}}]\n"
        )
    };
    let kustomization = format!(
        "resources: [values.yaml, web.yaml]\nreplacements:\n{}{}{}",
        replacement("region", "metadata.labels.region"),
        replacement("replicas", "spec.replicas"),
        replacement("cell", "metadata.labels.cell")
    );
    let values = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: values\n  annotations: {stoa.dev/values: 'true', config.kubernetes.io/local-config: 'true'}\ndata: {region: local, replicas: '1', cell: local}\n";
    let overlay = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {paused: true, replicas: null}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, labels: {level: '${stoa_value.replicas}'}}\n";
    let mut files = vec![
        ("manifests/web.yaml".to_owned(), manifest),
        ("spec/spec.yaml".to_owned(), spec),
        ("helm/Chart.yaml".to_owned(), CHART.to_owned()),
        ("helm/templates/web.yaml".to_owned(), template),
        ("kustomize/kustomization.yaml".to_owned(), kustomization),
        ("kustomize/values.yaml".to_owned(), values.to_owned()),
        ("kustomize/web.yaml".to_owned(), labels("none", "none")),
    ];
    for generator in ["manifests", "spec", "helm", "kustomize"] {
        files.push((format!("{generator}/workspaces/prod/web.yaml"), overlay.to_owned()));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_overlay_and_kustomization_are_listed_once() {
    let Some(scene) = Scene::real() else { return };
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {x: '1'}\n";
    let patch = object.replace("'1'", "'2'");
    let kustomization = "resources: [a.yaml]\npatches: [{path: workspaces/prod/a.yaml}]\n";
    let files =
        [("s/a.yaml", object), ("s/kustomization.yaml", kustomization), ("s/workspaces/prod/a.yaml", patch.as_str())];
    let request = GenerateRequest {
        workspace: Some(Workspace { name: "prod".to_owned(), ..Workspace::default() }),
        ..scene.request(&scene.origin.commit(&files), "s", "Auto")
    };
    let response = scene.send(request).await.unwrap();
    assert_eq!(response.files, ["s/a.yaml", "s/kustomization.yaml", "s/workspaces/prod/a.yaml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stack_differs_by_the_values_of_workspaces() {
    let (Some(scene), Some(other)) = (Scene::real(), Scene::real()) else { return };
    let files = stacks();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let commit = scene.origin.commit(&files);
    let same = other.origin.commit(&files);
    for generator in ["Spec", "Manifests", "Kustomize", "Helm"] {
        let path = generator.to_lowercase();
        for (workspace, region, replicas) in REGIONS {
            let request = of_workspace(scene.request(&commit, &path, "Auto"), workspace, region, replicas);
            let response = scene.send(request).await.unwrap();
            assert_eq!(
                (response.generator.as_str(), response.warnings.as_slice()),
                (generator, &[][..]),
                "{workspace}"
            );
            let deployment = &spec(&response)["resources"][0]["attributes"];
            let (mut labels, mut replicas) =
                (serde_json::json!({"region": region, "cell": format!("c-{workspace}")}), Value::from(replicas));
            if workspace == "prod" {
                (labels["level"], replicas) = ("30".into(), Value::Null);
                assert_eq!(deployment["spec"]["paused"], true, "{generator}");
            }
            assert_eq!(deployment["metadata"]["labels"], labels, "{generator} {workspace}");
            assert_eq!(deployment["spec"]["replicas"], replicas, "{generator} {workspace}");
            let request = of_workspace(
                other.request(&same, &path, "Auto"),
                workspace,
                region,
                if replicas.is_null() { 30 } else { replicas.as_u64().unwrap() },
            );
            assert_eq!(other.send(request).await.unwrap().spec, response.spec, "another runner, {generator}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_that_touches_no_file_of_a_stack_is_cached() {
    let scene = Scene::with(&[]);
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";
    let first = scene.origin.commit(&[("s/a.yaml", object)]);
    let second = scene.origin.commit(&[("s/a.yaml", object), ("other/b.yaml", "a: 1\n")]);
    let before = scene.send(scene.request(&first, "s", "Auto")).await.unwrap();
    for _ in 0..2 {
        assert_eq!(scene.send(scene.request(&second, "s", "Auto")).await.unwrap().spec, before.spec);
    }
    let third = scene.origin.commit(&[("s/a.yaml", &object.replace("name: a", "name: b"))]);
    assert_eq!(ids(&scene.send(scene.request(&third, "s", "Auto")).await.unwrap()), ["v1:ConfigMap:shop:b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_nothing_reads_are_warned_about() {
    let scene = Scene::with(&[]);
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {region: '${stoa_value.region}'}\n";
    let commit = scene.origin.commit(&[("s/a.yaml", object), ("t/a.yaml", &object.replace("region}", "regoin}"))]);
    let response = scene.send(of_workspace(scene.request(&commit, "s", "Auto"), "dev", "eu", 1)).await.unwrap();
    let expected = "nothing in the stack reads parameter cell, value replicas of Workspace dev; a file reads one by ${stoa_value.NAME}";
    assert_eq!(response.warnings, [expected]);
    let refused = scene.send(of_workspace(scene.request(&commit, "t", "Auto"), "dev", "eu", 1)).await.unwrap_err();
    let (file, line, message) = refusal(&refused);
    assert_eq!((file.as_str(), line), ("t/a.yaml", 4));
    assert!(message.starts_with("the stack has no value \"regoin\"; did you mean region?"), "{message}");
}
