//! Repositories of packages: Git servers with credentials, registries, webhooks, guardrails, default upstreams and registrations.

use std::{process::Command, sync::Arc};

use serde_json::{Value, json};
use stoa_e2e::{Cluster, Standalone, eventually, fixture::condition, run};
use stoa_git::testing::{GitServer, SshServer};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_test_registry::{PASSWORD as REGISTRY_PASSWORD, Registry, Settings, USER};

use crate::{
    PATIENCE,
    package_lifecycle::{NAMESPACE, Packages, init, reference, wait_for},
    triggers::deliver_to,
};

const PASSWORD: &str = "opens-the-packages";
const TOKEN: &str = "signs-the-deliveries";

/// A Repository with further fields in its spec, as JSON.
fn repository(packages: &Packages, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository",
        "metadata": {"name": name, "namespace": packages.namespace}, "spec": spec,
    })
}

fn wait_until_ready(packages: &Packages, name: &str) -> Value {
    let object = format!("repositories.config.porch.kpt.dev/{name}");
    packages.kubectl.watch(&packages.namespace, &object, PATIENCE, |found| {
        (condition(found, "Ready")["status"] == "True").then(|| found.clone())
    })
}

pub(crate) fn register(packages: &Packages, name: &str, spec: &Value) -> Value {
    packages.kubectl.apply(&repository(packages, name, spec).to_string());
    wait_until_ready(packages, name)
}

pub(crate) fn patch(packages: &Packages, name: &str, spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    let args = ["patch", "repositories.config.porch.kpt.dev", name, "--namespace", &packages.namespace];
    packages.kubectl.run(&[&args[..], &["--type=merge", "--patch", &patch]].concat());
}

/// Creates and publishes a package of the repository `blueprints`, and finds its tag in Git.
fn publish(packages: &Packages, package: &str) -> String {
    let name = packages.create(package, "v1", &init());
    packages.write(&name, "namespace.yaml", NAMESPACE);
    packages.publish(&name);
    assert!(packages.refs().contains(&format!("refs/tags/{package}/v1")), "{:?}", packages.refs());
    name
}

#[test]
fn packages_are_published_over_https() {
    let packages = Packages::unregistered(Standalone::shared());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pki = tempfile::tempdir().unwrap();
    let authority = CertificateAuthority::load_or_create(pki.path(), "ca", "test").unwrap();
    let issued = authority.issue(&CertificateRequest::server("localhost").loopback()).unwrap();
    let tls = Some((issued.certificate_pem.as_str(), issued.key_pem.as_str()));
    let server = runtime.block_on(GitServer::start(packages.remote.parent().unwrap(), PASSWORD, tls));
    let bundle = format!("{}-ca-bundle", packages.namespace);
    packages.kubectl.apply_secret(&packages.namespace, &bundle, &[("ca.crt", authority.certificate_pem())]);
    packages.kubectl.apply_secret(&packages.namespace, "basic", &[("username", "bot"), ("password", PASSWORD)]);
    packages.kubectl.apply_secret(&packages.namespace, "bearer", &[("bearerToken", "a-token")]);
    let git = json!({
        "repo": server.url("https", "blueprints.git"), "branch": "main", "createBranch": true,
        "secretRef": {"name": "basic"}, "author": "Robot", "email": "robot@example.com",
    });
    register(&packages, "blueprints", &json!({"git": git, "deployment": true}));
    let name = publish(&packages, "network/basens");
    assert_eq!(packages.revision(&name)["status"]["deployment"], true);
    // Purpose and other attributes are labels and annotations.
    let label = ["label", "repositories.config.porch.kpt.dev", "blueprints", "purpose=production"];
    packages.kubectl.run(&[&label[..], &["--namespace", &packages.namespace]].concat());
    let production = ["repositories.config.porch.kpt.dev", "--selector=purpose=production"];
    let found = packages.kubectl.get(&[&production[..], &["--namespace", &packages.namespace]].concat());
    assert_eq!(found["items"][0]["metadata"]["name"], "blueprints", "{found:#}");
    let author = packages.git(&["log", "-1", "--format=%an <%ae>", "main"]);
    assert_eq!(author.trim(), "Robot <robot@example.com>");
    server.set_token("a-token");
    patch(&packages, "blueprints", &json!({"git": {"secretRef": {"name": "bearer"}}}));
    publish(&packages, "network/other");
}

