//! Promotion: one commit of a base repository, through the environments of a fleet in order.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
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
    doc = "Promotion brings one commit of a base repository into the environments of a fleet, one after the other. An environment has the commit when its GitOps branch has the files that follow from it. Creating one also needs the verb promote on each Environment."
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
    /// Whether the promotion is paused. No environment begins while it is.
    #[serde(default)]
    pub paused: bool,
    /// Whether to cancel the promotion. Environments that have the commit keep it.
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
    /// Its GitOps branch has the files.
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
    /// The phase: Pending, Waiting, Proposed, Promoted, RollingBack or RolledBack.
    pub phase: PromotionStepPhase,
    /// The commit that it had before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_commit: String,
    /// The time of the last change of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The cause of a wait.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
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
    /// The phase.
    #[serde(default)]
    pub phase: PromotionPhase,
    /// The environments, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environments: Vec<PromotedEnvironment>,
    /// The approvals. They are written through the subresource approval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<PromotionApproval>,
    /// The conditions. Complete: every environment has the commit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
