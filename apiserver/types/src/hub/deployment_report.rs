//! DeploymentReport: the deployments of reconcilers, as their cluster or an agent reports them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DeploymentStatus;

/// The most deployments of one report.
pub const MAX_REPORTED_DEPLOYMENTS: usize = 1000;

/// The content of a DeploymentReport.
///
/// Clients create it at `/apis/hub.kalypso.io/v1alpha1/namespaces/<namespace>/deploymentreports`. Stoa answers with the same
/// object and its status, and stores no such object. A report is recorded whole or rejected whole. 422: the report is wrong.
/// 429 with `Retry-After`: the client sends the same report again later. A repeated report adds nothing to the history.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hub.kalypso.io",
    version = "v1alpha1",
    kind = "DeploymentReport",
    namespaced,
    status = "DeploymentReportStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "DeploymentReport reports the deployments of reconcilers, one or many, current or late. It is not stored."
)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentReportSpec {
    /// The deployments, at least one, with at most 100 of the same reconciler. Those are recorded in the order of their times.
    #[schemars(length(min = 1, max = 1000))]
    pub deployments: Vec<ReportedDeployment>,
}

/// The deployment of a reconciler at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedDeployment {
    /// The name of the Reconciler, which exists in the namespace of the report.
    #[schemars(length(min = 1, max = 253))]
    pub reconciler: String,
    /// The commit of the manifests: the part of a revision of Flux after `@` and after `sha1:`.
    #[schemars(length(min = 1, max = 100))]
    pub git_ops_commit_id: String,
    /// The status.
    pub status: DeploymentStatus,
    /// A text for people, at most 1024 characters. A change of it alone is not a transition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub status_message: String,
    /// The time at which the reconciler had this state, by the clock of the cluster. Absent: now. A time in the future is
    /// recorded as now, with a warning if it is more than 10 minutes ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<MicroTime>,
}

/// The answer to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentReportStatus {
    /// The number of deployments that changed a commit or a status. They are durable.
    #[serde(default)]
    pub transitions: i64,
    /// The number of deployments that repeated what is known already.
    #[serde(default)]
    pub heartbeats: i64,
    /// The problems that did not prevent the recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<ReportWarning>,
}

/// A problem of one deployment of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportWarning {
    /// The field, such as `spec.deployments[3].time`.
    pub field: String,
    /// The reason: UnknownCommit, TimeInFuture or OlderThanRetention.
    pub reason: String,
    /// A text for people.
    pub message: String,
}
