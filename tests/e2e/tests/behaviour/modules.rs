//! Modules that the platform registers: from a registry to the resources of an application, through kubectl alone.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Kubectl, Server as _, Standalone, eventually, git};
use stoa_test_registry::{PASSWORD, Registry, Settings, USER};
use tempfile::TempDir;

use crate::PATIENCE;

/// An application of Kusion with an accessory for the module `network`.
const PROJECT: [(&str, &str); 7] = [
    ("shop/project.yaml", "name: shop\n"),
    ("shop/prod/stack.yaml", "name: prod\n"),
    (
        "shop/prod/kcl.mod",
        "[package]\nname = \"prod\"\n\n[dependencies]\nkam = { path = \"../../models/kam\" }\nservice = { path = \"../../models/service\" }\n\
         network = { path = \"../../models/network\" }\n",
    ),
    (
        "shop/prod/main.k",
        "import kam as ac\nimport service\nimport network as n\nweb: ac.AppConfiguration {\n    accessories: {a: n.Network {ports = [{port = 80}]}}\n    \
         workload: service.Service {containers: {web: {image = \"shop/web:1\"}}}\n}\n",
    ),
    ("models/kam/kam.k", "schema AppConfiguration:\n    workload: any\n    accessories?: {str:any}\n"),
    (
        "models/service/service.k",
        "schema Container:\n    image: str\nschema Service:\n    containers: {str:Container}\n    replicas?: int\n",
    ),
    ("models/network/network.k", "schema Network:\n    ports?: [any]\n"),
];

/// Pushes the module as `kusion mod push` does; the digest.
fn push(registry: &Registry, module: &Path, version: &str) -> String {
    let folder = TempDir::new().unwrap();
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let programs = folder.path().join(format!("_dist/linux/{architecture}"));
    fs::create_dir_all(&programs).unwrap();
    fs::copy(module, programs.join(format!("kusion-module-network_{version}"))).unwrap();
    fs::write(folder.path().join("kcl.mod"), format!("[package]\nname = \"network\"\nversion = \"{version}\"\n"))
        .unwrap();
    registry.push_flux(&format!("kusionstack/network:{version}"), folder.path())
}

fn ready(kubectl: &Kubectl, object: &str, status: &str) -> Value {
    eventually(&format!("{object} is ready: {status}"), PATIENCE, || {
        let object = kubectl.get(&[object]);
        (condition(&object, "Ready")["status"] == status).then_some(object)
    })
}

