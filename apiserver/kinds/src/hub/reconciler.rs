//! Reconciler: a reconciler of a host, and the transitions of its deployments.
//!
//! Start at [`record`], which decides what a reported deployment changes. A transition is in the status of its Reconciler, and
//! so in the log, before a report is answered. It stays there until the archive has it.

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    status::FieldError,
    strategy::{Completion, Strategy},
};
use stoa_types::{
    common::{Condition, condition},
    hub::{Deployment, DeploymentStatus, ObservedDeployment, Reconciler, ReconcilerSpec, ReconcilerStatus, Transition},
    reason,
};

use super::memory::Hub;
use crate::{
    kind::{Kind, Surroundings},
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
    validation,
};

/// The most transitions of a Reconciler that wait for the archive.
pub const MAX_WAITING: usize = 100;
/// The seconds after which a client sends its report again.
const RETRY_SECONDS: i32 = 10;

/// The kind Reconciler.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { hub, .. }| builder.register(definition, ReconcilerStrategy { hub }),
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED],
    ..Kind::of::<Reconciler>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Reconciler>()
        .columns(&[
            Column::new("Host", Cell::Path(&["spec", "hostName"]), "The host."),
            Column::new("Type", Cell::Path(&["spec", "reconcilerType"]), "The type of the reconciler."),
            Column::new("Commit", Cell::Path(&["status", "deployment", "gitOpsCommitId"]), "The reported commit."),
            Column::new("Status", Cell::Path(&["status", "deployment", "status"]), "The status of the commit."),
            Column::new("Since", Cell::Age(&["status", "deployment", "since"]), "The time since the last transition.")
                .kind("date"),
            Column::age(),
            Column::new("Endpoint", Cell::Path(&["spec", "manifestsEndpoint"]), "The folder of the manifests.").wide(),
        ])
        .selectable(&[
            SelectableField { name: "spec.hostName", path: &["spec", "hostName"] },
            SelectableField { name: "spec.manifestsEndpoint", path: &["spec", "manifestsEndpoint"] },
            SelectableField { name: "spec.reconcilerType", path: &["spec", "reconcilerType"] },
        ])
}

/// A time with the precision of a [`MicroTime`].
pub fn to_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// What reported deployments come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The number of those that changed a commit or a status.
    pub transitions: usize,
    /// The number of those that repeated what is known.
    pub heartbeats: usize,
}

/// Records deployments that a reconciler had, in the order of their times.
///
/// A deployment that is older than the known one is a transition of the past: the known one stays. The caller checks
/// [`MAX_WAITING`].
pub fn record(status: &mut ReconcilerStatus, reported: &[Transition], now: Timestamp) -> Recorded {
    let mut recorded = Recorded::default();
    for transition in reported {
        let current = status.deployment.as_ref();
        let is_late = current.is_some_and(|current| transition.time < current.since);
        let is_same = |current: &ObservedDeployment| {
            current.git_ops_commit_id == transition.git_ops_commit_id && current.status == transition.status
        };
        let is_repeated = !is_late && current.is_some_and(is_same);
        if is_repeated || status.transitions.contains(transition) {
            recorded.heartbeats += 1;
            continue;
        }
        recorded.transitions += 1;
        status.transitions.push(transition.clone());
        if !is_late {
            let Transition { time, git_ops_commit_id, status: of, status_message } = transition.clone();
            status.deployment = Some(ObservedDeployment { git_ops_commit_id, status: of, status_message, since: time });
        }
    }
    if recorded.transitions > 0 && condition(&status.conditions, reason::READY).is_none() {
        status.conditions.push(Condition {
            type_: reason::READY.to_owned(),
            status: "True".to_owned(),
            reason: reason::SUCCEEDED.to_owned(),
            message: "a deployment is recorded".to_owned(),
            last_transition_time: Time(now),
            observed_generation: None,
        });
    }
    recorded
}

/// 429 for a Reconciler whose transitions wait for the archive.
pub(super) fn is_full(hub: &Hub, name: &str) -> ApiError {
    hub.ask_for_archive();
    let message = format!(
        "reconciler {name:?} has {MAX_WAITING} transitions that wait for the archive; send the report again later"
    );
    ApiError::too_many_requests(message, RETRY_SECONDS)
}

#[derive(Debug)]
struct ReconcilerStrategy {
    hub: Hub,
}