#[test]
fn packages_are_published_over_ssh() {
    let packages = Packages::unregistered(Standalone::shared());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let Some(server) = runtime.block_on(SshServer::start()) else { return };
    let (key, hosts) = (server.private_key(), server.known_hosts());
    let secret = [("ssh-privatekey", key.as_str()), ("known_hosts", hosts.as_str())];
    packages.kubectl.apply_secret(&packages.namespace, "ssh", &secret);
    let repo = server.url(&format!("{}@", SshServer::user()), &packages.remote);
    let git = json!({"repo": repo, "branch": "main", "createBranch": true, "secretRef": {"name": "ssh"}});
    register(&packages, "blueprints", &json!({ "git": git }));
    publish(&packages, "basens");
}

/// Pushes an artifact with a package whose settings have a color; the digest.
fn push_artifact(registry: &Registry, name: &str, color: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let kptfile = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: basens\n";
    std::fs::write(folder.path().join("Kptfile"), kptfile).unwrap();
    let settings = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  color: {color}\n");
    std::fs::write(folder.path().join("settings.yaml"), settings).unwrap();
    registry.push_flux(name, folder.path())
}

#[test]
fn packages_of_a_registry_are_cloned_and_upgraded() {
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
        return;
    }
    let packages = Packages::new();
    let registry = Registry::start_with(Settings { login: true, ..Settings::default() });
    let first = push_artifact(&registry, "packages/network/basens:v1", "red");
    let secret = [("username", USER), ("password", REGISTRY_PASSWORD)];
    packages.kubectl.apply_secret(&packages.namespace, "registry", &secret);
    let oci = json!({"registry": format!("{}/packages", registry.host()), "secretRef": {"name": "registry"}});
    let read = register(&packages, "catalog", &json!({"type": "oci", "oci": oci, "readOnly": true}));
    assert_eq!(read["status"]["packageCount"], 1, "{read:#}");
    let upstream = "catalog.network.basens.v1";
    let found = packages.revision(upstream);
    assert_eq!(
        (&found["spec"]["lifecycle"], &found["spec"]["revision"]),
        (&"Published".into(), &1.into()),
        "{found:#}"
    );
    assert_eq!(found["status"]["selfLock"]["git"]["commit"], first.as_str(), "{found:#}");
    assert!(packages.files(upstream)["settings.yaml"].as_str().unwrap().contains("color: red"));

    let clone = json!({"type": "clone", "clone": {"upstreamRef": {"upstreamRef": reference(upstream)}}});
    let local = packages.create("shop", "v1", &clone);
    let lock = packages.revision(&local)["status"]["upstreamLock"]["git"].clone();
    let repo = format!("oci://{}/packages/network/basens", registry.host());
    assert_eq!(lock, json!({"repo": repo, "directory": "/", "ref": "v1", "commit": first}));
    packages.publish(&local);
    assert!(packages.git(&["show", "main:shop/settings.yaml"]).contains("color: red"));

    push_artifact(&registry, "packages/network/basens:v2", "blue");
    let now = run(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]));
    patch(&packages, "catalog", &json!({"sync": {"runOnceAt": now.trim()}}));
    let newer = "catalog.network.basens.v2";
    wait_for("the second revision is listed", || packages.names().contains(&newer.to_owned()));
    wait_for("the newer upstream is shown", || packages.revision(&local)["status"]["upstream"]["outdated"] == true);
    let upgrade = json!({"type": "upgrade", "upgrade": {
        "oldUpstreamRef": reference(upstream), "newUpstreamRef": reference(newer),
        "localPackageRevisionRef": reference(&local), "strategy": "resource-merge",
    }});
    let upgraded = packages.create("shop", "v2", &upgrade);
    assert!(packages.files(&upgraded)["settings.yaml"].as_str().unwrap().contains("color: blue"));

    let revision = json!({
        "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
        "metadata": {"namespace": packages.namespace},
        "spec": {"packageName": "own", "repository": "catalog", "workspaceName": "v1", "tasks": [init()]},
    });
    let path = format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions", packages.namespace);
    let created = packages.send("create", &path, &revision).unwrap_err();
    for refused in [created, packages.refused_delete(upstream)] {
        assert!(refused.contains("for reading only"), "{refused}");
    }
}

