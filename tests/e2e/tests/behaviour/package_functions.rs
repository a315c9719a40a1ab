//! Functions: objects that are listed from the function-runner and from Git, results, and single runs on a draft.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition};
use stoa_e2e::{Kubectl, Server as _, Standalone, eventually, run};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::package_lifecycle::{NAMESPACE, Packages, init};

/// An organization in which function repositories are registered.
struct Functions {
    kubectl: Kubectl,
    namespace: String,
    _organization: Organization,
    // It ends with the last of its users.
    _server: Arc<Standalone>,
}

impl Functions {
    fn new() -> Self {
        let server = Standalone::shared();
        let organization = Organization::create(&*server);
        let namespace = organization.name.clone();
        Self { kubectl: server.kubectl(), namespace, _organization: organization, _server: server }
    }

    /// Registers a repository, and returns it once it was read.
    fn register(&self, name: &str, spec: &Value) -> Value {
        let repository = json!({
            "apiVersion": "config.porch.kpt.dev/v1alpha1", "kind": "Repository",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec,
        });
        self.kubectl.apply(&repository.to_string());
        let resource = format!("repositories.config.porch.kpt.dev/{name}");
        self.kubectl.watch(&self.namespace, &resource, PATIENCE, |repository| {
            (condition(repository, "Ready")["status"] == "True").then(|| repository.clone())
        })
    }

    /// The names of the Functions that a selector selects.
    fn names(&self, selector: &[&str]) -> Vec<String> {
        let args = ["functions.porch.kpt.dev", "--namespace", &self.namespace];
        let found = self.kubectl.get(&[&args[..], selector].concat());
        let items = found["items"].as_array().unwrap().iter();
        items.map(|function| function["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// A repository with these files on branch `main`.
fn repository(folder: &Path, files: &[(&str, &str)]) -> String {
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
        run(Command::new("git").arg("-C").arg(folder).args(identity).args(args))
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=functions"]);
    format!("file://{}", folder.display())
}

#[test]
fn functions_of_the_runner_are_listed_and_selected() {
    let functions = Functions::new();
    functions.register("own", &json!({"content": "Function", "type": "runner"}));
    let all = functions.names(&[]);
    for name in ["own.set-image", "own.starlark", "own.validate-cel"] {
        assert!(all.iter().any(|found| found == name), "{name}: {all:?}");
    }
    let validators = functions.names(&["--selector", "type.function.stoa.dev/validator=true"]);
    assert!(validators.contains(&"own.kubeconform".to_owned()) && !validators.contains(&"own.set-image".to_owned()));
    assert_eq!(functions.names(&["--selector", "keyword.function.stoa.dev/image=true"]), ["own.set-image"]);
    let image = "spec.image=ghcr.io/kptdev/krm-functions-catalog/set-image";
    assert_eq!(functions.names(&["--field-selector", image]), ["own.set-image"]);
    let table = functions.kubectl.run(&["get", "functions.porch.kpt.dev", "--namespace", &functions.namespace]);
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "IMAGE", "TYPES", "REPOSITORY", "DESCRIPTION"]);
}

#[test]
fn functions_of_a_git_repository_follow_it() {
    let functions = Functions::new();
    let folder = TempDir::new().unwrap();
    let team = "image: example.com/fn/set-team\ntags: [mutator]\nidempotent: true\ninputTypes: [{apiVersion: apps/v1, kind: Deployment}]\n";
    let remote = repository(folder.path(), &[("set-team/metadata.yaml", team), ("broken/metadata.yaml", "image: [\n")]);
    let spec = json!({"content": "Function", "git": {"repo": remote, "branch": "main"}});
    let repository = functions.register("catalog", &spec);
    let broken = condition(&repository, "PackagesReadable");
    assert_eq!(broken["status"], "False");
    assert!(broken["message"].as_str().unwrap().contains("broken/metadata.yaml"), "{broken}");
    assert_eq!(functions.names(&["--selector", "input.function.stoa.dev/Deployment=true"]), ["catalog.set-team"]);
    let args = ["functions.porch.kpt.dev", "catalog.set-team", "--namespace", &functions.namespace];
    let function = functions.kubectl.get(&args);
    assert_eq!(function["spec"]["repositoryRef"]["name"], "catalog");
    assert_eq!(
        (&function["spec"]["functionTypes"], &function["spec"]["idempotent"]),
        (&json!(["mutator"]), &json!(true))
    );
    let delete = ["delete", "repositories.config.porch.kpt.dev/catalog", "--namespace", &functions.namespace];
    functions.kubectl.run(&delete);
    eventually("no Function is left", PATIENCE, || functions.names(&[]).is_empty().then_some(()));
}

const KPTFILE: &str = "apiVersion: kpt.dev/v1
kind: Kptfile
metadata: {name: web}
pipeline:
  mutators:
  - image: set-namespace:v0.4.1
    configMap: {namespace: prod}
  validators:
  - image: validate-cel
    configPath: rules.yaml
";

const RULES: &str = "apiVersion: fn.kpt.dev/v1alpha1
kind: CELValidation
metadata:
  name: rules
  annotations: {config.kubernetes.io/local-config: \"true\"}
validations:
- expression: object.data.mode == 'safe'
  message: the mode must be safe
  match: {kind: ConfigMap}
";

#[test]
fn results_of_a_failed_function_are_kept_by_severity() {
    let functions = Functions::new();
    let folder = TempDir::new().unwrap();
    let remote = folder.path().join("packages.git");
    run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&remote));
    let address = format!("file://{}", remote.display());
    functions.register("packages", &json!({"git": {"repo": address, "branch": "main", "createBranch": true}}));
    let revision = json!({
        "apiVersion": "porch.kpt.dev/v1alpha1", "kind": "PackageRevision",
        "metadata": {"name": "any", "namespace": functions.namespace},
        "spec": {"packageName": "web", "repository": "packages", "workspaceName": "v1", "tasks": [{"type": "init", "init": {}}]},
    });
    functions.kubectl.create(&revision.to_string());
    let save = |mode: &str| {
        let settings =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{mode: {mode}}}\n");
        let resources = json!({"Kptfile": KPTFILE, "rules.yaml": RULES, "settings.yaml": settings});
        let patch = json!({"spec": {"resources": resources}}).to_string();
        let args =
            ["patch", "packagerevisionresources.porch.kpt.dev", "packages.web.v1", "--type=merge", "--patch", &patch];
        functions.kubectl.run(&[&args[..], &["--namespace", &functions.namespace]].concat());
        let args = ["packagerevisionresources.porch.kpt.dev", "packages.web.v1", "--namespace", &functions.namespace];
        functions.kubectl.get(&args)
    };
    let failed = save("fast");
    let render = &failed["status"]["renderStatus"];
    let function = &render["result"]["items"][1];
    assert_eq!((&function["exitCode"], &function["results"][0]["severity"]), (&json!(1), &json!("error")), "{render}");
    assert_eq!(function["results"][0]["message"], "the mode must be safe");
    assert_eq!(function["results"][0]["resourceRef"]["name"], "settings");
    assert!(render["error"].as_str().unwrap().contains("the mode must be safe"), "{render}");
    let valid = save("safe");
    assert_eq!(valid["status"]["renderStatus"]["error"], "", "{valid}");
    assert!(valid["spec"]["resources"]["settings.yaml"].as_str().unwrap().contains("namespace: prod"));
}