impl ReconcilerStrategy {
    /// Records the deployment that clients of Kalypso write to the spec, as a report of now.
    fn observe(&self, reconciler: &mut Reconciler) -> Result<(), ApiError> {
        let name = reconciler.name_any();
        let Some(deployment) = &reconciler.spec.deployment else { return Ok(()) };
        let Some(reported) = DeploymentStatus::named(&deployment.status) else { return Ok(()) };
        let status = reconciler.status.get_or_insert_default();
        if deployment.git_ops_commit_id.is_empty() || status.observed_deployment.as_ref() == Some(deployment) {
            return Ok(());
        }
        let now = to_micros(Timestamp::now());
        let transition = Transition {
            time: MicroTime(now),
            git_ops_commit_id: deployment.git_ops_commit_id.clone(),
            status: reported,
            status_message: deployment.status_message.clone(),
        };
        record(status, &[transition], now);
        if status.transitions.len() > MAX_WAITING {
            return Err(is_full(&self.hub, &name));
        }
        status.observed_deployment = Some(deployment.clone());
        Ok(())
    }
}

#[async_trait]
impl Strategy for ReconcilerStrategy {
    type Object = Reconciler;

    fn validate(&self, object: &Reconciler) -> Vec<FieldError> {
        let ReconcilerSpec { host_name, reconciler_name, manifests_endpoint, deployment, webhook, .. } = &object.spec;
        let mut errors = Vec::new();
        for (field, value) in [
            ("spec.hostName", host_name),
            ("spec.reconcilerName", reconciler_name),
            ("spec.manifestsEndpoint", manifests_endpoint),
        ] {
            if value.is_empty() {
                errors.push(FieldError::required(field, "the hub finds deployments by it"));
            }
        }
        if let Some(Deployment { git_ops_commit_id, status, .. }) = deployment {
            let is_absent = git_ops_commit_id.is_empty() && status.is_empty();
            if !is_absent && DeploymentStatus::named(status).is_none() {
                let names = DeploymentStatus::ALL.map(DeploymentStatus::name);
                errors.push(FieldError::not_supported("spec.deployment.status", status, &names));
            }
        }
        if let Some(webhook) = webhook {
            validation::secret_beside("spec.webhook.secretRef", &webhook.secret_ref, &mut errors);
        }
        errors
    }

    fn completes(&self) -> bool {
        true
    }

    async fn complete(&self, _: &RequestContext, change: Completion<'_, Reconciler>) -> Result<(), ApiError> {
        match change {
            Completion::Create(new) | Completion::Update { new, subresource: "", .. } => self.observe(new),
            Completion::Update { .. } | Completion::Delete(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64, commit: &str, status: DeploymentStatus) -> Transition {
        Transition {
            time: MicroTime(Timestamp::from_second(second).unwrap()),
            git_ops_commit_id: commit.to_owned(),
            status,
            status_message: String::new(),
        }
    }

    #[test]
    fn only_changes_of_commit_or_status_are_transitions() {
        use DeploymentStatus::{InProgress, Success};
        let mut status = ReconcilerStatus::default();
        let reported =
            [at(10, "c1", InProgress), at(20, "c1", Success), at(30, "c1", Success), at(40, "c2", InProgress)];
        let recorded = record(&mut status, &reported, Timestamp::UNIX_EPOCH);
        assert_eq!(recorded, Recorded { transitions: 3, heartbeats: 1 });
        let current = status.deployment.clone().unwrap();
        assert_eq!((current.git_ops_commit_id.as_str(), current.since.0.as_second()), ("c2", 40));
        assert_eq!(condition(&status.conditions, reason::READY).unwrap().reason, "Succeeded");

        // A late report is a transition of the past.
        let recorded = record(&mut status, &[at(5, "c0", Success)], Timestamp::UNIX_EPOCH);
        assert_eq!(recorded, Recorded { transitions: 1, heartbeats: 0 });
        assert_eq!(status.deployment, Some(current));

        // The same reports again change nothing.
        let before = status.clone();
        let again = [at(5, "c0", Success), at(10, "c1", InProgress), at(40, "c2", InProgress)];
        let recorded = record(&mut status, &again, Timestamp::UNIX_EPOCH);
        assert_eq!(recorded, Recorded { transitions: 0, heartbeats: 3 });
        assert_eq!(status, before);
    }
}
