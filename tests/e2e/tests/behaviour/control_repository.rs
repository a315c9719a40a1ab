//! Every decision is a commit, and a commit is a decision.

use std::path::{Path, PathBuf};
use std::process::Command;

use stoa_e2e::fixture::{Organization, Repository, condition, config_maps};
use stoa_e2e::{Server as _, Standalone, eventually, git};

use crate::PATIENCE;

/// Runs git in the control repository.
fn control(server: &Standalone, args: &[&str]) -> String {
    git(&server.data().join("control.git"), args)
}

fn log(server: &Standalone, path: &str) -> Vec<String> {
    let format = "--format=%an|%cn|%s|%(trailers:key=Resource-Version,valueonly,separator=)";
    let text = control(server, &["log", format, "main", "--", path]);
    text.lines().map(str::to_owned).collect()
}

pub(super) fn wait_for_commits(server: &Standalone, path: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} commits of {path}"), PATIENCE, || {
        let lines = log(server, path);
        (lines.len() >= count).then_some(lines)
    })
}

/// A clone that people work in.
struct Clone(Repository);

impl Clone {
    fn of(server: &Standalone) -> Self {
        Self(Repository::clone_of(server.data().join("control.git")))
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn git(&self, args: &[&str]) -> String {
        self.0.git(args)
    }

    /// Commits something on top of main and pushes it; others may have pushed meanwhile.
    fn land(&self, commit: impl Fn()) {
        eventually("a push", PATIENCE, || {
            self.git(&["pull", "--quiet", "--rebase"]);
            commit();
            let push = Command::new("git").arg("-C").arg(self.0.path()).args(["push", "--quiet"]).output().unwrap();
            if push.status.success() {
                return Some(());
            }
            self.git(&["reset", "--quiet", "--hard", "@{upstream}"]);
            None
        });
    }

    /// Changes a file, commits it and pushes.
    fn push(&self, file: &str, change: impl Fn(&Path), message: &str) {
        self.land(|| {
            change(&self.path(file));
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--message", message]);
        });
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let change = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(from), "{file} has no {from:?}:\n{text}");
            std::fs::write(path, text.replace(from, to)).unwrap();
        };
        self.push(file, change, &format!("Change {file}"));
    }
}

#[test]
fn every_write_commits_with_user_and_version() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let file = format!("organizations/{name}/projects/{name}/stacks/web.yaml");
    organization.stack("web", &config_maps("app", 1, "a"));
    let versions = |lines: &[String]| -> Vec<u64> {
        lines.iter().map(|l| l.rsplit('|').next().unwrap().parse().unwrap()).collect()
    };
    let created = kubectl.get(&["stack", "web", "--namespace", name]);
    kubectl.run(&["label", "stack/web", "tier=front", "--namespace", name]);
    let patch = "--patch={\"spec\":{\"description\":\"The shop window\"}}";
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", patch]);
    let patched = kubectl.get(&["stack", "web", "--namespace", name]);

    let lines = wait_for_commits(&server, &file, 3);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    let decisions = [("update", ": spec.description"), ("update", ": metadata.labels"), ("create", "")];
    for (line, (verb, fields)) in lines.iter().zip(decisions) {
        let wanted = format!("stoa-admin|Stoa|{verb} stack {name}/web{fields}|");
        assert!(line.starts_with(&wanted), "{wanted} begins none of {lines:#?}");
    }
    let versions = versions(&lines);
    assert!(versions.is_sorted_by(|a, b| a > b), "{versions:?}");
    let version = |object: &serde_json::Value| -> u64 {
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    };
    assert!(versions[2] <= version(&created) && versions[0] <= version(&patched), "{versions:?}");

    // Files are for people: what they wrote, and nothing else.
    let text = control(&server, &["show", &format!("main:{file}")]);
    for wanted in ["kind: Stack", "name: web", "tier: front", "description: The shop window"] {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    for unwanted in ["uid", "resourceVersion", "status", "managedFields", "creationTimestamp"] {
        assert!(!text.contains(unwanted), "{unwanted:?} in\n{text}");
    }

    // What Stoa derives is not a decision.
    organization.succeed("web", "Apply", "");
    kubectl.run(&["label", "stack/web", "tier-", "--namespace", name]);
    let lines = wait_for_commits(&server, &file, 4);
    assert_eq!(lines.len(), 4, "{lines:#?}");
}

