//! Hooks of workflows and of their steps: endpoints that are called before and after them.

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workflow::When;
use crate::common::{DurationString, LocalSecretKeyReference, bytes_schema};

/// The hooks before and after the runs of a step, each list called in order. A workflow may have 100 hooks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepHooks {
    /// The hooks before the first run is created, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre: Vec<Hook>,
    /// The hooks after the runs have ended and the deployment was healthy for the time in `health`, or after the step
    /// failed. At most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post: Vec<Hook>,
}

/// The hooks before and after all steps of a workflow, each list called in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowHooks {
    /// The hooks before the first step begins, at most 10. If one fails, no step begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre: Vec<Hook>,
    /// The hooks after all steps have ended, at most 10. The result is Success if no step failed. If a hook fails, the
    /// workflow fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post: Vec<Hook>,
}

/// An HTTP endpoint that receives an event about a step or workflow, and lets it continue or fail. Status 2xx lets it
/// continue. Statuses from 300 to 499 fail it, except 408, 425 and 429. All other results are retried. The endpoint
/// receives each event at least once, with the same webhook-id in every attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    /// The name of the hook, among the hooks of the step or workflow: lower-case letters, digits and '-', at most 63
    /// characters.
    pub name: String,
    /// The URL to which a CloudEvent is posted: https, or http of a loopback address. It needs the verb use on this
    /// host, as hookhosts of platform.stoa.dev. Every reader of the workflow can read it. Redirects are not followed.
    pub url: String,
    /// The key of a Secret beside the workflow that holds the signing keys, as in a NotificationSink. It needs the verb
    /// use on this Secret.
    pub secret_ref: LocalSecretKeyReference,
    /// The certificate authorities that verify the endpoint's certificate, PEM. Absent: those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes_schema")]
    pub ca_bundle: Option<ByteString>,
    /// The scope of the hook, for hooks of steps: Step for one call, or Wave for a call in each wave.
    #[serde(default)]
    pub each: HookScope,
    /// The result that the hook is called for, in `post`: Success, Failure or Always. A hook is never called while the
    /// workflow is being ended.
    #[serde(default)]
    pub when: When,
    /// The time allowed for one answer, as a duration such as 30s; at most 5m. Defaults to 30s.
    #[serde(default = "DurationString::seconds::<30>")]
    pub timeout: DurationString,
    /// The limits on attempts.
    #[serde(default)]
    pub retry: HookRetry,
    /// The effect of a failed hook on the step or workflow: Fail or Ignore.
    #[serde(default)]
    pub failure_policy: HookFailurePolicy,
}

/// The scope of one call of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookScope {
    /// The step: before its first run, and after its last.
    #[default]
    Step,
    /// Each wave: before its first run, and after its pause.
    Wave,
}

/// The effect of a failed hook on its step or workflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookFailurePolicy {
    /// The step or workflow fails. Only its hooks for failures are still called.
    #[default]
    Fail,
    /// The step or workflow continues.
    Ignore,
}

/// The limits on attempts of a hook. The hook fails at the first limit that it reaches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookRetry {
    /// The maximum number of attempts. Absent: maxAge alone limits them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// The time after the first attempt within which another may begin, as a duration such as 10m; at most 24h.
    /// Defaults to 10m.
    #[serde(default = "DurationString::minutes::<10>")]
    pub max_age: DurationString,
    /// The wait after the first attempt. It doubles with each attempt, less a random part of up to a half. A longer
    /// Retry-After of the answer takes precedence. Defaults to 1s.
    #[serde(default = "DurationString::seconds::<1>")]
    pub min_backoff: DurationString,
    /// The maximum wait between two attempts. Defaults to 30s.
    #[serde(default = "DurationString::seconds::<30>")]
    pub max_backoff: DurationString,
}

impl Default for HookRetry {
    fn default() -> Self {
        Self {
            max_attempts: None,
            max_age: DurationString::minutes::<10>(),
            min_backoff: DurationString::seconds::<1>(),
            max_backoff: DurationString::seconds::<30>(),
        }
    }
}

/// The phase of a hook: Running, and at the end Succeeded, Failed or Canceled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HookPhase {
    /// The endpoint is called, or will be called again.
    #[default]
    Running,
    /// The endpoint answered with 2xx.
    Succeeded,
    /// The endpoint answered otherwise, or too late.
    Failed,
    /// The workflow was ended before the endpoint answered.
    Canceled,
}

/// The observed state of a hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// The name of the hook.
    pub name: String,
    /// The phase of the hook: Running, and at the end Succeeded, Failed or Canceled. It is recorded before the first
    /// attempt.
    #[serde(default)]
    pub phase: HookPhase,
    /// The number of the wave that the hook was called for. Absent for the scope Step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    /// The number of attempts. A crash may lose the last one.
    #[serde(default)]
    pub attempts: i64,
    /// The text `message` of a JSON answer, or the cause of a failure. At most 200 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The time at which the first call was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// The time at which the hook ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}
