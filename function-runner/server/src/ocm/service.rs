//! The service: the decisions of the Placement that a policy names, and each change of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use stoa_proto::scheduler::scheduler_server::Scheduler;
use stoa_proto::scheduler::{DecideRequest, Decisions};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::placements::Placements;

/// The parameter with the Placement: `<name>`, or `<namespace>/<name>`.
const PLACEMENT: &str = "placement";
/// How long the first answer waits for the objects of the cluster.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long changes are collected: a Placement changes several PlacementDecisions one after the other, and creates them empty.
const GATHER: Duration = Duration::from_secs(2);

/// A scheduler that repeats the decisions of Open Cluster Management.
#[derive(Debug)]
pub(super) struct OcmScheduler {
    placements: Arc<watch::Sender<Placements>>,
    /// The namespaces whose Placements all environments share.
    shared_namespaces: Vec<String>,
}

impl OcmScheduler {
    pub(super) fn new(shared_namespaces: Vec<String>) -> Self {
        Self { placements: Arc::new(watch::Sender::new(Placements::default())), shared_namespaces }
    }

    /// The objects, for those who watch them.
    pub(super) fn placements(&self) -> Arc<watch::Sender<Placements>> {
        Arc::clone(&self.placements)
    }

    /// The namespace and the name of the Placement for a policy.
    fn placement(&self, environment: &str, parameters: &HashMap<String, String>) -> Result<(String, String), Status> {
        let Some(placement) = parameters.get(PLACEMENT).filter(|placement| !placement.is_empty()) else {
            let message = "the policy names no Placement; set spec.scheduler.parameters.placement";
            return Err(Status::invalid_argument(message));
        };
        let (namespace, name) = placement.split_once('/').unwrap_or((environment, placement));
        let is_allowed = namespace == environment || self.shared_namespaces.iter().any(|shared| shared == namespace);
        if !is_allowed {
            return Err(Status::permission_denied(format!(
                "Placement {placement} is of another namespace; use one of {environment}, or set --shared-namespace={namespace}"
            )));
        }
        Ok((namespace.to_owned(), name.to_owned()))
    }
}

#[tonic::async_trait]
impl Scheduler for OcmScheduler {
    type DecideStream = ReceiverStream<Result<Decisions, Status>>;

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<Self::DecideStream>, Status> {
        let DecideRequest { environment, policy, parameters, .. } = request.into_inner();
        let (namespace, name) = self.placement(&environment, &parameters)?;
        tracing::debug!(environment, policy, namespace, name, "a policy follows a Placement");
        let (sender, answers) = mpsc::channel(1);
        tokio::spawn(follow(self.placements.subscribe(), (namespace, name), sender));
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

/// Sends the decisions of a Placement, and again when they change, until the caller leaves.
async fn follow(
    mut placements: watch::Receiver<Placements>,
    (namespace, name): (String, String),
    sender: mpsc::Sender<Result<Decisions, Status>>,
) {
    // A timeout is an answer too: nothing is listed.
    let _ = tokio::time::timeout(PATIENCE, placements.wait_for(Placements::is_settled)).await;
    let mut last = None;
    loop {
        let decisions = placements.borrow_and_update().decide(&namespace, &name);
        if last.as_ref() != Some(&decisions) {
            if sender.send(Ok(decisions.clone())).await.is_err() {
                return;
            }
            last = Some(decisions);
        }
        tokio::select! {
            () = sender.closed() => return,
            changed = placements.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(GATHER).await;
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::json;
    use tokio_stream::StreamExt as _;

    use super::super::placements::OcmKind;
    use super::*;

    fn asked(environment: &str, placement: &str) -> Request<DecideRequest> {
        let parameters = [(PLACEMENT.to_owned(), placement.to_owned())].into();
        Request::new(DecideRequest { environment: environment.to_owned(), parameters, ..DecideRequest::default() })
    }

    #[tokio::test]
    async fn policy_names_a_placement_of_its_namespace() {
        let scheduler = OcmScheduler::new(vec!["placements".to_owned()]);
        for (placement, expected) in [("web", "dev"), ("dev/web", "dev"), ("placements/web", "placements")] {
            let parameters = [(PLACEMENT.to_owned(), placement.to_owned())].into();
            let found = scheduler.placement("dev", &parameters).unwrap();
            assert_eq!(found, (expected.to_owned(), "web".to_owned()), "{placement}");
        }
        for (placement, code) in [("prod/web", tonic::Code::PermissionDenied), ("", tonic::Code::InvalidArgument)] {
            assert_eq!(scheduler.decide(asked("dev", placement)).await.unwrap_err().code(), code, "{placement}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn call_has_each_change_once() {
        let scheduler = OcmScheduler::new(Vec::new());
        let decision = |name: &str, clusters: &[&str]| -> DynamicObject {
            let decisions: Vec<_> = clusters.iter().map(|name| json!({"clusterName": name})).collect();
            let labels = json!({"cluster.open-cluster-management.io/placement": "web"});
            let metadata = json!({"namespace": "dev", "name": name, "labels": labels});
            serde_json::from_value(json!({"metadata": metadata, "status": {"decisions": decisions}})).unwrap()
        };
        let placements = scheduler.placements();
        let set = |name: &str, clusters: &[&str]| {
            let object = decision(name, clusters);
            placements.send_modify(|it| it.apply(OcmKind::PlacementDecision, &object));
        };
        placements.send_modify(|it| it.list(OcmKind::ManagedCluster, &[]));
        placements.send_modify(|it| it.list(OcmKind::PlacementDecision, &[decision("web-1", &["a"])]));
        let mut answers = scheduler.decide(asked("dev", "web")).await.unwrap().into_inner();
        let mut next = async || answers.next().await.unwrap().unwrap().decisions.remove(0).cluster_types;
        assert_eq!(next().await, ["a"]);
        // A cluster moves to another PlacementDecision, and a third one changes nothing.
        set("web-1", &[]);
        set("web-2", &["a"]);
        set("web-3", &["b"]);
        assert_eq!(next().await, ["a", "b"]);
        set("web-3", &["b", "b"]);
        set("other", &["c"]);
        assert_eq!(next().await, ["a", "b", "c"]);
    }
}
