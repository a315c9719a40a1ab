//! Workflow: a chain or graph of runs over workspaces.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hook::{HookStatus, StepHooks, WorkflowHooks};
use super::run::{Decision, Operation, Requester, RunPhase};
use crate::common::{Condition, DurationString, Subject, conditions_schema, non_empty};

/// What a Workflow is to do. Immutable, except that `paused` may change and `cancel` may become true.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Workflow",
    plural = "workflows",
    singular = "workflow",
    shortname = "wf",
    category = "stoa",
    namespaced,
    status = "WorkflowStatus",
    derive = "PartialEq",
    doc = "Workflow is one execution of several runs: a chain or graph of steps over workspaces, with approvals in between. Creating one also needs what creating each of its runs needs; its runs are started by whoever created it, and deleted with it."
)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSpec {
    /// What the workflow is about, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The Stack, in the same namespace, of all steps that name none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// The version that all steps deploy: latest, or a branch, tag or commit. Absent: the desired version of each stack. It
    /// is resolved to a commit once, when the workflow begins.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What is done: at most 100 steps.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// A file that has the steps, instead of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<WorkflowTemplate>,
    /// What is called before and after all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<WorkflowHooks>,
    /// While this is true no step, wave or run begins. What is under way goes on.
    #[serde(default)]
    pub paused: bool,
    /// Set to true to end the workflow: its runs are cancelled.
    #[serde(default)]
    pub cancel: bool,
    /// How long it may take in all, as a duration such as 24h. The time in which it is paused or waits for approval counts, so
    /// that a decision that nobody takes ends it, too. Absent: as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationString>,
    /// How long the workflow is kept after it ended, and its runs with it; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// A file in a project's source that has the steps of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowTemplate {
    /// The Project, in the same namespace, in whose source the file is. To name it takes get on it.
    pub project: String,
    /// The path of the file in the source: YAML of a Workflow with nothing in its spec but stack and steps, at most 64 KiB. It is
    /// read once, at the commit of the workflow's version.
    pub path: String,
    /// What `${name}` in the texts of the file is replaced with: at most 64 KiB in all, and the file is at most 256 KiB with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// The steps that a template had when it was read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResolvedTemplate {
    /// The commit of the source.
    pub commit: String,
    /// The path of the file in it.
    pub path: String,
    /// The Stack of all steps that name none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// What is done.
    pub steps: Vec<Step>,
}

/// One step: a run, or an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What it is called: lower-case letters, digits and '-', at most 63 characters.
    pub name: String,
    /// The steps that come before it; without any, it begins at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Whether it begins once all of these have succeeded, once all have ended and one of them did not succeed, or once all have
    /// ended in any way.
    #[serde(default)]
    pub when: When,
    /// Runs of a stack, one in each workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStep>,
    /// Waits until somebody approves, through the subresource approval of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalStep>,
    /// For runs: what is called before and after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<StepHooks>,
}

/// After what a step begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum When {
    /// After steps that all succeeded.
    #[default]
    Success,
    /// After steps of which one did not.
    Failure,
    /// After steps that ended in any way.
    Always,
}

/// Runs of a stack, one in each workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStep {
    /// The Stack, instead of the workflow's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// What to do: Preview, Apply, Destroy, Rollback or Refresh. An Import is a Run of its own.
    pub operation: Operation,
    /// For Apply: the step of the Preview whose plans are carried out, in each workspace exactly its own. That step comes before
    /// this one. Stack and workspaces are those of that step, unless this one names its own. A plan that no longer holds fails
    /// this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_of: Option<String>,
    /// The workspaces, in this order. Without these and without waves it is the only one of the stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<String>,
    /// Groups of workspaces, one after the other: a wave begins once all runs of the one before have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<Wave>,
    /// How many runs may be under way at once, from 1 to 100.
    #[serde(default = "default_max_parallel")]
    pub max_parallel: i64,
    /// How many runs may fail before no other is started and the step fails. Up to so many, it goes on, and succeeds.
    #[serde(default)]
    pub max_failures: i64,
    /// The version to deploy, instead of the workflow's.
    #[serde(default, deserialize_with = "non_empty", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// For Rollback: the number of the release to go back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<i64>,
    /// Parameters of the generator, over those of the stack.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Whether somebody else must approve each run's plan before it is applied, through the subresource approval of the run. With
    /// planOf that plan is the one of the Preview.
    #[serde(default)]
    pub require_approval: bool,
    /// How long each run may take, as a duration such as 1h. The time in which it waits for approval does not count.
    #[serde(default = "default_timeout")]
    pub timeout: DurationString,
    /// For Apply and Rollback: how long what was deployed has to be healthy before the next wave begins, or the step succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthGate>,
}

fn default_max_parallel() -> i64 {
    10
}

fn default_timeout() -> DurationString {
    "1h".into()
}

/// How long what was deployed has to be healthy before it goes on. In so many workspaces of a wave it need not be as may
/// fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthGate {
    /// For how long, without a gap, as a duration such as 5m. With 0s, one look is enough.
    pub healthy_for: DurationString,
    /// How long it may be unhealthy after the runs have ended; then the step fails. What is healthy at that time is given
    /// healthyFor to stay so.
    #[serde(default = "default_gate_timeout")]
    pub timeout: DurationString,
}

fn default_gate_timeout() -> DurationString {
    "10m".into()
}

