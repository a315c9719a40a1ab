//! External schedulers of fleets: one of the test's own, and that of Open Cluster Management. No controller of Open Cluster
//! Management is here: a test writes PlacementDecisions as it does, with its own CustomResourceDefinitions.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use futures_util::{StreamExt as _, stream, stream::BoxStream};
use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, Repository, condition};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, eventually, eventually_or, free_port, skipped};
use stoa_proto::scheduler::scheduler_server::{Scheduler, SchedulerServer};
use stoa_proto::scheduler::{DecideRequest, Decision, Decisions};
use tokio::{runtime::Runtime, sync::watch};
use tonic::transport::{Server, server::TcpIncoming};
use tonic::{Request, Response, Status};

use crate::PATIENCE;

/// The environment, which is a namespace.
const DEV: &str = "dev";
const API: &str = "apiVersion: scheduler.kalypso.io/v1alpha1";

/// The answers of a scheduler: the cluster types, or nothing while it is away.
type Answers = watch::Receiver<Option<Vec<String>>>;

struct Own(Answers);

#[tonic::async_trait]
impl Scheduler for Own {
    type DecideStream = BoxStream<'static, Result<Decisions, Status>>;

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<Self::DecideStream>, Status> {
        let DecideRequest { environment, policy, cluster_types, deployment_targets, .. } = request.into_inner();
        assert_eq!((environment.as_str(), policy.as_str()), (DEV, "everywhere"));
        assert!(cluster_types.iter().all(|it| it.labels["size"] == it.name), "{cluster_types:?}");
        assert_eq!(deployment_targets[0].labels["workload"], "app");
        let mut changes = self.0.clone();
        changes.mark_changed();
        let answers = stream::unfold(changes, |mut changes| async move {
            changes.changed().await.ok()?;
            let answer = changes.borrow_and_update().clone();
            let answer = answer.map(|cluster_types| Decisions {
                decisions: vec![Decision { cluster_types, deployment_targets: Vec::new() }],
                undecided: String::new(),
            });
            Some((answer.ok_or_else(|| Status::unavailable("it is away")), changes))
        });
        Ok(Response::new(answers.boxed()))
    }
}

/// A real gRPC server on loopback. It ends with the value.
struct OwnScheduler {
    answers: watch::Sender<Option<Vec<String>>>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl OwnScheduler {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let (answers, receiver) = watch::channel(None);
        let incoming = {
            let _entered = runtime.enter();
            TcpIncoming::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
        };
        let address = incoming.local_addr().unwrap();
        runtime.spawn(Server::builder().add_service(SchedulerServer::new(Own(receiver))).serve_with_incoming(incoming));
        Self { answers, address, _runtime: runtime }
    }

    fn decide(&self, cluster_types: Option<&[&str]>) {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.answers.send_replace(cluster_types.map(names));
    }
}

/// An environment on a server of its own.
struct Fleet {
    kubectl: Kubectl,
    /// The name of the environment, which is its namespace.
    name: String,
}

impl Fleet {
    /// Creates two cluster types, one target, and a policy that assigns it to both.
    fn create(server: &Standalone, name: &str, cluster_types: [&str; 2]) -> Self {
        let cluster_type = |cluster_type: &str| {
            format!(
                "---
{API}
kind: ClusterType
metadata: {{namespace: {name}, name: {cluster_type}, labels: {{size: {cluster_type}}}}}
spec: {{reconciler: flux, namespaceService: flux}}
"
            )
        };
        let kubectl = server.kubectl();
        kubectl.apply(&format!(
            "apiVersion: v1
kind: Namespace
metadata: {{name: {name}}}
{}---
{API}
kind: DeploymentTarget
metadata: {{namespace: {name}, name: web, labels: {{workload: app}}}}
spec: {{environment: {name}, manifests: {{path: web}}}}
---
{API}
kind: SchedulingPolicy
metadata: {{namespace: {name}, name: everywhere}}
spec: {{deploymentTargetSelector: {{labelSelector: {{}}}}, clusterTypeSelector: {{labelSelector: {{}}}}}}
",
            cluster_types.map(cluster_type).concat()
        ));
        Self { kubectl, name: name.to_owned() }
    }