/// Delivers a push of the blueprints; the code of the answer.
fn deliver(cluster: &Cluster, namespace: &str, token: &str) -> String {
    deliver_to(cluster, &format!("{namespace}/repositories/blueprints"), r#"{"ref":"refs/heads/main"}"#, token)
}

/// Pushes a package with a tag, as people do.
fn push_package(packages: &Packages, package: &str) {
    let work = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"];
        run(Command::new("git").arg("-C").arg(work.path()).args(identity).args(args))
    };
    run(Command::new("git").args(["clone", "--quiet"]).arg(&packages.remote).arg(work.path()));
    std::fs::create_dir_all(work.path().join(package)).unwrap();
    let name = package.rsplit('/').next().unwrap();
    let kptfile = format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\n");
    std::fs::write(work.path().join(package).join("Kptfile"), kptfile).unwrap();
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message", package]);
    git(&["tag", &format!("{package}/v1")]);
    git(&["push", "--quiet", "origin", "HEAD:main", "--tags"]);
}

#[test]
fn webhook_and_request_synchronize_a_repository() {
    let packages = Packages::unregistered(Arc::new(Cluster::shared()));
    let cluster = Cluster::shared();
    packages.kubectl.apply_secret(&packages.namespace, "hook", &[("token", TOKEN)]);
    let git = json!({"repo": format!("file://{}", packages.remote.display()), "branch": "main", "createBranch": true});
    let sync = json!({"schedule": "0 0 1 1 *"});
    let spec = json!({"git": git, "sync": sync, "webhook": {"secretRef": {"name": "hook"}}});
    let read = register(&packages, "blueprints", &spec);
    assert!(read["status"]["nextFullSyncTime"].is_string(), "{read:#}");
    push_package(&packages, "first");
    assert_eq!(deliver(&cluster, &packages.namespace, "another token"), "401");
    assert!(!packages.names().contains(&"blueprints.first.v1".to_owned()));
    assert_eq!(deliver(&cluster, &packages.namespace, TOKEN), "202");
    wait_for("the first package is listed", || packages.names().contains(&"blueprints.first.v1".to_owned()));
    push_package(&packages, "second");
    let now = run(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]));
    patch(&packages, "blueprints", &json!({"sync": {"runOnceAt": now.trim()}}));
    wait_for("the second package is listed", || packages.names().contains(&"blueprints.second.v1".to_owned()));
    // The status follows the packages.
    let head = packages.git(&["rev-parse", "main"]);
    wait_for("the status has the commit and the count", || {
        let status = &packages.get("repositories.config.porch.kpt.dev", "blueprints")["status"];
        status["gitCommitHash"] == head.trim() && status["packageCount"].as_i64().is_some_and(|count| count >= 4)
    });
}

#[test]
fn guardrails_of_a_repository_gate_publications() {
    let packages = Packages::new();
    let mutator = json!({"image": "set-labels:v0.2.0", "configMap": {"team": "shop"}});
    patch(&packages, "blueprints", &json!({"mutators": [mutator]}));
    wait_until_ready(&packages, "blueprints");
    let name = packages.create("basens", "v1", &init());
    packages.write(&name, "namespace.yaml", NAMESPACE);
    let text = packages.files(&name)["namespace.yaml"].as_str().unwrap().to_owned();
    assert!(text.contains("team: shop"), "{text}");
    // A guardrail that fails: the function lacks its configuration.
    patch(&packages, "blueprints", &json!({"validators": [{"image": "set-namespace:v0.4.1"}]}));
    wait_for("the draft is in Git", || !packages.revision(&name)["status"]["git"]["commit"].is_null());
    packages.set_lifecycle(&name, "Proposed");
    wait_for("the proposal is in Git", || packages.revision(&name)["status"]["git"]["lifecycle"] == "Proposed");
    let refused = packages.try_to_decide(&packages.kubectl, &name, "Published").unwrap_err();
    assert!(refused.contains("spec.validators[0] of the repository"), "{refused}");
    assert_eq!(packages.revision(&name)["spec"]["lifecycle"], "Proposed");
    // Another mutator that the files have not seen.
    let other = json!({"image": "set-labels:v0.2.0", "configMap": {"team": "bank"}});
    patch(&packages, "blueprints", &json!({"mutators": [other], "validators": null}));
    let refused = packages.try_to_decide(&packages.kubectl, &name, "Published").unwrap_err();
    let is_named = refused.contains("the mutators of the repository change") && refused.contains("namespace.yaml");
    assert!(is_named, "{refused}");
    patch(&packages, "blueprints", &json!({"mutators": null}));
    packages.decide(&name, "Published");
}

