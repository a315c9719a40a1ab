//! What is recorded: the result of the last operation on every resource of one stack in one
//! workspace.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::without_bookkeeping;
use crate::resolve::Resolved;
use crate::sensitive::Sensitive;
use crate::spec::{Resource, ResourceId, ResourceType};

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

impl StateResource {
    /// What to record of a resource that was applied as `resolved` and is live as told; an empty
    /// map for runtimes that report nothing.
    pub fn applied(
        resource: &Resource,
        resolved: &Resolved,
        live: Map<String, Value>,
        depends_on: Vec<ResourceId>,
    ) -> Self {
        let mut sensitive = Sensitive::of(&resolved.attributes, &resolved.sensitive);
        sensitive.extend(&Sensitive::of(&live, &resolved.sensitive));
        Self {
            id: resource.id.clone(),
            kind: resource.kind,
            attributes: sensitive.recorded(&resource.id, &resolved.attributes),
            live: sensitive.recorded(&resource.id, &without_bookkeeping(live)),
            depends_on,
            extensions: resource.extensions.clone(),
            cluster: String::new(),
            unknown: false,
        }
    }

    /// The same with another name of the cluster.
    #[must_use]
    pub fn in_cluster(self, cluster: String) -> Self {
        Self { cluster, ..self }
    }
}

impl State {
    /// What is recorded under an id.
    pub fn get(&self, id: &ResourceId) -> Option<&StateResource> {
        self.resources.iter().find(|resource| resource.id == *id)
    }
}
