//! GitOpsRepo: the repository that the rendered folders of an environment are proposed to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assignment::GitIssueStatus;
use crate::common::{Condition, conditions_schema};

/// The desired state of a GitOpsRepo.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "GitOpsRepo",
    plural = "gitopsrepoes",
    namespaced,
    status = "GitOpsRepoStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "GitOpsRepo is the repository and branch with the folders of cluster types. Changes arrive as one pull request."
)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsRepoSpec {
    /// The URL of the repository.
    pub repo: String,
    /// The branch that pull requests are for.
    pub branch: String,
    /// A folder. It has no effect: the folders of cluster types are at the root.
    pub path: String,
}

/// A pull request of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetPullRequest {
    /// The number.
    pub number: i64,
    /// The address of its page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The branch with the proposed files.
    pub branch: String,
    /// The commit of that branch.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
}

/// The wave of a Promotion in an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetWave {
    /// The Promotion: `<namespace>/<name>`.
    pub promotion: String,
    /// The number of the wave, from 1.
    pub number: i64,
    /// The number of cluster types of later waves. Their folders stay as they are.
    pub frozen_cluster_types: i64,
}

/// An assignment whose files cannot be rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrokenAssignment {
    /// The name of the Assignment.
    pub name: String,
    /// The problems, each with the object and the field that prevent the rendering.
    pub message: String,
}

/// An assignment with values of specific ConfigMaps that more general ones replace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplacedValues {
    /// The name of the Assignment.
    pub name: String,
    /// The values, each with both ConfigMaps.
    pub message: String,
}

/// An assignment with files that the projects which read them would reject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvalidResult {
    /// The name of the Assignment.
    pub name: String,
    /// The problems, each with the file, the object and the field.
    pub message: String,
}

/// An issue that reports a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportedIssue {
    /// The Assignment that cannot be rendered. Empty: the environment has invalid files.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub assignment: String,
    /// The issue.
    pub issue: GitIssueStatus,
}

/// The observed state of a GitOpsRepo.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsRepoStatus {
    /// The digest of the content that was proposed last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo_content_hash: String,
    /// The commit of the branch that the rendered files were compared with last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base_commit: String,
    /// The promoted commit whose files the branch has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub promoted_commit: String,
    /// The number of files of the branch that differ from the rendered files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<i64>,
    /// The wave of a Promotion whose files were compared with the branch last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<FleetWave>,
    /// The pull request that proposes the rendered files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<FleetPullRequest>,
    /// The assignments without files, whose folders stay as they are: the first 1000 by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken_assignments: Vec<BrokenAssignment>,
    /// The assignments with values of specific ConfigMaps that more general ones replace: the first 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced_values: Vec<ReplacedValues>,
    /// The assignments with files that Flux, Argo CD, Rancher Fleet or Zarf would reject: the first 1000. The files are
    /// proposed nevertheless.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_results: Vec<InvalidResult>,
    /// The open issues that report failures of the environment and of its first 20 broken assignments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<ReportedIssue>,
    /// The conditions of the GitOpsRepo. Ready: the branch has the rendered files, or a pull request proposes them.
    /// ReadyToPR: a change waits for its pull request. ValuesReplaced: a more general ConfigMap replaces a value of a more
    /// specific one in some assignments. ResultsInvalid: results of templates violate the schemas of the projects that read
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