#[test]
fn function_runs_once_on_a_draft() {
    let packages = Packages::new();
    let name = packages.create("web", "v1", &init());
    let settings = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings # of the team\ndata:\n  mode: safe\n";
    packages.write(&name, "settings.yaml", settings);
    packages.write(&name, "namespace.yaml", NAMESPACE);
    let before = packages.files(&name);
    let args = ["patch", "packagerevisions.porch.kpt.dev", &name, "--namespace", &packages.namespace, "--type=json"];
    let patch = |eval: Value| {
        let task = json!({"type": "eval", "eval": eval});
        format!("--patch={}", json!([{"op": "add", "path": "/spec/tasks/-", "value": task}]))
    };
    let failing = patch(json!({"image": "set-namespace:v0.4.1"}));
    let refused = packages.kubectl.refused(&[&args[..], &[failing.as_str()]].concat());
    assert!(refused.contains("spec.tasks") && refused.contains("set-namespace"), "{refused}");
    let unknown = patch(json!({"image": "example.com/missing:v1"}));
    let refused = packages.kubectl.refused(&[&args[..], &[unknown.as_str()]].concat());
    assert!(refused.contains("example.com/missing:v1"), "{refused}");
    assert_eq!(packages.files(&name), before, "a function that fails changes nothing");

    let labels = json!({"image": "set-labels:v0.2.0", "configMap": {"team": "shop"}, "match": {"kind": "ConfigMap", "name": "settings"}});
    packages.kubectl.run(&[&args[..], &[patch(labels).as_str()]].concat());
    let after = packages.files(&name);
    let changed = after["settings.yaml"].as_str().unwrap();
    assert!(changed.contains("team: shop") && changed.contains("name: settings # of the team\n"), "{changed}");
    assert_eq!((&after["namespace.yaml"], &after["Kptfile"]), (&before["namespace.yaml"], &before["Kptfile"]));
    let revision = packages.revision(&name);
    assert_eq!(revision["spec"]["tasks"][1]["eval"]["image"], "set-labels:v0.2.0", "{revision:#}");
    eventually("Git has the result", PATIENCE, || {
        let status = packages.revision(&name)["status"].clone();
        (status["git"]["digest"] == status["content"]["digest"]).then_some(())
    });
    assert!(packages.git(&["show", "drafts/web/v1:web/settings.yaml"]).contains("team: shop"));

    // A later save does not run it again, and a proposal takes no further one.
    packages.write(&name, "settings.yaml", settings);
    assert_eq!(packages.files(&name)["settings.yaml"], settings);
    packages.set_lifecycle(&name, "Proposed");
    let again = patch(json!({"image": "set-labels:v0.2.0", "configMap": {"team": "shop"}}));
    let refused = packages.kubectl.refused(&[&args[..], &[again.as_str()]].concat());
    assert!(refused.contains("only a Draft takes tasks of type eval"), "{refused}");
}
