//! Bundles for clusters without a network: from a GitOps branch through an archive and a real registry to the same files.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository};
use stoa_e2e::{Server as _, Standalone, skipped};
use stoa_test_registry::Registry;
use tempfile::TempDir;

/// The files of the folder `drone`, by their paths in it.
fn files() -> BTreeMap<String, String> {
    let long = format!("{}/reconciler.yaml", ["a-part-of-a-long-path"; 14].join("/"));
    [
        ("web/namespace.yaml", "kind: Namespace\n"),
        ("web/platform-config.sh", "export A='1'\n"),
        (long.as_str(), "kind: X\n"),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into()
}

#[test]
fn folder_of_cluster_type_passes_through_a_registry() {
    if !Registry::is_there() {
        return skipped("bundles, since STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
    }
    let server = Standalone::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&*server));
    let namespace = &organization.name;
    let gitops = Repository::new();
    for (path, text) in files() {
        gitops.commit(&format!("drone/{path}"), &text);
    }
    let commit = gitops.commit("large/web/namespace.yaml", "kind: Namespace\n");
    // A work tree must not be on the branch that is pushed to.
    gitops.git(&["checkout", "--quiet", "-b", "work"]);
    for (name, branch) in [("dev", "main"), ("early", "missing")] {
        kubectl.apply(&format!(
            "apiVersion: scheduler.kalypso.io/v1alpha1
kind: GitOpsRepo
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{repo: \"{}\", branch: {branch}, path: .}}
",
            gitops.url()
        ));
    }
    let path = |name: &str, query: &str| {
        format!("/apis/scheduler.kalypso.io/v1alpha1/namespaces/{namespace}/gitopsrepoes/{name}/bundle{query}")
    };
    let download = || {
        let mut kubectl = kubectl.command(&["get", "--raw", &path("dev", "?clusterType=drone")]);
        let output = kubectl.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let bundle = download();
    assert_eq!(download(), bundle, "one commit has one bundle");

    let (registry, folder) = (Registry::start(), TempDir::new().unwrap());
    fs::write(folder.path().join("drone.tar"), &bundle).unwrap();
    let digest = registry.copy_from_layout("drone.tar:latest", "fleet/drone:1", folder.path());
    assert_eq!(registry.copy_from_layout(&format!("drone.tar:{commit}"), "fleet/drone:2", folder.path()), digest);
    let reference = format!("{}/fleet/drone@{digest}", registry.host());
    let manifest: Value =
        serde_json::from_str(&registry.oras(&["manifest", "fetch", &reference], folder.path())).unwrap();
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.cncf.flux.config.v1+json", "{manifest:#}");
    assert_eq!(manifest["layers"][0]["mediaType"], "application/vnd.cncf.flux.content.v1.tar+gzip", "{manifest:#}");
    let mut show = Command::new("git");
    show.arg("-C").arg(gitops.path()).env("TZ", "UTC");
    show.args(["show", "--no-patch", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", &commit]);
    let created = String::from_utf8(show.output().unwrap().stdout).unwrap();
    let created = created.trim();
    let annotations = json!({
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.revision": format!("main@sha1:{commit}"),
        "org.opencontainers.image.source": gitops.url(),
    });
    assert_eq!(manifest["annotations"], annotations);

    // The files that a cluster gets are those of the branch.
    registry.oras(&["pull", "--no-tty", &reference], folder.path());
    let unpack = Command::new("tar").args(["-xzf", "drone.tar.gz"]).current_dir(folder.path()).status().unwrap();
    assert!(unpack.success());
    for (path, text) in files() {
        assert_eq!(fs::read_to_string(folder.path().join(&path)).unwrap(), text, "{path}");
    }
    assert!(!folder.path().join("large").exists(), "the folder of another cluster type is no part of it");

    for (name, query, expected) in [
        ("dev", "?clusterType=nope", "has no folder \"nope\" at commit"),
        ("dev", "?clusterType=..", "has no folder \"..\""),
        ("dev", "", "clusterType: Required value"),
        ("early", "?clusterType=drone", "branch \"missing\" does not exist"),
        ("none", "?clusterType=drone", "not found"),
    ] {
        let refused = kubectl.refused(&["get", "--raw", &path(name, query)]);
        assert!(refused.contains(expected), "{name}{query}: {refused}");
    }
}