    fn policy(&self) -> Value {
        self.kubectl.get(&["schedulingpolicies.scheduler.kalypso.io", "--namespace", &self.name, "everywhere"])
    }

    /// Names a scheduler in the policy.
    fn schedule_by(&self, scheduler: &Value) {
        let patch = json!({"spec": {"scheduler": scheduler}}).to_string();
        let name = self.name.as_str();
        let policy = ["patch", "schedulingpolicies.scheduler.kalypso.io", "--namespace", name, "everywhere"];
        self.kubectl.run(&[&policy[..], &["--type=merge", "--patch", patch.as_str()]].concat());
    }

    /// The cluster types of the Assignments of the policy.
    fn assigned(&self) -> BTreeSet<String> {
        let by_policy = "--selector=scheduling-policy=everywhere";
        let list = self.kubectl.get(&["assignments.scheduler.kalypso.io", "--namespace", &self.name, by_policy]);
        let text = |it: &Value| it["spec"]["clusterType"].as_str().unwrap().to_owned();
        list["items"].as_array().unwrap().iter().map(text).collect()
    }

    fn until_assigned(&self, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        eventually_or(
            PATIENCE,
            || (self.assigned() == expected).then_some(()),
            || format!("{expected:?}: {:?}, {:#}", self.assigned(), self.policy()["status"]),
        );
    }

    /// Waits until a condition of the policy has a reason; its message.
    fn until(&self, kind: &str, reason: &str) -> String {
        let condition = || condition(&self.policy(), kind);
        let message = || {
            let found = condition();
            (found["reason"] == reason).then(|| found["message"].as_str().unwrap().to_owned())
        };
        eventually_or(PATIENCE, message, || format!("{kind} {reason}: {:#}", condition()))
    }
}

