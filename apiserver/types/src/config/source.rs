//! Source: a repository with configuration.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::{ChangedBy, Condition, DurationString, LocalReference, SecretReference, Subject, conditions_schema},
    platform::PullRequestProvider,
};

/// The desired state of a Source.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Source",
    shortname = "src",
    category = "stoa",
    namespaced,
    status = "SourceStatus",
    derive = "PartialEq",
    doc = "Source is a Git repository, an OCI artifact, a Helm chart or a package with the configuration of projects."
)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// A description of the source for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The protocol of the repository. Defaults to Git.
    #[serde(default)]
    pub provider: SourceProvider,
    /// The URL of the repository, without credentials: `https://git.example.com/shop/config.git` for Git,
    /// `oci://registry.example.com/shop/config` for OCI. For Helm, a chart repository: `https://charts.example.com`, or
    /// `oci://registry.example.com/charts`. All providers but Package require it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remote: String,
    /// The name of the chart in the repository. For provider Helm, which requires it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub chart: String,
    /// The kpt package, for provider Package, which requires it. Paths of Projects and Stacks begin at its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<SourcePackage>,
    /// The revision that version `latest` stands for. Git: a branch, tag or commit; empty: the remote's default branch.
    /// OCI: a tag, a digest, TAG@DIGEST, or a range such as `^1.2`; empty: the tag latest. Helm: a version,
    /// VERSION@DIGEST with the SHA-256 of the archive, or a range; empty: the newest release. Package: the number of a
    /// published revision, such as `v3`, or the workspace of a revision; empty: the newest published revision.
    #[serde(default, rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The Secret with the credentials, in the namespace of the Source. Its keys are those of the Secret types
    /// basic-auth and ssh-auth, or `token`, and `ca.crt` for a private authority. For a registry, it may be of the type
    /// kubernetes.io/dockerconfigjson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The public keys of which one must have signed a commit before Stoa renders it. Git: the commit itself, or an
    /// annotated tag with its own name that leads to the commit. OCI: the artifact, by cosign. Absent: no signature is
    /// needed. For providers Git and OCI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<SourceVerification>,
    /// The time between two fetches of the repository, as a duration such as 60s. At least 1s. Defaults to 60s.
    #[serde(default = "DurationString::seconds::<60>")]
    pub poll_interval: DurationString,
    /// The secret by which a Git server requests a fetch at once. Absent: such requests are rejected. For provider Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// The server of the repository's pull requests, which receives their plans. Absent: pull requests are not planned.
    /// For provider Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_requests: Option<PullRequestPlans>,
}

/// Public keys whose signatures a Source accepts. Any of the lists may be absent, but not all. A text of a list has keys
/// of SSH as in an `allowed_signers` or `authorized_keys` file, armored keys of OpenPGP, or a key of cosign (`PUBLIC KEY`
/// of ECDSA P-256). A key of OpenPGP counts if it was neither expired nor revoked at the time of the signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceVerification {
    /// Texts with public keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub public_keys: Vec<String>,
    /// The Secret, in the namespace of the Source, whose keys have texts with public keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The ConfigMap, in the namespace of the Source, whose keys have texts with public keys. Not of a standalone server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<LocalReference>,
}

/// The server that receives the plans of open pull requests into the Source's branch. Stoa starts a Preview at the head
/// commit in each workspace of every stack whose folder the pull request changes. The stack must follow the branch and
/// have the trigger Preview or Apply. Stoa reports the plans as a commit status and one comment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestPlans {
    /// The kind of the server: Gitea, GitHub or GitLab.
    pub provider: PullRequestProvider,
    /// The https address at which people open the server, such as `https://git.example.com`. Empty: the address of the
    /// repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The Secret with the server's credentials, in the namespace of the Source. Its keys are `token`, or `username`
    /// and `password`, and `ca.crt` for a private authority. Absent: the Secret of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// Whether pull requests from forks are planned too. Users who may open one then have their files rendered, and see
    /// how the result differs from live infrastructure.
    #[serde(default)]
    pub allow_forks: bool,
}

/// The secret by which Stoa authenticates a Git server that reports a push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// The Secret, in the same namespace, whose key `token` the Git server also has. The server signs its deliveries with
    /// it, or sends it.
    pub secret_ref: SecretReference,
}

/// A kpt package of a Repository (`config.porch.kpt.dev`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourcePackage {
    /// The Repository, in the namespace of the Source. Its Secret is used for reads.
    pub repository: String,
    /// The path of the package from the directory of the Repository, such as `network/basens`.
    pub name: String,
}

/// The protocol of a repository: Git, OCI, Helm or Package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SourceProvider {
    /// Git, over https, ssh or a local path.
    #[default]
    Git,
    /// An artifact in an OCI registry. Its revision is the digest of its manifest.
    #[serde(rename = "OCI")]
    Oci,
    /// A chart of a Helm repository, over HTTP or in an OCI registry. Its revision is the digest of its archive.
    Helm,
    /// A kpt package of a Repository. Its revision is a commit. Drafts are for Previews alone.
    Package,
}

/// The observed state of a Source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The user who last changed where the Source leads, or who created it after projects that name it. Runs that a
    /// trigger starts for the Source count as requested by this user too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_by: String,
    /// The users who did so, the latest last, at most 16. If there were more, the first entry stands for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// The commit of the ref at the last fetch; for OCI and Helm, the digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_commit: Option<String>,
    /// The commits, at the last fetch, of the other versions that stacks of the Source desire.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<ObservedVersion>,
    /// The time of the last successful fetch, to within five minutes. A new commit is recorded at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync_time: Option<Time>,
    /// The time of the last fetch request by a webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_webhook_time: Option<MicroTime>,
    /// The open pull requests whose plans are reported, at most the latest 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["number"]))]
    pub pull_requests: Vec<PlannedPullRequest>,
    /// The commit of the ref up to which merged pull requests are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merges_known_at: Option<String>,
    /// The conditions of the Source. Ready: the repository is readable. Verified: a trusted key signed the commit of the
    /// ref. PullRequestsPlanned: the changes of open pull requests are planned and reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A pull request whose plans are reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedPullRequest {
    /// The number of the pull request in its repository.
    pub number: i64,
    /// The URL of the pull request's page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The head commit of the pull request.
    #[serde(default)]
    pub commit: String,
    /// The phase of its plans: Pending, Succeeded or Failed.
    #[serde(default)]
    pub phase: PlansPhase,
    /// The number of plans, one for each stack and workspace. Each is a Run with the label `stoa.dev/pull-request`.
    #[serde(default)]
    pub plans: i64,
    /// Whether a comment was written.
    #[serde(default)]
    pub commented: bool,
    /// The id of that comment. It identifies the comment on servers that do not report its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<i64>,
    /// The digest of the last report on the pull request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub told: String,
}

/// The phase of a pull request's plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlansPhase {
    /// Some plans are not made yet.
    #[default]
    Pending,
    /// All plans are made.
    Succeeded,
    /// Some plans could not be made.
    Failed,
}

/// A version other than latest, with its commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedVersion {
    /// The branch, tag or abbreviated commit.
    pub version: String,
    /// The commit of the version. Absent if the repository has no such version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}
