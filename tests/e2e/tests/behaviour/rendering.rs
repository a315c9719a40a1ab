//! One application as a kustomization with overlays, and as a chart with values files, in three stages.

use serde_json::Value;
use stoa_e2e::fixture::Organization;
use stoa_e2e::{Cluster, Kubectl, Server as _};

const STAGES: [&str; 3] = ["dev", "stage", "prod"];

/// Whether the test bed has the renderer.
pub(crate) fn is_there() -> bool {
    let is_there = std::env::var_os("STOA_TEST_RENDERER").is_some();
    if !is_there {
        eprintln!("skipped: STOA_TEST_RENDERER is not set");
    }
    is_there
}

/// A Stack of this organization, whose folder is at a path.
pub(crate) fn stack(kubectl: &Kubectl, organization: &str, name: &str, path: &str, generator: &str) {
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: {name}, namespace: {organization}}},
          spec: {{project: {organization}, path: {path}, workspaces: [{organization}], generator: {generator}}}}}"
    ));
}

fn config_map(kubectl: &Kubectl, namespace: &str, prefix: &str) -> Value {
    let list = kubectl.get(&["configmaps", "--namespace", namespace]);
    let items = list["items"].as_array().unwrap().clone();
    let found = items.into_iter().find(|item| item["metadata"]["name"].as_str().unwrap().starts_with(prefix));
    found.unwrap_or_else(|| panic!("no {prefix} in {list:#}"))
}

#[test]
fn overlays_of_a_kustomization_deploy_three_stages() {
    if !is_there() {
        return;
    }
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.clone();
    organization.source.commit("apps/base/kustomization.yaml", "resources: [namespace.yaml, service.yaml]\n");
    organization.source.commit("apps/base/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n");
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n";
    organization.source.commit("apps/base/service.yaml", service);
    for (port, stage) in (8000..).zip(STAGES) {
        let overlay = format!(
            "resources: [../../base]
namespace: {name}-{stage}
configMapGenerator:
- name: settings
  literals: [stage={stage}]
patches:
- target: {{kind: Service}}
  patch: '[{{\"op\": \"replace\", \"path\": \"/spec/ports/0/port\", \"value\": {port}}}]'
"
        );
        organization.source.commit(&format!("apps/overlays/{stage}/kustomization.yaml"), &overlay);
        stack(&kubectl, &name, stage, &format!("apps/overlays/{stage}"), "{}");
        let run = organization.succeed(stage, "Apply", "");
        assert_eq!(run["status"]["plan"]["summary"]["create"], 3, "{run:#}");
    }
    for (port, stage) in (8000..).zip(STAGES) {
        let namespace = format!("{name}-{stage}");
        let service = kubectl.get(&["service", "web", "--namespace", &namespace]);
        assert_eq!(service["spec"]["ports"][0]["port"], port);
        assert_eq!(config_map(&kubectl, &namespace, "settings-")["data"]["stage"], stage);
    }
    // A change of the base is a change of each overlay, and only of the object that it changes.
    organization.source.commit("apps/base/service.yaml", &service.replace("app: web", "app: api"));
    let run = organization.succeed("prod", "Preview", "");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!((&summary["update"], &summary["unchanged"]), (&1.into(), &2.into()), "{run:#}");
}

#[test]
fn chart_with_values_files_deploys_three_stages() {
    if !is_there() {
        return;
    }
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.clone();
    let file = |path: &str, text: &str| organization.source.commit(&format!("apps/chart/{path}"), text);
    file("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    file("values.yaml", "stage: none\nlevel: 1\n");
    file("templates/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: {{ .Release.Namespace }}}\n");
    file(
        "templates/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata:\n  stage: {{ .Values.stage }}\n  level: {{ .Values.level | quote }}\n",
    );
    for stage in STAGES {
        file(&format!("values-{stage}.yaml"), &format!("stage: {stage}\n"));
        let generator = format!(
            "{{type: Helm, parameters: {{level: '7'}},
               helm: {{name: web, namespace: {name}-{stage}, valuesFiles: [values-{stage}.yaml]}}}}"
        );
        stack(&kubectl, &name, stage, "apps/chart", &generator);
        let run = organization.succeed(stage, "Apply", "");
        assert_eq!(run["status"]["plan"]["summary"]["create"], 2, "{run:#}");
        let data = &config_map(&kubectl, &format!("{name}-{stage}"), "web")["data"];
        assert_eq!((&data["stage"], &data["level"]), (&stage.into(), &"7".into()));
    }
    file("values-dev.yaml", "stage: [\n");
    let message = organization.fail("dev", "Preview", "");
    assert!(message.contains("apps/chart/values-dev.yaml"), "{message}");
}

#[test]
fn chart_reads_capabilities_of_its_cluster() {
    if !is_there() {
        return;
    }
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.clone();
    let file = |path: &str, text: &str| organization.source.commit(&format!("apps/chart/{path}"), text);
    file("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: target}\ndata:\n  version: {{ .Capabilities.KubeVersion.Version }}\n  \
                    stoa: {{ .Capabilities.APIVersions.Has \"delivery.stoa.dev/v1alpha1/Run\" | quote }}\n  \
                    none: {{ .Capabilities.APIVersions.Has \"none.example.com/v1\" | quote }}\n";
    file("templates/a.yaml", template);
    stack(&kubectl, &name, "web", "apps/chart", &format!("{{type: Helm, helm: {{namespace: {name}}}}}"));
    organization.succeed("web", "Apply", "");
    let version: Value = serde_json::from_str(&kubectl.raw("/version")).unwrap();
    let data = &config_map(&kubectl, &name, "target")["data"];
    assert_eq!(data, &serde_json::json!({"version": version["gitVersion"], "stoa": "true", "none": "false"}));
    let stack =
        format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/web/generate?show=inputs&format=table");
    let inputs = kubectl.run(&["create", "--raw", &stack, "-f", "/dev/null"]);
    assert!(inputs.contains(&format!("KUBERNETES   {}\n", version["gitVersion"].as_str().unwrap())), "{inputs}");
}