/// A group of workspaces: those that it lists, or those that it selects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// The workspaces, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<String>,
    /// Selects by label from the workspaces that the stack is for, but those of the waves before; by name. Which these are is
    /// decided when the step begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub workspace_selector: Option<LabelSelector>,
    /// How long to wait after its runs have ended, before the next wave begins, as a duration such as 10m. Hooks for it are called
    /// after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after: Option<DurationString>,
}

/// Waits until somebody approves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalStep {
    /// What is asked, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How far a workflow is: Pending, Running, AwaitingApproval, Paused, and at the end Succeeded, Failed or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkflowPhase {
    /// Nothing has begun.
    #[default]
    Pending,
    /// Steps are under way.
    Running,
    /// It goes on once somebody has approved something.
    AwaitingApproval,
    /// It is paused, and nothing is under way.
    Paused,
    /// No step failed.
    Succeeded,
    /// A step failed, or the time was up.
    Failed,
    /// It was cancelled.
    Canceled,
}

impl WorkflowPhase {
    /// Whether the workflow has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// How far a step is: Pending, Running, AwaitingApproval, and at the end Succeeded, Failed, Skipped or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StepPhase {
    /// What it depends on is under way.
    #[default]
    Pending,
    /// Its runs are under way.
    Running,
    /// It goes on once somebody has approved it, or one of its runs.
    AwaitingApproval,
    /// It ended well.
    Succeeded,
    /// It ended badly.
    Failed,
    /// It never began, since what it depends on ended otherwise than it asks for.
    Skipped,
    /// It was under way or had not begun when the workflow was ended.
    Canceled,
}

impl StepPhase {
    /// Whether the step has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Skipped | Self::Canceled)
    }
}

/// What a workflow did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// How far it is: Pending, Running, AwaitingApproval, Paused, and at the end Succeeded, Failed or Canceled.
    #[serde(default)]
    pub phase: WorkflowPhase,
    /// Who asked for it, and so for its runs.
    #[serde(default)]
    pub requester: Requester,
    /// The steps that the template had, which are the workflow's from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<ResolvedTemplate>,
    /// The commit of each version of each stack, found when the workflow began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<PinnedVersion>,
    /// What was decided about steps that wait for approval; written through the subresource approval alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["step"]))]
    pub approvals: Vec<StepApproval>,
    /// How far each step is, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<StepStatus>,
    /// The hooks that were called before and after all steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hooks: Vec<HookStatus>,
    /// How much of it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<StepProgress>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Complete: no step failed. Failed: it ended otherwise, and the message says why. Paused: nothing begins.
    /// AwaitingApproval: somebody has to approve what the message names. Waiting: something is out of reach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The commit of one version of one stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedVersion {
    /// The Stack.
    pub stack: String,
    /// What was asked for.
    pub version: String,
    /// The commit, 40 hex digits.
    pub commit: String,
}

/// What somebody decided about a step. Once it is there it stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepApproval {
    /// The name of the step.
    pub step: String,
    /// Approved: the step succeeds. Rejected: it fails.
    pub decision: Decision,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Who decided; set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<Requester>,
    /// When; set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// How much of a workflow is done, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepProgress {
    /// All steps.
    pub total: i64,
    /// Those that succeeded.
    pub done: i64,
    /// Those that failed or were canceled.
    pub failed: i64,
    /// Those that never began.
    pub skipped: i64,
}

/// How far a step is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The name of the step.
    pub name: String,
    /// How far it is: Pending, Running, AwaitingApproval, and at the end Succeeded, Failed, Skipped or Canceled.
    #[serde(default)]
    pub phase: StepPhase,
    /// What it waits for, or why it ended otherwise than well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// How its runs fare, in numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<RunCounts>,
    /// The number of the wave that is under way, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    /// When all runs of that wave had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_time: Option<Time>,
    /// For how many seconds what that wave deployed had been healthy when that was last noted, while it has to be for longer.
    /// The time goes on from here after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_healthy_seconds: Option<i64>,
    /// When what that wave deployed had been healthy for long enough; from then on only its pause is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave_healthy_time: Option<Time>,
    /// Why it fails though no run did, while its hooks for that are called.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// How its hooks fare; of one for each wave, in the last that it was called for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub hooks: Vec<HookStatus>,
    /// The workspaces of each wave, where they are selected by label; until the step ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selected: Vec<SelectedWave>,
    /// The runs that are under way, and of those that ended the failed and the last ones: at most 20. All are found by the
    /// label stoa.dev/workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub runs: Vec<StepRun>,
}

/// The workspaces of a wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SelectedWave {
    /// Their names, in the order in which runs are started.
    pub workspaces: Vec<String>,
}

/// How the runs of a step fare, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunCounts {
    /// All that there are to be.
    pub total: i64,
    /// Those that were started, in the order of the workspaces.
    pub started: i64,
    /// Those that ended well.
    pub succeeded: i64,
    /// Those that ended otherwise, but for those that were cancelled while the workflow was being ended.
    pub failed: i64,
}

/// One run of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepRun {
    /// The name of the Run.
    pub name: String,
    /// Its uid, once it was created: by that it is known, whoever changes what it says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The workspace.
    pub workspace: String,
    /// How far it is: Pending, Generating, Planning, AwaitingApproval, Applying, AwaitingMerge, Verifying, and at the end
    /// Succeeded, Failed or Canceled.
    #[serde(default)]
    pub phase: RunPhase,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
