//! What has to change, complete and decided before anything does.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{ResourceId, ResourceType};

/// What is done about one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// It is not there: make it.
    Create,
    /// It is there and differs.
    Update,
    /// It is recorded and no longer wanted: remove it.
    Delete,
    /// It cannot be changed in place: remove it and make it again.
    Replace,
    /// It is there but not recorded: take it over.
    Adopt,
    /// It is recorded, no longer wanted, and gone already: drop the record.
    Forget,
    /// Nothing to do.
    Unchanged,
}

/// One field that changes. Sensitive values are masked as `"(sensitive)"`, values not known until
/// apply are `"(known after apply)"`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Its path, such as `spec.template.spec.containers[name=web].image`.
    pub path: String,
    /// What it is; absent when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What it will be; absent when it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// Whether the live value moved away from what was recorded, rather than the wanted one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drift: bool,
}

/// What is done about one resource, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedAction {
    /// Which.
    pub id: ResourceId,
    /// Who drives it.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// What.
    pub action: Action,
    /// Which fields change; empty for whole creations, deletions and no change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// The ids whose actions come first. For deletions these are the dependents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ResourceId>,
    /// What it depends on, explicitly and implicitly; recorded in the state when it is applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// Why the server could not be asked, when it could not: its namespace or CRD is not there yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
}

/// Everything that has to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The shape of this document; 1.
    pub schema_version: u32,
    /// Of the canonical JSON of the Spec it was made from: `sha256:<hex>`.
    pub spec_digest: String,
    /// One action per resource, in an order that respects `after`.
    pub actions: Vec<PlannedAction>,
}
