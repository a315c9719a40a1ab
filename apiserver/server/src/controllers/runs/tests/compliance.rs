//! What is committed is read back from clusters.

use std::sync::Mutex;

use stoa_proto::ReconcilerCompliance;
use stoa_runs::testing::runner_at;
use stoa_types::{
    Release, Workspace,
    config::{ComplianceState, Deployment},
    platform::{Compliance, Reconciler, ReconcilerObject},
};
use tokio::sync::mpsc;

use super::fenced_runners::{A, Clusters, Conversation, Scripted, deleting};
use super::{approval::told, *};
use crate::controllers::compliance;

const COMMIT: &str = "cccccccccccccccccccccccccccccccccccccccc";

fn edge(state: &str, message: &str) -> ReconcilerCompliance {
    ReconcilerCompliance {
        name: "edge".to_owned(),
        state: state.to_owned(),
        revision: "main@sha1:aaaa".to_owned(),
        message: message.to_owned(),
    }
}

/// A world whose workspace says where to read, and what is found there.
async fn reconciled(wait: Option<&str>) -> (TestServer, Clusters, mpsc::UnboundedReceiver<Conversation>) {
    let clusters: Clusters = Arc::new(Mutex::new(vec![edge("Pending", "it has main@sha1:aaaa")]));
    let planned = Arc::new(Mutex::new(deleting(&[A])));
    let (address, conversations) = Scripted::reconciling(planned, clusters.clone()).await;
    let world = TestServer::with_runner(runner_at(address)).await;
    let change = |workspace: &mut Workspace| {
        let object = ReconcilerObject { namespace: "flux-system".to_owned(), name: "apps".to_owned() };
        let reconciler = Reconciler {
            name: "edge".to_owned(),
            in_cluster: true,
            kustomization: Some(object),
            ..Reconciler::default()
        };
        let interval = "3s".into();
        let settings = Compliance { reconcilers: vec![reconciler], interval, wait: wait.map(Into::into) };
        workspace.spec.gitops.as_mut().unwrap().compliance = Some(settings);
    };
    world.registry.api::<Workspace>().update_with("", "dev", change).await.unwrap();
    let world = world.controlled();
    tokio::spawn(compliance::run(world.services.clone(), world.end.clone()));
    (world, clusters, conversations)
}

impl TestServer {
    async fn commits(&self, run: &str, conversations: &mut mpsc::UnboundedReceiver<Conversation>) {
        self.destroy(run).await;
        let mut next = tokio::time::timeout(PATIENCE, conversations.recv()).await.unwrap().unwrap();
        next.begin("only").await;
        next.commit(&[A], COMMIT).await;
    }

