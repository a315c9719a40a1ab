//! Manifests that SOPS encrypted: decrypted for a cluster with the age key of the Workspace, and in clear nowhere else.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stoa_e2e::fixture::Organization;
use stoa_e2e::{Cluster, Kubectl, Server as _};

use crate::rendering;
use crate::secrets::Secrets;

/// The namespace and the values of the encrypted file.
const NAMESPACE: &str = "sops-web";
const PASSWORD: &str = "hunter2-and-more";
const TOKEN: &str = "token-of-the-shop";

fn data(file: &str) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../function-runner/sops/tests/data");
    fs::read_to_string(data.join(file)).unwrap()
}

#[test]
fn encrypted_manifests_deploy_and_stay_secret() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let set_key = |secret: &str| {
        let reference = json!({"spec": {"sops": {"ageKeySecretRef": {"namespace": name, "name": secret}}}});
        kubectl.run(&["patch", "workspace", name, "--type=merge", &format!("--patch={reference}")]);
    };
    kubectl.apply_secret(name, "age", &[("team.agekey", &data("keys.txt"))]);
    kubectl.apply_secret(name, "other", &[("team.agekey", &data("other.txt"))]);
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    organization.source.commit("apps/web/namespace.yaml", &namespace);
    let files = tempfile::tempdir().unwrap();
    fs::write(files.path().join("namespace.yaml"), &namespace).unwrap();
    fs::write(files.path().join("secret.yaml"), data("secret.enc.yaml")).unwrap();
    organization.stack_of_files("web", files.path());

    set_key("other");
    let why = organization.fail("web", "Preview", "");
    assert!(why.contains("apps/web/secret.yaml") && why.contains("no age key of the Secret opens it"), "{why}");
    set_key("age");
    organization.succeed("web", "Preview", "");
    let applied = organization.succeed("web", "Apply", "");
    let get = |object: &str| kubectl.get(&[object, "--namespace", NAMESPACE]);
    let secret = get("secret/db");
    assert_eq!(secret["data"]["password"], "aHVudGVyMi1hbmQtbW9yZQ==");
    assert_eq!(secret["sops"], Value::Null);
    let config = get("configmap/web");
    assert_eq!(config["data"], json!({"token": TOKEN, "url": "https://shop.example.com"}));
    organization.nothing_is_left("web", "Preview");

    let secrets = Secrets::of(&[PASSWORD, TOKEN]);
    let run = applied["metadata"]["name"].as_str().unwrap();
    for document in ["log", "plan"] {
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run}/{document}");
        secrets.not_in(document, kubectl.raw(&path).as_bytes());
    }
    for document in ["spec", "state"] {
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.1/{document}");
        secrets.not_in(document, kubectl.raw(&path).as_bytes());
    }
    // A value that somebody changed without the key.
    let altered = data("secret.enc.yaml").replace("https://shop.example.com", "https://evil.example.com");
    fs::write(files.path().join("secret.yaml"), altered).unwrap();
    organization.stack_of_files("web", files.path());
    let why = organization.fail("web", "Preview", "");
    assert!(why.contains("apps/web/secret.yaml") && why.contains("another MAC than its values"), "{why}");
    organization.succeed("web", "Destroy", "");
}

/// The documents of a Run and of its release have none of the secrets.
fn stays_secret(kubectl: &Kubectl, organization: &str, stack: &str, run: &Value) {
    let secrets = Secrets::of(&[PASSWORD, TOKEN]);
    let run = run["metadata"]["name"].as_str().unwrap();
    let of_run = ["log", "plan"].map(|document| format!("runs/{run}/{document}"));
    let of_release = ["spec", "state"].map(|document| format!("releases/{stack}.{organization}.1/{document}"));
    for path in of_run.iter().chain(&of_release) {
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{organization}/{path}");
        secrets.not_in(&path, kubectl.raw(&path).as_bytes());
    }
}

#[test]
fn encrypted_files_of_kustomizations_and_charts_deploy_and_stay_secret() {
    if !rendering::is_there() {
        return;
    }
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    kubectl.apply_secret(name, "age", &[("team.agekey", &data("keys.txt"))]);
    let reference = json!({"spec": {"sops": {"ageKeySecretRef": {"namespace": name, "name": "age"}}}});
    kubectl.run(&["patch", "workspace", name, "--type=merge", &format!("--patch={reference}")]);
    let file = |path: &str, text: &str| organization.source.commit(&format!("apps/{path}"), text);
    let password = |namespace: &str, secret: &str| {
        let secret = kubectl.get(&["secret", secret, "--namespace", namespace]);
        assert_eq!(secret["sops"], Value::Null);
        secret["data"]["password"].clone()
    };
    let expected = "aHVudGVyMi1hbmQtbW9yZQ==";

    // A base with an encrypted resource, which an overlay moves to another namespace.
    file("base/secret.enc.yaml", &data("secret.enc.yaml"));
    file("base/kustomization.yaml", "resources: [secret.enc.yaml]\n");
    let namespace = format!("{name}-kustomize");
    file("overlay/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: any}\n");
    file("overlay/kustomization.yaml", &format!("resources: [../base, namespace.yaml]\nnamespace: {namespace}\n"));
    rendering::stack(&kubectl, name, "overlay", "apps/overlay", "{}");
    let run = organization.succeed("overlay", "Apply", "");
    assert_eq!(password(&namespace, "db"), expected);
    stays_secret(&kubectl, name, "overlay", &run);

    // A values file, whose documents Helm merges.
    file("chart/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    file("chart/values.yaml", "stringData: {password: none}\n");
    file("chart/secrets.enc.yaml", &data("secret.enc.yaml"));
    file("chart/.helmignore", "secrets.enc.yaml\n");
    file(
        "chart/templates/namespace.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: {{ .Release.Namespace }}}\n",
    );
    file(
        "chart/templates/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name }}}\nstringData: {password: {{ .Values.stringData.password }}}\n",
    );
    let namespace = format!("{name}-helm");
    let generator =
        format!("{{type: Helm, helm: {{name: web, namespace: {namespace}, valuesFiles: [secrets.enc.yaml]}}}}");
    rendering::stack(&kubectl, name, "chart", "apps/chart", &generator);
    let run = organization.succeed("chart", "Apply", "");
    assert_eq!(password(&namespace, "web"), expected);
    stays_secret(&kubectl, name, "chart", &run);

    // The message of a tool may quote a value.
    file("chart/templates/secret.yaml", "{{ fail .Values.stringData.password }}\n");
    let why = organization.fail("chart", "Preview", "");
    assert!(why.contains("apps/chart/templates/secret.yaml") && !why.contains(PASSWORD), "{why}");
    let altered = data("secret.enc.yaml").replace("https://shop.example.com", "https://evil.example.com");
    file("base/secret.enc.yaml", &altered);
    let why = organization.fail("overlay", "Preview", "");
    assert!(why.contains("apps/base/secret.enc.yaml") && why.contains("another MAC than its values"), "{why}");
}