#[test]
fn deletion_is_a_commit_that_removes_the_file() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let file = format!("organizations/{name}/sources/other.yaml");
    kubectl.apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: other, namespace: {name}}},
          spec: {{remote: \"file:///other.git\"}}}}"
    ));
    wait_for_commits(&server, &file, 1);
    kubectl.run(&["delete", "source", "other", "--namespace", name]);
    let lines = wait_for_commits(&server, &file, 2);
    assert!(lines[0].starts_with(&format!("stoa-admin|Stoa|delete source {name}/other|")), "{lines:#?}");
}

#[test]
fn pushed_change_is_served_as_a_watch_event() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let file = format!("organizations/{name}/organization.yaml");
    wait_for_commits(&server, &file, 1);
    let clone = Clone::of(&server);
    clone.edit(&file, "description: A test", "description: Pushed # by hand");
    let pushed = kubectl.watch("", &format!("organization/{name}"), PATIENCE, |organization| {
        (organization["spec"]["description"] == "Pushed").then(|| organization.clone())
    });
    assert_eq!(pushed["metadata"]["generation"], 2, "{pushed:#}");
    assert_eq!(condition(&pushed, "Ready")["status"], "True", "{pushed:#}");

    // A write by the API edits what it changes, and leaves what people wrote beside it.
    kubectl.run(&["label", "organization", name, "tier=front"]);
    wait_for_commits(&server, &file, 3);
    clone.git(&["pull", "--quiet", "--rebase"]);
    let text = std::fs::read_to_string(clone.path(&file)).unwrap();
    assert!(text.contains("# by hand") && text.contains("tier: front"), "{text}");
}

#[test]
fn push_creates_object_and_removal_deletes_it() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    wait_for_commits(&server, &format!("organizations/{name}/sources/config.yaml"), 1);
    let clone = Clone::of(&server);
    let source = Repository::new();
    source.commit("README.md", "A source of its own.\n");
    let file = format!("organizations/{name}/sources/pushed.yaml");
    let manifest = format!(
        "apiVersion: config.stoa.dev/v1alpha1\nkind: Source\nmetadata:\n  name: pushed\n  namespace: {name}\nspec:\n  remote: {}\n",
        source.url()
    );
    clone.push(&file, |path| std::fs::write(path, &manifest).unwrap(), "Add a source");
    eventually("the pushed source is served", PATIENCE, || {
        kubectl.succeeds(&["get", "source", "pushed", "--namespace", name]).then_some(())
    });
    kubectl.run(&["wait", "--for=condition=Ready", "--timeout=120s", "source/pushed", "--namespace", name]);
    clone.push(&file, |path| std::fs::remove_file(path).unwrap(), "Remove it");
    kubectl.run(&["wait", "--for=delete", "--timeout=120s", "source/pushed", "--namespace", name]);
}

#[test]
fn bad_pushed_file_reports_and_preserves_last_object() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let file = format!("organizations/{name}/sources/config.yaml");
    wait_for_commits(&server, &file, 1);
    let clone = Clone::of(&server);
    clone.edit(&file, "pollInterval: 1s", "pollInterval: soon");
    let synced = |status: &'static str| {
        kubectl.watch(name, "source/config", PATIENCE, |source| {
            (condition(source, "Synced")["status"] == status).then(|| source.clone())
        })
    };
    let source = synced("False");
    assert_eq!(source["spec"]["pollInterval"], "1s", "{source:#}");
    let message = condition(&source, "Synced")["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&file) && message.contains("spec.pollInterval"), "{message}");
    clone.edit(&file, "pollInterval: soon", "pollInterval: 2s");
    let source = synced("True");
    assert_eq!(source["spec"]["pollInterval"], "2s", "{source:#}");
}

