//! What is recorded: the result of the last operation on every resource of one stack in one
//! workspace.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::spec::{ResourceId, ResourceType};

/// What is recorded of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateResource {
    /// Its id.
    pub id: ResourceId,
    /// Who drives it.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// What was applied: the wanted attributes with references replaced, and sensitive values
    /// replaced by `{"$sensitive": "sha256:…"}`.
    pub attributes: Map<String, Value>,
    /// What other resources may refer to and the infrastructure chose, such as `metadata.uid` or
    /// `spec.clusterIP`: the live object as it was after the operation, sensitive values masked
    /// the same way; absent for runtimes that have none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub live: Map<String, Value>,
    /// What it depended on, explicitly and implicitly, when it was applied: deletes follow this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// The extensions it was applied with.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// The Kubernetes cluster it lives in, by its name in the workspace; empty for others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// A call was made whose result nobody knows; nothing may be done before a person decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// All that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The resources, by id.
    pub resources: Vec<StateResource>,
}
