//! SchedulingPolicy: which deployment targets run on which cluster types.

use std::collections::BTreeMap;

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
    doc = "SchedulingPolicy assigns every deployment target that it selects to every cluster type that it selects. An external scheduler may decide among these."
)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicySpec {
    /// The deployment targets.
    pub deployment_target_selector: DeploymentTargetSelector,
    /// The cluster types.
    pub cluster_type_selector: ClusterTypeSelector,
    /// The external scheduler that decides which of the selected targets run on which of the selected cluster types. Without
    /// it, all of them do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<ExternalScheduler>,
}

/// An external scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalScheduler {
    /// The name that the server's flag `--scheduler` gives the address.
    pub name: String,
    /// Values for the scheduler. That of Open Cluster Management reads `placement`: the name of a Placement.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
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

/// A decision of an external scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingDecision {
    /// The names of the cluster types.
    pub cluster_types: Vec<String>,
    /// The names of the deployment targets. Without them, all that the policy selects run on the cluster types.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_targets: Option<Vec<String>>,
}

/// The observed state of a SchedulingPolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingPolicyStatus {
    /// The last decisions of the external scheduler. Without them, it has not decided yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub decisions: Option<Vec<SchedulingDecision>>,
    /// The conditions of the SchedulingPolicy. Ready: its Assignments exist. Decided: the external scheduler answers.
    /// DecisionsValid: it names only objects that the policy selects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
