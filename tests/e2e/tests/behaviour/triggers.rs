//! Runs that nobody starts: a push is looked at by itself, or as soon as the Git server tells of it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ring::hmac;
use serde_json::Value;
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually, run, unique};
use stoa_git::testing::GitServer;

use crate::{PATIENCE, approvals::may_use};

const PASSWORD: &str = "opens-the-repository";
const TOKEN: &str = "signs-the-deliveries";

/// A Git server with a repository, and a clone of that.
struct Scene {
    clone: Repository,
    server: GitServer,
    _folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bare = ["init", "--quiet", "--bare", "--initial-branch=main", "config.git"];
        run(Command::new("git").current_dir(folder.path()).args(bare));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(GitServer::start(folder.path(), PASSWORD, None));
        let url_for_people = server.url("http", "config.git").replace("://", &format!("://bot:{PASSWORD}@"));
        Self { clone: Repository::clone_of(url_for_people), server, _folder: folder, _runtime: runtime }
    }

    /// Commits a file and pushes it; the commit.
    fn push(&self, path: &str, text: &str) -> String {
        let commit = self.clone.commit(path, text);
        self.clone.git(&["push", "--quiet", "origin", "HEAD:main"]);
        commit
    }
}

/// Delivers the push of `shop/config`, signed with a token; the code of the answer.
fn deliver(cluster: &Cluster, namespace: &str, token: &str) -> String {
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"shop/config"}}"#;
    deliver_to(cluster, &format!("{namespace}/hooked"), body, token)
}

/// Delivers the body of a push to a webhook as GitHub does, signed with a token; the code of the answer.
pub(crate) fn deliver_to(cluster: &Cluster, webhook: &str, body: &str, token: &str) -> String {
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), body.as_bytes());
    let hex: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--data", body, "--cacert"]);
    curl.arg(Path::new(&cluster.env("STOA_CA"))).args(["--header", "X-GitHub-Event: push", "--header"]);
    curl.arg(format!("X-Hub-Signature-256: sha256={hex}"));
    run(curl.arg(format!("{}/{webhook}", cluster.env("STOA_WEBHOOK_URL"))))
}

#[test]
fn webhook_or_poll_applies_push() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let (name, scene) = (&organization.name, Scene::new());
    let namespace = format!("{name}-web");
    let kubectl = cluster.kubectl();
    let first = scene.push("apps/web/spec.yaml", &config_maps(&namespace, 1, "a"));
    kubectl.apply_secret(name, "git", &[("username", "bot"), ("password", PASSWORD)]);
    kubectl.apply_secret(name, "hook", &[("token", TOKEN)]);
    kubectl.apply(&format!(
        "apiVersion: config.stoa.dev/v1alpha1
kind: Source
metadata: {{name: hooked, namespace: {name}}}
spec: {{remote: \"{url}\", ref: main, pollInterval: 1h, secretRef: {{name: git}}, webhook: {{secretRef: {{name: hook}}}}}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Project
metadata: {{name: pushed, namespace: {name}}}
spec: {{source: {{name: hooked}}, path: apps}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: web, namespace: {name}}}
spec: {{project: pushed, workspaces: [{name}], trigger: Apply}}
",
        url = scene.server.url("http", "config.git")
    ));
    let runs = || organization.of_stack("runs", "web");
    let applied = |commit: &str| {
        let is_applied = |run: &Value| {
            run["spec"]["version"] == commit
                && run["spec"]["operation"] == "Apply"
                && run["status"]["phase"] == "Succeeded"
        };
        eventually(&format!("{commit} is applied"), PATIENCE, || runs().into_iter().find(is_applied))
    };
    let value = || kubectl.get(&["configmap/c0", "--namespace", &namespace])["data"]["value"].clone();
    let source = || kubectl.get(&["source/hooked", "--namespace", name]);
    let run = applied(&first);
    assert_eq!((&run["status"]["requester"]["username"], value()), (&"system:stoa:trigger".into(), "a".into()));
    assert!(!run["status"]["requester"]["extra"]["stoa.dev/caused-by"][0].as_str().unwrap().is_empty(), "{run:#}");

    let second = scene.push("apps/web/spec.yaml", &config_maps(&namespace, 1, "b"));
    let asked = scene.server.requests();
    assert_eq!(deliver(&cluster, name, "another token"), "401");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((scene.server.requests(), runs().len()), (asked, 1), "nothing happens");
    assert_eq!(source()["status"]["lastWebhookTime"], Value::Null);
    assert_eq!(deliver(&cluster, name, TOKEN), "202");
    applied(&second);
    assert_eq!(value(), "b");

    // What is not the stack's starts nothing, and is known all the same.
    let elsewhere = scene.push("apps/other/spec.yaml", &config_maps("other", 1, "a"));
    assert_eq!(deliver(&cluster, name, TOKEN), "202");
    eventually("the commit is seen", PATIENCE, || (source()["status"]["observedCommit"] == *elsewhere).then_some(()));
    let third = scene.push("apps/web/spec.yaml", &config_maps(&namespace, 1, "c"));
    let patch = ["--type=merge", "--patch", r#"{"spec":{"pollInterval":"1s"}}"#];
    kubectl.run(&[&["patch", "source/hooked", "--namespace", name], &patch[..]].concat());
    applied(&third);
    assert_eq!((value(), runs().len()), ("c".into(), 3));

    // What fails is told, and not tried again.
    let broken = scene.push("apps/web/spec.yaml", "resources: [{}]\n");
    let told = || Some(condition(&kubectl.get(&["stack/web", "--namespace", name]), "Triggered"));
    let failed = eventually("the failure is told", PATIENCE, || told().filter(|told| told["reason"] == "RunFailed"));
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(&broken[..8]) && message.contains("no other run starts"), "{message}");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(runs().len(), 4);
}

