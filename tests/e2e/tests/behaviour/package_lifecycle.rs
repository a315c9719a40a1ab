//! The life of a package by kubectl: registered, created, edited, proposed, approved, cloned, upgraded and deleted.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, eventually, run};
use tempfile::TempDir;

use crate::PATIENCE;

/// A bare repository with an empty branch `main`, registered in the namespace of an organization.
pub(crate) struct Packages {
    pub(crate) kubectl: Kubectl,
    pub(crate) namespace: String,
    pub(crate) remote: PathBuf,
    _organization: Organization,
    _folder: TempDir,
    // It ends with the last of its users.
    _server: Arc<dyn Server>,
}

impl Packages {
    pub(crate) fn new() -> Self {
        let packages = Self::unregistered(Standalone::shared());
        packages.register();
        packages
    }

    /// The same through the aggregation layer of a kube-apiserver.
    pub(crate) fn in_cluster() -> Self {
        let packages = Self::unregistered(Arc::new(Cluster::shared()));
        packages.register();
        packages
    }

    /// The same without a Repository.
    pub(crate) fn unregistered(server: Arc<dyn Server>) -> Self {
        let organization = Organization::create(&*server);
        let folder = tempfile::tempdir().unwrap();
        let remote = folder.path().join("blueprints.git");
        run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&remote));
        Self {
            kubectl: server.kubectl(),
            namespace: organization.name.clone(),
            remote,
            _organization: organization,
            _folder: folder,
            _server: server,
        }
    }

    pub(crate) fn register(&self) {
        self.kubectl.apply(&format!(
            "apiVersion: config.porch.kpt.dev/v1alpha1
kind: Repository
metadata: {{name: blueprints, namespace: {}}}
spec:
  git: {{repo: \"file://{}\", branch: main, createBranch: true}}
  sync: {{schedule: \"* * * * *\"}}",
            self.namespace,
            self.remote.display(),
        ));
        self.kubectl.watch(&self.namespace, "repositories.config.porch.kpt.dev/blueprints", PATIENCE, |repository| {
            (condition(repository, "Ready")["status"] == "True").then_some(())
        });
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        run(Command::new("git").arg("-C").arg(&self.remote).args(args))
    }

    pub(crate) fn refs(&self) -> Vec<String> {
        self.git(&["for-each-ref", "--format=%(refname)"]).lines().map(str::to_owned).collect()
    }

    /// Creates a revision; returns the name that the server gave it.
    pub(crate) fn create(&self, package: &str, workspace: &str, task: &Value) -> String {
        let revision = json!({
            "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
            "metadata": {"namespace": self.namespace},
            "spec": {
                "packageName": package, "repository": "blueprints", "workspaceName": workspace,
                "lifecycle": "Draft", "tasks": [task],
            },
        });
        let path = format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions", self.namespace);
        let created = self.send("create", &path, &revision).unwrap();
        created["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Sends an object with `kubectl create --raw` or `kubectl replace --raw`.
    pub(crate) fn send(&self, verb: &str, path: &str, object: &Value) -> Result<Value, String> {
        send(&self.kubectl, verb, path, object)
    }

    /// Sends a decision about a revision through the subresource `approval`, as somebody.
    pub(crate) fn try_to_decide(&self, user: &Kubectl, name: &str, lifecycle: &str) -> Result<Value, String> {
        let path =
            format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisions/{name}/approval", self.namespace);
        let mut revision = self.revision(name);
        revision["spec"]["lifecycle"] = lifecycle.into();
        send(user, "replace", &path, &revision)
    }

    pub(crate) fn get(&self, resource: &str, name: &str) -> Value {
        self.kubectl.get(&[resource, name, "--namespace", &self.namespace])
    }

    pub(crate) fn revision(&self, name: &str) -> Value {
        self.get("packagerevisions.porch.kpt.dev", name)
    }

    pub(crate) fn files(&self, name: &str) -> Value {
        self.get("packagerevisionresources.porch.kpt.dev", name)["spec"]["resources"].clone()
    }

    /// Adds or changes a file of a draft.
    pub(crate) fn write(&self, name: &str, path: &str, text: &str) {
        let patch = json!({"spec": {"resources": {path: text}}}).to_string();
        let args = ["patch", "packagerevisionresources.porch.kpt.dev", name, "--namespace", &self.namespace];
        self.kubectl.run(&[&args[..], &["--type=merge", "--patch", &patch]].concat());
    }

    pub(crate) fn set_lifecycle(&self, name: &str, lifecycle: &str) {
        let patch = json!({"spec": {"lifecycle": lifecycle}}).to_string();
        let args = ["patch", "packagerevisions.porch.kpt.dev", name, "--namespace", &self.namespace];
        self.kubectl.run(&[&args[..], &["--type=merge", "--patch", &patch]].concat());
    }

    /// Changes the lifecycle through the subresource `approval`, as porchctl does, again after a conflict.
    pub(crate) fn decide(&self, name: &str, lifecycle: &str) -> Value {
        let mut last = String::new();
        for _ in 0..10 {
            match self.try_to_decide(&self.kubectl, name, lifecycle) {
                Ok(decided) => return decided,
                Err(error) if error.contains("modified") => last = error,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("{last}");
    }

    pub(crate) fn publish(&self, name: &str) -> Value {
        self.set_lifecycle(name, "Proposed");
        self.decide(name, "Published")
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.kubectl.get(&["packagerevisions.porch.kpt.dev", "--namespace", &self.namespace]);
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn refused_delete(&self, name: &str) -> String {
        self.kubectl.refused(&["delete", "packagerevisions.porch.kpt.dev", name, "--namespace", &self.namespace])
    }

    pub(crate) fn delete(&self, name: &str) {
        self.kubectl.run(&["delete", "packagerevisions.porch.kpt.dev", name, "--namespace", &self.namespace]);
    }
}

fn send(kubectl: &Kubectl, verb: &str, path: &str, object: &Value) -> Result<Value, String> {
    let mut command = kubectl.command(&[verb, "--raw", path, "--filename", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Waits until something is so.
pub(crate) fn wait_for(condition: &str, mut ask: impl FnMut() -> bool) {
    eventually(condition, PATIENCE, || ask().then_some(()));
}

pub(crate) fn init() -> Value {
    json!({"type": "init", "init": {"description": "A namespace"}})
}

pub(crate) fn reference(name: &str) -> Value {
    json!({ "name": name })
}

pub(crate) const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\n";

#[test]
fn package_is_published_from_scratch() {
    published_from_scratch(&Packages::new());
}

fn published_from_scratch(packages: &Packages) {
    let name = packages.create("network/basens", "v1", &init());
    assert_eq!(name, "blueprints.network.basens.v1");
    assert!(packages.files(&name)["Kptfile"].as_str().unwrap().contains("kind: Kptfile"));
    packages.write(&name, "namespace.yaml", NAMESPACE);
    assert_eq!(packages.files(&name)["namespace.yaml"], NAMESPACE);
    // Git has the draft a moment later.
    let draft = "refs/heads/drafts/network/basens/v1";
    wait_for("the draft is in Git", || {
        let is_there = packages.refs().iter().any(|name| name == draft);
        is_there && packages.git(&["ls-tree", "-r", "--name-only", draft]).contains("namespace.yaml")
    });
    packages.set_lifecycle(&name, "Proposed");
    let published = packages.decide(&name, "Published");
    assert_eq!((&published["spec"]["lifecycle"], &published["spec"]["revision"]), (&"Published".into(), &1.into()));
    // The answer came when Git had the tag.
    let refs = packages.refs();
    assert!(refs.contains(&"refs/tags/network/basens/v1".to_owned()), "{refs:?}");
    assert!(packages.git(&["show", "main:network/basens/namespace.yaml"]).contains("Namespace"));
    packages.kubectl.watch(&packages.namespace, &format!("packagerevisions.porch.kpt.dev/{name}"), PATIENCE, |found| {
        (found["metadata"]["labels"]["kpt.dev/latest-revision"] == "true").then_some(())
    });
    wait_for("drafts are removed from Git", || {
        !packages.refs().iter().any(|name| name.contains("basens/v1") && name.contains("heads"))
    });
    // A published revision never changes.
    let args = ["patch", "packagerevisionresources.porch.kpt.dev", &name, "--namespace", &packages.namespace];
    let patch = r#"{"spec": {"resources": {"namespace.yaml": ""}}}"#;
    let refused = packages.kubectl.refused(&[&args[..], &["--type=merge", "--patch", patch]].concat());
    assert!(refused.contains("only the files of a Draft can change"), "{refused}");
    wait_for("the package names its newest revision", || {
        packages.get("packages.porch.kpt.dev", "blueprints.network.basens")["status"]["latestRevision"] == 1
    });
}

#[test]
fn save_renders_the_package() {
    rendered_by_a_save(&Packages::new());
}

fn rendered_by_a_save(packages: &Packages) {
    let name = packages.create("basens", "v1", &init());
    let kptfile = packages.files(&name)["Kptfile"].as_str().unwrap().to_owned();
    let pipeline = |image: &str| {
        format!("{kptfile}pipeline:\n  mutators:\n  - image: {image}\n    configMap:\n      namespace: shop\n")
    };
    packages.write(&name, "map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n");
    packages.write(&name, "Kptfile", &pipeline("gcr.io/kpt-fn/set-namespace:v0.4.1"));
    assert!(packages.files(&name)["map.yaml"].as_str().unwrap().contains("namespace: shop"));
    // A function that fails keeps the files, and says so.
    packages.write(&name, "Kptfile", &pipeline("example.com/missing:v1"));
    let found = packages.revision(&name);
    assert_eq!(condition(&found, "Rendered")["status"], "False", "{found:#}");
    let resources = packages.get("packagerevisionresources.porch.kpt.dev", &name);
    assert!(
        resources["status"]["renderStatus"]["error"].as_str().is_some_and(|error| error.contains("missing")),
        "{resources:#}"
    );
}

#[test]
fn stale_save_conflicts_only_with_other_saves() {
    conflicts_of_saves(&Packages::new());
}

fn conflicts_of_saves(packages: &Packages) {
    let name = packages.create("basens", "v1", &init());
    let path =
        format!("/apis/porch.kpt.dev/v1alpha1/namespaces/{}/packagerevisionresources/{name}", packages.namespace);
    let mut read = packages.get("packagerevisionresources.porch.kpt.dev", &name);
    // The push writes the status of the revision, which is no other save.
    wait_for("the draft is in Git", || !packages.revision(&name)["status"]["git"]["commit"].is_null());
    read["spec"]["resources"]["a.yaml"] = NAMESPACE.into();
    packages.send("replace", &path, &read).unwrap();
    read["spec"]["resources"]["b.yaml"] = NAMESPACE.into();
    let refused = packages.send("replace", &path, &read).unwrap_err();
    assert!(refused.contains("modified"), "{refused}");
    assert!(packages.files(&name)["b.yaml"].is_null());
    // Server-side apply owns single files.
    packages.kubectl.claim(
        "team",
        &json!({
            "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevisionResources",
            "metadata": {"name": name, "namespace": packages.namespace},
            "spec": {"resources": {"c.yaml": NAMESPACE}},
        })
        .to_string(),
    );
    let files = packages.files(&name);
    assert!(!files["a.yaml"].is_null() && !files["c.yaml"].is_null(), "{files:#}");
}

#[test]
fn downstream_is_cloned_and_upgraded() {
    cloned_and_upgraded(&Packages::new());
}

fn cloned_and_upgraded(packages: &Packages) {
    let upstream = packages.create("blueprint", "v1", &init());
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  size: small\n  color: red\n";
    packages.write(&upstream, "settings.yaml", settings);
    packages.publish(&upstream);
    let clone = json!({"type": "clone", "clone": {"upstreamRef": {"upstreamRef": reference(&upstream)}}});
    let local = packages.create("shop", "v1", &clone);
    let lock = packages.revision(&local)["status"]["upstreamLock"]["git"].clone();
    assert_eq!((&lock["ref"], &lock["directory"]), (&"blueprint/v1".into(), &"/blueprint".into()), "{lock:#}");
    let changed = packages.files(&local)["settings.yaml"].as_str().unwrap().replace("small", "large");
    packages.write(&local, "settings.yaml", &changed);
    packages.publish(&local);
    let edit = json!({"type": "edit", "edit": {"sourceRef": reference(&upstream)}});
    let newer = packages.create("blueprint", "v2", &edit);
    packages.write(&newer, "settings.yaml", &settings.replace("red", "blue"));
    let published = packages.publish(&newer);
    assert_eq!(published["spec"]["revision"], 2);
    let upgrade = json!({"type": "upgrade", "upgrade": {
        "oldUpstreamRef": reference(&upstream), "newUpstreamRef": reference(&newer),
        "localPackageRevisionRef": reference(&local), "strategy": "resource-merge",
    }});
    let upgraded = packages.create("shop", "v2", &upgrade);
    let files = packages.files(&upgraded);
    let merged = files["settings.yaml"].as_str().unwrap();
    assert!(merged.contains("size: large") && merged.contains("color: blue"), "{merged}");
    let lock = packages.revision(&upgraded)["status"]["upstreamLock"]["git"].clone();
    assert_eq!(lock["ref"], "blueprint/v2");
    // An upstream stays while a downstream has it.
    packages.decide(&upstream, "DeletionProposed");
    let refused = packages.refused_delete(&upstream);
    assert!(refused.contains("have it as upstream"), "{refused}");
}

#[test]
fn deletion_needs_a_proposal() {
    deleted_after_a_proposal(&Packages::new());
}

fn deleted_after_a_proposal(packages: &Packages) {
    let name = packages.create("basens", "v1", &init());
    packages.publish(&name);
    let refused = packages.refused_delete(&name);
    assert!(refused.contains("DeletionProposed"), "{refused}");
    packages.set_lifecycle(&name, "DeletionProposed");
    let marker = "refs/heads/deletionProposed/basens/v1".to_owned();
    assert!(packages.refs().contains(&marker), "{:?}", packages.refs());
    packages.delete(&name);
    let refs = packages.refs();
    assert!(!refs.iter().any(|name| name.contains("basens/v1")), "{refs:?}");
    assert!(!packages.names().contains(&name));
}

#[test]
fn registration_again_finds_the_same_revisions() {
    registered_again(&Packages::new());
}

fn registered_again(packages: &Packages) {
    let published = packages.create("basens", "v1", &init());
    packages.publish(&published);
    let edit = json!({"type": "edit", "edit": {"sourceRef": reference(&published)}});
    let draft = packages.create("basens", "next", &edit);
    wait_for("the draft is in Git", || !packages.revision(&draft)["status"]["git"]["commit"].is_null());
    wait_for("the branch has a revision", || packages.names().len() == 3);
    let (names, refs) = (packages.names(), packages.refs());
    packages.kubectl.run(&[
        "delete",
        "repositories.config.porch.kpt.dev",
        "blueprints",
        "--namespace",
        &packages.namespace,
    ]);
    wait_for("the revisions are removed", || packages.names().is_empty());
    assert_eq!(packages.refs(), refs, "nothing is removed from Git");
    packages.register();
    wait_for("the revisions are back", || packages.names() == names);
    let found = packages.revision(&published);
    assert_eq!((&found["spec"]["lifecycle"], &found["spec"]["revision"]), (&"Published".into(), &1.into()));
    assert!(packages.files(&draft)["Kptfile"].is_string());
}

#[test]
fn package_life_is_the_same_behind_an_aggregator() {
    for play in [
        published_from_scratch,
        rendered_by_a_save,
        conflicts_of_saves,
        cloned_and_upgraded,
        deleted_after_a_proposal,
        registered_again,
    ] {
        play(&Packages::in_cluster());
    }
}

#[test]
fn conflicting_draft_keeps_both_sides() {
    let packages = Packages::new();
    let name = packages.create("basens", "v1", &init());
    wait_for("the draft is in Git", || !packages.revision(&name)["status"]["git"]["commit"].is_null());
    let work = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"];
        run(Command::new("git").arg("-C").arg(work.path()).args(identity).args(args))
    };
    run(Command::new("git")
        .args(["clone", "--quiet", "--branch=drafts/basens/v1"])
        .arg(&packages.remote)
        .arg(work.path()));
    std::fs::write(work.path().join("basens/other.yaml"), NAMESPACE).unwrap();
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=Other"]);
    git(&["push", "--quiet", "origin", "HEAD:drafts/basens/v1"]);
    packages.write(&name, "namespace.yaml", NAMESPACE);
    wait_for("the conflict is shown", || {
        let pushed = condition(&packages.revision(&name), "Pushed");
        pushed["status"] == "False" && pushed["reason"] == "PushConflict"
    });
    assert_eq!(packages.files(&name)["namespace.yaml"], NAMESPACE);
    // The problem has one Event, however often it is retried.
    let events = || {
        let events = packages.kubectl.get(&["events", "--namespace", &packages.namespace]);
        let events = events["items"].as_array().unwrap().clone();
        events.into_iter().filter(|event| event["reason"] == "PushConflict").collect::<Vec<_>>()
    };
    wait_for("the conflict has an Event", || !events().is_empty());
    assert_eq!((events().len(), &events()[0]["count"]), (1, &1.into()), "{:#?}", events());
    packages.delete(&name);
    assert!(packages.git(&["ls-tree", "-r", "--name-only", "drafts/basens/v1"]).contains("other.yaml"));
}

#[test]
fn broken_package_hides_no_other() {
    let packages = Packages::new();
    let work = tempfile::tempdir().unwrap();
    clone_and_push(&packages.remote, work.path());
    wait_for("the good package is listed", || packages.names().contains(&"blueprints.good.v1".to_owned()));
    let repository = packages.get("repositories.config.porch.kpt.dev", "blueprints");
    assert_eq!(condition(&repository, "Ready")["status"], "True", "{repository:#}");
    wait_for("the broken package is reported", || {
        let repository = packages.get("repositories.config.porch.kpt.dev", "blueprints");
        let found = condition(&repository, "PackagesReadable");
        found["status"] == "False" && found["message"].as_str().is_some_and(|message| message.contains("bad"))
    });
}

/// Pushes a good and a broken package, each with a tag.
fn clone_and_push(remote: &Path, work: &Path) {
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost"];
        run(Command::new("git").arg("-C").arg(work).args(identity).args(args))
    };
    run(Command::new("git").args(["clone", "--quiet"]).arg(remote).arg(work));
    for (package, kptfile) in [
        ("good", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: good\n"),
        ("bad", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: [\n"),
    ] {
        std::fs::create_dir_all(work.join(package)).unwrap();
        std::fs::write(work.join(package).join("Kptfile"), kptfile).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", package]);
        git(&["tag", &format!("{package}/v1")]);
    }
    git(&["push", "--quiet", "origin", "HEAD:main", "--tags"]);
}
