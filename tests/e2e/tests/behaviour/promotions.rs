//! Promotions: one commit through the environments of a fleet, gated by approvals, checks and the reports of clusters.

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository, condition};
use stoa_e2e::{Cluster, Kubectl, Server as _, eventually, eventually_or, skipped};

use crate::PATIENCE;
use crate::fleet::repo_until;
use crate::hub::report_in;

/// A control plane with two environments, each with a branch, over one base.
struct Stages {
    control_plane: Repository,
    gitops: Repository,
    /// The names of the environments, which are branches too.
    names: [String; 2],
}

impl Stages {
    /// The cluster types have a label `ring`.
    fn new(names: [String; 2], cluster_types: &[(&str, &str)]) -> (Self, String) {
        let stages = Self { control_plane: Repository::new(), gitops: Repository::new(), names };
        let first = stages.base("one");
        stages.gitops.commit("README.md", "The fleet\n");
        for name in &stages.names {
            stages.gitops.git(&["branch", name]);
            stages.control_plane.git(&["checkout", "--quiet", "--orphan", name]);
            stages.control_plane.git(&["rm", "-r", "--quiet", "--force", "."]);
            let api = "apiVersion: scheduler.kalypso.io/v1alpha1";
            let objects = format!(
                "{api}
kind: GitOpsRepo
metadata: {{name: dev}}
spec: {{repo: \"{}\", branch: {name}, path: .}}
---
{api}
kind: DeploymentTarget
metadata: {{name: web, labels: {{workload: app}}}}
spec: {{environment: {name}, manifests: {{path: web}}}}
---
{api}
kind: SchedulingPolicy
metadata: {{name: everywhere}}
spec: {{deploymentTargetSelector: {{labelSelector: {{}}}}, clusterTypeSelector: {{labelSelector: {{}}}}}}
",
                stages.gitops.url()
            );
            let cluster_types = cluster_types.iter().map(|(cluster_type, ring)| {
                format!(
                    "---
{api}
kind: ClusterType
metadata: {{name: {cluster_type}, labels: {{ring: \"{ring}\"}}}}
spec: {{reconciler: flux, namespaceService: flux}}
"
                )
            });
            stages.control_plane.commit("fleet.yaml", &(objects + &cluster_types.collect::<String>()));
            let base = format!(
                "# The promoted commit\n{api}\nkind: BaseRepo\nmetadata: {{name: main}}\nspec:\n  repo: \"{}\"\n  branch: main\n  \
                 path: .\n  commit: {first}\n",
                stages.control_plane.url()
            );
            stages.control_plane.commit("base-repo.yaml", &base);
        }
        stages.control_plane.git(&["checkout", "--quiet", "--detach", "main"]);
        (stages, first)
    }

    /// Commits the base with a value in its template.
    fn base(&self, value: &str) -> String {
        if self.control_plane.path().join("template.yaml").exists() {
            self.control_plane.git(&["checkout", "--quiet", "main"]);
        }
        let template = format!(
            "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {{name: flux}}
spec:
  type: reconciler
  manifests:
    - 'kind: {value}'
"
        );
        let commit = self.control_plane.commit("template.yaml", &template);
        self.control_plane.git(&["checkout", "--quiet", "--detach", "main"]);
        commit
    }

    /// Merges the proposal of an environment.
    fn merge(&self, name: &str) {
        let head = format!("refs/heads/deployment/{name}");
        self.gitops.git(&["update-ref", &format!("refs/heads/{name}"), &head]);
    }

    /// The commit of a branch of the GitOps repository.
    fn head(&self, branch: &str) -> String {
        self.gitops.git(&["rev-parse", branch]).trim().to_owned()
    }

    /// Whether a proposal has the value of a base for a cluster type.
    fn proposes(&self, name: &str, cluster_type: &str, value: &str) -> bool {
        let file = format!("deployment/{name}:{cluster_type}/web/reconciler.yaml");
        self.gitops.git(&["show", &file]).contains(&format!("kind: {value}"))
    }

    /// The commit that the branch of an environment names.
    fn commit_of(&self, name: &str) -> String {
        let file = self.control_plane.git(&["show", &format!("{name}:base-repo.yaml")]);
        assert!(file.starts_with("# The promoted commit\n"), "comments stay: {file}");
        let line = file.lines().find_map(|line| line.trim().strip_prefix("commit: ")).unwrap();
        line.to_owned()
    }
}

/// Two environments in sync with the first commit of their base, and a promotion of the second.
struct Promoting {
    kubectl: Kubectl,
    stages: Stages,
    namespace: String,
    first: String,
    second: String,
}

impl Promoting {
    /// `None` without a renderer.
    fn new(cluster_types: &[(&str, &str)]) -> Option<Self> {
        std::env::var_os("STOA_TEST_RENDERER")?;
        let server = Cluster::shared();
        let (kubectl, organization) = (server.kubectl(), Organization::create(&server));
        let namespace = organization.name.clone();
        let names = [format!("{namespace}-a"), format!("{namespace}-b")];
        let (stages, first) = Stages::new(names.clone(), cluster_types);
        for name in &names {
            kubectl.apply(&format!(
                "apiVersion: scheduler.kalypso.io/v1alpha1
kind: Environment
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{controlPlane: {{repo: \"{}\", branch: {name}, path: .}}}}
",
                stages.control_plane.url()
            ));
        }
        let mut promoting = Self { kubectl, stages, namespace, first, second: String::new() };
        for name in &names {
            promoting.merge(name);
            let first = promoting.first.as_str();
            repo_until(&promoting.kubectl, name, "the files in the branch", |status| {
                status["changedFiles"] == 0 && status["promotedCommit"] == first
            });
        }
        promoting.second = promoting.stages.base("two");
        Some(promoting)
    }

    /// Merges the proposal of an environment, once it is there.
    fn merge(&self, name: &str) {
        repo_until(&self.kubectl, name, "a proposal", |status| status["changedFiles"].as_u64() > Some(0));
        self.stages.merge(name);
    }

    /// Promotes the second commit. `environments` is a list in YAML, in which `A` and `B` stand for the names.
    fn begin(&self, environments: &str) {
        let [a, b] = &self.stages.names;
        let environments = environments.replace("environment: A", &format!("environment: {a}"));
        let environments = environments.replace("environment: B", &format!("environment: {b}"));
        let (namespace, second) = (&self.namespace, &self.second);
        self.kubectl.apply(&format!(
            "apiVersion: delivery.stoa.dev/v1alpha1
kind: Promotion
metadata: {{name: release, namespace: {namespace}}}
spec:
  commit: {second}
  environments: {environments}
"
        ));
    }

    fn get(&self) -> Value {
        self.kubectl.get(&["promotions.delivery.stoa.dev", "--namespace", &self.namespace, "release"])
    }

    /// The status of an environment in the promotion, once it has a phase.
    fn until(&self, at: usize, phase: &str) -> Value {
        let environment = || self.get()["status"]["environments"][at].clone();
        let found = || Some(environment()).filter(|it| it["phase"] == phase);
        eventually_or(PATIENCE, found, || format!("environment {at} is {phase}: {:#}", self.get()))
    }

    /// Patches the promotion, or a subresource of it.
    fn patch(&self, subresource: &str, patch: &Value) {
        let (patch, subresource) = (format!("--patch={patch}"), format!("--subresource={subresource}"));
        let release = [
            "patch",
            "promotions.delivery.stoa.dev",
            "release",
            "--namespace",
            &self.namespace,
            "--type=merge",
            &patch,
        ];
        let more = if subresource.ends_with('=') { Vec::new() } else { vec![subresource.as_str()] };
        self.kubectl.run(&[&release[..], &more].concat());
    }

    /// Registers the reconciler of a host for the folder of a cluster type in the first environment.
    fn reconciler(&self, host: &str, cluster_type: &str) {
        let endpoint = format!("{}/{}/{cluster_type}", self.stages.gitops.url(), self.stages.names[0]);
        self.kubectl.apply(&format!(
            "apiVersion: hub.kalypso.io/v1alpha1
kind: Reconciler
metadata: {{name: {host}, namespace: {}, labels: {{fleet: drones}}}}
spec: {{hostName: {host}, reconcilerName: fleet, reconcilerType: flux, manifestsEndpoint: \"{endpoint}\"}}
",
            self.namespace
        ));
    }

    /// Reports the head of the branch of the first environment.
    fn report(&self, reports: &[(&str, &str)]) {
        let head = self.stages.head(&self.stages.names[0]);
        let deployment = |(host, status): &(&str, &str)| {
            let message = if *status == "failure" { "no such image" } else { "" };
            json!({"reconciler": host, "gitOpsCommitId": head, "status": status, "statusMessage": message})
        };
        let deployments = reports.iter().map(deployment).collect::<Vec<_>>();
        report_in(&self.kubectl, &self.namespace, &json!(deployments)).unwrap();
    }
}

#[test]
fn promotion_waits_for_each_environment() {
    let Some(promoting) = Promoting::new(&[("edge", "1")]) else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let Promoting { kubectl, stages, namespace, first, second } = &promoting;
    let names = &stages.names;
    promoting.begin("[{environment: A}, {environment: B, approval: true}]");
    let promotion = || promoting.get();
    let phases = || -> [String; 2] {
        let status = promotion()["status"].clone();
        [0, 1].map(|at| status["environments"][at]["phase"].as_str().unwrap_or_default().to_owned())
    };
    let until = |what: &str, expected: [&str; 2]| {
        eventually_or(PATIENCE, || (phases() == expected).then_some(()), || format!("{what}: {:#}", promotion()));
    };
    // The second environment does not begin before the first has the files.
    until("the first is proposed", ["Proposed", "Pending"]);
    assert_eq!((stages.commit_of(&names[0]), stages.commit_of(&names[1])), (second.clone(), first.clone()));
    promoting.merge(&names[0]);
    until("the second waits for its approval", ["Promoted", "Waiting"]);
    assert!(promotion()["status"]["environments"][1]["message"].as_str().unwrap().contains("approval"));
    assert_eq!(stages.commit_of(&names[1]), *first);

    let approvals = format!("--patch={}", json!({"status": {"approvals": [{"environment": names[1]}]}}));
    let release = ["promotions.delivery.stoa.dev", "release", "--namespace", namespace, "--type=merge"];
    kubectl.run(&[&["patch"][..], &release[..], &["--subresource=approval", approvals.as_str()][..]].concat());
    until("the second is proposed", ["Promoted", "Proposed"]);
    promoting.merge(&names[1]);
    until("both have the commit", ["Promoted", "Promoted"]);
    assert!(!promotion()["status"]["approvals"][0]["approver"].as_str().unwrap().is_empty());

    // The last environment is the first to have its earlier commit again.
    kubectl.run(&[&["patch"][..], &release[..], &["--patch={\"spec\":{\"rollBack\":true}}"][..]].concat());
    until("the second is rolled back", ["Promoted", "RollingBack"]);
    assert_eq!((stages.commit_of(&names[0]), stages.commit_of(&names[1])), (second.clone(), first.clone()));
}

#[test]
fn edit_of_an_environment_promotes_nothing() {
    let Some(promoting) = Promoting::new(&[("edge", "1")]) else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let Promoting { kubectl, stages, first, .. } = &promoting;
    let [a, b] = &stages.names;
    let head = stages.head(b);
    stages.control_plane.git(&["checkout", "--quiet", a]);
    let cluster_type = "apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: core}
spec: {reconciler: flux, namespaceService: flux}
";
    stages.control_plane.commit("core.yaml", cluster_type);
    stages.control_plane.git(&["checkout", "--quiet", "--detach", "main"]);
    promoting.merge(a);
    let repo = repo_until(kubectl, a, "the files in the branch", |status| status["changedFiles"] == 0);
    assert_eq!(repo["status"]["promotedCommit"], first.as_str(), "{repo:#}");
    assert!(stages.proposes(a, "core", "one"), "the newer commit of the base is not promoted");
    assert_eq!((stages.commit_of(a), stages.commit_of(b)), (first.clone(), first.clone()));
    assert_eq!(stages.head(b), head);
}

#[test]
fn reported_failure_stops_a_promotion() {
    let Some(promoting) = Promoting::new(&[("edge", "1")]) else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let [a, b] = promoting.stages.names.clone();
    promoting.reconciler("drone-1", "edge");
    promoting.reconciler("drone-2", "edge");
    // Success of the commit before is no report of the promoted one.
    promoting.report(&[("drone-1", "success"), ("drone-2", "success")]);
    promoting.begin("[{environment: A, reports: {selector: {matchLabels: {fleet: drones}}}}, {environment: B}]");
    promoting.until(0, "Proposed");
    promoting.merge(&a);
    let environment = promoting.until(0, "Verifying");
    assert_eq!(environment["reports"]["total"], 2, "{environment:#}");
    assert_eq!(environment["reports"]["succeeded"], 0, "{environment:#}");

    promoting.report(&[("drone-1", "success"), ("drone-2", "failure")]);
    let environment = promoting.until(0, "Failed");
    let counts = json!({"total": 2, "succeeded": 1, "failed": 1, "inProgress": 0});
    assert_eq!(environment["reports"], counts, "{environment:#}");
    let promotion = promoting.get();
    let failed = condition(&promotion, "Failed");
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("True"), &json!("EnvironmentFailed")), "{promotion:#}");
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains("Reconciler drone-2") && message.contains("no such image"), "{message}");
    assert_eq!(promotion["status"]["phase"], "Failed", "{promotion:#}");
    assert_eq!(promotion["status"]["environments"][1]["phase"], "Pending", "{promotion:#}");
    assert_eq!(promoting.stages.commit_of(&b), promoting.first);

    // A later commit of the branch has the promoted files too.
    promoting.stages.gitops.git(&["checkout", "--quiet", "--detach", &a]);
    promoting.stages.gitops.commit("NOTES.md", "Notes of people\n");
    promoting.stages.gitops.git(&["update-ref", &format!("refs/heads/{a}"), "HEAD"]);
    promoting.report(&[("drone-2", "success")]);
    promoting.until(0, "Promoted");
    promoting.until(1, "Proposed");
    assert_eq!(condition(&promoting.get(), "Failed")["status"], "False");
    assert_eq!(promoting.stages.commit_of(&b), promoting.second);
}

#[test]
fn wave_changes_its_cluster_types_alone() {
    let Some(promoting) = Promoting::new(&[("canary", "1"), ("core", "2")]) else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let stages = &promoting.stages;
    let a = &stages.names[0];
    promoting.reconciler("canary-1", "canary");
    promoting.reconciler("core-1", "core");
    promoting.begin(
        "[{environment: A, reports: {}, waves: [{clusterTypeSelector: {matchLabels: {ring: \"1\"}}, soak: 1s}]}]",
    );
    assert_eq!(promoting.until(0, "Proposed")["wave"], 1);
    let repo = repo_until(&promoting.kubectl, a, "the first wave", |status| {
        status["wave"]["number"] == 1 && status["changedFiles"].as_u64() > Some(0)
    });
    assert_eq!(repo["status"]["wave"]["frozenClusterTypes"], 1, "{repo:#}");
    eventually("the files of the first wave", PATIENCE, || stages.proposes(a, "canary", "two").then_some(()));
    assert!(stages.proposes(a, "core", "one"), "the folder of a later wave stays");
    promoting.merge(a);
    let environment = promoting.until(0, "Verifying");
    assert_eq!(environment["reports"]["total"], 1, "the reconciler of a later wave is not asked: {environment:#}");

    // The next wave waits for the first, and for the promotion to be resumed.
    promoting.report(&[("canary-1", "failure"), ("core-1", "success")]);
    promoting.until(0, "Failed");
    assert!(stages.proposes(a, "core", "one"));
    promoting.patch("", &json!({"spec": {"paused": true}}));
    promoting.report(&[("canary-1", "success")]);
    eventually("the pause", PATIENCE, || {
        let environment = promoting.until(0, "Soaking");
        environment["message"].as_str().unwrap_or_default().contains("paused").then_some(())
    });
    assert!(stages.proposes(a, "core", "one"));
    promoting.patch("", &json!({"spec": {"paused": false}}));
    eventually("the files of the last wave", PATIENCE, || stages.proposes(a, "core", "two").then_some(()));
    assert_eq!(promoting.until(0, "Proposed")["wave"], 2);
    promoting.merge(a);
    assert_eq!(promoting.until(0, "Verifying")["reports"]["total"], 2);
    promoting.report(&[("canary-1", "success"), ("core-1", "success")]);
    promoting.until(0, "Promoted");
    eventually("the end", PATIENCE, || (promoting.get()["status"]["phase"] == "Succeeded").then_some(()));
}

#[test]
fn checks_hold_an_environment_before_and_after() {
    let Some(promoting) = Promoting::new(&[("edge", "1")]) else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let a = promoting.stages.names[0].clone();
    promoting.begin("[{environment: A, checks: {before: [freeze], after: [smoke]}}]");
    let environment = promoting.until(0, "Waiting");
    assert!(environment["message"].as_str().unwrap().contains("check freeze has no result"), "{environment:#}");
    let report = |name: &str, result: &str| {
        let check = json!({"environment": a, "name": name, "result": result, "message": "see the log"});
        promoting.patch("checks", &json!({"status": {"checks": [check]}}));
    };
    report("freeze", "Passed");
    promoting.until(0, "Proposed");
    promoting.merge(&a);
    let environment = promoting.until(0, "Verifying");
    assert!(environment["message"].as_str().unwrap().contains("check smoke has no result"), "{environment:#}");
    report("smoke", "Failed");
    let environment = promoting.until(0, "Failed");
    assert_eq!(environment["message"], "check smoke failed: see the log");

    // The rollback does not wait for checks.
    promoting.patch("", &json!({"spec": {"rollBack": true}}));
    promoting.until(0, "RollingBack");
    assert_eq!(promoting.stages.commit_of(&a), promoting.first);
    let checks = promoting.get()["status"]["checks"].clone();
    let names: Vec<&Value> = checks.as_array().unwrap().iter().map(|check| &check["name"]).collect();
    assert_eq!(names, ["freeze", "smoke"], "a result stays when another one is reported");
    assert!(!checks[0]["reporter"].as_str().unwrap().is_empty(), "{checks:#}");
}
