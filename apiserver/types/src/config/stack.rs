//! Stack: one variant of a project, and the unit that is previewed, applied and destroyed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::{
        ChangedBy, Condition, DeletionPolicy, DurationString, MissingFolder, Subject, conditions_schema,
        deletion_policy_schema,
    },
    delivery::RunPhase,
};

/// What a Stack is to be.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Stack",
    plural = "stacks",
    singular = "stack",
    shortname = "stk",
    category = "stoa",
    namespaced,
    status = "StackStatus",
    derive = "PartialEq",
    doc = "Stack is a configuration instance of a project, such as dev or prod, and the smallest unit that is previewed, applied, rolled back and destroyed. One stack can be deployed to several workspaces."
)]
#[serde(rename_all = "camelCase")]
pub struct StackSpec {
    /// What the stack is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Project, in the same namespace, that the stack belongs to. Immutable.
    pub project: String,
    /// The stack's name inside the project; defaults to the object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack_name: String,
    /// The stack's folder or Spec file in the project's Source; defaults to the project's path and the stack's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The version to deploy: latest (the head of the Source's ref), or a branch, tag or commit.
    #[serde(default = "default_desired_version")]
    pub desired_version: String,
    /// The workspaces that the stack is deployed to. When there is none, each run names one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub workspaces: Vec<String>,
    /// What happens in every workspace of the stack when its folder at the desired version, or the stack itself, changes:
    /// Manual (nothing), Preview or Apply. Whoever sets it or changes the stack then needs what it takes to start that.
    #[serde(default)]
    pub trigger: Trigger,
    /// How often to look for drift with a read-only preview, from 10s to 168h, such as 30m; 0s for never.
    #[serde(default = "default_drift_interval")]
    pub drift_interval: DurationString,
    /// How the source becomes a Spec.
    #[serde(default)]
    pub generator: Generator,
    /// Whether every plan of this stack must be approved before it is applied.
    #[serde(default)]
    pub require_approval: bool,
    /// What happens to live infrastructure when the stack is deleted, or its project or organization: Refuse (the deletion
    /// is refused), Destroy or Orphan (it stays and Stoa forgets it). This one wins over that of the project, and that of the
    /// project over that of the organization. Left out, it is that of the project, or else that of the organization, or
    /// else Refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy_schema")]
    pub deletion_policy: Option<DeletionPolicy>,
}

fn default_desired_version() -> String {
    "latest".to_owned()
}

fn default_drift_interval() -> DurationString {
    "0s".into()
}

/// What happens when a stack's desired version moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trigger {
    /// Nothing; people start runs.
    #[default]
    Manual,
    /// A preview is started.
    Preview,
    /// An apply is started.
    Apply,
}

/// How a source becomes a Spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Generator {
    /// The generator: Spec, Manifests, Kpt or KCL; Auto looks at the files.
    #[serde(default, rename = "type")]
    pub kind: GeneratorType,
    /// Parameters of the generator; a run can set more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// A generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GeneratorType {
    /// Whatever the files look like.
    #[default]
    Auto,
    /// A Kusion Spec file, spec.yaml.
    Spec,
    /// A folder of Kubernetes manifests.
    Manifests,
    /// A kpt package.
    Kpt,
    /// KCL AppConfigurations.
    #[serde(rename = "KCL")]
    Kcl,
}

/// What a Stack is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StackStatus {
    /// The commit that the desired version pointed to at the last look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_commit: Option<String>,
    /// Where the stack is deployed, one entry per workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["workspace"]))]
    pub deployments: Vec<Deployment>,
    /// What was started by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerStatus>,
    /// The folder that the source lacks, and the commit that lacks it; absent where the source has it, or was not asked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_folder: Option<MissingFolder>,
    /// Who deleted it, as long as it is there: what that destroys counts as asked for by them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deleted_by: String,
    /// Ready: a release is deployed, as a whole; the message says how it compares with the desired version. LastRun: whether the
    /// last run that was to change a deployment succeeded, in each workspace. Triggered: what is desired was started. Drifted: live infrastructure moved away from it.
    /// Compliant: clusters have what was committed for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A stack in one workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The workspace.
    pub workspace: String,
    /// The number of the last release; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The commit of the source that was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How that commit compares with the one of the desired version. Absent where they are the same, and until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<ComparedCommits>,
    /// The last run that was to change this deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<String>,
    /// The phase of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The run that was the last one before that which is under way. It is the last one again where that is refused for what
    /// it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<EarlierRun>,
    /// How the last run ended that was to change this deployment and has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<EndedRun>,
    /// The run that changed something and did not come to its release. Absent once another run succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<EarlierRun>,
    /// How many resources are live, or may be since nobody knows what became of a call.
    #[serde(default)]
    pub resources: i64,
    /// Whether the last look found drift.
    #[serde(default)]
    pub drifted: bool,
    /// The commit in the workspace's GitOps repository that last changed something; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gitops_commit: Option<String>,
    /// Whether clusters have that commit, where the workspace says where to read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<DeploymentCompliance>,
}

