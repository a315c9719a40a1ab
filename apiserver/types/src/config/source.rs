//! Source: a repository that configuration is read from.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::{ChangedBy, Condition, DurationString, SecretReference, Subject, conditions_schema},
    platform::PullRequestProvider,
};

/// What a Source is to be.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Source",
    plural = "sources",
    singular = "source",
    shortname = "src",
    category = "stoa",
    namespaced,
    status = "SourceStatus",
    derive = "PartialEq",
    doc = "Source is a Git repository (or an OCI one) that the configuration of projects is read from."
)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// What the source is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// Which protocol the repository speaks.
    #[serde(default)]
    pub provider: SourceProvider,
    /// The URL of the repository, without credentials: `https://git.example.com/shop/config.git`.
    pub remote: String,
    /// The branch, tag or commit that `latest` means; empty for the remote's default branch.
    #[serde(default, rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The Secret beside the Source with the credentials: keys as in Secret types basic-auth and ssh-auth, or `token`; `ca.crt` for a private authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// How often to look for new commits, as a duration such as 60s; at least 1s.
    #[serde(default = "default_poll_interval")]
    pub poll_interval: DurationString,
    /// Who may ask for a look at once, from outside the cluster; absent: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// Where the repository's pull requests are, if the plans of what they change are to be shown there; absent: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_requests: Option<PullRequestPlans>,
}

/// What is done for open pull requests that go to the Source's branch: a Preview at the head commit in each workspace of every
/// stack that follows the branch, whose trigger is Preview or Apply, and whose folder the pull request changes; and a commit status
/// and one comment that say what they plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequestPlans {
    /// Which kind of server it is.
    pub provider: PullRequestProvider,
    /// The address that people open the server by, such as `https://git.example.com`: https; empty: that of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The Secret beside the Source with what is shown to the server: `token`, or `username` and `password`, and `ca.crt` for a
    /// private authority. Absent: that of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// Whether pull requests of forks are planned, too. Whoever may open one then has what they wrote rendered, and sees how it
    /// differs from what is live.
    #[serde(default)]
    pub allow_forks: bool,
}

/// How a Git server that tells of a push is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// The Secret beside the Source whose key `token` the Git server has, too: it signs with it, or shows it.
    pub secret_ref: SecretReference,
}

fn default_poll_interval() -> DurationString {
    "60s".into()
}

/// Which protocol a repository speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SourceProvider {
    /// Git, over https, ssh or a local path.
    #[default]
    Git,
    /// An OCI registry.
    #[serde(rename = "OCI")]
    Oci,
}

/// What a Source is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// Who last had it lead elsewhere, or made it when projects named it already: runs that a trigger starts for it count as
    /// asked for by them, too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_by: String,
    /// Everybody who did, the last one last: at most 16, of whom the first stands for all others where there were more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// The commit that the ref pointed to at the last look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_commit: Option<String>,
    /// The commits that other versions pointed to then, which stacks of the source want.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<ObservedVersion>,
    /// When a look last succeeded, to within five minutes; a commit that is new is noted at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_sync_time: Option<Time>,
    /// When a webhook last asked for a look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_webhook_time: Option<MicroTime>,
    /// The open pull requests whose plans are shown; at most 100, the latest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["number"]))]
    pub pull_requests: Vec<PlannedPullRequest>,
    /// The commit of the ref of which it is known which pull requests are merged into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merges_known_at: Option<String>,
    /// Ready: the repository can be read. PullRequestsPlanned: what open pull requests change is planned, and shown there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A pull request whose plans are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedPullRequest {
    /// Its number in the repository.
    pub number: i64,
    /// Its page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The commit that it would bring in.
    #[serde(default)]
    pub commit: String,
    /// How far its plans are: Pending, Succeeded or Failed.
    #[serde(default)]
    pub phase: PlansPhase,
    /// How many plans there are: one for each stack and workspace. They are Runs with the label `stoa.dev/pull-request`.
    #[serde(default)]
    pub plans: i64,
    /// Whether a comment was written.
    #[serde(default)]
    pub commented: bool,
    /// The id of that comment, by which it is known again where the server does not say who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<i64>,
    /// The digest of what was last told there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub told: String,
}

/// How far the plans of a pull request are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlansPhase {
    /// Some are being made.
    #[default]
    Pending,
    /// All are made.
    Succeeded,
    /// Some could not be made.
    Failed,
}

/// What a version other than latest pointed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedVersion {
    /// The branch, tag or beginning of a commit.
    pub version: String,
    /// The commit; absent when the repository has no such version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}
