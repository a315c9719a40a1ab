//! Sources that are artifacts of a registry: what is pushed is shown and deployed, through kubectl alone.

use std::fs;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Server as _, Standalone, eventually, git};
use stoa_test_registry::{PASSWORD, Registry, Settings, USER};
use tempfile::TempDir;

use crate::PATIENCE;

/// Pushes the Spec of the stack `web` as Flux does; the digest.
fn push(registry: &Registry, tag: &str, spec: &str) -> String {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("apps/web")).unwrap();
    fs::write(folder.path().join("apps/web/spec.yaml"), spec).unwrap();
    registry.push_flux(&format!("shop/config:{tag}"), folder.path())
}

#[test]
fn pushed_artifact_is_previewed_and_applied() {
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
        return;
    }
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    let kubectl = server.kubectl();
    let registry = Registry::start_with(Settings { login: true, ..Settings::default() });
    let first = push(&registry, "1.0.0", &config_maps(&namespace, 1, "a"));
    let source = |provider: &str, reference: &str| {
        format!(
            "apiVersion: config.stoa.dev/v1alpha1
kind: Source
metadata: {{name: artifact, namespace: {name}}}
spec: {{provider: {provider}, remote: \"oci://{host}/shop/config\", ref: \"{reference}\", pollInterval: 1s, secretRef: {{name: registry}}}}
",
            host = registry.host()
        )
    };
    kubectl.apply(&source("OCI", "^1"));
    let read = || kubectl.get(&["source/artifact", "--namespace", name]);
    let ready = |status: &str, reason: &str| {
        eventually(&format!("Ready is {status}"), PATIENCE, || {
            let ready = condition(&read(), "Ready");
            (ready["status"] == status && ready["reason"] == reason).then_some(ready)
        })
    };
    ready("False", "ReferenceNotFound");
    kubectl.apply_secret(name, "registry", &[("username", USER), ("password", "hunter2")]);
    let refused = ready("False", "SourceUnreachable");
    assert!(refused["message"].as_str().unwrap().contains("requires other credentials"), "{refused}");
    kubectl.apply_secret(name, "registry", &[("username", USER), ("password", PASSWORD)]);
    ready("True", "Available");
    assert_eq!(read()["status"]["observedCommit"], first.as_str());
    let columns = kubectl.run(&["get", "source/artifact", "--namespace", name]);
    assert!(columns.contains(&first["sha256:".len()..][..8]), "{columns}");

    kubectl.apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Project
metadata: {{name: pushed, namespace: {name}}}
spec: {{source: {{name: artifact}}, path: apps}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: web, namespace: {name}}}
spec: {{project: pushed, workspaces: [{name}]}}
"
    ));
    let generate = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/web/generate?workspace={name}");
    let spec = kubectl.run(&["create", "--raw", &generate, "--filename", "/dev/null"]);
    assert!(spec.contains("value: a"), "{spec}");
    let preview = organization.succeed("web", "Preview", "version: latest");
    assert_eq!(preview["status"]["source"]["commit"], first.as_str(), "{preview:#}");
    let value = || git(&organization.deploy, &["grep", "-h", "value:", "main"]).trim().to_owned();
    let apply = organization.succeed("web", "Apply", "version: \"1.0.0\"");
    assert_eq!((&apply["status"]["source"]["commit"], value()), (&first.as_str().into(), "value: a".to_owned()));

    // A push starts a Run, as one to a Git repository does.
    let trigger = ["--type=merge", "--patch", r#"{"spec":{"trigger":"Apply"}}"#];
    kubectl.run(&[&["patch", "stack/web", "--namespace", name], &trigger[..]].concat());
    let second = push(&registry, "1.1.0", &config_maps(&namespace, 1, "b"));
    let is_applied = |run: &Value| run["spec"]["version"] == *second && run["status"]["phase"] == "Succeeded";
    eventually("the artifact is applied", PATIENCE, || {
        organization.of_stack("runs", "web").into_iter().find(is_applied)
    });
    assert_eq!(value(), "value: b");
    let stack = kubectl.get(&["stack/web", "--namespace", name]);
    assert_eq!(stack["status"]["deployments"][0]["commit"], second.as_str(), "{stack:#}");
    // The digest alone deploys the first one again.
    organization.succeed("web", "Apply", &format!("version: \"{first}\""));
    assert_eq!(value(), "value: a");

    let wrong = source("OCI", "^1").replace("name: artifact", "name: other").replace("oci://", "https://");
    let refused = kubectl.create_refused(&wrong);
    assert!(refused.contains("spec.remote") && refused.contains("oci://HOST[:PORT]/NAME"), "{refused}");
}
