//! DeploymentTarget: what a workload deploys in one environment.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EmptyStatus;

/// The desired state of a DeploymentTarget.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "DeploymentTarget",
    namespaced,
    status = "EmptyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "DeploymentTarget is one variant of a workload, such as a ring, for one environment. Scheduling policies select it by its labels."
)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentTargetSpec {
    /// The environment of the target. Policies of other namespaces do not see it.
    pub environment: String,
    /// The location of the manifests, for templates: `repo`, `branch` and `path` by custom.
    pub manifests: BTreeMap<String, String>,
    /// JSON Schemas, as texts, that the configuration has to match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_schemas: Vec<String>,
}
