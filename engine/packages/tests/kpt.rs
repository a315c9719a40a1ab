//! Packages that go from Stoa to the program `kpt` and back.
//!
//! The tests need `kpt` and `git`, and are skipped without them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stoa_packages::clone::{CloneRequest, clone_package};
use stoa_packages::diff::diff;
use stoa_packages::kptfile::{GitLock, UpdateStrategy, UpstreamLock};
use stoa_packages::update::{Update, update};
use stoa_packages::{Mode, Tree};

/// Upstream's package in two revisions.
fn upstream(image: &str, replicas: u32, more: &str) -> Tree {
    let kptfile = format!(
        "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\ninfo:\n  description: d\npipeline:\n  mutators:\n  \
         - image: set-labels:{image}\n    configMap:\n      app: web\n"
    );
    let deployment = format!(
        "# about the file\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  \
         replicas: {replicas} # kpt-set: ${{n}}\n  template:\n    spec:\n      containers:\n      - name: web\n        \
         image: web:{image}\n{more}---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: \"1\"\n"
    );
    let mut tree = Tree::default();
    for (path, text) in [
        ("Kptfile", kptfile.as_str()),
        ("web.yaml", &deployment),
        ("README.md", image),
        ("sub/Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: sub\n"),
        ("sub/s.yaml", &format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: s\ndata:\n  image: {image}\n")),
    ] {
        tree.write(path, text.as_bytes().to_vec()).unwrap();
    }
    tree
}

fn write(folder: &Path, tree: &Tree) {
    for (path, file) in tree.iter() {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &file.content).unwrap();
    }
}

fn read(folder: &Path) -> Tree {
    fn add(tree: &mut Tree, root: &Path, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(tree, root, &path);
                continue;
            }
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            tree.add(&name, Mode::Regular, fs::read(path).unwrap()).unwrap();
        }
    }
    let mut tree = Tree::default();
    add(&mut tree, folder, folder);
    tree
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        command.env(name, "test");
    }
    command.env("KPT_CACHE_DIR", folder.join("kpt-cache")).output().unwrap()
}

#[track_caller]
fn succeed(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = run(folder, program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A folder with upstream's repository, and the commits of its two revisions.
fn repository() -> Option<(tempfile::TempDir, [String; 2])> {
    let is_there = |program: &str| Command::new(program).arg("--help").output().is_ok();
    if !is_there("kpt") || !is_there("git") {
        eprintln!("skipped: there is no kpt or no git");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().join("repo");
    fs::create_dir(&repository).unwrap();
    succeed(&repository, "git", &["init", "-q", "-b", "main", "."]);
    let sidecar = "      - name: log\n        image: log:1\n";
    let commits = [("v1", upstream("v1", 1, "")), ("v2", upstream("v2", 2, sidecar))].map(|(tag, tree)| {
        write(&repository.join("web"), &tree);
        succeed(&repository, "git", &["add", "."]);
        succeed(&repository, "git", &["commit", "-q", "-m", tag]);
        succeed(&repository, "git", &["tag", tag]);
        succeed(&repository, "git", &["rev-parse", "HEAD"])
    });
    Some((folder, commits))
}

fn revision(folder: &Path, reference: &str, commit: &str) -> UpstreamLock {
    let git = GitLock {
        repo: format!("file://{}/", folder.join("repo").display()),
        directory: "/web".to_owned(),
        reference: reference.to_owned(),
        commit: commit.to_owned(),
    };
    UpstreamLock { kind: "git".to_owned(), git: Some(git) }
}

/// The values that differ, without files that differ in their form alone.
fn differences(one: &Tree, other: &Tree) -> Vec<Value> {
    let difference = diff(one, other);
    difference.objects.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

#[test]
fn clone_equals_kpts() {
    let Some((folder, commits)) = repository() else { return };
    let folder = folder.path();
    let url = format!("file://{}/.git/web@v1", folder.join("repo").display());
    succeed(folder, "kpt", &["pkg", "get", &url, "mine"]);
    let revision = revision(folder, "v1", &commits[0]);
    let strategy = UpdateStrategy::ResourceMerge;
    let upstream = upstream("v1", 1, "");
    let request = CloneRequest { upstream: &upstream, name: "mine", revision: &revision, strategy, context: None };
    assert_eq!(differences(&read(&folder.join("mine")), &clone_package(&request).unwrap()), [] as [Value; 0]);
}

#[test]
fn kpt_updates_a_clone_of_stoa() {
    let Some((folder, commits)) = repository() else { return };
    let folder = folder.path();
    let lock = revision(folder, "v1", &commits[0]);
    let [old, new] = [upstream("v1", 1, ""), upstream("v2", 2, "      - name: log\n        image: log:1\n")];
    let strategy = UpdateStrategy::ResourceMerge;
    let request = CloneRequest { upstream: &old, name: "mine", revision: &lock, strategy, context: None };
    let mut mine = clone_package(&request).unwrap();
    let text = mine.text("web.yaml").unwrap().replace("name: web\n  namespace", "name: renamed # ours\n  namespace");
    mine.write("web.yaml", text).unwrap();
    write(&folder.join("mine"), &mine);
    succeed(folder, "kpt", &["pkg", "update", "mine@v2"]);

    let lock = revision(folder, "v2", &commits[1]);
    let updated = update(&Update { origin: &old, upstream: &new, local: &mine, strategy: None, revision: Some(&lock) });
    let updated = updated.unwrap();
    assert_eq!(differences(&read(&folder.join("mine")), &updated.tree), [] as [Value; 0]);
    let text = updated.tree.text("web.yaml").unwrap();
    assert!(text.starts_with("# about the file\n") && text.contains("name: renamed # ours\n"), "{text}");
}

#[test]
fn stoa_updates_a_clone_of_kpt() {
    let Some((folder, commits)) = repository() else { return };
    let folder = folder.path();
    let url = format!("file://{}/.git/web@v1", folder.join("repo").display());
    let [old, new] = [upstream("v1", 1, ""), upstream("v2", 2, "      - name: log\n        image: log:1\n")];
    let lock = revision(folder, "v2", &commits[1]);
    for strategy in [UpdateStrategy::FastForward, UpdateStrategy::ResourceMerge, UpdateStrategy::ForceDeleteReplace] {
        let name = strategy.name();
        succeed(folder, "kpt", &["pkg", "get", &url, name]);
        let mine = read(&folder.join(name));
        succeed(folder, "kpt", &["pkg", "update", &format!("{name}@v2"), "--strategy", name]);
        let strategy = Some(strategy);
        let updated = update(&Update { origin: &old, upstream: &new, local: &mine, strategy, revision: Some(&lock) });
        let mut updated = updated.unwrap().tree;
        if strategy != Some(UpdateStrategy::ResourceMerge) {
            // beta.56 leaves the pipeline of the Kptfile as it was; beta.61 updates it.
            let kptfile = updated.text("Kptfile").unwrap().replace("set-labels:v2", "set-labels:v1");
            updated.write("Kptfile", kptfile).unwrap();
        }
        assert_eq!(differences(&read(&folder.join(name)), &updated), [] as [Value; 0], "{name}");
    }
}
