//! The life of a package in a registry: by kubectl alone, and as oras finds it there.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};
use stoa_e2e::{Standalone, run};
use stoa_test_registry::{PASSWORD, Registry, Settings, USER, tar_gz};

use crate::package_lifecycle::{NAMESPACE, Packages, init, reference, wait_for};
use crate::package_repositories::{patch, register};

const NAME: &str = "blueprints.network.basens.first";

/// An empty registry with a login, registered as `blueprints`; nothing where there is no registry to test with.
fn registered() -> Option<(Packages, Registry)> {
    if !Registry::is_there() {
        eprintln!("skipped: STOA_TEST_REGISTRY and STOA_TEST_ORAS name no programs");
        return None;
    }
    let packages = Packages::unregistered(Standalone::shared());
    let registry = Registry::start_with(Settings { login: true, ..Settings::default() });
    packages.kubectl.apply_secret(&packages.namespace, "registry", &[("username", USER), ("password", PASSWORD)]);
    register_again(&packages, &registry);
    Some((packages, registry))
}

fn register_again(packages: &Packages, registry: &Registry) {
    let oci = json!({"registry": format!("{}/packages", registry.host()), "secretRef": {"name": "registry"}});
    register(packages, "blueprints", &json!({"type": "oci", "oci": oci}));
}

/// Runs oras about the package.
fn oras(registry: &Registry, words: &[&str], suffix: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let reference = format!("{}/packages/network/basens{suffix}", registry.host());
    registry.oras(&[words, &[reference.as_str()][..]].concat(), folder.path())
}

fn manifest(registry: &Registry, tag: &str) -> Value {
    serde_json::from_str(&oras(registry, &["manifest", "fetch"], &format!(":{tag}"))).unwrap()
}

fn tags(registry: &Registry) -> Vec<String> {
    oras(registry, &["repo", "tags"], "").lines().map(str::to_owned).collect()
}

/// The files of a tag, as text by path.
fn files(registry: &Registry, tag: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (layer, content) = (folder.path().join("layer.tgz"), folder.path().join("content"));
    let manifest = manifest(registry, tag);
    let [blob] = &manifest["layers"].as_array().unwrap()[..] else { panic!("{manifest:#}") };
    let digest = format!("@{}", blob["digest"].as_str().unwrap());
    oras(registry, &["blob", "fetch", "--output", layer.to_str().unwrap()], &digest);
    fs::create_dir(&content).unwrap();
    run(Command::new("tar").arg("-xzf").arg(&layer).arg("-C").arg(&content));
    let names = run(Command::new("find").args([".", "-type", "f", "-printf", "%P\\n"]).current_dir(&content));
    let text = |name: &str| (name.to_owned(), Value::from(fs::read_to_string(content.join(name)).unwrap()));
    Value::Object(names.lines().map(text).collect::<Map<String, Value>>())
}

/// Publishes the first revision of the package.
fn publish_first(packages: &Packages) {
    assert_eq!(packages.create("network/basens", "first", &init()), NAME);
    packages.write(NAME, "namespace.yaml", NAMESPACE);
    let published = packages.publish(NAME);
    assert_eq!((&published["spec"]["lifecycle"], &published["spec"]["revision"]), (&"Published".into(), &1.into()));
}

/// Creates a draft of the next revision.
fn edit(packages: &Packages, workspace: &str) -> String {
    let task = json!({"type": "edit", "edit": {"sourceRef": reference(NAME)}});
    packages.create("network/basens", workspace, &task)
}

/// The error of an approval, but no conflict with a write of the server.
fn refused_approval(packages: &Packages, name: &str) -> String {
    loop {
        let refused = packages.try_to_decide(&packages.kubectl, name, "Published").unwrap_err();
        if !refused.contains("modified") {
            return refused;
        }
    }
}

