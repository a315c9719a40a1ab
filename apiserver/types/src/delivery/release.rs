//! Release: the result of a run that changed something.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run::UsedGenerator;

/// The content of a Release. Stoa alone writes it, and never changes it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Release",
    shortname = "rel",
    category = "stoa",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "Release is the immutable result of a run that changed something: a Spec, its State after the run, and its commit. Releases are numbered 1, 2, 3 … per stack and workspace."
)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSpec {
    /// The name of the Stack.
    pub stack: String,
    /// The uid of the Stack. Another stack of the same name has releases of its own.
    #[serde(rename = "stackUID")]
    pub stack_uid: String,
    /// The name of the Workspace.
    pub workspace: String,
    /// The number of the release, from 1, per stack and workspace.
    pub revision: i64,
    /// The Run that created the release.
    pub run: String,
    /// The commit of the Source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The URL of the commit's page at its Git server. Absent if the remote has none.
    #[serde(default, rename = "commitURL", skip_serializing_if = "String::is_empty")]
    pub commit_url: String,
    /// The generator that rendered the Spec. Absent: nothing was rendered, or an earlier version of Stoa created the
    /// release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<UsedGenerator>,
    /// The digest of the plan that was applied.
    pub plan_digest: String,
    /// The digest of the Spec; GET releases/spec returns it.
    pub spec_digest: String,
    /// The digest of the State; GET releases/state returns it.
    pub state_digest: String,
    /// The number of the release that a Rollback restored. Absent for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_of: Option<i64>,
    /// Whether the run removed all resources.
    #[serde(default)]
    pub tombstone: bool,
    /// Whether resources were only recorded as found. Its Spec was not applied, so that a Rollback to this release is
    /// rejected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
}
