//! Workflow: a chain or graph of runs over workspaces.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hook::{HookStatus, StepHooks, WorkflowHooks};
use super::run::{Decision, Operation, Requester, RunPhase};
use crate::common::{Condition, DurationString, Subject, conditions_schema, non_empty};

/// The steps of a Workflow. Immutable, except that `paused` may change and `cancel` may become true.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Workflow",
    shortname = "wf",
    category = "stoa",
    namespaced,
    status = "WorkflowStatus",
    derive = "PartialEq",
    doc = "Workflow is one execution of several runs: a chain or graph of steps over workspaces, with approvals in between. Creating one also needs the permissions to create each of its runs. Its creator is the requester of its runs, which are deleted with it."
)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSpec {
    /// A description of the workflow for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Stack, in the same namespace, of all steps that name none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// The version that all steps deploy: latest, or a branch, tag or commit. Defaults to the desired version of each
    /// stack. It is resolved to a commit once, when the workflow begins.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The steps, at most 100.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// The file with the steps, instead of `steps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<WorkflowTemplate>,
    /// The hooks before and after all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<WorkflowHooks>,
    /// Whether the workflow is paused. No step, wave or run begins while it is; those in progress continue.
    #[serde(default)]
    pub paused: bool,
    /// Whether to cancel the workflow. Its runs are canceled too.
    #[serde(default)]
    pub cancel: bool,
    /// The time allowed for the workflow, as a duration such as 24h. Pauses and waits for approval count, so that a
    /// missing decision ends the workflow too. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationString>,
    /// The number of seconds between the end of the workflow and its deletion, with its runs. Absent: the workflow is
    /// not deleted for its age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// A file in a project's Source with the steps of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowTemplate {
    /// The Project, in the same namespace, whose Source has the file. It needs the verb get on the Project.
    pub project: String,
    /// The path of the file in the Source. The file is YAML of a Workflow with only stack and steps in its spec, at
    /// most 64 KiB. It is read once, at the commit of the workflow's version.
    pub path: String,
    /// The values for `${name}` in the texts of the file, at most 64 KiB in all. The file with the values is at most
    /// 256 KiB.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// The steps of a template, as of the time at which it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResolvedTemplate {
    /// The commit of the Source.
    pub commit: String,
    /// The path of the file in the Source.
    pub path: String,
    /// The Stack of all steps that name none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// The steps.
    pub steps: Vec<Step>,
}

/// A step of a workflow: runs, or an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The name of the step: lower-case letters, digits and '-', at most 63 characters.
    pub name: String,
    /// The steps that must end before this one begins. Empty: this step begins at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// The result of those steps that this step begins after. Success: all have succeeded. Failure: all have ended and
    /// one did not succeed. Always: all have ended.
    #[serde(default)]
    pub when: When,
    /// The runs of a stack, one in each workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStep>,
    /// The approval that this step waits for, through the subresource approval of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStep>,
    /// The hooks before and after the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<StepHooks>,
}

/// The result of other steps that a step begins after, or that a hook is called for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum When {
    /// All succeeded.
    #[default]
    Success,
    /// One did not succeed.
    Failure,
    /// Any result.
    Always,
}

/// The runs of a stack, one in each workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// The name of the Stack. Defaults to that of the workflow.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// The operation: Preview, Apply, Destroy, Rollback or Refresh. Import needs a Run of its own.
    pub operation: Operation,
    /// The Preview step whose plans are carried out, each in its own workspace. For Apply. The Preview step must come
    /// before this one. Stack and workspaces default to those of the Preview step. The step fails if a plan no longer
    /// holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_of: Option<String>,
    /// The workspaces, in this order. Without workspaces and waves: the only workspace of the stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<String>,
    /// The groups of workspaces, in this order. A wave begins once all runs of the wave before have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<Wave>,
    /// The maximum number of runs in progress, from 1 to 100. Defaults to 10.
    #[serde(default = "default_max_parallel")]
    pub max_parallel: i64,
    /// The number of failed runs that the step tolerates. With more failures the step starts no other run and fails.
    #[serde(default)]
    pub max_failures: i64,
    /// The version to deploy. Defaults to that of the workflow.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of the release to restore. For Rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// The parameters of the generator. They override those of the stack.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Whether another user must approve each run's plan before it is applied, through the subresource approval of the
    /// run. With planOf, the plan is that of the Preview.
    #[serde(default)]
    pub require_approval: bool,
    /// The time allowed for each run, as a duration such as 1h. Waits for approval do not count. Defaults to 1h.
    #[serde(default = "DurationString::hours::<1>")]
    pub timeout: DurationString,
    /// The health that the deployment needs before the next wave begins, or the step succeeds. For Apply and Rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthGate>,
}

/// Returns the default maximum number of runs, or packages, in progress.
pub(super) fn default_max_parallel() -> i64 {
    10
}

/// The health that a deployment needs before a step continues. As many workspaces of a wave as maxFailures allows may
/// be unhealthy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthGate {
    /// The time for which the deployment must be healthy without a gap, as a duration such as 5m. With 0s, one check is
    /// enough.
    pub healthy_for: DurationString,
    /// The time after the end of the runs for which the deployment may be unhealthy; then the step fails. A deployment
    /// that is healthy by then still has healthyFor to complete. Defaults to 10m.
    #[serde(default = "DurationString::minutes::<10>")]
    pub timeout: DurationString,
}

