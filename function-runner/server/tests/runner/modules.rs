//! Modules of Kusion in the processes of a runner, where `STOA_TEST_KCL` names KCL's library and `STOA_TEST_MODULES` a module.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stoa_engine::Spec;
use stoa_proto::{FindModuleRequest, FindModuleResponse, GenerateRequest, GenerateResponse, Workspace};
use stoa_test_registry::Registry;
use tonic::{Code, Response, Status};

use crate::bed::{Bed, Origin, problem};
use crate::caller::git;

const PROJECT: [(&str, &str); 8] = [
    ("shop/project.yaml", "name: shop\n"),
    ("shop/prod/stack.yaml", "name: prod\n"),
    (
        "shop/prod/kcl.mod",
        "[package]\nname = \"prod\"\n\n[dependencies]\nkam = { path = \"../../models/kam\" }\nservice = { path = \"../../models/service\" }\n\
         network = { path = \"../../models/network\" }\n\n[profile]\nentries = [\"../base/base.k\", \"main.k\"]\n",
    ),
    (
        "shop/base/base.k",
        "import kam as ac\nimport service\nweb: ac.AppConfiguration {\n    workload: service.Service {\n        \
         containers: {web: {image: \"<no value>\", env: {Z: \"1\", A: \"2\"}}}\n    }\n}\n",
    ),
    ("shop/prod/main.k", ""),
    (
        "models/kam/kam.k",
        "schema AppConfiguration:\n    workload: any\n    accessories?: {str:any}\n    labels?: {str:str}\n    annotations?: {str:str}\n",
    ),
    (
        "models/service/service.k",
        "schema Container:\n    image: str\n    env?: {str:str}\nschema Service:\n    containers: {str:Container}\n    replicas?: int\n",
    ),
    ("models/network/network.k", "schema Network:\n    ports?: [any]\n    do?: str\n    value?: str\n"),
];

struct Scene {
    bed: Bed,
    origin: Origin,
    folder: tempfile::TempDir,
}

