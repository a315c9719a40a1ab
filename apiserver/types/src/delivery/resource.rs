//! Resource: one piece of infrastructure that a stack deployed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity of a Resource. Stoa alone writes it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Resource",
    shortname = "res",
    category = "stoa",
    namespaced,
    status = "ResourceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Resource is a piece of infrastructure that a stack deployed. It maps the engine's id to the identity in the infrastructure, as of the last apply."
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpec {
    /// The Stack that deployed the resource.
    pub stack: String,
    /// The Workspace that the resource is deployed to.
    pub workspace: String,
    /// The engine's id of the resource, such as apps/v1:Deployment:shop:web.
    pub id: String,
    /// The runtime of the resource: Kubernetes or Terraform.
    #[serde(rename = "type")]
    pub kind: String,
    /// The identity of the object in Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesIdentity>,
    /// The identity of a Terraform resource in the cloud, or wherever its provider keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudIdentity>,
    /// The engine's ids of the resources that this one depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// The module that the resource came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The application configuration that the resource came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_configuration: Option<String>,
    /// The number of the release that last changed the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The time of the last apply of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_time: Option<Time>,
}

/// The identity of an object in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesIdentity {
    /// The name of the cluster in the workspace. Empty for an object in a Git repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The API group. Empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The API version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace. Empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid. Empty for an object in a Git repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The identity of a Terraform resource, as its provider reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudIdentity {
    /// The provider, such as hashicorp/aws. The host is present unless it is Terraform's default.
    pub provider: String,
    /// The provider's type of the resource, such as aws_db_instance.
    pub resource_type: String,
    /// The provider's id: the attribute id. Empty for a sensitive id, and for resources without one.
    pub id: String,
    /// The Amazon resource name: the attribute arn. Empty for a sensitive one, and for resources without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arn: String,
}

/// The observed state of a Resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceStatus {
    /// The result of the last operation: Applied, Imported, Destroyed, Forgotten, Failed or Unknown.
    #[serde(default)]
    pub phase: ResourcePhase,
    /// The health after the last operation: Current, InProgress, Failed, Terminating or Unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub health: String,
}

/// The result of the last operation on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResourcePhase {
    /// The resource was applied.
    Applied,
    /// The resource existed before, and was recorded as found.
    Imported,
    /// The resource was removed.
    Destroyed,
    /// The record was removed, and the object may still exist. It has another owner, another id, or its cluster left
    /// the workspace.
    Forgotten,
    /// The operation failed.
    Failed,
    /// The result of the operation is not known.
    #[default]
    Unknown,
}

impl ResourcePhase {
    /// Whether no record of the resource remains.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Destroyed | Self::Forgotten)
    }
}
