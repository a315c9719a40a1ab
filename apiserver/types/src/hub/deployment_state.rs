//! DeploymentState: the version of a workload on a host, computed from a reconciler and a descriptor.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reconciler and the descriptor of a DeploymentState.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hub.kalypso.io",
    version = "v1alpha1",
    kind = "DeploymentState",
    namespaced,
    status = "DeploymentStateStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "DeploymentState is the version of a workload on a host, as the reports of its reconciler have it."
)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStateSpec {
    /// The Reconciler.
    pub reconciler: String,
    /// The DeploymentDescriptor with the endpoint of the reconciler.
    pub descriptor: String,
    /// The host.
    pub host: String,
    /// The workspace of the team.
    pub workspace: String,
    /// The application.
    pub application: String,
    /// The workload.
    pub workload: String,
    /// The deployment target.
    pub deployment_target: String,
    /// The environment.
    pub environment: String,
}

/// The state of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStateStatus {
    /// The version on the host. Empty: the descriptor has no version for the commit, or there is no report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The version that the descriptor has now.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub described_version: String,
    /// The reported commit of the manifests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_ops_commit_id: String,
    /// The state: in_progress, success, failure, or unknown where there is no report.
    pub state: String,
    /// The message of the report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The time since which the commit has this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The time of the last report that this server received. It is lost when the server restarts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<MicroTime>,
}