impl Scene {
    /// A runner with the library and two versions of the module; nothing without these.
    fn new(arguments: &[&str]) -> Option<Self> {
        let (Some(library), Some(module)) = (std::env::var_os("STOA_TEST_KCL"), std::env::var_os("STOA_TEST_MODULES"))
        else {
            eprintln!("skipped: STOA_TEST_KCL or STOA_TEST_MODULES is not set; see CONTRIBUTING.md");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        install(folder.path(), Path::new(&module), "0.2.0");
        let library = format!("--kcl-library={}", library.display());
        let modules = format!("--kusion-modules={}", folder.path().display());
        let arguments: Vec<&str> = arguments.iter().copied().chain([library.as_str(), modules.as_str()]).collect();
        let bed = Bed::start_in(&[("STOA_TEST_SECRET", "hidden")], &arguments);
        let origin = Origin::new(&bed.path("origin"));
        Some(Self { bed, origin, folder })
    }

    /// Renders the project with accessories, for a Workspace.
    async fn generate(&self, accessories: &str, spec: &Value) -> Result<GenerateResponse, Status> {
        self.generate_with(accessories, spec, "").await
    }

    /// The same with an overlay of the Workspace, and the parameter `count`.
    async fn generate_with(&self, accessories: &str, spec: &Value, overlay: &str) -> Result<GenerateResponse, Status> {
        let main = format!(
            "import kam as ac\nimport service\nimport network as n\nweb: ac.AppConfiguration {{\n    accessories: {{{accessories}}}\n    \
             workload: service.Service {{\n        containers: {{web: {{image = \"shop/web:1\"}}}}\n    }}\n}}\n"
        );
        let mut files: Vec<(&str, &str)> = PROJECT.to_vec();
        files.retain(|(path, _)| *path != "shop/prod/main.k");
        files.push(("shop/prod/main.k", &main));
        if !overlay.is_empty() {
            files.push((OVERLAY, overlay));
        }
        let request = GenerateRequest {
            source: Some(git(&self.origin.remote())),
            commit: self.origin.commit(&files),
            path: "shop/prod".to_owned(),
            organization: "shop".to_owned(),
            project: "web".to_owned(),
            stack: "prod".to_owned(),
            parameters: if overlay.is_empty() { HashMap::new() } else { [("count".to_owned(), "3".to_owned())].into() },
            workspace: Some(Workspace { name: "eu".to_owned(), spec: spec.to_string().into(), ..Workspace::default() }),
            ..GenerateRequest::default()
        };
        self.bed.client().await.generate(request).await.map(Response::into_inner)
    }

    async fn render(&self, accessories: &str) -> Result<Spec, Status> {
        let answer = self.generate(accessories, &workspace("0.2.0", json!({}))).await?;
        Ok(serde_json::from_slice(&answer.spec).unwrap())
    }

    async fn refused(&self, accessories: &str) -> (Code, String) {
        let (code, problem) = problem(&self.render(accessories).await.unwrap_err());
        assert_eq!((problem.file.as_str(), problem.field.as_str()), ("shop/prod/main.k", "web.accessories.a"));
        (code, problem.message)
    }

    async fn still_works(&self) {
        let spec = self.render("a: n.Network {ports = [{port = 80}]}").await.unwrap();
        assert!(spec.resources.iter().any(|it| it.id.0 == "v1:Service:shop:shop-prod-web"));
    }
}

/// Copies the module to a folder of modules.
fn install(folder: &Path, module: &Path, version: &str) {
    let folder = folder.join("ghcr.io/kusionstack/network").join(version);
    let program = format!("linux/{}/kusion-module-network_{version}", architecture());
    std::fs::create_dir_all(folder.join(&program).parent().unwrap()).unwrap();
    std::fs::copy(module, folder.join(&program)).unwrap();
    let digest: String =
        Sha256::digest(std::fs::read(module).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(folder.join("SHA256SUMS"), format!("{digest}  {program}\n")).unwrap();
}

fn workspace(version: &str, configs: Value) -> Value {
    json!({
        "modules": {"network": {"path": "oci://ghcr.io/kusionstack/network", "version": version, "configs": configs}},
        "context": {"region": "eu"},
    })
}

fn attributes(spec: &Spec, id: &str) -> Value {
    let found = spec.resources.iter().find(|it| it.id.0 == id);
    let ids: Vec<&str> = spec.resources.iter().map(|it| it.id.0.as_str()).collect();
    Value::Object(found.unwrap_or_else(|| panic!("{id} is not in {ids:?}")).attributes.clone())
}

const NETWORK: &str = "a: n.Network {ports = [{port = 80}]}";
const OVERLAY: &str = "shop/prod/workspaces/eu/a.yaml";
const DEPLOYMENT: &str = "apps/v1:Deployment:shop:shop-prod-web";

/// The platform of this process, by Go's names.
fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_module_runs_by_its_digest() {
    let Some(scene) = Scene::new(&[]) else { return };
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
        return;
    }
    let (registry, files) = (Registry::start(), tempfile::tempdir().unwrap());
    let program = std::env::var_os("STOA_TEST_MODULES").unwrap();
    let folder = files.path().join(format!("_dist/linux/{}", architecture()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&program, folder.join("kusion-module-network_1.0.0")).unwrap();
    std::fs::write(files.path().join("kcl.mod"), "[package]\nname = \"network\"\n").unwrap();
    std::fs::write(files.path().join("network.k"), "NAME = \"of-the-module\"\n").unwrap();
    let digest = registry.push_flux("modules/network:1.0.0", files.path());
    let path = format!("oci://{}/modules/network", registry.host());
    let find = async |version: &str, digest: &str, in_folder: bool| {
        let (path, version) = (if in_folder { "ghcr.io/kusionstack/network" } else { &path }, version.to_owned());
        let request = FindModuleRequest {
            path: path.to_owned(),
            version,
            digest: digest.to_owned(),
            in_folder,
            ..Default::default()
        };
        scene.bed.client().await.find_module(request).await.map(Response::into_inner)
    };
    let found = find("1.0.0", "", false).await.unwrap();
    let sha256: String =
        Sha256::digest(std::fs::read(&program).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&found.digest, &found.program), (&digest, &format!("sha256:{sha256}")));
    assert_eq!(found.package, "network");
    let untagged = registry.push_flux("modules/network:released", files.path());
    let by_digest = FindModuleResponse { digest: untagged.clone(), ..found.clone() };
    assert_eq!(find("1.0.0", &untagged, false).await.unwrap(), by_digest, "a digest wins over the tag");
    let (code, wrong) = problem(&find("9", "", false).await.unwrap_err());
    assert_eq!((code, wrong.reason.as_str()), (Code::NotFound, "VersionNotFound"));
    // The same program in the folder.
    let in_folder = find("0.2.0", "", true).await.unwrap();
    assert_eq!((in_folder.digest.as_str(), &in_folder.program), ("", &found.program));
    let (_, wrong) = problem(&find("0.2.0", &format!("sha256:{}", "0".repeat(64)), true).await.unwrap_err());
    assert!(wrong.message.contains("instead of"), "{wrong:?}");

    let workspace = |program: &str| json!({"modules": {"network": {"path": path, "version": "1.0.0", "artifact": digest, "program": program}}});
    let answer = scene.generate(NETWORK, &workspace(&found.program)).await.unwrap();
    assert!(
        answer.generator_version.contains(&format!("network 1.0.0 ({})", &sha256[..12])),
        "{}",
        answer.generator_version
    );
    // Its package is imported without a copy in the source.
    let program = "import network as n\na = {apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = n.NAME}\n";
    let module = "[package]\nname = \"s\"\n\n[dependencies]\nnetwork = { oci = \"oci://r.example.com/network\", tag = \"1.0.0\" }\n";
    let packaged = |package: &str| {
        let mut spec = workspace(&found.program);
        spec["modules"]["network"]["package"] = package.into();
        let workspace = Workspace { name: "eu".to_owned(), spec: spec.to_string().into(), ..Workspace::default() };
        GenerateRequest {
            source: Some(git(&scene.origin.remote())),
            commit: scene.origin.commit(&[("s/main.k", program), ("s/kcl.mod", module)]),
            path: "s".to_owned(),
            organization: "shop".to_owned(),
            workspace: Some(workspace),
            ..GenerateRequest::default()
        }
    };
    let answer = scene.bed.client().await.generate(packaged("network")).await.unwrap().into_inner();
    let spec: Spec = serde_json::from_slice(&answer.spec).unwrap();
    assert_eq!(spec.resources[0].id.0, "v1:ConfigMap:of-the-module");
    assert_eq!(answer.files, ["s/kcl.mod", "s/main.k"], "no file of the package is one of the source");
    let (_, missing) = problem(&scene.bed.client().await.generate(packaged("")).await.unwrap_err());
    assert!(missing.message.contains("or register it as a Module"), "{missing:?}");
    // Another program than the registered one does not run.
    let status = scene.generate(NETWORK, &workspace(&format!("sha256:{}", "0".repeat(64)))).await.unwrap_err();
    assert!(!status.message().is_empty());
    scene.still_works().await;
    // Without a program there is nothing to call.
    let status = scene.generate(NETWORK, &workspace("")).await.unwrap_err();
    assert!(problem(&status).1.message.contains("no program for the platform"), "{status}");
}

#[tokio::test]
async fn accessory_becomes_resources_and_patches() {
    let Some(scene) = Scene::new(&[]) else { return };
    let configs = json!({
        "default": {"type": "ClusterIP"},
        "public": {"type": "LoadBalancer", "projectSelector": ["shop"]},
    });
    let answer = scene.generate(NETWORK, &workspace("0.2.0", configs)).await.unwrap();
    assert_eq!(answer.generator, "KCL");
    assert_eq!(answer.generator_version, "kcl_lib 0.13.2, modules network 0.2.0");
    assert!(answer.files.contains(&"shop/base/base.k".to_owned()), "{:?}", answer.files);
    let spec: Spec = serde_json::from_slice(&answer.spec).unwrap();
    assert_eq!(attributes(&spec, "v1:Service:shop:shop-prod-web")["spec"]["type"], "LoadBalancer");
    let deployment = attributes(&spec, DEPLOYMENT);
    assert_eq!(deployment["metadata"]["labels"]["network"], "on");
    assert_eq!(deployment["metadata"]["annotations"]["example.com/network"], "on");
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["network"], "on");
    let names: Vec<&Value> =
        template["spec"]["containers"][0]["env"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["Z", "A", "SERVICE"]);
    assert_eq!(attributes(&spec, "v1:Namespace:shop")["metadata"]["labels"]["network"], "on");
    assert!(spec.resources.iter().all(|it| it.depends_on.is_empty()), "no order of kinds is added");
    // The process of the module ended with the call.
    assert!(scene.modules().is_empty());
}

