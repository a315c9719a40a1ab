//! DeploymentDescriptor: one version of a workload at a deployment target.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::manifests_endpoint;
use crate::{
    common::{Condition, conditions_schema},
    scheduler::Repository,
};

/// The desired state of a DeploymentDescriptor.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hub.kalypso.io",
    version = "v1alpha1",
    kind = "DeploymentDescriptor",
    namespaced,
    status = "DeploymentDescriptorStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "DeploymentDescriptor is a version of a workload at a deployment target, beside its manifests."
)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentDescriptorSpec {
    /// The workload.
    pub workload: DescribedWorkload,
    /// The deployment target.
    pub deployment_target: DescribedTarget,
    /// The version.
    pub workload_version: WorkloadVersion,
}

impl DeploymentDescriptorSpec {
    /// The endpoint of the manifests.
    pub fn endpoint(&self) -> String {
        let Repository { repo, branch, path } = &self.deployment_target.manifests;
        manifests_endpoint(repo, branch, path)
    }
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescribedWorkload {
    /// The name of the workload.
    pub name: String,
    /// The folder with its source code.
    pub source: Repository,
    /// The application that the workload is a part of.
    pub application: Application,
}

/// An application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Application {
    /// The name of the application.
    pub name: String,
    /// The workspace that owns the application.
    pub workspace: Workspace,
}

/// A workspace of a team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workspace {
    /// The name of the workspace.
    pub name: String,
}

/// A deployment target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DescribedTarget {
    /// The name of the deployment target.
    pub name: String,
    /// The environment.
    pub environment: String,
    /// The folder with the manifests, which reconcilers have as their endpoint.
    pub manifests: Repository,
}

/// A version of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadVersion {
    /// The version, such as 1.4.0.
    pub version: String,
    /// The build.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// The commit of the source code.
    pub commit: String,
    /// The time of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_time: Option<Time>,
}

/// The observed state of a DeploymentDescriptor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentDescriptorStatus {
    /// The commit of the folder with the manifests that has this version. Clusters report this commit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_ops_commit_id: String,
    /// The commits that the descriptor had, each with its version: the last 100, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assigned_versions: Vec<AssignedVersion>,
    /// The conditions of the DeploymentDescriptor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A version that a commit of the manifests has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignedVersion {
    /// The commit of the manifests.
    pub git_ops_commit_id: String,
    /// The version of the workload.
    pub version: String,
    /// The build.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// The commit of the source code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The time at which Stoa saw the commit.
    pub time: MicroTime,
}
