//! SchedulingPolicy: which deployment targets run on which cluster types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, conditions_schema};

/// The desired state of a SchedulingPolicy.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "SchedulingPolicy",
    namespaced,
    status = "SchedulingPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "SchedulingPolicy assigns every deployment target that it selects to every cluster type that it selects."
)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicySpec {
    /// The deployment targets.
    pub deployment_target_selector: DeploymentTargetSelector,
    /// The cluster types.
    pub cluster_type_selector: ClusterTypeSelector,
}

/// A selector of deployment targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTargetSelector {
    /// The workspace of the targets. Empty: any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace: String,
    /// The labels of the targets. An empty selector matches all.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub label_selector: LabelSelector,
}

/// A selector of cluster types.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTypeSelector {
    /// The labels of the cluster types. An empty selector matches all.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub label_selector: LabelSelector,
}

/// The observed state of a SchedulingPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicyStatus {
    /// The conditions of the SchedulingPolicy. Ready: its Assignments exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
