//! ConfigSchema: what the configuration of some assignments has to match.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EmptyStatus;

/// The desired state of a ConfigSchema.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "ConfigSchema",
    namespaced,
    status = "EmptyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "ConfigSchema is a JSON Schema for the configuration of the assignments that its labels select, as labels of a ConfigMap do."
)]
#[serde(rename_all = "camelCase")]
pub struct ConfigSchemaSpec {
    /// The JSON Schema, as a text.
    pub schema: String,
}
