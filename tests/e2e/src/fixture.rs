//! What stacks are rendered from, and the objects around them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::command::{run, unique};
use crate::endpoint::{Endpoint, KEY};
use crate::kubectl::Kubectl;
use crate::server::Server;

/// A ConfigMap of a Spec, `c<number>`.
#[derive(Clone, Copy, Debug)]
pub struct ConfigMap<'a> {
    /// Which it is.
    pub number: usize,
    /// What it holds.
    pub value: &'a str,
    /// Whether it is made anew to hold something else.
    pub is_immutable: bool,
}

/// A Spec of one Namespace and `count` ConfigMaps in it, numbered from 0, each with the value `value`.
pub fn config_maps(namespace: &str, count: usize, value: &str) -> String {
    spec_of(namespace, (0..count).map(|number| ConfigMap { number, value, is_immutable: false }))
}

/// A Spec of one Namespace and these ConfigMaps in it.
pub fn spec_of<'a>(namespace: &str, config_maps: impl IntoIterator<Item = ConfigMap<'a>>) -> String {
    let mut spec = format!(
        "resources:
- id: v1:Namespace:{namespace}
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: Namespace
    metadata: {{name: {namespace}}}
"
    );
    for ConfigMap { number, value, is_immutable } in config_maps {
        let fixed = match is_immutable {
            true => "    immutable: true\n  extensions: {stoa.dev/recreate: \"true\"}\n",
            false => "",
        };
        let _ = write!(
            spec,
            "- id: v1:ConfigMap:{namespace}:c{number}
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: c{number}, namespace: {namespace}}}
    data: {{value: {value}}}
{fixed}"
        );
    }
    spec
}

/// The attributes of the CustomResourceDefinition of Widgets in a group, in one line of YAML: their scope, `Namespaced` or
/// `Cluster`, and the schema of version v1, of the fields of an object.
pub fn widgets(group: &str, scope: &str, schema: &str) -> String {
    format!(
        "{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: widgets.{group}}}, \
         spec: {{group: {group}, scope: {scope}, \
         names: {{kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}}, \
         versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]}}}}"
    )
}

/// The schema of objects that may have any fields.
pub const ANY_FIELDS: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

/// The ConfigMaps of a namespace: uid and value by name.
pub type Objects = BTreeMap<String, (String, String)>;

/// The ConfigMaps that a cluster has in a namespace, but for the one that it makes in each; none where there is no namespace.
pub fn config_maps_in(kubectl: &Kubectl, namespace: &str) -> Objects {
    let list = kubectl.get(&["configmaps", "--namespace", namespace]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = list["items"].as_array().unwrap().iter().map(|object| {
        let metadata = &object["metadata"];
        (text(&metadata["name"]), (text(&metadata["uid"]), text(&object["data"]["value"])))
    });
    all.filter(|(name, _)| name != "kube-root-ca.crt").collect()
}

/// A condition of an object; null when it is not there.
pub fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|condition| condition["type"] == kind).cloned().unwrap_or_default()
}

/// A Git repository with a work tree.
#[derive(Debug)]
pub struct Repository {
    folder: TempDir,
    /// Git refuses who commits while somebody else does.
    turn: Mutex<()>,
}

impl Default for Repository {
    fn default() -> Self {
        Self::new()
    }
}

