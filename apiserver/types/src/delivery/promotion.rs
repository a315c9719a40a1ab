//! Promotion: one commit of a base repository, through the environments of a fleet in order.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, DurationString, conditions_schema};

/// The steps of a Promotion. Immutable, except that `paused` may change, and `cancel` and `rollBack` may become true.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "delivery.stoa.dev",
    version = "v1alpha1",
    kind = "Promotion",
    category = "stoa",
    namespaced,
    status = "PromotionStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Promotion brings one commit of a base repository into the environments of a fleet, one after the other. An environment has the commit when its GitOps branch has the files that follow from it, and its clusters and checks report success. Creating one also needs the verb promote on each Environment, and the verb list on the Reconcilers whose reports it waits for."
)]
#[serde(rename_all = "camelCase")]
pub struct PromotionSpec {
    /// The commit of the base repository, whole.
    #[schemars(length(min = 40, max = 64))]
    pub commit: String,
    /// The BaseRepo, by its name in every environment. Defaults to main.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base_repo: String,
    /// The environments in order, at most 50.
    #[schemars(length(min = 1, max = 50))]
    pub environments: Vec<PromotionStep>,
    /// Whether the promotion is paused. No environment and no wave begins while it is.
    #[serde(default)]
    pub paused: bool,
    /// Whether to cancel the promotion. Environments that have the commit keep it, and cluster types of later waves stay as they are.
    #[serde(default)]
    pub cancel: bool,
    /// Whether to give the environments their earlier commits again, the last one first.
    #[serde(default)]
    pub roll_back: bool,
}

/// One environment of a Promotion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionStep {
    /// The Environment, in the namespace of the Promotion.
    pub environment: String,
    /// Whether the environment begins only after an approval.
    #[serde(default)]
    pub approval: bool,
    /// The time of day in UTC, as `HH:MM`, from which the environment may begin, and until which. Absent: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<PromotionWindow>,
    /// The time that the environment has the commit before the next one begins. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<DurationString>,
    /// The waves of the environment in order, at most 20. The cluster types that no wave selects are the last wave. Absent: all
    /// cluster types at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub waves: Vec<PromotionWave>,
    /// The reports of clusters that the environment waits for after each wave. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<PromotionReports>,
    /// The checks before and after the environment. Programs write their results by the subresource checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<PromotionChecks>,
}

/// Cluster types that get the commit at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionWave {
    /// The labels of the cluster types. Those of an earlier wave stay in it.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub cluster_type_selector: LabelSelector,
    /// The time between the end of the wave and the next one. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<DurationString>,
}

/// Reports of the hub. The Reconcilers of an environment are those whose manifestsEndpoint is the branch of one of its GitOpsRepos, or
/// a folder in it. In a wave, the first folder is a cluster type of this wave or an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionReports {
    /// The namespace of the Reconcilers. Defaults to that of the Promotion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The labels of the Reconcilers. Absent: all of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub selector: Option<LabelSelector>,
    /// The share of the Reconcilers that must report success, in percent from 1 to 100. Defaults to 100. The environment fails when
    /// failures make this share impossible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_success_percent: Option<i64>,
    /// The time after which the environment fails, from the merge of its files. Absent: it waits without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationString>,
}

/// The names of checks: lower-case letters, digits and '-', at most 63 characters, each once in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromotionChecks {
    /// The checks that must pass before the environment begins, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub before: Vec<String>,
    /// The checks that must pass after the last wave has the commit, and before the next environment begins. At most 10. A failed one
    /// fails the environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub after: Vec<String>,
}

/// A window of the day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PromotionWindow {
    /// The begin, such as `08:00`.
    #[schemars(pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// The end, such as `16:30`. One before the begin is on the next day.
    #[schemars(pattern("^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub to: String,
}

/// The phase of a Promotion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PromotionPhase {
    /// Environments are promoted, or wait.
    #[default]
    Running,
    /// An environment failed, and no other begins. The promotion continues when the environment succeeds after all.
    Failed,
    /// Every environment has the commit.
    Succeeded,
    /// Somebody canceled it.
    Canceled,
    /// The environments have their earlier commits again.
    RolledBack,
}

/// The phase of one environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PromotionStepPhase {
    /// It has not begun.
    #[default]
    Pending,
    /// It waits: for an approval, its window, a resumption, or a fault that people have to mend. The message says for what.
    Waiting,
    /// Its branch of the control plane has the commit; its GitOps branch does not have the files yet.
    Proposed,
    /// Its GitOps branch has the files, of this wave and the earlier ones; reports of clusters or checks are missing.
    Verifying,
    /// A cluster reports a failure, a check failed, or reports are missing after the timeout. It continues when they succeed.
    Failed,
    /// A wave has ended. The next one begins after its soak time.
    Soaking,
    /// Its GitOps branch has the files, and its clusters and checks report success.
    Promoted,
    /// Its branch of the control plane has the earlier commit; its GitOps branch does not have the files yet.
    RollingBack,
    /// Its GitOps branch has the files of the earlier commit.
    RolledBack,
}

/// The observed state of one environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotedEnvironment {
    /// The Environment.
    pub environment: String,
    /// The phase: Pending, Waiting, Proposed, Verifying, Failed, Soaking, Promoted, RollingBack or RolledBack.
    pub phase: PromotionStepPhase,
    /// The commit that it had before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_commit: String,
    /// The time of the last change of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The cause of a wait or a failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The number of the wave, from 1. Absent: the environment has no waves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    /// The commits of GitOps branches with the files of this wave, the newest 20. A report of one of them is a report of this wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git_ops_commits: Vec<String>,
    /// The reports of this wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reports: Option<ReportCounts>,
}

/// The number of Reconcilers by what they report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportCounts {
    /// All Reconcilers.
    pub total: i64,
    /// Those that report success.
    pub succeeded: i64,
    /// Those that report a failure.
    pub failed: i64,
    /// Those that apply the commit, or have not reported it.
    pub in_progress: i64,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CheckResult {
    /// The environment begins, or is done.
    Passed,
    /// The environment does not begin, or fails.
    #[default]
    Failed,
}

/// A check with its result. A later result replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionCheck {
    /// The Environment.
    pub environment: String,
    /// The name of the check.
    pub name: String,
    /// The result: Passed or Failed.
    pub result: CheckResult,
    /// A text for people, at most 1024 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// The user who reported it. The server sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reporter: String,
}

/// An approval of one environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionApproval {
    /// The Environment.
    pub environment: String,
    /// The user who approved it. The server sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub approver: String,
    /// A comment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// The observed state of a Promotion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromotionStatus {
    /// The phase: Running, Failed, Succeeded, Canceled or RolledBack.
    #[serde(default)]
    pub phase: PromotionPhase,
    /// The environments, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<PromotedEnvironment>,
    /// The approvals. They are written through the subresource approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<PromotionApproval>,
    /// The results of checks. They are written through the subresource checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<PromotionCheck>,
    /// The conditions. Complete: every environment has the commit. Failed: an environment failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
