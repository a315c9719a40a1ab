//! Kinds for tests, also those of other crates (feature `testing`).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::strategy::DefaultStrategy;

/// Leaves a number of 0 out, as types should not.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test.dev", version = "v1", kind = "Rack", namespaced, status = "RackStatus")]
#[kube(scale(spec_replicas_path = ".spec.shelves", status_replicas_path = ".status.shelves"))]
pub struct RackSpec {
    #[serde(default, skip_serializing_if = "is_zero")]
    shelves: i64,
}

/// The status of a rack.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RackStatus {
    #[serde(default)]
    shelves: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The strategy of racks.
pub type Racks = DefaultStrategy<Rack>;