impl Repository {
    /// Makes an empty one with the branch `main`.
    pub fn new() -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap(), turn: Mutex::default() };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository
    }

    /// Clones the one that git finds at a URL or path.
    pub fn clone_of(remote: impl AsRef<OsStr>) -> Self {
        let repository = Self { folder: tempfile::tempdir().unwrap(), turn: Mutex::default() };
        run(Command::new("git").args(["clone", "--quiet"]).arg(remote).arg(repository.path()));
        repository
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("file://{}", self.path().display())
    }

    /// Writes a file and commits it; returns the commit.
    pub fn commit(&self, path: &str, text: &str) -> String {
        self.change(&format!("Write {path}"), || {
            let file = self.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
        })
    }

    /// Replaces the folder at `path` by a copy of another one and commits it; returns the commit.
    pub fn replace(&self, path: &str, folder: &Path) -> String {
        self.change(&format!("Replace {path}"), || {
            let target = self.path().join(path);
            if target.exists() {
                fs::remove_dir_all(&target).unwrap();
            }
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            run(Command::new("cp").arg("--recursive").arg(folder).arg(&target));
        })
    }

    fn change(&self, message: &str, edit: impl FnOnce()) -> String {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        edit();
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    /// Runs git in it and returns what it printed.
    pub fn git(&self, args: &[&str]) -> String {
        let identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"];
        run(Command::new("git").arg("-C").arg(self.path()).args(identity).args(args))
    }
}

/// A Workspace with a Backend, both by their names, as YAML; `target` is the rest of its spec, in lines.
pub fn workspace(name: &str, backend: &str, target: &str) -> String {
    format!(
        "apiVersion: platform.stoa.dev/v1alpha1
kind: Workspace
metadata: {{name: {name}}}
spec:
  backend: {{name: {backend}}}
{target}"
    )
}

/// An organization with a workspace, a source and a project, all of whose names no other test uses.
///
/// The project's stacks are at `apps/<stack>/spec.yaml` of the repository. Its name is the organization's,
/// the namespace's, the backend's, the workspace's and the project's.
#[derive(Debug)]
pub struct Organization {
    /// The name of everything.
    pub name: String,
    /// What is deployed.
    pub source: Repository,
    /// Where a server without a cluster deploys to.
    pub deploy: PathBuf,
    kubectl: Kubectl,
    // Keeps `deploy`.
    _folder: TempDir,
}

impl Organization {
    /// Has the workspace lead to a cluster of this name by a kubeconfig in a Secret, after `others`, which are items of YAML.
    pub fn lead_to(&self, cluster: &str, kubeconfig: &str, others: &str) {
        self.kubectl.apply_secret(&self.name, cluster, &[("kubeconfig", kubeconfig)]);
        let target = format!(
            "  kubernetes:
    clusters:
{others}    - {{name: {cluster}, kubeconfigSecretRef: {{namespace: {name}, name: {cluster}, key: kubeconfig}}}}
",
            name = self.name,
        );
        self.kubectl.apply(&workspace(&self.name, &self.name, &target));
    }

    /// Has the endpoint told of its events of these types, which are items of YAML; the key is that of its Secret `hooks`.
    pub fn tell(&self, endpoint: &Endpoint, events: &str) {
        self.kubectl.apply_secret(&self.name, "hooks", &[("key", KEY)]);
        self.kubectl.apply(&format!(
            "apiVersion: platform.stoa.dev/v1alpha1
kind: NotificationSink
metadata: {{name: {name}}}
spec:
  url: http://127.0.0.1:{port}/sink
  secretRef: {{namespace: {name}, name: hooks, key: key}}
  organizations: [{name}]
  events: [{events}]
  retry: {{minBackoff: 100ms, maxBackoff: 1s}}
",
            name = self.name,
            port = endpoint.port,
        ));
    }

