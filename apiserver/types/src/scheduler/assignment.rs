//! Assignment: a deployment target on a cluster type.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, conditions_schema};

/// The desired state of an Assignment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "Assignment",
    namespaced,
    status = "AssignmentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Assignment is a deployment target on a cluster type, as scheduling policies select both."
)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSpec {
    /// The Workload.
    pub workload: String,
    /// The DeploymentTarget.
    pub deployment_target: String,
    /// The ClusterType.
    pub cluster_type: String,
}

/// The observed state of an Assignment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentStatus {
    /// The issue in the GitOps repository that reports a failure.
    #[serde(default)]
    pub git_issue_status: GitIssueStatus,
    /// The conditions of the Assignment. Ready: its files are rendered. A message names the object and the
    /// field that prevent it. ValuesReplaced: a more general ConfigMap replaces a value of a more specific one.
    /// ResultsInvalid: Flux, Argo CD, Rancher Fleet or Zarf would reject a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The issue that reports the failure of an Assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitIssueStatus {
    /// The number of the issue. 0: there is none.
    #[serde(default)]
    pub issue_no: i64,
    /// The digest of the reported message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_hash: String,
}