#[test]
fn external_scheduler_chooses_assignments_and_survives_outages() {
    let Ok(renderer) = std::env::var("STOA_TEST_RENDERER") else {
        return skipped("templates of fleets, since STOA_TEST_RENDERER is not set");
    };
    let scheduler = OwnScheduler::start();
    let flags = [format!("--scheduler=own=http://{}", scheduler.address), format!("--renderer={renderer}")];
    let mut server = Standalone::start_with(&flags);
    let gitops = Repository::new();
    gitops.commit("README.md", "The fleet\n");
    gitops.git(&["branch", DEV]);
    let fleet = Fleet::create(&server, DEV, ["drone", "large"]);
    fleet.kubectl.apply(&format!(
        "{API}
kind: Template
metadata: {{namespace: {DEV}, name: flux}}
spec: {{type: reconciler, manifests: ['kind: A']}}
---
{API}
kind: GitOpsRepo
metadata: {{namespace: {DEV}, name: {DEV}}}
spec: {{repo: \"{}\", branch: {DEV}, path: .}}
",
        gitops.url()
    ));
    let changed = |count: u64| {
        let repo = || fleet.kubectl.get(&["gitopsrepoes.scheduler.kalypso.io", "--namespace", DEV, DEV]);
        let found = || (repo()["status"]["changedFiles"] == count).then_some(());
        eventually_or(PATIENCE, found, || format!("{count} changed files: {:#}", repo()["status"]));
    };
    let files = |branch: &str| gitops.git(&["ls-tree", "-r", "--name-only", branch]);
    let merge = || gitops.git(&["update-ref", "refs/heads/dev", "refs/heads/deployment/dev"]);

    // Labels alone decide first.
    fleet.until_assigned(&["drone", "large"]);
    eventually("a proposal", PATIENCE, || {
        gitops.git(&["branch", "--list", "deployment/dev"]).contains("deployment").then_some(())
    });
    eventually("all files", PATIENCE, || {
        let proposed = files("deployment/dev");
        ["drone/web/reconciler.yaml", "large/web/reconciler.yaml"].iter().all(|it| proposed.contains(it)).then_some(())
    });
    merge();
    changed(0);

    // A scheduler that has not answered deletes nothing, also after a crash of the server.
    fleet.schedule_by(&json!({"name": "own"}));
    let message = fleet.until("Decided", "SchedulerUnavailable");
    assert!(message.contains("it is away") && message.contains("no file is deleted"), "{message}");
    fleet.until("Ready", "Undecided");
    server.kill();
    server.restart();
    fleet.until_assigned(&[]);
    // A file beside the fleet shows that the files were rendered and compared after the restart.
    fleet.kubectl.apply(&format!(
        "{API}
kind: SchedulingPolicy
metadata: {{namespace: {DEV}, name: small}}
spec:
  deploymentTargetSelector: {{labelSelector: {{}}}}
  clusterTypeSelector: {{labelSelector: {{matchLabels: {{size: small}}}}}}
---
{API}
kind: ClusterType
metadata: {{namespace: {DEV}, name: small, labels: {{size: small}}}}
spec: {{reconciler: flux, namespaceService: flux}}
"
    ));
    eventually("files of the other policy", PATIENCE, || {
        files("deployment/dev").contains("small/web/reconciler.yaml").then_some(())
    });
    let proposed = files("deployment/dev");
    assert!(proposed.contains("drone/web/") && proposed.contains("large/web/"), "{proposed}");
    fleet.kubectl.run(&["delete", "clustertypes.scheduler.kalypso.io", "--namespace", DEV, "small"]);

    // Its decisions replace each other, and unknown names have no effect.
    scheduler.decide(Some(&["drone", "gone"]));
    fleet.until_assigned(&["drone"]);
    let message = fleet.until("DecisionsValid", "UnknownObjects");
    assert!(message.contains("ClusterType \"gone\""), "{message}");
    fleet.until("Decided", "Decided");
    fleet.until("Ready", "AssignmentsCreated");
    eventually("the other files are proposed to go", PATIENCE, || {
        let proposed = files("deployment/dev");
        // The cluster type has a README as long as it exists.
        (proposed.contains("drone/web/") && !proposed.contains("large/web/") && !proposed.contains("small/"))
            .then_some(())
    });
    scheduler.decide(Some(&["large"]));
    fleet.until_assigned(&["large"]);
    fleet.until("DecisionsValid", "Available");

    // The last decisions outlive both programs.
    scheduler.decide(None);
    let message = fleet.until("Decided", "SchedulerUnavailable");
    assert!(message.contains("the last decisions stay"), "{message}");
    drop(scheduler);
    server.kill();
    server.restart();
    assert_eq!(fleet.assigned(), ["large".to_owned()].into());

    // Only the server's flags have addresses, and only the server writes decisions.
    fleet.schedule_by(&json!({"name": "other"}));
    let message = fleet.until("Decided", "SchedulerNotFound");
    assert!(message.contains("--scheduler=other=URL"), "{message}");
    fleet.until_assigned(&["large"]);
    let address = r#"--patch={"spec":{"scheduler":{"name":"http://127.0.0.1:1"}}}"#;
    let policy = ["patch", "schedulingpolicies.scheduler.kalypso.io", "--namespace", DEV, "everywhere", "--type=merge"];
    assert!(fleet.kubectl.refused(&[&policy[..], &[address]].concat()).contains("spec.scheduler.name"));
    let forged = r#"--patch={"status":{"decisions":[{"clusterTypes":["drone"]}]}}"#;
    let refused = fleet.kubectl.refused(&[&policy[..], &["--subresource=status", forged]].concat());
    assert!(refused.contains("status is"), "{refused}");

    // Labels alone decide again.
    fleet.schedule_by(&Value::Null);
    fleet.until_assigned(&["drone", "large"]);
    eventually("no decisions", PATIENCE, || fleet.policy()["status"]["decisions"].is_null().then_some(()));
}

/// Defines the kinds of Open Cluster Management in a cluster.
fn define_kinds(kubectl: &Kubectl, folder: &str) {
    let cluster = PathBuf::from(folder).join("cluster");
    for (file, kind) in [
        ("v1/0000_00_clusters.open-cluster-management.io_managedclusters.crd.yaml", "managedclusters"),
        ("v1beta1/0000_03_clusters.open-cluster-management.io_placementdecisions.crd.yaml", "placementdecisions"),
    ] {
        kubectl.apply(&fs::read_to_string(cluster.join(file)).unwrap());
        let crd = format!("crd/{kind}.cluster.open-cluster-management.io");
        kubectl.run(&["wait", "--for=condition=Established", "--timeout=120s", &crd]);
    }
}

#[test]
fn placement_decisions_choose_assignments() {
    let Ok(folder) = std::env::var("STOA_TEST_OCM") else {
        return skipped("Open Cluster Management, since STOA_TEST_OCM is not set");
    };
    let cluster = Cluster::shared();
    let hub = cluster.kubectl();
    define_kinds(&hub, &folder);
    // The environment has the name of a namespace of the cluster. It makes the names of clusters unique, too.
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let port = free_port();
    let server = Standalone::start_with(&[format!("--scheduler=ocm=https://localhost:{port}")]);
    let pki = server.data().join("pki");
    let large = format!("large-of-{name}");
    let fleet = Fleet::create(&server, name, ["drone", &large]);
    let placement = "drones";
    fleet.schedule_by(&json!({"name": "ocm", "parameters": {"placement": placement}}));
    fleet.until("Decided", "SchedulerUnavailable");

    let scheduler = cluster.ocm_scheduler(port, &pki);
    let message = fleet.until("Decided", "Undecided");
    assert!(message.contains(&format!("Placement {name}/{placement} has no PlacementDecision")), "{message}");
    hub.apply(&format!(
        "apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {{name: first-of-{name}, labels: {{stoa.dev/cluster-type: drone}}}}
spec: {{hubAcceptsClient: true}}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: PlacementDecision
metadata:
  name: {placement}-decision-1
  namespace: {name}
  labels: {{cluster.open-cluster-management.io/placement: {placement}}}
"
    ));
    let decide = |clusters: &[&str]| {
        let decisions: Vec<Value> =
            clusters.iter().map(|cluster| json!({"clusterName": cluster, "reason": ""})).collect();
        let patch = json!({"status": {"decisions": decisions}}).to_string();
        let object = format!("placementdecisions.cluster.open-cluster-management.io/{placement}-decision-1");
        let patch = ["--type=merge", "--subresource=status", "--patch", patch.as_str()];
        hub.run(&[&["patch", object.as_str(), "--namespace", name][..], &patch].concat());
    };
    // A new PlacementDecision without a cluster is a decision.
    fleet.until("Decided", "Decided");
    fleet.until_assigned(&[]);
    let first = format!("first-of-{name}");
    decide(&[first.as_str()]);
    fleet.until_assigned(&["drone"]);
    decide(&[first.as_str(), large.as_str()]);
    fleet.until_assigned(&["drone", &large]);
    decide(&[large.as_str(), "unknown"]);
    fleet.until_assigned(&[&large]);
    assert!(fleet.until("DecisionsValid", "UnknownObjects").contains("\"unknown\""));

    // The decisions stay while the scheduler is away, and without a PlacementDecision.
    drop(scheduler);
    fleet.until("Decided", "SchedulerUnavailable");
    fleet.until_assigned(&[&large]);
    let _scheduler = cluster.ocm_scheduler(port, &pki);
    fleet.until("Decided", "Decided");
    let deleted = format!("placementdecisions.cluster.open-cluster-management.io/{placement}-decision-1");
    hub.run(&["delete", &deleted, "--namespace", name]);
    fleet.until("Decided", "Undecided");
    fleet.until_assigned(&[&large]);

    fleet.schedule_by(&json!({"name": "ocm", "parameters": {"placement": "default/drones"}}));
    eventually("a rejection", PATIENCE, || {
        let message = fleet.until("Decided", "SchedulerUnavailable");
        message.contains("is of another namespace").then_some(())
    });
    fleet.until_assigned(&[&large]);
}
