//! Fleets by the names of Kalypso: from a control-plane repository to one pull request for each environment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository, condition};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, eventually_or, skipped};
use stoa_test_gitea::{GiteaServer, USER};

use crate::PATIENCE;

/// The Secret with the credentials of an environment.
const SECRET: &str = "gh-repo-secret";

/// The files below a folder, by their paths in it.
fn files(root: &Path) -> BTreeMap<String, String> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with(".git") {
                    folders.push(path);
                }
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// A file as documents, and one that is not YAML as a text.
fn documents(path: &str, text: &str) -> Vec<Value> {
    if !path.ends_with(".yaml") {
        return vec![text.trim_end().into()];
    }
    let mut documents = vec![String::new()];
    for line in text.lines() {
        match documents.last_mut() {
            Some(last) if line.trim_end() != "---" => *last += &format!("{line}\n"),
            _ => documents.push(String::new()),
        }
    }
    let written = documents.iter().filter(|text| !text.trim().is_empty());
    written.map(|text| serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"))).collect()
}

/// Git repositories of the recorded promotion, at a server.
struct Recorded<'g> {
    gitea: &'g GiteaServer,
    control_plane: Repository,
    gitops: Repository,
    /// The promoted commit of `main`.
    promoted: String,
    address: String,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/kalypso/dev")
}