#[test]
fn registered_module_makes_resources_of_an_application() {
    let Some(module) = std::env::var_os("STOA_TEST_MODULES").filter(|_| Registry::is_there()) else {
        eprintln!("skipped: STOA_TEST_MODULES, STOA_TEST_REGISTRY or STOA_TEST_ORAS is not set");
        return;
    };
    let Some(server) = Standalone::start_with_tools() else { return };
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let name = organization.name.clone();
    let registry = Registry::start_with(Settings { login: true, ..Settings::default() });
    let digest = push(&registry, Path::new(&module), "0.2.0");
    let manifest = |digest: &str| {
        format!(
            "apiVersion: platform.stoa.dev/v1alpha1
kind: Module
metadata: {{name: network}}
spec:
  path: oci://{host}/kusionstack/network
  versions: [{{version: 0.2.0{digest}}}]
  secretRef: {{namespace: {name}, name: registry}}
  schema:
    type: object
    properties: {{type: {{enum: [ClusterIP, LoadBalancer]}}}}
    additionalProperties: false
",
            host = registry.host()
        )
    };
    // A workspace may name a module before it is there.
    let set_modules = |modules: &Value| {
        let patch = json!({"spec": {"modules": modules}});
        kubectl.run(&["patch", "workspace", &name, "--type=merge", &format!("--patch={patch}")]);
    };
    let modules =
        |configs: &Value| json!({"network": {"module": {"name": "network"}, "version": "0.2.0", "configs": configs}});
    let configs =
        json!({"default": {"type": "ClusterIP"}, "public": {"type": "LoadBalancer", "projectSelector": ["shop"]}});
    set_modules(&modules(&configs));
    let missing = ready(&kubectl, &format!("workspace/{name}"), "False");
    assert_eq!(condition(&missing, "Ready")["message"], "module \"network\" does not exist", "{missing:#}");

    kubectl.apply(&manifest(""));
    let refused = ready(&kubectl, "module/network", "False");
    assert_eq!(condition(&refused, "Ready")["reason"], "ReferenceNotFound", "{refused:#}");
    kubectl.apply_secret(&name, "registry", &[("username", USER), ("password", PASSWORD)]);
    let found = ready(&kubectl, "module/network", "True");
    let version = &found["status"]["versions"][0];
    assert_eq!((&version["version"], &version["digest"]), (&"0.2.0".into(), &digest.as_str().into()), "{found:#}");
    assert_eq!(version["package"], "network", "{found:#}");
    let program = version["program"].as_str().unwrap().to_owned();
    assert!(program.starts_with("sha256:") && program.len() == 71, "{program}");
    ready(&kubectl, &format!("workspace/{name}"), "True");
    let table = kubectl.run(&["get", "modules"]);
    let mut lines = table.lines().map(|line| line.split_whitespace().take(4).collect::<Vec<_>>().join(" "));
    assert_eq!(lines.next().as_deref(), Some("NAME SOURCE VERSIONS READY"));
    assert_eq!(lines.next().as_deref(), Some("network Registry 0.2.0 True"));
    let explained = kubectl.run(&["explain", "module.spec.versions"]);
    assert!(explained.contains("The digest of the version"), "{explained}");

    for (path, text) in PROJECT {
        organization.source.commit(&format!("apps/{path}"), text);
    }
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: web, namespace: {name}}},
          spec: {{project: {name}, path: apps/shop/prod, workspaces: [{name}]}}}}"
    ));
    let run = organization.succeed("web", "Apply", "");
    let generator = run["status"]["source"]["generator"]["version"].as_str().unwrap_or_default().to_owned();
    assert!(generator.contains(&format!("network 0.2.0 ({})", &program["sha256:".len()..][..12])), "{run:#}");
    let service = git(&organization.deploy, &["show", "main:shop/service-shop-prod-web.yaml"]);
    assert!(service.contains("type: LoadBalancer"), "{service}");

    // The schema, the references and the digest hold.
    let patch = |modules: &Value| {
        let patch = json!({"spec": {"modules": modules}});
        kubectl.refused(&["patch", "workspace", &name, "--type=merge", &format!("--patch={patch}")])
    };
    let told = patch(&modules(&json!({"default": {"type": "secret-value"}})));
    assert!(told.contains("spec.modules[network].configs[default].type") && !told.contains("secret-value"), "{told}");
    let told = patch(&json!({"network": {"module": {"name": "network"}, "version": "9"}}));
    assert!(told.contains("spec.modules[network].version") && told.contains("0.2.0"), "{told}");
    let told = kubectl.refused(&["delete", "module", "network"]);
    assert!(told.contains(&format!("workspace {name}")), "{told}");
    let versions = r#"--patch={"spec":{"versions":[{"version":"0.3.0"}]}}"#;
    let told = kubectl.refused(&["patch", "module", "network", "--type=merge", versions]);
    assert!(told.contains("uses version 0.2.0"), "{told}");
    kubectl.apply(&manifest(&format!(", digest: 'sha256:{}'", "0".repeat(64))));
    let wrong = ready(&kubectl, "module/network", "False");
    assert_eq!(condition(&wrong, "Ready")["reason"], "VersionNotFound", "{wrong:#}");
    let message = organization.fail("web", "Preview", "");
    assert!(message.contains("module \"network\" was not found yet"), "{message}");
    kubectl.apply(&manifest(&format!(", digest: '{digest}'")));
    ready(&kubectl, "module/network", "True");
    organization.nothing_is_left("web", "Preview");
    set_modules(&Value::Null);
    kubectl.run(&["delete", "module", "network"]);
}
