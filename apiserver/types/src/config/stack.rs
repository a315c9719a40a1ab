//! Stack: one variant of a project, and the unit that is previewed, applied and destroyed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    common::{
        ChangedBy, Condition, DeletionPolicy, DurationString, MissingFolder, Subject, conditions_schema,
        deletion_policy_schema, is_zero,
    },
    delivery::RunPhase,
};

/// The desired state of a Stack.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.stoa.dev",
    version = "v1alpha1",
    kind = "Stack",
    shortname = "stk",
    category = "stoa",
    namespaced,
    status = "StackStatus",
    derive = "PartialEq",
    doc = "Stack is a configuration instance of a project, such as dev or prod, and the smallest unit that is previewed, applied, rolled back and destroyed. One stack can be deployed to several workspaces."
)]
#[serde(rename_all = "camelCase")]
pub struct StackSpec {
    /// A description of the stack for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Project, in the same namespace, that the stack belongs to. Immutable.
    pub project: String,
    /// The stack's name inside the project. Defaults to the object's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack_name: String,
    /// The stack's folder or Spec file in the project's Source. Defaults to the project's path and the stack's name, and for
    /// a Source of provider Package to the project's path.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The version to deploy: latest (the head of the Source's ref), or a branch, tag or commit. For a Source of provider
    /// Package: latest, a number such as v3, or the workspace of a revision.
    #[serde(default = "default_desired_version")]
    pub desired_version: String,
    /// The workspaces that the stack is deployed to. When there is none, each run names one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub workspaces: Vec<String>,
    /// The run that Stoa starts in every workspace of the stack after a change of the stack, or of its folder at the
    /// desired version. Manual starts none; Preview and Apply start a run of that operation. Workflow starts one workflow,
    /// which applies in one workspace after the other. Setting the trigger, or changing the stack afterwards, needs the
    /// permission to start that run or workflow. Defaults to Manual.
    #[serde(default)]
    pub trigger: Trigger,
    /// The time between two previews that look for drift, as a duration such as 30m, from 10s to 168h. 0s, the default,
    /// turns them off.
    #[serde(default = "DurationString::seconds::<0>")]
    pub drift_interval: DurationString,
    /// The generator that renders the source as a Spec.
    #[serde(default)]
    pub generator: Generator,
    /// Whether every plan of this stack needs approval before it is applied.
    #[serde(default)]
    pub require_approval: bool,
    /// The policy for live infrastructure when the stack, its project or its organization is deleted. Refuse rejects
    /// the deletion. Destroy destroys the infrastructure first. Orphan leaves the infrastructure running without a
    /// record in Stoa. This policy wins over that of the project, and that of the project wins over that of the
    /// organization. Defaults to the policy of the project, then to that of the organization, then to Refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy_schema")]
    pub deletion_policy: Option<DeletionPolicy>,
}

fn default_desired_version() -> String {
    "latest".to_owned()
}

/// The run that Stoa starts when a stack's desired version moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trigger {
    /// No run; people start runs.
    #[default]
    Manual,
    /// A Preview.
    Preview,
    /// An Apply.
    Apply,
    /// A Workflow that applies in one workspace after the other, in the order of `workspaces`. It ends at the first
    /// failure.
    Workflow,
}

/// The generator that renders a source as a Spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Generator {
    /// The type of the generator: Spec, Manifests, Kustomize, Helm, Kpt or KCL. Auto, the default, detects it from the
    /// files.
    #[serde(default, rename = "type")]
    pub kind: GeneratorType,
    /// The parameters of the generator. A run can override them and add others. For Helm, they are values of the chart
    /// by their paths, such as image.tag, and stronger than values files. For KCL, they are the values of option().
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The release of a chart, for the generator Helm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm: Option<HelmRelease>,
}

/// The release of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmRelease {
    /// The name of the release, as `.Release.Name` in templates. Defaults to the project's name, a hyphen and the
    /// stack's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 53))]
    pub name: String,
    /// The namespace of the release, for objects without a namespace and as `.Release.Namespace` in templates. Defaults
    /// to default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Files with values in the repository, as paths from the stack's folder. A later file is stronger than an earlier
    /// one, and all are stronger than values.yaml of the chart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub values_files: Vec<String>,
}

/// A type of generator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GeneratorType {
    /// The type that fits the files.
    #[default]
    Auto,
    /// A Kusion Spec file, spec.yaml.
    Spec,
    /// A folder of Kubernetes manifests.
    Manifests,
    /// A kustomization.
    Kustomize,
    /// A Helm chart.
    Helm,
    /// A kpt package.
    Kpt,
    /// A program in KCL: Kubernetes objects, a Spec or AppConfigurations.
    #[serde(rename = "KCL")]
    Kcl,
}

