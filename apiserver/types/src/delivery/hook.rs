//! Hooks of workflows and of their steps: endpoints that are called before and after them.

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workflow::When;
use crate::common::{DurationString, LocalSecretKeyReference, bytes_schema};

/// What is called before and after the runs of a step, each in this order. A workflow may have 100 hooks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepHooks {
    /// Called before the first run is created: at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre: Vec<Hook>,
    /// Called after the runs have ended and what they deployed was healthy for as long as `health` asks for, or after the step
    /// failed: at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post: Vec<Hook>,
}

/// What is called before and after all steps of a workflow, each in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowHooks {
    /// Called before the first step begins: at most 10. If one fails, no step begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre: Vec<Hook>,
    /// Called after all steps have ended, by when it is Success if no step failed: at most 10. If one fails, so does the
    /// workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post: Vec<Hook>,
}

/// An HTTP endpoint that is told of a step, or of a workflow, and answers whether it goes on: 2xx lets it, anything else from 300 to 499 but 408, 425 and 429 does
/// not, and what else comes of it is tried again. It is asked at least once; every try has the same webhook-id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// What it is called among the hooks of the step, or of the workflow: lower-case letters, digits and '-', at most 63 characters.
    pub name: String,
    /// Where a CloudEvent is posted: https, or http of a loopback address. It takes the verb use on this host, as hookhosts of
    /// platform.stoa.dev. Whoever reads the workflow reads it; redirects are not followed.
    pub url: String,
    /// The key of a Secret beside the workflow that holds what is signed with, as a NotificationSink has it. It takes the verb use
    /// on this Secret.
    pub secret_ref: LocalSecretKeyReference,
    /// The certificate authorities that the endpoint's certificate is checked with, PEM; absent: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes_schema")]
    pub ca_bundle: Option<ByteString>,
    /// For hooks of steps: whether it is called once for the step, or for each of its waves: Step or Wave.
    #[serde(default)]
    pub each: HookScope,
    /// For hooks after the runs, or after the steps: whether it is called when they succeeded, when the step or workflow fails, or
    /// in any case: Success, Failure or Always. It is never called when the workflow is being ended.
    #[serde(default)]
    pub when: When,
    /// How long one answer may take, as a duration such as 30s; at most 5m.
    #[serde(default = "default_timeout")]
    pub timeout: DurationString,
    /// How often and how long it is tried.
    #[serde(default)]
    pub retry: HookRetry,
    /// What it means for the step, or for the workflow, that the hook failed: Fail or Ignore.
    #[serde(default)]
    pub failure_policy: HookFailurePolicy,
}

fn default_timeout() -> DurationString {
    "30s".into()
}

/// For what a hook is called once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookScope {
    /// For the step: before its first run, and after its last.
    #[default]
    Step,
    /// For each wave: before its first run, and after its pause.
    Wave,
}

/// What it means for a step or workflow that one of its hooks failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookFailurePolicy {
    /// It fails; nothing else of it begins but its hooks for that.
    #[default]
    Fail,
    /// It goes on.
    Ignore,
}

/// How often and how long a hook is tried. Whichever limit comes first, it has failed then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookRetry {
    /// How many times at most; absent: as many as maxAge allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// How long after the first try another may begin, as a duration such as 10m; at most 24h.
    #[serde(default = "default_max_age")]
    pub max_age: DurationString,
    /// How long to wait after the first try. It doubles with each, less a random part of up to a half; an answer's
    /// Retry-After counts when it is longer.
    #[serde(default = "default_min_backoff")]
    pub min_backoff: DurationString,
    /// How long to wait at most.
    #[serde(default = "default_max_backoff")]
    pub max_backoff: DurationString,
}

impl Default for HookRetry {
    fn default() -> Self {
        Self {
            max_attempts: None,
            max_age: default_max_age(),
            min_backoff: default_min_backoff(),
            max_backoff: default_max_backoff(),
        }
    }
}

fn default_max_age() -> DurationString {
    "10m".into()
}

fn default_min_backoff() -> DurationString {
    "1s".into()
}

fn default_max_backoff() -> DurationString {
    "30s".into()
}

/// How far a hook is: Running, and at the end Succeeded, Failed or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookPhase {
    /// It is called, or will be again.
    #[default]
    Running,
    /// It answered with 2xx.
    Succeeded,
    /// It answered otherwise, or too late.
    Failed,
    /// The workflow was ended before it had answered.
    Canceled,
}

/// How far a hook is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// The name of the hook.
    pub name: String,
    /// How far it is: Running, and at the end Succeeded, Failed or Canceled. It is recorded before the first try.
    #[serde(default)]
    pub phase: HookPhase,
    /// The wave that it was called for, where it is for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    /// How many times it was tried, as far as that was noted before a crash.
    #[serde(default)]
    pub attempts: i64,
    /// What it answered, or why it did not: the text `message` of an answer in JSON, at most 200 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it was to be called first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When that was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}
