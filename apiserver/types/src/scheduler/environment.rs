//! Environment: a stage of promotion, and the branch of the control plane that configures it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Repository;
use crate::common::{Condition, conditions_schema};

/// The desired state of an Environment.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "Environment",
    namespaced,
    status = "EnvironmentStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Environment is a stage of promotion such as dev. Its branch of the control plane has the objects of the namespace with its name."
)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentSpec {
    /// The repository, the branch and the folder with the objects of the environment.
    pub control_plane: Repository,
}

/// The observed state of an Environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentStatus {
    /// The time of the last delivery of a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_webhook_time: Option<MicroTime>,
    /// The commit that was read last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The conditions of the Environment. Ready: the branch is readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