    /// Waits until the deployment of the stack is as expected; its condition `Compliant`, too.
    pub(super) async fn deployed(&self, is_there: impl Fn(&Deployment) -> bool) -> (Deployment, Option<Condition>) {
        let stacks = self.registry.api::<Stack>();
        let mut changes = stacks.subscribe(None);
        let found = async {
            loop {
                let status = stacks.get("shop", "web").await.unwrap().status.unwrap_or_default();
                if let Some(deployment) = status.deployments.first().filter(|deployment| is_there(deployment)) {
                    return (deployment.clone(), condition(&status.conditions, reason::COMPLIANT).cloned());
                }
                changes.next().await.unwrap();
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(found) => found,
            Err(_) => panic!("it does not get there: {:?}", stacks.get("shop", "web").await.unwrap().status),
        }
    }

    async fn complies(&self, state: ComplianceState) -> (Deployment, Condition) {
        let is_so = |deployment: &Deployment| deployment.compliance.as_ref().is_some_and(|found| found.state == state);
        let (deployment, condition) = self.deployed(is_so).await;
        (deployment, condition.expect("the stack has the condition"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_whether_clusters_have_what_was_committed() {
    let (world, clusters, mut conversations) = reconciled(None).await;
    world.commits("one", &mut conversations).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Succeeded, "it does not wait");
    let (deployment, is) = world.complies(ComplianceState::Pending).await;
    assert_eq!(deployment.gitops_commit.as_deref(), Some(COMMIT));
    assert_eq!((is.status.as_str(), is.reason.as_str()), ("False", reason::RECONCILING));
    let found = deployment.compliance.unwrap();
    assert_eq!((found.commit.as_str(), found.reconcilers[0].revision.as_deref()), (COMMIT, Some("main@sha1:aaaa")));
    let workspace = world.registry.api::<Workspace>().get("", "dev").await.unwrap();
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    let lacking = stoa_runs::compliance::lacking(&stack, &workspace).unwrap();
    assert!(lacking.ends_with("edge: it has main@sha1:aaaa"), "{lacking}");

    *clusters.lock().unwrap() = vec![edge("NonCompliant", "the Deployment does not become ready")];
    let (_, is) = world.complies(ComplianceState::NonCompliant).await;
    let why = "workspace dev: edge: the Deployment does not become ready";
    assert_eq!((is.status.as_str(), is.reason.as_str(), is.message.as_str()), ("False", reason::NON_COMPLIANT, why));
    *clusters.lock().unwrap() = vec![edge("Compliant", "")];
    let (deployment, is) = world.complies(ComplianceState::Compliant).await;
    assert_eq!((is.status.as_str(), is.reason.as_str()), ("True", reason::COMPLIANT));
    let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
    assert_eq!(stoa_runs::compliance::lacking(&stack, &workspace), None);

    // What is as it was is not written again.
    let since = deployment.compliance.unwrap().time;
    let version = stack.metadata.resource_version;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.registry.api::<Stack>().get("shop", "web").await.unwrap().metadata.resource_version, version);
    // It is looked at again all the same.
    *clusters.lock().unwrap() = vec![edge("Unknown", "the cluster does not answer")];
    let (deployment, is) = world.complies(ComplianceState::Unknown).await;
    assert_eq!((is.status.as_str(), is.reason.as_str()), ("Unknown", reason::COMPLIANCE_UNKNOWN));
    assert_ne!(deployment.compliance.unwrap().time, since);

    let stop = |workspace: &mut Workspace| workspace.spec.gitops.as_mut().unwrap().compliance = None;
    world.registry.api::<Workspace>().update_with("", "dev", stop).await.unwrap();
    let (_, is) = world.deployed(|deployment| deployment.compliance.is_none()).await;
    assert_eq!(is, None, "nobody looks any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_waits_until_clusters_have_what_it_committed() {
    let (world, clusters, mut conversations) = reconciled(Some("10m")).await;
    world.commits("one", &mut conversations).await;
    let waits = |status: &RunStatus| condition(&status.conditions, reason::WAITING).is_some();
    let status = world.until("one", waits).await;
    let message = format!("waiting for clusters to have commit {COMMIT}: edge: it has main@sha1:aaaa");
    assert_eq!(told(&status, reason::WAITING), ("True", reason::RECONCILING, message.as_str()));
    assert_eq!(status.phase, RunPhase::Verifying);
    assert_eq!(world.registry.api::<Release>().list(Some("shop"), "").await.unwrap().len(), 0, "no release before");
    *clusters.lock().unwrap() = vec![edge("Compliant", "")];
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, ended.release), (RunPhase::Succeeded, Some(1)));
    assert!(world.journal("one").await.contains(&format!("clusters have commit {COMMIT}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreconciled_commit_fails_run_after_timeout() {
    let (world, _, mut conversations) = reconciled(Some("3s")).await;
    world.commits("one", &mut conversations).await;
    let ended = world.ended("one").await;
    assert_eq!((ended.phase, why(&ended.conditions)), (RunPhase::Failed, reason::NOT_RECONCILED));
    assert!(told(&ended, reason::FAILED).2.contains("edge: it has main@sha1:aaaa"), "{ended:?}");
    // The commit is there all the same, and so it is said what became of it.
    let (deployment, _) = world.complies(ComplianceState::Pending).await;
    assert_eq!((deployment.gitops_commit.as_deref(), deployment.release), (Some(COMMIT), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_waits_for_clusters_is_cancelled_at_once() {
    let (world, _, mut conversations) = reconciled(Some("10m")).await;
    world.commits("one", &mut conversations).await;
    world.until("one", |status| status.phase == RunPhase::Verifying).await;
    world.change("one", |run| run.spec.cancel = true).await;
    let ended = world.ended("one").await;
    assert_eq!(ended.phase, RunPhase::Canceled);
}