#[tokio::test]
async fn overlay_changes_resources_of_modules() {
    let Some(scene) = Scene::new(&[]) else { return };
    let overlay = "apiVersion: v1\nkind: Service\nmetadata: {name: shop-prod-web, labels: {tier: edge}}\n---\n\
                   apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop-prod-web, labels: {network: null}}\n\
                   spec: {replicas: '${stoa_value.count}'}\n---\n\
                   id: hashicorp:random:random_pet:shop-prod-web\nattributes: {length: 7}\n";
    let accessories = format!("{NETWORK}, b: n.Network {{do = \"database\"}}");
    let settings = workspace("0.2.0", json!({}));
    let answer = scene.generate_with(&accessories, &settings, overlay).await.unwrap();
    let spec: Spec = serde_json::from_slice(&answer.spec).unwrap();
    assert_eq!(attributes(&spec, "v1:Service:shop:shop-prod-web")["metadata"]["labels"]["tier"], "edge");
    // The overlay counts after the patches of modules.
    let deployment = attributes(&spec, DEPLOYMENT);
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["metadata"]["labels"]["network"]),
        (&json!(3), &json!(null))
    );
    assert_eq!(attributes(&spec, "hashicorp:random:random_pet:shop-prod-web")["length"], 7);
    assert!(answer.files.contains(&OVERLAY.to_owned()), "{:?}", answer.files);
    let lost = "apiVersion: v1\nkind: Service\nmetadata: {name: other}\n";
    let (_, found) = problem(&scene.generate_with(NETWORK, &settings, lost).await.unwrap_err());
    assert_eq!((found.file.as_str(), found.line), (OVERLAY, 1));
    assert_eq!(found.message, "fits no resource of the stack: v1 Service other");
}