/// A run of a deployment, and how it fares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierRun {
    /// The run.
    pub run: String,
    /// Its phase: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, Succeeded, Failed or
    /// Canceled.
    pub phase: RunPhase,
}

/// A run of a deployment, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedRun {
    /// The run.
    pub run: String,
    /// How it ended: Succeeded, Failed or Canceled. It is never Pending, Generating, Planning, AwaitingApproval, Applying,
    /// AwaitingMerge or Verifying.
    pub phase: RunPhase,
    /// The reason of its condition Complete or Failed.
    pub reason: String,
    /// The first 512 characters of the message there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A deployed commit and that of the desired version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedCommits {
    /// The deployed commit.
    pub commit: String,
    /// The commit of the desired version.
    pub desired: String,
    /// How the deployed commit compares with it: Behind, Ahead or Diverged.
    pub order: CommitOrder,
}

/// How a deployed commit compares with that of the desired version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CommitOrder {
    /// The desired version has commits that are not deployed.
    Behind,
    /// The desired version is an earlier commit than the deployed one.
    Ahead,
    /// Neither commit is in the history of the other.
    Diverged,
}

/// Whether clusters have what a deployment committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentCompliance {
    /// Compliant when all of them have it, otherwise the worst of them: NonCompliant, Unknown or Pending.
    pub state: ComplianceState,
    /// The commit that this is about.
    pub commit: String,
    /// Since when it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// What each reconciler says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reconcilers: Vec<ReconcilerCompliance>,
}

/// Whether one cluster has what a deployment committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReconcilerCompliance {
    /// The reconciler, as the workspace names it.
    pub name: String,
    /// How it is.
    pub state: ComplianceState,
    /// The revision that it last brought about, as it writes it; absent when it tells none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Why it is not compliant; empty when it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How what is committed and what clusters have compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ComplianceState {
    /// The commit was brought about, by itself or with later ones, and is healthy.
    Compliant,
    /// It is not there yet, or not healthy yet.
    Pending,
    /// Nobody can say: the reconciler cannot be read.
    #[default]
    Unknown,
    /// It was tried, and failed.
    NonCompliant,
}

/// What a stack's trigger did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerStatus {
    /// Who last wrote what is started by itself, and was allowed to start it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_by: String,
    /// Everybody who did, the last one last: at most 16, of whom the first stands for all others where there were more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// When the trigger was last set where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The last run that was started in each workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["workspace"]))]
    pub started: Vec<Started>,
}

/// The last run that a trigger started in a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The workspace.
    pub workspace: String,
    /// How many were started there until now.
    pub number: i64,
    /// The digest of what it was started for: what the stack is rendered from and how. No other is started for the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The commit that it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// How it ended; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// How many runs for the same failed before it since the source was out of reach.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: i64,
    /// When another is started for the same, if the source can be read by then: this one failed since it was out of reach. Absent where that was tried often enough.
    #[serde(default, rename = "retryTime", skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// By whom it counts as asked for, as long as it was neither approved nor carried out: so does the next run, whoever
    /// changed something in between.
    #[serde(default, rename = "causedBy", skip_serializing_if = "Vec::is_empty")]
    pub caused_by: Vec<String>,
    /// Up to which changes these are those who made them. The next run counts as asked for by who made later ones, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenChanges>,
}

/// The time of the last change of each object that decides about a run, as its `changedBy` has it; absent: there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenChanges {
    /// Of the Stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<MicroTime>,
    /// Of its Project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<MicroTime>,
    /// Of that one's Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MicroTime>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