#[test]
fn bad_pushed_file_blocks_other_writers_until_fixed() {
    let mut server = Standalone::start();
    let organization = Organization::create(&server);
    let name = &organization.name;
    let file = format!("organizations/{name}/sources/other.yaml");
    // One that nothing refers to can be deleted otherwise.
    server.kubectl().apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Source, metadata: {{name: other, namespace: {name}}},
          spec: {{remote: \"file:///other.git\", pollInterval: 1s}}}}"
    ));
    wait_for_commits(&server, &file, 1);
    let clone = Clone::of(&server);
    clone.edit(&file, "pollInterval: 1s", "pollInterval: [");
    let bad = clone.git(&["log", "-1", "--format=%h", "--abbrev=8", "--", &file]).trim().to_owned();
    let synced = |server: &Standalone, status: &'static str| {
        server.kubectl().watch(name, "source/other", PATIENCE, |source| {
            (condition(source, "Synced")["status"] == status).then(|| source.clone())
        })
    };
    let before = synced(&server, "False");
    let patch = ["patch", "source/other", "--type=merge", "--patch={\"spec\":{\"ref\":\"next\"}}", "--namespace", name];
    let refused_all = |server: &Standalone| {
        let kubectl = server.kubectl();
        let delete = ["delete", "source", "other", "--namespace", name];
        for write in [&patch[..], &delete[..]] {
            for dry_run in [None, Some("--dry-run=server")] {
                let arguments: Vec<&str> = write.iter().copied().chain(dry_run).collect();
                let message = kubectl.refused(&arguments);
                assert!(message.contains("(Conflict)") || message.contains("cannot be fulfilled"), "{message}");
                assert!(message.contains(&file) && message.contains(&bad) && message.contains("line "), "{message}");
            }
        }
    };
    refused_all(&server);
    server.kill();
    server.restart();
    refused_all(&server);
    let after = server.kubectl().get(&["source", "other", "--namespace", name]);
    assert_eq!(after["spec"], before["spec"], "the last good one is served");

    clone.edit(&file, "pollInterval: [", "pollInterval: 2s");
    let source = synced(&server, "True");
    assert_eq!(source["spec"]["pollInterval"], "2s", "{source:#}");
    let source = server.kubectl().get(&["source", "other", "--show-managed-fields", "--namespace", name]);
    let git = source["metadata"]["managedFields"].as_array().unwrap().iter().find(|entry| entry["manager"] == "git");
    assert_eq!(git.expect("an entry")["operation"], "Apply", "{source:#}");
    server.kubectl().run(&patch);
}

#[test]
fn object_and_list_are_read_at_an_exact_version() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let version = |object: &serde_json::Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let before = version(&kubectl.get(&["source", "config", "--namespace", name]));
    let manifest = |interval: &str| {
        format!(
            "apiVersion: config.stoa.dev/v1alpha1\nkind: Source\nmetadata: {{name: old, namespace: {name}, labels: {{tier: x}}}}\n\
             spec: {{remote: \"file:///old.git\", pollInterval: {interval}}}\n"
        )
    };
    kubectl.apply(&manifest("1h"));
    let first = version(&kubectl.get(&["source", "old", "--namespace", name]));
    kubectl.apply(&manifest("2h"));
    kubectl.run(&["delete", "source", "old", "--namespace", name]);

    let sources = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/sources");
    let raw = |path: &str| -> serde_json::Value { serde_json::from_str(&kubectl.raw(path)).unwrap() };
    let exact = |version: &str| format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let old = raw(&format!("{sources}/old?{}", exact(&first)));
    assert_eq!(old["spec"]["pollInterval"], "1h", "{old:#}");
    let list = raw(&format!("{sources}?{}&labelSelector=tier%3Dx", exact(&first)));
    assert_eq!(list["metadata"]["resourceVersion"], *first, "{list:#}");
    assert_eq!(list["items"][0]["spec"]["pollInterval"], "1h", "{list:#}");
    let list = raw(&format!("{sources}?{}", exact(&before)));
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list:#}");
    let message = kubectl.refused(&["get", "--raw", &format!("{sources}/old?{}", exact(&before))]);
    assert!(message.contains("NotFound"), "{message}");
    // Where no version is named that there may have been, the match says nothing, as to every other server.
    for any in ["resourceVersionMatch=Exact".to_owned(), exact(""), exact("0")] {
        let source = raw(&format!("{sources}/config?{any}"));
        assert_eq!(source["metadata"]["name"], "config", "{any}: {source:#}");
    }
}

#[test]
fn git_revert_and_push_is_an_undo() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    let file = format!("organizations/{name}/organization.yaml");
    wait_for_commits(&server, &file, 1);
    kubectl.run(&["patch", "organization", name, "--type=merge", "--patch={\"spec\":{\"description\":\"A mistake\"}}"]);
    wait_for_commits(&server, &file, 2);
    let clone = Clone::of(&server);
    let mistake = clone.git(&["log", "-1", "--format=%H", "--", &file]).trim().to_owned();
    clone.land(|| {
        clone.git(&["revert", "--no-edit", &mistake]);
    });
    kubectl.watch("", &format!("organization/{name}"), PATIENCE, |organization| {
        (organization["spec"]["description"] == "A test").then_some(())
    });
}
