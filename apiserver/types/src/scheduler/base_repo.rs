//! BaseRepo: objects that an environment shares with others, at a commit.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, conditions_schema};

/// The desired state of a BaseRepo.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "BaseRepo",
    plural = "baserepoes",
    namespaced,
    status = "BaseRepoStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "BaseRepo is a repository whose objects an environment has beside its own. The one with the name main has the promoted commit."
)]
#[serde(rename_all = "camelCase")]
pub struct BaseRepoSpec {
    /// The URL of the repository.
    pub repo: String,
    /// The branch.
    pub branch: String,
    /// The folder with the objects, from the root of the repository.
    pub path: String,
    /// The commit of the branch. Empty: its head.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
}

/// The observed state of a BaseRepo.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BaseRepoStatus {
    /// The commit that was read last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The conditions of the BaseRepo. Ready: the commit is readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
