//! Repository: a registered repository of packages.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::{Condition, conditions_schema},
    config::Webhook,
    porch::NameReference,
};

/// The desired state of a Repository.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.porch.kpt.dev",
    version = "v1alpha1",
    kind = "Repository",
    plural = "repositories",
    singular = "repository",
    namespaced,
    status = "RepositoryStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Repository is a Git repository or an OCI registry whose packages are served. Its deletion removes nothing there."
)]
#[serde(rename_all = "camelCase")]
pub struct RepositorySpec {
    /// A description of the repository for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether the packages of the repository are deployed as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deployment: bool,
    /// The type of the repository: git, oci or runner. Defaults to git. A registry gets published revisions only.
    #[serde(default, rename = "type")]
    pub kind: RepositoryType,
    /// The content of the repository: Package or Function. Defaults to Package. A repository of functions without
    /// `git` and `oci` offers the functions of the function-runners.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content: String,
    /// The Git repository. Type git requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitRepository>,
    /// The OCI registry. Type oci requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciRepository>,
    /// The times of synchronization with Git or the registry. Absent: every ten minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<RepositorySync>,
    /// The repository whose packages are cloned where a task of type clone names no upstream, or only a folder of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamRepository>,
    /// The functions that change every package of the repository at each save, after those of its Kptfile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub mutators: Vec<RepositoryFunction>,
    /// The functions that check every package of the repository at each save, and once more before its publication, which
    /// they prevent if they fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub validators: Vec<RepositoryFunction>,
    /// Whether the packages of the repository are for reading and cloning only. The server then pushes nothing, and several
    /// namespaces may register the same packages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The secret by which a Git server requests a synchronization at once. Absent: such requests are rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
}

/// The default upstream of a repository: one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamRepository {
    /// The type of a repository that is not registered: git.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// A Git repository that is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitRepository>,
    /// A Repository of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository_ref: Option<NameReference>,
}

/// A function for every package of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryFunction {
    /// The image of the function. A short name is one of kpt's catalog.
    #[schemars(length(min = 1, max = 1000))]
    pub image: String,
    /// The configuration of the function.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config_map: BTreeMap<String, String>,
}

/// The type of a repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RepositoryType {
    /// A Git repository.
    #[default]
    Git,
    /// An OCI registry.
    Oci,
    /// The function-runners of the server. They have functions alone.
    Runner,
}

/// A Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepository {
    /// The address of the repository, without credentials.
    #[serde(default)]
    pub repo: String,
    /// The branch with the published packages. Defaults to main.
    #[serde(default = "GitRepository::main")]
    pub branch: String,
    /// Whether the server creates the branch where it does not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_branch: bool,
    /// The folder of the packages. Empty: the root of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The Secret with the credentials, in the namespace of the Repository. Its keys are `username` and `password`,
    /// `bearerToken` or `token`, and `ca.crt` for a private authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
    /// The name of the author of commits. Empty: the user of the request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
    /// The email address of the author of commits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub email: String,
}

impl GitRepository {
    fn main() -> String {
        "main".to_owned()
    }
}

/// An OCI registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciRepository {
    /// A repository of the registry, such as `registry.example.com/packages/basens`, or the beginning of the names of
    /// several, such as `registry.example.com/packages`. The latter needs a registry that lists its repositories.
    #[serde(default)]
    pub registry: String,
    /// The Secret with the credentials, in the namespace of the Repository. Its keys are `username` and `password`, `token`,
    /// `bearerToken` or `.dockerconfigjson`, and `ca.crt` for a private authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
}

/// The times of synchronization with Git or a registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositorySync {
    /// A cron expression of five fields, in UTC, such as `*/10 * * * *`. Empty: every ten minutes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// The time of one synchronization besides the schedule. A new value requests another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_once_at: Option<Time>,
}

/// The observed state of a Repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryStatus {
    /// The conditions. Ready: the repository was read. PackagesReadable: no package of it is broken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// The generation of the Repository at the last synchronization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time of the last successful synchronization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_full_sync_time: Option<Time>,
    /// The time of the next synchronization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_full_sync_time: Option<Time>,
    /// The number of package revisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_count: Option<i64>,
    /// The commit of the branch at the last synchronization. Empty for a registry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_commit_hash: String,
    /// The value of `spec.sync.runOnceAt` that the last synchronization served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_once_at: Option<Time>,
    /// The time of the last synchronization request by a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_webhook_time: Option<MicroTime>,
}
