//! Workspace: a place to deploy to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    common::{
        Condition, LocalReference, SecretKeyReference, SecretReference, Subject, any_object_schema, conditions_schema,
    },
    platform::Compliance,
};

/// What a Workspace is to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "Workspace",
    plural = "workspaces",
    singular = "workspace",
    shortname = "ws",
    category = "stoa",
    status = "WorkspaceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Workspace is a landing zone that stacks are deployed to: clusters or a GitOps repository, with the platform's configuration for all stacks there. To deploy to it one needs the verb use on it."
)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSpec {
    /// What the workspace is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Backend that keeps specs, plans and states of what is deployed here.
    pub backend: LocalReference,
    /// The clusters that Kubernetes objects are applied to; absent: there is none. Not together with gitops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesTarget>,
    /// The repository that Kubernetes objects are committed to, when there is no cluster.
    #[serde(default, rename = "gitops", skip_serializing_if = "Option::is_none")]
    pub gitops: Option<GitOpsTarget>,
    /// Modules and their configuration, as in Kusion's workspace.yaml.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub modules: Map<String, Value>,
    /// Where secrets come from, as in Kusion's workspace.yaml.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub secret_store: Map<String, Value>,
    /// Settings for generators and runtimes, as in Kusion's workspace.yaml.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub context: Map<String, Value>,
    /// When objects of a kind are healthy, for all stacks here: of those whose resources do not say so themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["apiVersion", "kind"]))]
    pub health_policies: Vec<HealthPolicy>,
    /// Whether every plan for this workspace must be approved before it is applied.
    #[serde(default)]
    pub require_approval: bool,
    /// What is kept of what happened here; absent: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// When objects of a kind are healthy, by expressions in CEL as in Flux's healthCheckExprs: the fields of the live object are
/// variables, and the whole is object. inProgress, failed and current are asked in this order, and what none holds for is
/// in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthPolicy {
    /// The group and version of the objects, such as example.com/v1. Those of other versions of the group are meant, too.
    pub api_version: String,
    /// Their kind.
    pub kind: String,
    /// What holds for an object that is healthy, such as status.phase == 'Running'.
    pub current: String,
    /// What holds for one that will not become healthy by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What holds for one that is on its way, whatever else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
}

/// How many records of each stack are kept. What is under way or deployed is kept in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// How many runs that have ended; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<i64>,
    /// How many releases, with the Resources that were destroyed in them and their documents in the Backend; absent: all. One
    /// that is gone cannot be gone back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<i64>,
    /// How many days the runs, releases and Resources of deleted stacks are kept, unless `runs` or `releases` is set; absent: 90;
    /// 0: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_stack_days: Option<i64>,
    /// How many runs, how many releases and how many Resources of a deleted stack are kept, the newest of each, unless `runs` or
    /// `releases` is set; absent: 100; 0: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_stack_records: Option<i64>,
}

/// The clusters of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesTarget {
    /// The clusters; the first is where objects go that name none.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub clusters: Vec<Cluster>,
    /// What becomes of a plan that deletes a Namespace or CustomResourceDefinition of whose contents the credentials may not
    /// list everything, so that others may own something of that. Refuse, which is the default: the plan is refused, unless what
    /// it deletes says stoa.dev/delete-contents. Ignore: it is carried out, and tells which kinds were not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted_contents: Option<UnlistedContents>,
}

/// What becomes of a deletion with which something may go that cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnlistedContents {
    /// It is refused, unless what is deleted says stoa.dev/delete-contents.
    Refuse,
    /// It is done, and the plan tells which kinds were not looked at.
    Ignore,
}

/// One cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Its name in this workspace.
    pub name: String,
    /// Whether it is the cluster that Stoa runs in. Standalone, the one that the function-runner's --kubeconfig leads to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
    /// The key of a Secret that holds its kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyReference>,
    /// The context in the kubeconfig; empty for its current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// A repository that a GitOps tool reconciles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsTarget {
    /// The URL or path of the repository.
    pub repository: String,
    /// The branch to commit to.
    #[serde(default = "default_branch")]
    pub branch: String,
    /// Whether the first commit makes the branch where it does not exist. Otherwise a missing branch is refused: the workspace
    /// is not Ready, and runs fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_branch: bool,
    /// The folder in the repository; empty for the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// Whether to commit to the branch or to open a pull request.
    #[serde(default)]
    pub mode: CommitMode,
    /// What becomes of a plan with manifests that no cluster would take: they are validated before they are committed. Absent:
    /// Strict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// The version of Kubernetes by whose schemas manifests are validated: 1.33, 1.34, 1.35 or 1.36. Absent: the newest of
    /// these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// Where pull requests are opened; for mode PullRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequests>,
    /// The Secret with the repository's credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// Where it is read back whether clusters have what is committed; absent: nobody looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<Compliance>,
}

/// Where a repository has its pull requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequests {
    /// Which kind of server it is.
    pub provider: PullRequestProvider,
    /// The address that people open the server by, such as `https://git.example.com`: https, or http of a loopback address;
    /// empty: that of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// What the names of branches begin with; organization, stack and workspace follow. Empty: `stoa/`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch_prefix: String,
    /// The Secret with what is shown to the server: `token`, or `username` and `password`, and `ca.crt` for a private authority.
    /// Absent: that of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// A kind of server that has pull requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullRequestProvider {
    /// Gitea, and Forgejo.
    #[default]
    Gitea,
    /// GitHub, and GitHub Enterprise Server.
    GitHub,
}

fn default_branch() -> String {
    "main".to_owned()
}

/// How changes reach a GitOps repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CommitMode {
    /// As a commit to the branch.
    #[default]
    Commit,
    /// As a pull request against the branch.
    PullRequest,
}

/// What invalid manifests do to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Validation {
    /// The plan is refused, with all that is wrong.
    Strict,
    /// The plan has warnings.
    Warn,
    /// Manifests are not validated.
    Off,
}

/// What a Workspace is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// How many stacks are deployed here.
    #[serde(default)]
    pub stacks: i64,
    /// Ready: the Backend exists and is ready, and the Secrets, the repository and its branch exist. The message tells of inCluster where
    /// there is no cluster around the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