impl Scene {
    /// The processes of modules.
    fn modules(&self) -> Vec<u32> {
        let is_module = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("kusion-module-")
        };
        self.bed.children().into_iter().filter(is_module).collect()
    }
}

#[tokio::test]
async fn module_gets_all_parts_of_the_request() {
    let Some(scene) = Scene::new(&[]) else { return };
    let mut spec = workspace("0.2.0", json!({"default": {"size": 3}}));
    spec["secretStore"] = json!({"provider": {"vault": {"server": "https://vault.example.com"}}});
    let answer = scene.generate("a: n.Network {do = \"echo\"}", &spec).await.unwrap();
    let data =
        attributes(&serde_json::from_slice(&answer.spec).unwrap(), "v1:ConfigMap:shop:shop-prod-web-request")["data"]
            .clone();
    assert_eq!(data["app"], "web");
    assert_eq!(data["platformConfig"], "{\"size\":3}");
    assert_eq!(data["context"], "{\"region\":\"eu\"}");
    assert_eq!(data["secretStore"], "{\"provider\":{\"vault\":{\"server\":\"https://vault.example.com\"}}}");
    assert_eq!(data["devConfig"], "{\"do\":\"echo\",\"_type\":\"network.Network\"}");
    // The order of the program stays.
    let workload = data["workload"].as_str().unwrap();
    assert!(workload.contains("\"env\":{\"Z\":\"1\",\"A\":\"2\"}"), "{workload}");
    assert!(workload.contains("\"_type\":\"service.Service\""), "{workload}");
}

#[tokio::test]
async fn modules_make_workloads_and_terraform_resources() {
    let Some(scene) = Scene::new(&[]) else { return };
    let mut spec = workspace("0.2.0", json!({}));
    spec["modules"]["service"] = spec["modules"]["network"].clone();
    let answer =
        scene.generate("a: n.Network {ports = [{port = 80}]}, b: n.Network {do = \"database\"}", &spec).await.unwrap();
    let spec: Spec = serde_json::from_slice(&answer.spec).unwrap();
    let deployment = attributes(&spec, DEPLOYMENT);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example.com/web:1");
    assert_eq!(deployment["metadata"]["labels"]["network"], "on");
    let settings = spec.resources.iter().find(|it| it.id.0 == "v1:ConfigMap:shop:shop-prod-web-database").unwrap();
    assert_eq!(settings.depends_on[0].0, "hashicorp:random:random_pet:shop-prod-web");
    assert_eq!(settings.attributes["data"]["host"], "$kusion_path.hashicorp:random:random_pet:shop-prod-web.id");
    assert_eq!(answer.generator_version, "kcl_lib 0.13.2, modules network 0.2.0, service 0.2.0");
}

