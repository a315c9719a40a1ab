//! ClusterType: a kind of clusters, which share a folder of the GitOps repository.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EmptyStatus;

/// The desired state of a ClusterType.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "ClusterType",
    namespaced,
    status = "EmptyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "ClusterType is a group of clusters that get the same workloads and configuration. It has a folder in the GitOps repository."
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTypeSpec {
    /// The Template that points the clusters' reconciler to a workload's manifests.
    pub reconciler: String,
    /// The Template of a workload's namespace.
    pub namespace_service: String,
    /// The Template of a workload's configuration. Without a Template of this name, `configMap` and the empty text are a
    /// ConfigMap, and `envFile` is a file of shell variables.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_type: String,
}
