//! Workspace: the target of deployments.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    common::{
        Condition, LocalReference, SecretKeyReference, SecretReference, Subject, any_object_schema, conditions_schema,
    },
    platform::{Compliance, SecretStore, SopsDecryption, TerraformTarget},
};

/// The desired state of a Workspace.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "Workspace",
    shortname = "ws",
    category = "stoa",
    status = "WorkspaceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Workspace is a landing zone that stacks are deployed to: clusters or a GitOps repository, Terraform providers, or both, with the platform's configuration for all stacks there. Deploying to it needs the verb use on it."
)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSpec {
    /// A description of the workspace for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Backend that stores the specs, plans and states of the workspace's deployments.
    pub backend: LocalReference,
    /// The clusters that Kubernetes objects are applied to. Not together with gitops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesTarget>,
    /// The repository that Kubernetes objects are committed to, if there is no cluster.
    #[serde(default, rename = "gitops", skip_serializing_if = "Option::is_none")]
    pub gitops: Option<GitOpsTarget>,
    /// The providers that Terraform resources are applied with. Together with kubernetes or gitops, or alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terraform: Option<TerraformTarget>,
    /// The modules and their configuration, as in Kusion's workspace.yaml.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub modules: Map<String, Value>,
    /// The default source of secrets, as in Kusion's workspace.yaml. Its providers are those of secretStores.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub secret_store: Map<String, Value>,
    /// Other sources of secrets, which a value `ref://<name>/<property>?store=<store>` chooses by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub secret_stores: Vec<SecretStore>,
    /// The key that decrypts manifests of SOPS before they are rendered. Absent: they stay as they are. For clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sops: Option<SopsDecryption>,
    /// The settings for generators and runtimes, as in Kusion's workspace.yaml.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub context: Map<String, Value>,
    /// The values for the generators of all stacks here, by name. A value is any JSON. They override those of
    /// VariableSets, and the parameters of a Stack or Run override them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub values: Map<String, Value>,
    /// The names of values here that no Stack or Run may override.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub final_values: Vec<String>,
    /// The health policies for all stacks here. A resource's own policy takes precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["apiVersion", "kind"]))]
    pub health_policies: Vec<HealthPolicy>,
    /// Whether every plan for this workspace needs approval before it is applied.
    #[serde(default)]
    pub require_approval: bool,
    /// The retention of records in this workspace. Absent: all records remain, except those of deleted stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// The health of objects of a kind, by expressions in CEL as in Flux's healthCheckExprs. The fields of the live object
/// are variables, and the whole is object. inProgress, failed and current are evaluated in this order. An object that
/// matches none is in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthPolicy {
    /// The group and version of the objects, such as example.com/v1. The policy holds for other versions of the group
    /// too.
    pub api_version: String,
    /// The kind of the objects.
    pub kind: String,
    /// The expression for a healthy object, such as status.phase == 'Running'.
    pub current: String,
    /// The expression for an object that will not become healthy by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// The expression for an object in progress. It takes precedence over the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_progress: Option<String>,
}

/// The number of records to retain per stack. Records of runs in progress and of deployments always remain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// The number of completed runs to retain. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<i64>,
    /// The number of releases to retain, with their destroyed Resources and their documents in the Backend.
    /// Absent: all. A Rollback to a removed release is not possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<i64>,
    /// The number of days for which the runs, releases and Resources of deleted stacks remain, unless `runs` or
    /// `releases` is set. 0: for ever. Defaults to 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_stack_days: Option<i64>,
    /// The number of runs, of releases and of Resources that remain of a deleted stack, the newest of each, unless
    /// `runs` or `releases` is set. 0: all. Defaults to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_stack_records: Option<i64>,
}

/// The clusters of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesTarget {
    /// The clusters. Objects that name none are applied to the first.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub clusters: Vec<Cluster>,
    /// The effect on a plan that deletes a Namespace or CustomResourceDefinition whose contents the credentials may not
    /// list completely. Others may own objects in it. Refuse, the default, rejects the plan, unless the deleted object
    /// has stoa.dev/delete-contents. Ignore carries the plan out, with a warning that names the unlisted kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted_contents: Option<UnlistedContents>,
}

/// The effect on a plan that deletes a Namespace or CustomResourceDefinition whose contents the credentials may not
/// list completely: Refuse (the default) or Ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnlistedContents {
    /// The plan is rejected, unless the deleted object has stoa.dev/delete-contents.
    Refuse,
    /// The plan is carried out, with a warning that names the unlisted kinds.
    Ignore,
}

/// A cluster of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// The name of the cluster in this workspace.
    pub name: String,
    /// Whether this is the cluster that Stoa runs in. A standalone server uses the cluster of the function-runner's
    /// --kubeconfig.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_cluster: bool,
    /// The key of a Secret that holds the kubeconfig of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyReference>,
    /// The context in the kubeconfig. Defaults to its current context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// The repository that a GitOps tool reconciles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsTarget {
    /// The URL or path of the repository.
    pub repository: String,
    /// The branch to commit to. Defaults to main.
    #[serde(default = "default_branch")]
    pub branch: String,
    /// Whether the first commit creates a missing branch. Otherwise the workspace is not Ready without the branch, and
    /// runs fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_branch: bool,
    /// The folder in the repository. Empty: the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The way to change the branch: Commit or PullRequest.
    #[serde(default)]
    pub mode: CommitMode,
    /// The effect of invalid manifests on a plan, which validates them before the commit. Defaults to Strict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// The version of Kubernetes whose schemas validate manifests: 1.33, 1.34, 1.35 or 1.36. Defaults to the newest of
    /// these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// The server of the repository's pull requests. For mode PullRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<PullRequests>,
    /// The Secret with the repository's credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The reconcilers from which Stoa reads whether clusters have the committed manifests. Absent: compliance is not
    /// checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<Compliance>,
}

/// The server of a repository's pull requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequests {
    /// The kind of the server: Gitea, GitHub or GitLab.
    pub provider: PullRequestProvider,
    /// The address at which people open the server, such as `https://git.example.com`: https, or http of a loopback
    /// address. Empty: the address of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The prefix of branch names; organization, stack and workspace follow. Defaults to `stoa/`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch_prefix: String,
    /// The Secret with the server's credentials: `token`, or `username` and `password`, and `ca.crt` for a private
    /// authority. Absent: the Secret of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// The kind of a server of pull requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullRequestProvider {
    /// Gitea, and Forgejo.
    #[default]
    Gitea,
    /// GitHub, and GitHub Enterprise Server.
    GitHub,
    /// GitLab, hosted or self-managed.
    GitLab,
}

fn default_branch() -> String {
    "main".to_owned()
}

/// The way to change the branch of a GitOps repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CommitMode {
    /// A commit to the branch.
    #[default]
    Commit,
    /// A pull request against the branch.
    PullRequest,
}

/// The effect of invalid manifests on a plan: Strict (the default), Warn or Off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Validation {
    /// The plan is rejected, with all errors.
    Strict,
    /// The plan has warnings.
    Warn,
    /// Manifests are not validated.
    Off,
}

/// The observed state of a Workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceStatus {
    /// The number of stacks that are deployed here.
    #[serde(default)]
    pub stacks: i64,
    /// The conditions of the workspace. Ready: the Backend exists and is ready, and the Secrets, the repository and its
    /// branch exist. The message warns about inCluster on a standalone server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