#[tokio::test]
async fn modules_that_disagree_are_named() {
    let Some(scene) = Scene::new(&[]) else { return };
    let label = |value: &str| format!("n.Network {{do = \"label\", value = \"{value}\"}}");
    scene.render(&format!("b: {}, c: {}", label("x"), label("x"))).await.unwrap();
    let (code, problem) = problem(&scene.render(&format!("b: {}, c: {}", label("x"), label("y"))).await.unwrap_err());
    assert_eq!((code, problem.field.as_str()), (Code::InvalidArgument, "web.accessories.c"));
    assert!(
        problem.message.contains("metadata.labels[\"tier\"] has another value by module network 0.2.0"),
        "{}",
        problem.message
    );
    let configs = json!({"one": {"x": 1, "projectSelector": ["shop"]}, "two": {"x": 2, "projectSelector": ["shop"]}});
    let status = scene.generate(NETWORK, &workspace("0.2.0", configs)).await.unwrap_err();
    let message = status.message();
    assert!(
        message.contains("patchers one and two both select the project, and set x to different values"),
        "{message}"
    );
}

#[tokio::test]
async fn modules_that_break_fail_alone() {
    let Some(scene) = Scene::new(&["--worker-memory-mib=256", "--worker-timeout-seconds=10"]) else { return };
    let start = Instant::now();
    let module = "module network 0.2.0 for stack prod of project shop: ";
    for (act, expected) in [
        ("crash", "it ended before it answered (exit status: 2): panic: a test wants this module to end"),
        ("allocate", "it took more than 256 MiB of memory"),
        ("sleep", "the modules of the stack took more than 10 s together"),
        ("reject", "ports must not be empty"),
        ("malformed", "resource 1 of its answer is invalid: "),
    ] {
        let (code, message) = scene.refused(&format!("a: n.Network {{do = \"{act}\"}}")).await;
        assert_eq!(code, Code::InvalidArgument, "{act}");
        assert!(message.starts_with(&format!("{module}{expected}")), "{act}: {message}");
        scene.still_works().await;
    }
    assert!(scene.modules().is_empty());
    let answer = scene.generate("a: n.Network {do = \"nothing\"}", &workspace("0.2.0", json!({}))).await.unwrap();
    assert!(
        answer.warnings.iter().any(|it| it.contains("returns nothing for web.accessories.a")),
        "{:?}",
        answer.warnings
    );
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
}

#[tokio::test]
async fn modules_reach_nothing_outside() {
    let Some(scene) = Scene::new(&[]) else { return };
    let spec = scene.render("a: n.Network {do = \"reach\"}").await.unwrap();
    let data = attributes(&spec, "v1:ConfigMap:shop:shop-prod-web-reach")["data"].clone();
    for (probe, result) in data.as_object().unwrap() {
        let expected = match probe.as_str() {
            "secret" => "false",
            // Its socket.
            "files" => "1",
            _ => "denied",
        };
        assert_eq!(result, expected, "{probe}: {data}");
    }
}

#[tokio::test]
async fn programs_that_are_missing_or_changed_do_not_run() {
    let Some(scene) = Scene::new(&[]) else { return };
    let status = scene.generate(NETWORK, &workspace("0.3.0", json!({}))).await.unwrap_err();
    let (code, found) = problem(&status);
    assert_eq!((code, found.reason.as_str()), (Code::InvalidArgument, "NotAvailable"));
    let message = &found.message;
    assert!(
        message
            .starts_with("module network 0.3.0 for stack prod of project shop: the function-runner does not have it: "),
        "{message}"
    );
    assert!(message.contains("/ghcr.io/kusionstack/network/0.3.0/linux/"), "{message}");
    // The cached rendering is that of the program before.
    scene.still_works().await;
    let version = scene.folder.path().join("ghcr.io/kusionstack/network/0.2.0");
    let sums = version.join("SHA256SUMS");
    let text = std::fs::read_to_string(&sums).unwrap();
    std::fs::write(&sums, text.replacen(&text[..64], &"0".repeat(64), 1)).unwrap();
    let (_, message) = scene.refused(NETWORK).await;
    assert!(message.contains("is not the installed one: its SHA-256 differs"), "{message}");
}

#[tokio::test]
async fn runner_without_modules_explains_what_to_install() {
    let Some(library) = std::env::var_os("STOA_TEST_KCL") else { return };
    let library = format!("--kcl-library={}", library.display());
    let bed = Bed::start_with(&[&library]);
    let origin = Origin::new(&bed.path("origin"));
    let scene = Scene { bed, origin, folder: tempfile::tempdir().unwrap() };
    let (code, message) = scene.refused(NETWORK).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(
        message.contains(
            "has no Kusion modules; start function-runner with --kusion-modules, a folder with their programs"
        ),
        "{message}"
    );
}