/// A group of workspaces, by name or by label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// The workspaces, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<String>,
    /// The selector of workspaces by label, among those of the stack that no earlier wave has. The workspaces are in
    /// order of their names. They are selected when the step begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub workspace_selector: Option<LabelSelector>,
    /// The wait between the end of the runs and the next wave, as a duration such as 10m. The hooks of the wave are
    /// called after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<DurationString>,
}

/// A wait for an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStep {
    /// The question to the approver.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The phase of a workflow: Pending, Running, AwaitingApproval, Paused, and at the end Succeeded, Failed or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkflowPhase {
    /// No step has begun.
    #[default]
    Pending,
    /// Steps are in progress.
    Running,
    /// The workflow waits for an approval.
    AwaitingApproval,
    /// The workflow is paused, and nothing is in progress.
    Paused,
    /// No step failed.
    Succeeded,
    /// A step failed, or the time was up.
    Failed,
    /// The workflow was canceled.
    Canceled,
}

impl WorkflowPhase {
    /// Whether the workflow has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// The phase of a step: Pending, Running, AwaitingApproval, and at the end Succeeded, Failed, Skipped or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// The step waits for the steps that it depends on.
    #[default]
    Pending,
    /// The runs of the step are in progress.
    Running,
    /// The step, or one of its runs, waits for an approval.
    AwaitingApproval,
    /// The step succeeded.
    Succeeded,
    /// The step failed.
    Failed,
    /// The step never began, because its dependencies had another result than `when` asks for.
    Skipped,
    /// The step had not ended when the workflow was ended.
    Canceled,
}

impl StepPhase {
    /// Whether the step has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Canceled)
    }
}

/// The observed state of a Workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// The phase of the workflow: Pending, Running, AwaitingApproval, Paused, and at the end Succeeded, Failed or
    /// Canceled.
    pub phase: WorkflowPhase,
    /// The user who requested the workflow, and so its runs.
    pub requester: Requester,
    /// The steps of the template, which are those of the workflow from then on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<ResolvedTemplate>,
    /// The commit of each version of each stack, as of the start of the workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<PinnedVersion>,
    /// The decisions about steps that wait for approval. Only the subresource approval writes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["step"]))]
    pub approvals: Vec<StepApproval>,
    /// The state of each step, in the order of the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<StepStatus>,
    /// The state of the hooks before and after all steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hooks: Vec<HookStatus>,
    /// The progress of the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<StepProgress>,
    /// The time at which the workflow began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The time at which the workflow ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The conditions of the workflow. Complete: no step failed. Failed: the workflow did not succeed; the message
    /// has the cause. Paused: nothing begins. AwaitingApproval: the step or plan in the message needs approval.
    /// Waiting: something is out of reach.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The commit of one version of one stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedVersion {
    /// The name of the Stack.
    pub stack: String,
    /// The requested version.
    pub version: String,
    /// The commit, 40 hex digits.
    pub commit: String,
}

/// The decision about a step. It never changes once it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepApproval {
    /// The name of the step.
    pub step: String,
    /// The decision. Approved: the step succeeds. Rejected: the step fails.
    pub decision: Decision,
    /// The reason for the decision, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The user who decided. Set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<Requester>,
    /// The time of the decision. Set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// The progress of a workflow, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepProgress {
    /// The number of steps.
    pub total: i64,
    /// The number of steps that succeeded.
    pub done: i64,
    /// The number of steps that failed or were canceled.
    pub failed: i64,
    /// The number of steps that never began.
    pub skipped: i64,
}

/// The observed state of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The name of the step.
    pub name: String,
    /// The phase of the step: Pending, Running, AwaitingApproval, and at the end Succeeded, Failed, Skipped or
    /// Canceled.
    #[serde(default)]
    pub phase: StepPhase,
    /// The cause of a wait, or of a result other than Succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The time at which the step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The time at which the step ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// The number of runs by result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<RunCounts>,
    /// The number of the wave in progress, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    /// The time at which all runs of that wave had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_time: Option<Time>,
    /// The number of seconds for which the wave's deployment had been healthy when it was last recorded. A restarted
    /// server counts on from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_healthy_seconds: Option<i64>,
    /// The time at which the wave's deployment had been healthy for long enough. Only the pause of the wave remains
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_healthy_time: Option<Time>,
    /// The cause of a failure that is not that of a run, while hooks for it are called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// The state of each hook. A hook for each wave has the state of its last wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hooks: Vec<HookStatus>,
    /// The workspaces of each wave that selects by label, until the step ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<SelectedWave>,
    /// The runs in progress, the failed runs and the last completed runs, at most 20. The label stoa.dev/workflow finds
    /// all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub runs: Vec<StepRun>,
}

/// The workspaces of a wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SelectedWave {
    /// The names of the workspaces, in the order in which runs are started.
    pub workspaces: Vec<String>,
}

/// The number of runs by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunCounts {
    /// The number of runs of the step.
    pub total: i64,
    /// The number of started runs, in the order of the workspaces.
    pub started: i64,
    /// The number of runs that succeeded.
    pub succeeded: i64,
    /// The number of runs that did not succeed, without those that the end of the workflow canceled.
    pub failed: i64,
}

/// A run of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepRun {
    /// The name of the Run.
    pub name: String,
    /// The uid of the Run, once created. It identifies the Run whatever its fields say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The name of the workspace.
    pub workspace: String,
    /// The phase of the run: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, and
    /// at the end Succeeded, Failed or Canceled.
    #[serde(default)]
    pub phase: RunPhase,
    /// The cause of a result other than Succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