    /// Makes it and waits until it is ready.
    pub fn create(server: &dyn Server) -> Self {
        let name = unique("org");
        let source = Repository::new();
        source.commit("README.md", "A test's configuration.\n");
        let folder = tempfile::tempdir().unwrap();
        let deploy = folder.path().join("deploy.git");
        run(Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(&deploy));
        let kubectl = server.kubectl();
        let workspace = workspace(&name, &name, &server.target(&deploy));
        kubectl.apply(&format!(
            "apiVersion: platform.stoa.dev/v1alpha1
kind: Backend
metadata: {{name: {name}}}
spec: {{type: Local, local: {{directory: {name}}}}}
---
{workspace}---
apiVersion: config.stoa.dev/v1alpha1
kind: Organization
metadata: {{name: {name}}}
spec: {{description: A test}}
"
        ));
        kubectl.watch("", &format!("organization/{name}"), Duration::from_secs(60), |organization| {
            (condition(organization, "Ready")["status"] == "True").then_some(())
        });
        kubectl.apply(&format!(
            "apiVersion: config.stoa.dev/v1alpha1
kind: Source
metadata: {{name: config, namespace: {name}}}
spec: {{remote: \"{url}\", ref: main, pollInterval: 1s}}
---
apiVersion: config.stoa.dev/v1alpha1
kind: Project
metadata: {{name: {name}, namespace: {name}}}
spec: {{source: {{name: config}}, path: apps}}
",
            url = source.url()
        ));
        Self { name, source, deploy, kubectl, _folder: folder }
    }

    /// Has the documents of its workspace kept in another Backend.
    pub fn keep_in(&self, backend: &str) {
        let patch = format!("--patch={{\"spec\":{{\"backend\":{{\"name\":\"{backend}\"}}}}}}");
        self.kubectl.run(&["patch", "workspace", &self.name, "--type=merge", &patch]);
    }

    /// Has the source lead elsewhere.
    pub fn read_from(&self, remote: &str) {
        let patch = format!("--patch={{\"spec\":{{\"remote\":\"{remote}\"}}}}");
        self.kubectl.run(&["patch", "source/config", "--namespace", &self.name, "--type=merge", &patch]);
    }

    /// Commits the Spec of the stack and creates the Stack when it is new.
    pub fn stack(&self, stack: &str, spec: &str) -> String {
        let commit = self.source.commit(&format!("apps/{stack}/spec.yaml"), spec);
        self.declare(stack);
        commit
    }

    /// Replaces the stack's files by those of a folder, commits, and creates the Stack when it is new; returns the commit.
    pub fn stack_of_files(&self, stack: &str, folder: &Path) -> String {
        let commit = self.source.replace(&format!("apps/{stack}"), folder);
        self.declare(stack);
        commit
    }

    fn declare(&self, stack: &str) {
        self.kubectl.apply(&format!(
            "apiVersion: config.stoa.dev/v1alpha1
kind: Stack
metadata: {{name: {stack}, namespace: {name}}}
spec: {{project: {name}, workspaces: [{name}]}}
",
            name = self.name
        ));
    }

    /// Creates a Run, which has to be refused; what kubectl says.
    pub fn refused(&self, stack: &str, operation: &str, fields: &str) -> String {
        self.kubectl.create_refused(&self.manifest(stack, operation, fields))
    }

    /// Creates a Run; `fields` are further fields of its spec, as one YAML flow line: `plan: x, cancel: true`.
    pub fn start(&self, stack: &str, operation: &str, fields: &str) -> String {
        self.kubectl.create(&self.manifest(stack, operation, fields))
    }

    /// The same; nothing when the server cannot be reached now, or went away before it answered.
    pub fn try_to_start(&self, stack: &str, operation: &str, fields: &str) -> Option<String> {
        self.kubectl.try_create(&self.manifest(stack, operation, fields)).ok()
    }

    fn manifest(&self, stack: &str, operation: &str, fields: &str) -> String {
        let separator = if fields.is_empty() { "" } else { ", " };
        format!(
            "apiVersion: delivery.stoa.dev/v1alpha1
kind: Run
metadata: {{generateName: {stack}-, namespace: {name}}}
spec: {{stack: {stack}, operation: {operation}{separator}{fields}}}
",
            name = self.name
        )
    }

    /// Commits the Spec of the stack, creates the Stack when it is new, and a Run that applies it; nothing when the
    /// server cannot be reached now.
    pub fn try_start(&self, stack: &str, spec: &str) -> Option<String> {
        self.source.commit(&format!("apps/{stack}/spec.yaml"), spec);
        let name = &self.name;
        let make = |group: &str, kind: &str, metadata: &str, spec: &str| {
            self.kubectl.try_create(&format!(
                "{{apiVersion: {group}.stoa.dev/v1alpha1, kind: {kind}, metadata: {{{metadata}, namespace: {name}}}, spec: {{{spec}}}}}"
            ))
        };
        let made =
            make("config", "Stack", &format!("name: {stack}"), &format!("project: {name}, workspaces: [{name}]"));
        if made.is_err_and(|said| !said.contains("(AlreadyExists)")) {
            return None;
        }
        make("delivery", "Run", &format!("generateName: {stack}-"), &format!("stack: {stack}, operation: Apply")).ok()
    }

    /// Reads a Run.
    pub fn run(&self, run: &str) -> Value {
        self.kubectl.get(&["run", run, "--namespace", &self.name])
    }

    /// Waits until a Run has ended and returns it.
    pub fn ended(&self, run: &str, patience: Duration) -> Value {
        self.kubectl.watch(&self.name, &format!("run/{run}"), patience, |run| {
            let phase = run["status"]["phase"].as_str().unwrap_or_default();
            matches!(phase, "Succeeded" | "Failed" | "Canceled").then(|| run.clone())
        })
    }

    /// Runs an operation to its end, which has to be good; returns the Run.
    pub fn succeed(&self, stack: &str, operation: &str, fields: &str) -> Value {
        let run = self.ended(&self.start(stack, operation, fields), Duration::from_secs(120));
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
        run
    }

    /// Runs an operation to its end, which has to be bad; returns the message of the condition that says why.
    pub fn fail(&self, stack: &str, operation: &str, fields: &str) -> String {
        let run = self.ended(&self.start(stack, operation, fields), Duration::from_secs(120));
        assert_eq!(run["status"]["phase"], "Failed", "{run:#}");
        condition(&run, "Failed")["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Plans without changing anything, and finds nothing to do.
    ///
    /// # Panics
    ///
    /// When something is left.
    pub fn nothing_is_left(&self, stack: &str, operation: &str) {
        let planned = self.succeed(stack, operation, "");
        let summary = &planned["status"]["plan"]["summary"];
        let left = ["create", "update", "delete", "replace", "adopt", "forget"].map(|what| summary[what].as_i64());
        assert!(left.iter().all(|count| count.unwrap_or(0) == 0), "left to do of {stack}: {summary}");
    }

    /// The numbers of the releases of a stack, in order.
    pub fn revisions(&self, stack: &str) -> Vec<u64> {
        let releases = self.of_stack("releases", stack);
        let mut revisions: Vec<u64> = releases.iter().map(|it| it["spec"]["revision"].as_u64().unwrap()).collect();
        revisions.sort_unstable();
        revisions
    }

    /// How many resources are on record of a stack, and how many of them as destroyed.
    pub fn recorded(&self, stack: &str) -> (usize, usize) {
        let resources = self.of_stack("resources", stack);
        let gone = resources.iter().filter(|resource| resource["status"]["phase"] == "Destroyed").count();
        (resources.len(), gone)
    }

    /// The objects of a kind that belong to a stack.
    pub fn of_stack(&self, kind: &str, stack: &str) -> Vec<Value> {
        let selector = format!("--selector=stoa.dev/stack={stack}");
        let list = self.kubectl.get(&[kind, "--namespace", &self.name, &selector]);
        list["items"].as_array().unwrap().clone()
    }

    /// The names of the Runs of a stack; nothing when the server cannot be reached now.
    pub fn try_runs(&self, stack: &str) -> Option<Vec<String>> {
        let selector = format!("--selector=stoa.dev/stack={stack}");
        let list = self.kubectl.try_get(&["runs", "--namespace", &self.name, &selector])?;
        let names = list["items"].as_array()?.iter().map(|run| run["metadata"]["name"].as_str().unwrap().to_owned());
        Some(names.collect())
    }
}
