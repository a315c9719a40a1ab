//! AssignmentPackage: the rendered manifests of an Assignment.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, conditions_schema};

/// The desired state of an AssignmentPackage.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "AssignmentPackage",
    namespaced,
    status = "AssignmentPackageStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "AssignmentPackage has the rendered manifests of the Assignment with its name."
)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentPackageSpec {
    /// The manifests of the reconciler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reconciler_manifests: Vec<String>,
    /// The type of the manifests of the reconciler: `sh`, else YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reconciler_manifests_content_type: String,
    /// The manifests of the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace_manifests: Vec<String>,
    /// The type of the manifests of the namespace: `sh`, else YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace_manifests_content_type: String,
    /// The manifests of the config.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_manifests: Vec<String>,
    /// The type of the manifests of the config: `sh`, else YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_manifests_content_type: String,
}

/// The observed state of an AssignmentPackage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentPackageStatus {
    /// The conditions of the AssignmentPackage. None is set by Stoa.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