#[test]
fn package_is_published_to_a_registry() {
    let Some((packages, registry)) = registered() else { return };
    publish_first(&packages);
    // The answer came when the registry had the tag.
    let pushed = manifest(&registry, "v1");
    let annotations = &pushed["annotations"];
    assert_eq!(annotations["kpt.dev/lifecycle"], "Published", "{pushed:#}");
    assert_eq!((&annotations["kpt.dev/revision"], &annotations["stoa.dev/workspace"]), (&"1".into(), &"first".into()));
    for key in ["org.opencontainers.image.created", "org.opencontainers.image.authors"] {
        assert!(annotations[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {pushed:#}");
    }
    assert_eq!(files(&registry, "v1"), packages.files(NAME));
    let lock = packages.revision(NAME)["status"]["selfLock"]["git"].clone();
    let repo = format!("oci://{}/packages/network/basens", registry.host());
    assert_eq!((&lock["repo"], &lock["ref"]), (&repo.as_str().into(), &"v1".into()), "{lock:#}");

    let second = edit(&packages, "second");
    packages.write(&second, "namespace.yaml", &NAMESPACE.replace("web", "shop"));
    assert_eq!(packages.publish(&second)["spec"]["revision"], 2);
    assert_eq!(tags(&registry), ["v1", "v2"]);
    assert!(files(&registry, "v2")["namespace.yaml"].as_str().unwrap().contains("name: shop"));

    // The next registration finds the same revisions, and nothing was removed.
    let args = ["delete", "repositories.config.porch.kpt.dev", "blueprints", "--namespace", &packages.namespace];
    packages.kubectl.run(&args);
    wait_for("the revisions are removed", || packages.names().is_empty());
    register_again(&packages, &registry);
    wait_for("the revisions are back", || packages.names() == [NAME, second.as_str()]);
    assert_eq!(packages.revision(&second)["spec"]["revision"], 2);
    assert_eq!(packages.files(NAME), files(&registry, "v1"));
}

#[test]
fn published_revision_leaves_a_registry_after_a_proposal() {
    let Some((packages, registry)) = registered() else { return };
    publish_first(&packages);
    let second = edit(&packages, "second");
    packages.publish(&second);
    assert!(packages.refused_delete(NAME).contains("DeletionProposed"));
    packages.set_lifecycle(NAME, "DeletionProposed");
    // A synchronization leaves the proposal alone.
    let now = run(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]));
    patch(&packages, "blueprints", &json!({"sync": {"runOnceAt": now.trim()}}));
    wait_for("the registry was read again", || {
        packages.get("repositories.config.porch.kpt.dev", "blueprints")["status"]["lastRunOnceAt"] == now.trim()
    });
    assert_eq!(packages.revision(NAME)["spec"]["lifecycle"], "DeletionProposed");
    assert_eq!(tags(&registry), ["v1", "v2"]);
    packages.delete(NAME);
    assert_eq!(tags(&registry), ["v2"]);
    assert_eq!(packages.names(), [second]);
}

#[test]
fn approval_waits_for_a_registry_that_is_away() {
    let Some((packages, registry)) = registered() else { return };
    publish_first(&packages);
    let second = edit(&packages, "second");
    packages.set_lifecycle(&second, "Proposed");
    drop(registry);
    let refused = refused_approval(&packages, &second);
    assert!(refused.contains("requesting http://127.0.0.1:"), "{refused}");
    let found = packages.revision(&second);
    assert_eq!(
        (&found["spec"]["lifecycle"], &found["spec"]["revision"]),
        (&"Proposed".into(), &Value::Null),
        "{found:#}"
    );
}

#[test]
fn tag_of_somebody_else_has_its_number() {
    let Some((packages, registry)) = registered() else { return };
    publish_first(&packages);
    let second = edit(&packages, "second");
    packages.set_lifecycle(&second, "Proposed");
    // It arrives after the last synchronization.
    let folder = tempfile::tempdir().unwrap();
    let kptfile = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: basens\n";
    fs::write(folder.path().join("Kptfile"), kptfile).unwrap();
    let digest = registry.push_flux("packages/network/basens:v2", folder.path());
    assert_eq!(packages.decide(&second, "Published")["spec"]["revision"], 3);
    assert_eq!(tags(&registry), ["v1", "v2", "v3"]);
    let other = "blueprints.network.basens.v2";
    wait_for("the other revision is listed", || packages.names().contains(&other.to_owned()));
    assert_eq!(packages.revision(other)["status"]["git"]["commit"], digest.as_str());
}

#[test]
fn tag_of_the_workspace_with_other_files_conflicts() {
    let Some((packages, registry)) = registered() else { return };
    publish_first(&packages);
    let second = edit(&packages, "second");
    packages.set_lifecycle(&second, "Proposed");
    let (folder, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("Kptfile"), "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: other\n")
        .unwrap();
    tar_gz(folder.path(), ".", &work.path().join("content.tgz"));
    let words = ["--annotation=stoa.dev/workspace=second", "content.tgz:application/vnd.cncf.flux.content.v1.tar+gzip"];
    registry.push("packages/network/basens:v2", &words, work.path());
    let refused = refused_approval(&packages, &second);
    assert!(refused.contains("has other files of workspace \"second\""), "{refused}");
    assert_eq!(packages.revision(&second)["spec"]["lifecycle"], "Proposed");
    oras(&registry, &["manifest", "delete", "--force"], ":v2");
    assert_eq!(packages.decide(&second, "Published")["spec"]["revision"], 2);
    assert_eq!(files(&registry, "v2"), packages.files(&second));
}
