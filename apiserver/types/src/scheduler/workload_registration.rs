//! WorkloadRegistration: a repository with the Workload objects of an application team.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Repository;
use crate::common::{Condition, conditions_schema};

/// The desired state of a WorkloadRegistration.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "WorkloadRegistration",
    namespaced,
    status = "WorkloadRegistrationStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "WorkloadRegistration admits the repository of an application team, whose Workloads appear in the namespace."
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRegistrationSpec {
    /// The repository, the branch and the folder with the Workloads.
    pub workload: Repository,
    /// The workspace of the team. Deployment targets of the Workloads have it as the label workspace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
}

/// The observed state of a WorkloadRegistration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRegistrationStatus {
    /// The commit that was read last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The conditions of the WorkloadRegistration. Ready: the repository is readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
