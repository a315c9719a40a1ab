//! Release: what a successful apply left behind.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was released. Written by Stoa alone, and never changed.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Release",
    plural = "releases",
    singular = "release",
    shortname = "rel",
    category = "stoa",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "Release is the immutable result of a run that changed something: a Spec, the State that came of it, and the commit that it was made from, numbered 1, 2, 3 … per stack and workspace."
)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSpec {
    /// The Stack.
    pub stack: String,
    /// Its uid: another stack of the same name has releases of its own.
    #[serde(rename = "stackUID")]
    pub stack_uid: String,
    /// The Workspace.
    pub workspace: String,
    /// The number, from 1, per stack and workspace.
    pub revision: i64,
    /// The Run that made it.
    pub run: String,
    /// The commit of the source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The page of that commit at its Git server, for people; absent where its remote has none.
    #[serde(default, rename = "commitURL", skip_serializing_if = "String::is_empty")]
    pub commit_url: String,
    /// The digest of the plan that was applied.
    pub plan_digest: String,
    /// The digest of the Spec; GET releases/spec returns it.
    pub spec_digest: String,
    /// The digest of the State; GET releases/state returns it.
    pub state_digest: String,
    /// The number of the release that was gone back to, for a rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollback_of: Option<i64>,
    /// Whether everything was removed.
    #[serde(default)]
    pub tombstone: bool,
    /// Whether resources were only recorded as they were found: the Spec was not applied, and is nothing to go back to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
}