#[test]
fn clone_uses_the_default_upstream() {
    let packages = Packages::new();
    let upstream = packages.create("basens", "v1", &init());
    packages.write(&upstream, "namespace.yaml", NAMESPACE);
    packages.publish(&upstream);
    let folder = tempfile::tempdir().unwrap();
    let remote = folder.path().join("deployments.git");
    run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&remote));
    let git = json!({"repo": format!("file://{}", remote.display()), "branch": "main", "createBranch": true});
    let spec = json!({"git": git, "deployment": true, "upstream": {"repositoryRef": {"name": "blueprints"}}});
    register(&packages, "deployments", &spec);
    let create = |package: &str, clone: Value| {
        let revision = json!({
            "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
            "metadata": {"namespace": packages.namespace},
            "spec": {
                "packageName": package, "repository": "deployments", "workspaceName": "v1",
                "tasks": [{"type": "clone", "clone": clone}],
            },
        });
        let path = format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions", packages.namespace);
        packages.send("create", &path, &revision)
    };
    let same = create("basens", json!({})).unwrap();
    let task = &same["spec"]["tasks"][0]["clone"]["upstreamRef"];
    assert_eq!(task["upstreamRef"], reference(&upstream), "{same:#}");
    let other = create("shop", json!({"upstreamRef": {"git": {"directory": "basens"}}})).unwrap();
    let name = other["metadata"]["name"].as_str().unwrap();
    // A clone marks objects for later merges.
    let is_clone = |name: &str| {
        let namespace = packages.files(name)["namespace.yaml"].as_str().unwrap().to_owned();
        assert!(namespace.contains("kpt-merge: /web") && namespace.contains("name: web"), "{namespace}");
    };
    is_clone(name);
    assert!(create("missing", json!({})).unwrap_err().contains("upstreamRef"));
    // The address of a repository that is not registered.
    let url = format!("file://{}", packages.remote.display());
    patch(&packages, "deployments", &json!({"upstream": {"repositoryRef": null, "git": {"repo": url}}}));
    let cloned = create("third", json!({"upstreamRef": {"git": {"directory": "basens", "ref": "basens/v1"}}})).unwrap();
    is_clone(cloned["metadata"]["name"].as_str().unwrap());
}

#[test]
fn packages_have_one_writer_among_namespaces() {
    let (packages, others) = (Packages::new(), Packages::unregistered(Standalone::shared()));
    let name = publish(&packages, "network/basens");
    let git =
        json!({"repo": format!("file://{}", packages.remote.display()), "branch": "main", "directory": "network"});
    let nested = packages.kubectl.create_refused(&repository(&packages, "nested", &json!({ "git": git })).to_string());
    assert!(nested.contains("\"blueprints\" has the same branch"), "{nested}");
    let refused = others.kubectl.create_refused(&repository(&others, "same", &json!({ "git": git })).to_string());
    assert!(refused.contains("a repository of another namespace") && refused.contains("readOnly"), "{refused}");
    register(&others, "same", &json!({"git": git, "readOnly": true}));
    let same = "same.basens.v1";
    eventually("the package is listed", PATIENCE, || others.names().contains(&same.to_owned()).then_some(()));
    assert_eq!(others.files(same)["namespace.yaml"], NAMESPACE);
    let args = ["patch", "packagerevisions.porch.kpt.dev", same, "--namespace", &others.namespace, "--type=merge"];
    let refused =
        others.kubectl.refused(&[&args[..], &["--patch", r#"{"spec": {"lifecycle": "DeletionProposed"}}"#]].concat());
    assert!(refused.contains("for reading only"), "{refused}");
    let args = ["patch", "repositories.config.porch.kpt.dev", "same", "--namespace", &others.namespace];
    let writable = ["--type=merge", "--patch", r#"{"spec": {"readOnly": false}}"#];
    assert!(others.kubectl.refused(&[&args[..], &writable[..]].concat()).contains("another namespace"));
    assert_eq!(packages.revision(&name)["spec"]["lifecycle"], "Published");
}