impl<'g> Recorded<'g> {
    fn push(gitea: &'g GiteaServer) -> Self {
        let addresses: BTreeMap<&str, String> = [
            "kalypso-control-plane",
            "kalypso-control-plane-global",
            "kalypso-gitops",
            "kalypso-app-src",
            "kalypso-svc-src",
        ]
        .into_iter()
        .map(|name| (name, gitea.create(name)))
        .collect();
        // Objects name the recorded repositories, which are at the server of the test.
        let here = |text: &str| {
            let lines = text.lines().map(|line| match line.trim().strip_prefix("repo: https://github.com/") {
                Some(repo) if addresses.contains_key(repo.rsplit('/').next().unwrap().trim()) => {
                    let indent = &line[..line.find("repo:").unwrap()];
                    format!("{indent}repo: {}\n", addresses[repo.rsplit('/').next().unwrap().trim()])
                }
                _ => format!("{line}\n"),
            });
            lines.collect::<String>()
        };
        let write = |clone: &Repository, folder: &str, files: BTreeMap<String, String>| {
            for (path, text) in files {
                let path = clone.path().join(folder).join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        };
        let input = |folder: &str| -> BTreeMap<String, String> {
            files(&data().join("input").join(folder)).into_iter().map(|(path, text)| (path, here(&text))).collect()
        };
        let clone = |name: &str| Repository::clone_of(GiteaServer::with_password(&addresses[name], USER));
        let push = |clone: &Repository, branch: &str| {
            clone.git(&["add", "--all"]);
            clone.git(&["commit", "--quiet", "--message", "Record a promotion"]);
            clone.git(&["push", "--quiet", "--force", "origin", &format!("HEAD:{branch}")]);
            clone.git(&["rev-parse", "HEAD"]).trim().to_owned()
        };
        for (name, folder, branch) in [
            ("kalypso-app-src", "workloads/greeting", "main"),
            ("kalypso-svc-src", "workloads/platform-svc", "main"),
            ("kalypso-control-plane-global", "global-dev-global", "dev"),
        ] {
            let clone = clone(name);
            write(&clone, "", input(folder));
            push(&clone, branch);
        }
        let control_plane = clone("kalypso-control-plane");
        write(&control_plane, "", input("control-plane-main"));
        let promoted = push(&control_plane, "main");
        control_plane.git(&["checkout", "--quiet", "--orphan", "dev"]);
        control_plane.git(&["rm", "-r", "--quiet", "--force", "."]);
        let branch = input("control-plane-env")
            .into_iter()
            .map(|(path, text)| (path, text.replace("54b53e769ea41e7c3fd420f9bce3e5ae98044c2f", &promoted)));
        write(&control_plane, "", branch.collect());
        push(&control_plane, "dev");
        let gitops = clone("kalypso-gitops");
        let stale = ("large/observability-prometheus/config.yaml", "a: 1\n");
        let of_people = (".github/workflows/check.yaml", "on: push\n");
        write(&gitops, "", [stale, of_people].map(|(path, text)| (path.to_owned(), text.to_owned())).into());
        gitops.git(&["checkout", "--quiet", "-B", "dev"]);
        push(&gitops, "dev");
        let address = addresses["kalypso-control-plane"].clone();
        Self { gitea, control_plane, gitops, promoted, address }
    }

    /// The files of a branch of the GitOps repository.
    fn branch(&self, branch: &str) -> BTreeMap<String, String> {
        self.gitops.git(&["fetch", "--quiet", "--prune", "origin"]);
        self.gitops.git(&["checkout", "--quiet", "--detach", &format!("origin/{branch}")]);
        files(self.gitops.path())
    }

    /// The paths that a pull request changes.
    fn changed(&self, number: u64) -> BTreeSet<String> {
        let path = format!("repos/{USER}/kalypso-gitops/pulls/{number}/files?limit=50");
        let files = self.gitea.call("GET", &path, None);
        files.as_array().unwrap().iter().map(|file| file["filename"].as_str().unwrap().to_owned()).collect()
    }

    /// The open pull requests for the branch dev.
    fn pulls(&self) -> Vec<u64> {
        let pulls = self.gitea.call("GET", &format!("repos/{USER}/kalypso-gitops/pulls?state=open"), None);
        let pulls = pulls.as_array().unwrap().iter().filter(|pull| pull["base"]["ref"] == "dev");
        pulls.map(|pull| pull["number"].as_u64().unwrap()).collect()
    }

    /// Replaces a text in a file of the environment's branch, and pushes that.
    fn edit(&self, path: &str, from: &str, to: &str) {
        let file = self.control_plane.path().join(path);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{path}: {text}");
        self.control_plane.commit(path, &text.replace(from, to));
        self.control_plane.git(&["push", "--quiet", "origin", "HEAD:dev"]);
    }
}

/// The status of the GitOpsRepo of an environment, once it is as it should be.
pub(crate) fn repo_until(kubectl: &Kubectl, namespace: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let get = || kubectl.try_get(&["gitopsrepoes.scheduler.kalypso.io", "--namespace", namespace, "dev"]);
    let found = || get().filter(|repo| is_it(&repo["status"]));
    eventually_or(PATIENCE, found, || format!("{what}: {:#}", get().unwrap_or_default()))
}

fn pull_of(status: &Value) -> Option<u64> {
    status["pullRequest"]["number"].as_u64()
}

#[test]
fn recorded_promotion_becomes_one_pull_request() {
    let Some(gitea) = GiteaServer::start() else {
        return skipped("fleets at a real Git server, since STOA_TEST_GITEA is not set");
    };
    if std::env::var_os("STOA_TEST_RENDERER").is_none() {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    }
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let recorded = Recorded::push(&gitea);
    kubectl.apply_secret(&organization.name, SECRET, &[("username", USER), ("password", &gitea.token)]);
    kubectl.apply(&format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {{name: dev, namespace: {}}}
spec: {{controlPlane: {{repo: \"{}\", branch: dev, path: .}}}}
",
        organization.name, recorded.address
    ));

    // One pull request has the recorded tree, less the file that Kalypso failed to remove.
    let repo = repo_until(&kubectl, "dev", "a pull request", |status| pull_of(status).is_some());
    let number = pull_of(&repo["status"]).unwrap();
    assert_eq!(condition(&repo, "Ready")["reason"], "PRCreated", "{repo:#}");
    assert_eq!(recorded.pulls(), [number]);
    let pull = gitea.call("GET", &format!("repos/{USER}/kalypso-gitops/pulls/{number}"), None);
    assert_eq!(pull["labels"][0]["name"], "promoted", "{pull:#}");
    assert_eq!(pull["title"], "Update manifests in dev from deployment/dev");
    let proposed = recorded.branch("deployment/dev");
    let mut expected = files(&data().join("expected"));
    expected.retain(|path, _| !path.starts_with('.') && path != "large/observability-prometheus/config.yaml");
    expected.insert(".github/tracking/Promoted_Commit_Id".to_owned(), recorded.promoted.clone());
    expected.insert(".github/workflows/check.yaml".to_owned(), "on: push\n".to_owned());
    let found: BTreeSet<&String> = proposed.keys().filter(|path| *path != "README.md").collect();
    assert_eq!(found, expected.keys().collect::<BTreeSet<_>>());
    for (path, text) in &expected {
        assert_eq!(documents(path, &proposed[path]), documents(path, text), "{path}");
    }

    // The objects of Git are served, and scheduled.
    let names = |kind: &str| -> BTreeSet<String> {
        let list = kubectl.get(&[&format!("{kind}.scheduler.kalypso.io"), "--namespace", "dev"]);
        list["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("clustertypes"), ["command-center", "drone", "large", "small", "vm"].map(String::from).into());
    let assigned = [
        "hello-hello-functional-test-command-center",
        "hello-hello-functional-test-drone",
        "hello-hello-int-test-vm",
        "hello-hello-performance-test-large",
        "observability-observability-prometheus-large",
    ];
    let assignments = names("assignments");
    assert!(assigned.iter().all(|name| assignments.contains(*name)), "{assignments:?}");
    let of_workload = kubectl.get(&[
        "assignments.scheduler.kalypso.io",
        "-n",
        "dev",
        "--selector",
        "deployment-target=hello-int-test",
    ]);
    assert_eq!(of_workload["items"].as_array().unwrap().len(), 1, "{of_workload:#}");
    assert_eq!(condition(&of_workload["items"][0], "Ready")["status"], "True", "{of_workload:#}");
    let package = kubectl.get(&["assignmentpackages.scheduler.kalypso.io", "-n", "dev", "hello-hello-int-test-vm"]);
    assert_eq!(package["spec"]["configManifestsContentType"], "sh", "{package:#}");
    // A write to one of them is proposed to its file, and a dry run is not.
    let label = ["label", "clustertypes.scheduler.kalypso.io", "-n", "dev", "drone", "size=large"];
    let file = "cluster-types/east-us/restricted/drones/drone-cluster-type.yaml";
    let proposed = || gitea.call("GET", &format!("repos/{USER}/kalypso-control-plane/pulls?state=open"), None);
    for (more, count) in [(vec!["--dry-run=server"], 0), (vec![], 1), (vec![], 1)] {
        let refused = kubectl.refused(&[&label[..], more.as_slice()].concat());
        assert!(refused.contains("Conflict") || refused.contains("drone-cluster-type.yaml"), "{refused}");
        assert!(refused.contains(&format!("{file} in branch dev")), "{refused}");
        let proposed = proposed();
        assert_eq!(proposed.as_array().unwrap().len(), count, "{refused} {proposed:#}");
        if count > 0 {
            assert_eq!(proposed[0]["head"]["ref"], "edit/dev/clustertype/drone");
            assert!(refused.contains(&format!("pull request {}", proposed[0]["number"])), "{refused}");
        }
    }
    recorded.control_plane.git(&["fetch", "--quiet", "origin"]);
    let edited = recorded.control_plane.git(&["show", &format!("origin/edit/dev/clustertype/drone:{file}")]);
    assert!(edited.contains("size: large"), "{edited}");

    // A merge ends the proposal.
    gitea.merge("kalypso-gitops", number);
    repo_until(&kubectl, "dev", "the branch in sync", |status| status["changedFiles"] == 0);
    assert_eq!(recorded.pulls(), [] as [u64; 0]);

    // An edit of one configuration changes exactly its files, and the next edit updates the same pull request.
    let config = "cluster-types/west-us/west-us-config.yaml";
    recorded.edit(config, "West US", "US West");
    let repo = repo_until(&kubectl, "dev", "another pull request", |status| pull_of(status).is_some());
    let second = pull_of(&repo["status"]).unwrap();
    assert_ne!(second, number);
    let of_west = [
        "large/hello-performance-test/platform-config.yaml",
        "large/observability-prometheus/platform-config.yaml",
        "vm/hello-int-test/platform-config.sh",
    ];
    assert_eq!(recorded.changed(second), of_west.map(String::from).into());
    let first_commit = repo["status"]["pullRequest"]["commit"].clone();
    recorded.edit(config, "US West", "Pacific");
    repo_until(&kubectl, "dev", "an updated pull request", |status| {
        pull_of(status) == Some(second) && status["pullRequest"]["commit"] != first_commit
    });
    assert_eq!((recorded.pulls(), recorded.changed(second)), (vec![second], of_west.map(String::from).into()));
    assert!(recorded.branch("deployment/dev")["vm/hello-int-test/platform-config.sh"].contains("Pacific"));

    // A pull request of people stays, and a commit of theirs on the branch is answered by a proposal.
    gitea.merge("kalypso-gitops", second);
    repo_until(&kubectl, "dev", "the branch in sync", |status| status["changedFiles"] == 0);
    recorded.gitops.git(&["fetch", "--quiet", "origin"]);
    recorded.gitops.git(&["checkout", "--quiet", "-B", "by-hand", "origin/dev"]);
    recorded.gitops.commit("drone/hello-functional-test/namespace.yaml", "kind: Namespace\n");
    recorded.gitops.git(&["push", "--quiet", "origin", "HEAD:dev"]);
    let body = json!({"head": "main", "base": "dev", "title": "Of people"});
    recorded.gitops.git(&["checkout", "--quiet", "-B", "people", "origin/main"]);
    recorded.gitops.commit("notes.md", "Notes\n");
    recorded.gitops.git(&["push", "--quiet", "origin", "HEAD:main"]);
    let of_people = gitea.call("POST", &format!("repos/{USER}/kalypso-gitops/pulls"), Some(&body))["number"].as_u64();
    let repo = repo_until(&kubectl, "dev", "drift", |status| pull_of(status).is_some());
    assert_eq!(condition(&repo, "BranchDrifted")["status"], "True", "{repo:#}");
    let third = pull_of(&repo["status"]).unwrap();
    assert_eq!(recorded.changed(third), ["drone/hello-functional-test/namespace.yaml".to_owned()].into());
    assert!(recorded.pulls().contains(&of_people.unwrap()), "{:?}", recorded.pulls());

    // Without its Environment, the objects of Git are no more.
    kubectl.run(&["delete", "environments.scheduler.kalypso.io", "-n", &organization.name, "dev"]);
    eventually("the objects of Git are deleted", PATIENCE, || names("clustertypes").is_empty().then_some(()));
}

/// A small control plane on this machine: one cluster type of flux, and a workload of an environment.
struct Small {
    control_plane: Repository,
    gitops: Repository,
    namespace: String,
}

impl Small {
    fn new(namespace: &str) -> Self {
        let (control_plane, gitops) = (Repository::new(), Repository::new());
        gitops.commit("README.md", "The fleet\n");
        // A work tree must not be on the branch that is pushed to.
        gitops.git(&["checkout", "--quiet", "-b", "work"]);
        let api = "apiVersion: scheduler.kalypso.io/v1alpha1";
        let all = format!(
            "{api}
kind: GitOpsRepo
metadata: {{name: dev}}
spec: {{repo: \"{gitops}\", branch: main, path: .}}
---
{api}
kind: ClusterType
metadata: {{name: edge, labels: {{size: small}}}}
spec: {{reconciler: flux, namespaceService: default, configType: configMap}}
---
{api}
kind: SchedulingPolicy
metadata: {{name: everywhere}}
spec: {{deploymentTargetSelector: {{labelSelector: {{}}}}, clusterTypeSelector: {{labelSelector: {{}}}}}}
---
{api}
kind: Template
metadata: {{name: flux}}
spec: {{type: reconciler, manifests: [\"kind: Kustomization\\nmetadata:\\n  name: {{{{ .DeploymentTargetName }}}}\\n\"]}}
---
{api}
kind: Template
metadata: {{name: default}}
spec: {{type: namespace, manifests: [\"kind: Namespace\\nmetadata:\\n  name: {{{{ .Namespace }}}}\\n\"]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: all, labels: {{platform-config: \"true\"}}}}
data: {{REGION: north}}
",
            gitops = gitops.url(),
        );
        control_plane.commit("fleet.yaml", &all);
        let small = Self { control_plane, gitops, namespace: namespace.to_owned() };
        small.target("web", "");
        small
    }

    /// Writes a deployment target with a JSON Schema for its configuration.
    fn target(&self, name: &str, schema: &str) {
        let target = json!({
            "apiVersion": "scheduler.kalypso.io/v1alpha1",
            "kind": "DeploymentTarget",
            "metadata": {"name": name, "labels": {"workload": "app"}},
            "spec": {
                "environment": self.namespace,
                "manifests": {"repo": "https://example.com/app", "branch": "main", "path": name},
                "configSchemas": if schema.is_empty() { vec![] } else { vec![schema] },
            },
        });
        self.control_plane.commit(&format!("targets/{name}.yaml"), &target.to_string());
    }

    /// The files of a branch of the GitOps repository.
    fn branch(&self, branch: &str) -> BTreeMap<String, String> {
        // The branch may move meanwhile.
        let commit = self.gitops.git(&["rev-parse", branch]);
        let commit = commit.trim();
        let listed = self.gitops.git(&["ls-tree", "-r", "--name-only", commit]);
        let read = |path: &str| (path.to_owned(), self.gitops.git(&["show", &format!("{commit}:{path}")]));
        listed.lines().map(read).collect()
    }
}

#[test]
fn broken_assignment_stops_no_other() {
    if std::env::var_os("STOA_TEST_RENDERER").is_none() {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    }
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let namespace = &organization.name;
    let small = Small::new(namespace);
    kubectl.apply(&format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {{name: {namespace}, namespace: {namespace}}}
spec: {{controlPlane: {{repo: \"{}\", branch: main, path: .}}}}
",
        small.control_plane.url()
    ));
    let head = format!("deployment/{namespace}");
    // There is no server of pull requests: the branch is pushed, and the status says that people have to do the rest.
    let repo = repo_until(&kubectl, namespace, "the branch", |status| status["changedFiles"] == 4);
    assert_eq!(condition(&repo, "Ready")["reason"], "PRFailed", "{repo:#}");
    let files = small.branch(&head);
    assert!(files["edge/web/namespace.yaml"].contains(&format!("{namespace}-edge-web")), "{files:?}");
    assert!(files["edge/web/platform-config.yaml"].contains("REGION: \"north\""), "{files:?}");
    assert!(files.contains_key("README.md"), "files of people at the root stay: {files:?}");

    // A target whose schema the configuration violates has no files, says why, and holds up no other.
    small.target("strict", r#"{"type": "object", "required": ["COLOR"]}"#);
    small.target("free", "");
    let name = "app-strict-edge";
    let assignment = eventually("the broken assignment", PATIENCE, || {
        let found = kubectl.try_get(&["assignments.scheduler.kalypso.io", "--namespace", namespace, name])?;
        (condition(&found, "Ready")["status"] == "False").then_some(found)
    });
    let message = condition(&assignment, "Ready")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("COLOR"), "{message}");
    let files = eventually("the files of the other", PATIENCE, || {
        Some(small.branch(&head)).filter(|files| files.contains_key("edge/free/reconciler.yaml"))
    });
    assert!(!files.keys().any(|path| path.starts_with("edge/strict/")), "{files:?}");

    // The next page follows though the status of the repository changes meanwhile.
    let list = format!("/apis/scheduler.kalypso.io/v1alpha1/namespaces/{namespace}/assignments?limit=1");
    let page = |path: &str| -> Value { serde_json::from_str(&kubectl.raw(path)).unwrap() };
    let first = page(&list);
    let next = first["metadata"]["continue"].as_str().unwrap();
    let status =
        || kubectl.get(&["gitopsrepoes.scheduler.kalypso.io", "--namespace", namespace, "dev"])["status"].clone();
    let before = status();
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "more", "labels": {"platform-config": "true"}},
        "data": {"MORE": "yes"},
    });
    small.control_plane.commit("more.yaml", &map.to_string());
    eventually("another status", PATIENCE, || (status() != before).then_some(()));
    let second = page(&format!("{list}&continue={next}"));
    assert_eq!(first["items"][0]["metadata"]["name"], "app-free-edge", "{first:#}");
    assert_eq!(second["items"][0]["metadata"]["name"], name, "{second:#}");

    // A repository that is away deletes nothing, and its condition says why.
    let away = small.control_plane.path().with_extension("away");
    fs::rename(small.control_plane.path(), &away).unwrap();
    let ready = || {
        let environment = kubectl.get(&["environments.scheduler.kalypso.io", "--namespace", namespace, namespace]);
        condition(&environment, "Ready")
    };
    eventually("the condition", PATIENCE, || (ready()["status"] == "False").then_some(()));
    let failed = ready();
    assert!(failed["message"].as_str().unwrap().contains("nothing is deleted"), "{failed}");
    // The first retry follows after five seconds. The error stays, with the time of the first failure.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        let now = ready();
        for field in ["status", "reason", "lastTransitionTime"] {
            assert_eq!(now[field], failed[field], "{now}");
        }
        sleep(Duration::from_millis(500));
    }
    assert!(kubectl.try_get(&["clustertypes.scheduler.kalypso.io", "--namespace", namespace, "edge"]).is_some());
    fs::rename(&away, small.control_plane.path()).unwrap();
    eventually("the repository is back", PATIENCE, || (ready()["status"] == "True").then_some(()));

    // An object of people counts beside those of Git.
    kubectl.apply(&format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {{name: core, namespace: {namespace}}}
spec: {{reconciler: flux, namespaceService: default}}
"
    ));
    eventually("files of the object of people", PATIENCE, || {
        small.branch(&head).contains_key("core/web/reconciler.yaml").then_some(())
    });
    kubectl.run(&["delete", "clustertypes.scheduler.kalypso.io", "--namespace", namespace, "core"]);
    eventually("its files are stale", PATIENCE, || {
        (!small.branch(&head).contains_key("core/web/reconciler.yaml")).then_some(())
    });

    // A result that its reader would reject is proposed with a warning.
    kubectl.apply(&format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {{name: days, namespace: {namespace}}}
spec:
  type: reconciler
  manifests:
    - |
      apiVersion: kustomize.toolkit.fluxcd.io/v1
      kind: Kustomization
      metadata: {{name: web}}
      spec: {{interval: 1d, prune: true, sourceRef: {{kind: GitRepository, name: web}}}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {{name: far, namespace: {namespace}}}
spec: {{reconciler: days, namespaceService: default}}
"
    ));
    let warning = eventually("the warning", PATIENCE, || {
        let found = kubectl.try_get(&["assignments.scheduler.kalypso.io", "--namespace", namespace, "app-web-far"])?;
        Some(condition(&found, "ResultsInvalid")).filter(|it| it["status"] == "True")
    });
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("far/web/reconciler.yaml: Kustomization \"web\", spec.interval: \"1d\""), "{message}");
    assert!(small.branch(&head).contains_key("far/web/reconciler.yaml"), "the file is proposed");
    let repo = kubectl.get(&["gitopsrepoes.scheduler.kalypso.io", "--namespace", namespace, "dev"]);
    assert_eq!(condition(&repo, "ResultsInvalid")["status"], "True", "{repo:#}");
    let path = format!("/apis/scheduler.kalypso.io/v1alpha1/namespaces/{namespace}/gitopsrepoes/dev/diff");
    let diff: Value = serde_json::from_str(&kubectl.raw(&path)).unwrap();
    let file = diff["files"].as_array().unwrap().iter().find(|file| file["path"] == "far/web/reconciler.yaml");
    assert!(file.unwrap()["invalid"][0].as_str().unwrap().contains("spec.interval"), "{diff:#}");
}
