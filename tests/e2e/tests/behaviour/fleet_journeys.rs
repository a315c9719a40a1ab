//! Journeys of teams over a fleet: services, policies and restrictions of the platform, releases of workloads, and one service
//! under several control planes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use stoa_e2e::fixture::{Organization, Repository};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, eventually_or, skipped};

use crate::PATIENCE;

/// Two cluster types that take services, and a template that shows a branch. `GITOPS` stands for the URL.
const OBJECTS: &str = "apiVersion: scheduler.kalypso.io/v1alpha1
kind: GitOpsRepo
metadata: {name: dev}
spec: {repo: \"GITOPS\", branch: main, path: .}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: edge, labels: {managed: \"true\"}}
spec: {reconciler: branches, namespaceService: egress}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: core, labels: {managed: \"true\"}}
spec: {reconciler: branches, namespaceService: egress}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: services}
spec:
  deploymentTargetSelector: {workspace: platform-team, labelSelector: {}}
  clusterTypeSelector: {labelSelector: {matchLabels: {managed: \"true\"}}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: applications}
spec:
  deploymentTargetSelector: {workspace: shop, labelSelector: {}}
  clusterTypeSelector: {labelSelector: {}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: branches}
spec:
  type: reconciler
  manifests:
    - |
      kind: Kustomization
      metadata:
        name: {{ .DeploymentTargetName }}
      spec:
        branch: {{ .Manifests.branch }}
";

/// A cluster type that takes services or not.
fn lab(is_managed: bool) -> String {
    format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {{name: lab, labels: {{managed: \"{is_managed}\"}}}}
spec: {{reconciler: branches, namespaceService: egress}}
"
    )
}

/// The policy of the platform for the namespace of each workload.
fn policy(egress: &str) -> String {
    format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {{name: egress}}
spec:
  type: namespace
  manifests:
    - |
      kind: NetworkPolicy
      metadata:
        namespace: {{{{ .Namespace }}}}
      spec:
        egress: {egress}
"
    )
}

/// A Workload with a target for each environment, whose manifests are in a branch.
fn workload(name: &str, branch: &str, environments: &[&str]) -> String {
    let target = |environment: &&str| {
        format!(
            "  - {{name: in-{environment}, environment: {environment}, manifests: {{repo: \"https://git.example.com/{name}\", \
             branch: {branch}, path: ./main}}}}\n"
        )
    };
    let targets: String = environments.iter().map(target).collect();
    format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {{name: {name}}}
spec:
  deploymentTargets:
{targets}"
    )
}

type Files = BTreeMap<String, String>;

/// The paths of files that differ.
fn changed(before: &Files, after: &Files) -> BTreeSet<String> {
    let paths = before.keys().chain(after.keys());
    paths.filter(|path| before.get(*path) != after.get(*path)).cloned().collect()
}

/// A control plane on this machine with its GitOps repository. The environment is a namespace.
struct Platform {
    control_plane: Repository,
    gitops: Repository,
    environment: String,
}

impl Platform {
    fn new(environment: &str) -> Self {
        let (control_plane, gitops) = (Repository::new(), Repository::new());
        gitops.commit("README.md", "The fleet\n");
        // A work tree must not be on the branch that is pushed to.
        gitops.git(&["checkout", "--quiet", "-b", "work"]);
        control_plane.commit("fleet.yaml", &OBJECTS.replace("GITOPS", &gitops.url()));
        control_plane.commit("lab.yaml", &lab(false));
        control_plane.commit("policy.yaml", &policy("none"));
        Self { control_plane, gitops, environment: environment.to_owned() }
    }

    /// Registers the Workloads of a repository for a workspace.
    fn register(&self, workspace: &str, repository: &Repository) {
        let registration = format!(
            "apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {{name: {workspace}}}
spec:
  workload: {{repo: \"{}\", branch: main, path: workloads}}
  workspace: {workspace}
",
            repository.url()
        );
        self.control_plane.commit(&format!("registrations/{workspace}.yaml"), &registration);
    }

    /// Creates the Environment.
    fn serve(&self, kubectl: &Kubectl, namespace: &str) {
        kubectl.apply(&format!(
            "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {{name: {}, namespace: {namespace}}}
spec: {{controlPlane: {{repo: \"{}\", branch: main, path: .}}}}
",
            self.environment,
            self.control_plane.url()
        ));
    }

    /// The files that are proposed; none before the first proposal.
    fn files(&self) -> Files {
        let head = format!("refs/heads/deployment/{}", self.environment);
        // The branch may move meanwhile.
        let commit = self.gitops.git(&["for-each-ref", "--format=%(objectname)", &head]);
        let commit = commit.trim();
        if commit.is_empty() {
            return Files::new();
        }
        let listed = self.gitops.git(&["ls-tree", "-r", "--name-only", commit]);
        let read = |path: &str| (path.to_owned(), self.gitops.git(&["show", &format!("{commit}:{path}")]));
        listed.lines().map(read).collect()
    }

    /// The proposed files, once they are as they should be.
    fn until(&self, what: &str, is_it: impl Fn(&Files) -> bool) -> Files {
        let found = || Some(self.files()).filter(|files| is_it(files));
        eventually_or(PATIENCE, found, || format!("{what}: {:#?}", self.files()))
    }

    /// The proposed files, once each of these has a text.
    fn until_each(&self, paths: &BTreeSet<String>, text: &str) -> Files {
        let has = |files: &Files, path: &String| files.get(path).is_some_and(|file| file.contains(text));
        self.until(text, |files| paths.iter().all(|path| has(files, path)))
    }

    /// The paths of a file of a workload on cluster types.
    fn paths(&self, cluster_types: &[&str], workload: &str, file: &str) -> BTreeSet<String> {
        let path = |on: &&str| format!("{on}/{workload}-in-{}/{file}", self.environment);
        cluster_types.iter().map(path).collect()
    }
}

/// A platform with a service on two cluster types and an application on three, and their repositories.
struct Journey {
    kubectl: Kubectl,
    platform: Platform,
    service: Repository,
    application: Repository,
    /// The files once both workloads are everywhere.
    files: Files,
}

const MANAGED: [&str; 2] = ["core", "edge"];
const ALL: [&str; 3] = ["core", "edge", "lab"];

impl Journey {
    /// `None` without a renderer.
    fn begin() -> Option<Self> {
        std::env::var_os("STOA_TEST_RENDERER")?;
        let server = Cluster::shared();
        let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
        let environment = organization.name.as_str();
        let (platform, service, application) = (Platform::new(environment), Repository::new(), Repository::new());
        service.commit("workloads/monitor.yaml", &workload("monitor", "v1", &[environment]));
        application.commit("workloads/shop.yaml", &workload("shop", "v1", &[environment]));
        platform.register("platform-team", &service);
        platform.register("shop", &application);
        platform.serve(&kubectl, environment);
        let mut all = platform.paths(&MANAGED, "monitor", "reconciler.yaml");
        all.extend(platform.paths(&ALL, "shop", "reconciler.yaml"));
        let files = platform.until_each(&all, "branch: v1");
        let found: BTreeSet<String> = files.keys().filter(|path| path.ends_with("/reconciler.yaml")).cloned().collect();
        assert_eq!(found, all, "a service is on the managed cluster types alone");
        Some(Self { kubectl, platform, service, application, files })
    }

    fn environment(&self) -> &str {
        &self.platform.environment
    }
}

#[test]
fn service_and_policy_of_the_platform_reach_their_cluster_types() {
    let Some(journey) = Journey::begin() else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let (platform, files) = (&journey.platform, &journey.files);
    // A cluster type that becomes managed gets the service, and nothing else changes.
    platform.control_plane.commit("lab.yaml", &lab(true));
    let mut folder = platform.paths(&["lab"], "monitor", "reconciler.yaml");
    let joined = platform.until_each(&folder, "branch: v1");
    for file in ["namespace.yaml", "platform-config.yaml"] {
        folder.extend(platform.paths(&["lab"], "monitor", file));
    }
    assert_eq!(changed(files, &joined), folder);

    // A policy reaches every workload of every cluster type, and nothing else.
    platform.control_plane.commit("policy.yaml", &policy("dns"));
    let mut namespaces = platform.paths(&ALL, "monitor", "namespace.yaml");
    namespaces.extend(platform.paths(&ALL, "shop", "namespace.yaml"));
    let restricted = platform.until_each(&namespaces, "egress: dns");
    assert_eq!(changed(&joined, &restricted), namespaces);

    // A cluster type that is managed no more loses the service.
    platform.control_plane.commit("lab.yaml", &lab(false));
    let left = platform.until("lab without the service", |files| files.keys().all(|path| !folder.contains(path)));
    assert_eq!(changed(&restricted, &left), folder);
}

#[test]
fn release_of_a_workload_reaches_all_its_cluster_types() {
    let Some(journey) = Journey::begin() else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let (environment, platform) = (journey.environment(), &journey.platform);
    // The application team writes in its own repository alone.
    journey.application.commit("workloads/shop.yaml", &workload("shop", "v2", &[environment]));
    let of_application = platform.paths(&ALL, "shop", "reconciler.yaml");
    let released = platform.until_each(&of_application, "branch: v2");
    assert_eq!(changed(&journey.files, &released), of_application);
    // So do the owners of a service.
    journey.service.commit("workloads/monitor.yaml", &workload("monitor", "v2", &[environment]));
    let of_service = platform.paths(&MANAGED, "monitor", "reconciler.yaml");
    let serviced = platform.until_each(&of_service, "branch: v2");
    assert_eq!(changed(&released, &serviced), of_service);
    let selector = "--selector=workload=shop";
    let served = || {
        let targets = ["deploymenttargets.scheduler.kalypso.io", "--namespace", environment, selector];
        journey.kubectl.get(&targets)["items"][0]["spec"]["manifests"]["branch"].clone()
    };
    eventually("the served target has the release", PATIENCE, || (served() == "v2").then_some(()));
}

#[test]
fn control_planes_share_a_service() {
    if std::env::var_os("STOA_TEST_RENDERER").is_none() {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    }
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let names = ["a", "b"].map(|end| format!("{}-{end}", organization.name));
    let environments: Vec<&str> = names.iter().map(String::as_str).collect();
    let service = Repository::new();
    service.commit("workloads/monitor.yaml", &workload("monitor", "v1", &environments));
    let platforms = environments.iter().map(|name| Platform::new(name)).collect::<Vec<_>>();
    let until_all = |branch: &str| -> Vec<Files> {
        let until = |platform: &Platform| {
            let paths = platform.paths(&MANAGED, "monitor", "reconciler.yaml");
            platform.until_each(&paths, &format!("branch: {branch}"))
        };
        platforms.iter().map(until).collect()
    };
    for platform in &platforms {
        platform.register("platform-team", &service);
        platform.serve(&kubectl, &organization.name);
    }
    let first = until_all("v1");
    let is_of = |files: &Files, name: &str| files.keys().any(|path| path.contains(&format!("monitor-in-{name}/")));
    assert!(!is_of(&first[0], environments[1]) && !is_of(&first[1], environments[0]), "{first:#?}");

    // Each control plane decides about its own clusters.
    platforms[1].control_plane.commit("lab.yaml", &lab(true));
    let of_lab = platforms[1].paths(&["lab"], "monitor", "reconciler.yaml");
    platforms[1].until_each(&of_lab, "branch: v1");
    // A release of the service reaches all of them.
    service.commit("workloads/monitor.yaml", &workload("monitor", "v2", &environments));
    let second = until_all("v2");
    platforms[1].until_each(&of_lab, "branch: v2");
    let of_first = platforms[0].paths(&MANAGED, "monitor", "reconciler.yaml");
    assert_eq!(changed(&first[0], &second[0]), of_first, "the other control plane changes nothing here");
}

/// The shipped templates.
fn shipped() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/fleet");
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(&path).unwrap())
    };
    files.map(read).collect()
}

/// The files of a workload on the cluster type `strict`, by their names. Its templates are shipped ones.
fn of_shipped(kubectl: &Kubectl, environment: &str, templates: [&str; 3], values: &str) -> Files {
    let platform = Platform::new(environment);
    for (name, text) in shipped() {
        platform.control_plane.commit(&format!("templates/{name}"), &text);
    }
    let [reconciler, namespace, config] = templates;
    let objects = format!(
        "apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {{name: strict}}
spec: {{reconciler: {reconciler}, namespaceService: {namespace}, configType: {config}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: strict, labels: {{platform-config: \"true\", cluster-type: strict}}}}
data: {values}
"
    );
    platform.control_plane.commit("strict.yaml", &objects);
    let application = Repository::new();
    application.commit("workloads/shop.yaml", &workload("shop", "v1", &[environment]));
    platform.register("shop", &application);
    platform.serve(kubectl, environment);
    let folder = format!("strict/shop-in-{environment}/");
    let is_there = |files: &Files| files.contains_key(&format!("{folder}reconciler.yaml"));
    let files = platform.until("the folder of the workload", is_there);
    let of_folder = files.into_iter().filter_map(|(path, text)| Some((path.strip_prefix(&folder)?.to_owned(), text)));
    of_folder.collect()
}

#[test]
fn workload_may_do_what_its_folder_permits() {
    if std::env::var_os("STOA_TEST_RENDERER").is_none() {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    }
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let environment = organization.name.as_str();
    let templates = ["flux-restricted", "restricted-namespace", "config-map"];
    let files = of_shipped(&kubectl, environment, templates, "{QUOTA: \"{pods: 20}\"}");
    let namespace = format!("{environment}-strict-shop-in-{environment}");
    // No Flux is here: the test applies what Flux does, without Flux's own kinds.
    kubectl.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n");
    kubectl.apply(&files["namespace.yaml"]);
    let is_access = |document: &&str| {
        ["ServiceAccount", "Role", "RoleBinding"].iter().any(|kind| document.contains(&format!("\nkind: {kind}\n")))
    };
    let access: Vec<&str> = files["reconciler.yaml"].split("---\n").filter(is_access).collect();
    assert_eq!(access.len(), 3, "{}", files["reconciler.yaml"]);
    kubectl.apply(&access.join("---\n"));
    let quota = kubectl.get(&["resourcequotas", "platform", "--namespace", &namespace]);
    assert_eq!(quota["spec"]["hard"]["pods"], "20", "{quota:#}");

    let flux = kubectl.impersonate(&format!("system:serviceaccount:flux-system:{namespace}"));
    let object = |api_version: &str, kind: &str, namespace: &str, rest: &str| {
        format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: own, namespace: {namespace}}}\n{rest}\n")
    };
    let pods = "{selector: {matchLabels: {app: own}}, template: {metadata: {labels: {app: own}}, \
                spec: {containers: [{name: own, image: own}]}}}";
    for permitted in [
        object("apps/v1", "Deployment", &namespace, &format!("spec: {pods}")),
        object("v1", "ConfigMap", &namespace, "data: {a: b}"),
        object("v1", "Service", &namespace, "spec: {ports: [{port: 80}]}"),
    ] {
        // The authorizer of the cluster reads a new RoleBinding a moment later.
        let created = || flux.would_create(&permitted).ok();
        eventually_or(PATIENCE, created, || format!("{permitted}: {:?}", flux.would_create(&permitted)));
    }
    let role = "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: []";
    for forbidden in [
        object("networking.k8s.io/v1", "NetworkPolicy", &namespace, "spec: {podSelector: {}}"),
        object("v1", "ResourceQuota", &namespace, "spec: {hard: {pods: \"9999\"}}"),
        object("rbac.authorization.k8s.io/v1", "RoleBinding", &namespace, role),
        object("v1", "ConfigMap", environment, "data: {a: b}"),
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: own}\n".to_owned(),
    ] {
        let error = flux.would_create(&forbidden).expect_err(&forbidden);
        assert!(error.contains("orbidden"), "{forbidden}: {error}");
    }
}

#[test]
fn hub_of_a_cluster_of_clusters_takes_its_files() {
    let Ok(folder) = std::env::var("STOA_TEST_OCM") else {
        return skipped("Open Cluster Management, since STOA_TEST_OCM is not set");
    };
    if std::env::var_os("STOA_TEST_RENDERER").is_none() {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    }
    let server = Cluster::shared();
    let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
    let file = "work/v1alpha1/0000_00_work.open-cluster-management.io_manifestworkreplicasets.crd.yaml";
    kubectl.apply(&fs::read_to_string(Path::new(&folder).join(file)).unwrap());
    let definition = "crd/manifestworkreplicasets.work.open-cluster-management.io";
    kubectl.run(&["wait", "--for=condition=Established", "--timeout=120s", definition]);
    let templates = ["ocm-clusters", "ocm-clusters-namespace", "ocm-clusters-config"];
    let files = of_shipped(&kubectl, &organization.name, templates, "{PLACEMENT: drones, REGION: north}");
    assert_eq!(files.keys().collect::<Vec<_>>(), ["namespace.yaml", "platform-config.yaml", "reconciler.yaml"]);
    // The dry run of kubectl rejects fields that the kind does not have.
    for (name, text) in &files {
        kubectl.would_create(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.contains("- name: drones\n"), "{name}: {text}");
    }
    assert!(files["platform-config.yaml"].contains("REGION: north"), "{}", files["platform-config.yaml"]);
}
