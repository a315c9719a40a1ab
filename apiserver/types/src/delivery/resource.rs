//! Resource: one piece of infrastructure that a stack deployed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which piece of infrastructure it is. Written by Stoa alone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Resource",
    plural = "resources",
    singular = "resource",
    shortname = "res",
    category = "stoa",
    namespaced,
    status = "ResourceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Resource is a piece of infrastructure that a stack deployed: it maps the engine's id to what the infrastructure calls it, as of when it was applied."
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpec {
    /// The Stack that deployed it.
    pub stack: String,
    /// The Workspace that it was deployed to.
    pub workspace: String,
    /// The engine's id, such as apps/v1:Deployment:shop:web.
    pub id: String,
    /// The runtime: Kubernetes or Terraform.
    #[serde(rename = "type")]
    pub kind: String,
    /// What Kubernetes calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesIdentity>,
    /// What the cloud calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<CloudIdentity>,
    /// The engine's ids that it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// The module that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The application configuration that it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_configuration: Option<String>,
    /// The number of the release that last changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// When it was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_time: Option<Time>,
}

/// What Kubernetes calls an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesIdentity {
    /// The cluster's name in the workspace; empty when it went to a Git repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The API group; empty for core.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid; empty when it went to a Git repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What a cloud calls a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudIdentity {
    /// The provider, such as hashicorp/aws.
    pub provider: String,
    /// The provider's type, such as aws_db_instance.
    pub resource_type: String,
    /// The provider's id.
    pub id: String,
    /// The Amazon resource name, where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arn: String,
}

/// What a Resource is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceStatus {
    /// What the last operation left behind: Applied, Imported, Destroyed, Forgotten, Failed or Unknown.
    #[serde(default)]
    pub phase: ResourcePhase,
    /// How it fared then: Current, InProgress, Failed, Terminating or Unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub health: String,
}

/// What the last operation on a resource left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResourcePhase {
    /// It was applied.
    Applied,
    /// It was there before, and was recorded as it is.
    Imported,
    /// It was removed.
    Destroyed,
    /// It is recorded no longer, and what it was may be there all the same: it is another deployment's, wanted under another
    /// id, or in a cluster that was given up.
    Forgotten,
    /// The operation failed.
    Failed,
    /// Nobody knows.
    #[default]
    Unknown,
}

impl ResourcePhase {
    /// Whether nothing is on record of the resource any more.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::Destroyed | Self::Forgotten)
    }
}
