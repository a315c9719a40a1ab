use bytes::Bytes;

use super::*;
use crate::testing::labels;

const GROUP: &str = "apiVersion: scheduler.kalypso.io/v1alpha1\n";

fn files(texts: &[&str]) -> Files {
    let file = |(at, text): (usize, &&str)| {
        let text = text.replace("@", GROUP);
        (format!("f{at}.yaml"), Bytes::from(text))
    };
    texts.iter().enumerate().map(file).collect()
}

fn repository(kind: &str, name: &str, more: &str) -> String {
    format!("@kind: {kind}\nmetadata: {{name: {name}}}\nspec: {{repo: r, branch: b, path: ., {more}}}\n")
}

fn cluster_type(name: &str, region: &str) -> String {
    let spec = "spec: {reconciler: r, namespaceService: default}\n";
    format!("@kind: ClusterType\nmetadata: {{name: {name}, labels: {{region: {region}}}}}\n{spec}")
}

const REGISTRATION: &str = "@kind: WorkloadRegistration\nmetadata: {name: app}\nspec: {workload: {repo: r, branch: b, path: p}, workspace: team}\n";

const WORKLOAD: &str = "@kind: Workload
metadata: {name: hello, labels: {family: force, edge: workload}}
spec:
  configSchemas: ['{}']
  deploymentTargets:
  - {name: one, environment: dev, labels: {edge: target, ring: '1'}, manifests: {path: ./one}, configSchemas: ['true']}
  - {name: two, environment: prod, manifests: {}}
";

fn sources(branch: &[&str]) -> Sources {
    Sources { environment: "dev".to_owned(), branch: files(branch), ..Sources::default() }
}

