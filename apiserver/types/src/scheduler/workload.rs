//! Workload: an application or service with its deployment targets in all environments.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, conditions_schema};

/// The desired state of a Workload.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "Workload",
    namespaced,
    status = "WorkloadStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Workload is an application or a service. Each of its deployment targets for this environment becomes a DeploymentTarget."
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// The deployment targets, for all environments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployment_targets: Vec<WorkloadTarget>,
    /// JSON Schemas, as texts, that the configuration of every target has to match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_schemas: Vec<String>,
}

/// One deployment target of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTarget {
    /// The name of the target. The DeploymentTarget is named `<workload>-<name>`.
    pub name: String,
    /// The labels of the DeploymentTarget. Labels of the Workload override them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The environment of the target.
    pub environment: String,
    /// The location of the manifests, for templates: `repo`, `branch` and `path` by custom.
    pub manifests: BTreeMap<String, String>,
    /// JSON Schemas, as texts, that the configuration of the target has to match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_schemas: Vec<String>,
}

/// The observed state of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// The conditions of the Workload. Ready: its deployment targets exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
