//! Stacks whose source is a package: new revisions are deployed, one workspace after the other, and drafts never are.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use stoa_e2e::fixture::{condition, workspace};
use stoa_e2e::{Server as _, Standalone, git, run};

use crate::PATIENCE;
use crate::package_lifecycle::{Packages, init, reference, wait_for};

fn settings(color: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  color: {color}\n")
}

const PIPELINE: &str =
    "pipeline:\n  mutators:\n  - image: gcr.io/kpt-fn/set-namespace:v0.4.1\n    configMap:\n      namespace: shop\n";

/// A package, and a stack that deploys it to two workspaces, each with a repository of its own.
struct Scene {
    packages: Packages,
    workspaces: [String; 2],
    deploys: [PathBuf; 2],
    _folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let (packages, server) = (Packages::new(), Standalone::shared());
        let folder = tempfile::tempdir().unwrap();
        let workspaces = ["a", "b"].map(|suffix| format!("{}-{suffix}", packages.namespace));
        let deploys = ["a.git", "b.git"].map(|name| folder.path().join(name));
        for (name, deploy) in workspaces.iter().zip(&deploys) {
            run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(deploy));
            packages.kubectl.apply(&workspace(name, &packages.namespace, &server.target(deploy)));
        }
        Self { packages, workspaces, deploys, _folder: folder }
    }

    fn namespace(&self) -> &str {
        &self.packages.namespace
    }

    /// Declares the stack `web` of the package, which it follows.
    fn follow(&self) {
        self.packages.kubectl.apply(&format!(
            "apiVersion: config.stoa.dev/v1alpha1
kind: Source
metadata: {{name: package, namespace: {namespace}}}
spec: {{provider: Package, package: {{repository: blueprints, name: web}}}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Project
metadata: {{name: web, namespace: {namespace}}}
spec: {{source: {{name: package}}}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: web, namespace: {namespace}}}
spec: {{project: web, workspaces: [{}, {}], trigger: Workflow}}
",
            self.workspaces[0],
            self.workspaces[1],
            namespace = self.namespace(),
        ));
    }

    /// Publishes the next revision of the package, after another one.
    fn publish(&self, workspace: &str, before: Option<&str>, text: &str) -> String {
        let task = match before {
            None => init(),
            Some(before) => json!({"type": "edit", "edit": {"sourceRef": reference(before)}}),
        };
        let name = self.packages.create("web", workspace, &task);
        if before.is_none() {
            let kptfile = self.packages.files(&name)["Kptfile"].as_str().unwrap().to_owned();
            self.packages.write(&name, "Kptfile", &format!("{kptfile}{PIPELINE}"));
        }
        self.packages.write(&name, "settings.yaml", text);
        self.packages.publish(&name);
        name
    }

    /// What is deployed to a workspace.
    fn deployed(&self, at: usize) -> Option<String> {
        let file = "main:shop/configmap-settings.yaml";
        let output = Command::new("git").arg("-C").arg(&self.deploys[at]).args(["show", file]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    fn workflows(&self) -> Vec<Value> {
        let list = self.packages.kubectl.get(&["workflows", "--namespace", self.namespace()]);
        list["items"].as_array().unwrap().clone()
    }

    fn runs(&self, commit: &str) -> Vec<Value> {
        let list = self.packages.kubectl.get(&["runs", "--namespace", self.namespace()]);
        let of_commit = |run: &&Value| run["spec"]["version"] == commit;
        list["items"].as_array().unwrap().iter().filter(of_commit).cloned().collect()
    }

    fn commit(&self, revision: &str) -> String {
        self.packages.revision(revision)["status"]["git"]["commit"].as_str().unwrap().to_owned()
    }

    fn workflow_of(&self, commit: &str, phase: &str) -> Value {
        let found = || {
            let workflows = self.workflows();
            workflows
                .into_iter()
                .find(|workflow| workflow["spec"]["version"] == commit && workflow["status"]["phase"] == phase)
        };
        stoa_e2e::eventually(&format!("the workflow of {commit} is {phase}"), PATIENCE, found)
    }
}

#[test]
fn new_revision_is_deployed_to_one_workspace_after_the_other() {
    let scene = Scene::new();
    let first = scene.publish("v1", None, &settings("red"));
    scene.follow();
    let workflow = scene.workflow_of(&scene.commit(&first), "Succeeded");
    let steps = workflow["spec"]["steps"].as_array().unwrap();
    assert_eq!(steps[1]["dependsOn"], json!([steps[0]["name"]]), "{workflow:#}");
    // The functions of the package have run, and its own files are not deployed.
    for at in [0, 1] {
        let deployed = scene.deployed(at).unwrap();
        assert!(deployed.contains("color: red") && deployed.contains("namespace: shop"), "{deployed}");
        let files = git(&scene.deploys[at], &["ls-tree", "-r", "--name-only", "main"]);
        assert!(!files.contains("kptfile"), "{files}");
    }
    let second = scene.publish("v2", Some(&first), &settings("blue"));
    scene.workflow_of(&scene.commit(&second), "Succeeded");
    assert!([0, 1].iter().all(|at| scene.deployed(*at).unwrap().contains("color: blue")));
    let runs = scene.runs(&scene.commit(&second));
    let time = |workspace: &str, field: &str| {
        let run = runs.iter().find(|run| run["spec"]["workspace"] == workspace).unwrap();
        run["status"][field].as_str().unwrap().to_owned()
    };
    let [a, b] = &scene.workspaces;
    assert!(time(a, "completionTime") <= time(b, "startTime"), "{runs:#?}");

    // The first workspace fails, and the second stays as it is.
    let third = scene.publish("v3", Some(&second), &settings("green").replace("ConfigMap", "ConfigMapp"));
    scene.workflow_of(&scene.commit(&third), "Failed");
    assert!(scene.deployed(1).unwrap().contains("color: blue"));
    assert_eq!(scene.runs(&scene.commit(&third)).len(), 1);

    // Revisions say where they are deployed.
    let deployments = |name: &str| {
        let revision = scene.packages.revision(name);
        revision["status"]["deployments"].as_array().map_or(0, Vec::len)
    };
    wait_for("the second revision is deployed twice", || deployments(&second) == 2 && deployments(&first) == 0);
    let shown = scene.packages.kubectl.run(&[
        "get",
        "packagerevisions.porch.kpt.dev",
        &second,
        "--output=wide",
        "--namespace",
        scene.namespace(),
    ]);
    assert!(shown.contains(&format!("{a},{b}")), "{shown}");
}

#[test]
fn draft_is_for_previews_alone() {
    let scene = Scene::new();
    let first = scene.publish("v1", None, &settings("red"));
    scene.follow();
    scene.workflow_of(&scene.commit(&first), "Succeeded");
    let edit = json!({"type": "edit", "edit": {"sourceRef": reference(&first)}});
    let draft = scene.packages.create("web", "next", &edit);
    scene.packages.write(&draft, "settings.yaml", &settings("purple"));
    wait_for("the draft is in Git", || {
        let git = scene.packages.revision(&draft)["status"]["git"].clone();
        git["digest"] == scene.packages.revision(&draft)["status"]["content"]["digest"]
    });
    let start = |operation: &str, fields: &str| {
        scene.packages.kubectl.create(&format!(
            "apiVersion: delivery.stoa.dev/v1alpha1
kind: Run
metadata: {{generateName: web-, namespace: {}}}
spec: {{stack: web, workspace: {}, operation: {operation}, {fields}}}
",
            scene.namespace(),
            scene.workspaces[0],
        ))
    };
    let ended = |run: &str| {
        scene.packages.kubectl.watch(scene.namespace(), &format!("run/{run}"), PATIENCE, |run| {
            matches!(run["status"]["phase"].as_str(), Some("Succeeded" | "Failed")).then(|| run.clone())
        })
    };
    let preview = ended(&start("Preview", "version: next"));
    assert_eq!(preview["status"]["phase"], "Succeeded", "{preview:#}");
    assert_eq!(preview["status"]["plan"]["summary"]["update"], 1, "{preview:#}");
    let plan = preview["metadata"]["name"].as_str().unwrap();
    for fields in ["version: next".to_owned(), format!("plan: {plan}")] {
        let apply = ended(&start("Apply", &fields));
        let failed = condition(&apply, "Failed");
        assert_eq!(failed["reason"], "NotPublished", "{fields}: {apply:#}");
        assert!(failed["message"].as_str().unwrap().contains(&draft), "{failed:#}");
    }
    assert!(scene.deployed(0).unwrap().contains("color: red"));
}

#[test]
fn flux_and_argo_find_published_packages_by_tag_and_folder() {
    let packages = Packages::new();
    let draft = packages.create("network/web", "v1", &init());
    packages.write(&draft, "settings.yaml", &settings("red"));
    wait_for("the draft is in Git", || !packages.revision(&draft)["status"]["git"]["commit"].is_null());
    // Neither the branch nor a tag has a draft.
    assert!(!packages.git(&["ls-tree", "-r", "--name-only", "main"]).contains("network/web"));
    assert!(packages.git(&["tag"]).trim().is_empty());
    packages.publish(&draft);
    // `ref: {tag: network/web/v1}` of a GitRepository, `targetRevision` of an Application, and the folder as path.
    let of_tag = packages.git(&["show", "network/web/v1:network/web/settings.yaml"]);
    assert!(of_tag.contains("color: red"), "{of_tag}");
    assert_eq!(packages.git(&["tag"]).trim(), "network/web/v1");
    let next = packages.create("network/web", "v2", &json!({"type": "edit", "edit": {"sourceRef": reference(&draft)}}));
    packages.write(&next, "settings.yaml", &settings("blue"));
    packages.set_lifecycle(&next, "Proposed");
    wait_for("the proposal is in Git", || packages.refs().iter().any(|name| name.contains("proposed/network/web/v2")));
    // A clone of the branch, or of the newest tag, has the published revision alone.
    assert!(packages.git(&["show", "main:network/web/settings.yaml"]).contains("color: red"));
    assert_eq!(packages.git(&["tag"]).trim(), "network/web/v1");
}