fn problems(plane: &ControlPlane) -> Vec<String> {
    plane.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn base_repositories_and_workloads_are_merged() {
    let base = repository("BaseRepo", "main", "commit: abc");
    let global = repository("BaseRepo", "global", "");
    let mut sources = sources(&[&base, &cluster_type("a", "branch")]);
    let main = files(&[&global, &cluster_type("a", "main"), &cluster_type("b", "main"), REGISTRATION]);
    sources.bases = [("main".to_owned(), main), ("global".to_owned(), files(&[&cluster_type("c", "global")]))].into();
    sources.workloads = [("app".to_owned(), files(&[WORKLOAD]))].into();
    let plane = ControlPlane::read(&sources, None);
    let regions: Vec<&str> = plane.inputs.cluster_types.values().map(|it| it.labels["region"].as_str()).collect();
    assert_eq!(regions, ["branch", "main", "global"]);
    assert_eq!(plane.inputs.promoted_commit.as_deref(), Some("abc"));
    assert!(!plane.inputs.is_incomplete);
    assert_eq!(
        problems(&plane),
        [
            "BaseRepo main: f1.yaml:1: ClusterType a is ignored: environment dev: f1.yaml:1 has one too, which counts; remove or rename one"
        ]
    );
    assert_eq!(plane.problems[0].severity, Severity::Warning);
}

#[test]
fn workload_becomes_targets_of_its_environment() {
    let mut sources = sources(&[REGISTRATION]);
    sources.workloads = [("app".to_owned(), files(&[WORKLOAD]))].into();
    let plane = ControlPlane::read(&sources, None);
    let [target] = plane.inputs.targets.values().collect::<Vec<_>>()[..] else { panic!("{:?}", plane.inputs.targets) };
    assert_eq!(target.name, "hello-one");
    assert_eq!(
        target.labels,
        labels(&[
            ("edge", "workload"),
            ("family", "force"),
            ("kustomize.toolkit.fluxcd.io/name", "dev-app"),
            ("kustomize.toolkit.fluxcd.io/namespace", "flux-system"),
            ("ring", "1"),
            ("workload", "hello"),
            ("workspace", "team"),
        ])
    );
    assert_eq!(target.spec.config_schemas, ["true", "{}"]);
    assert_eq!((target.workload(), target.workspace()), ("hello", "team"));
}

#[test]
fn registered_repository_admits_workloads_only() {
    let mut sources = sources(&[REGISTRATION]);
    sources.workloads = [("app".to_owned(), files(&[WORKLOAD, &cluster_type("mine", "x")]))].into();
    let plane = ControlPlane::read(&sources, None);
    assert!(plane.inputs.cluster_types.is_empty());
    let expected =
        "WorkloadRegistration app: f1.yaml:1: ClusterType mine is ignored: a registered repository has only Workloads";
    assert_eq!(problems(&plane), [expected]);
}

#[test]
fn missing_repository_leaves_the_inputs_incomplete() {
    let base = repository("BaseRepo", "main", "");
    let plane = ControlPlane::read(&sources(&[&base, REGISTRATION]), None);
    assert!(plane.inputs.is_incomplete);
    assert_eq!(
        problems(&plane),
        [
            "environment dev: f0.yaml:1: BaseRepo main: its repository was not read; check its repo, branch and path",
            "environment dev: f1.yaml:1: WorkloadRegistration app: its repository was not read; check its repo, branch and path",
        ]
    );
}

#[test]
fn targets_of_one_name_are_reported() {
    let direct = "@kind: DeploymentTarget\nmetadata: {name: hello-one}\nspec: {environment: dev, manifests: {}}\n";
    let elsewhere = "@kind: DeploymentTarget\nmetadata: {name: other}\nspec: {environment: prod, manifests: {}}\n";
    let bad = WORKLOAD.replace("name: hello", "name: bad").replace("name: one", "name: ../x");
    let plane = ControlPlane::read(&sources(&[direct, elsewhere, WORKLOAD, &bad]), None);
    assert_eq!(plane.inputs.targets.keys().collect::<Vec<_>>(), ["hello-one"]);
    assert_eq!(
        problems(&plane),
        [
            "environment dev: f3.yaml:1: Workload bad: target \"../x\": name \"bad-../x\" is invalid; use at most 253 lower case letters, digits, `-` and `.`",
            "environment dev: f2.yaml:1: Workload hello: target \"one\" is ignored: environment dev: f0.yaml:1 has the DeploymentTarget hello-one too; rename one",
        ]
    );
}

#[test]
fn unreadable_file_keeps_its_objects_of_before() {
    let good = sources(&[&cluster_type("a", "x")]);
    let before = ControlPlane::read(&good, None);
    let bad = ControlPlane::read(&sources(&["kind: ["]), Some(&before));
    assert_eq!(bad.inputs.cluster_types, before.inputs.cluster_types);
    assert!(!bad.inputs.is_incomplete && bad.problems.len() == 1);
    assert!(ControlPlane::read(&sources(&["kind: ["]), None).inputs.is_incomplete);
}

#[test]
fn unchanged_objects_are_shared_with_the_last_reading() {
    let before = ControlPlane::read(&sources(&[&cluster_type("a", "x"), &cluster_type("b", "x")]), None);
    let after = ControlPlane::read(&sources(&[&cluster_type("a", "x"), &cluster_type("b", "z")]), Some(&before));
    let is_shared = |name: &str| Arc::ptr_eq(&before.inputs.cluster_types[name], &after.inputs.cluster_types[name]);
    assert!(is_shared("a") && !is_shared("b"));
}

#[test]
fn folders_are_paths_from_the_root() {
    for (path, expected) in [
        (".", Some("")),
        ("./workloads", Some("workloads")),
        ("workload/", Some("workload")),
        ("/a//b/./c", Some("a/b/c")),
        ("a/../b", Some("b")),
        ("../a", None),
        ("a/../../b", None),
    ] {
        assert_eq!(folder(path).as_deref(), expected, "{path}");
    }
    let all = files(&["", ""])
        .into_iter()
        .chain([("a/b.yaml".to_owned(), Bytes::new()), ("ab/c.yaml".to_owned(), Bytes::new())]);
    let all: Files = all.collect();
    assert_eq!(within(&all, "a").keys().collect::<Vec<_>>(), ["b.yaml"]);
    assert_eq!(within(&all, "").len(), 4);
}

#[test]
fn decisions_are_about_policies_with_a_scheduler() {
    let policy = |name: &str, more: &str| {
        let any = "{labelSelector: {}}";
        format!(
            "@kind: SchedulingPolicy\nmetadata: {{name: {name}}}\n\
             spec: {{deploymentTargetSelector: {any}, clusterTypeSelector: {any}{more}}}\n"
        )
    };
    let external = policy("external", ", scheduler: {name: ocm, parameters: {placement: drones}}");
    let mut sources = sources(&[&policy("labels", ""), &external]);
    let plane = ControlPlane::read(&sources, None);
    assert!(plane.inputs.keeps_files() && !plane.inputs.is_incomplete);
    let scheduler = plane.inputs.policies["external"].spec.scheduler.as_ref().unwrap();
    assert_eq!((scheduler.name.as_str(), scheduler.parameters["placement"].as_str()), ("ocm", "drones"));
    let decisions = Arc::new(vec![Decision::default()]);
    sources.decisions = ["labels", "external", "gone"].map(|name| (name.to_owned(), decisions.clone())).into();
    let plane = ControlPlane::read(&sources, None);
    assert_eq!(plane.inputs.decisions.keys().collect::<Vec<_>>(), ["external"]);
    assert!(!plane.inputs.keeps_files());
}