/// The observed state of a Stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StackStatus {
    /// The commit of the desired version at the last fetch of the Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_commit: Option<String>,
    /// The deployments of the stack, one per workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["workspace"]))]
    pub deployments: Vec<Deployment>,
    /// The runs that the trigger started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerStatus>,
    /// The folder that the Source lacks, and the commit that lacks it. Absent if the Source has the folder, or was not
    /// read yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_folder: Option<MissingFolder>,
    /// The user who deleted the stack, while it still exists. Runs that destroy its infrastructure count as requested
    /// by this user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deleted_by: String,
    /// The conditions of the stack. Ready: a release is completely deployed; the message compares it with the desired
    /// version. LastRun: the last run that could change a deployment succeeded, in each workspace. Triggered: the
    /// trigger's runs for the desired version were started. Drifted: live infrastructure moved away from the release.
    /// Compliant: clusters have the commit of each deployment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The deployment of a stack in one workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The name of the workspace.
    pub workspace: String,
    /// The number of the last release. Absent before the first release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The commit of the Source that was last applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The comparison of that commit with the commit of the desired version. Absent if they are the same, or not
    /// compared yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<ComparedCommits>,
    /// The last run that could change this deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<String>,
    /// The phase of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The run before the one in progress. It becomes the last run again if the one in progress is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<EarlierRun>,
    /// The last completed run that could change this deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<EndedRun>,
    /// The run that changed something without reaching its release. Absent once another run succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<EarlierRun>,
    /// The number of live resources. Resources with an unresolved call count as live.
    #[serde(default)]
    pub resources: i64,
    /// Whether the last check found drift.
    #[serde(default)]
    pub drifted: bool,
    /// The last commit in the workspace's GitOps repository with a change of this deployment. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gitops_commit: Option<String>,
    /// The compliance of clusters with that commit. Absent if the workspace sets no compliance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance: Option<DeploymentCompliance>,
}

/// A run of a deployment, with its phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierRun {
    /// The name of the run.
    pub run: String,
    /// The phase of the run: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying,
    /// Succeeded, Failed or Canceled.
    pub phase: RunPhase,
}

/// A completed run of a deployment, with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedRun {
    /// The name of the run.
    pub run: String,
    /// The final phase: Succeeded, Failed or Canceled. It is never Pending, Generating, Planning, AwaitingApproval,
    /// Applying, AwaitingMerge or Verifying.
    pub phase: RunPhase,
    /// The reason of the run's condition Complete or Failed.
    pub reason: String,
    /// The first 512 characters of that condition's message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The comparison of a deployed commit with the commit of the desired version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedCommits {
    /// The deployed commit.
    pub commit: String,
    /// The commit of the desired version.
    pub desired: String,
    /// The order of the deployed commit: Behind, Ahead or Diverged from the desired commit.
    pub order: CommitOrder,
}

/// The order of a deployed commit, relative to the commit of the desired version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CommitOrder {
    /// The desired version has commits that are not deployed.
    Behind,
    /// The desired version is an earlier commit than the deployed one.
    Ahead,
    /// Neither commit is in the history of the other.
    Diverged,
}

/// The compliance of clusters with the commit of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentCompliance {
    /// The worst state of all clusters: NonCompliant, Unknown, Pending, or Compliant if all are.
    pub state: ComplianceState,
    /// The commit that the state is about.
    pub commit: String,
    /// The time since which the state holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The state that each reconciler reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reconcilers: Vec<ReconcilerCompliance>,
}

/// The compliance of one cluster with the commit of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReconcilerCompliance {
    /// The name of the reconciler in the workspace.
    pub name: String,
    /// The state: Compliant, Pending, Unknown or NonCompliant.
    pub state: ComplianceState,
    /// The revision that the reconciler last applied, in its own notation. Absent if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The reason for a state other than Compliant; empty for Compliant.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The compliance of a cluster with a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ComplianceState {
    /// The cluster has the commit, or a later one, and is healthy.
    Compliant,
    /// The cluster does not have the commit yet, or is not healthy yet.
    Pending,
    /// The reconciler cannot be read.
    #[default]
    Unknown,
    /// The cluster tried the commit, and failed.
    NonCompliant,
}

/// The runs that a stack's trigger started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerStatus {
    /// The user who last changed what the trigger starts, with the permission to start it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub set_by: String,
    /// The users who did so, the latest last, at most 16. If there were more, the first entry stands for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub changed_by: Vec<ChangedBy>,
    /// The time at which the trigger was last set after there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<MicroTime>,
    /// The last run that the trigger started in each workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["workspace"]))]
    pub started: Vec<Started>,
}

/// The last run that a trigger started in a workspace, or its last workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The name of the workspace. Empty: a workflow for all of them.
    pub workspace: String,
    /// The number of runs that the trigger has started in the workspace.
    pub number: i64,
    /// The digest of the inputs of the run: the files, the stack and its generator. The trigger starts no second run
    /// for the same digest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The commit that the run is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The name of the run, or of the workflow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// The final phase of the run. Absent until the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RunPhase>,
    /// The number of earlier runs for the same digest that failed because the Source was out of reach.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: i64,
    /// The earliest time of the next run for the same digest, if this one failed because the Source was out of reach.
    /// The Source must be readable by then. Absent after the last retry.
    #[serde(default, rename = "retryTime", skip_serializing_if = "Option::is_none")]
    pub retry_time: Option<Time>,
    /// The users whom the run counts as requested by, until it is approved or carried out. The next run counts as
    /// requested by them too.
    #[serde(default, rename = "causedBy", skip_serializing_if = "Vec::is_empty")]
    pub caused_by: Vec<String>,
    /// The last changes that `causedBy` covers. The next run counts as requested by the users of later changes too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<SeenChanges>,
}

/// The time of the last change of each object that decides about a run, as in its `changedBy`. Absent: no change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeenChanges {
    /// The last change of the Stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<MicroTime>,
    /// The last change of its Project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<MicroTime>,
    /// The last change of the Project's Source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MicroTime>,
}