/// Longer than a push takes to be seen and acted on, where a source is looked at every second.
const SEEN: Duration = Duration::from_secs(3);

#[test]
fn revoked_user_preview_trigger_never_applies_push() {
    let cluster = Cluster::shared();
    let admin = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    let first = organization.stack("web", &config_maps(&namespace, 1, "a"));
    let ann_name = unique("ann");
    let ann = admin.impersonate(&ann_name);
    may_use(&admin, &organization, &ann_name);
    admin.apply(&format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: planner, namespace: {name}}}
rules:
- {{apiGroups: [config.stoa.dev], resources: [stacks], verbs: [get, patch]}}
- {{apiGroups: [config.stoa.dev], resources: [stacks/preview], verbs: [create]}}
- {{apiGroups: [delivery.stoa.dev], resources: [runs], verbs: [create]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: planner, namespace: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: planner}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {ann_name}}}]
"
    ));
    let [to_preview, to_apply] = ["Preview", "Apply"].map(|to| format!(r#"--patch={{"spec":{{"trigger":"{to}"}}}}"#));
    let [to_preview, to_apply] = [&to_preview, &to_apply]
        .map(|patch| ["patch", "stack/web", "--namespace", name, "--type=merge", patch.as_str()]);
    eventually("she may have previews started", PATIENCE, || ann.succeeds(&to_preview).then_some(()));
    let refused = ann.refused(&to_apply);
    assert!(refused.contains("stacks/apply"), "{refused}");

    let started = || {
        let mut runs = organization.of_stack("runs", "web");
        runs.retain(|run| run["status"]["requester"]["username"] == "system:stoa:trigger");
        runs
    };
    let planned = |commit: &str| {
        let is_planned = |run: &Value| run["spec"]["version"] == commit && run["status"]["phase"] == "Succeeded";
        eventually(&format!("{commit} is planned"), PATIENCE, || started().into_iter().find(is_planned))
    };
    let run = planned(&first);
    assert_eq!(run["status"]["plan"]["summary"]["create"], 2, "{run:#}");
    let set_by = &run["status"]["requester"]["extra"]["stoa.dev/caused-by"][0];
    assert_eq!((&run["spec"]["operation"], set_by), (&"Preview".into(), &ann_name.as_str().into()), "{run:#}");
    assert!(!admin.succeeds(&["get", "namespace", &namespace]), "a preview creates nothing");

    // What somebody applies by hand is left as it is by all that is pushed afterwards.
    organization.succeed("web", "Apply", "");
    let live = || admin.get(&["configmap/c0", "--namespace", &namespace]);
    let before = live();
    let second = organization.stack("web", &config_maps(&namespace, 1, "b"));
    let summary = planned(&second)["status"]["plan"]["summary"].clone();
    assert_eq!((&summary["update"], &summary["unchanged"]), (&1.into(), &1.into()), "{summary}");
    let elsewhere = organization.source.commit("apps/other/spec.yaml", "resources: []\n");
    let source = || admin.get(&["source/config", "--namespace", name])["status"]["observedCommit"].clone();
    eventually("the commit is seen", PATIENCE, || (source() == *elsewhere).then_some(()));
    organization.source.commit("apps/web/spec.yaml", &config_maps(&namespace, 1, "c"));
    let last = organization.source.commit("apps/web/spec.yaml", &config_maps(&namespace, 3, "d"));
    assert_eq!(planned(&last)["status"]["plan"]["summary"]["create"], 2);
    std::thread::sleep(SEEN);
    let runs = started();
    assert!(runs.iter().all(|run| run["spec"]["operation"] == "Preview"), "{runs:#?}");
    assert!(!runs.iter().any(|run| run["spec"]["version"] == *elsewhere), "{runs:#?}");
    assert_eq!(live()["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
    let told = condition(&admin.get(&["stack/web", "--namespace", name]), "Triggered");
    assert!(told["message"].as_str().is_some_and(|message| message.contains(&last[..8])), "{told}");

    // It is the trigger that says so: with the other one the same commit is applied.
    admin.run(&to_apply);
    eventually("the commit is applied", PATIENCE, || (live()["data"]["value"] == "d").then_some(()));
}
