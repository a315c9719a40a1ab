//! Metrics of admission, under upstream's names.
//!
//! Follows `k8s.io/apiserver/pkg/admission/metrics` and the `metrics` of both policy plugins.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::Operation;
use crate::metrics::Families;

/// The metrics of a server's admission.
#[derive(Debug)]
pub struct Metrics {
    steps: HistogramVec,
    plugins: HistogramVec,
    webhooks: HistogramVec,
    webhook_rejections: IntCounterVec,
    webhook_fail_opens: IntCounterVec,
    webhook_requests: IntCounterVec,
    condition_errors: IntCounterVec,
    condition_exclusions: IntCounterVec,
    condition_durations: HistogramVec,
    validations: Checks,
    mutations: Checks,
}

/// How often the expressions of policies were evaluated, and for how long.
#[derive(Debug)]
struct Checks {
    count: IntCounterVec,
    durations: HistogramVec,
}

/// A part of the chain: first come changes, then objections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes.
    Admit,
    /// Objections.
    Validate,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Validate => "validate",
        }
    }
}

/// Whose match conditions are evaluated.
#[derive(Clone, Copy, Debug)]
pub struct ConditionsOf<'a> {
    /// Of the webhook or policy.
    pub name: &'a str,
    /// `webhook` or `policy`.
    pub kind: &'static str,
    /// `admit`, `validating` or `validate`.
    pub step: &'static str,
}

/// A call of a webhook, as its metrics have it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The webhook's name.
    pub webhook: &'a str,
    /// `admit` or `validating`.
    pub step: &'static str,
    /// The operation of the write.
    pub operation: Operation,
    /// The duration of the call.
    pub took: Duration,
    /// 200 or the code of what went wrong.
    pub code: i32,
}

/// Why the write does not go on after a webhook's call.
#[derive(Clone, Copy, Debug)]
pub enum Rejection {
    /// It could not be asked.
    CallingWebhook,
    /// The server could not work with it.
    Internal,
    /// It said no.
    Answered,
    /// It had not answered when whoever asked for the write went away, to whom nothing is refused any more.
    Abandoned,
}

impl Rejection {
    /// What the count of refusals calls it; nothing when it is no refusal there.
    fn error_type(self) -> Option<&'static str> {
        match self {
            Self::CallingWebhook => Some("calling_webhook_error"),
            Self::Internal => Some("apiserver_internal_error"),
            Self::Answered => Some("no_error"),
            Self::Abandoned => None,
        }
    }
}

impl Metrics {
    /// Makes the metrics and registers them. Fails when there are metrics of the same names already.
    pub fn new(families: &Families) -> prometheus::Result<Self> {
        let long = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
        let of_webhooks = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
        let of_conditions = [0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
        let of_expressions = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];
        let step_labels = ["type", "operation", "rejected"];
        let plugin_labels = ["name", "type", "operation", "rejected"];
        let condition_labels = ["name", "kind", "type", "operation"];
        let validation_labels = ["policy", "policy_binding", "error_type", "enforcement_action"];
        let mutation_labels = ["policy", "policy_binding", "error_type"];
        Ok(Self {
            steps: families.histograms(
                "apiserver_admission_step_admission_duration_seconds",
                "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and \
                     step type (validate or admit).",
                &long,
                &step_labels,
            )?,
            plugins: families.histograms(
                "apiserver_admission_controller_admission_duration_seconds",
                "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each \
                     operation and API resource and type (validate or admit).",
                &long,
                &plugin_labels,
            )?,
            webhooks: families.histograms(
                "apiserver_admission_webhook_admission_duration_seconds",
                "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation \
                     and API resource and type (validate or admit).",
                &of_webhooks,
                &plugin_labels,
            )?,
            webhook_rejections: families.counters(
                "apiserver_admission_webhook_rejection_count",
                "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type \
                     (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error \
                     or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero \
                     rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver \
                     when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the \
                     metrics cardinality bounded.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            )?,
            webhook_fail_opens: families.counters(
                "apiserver_admission_webhook_fail_open_count",
                "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type \
                     (validating or admit).",
                &["name", "type"],
            )?,
            webhook_requests: families.counters(
                "apiserver_admission_webhook_request_total",
                "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type \
                     (validating or admit) and operation. Additional labels specify whether the request was rejected or \
                     not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics \
                     cardinality bounded.",
                &["name", "type", "operation", "code", "rejected"],
            )?,
            condition_errors: families.counters(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the \
                     match condition and broken out for each kind containing matchConditions (webhook or policy), \
                     operation and admission type (validate or admit).",
                &condition_labels,
            )?,
            condition_exclusions: families.counters(
                "apiserver_admission_match_condition_exclusions_total",
                "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the \
                     match condition and broken out for each kind containing matchConditions (webhook or policy), \
                     operation and admission type (validate or admit).",
                &condition_labels,
            )?,
            condition_durations: families.histograms(
                "apiserver_admission_match_condition_evaluation_seconds",
                "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each \
                     kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
                &of_conditions,
                &condition_labels,
            )?,
            validations: Checks {
                count: families.counters(
                    "apiserver_validating_admission_policy_check_total",
                    "[BETA] Validation admission policy check total, labeled by policy and further identified by binding and \
                         enforcement action taken.",
                    &validation_labels,
                )?,
                durations: families.histograms(
                    "apiserver_validating_admission_policy_check_duration_seconds",
                    "[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy \
                         and further including binding and enforcement action taken.",
                    &of_expressions,
                    &validation_labels,
                )?,
            },
            mutations: Checks {
                count: families.counters(
                    "apiserver_mutating_admission_policy_check_total",
                    "[ALPHA] Mutation admission policy check total, labeled by policy and further identified by binding.",
                    &mutation_labels,
                )?,
                durations: families.histograms(
                    "apiserver_mutating_admission_policy_check_duration_seconds",
                    "[ALPHA] Mutation admission latency for individual mutation expressions in seconds, labeled by policy and \
                         binding.",
                    &of_expressions,
                    &mutation_labels,
                )?,
            },
        })
    }

    /// A part of the chain is done.
    pub fn step(&self, step: Step, operation: Operation, rejected: bool, took: Duration) {
        let labels = [step.name(), operation.as_str(), yes_or_no(rejected)];
        self.steps.with_label_values(&labels).observe(took.as_secs_f64());
    }

    pub(super) fn plugin(&self, name: &str, step: Step, operation: Operation, rejected: bool, took: Duration) {
        let labels = [name, step.name(), operation.as_str(), yes_or_no(rejected)];
        self.plugins.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// A webhook was called; `rejection` says why the write does not go on, if it does not.
    pub fn called(&self, call: Call<'_>, rejection: Option<Rejection>) {
        let Call { webhook, step, operation, took, code } = call;
        let (operation, rejected) = (operation.as_str(), yes_or_no(rejection.is_some()));
        // Not a series for every number that a webhook makes up.
        let code = code.clamp(0, 600).to_string();
        if let Some(error_type) = rejection.and_then(Rejection::error_type) {
            self.webhook_rejections.with_label_values(&[webhook, step, operation, error_type, &code]).inc();
        }
        self.webhook_requests.with_label_values(&[webhook, step, operation, &code, rejected]).inc();
        let labels = [webhook, step, operation, rejected];
        self.webhooks.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// A webhook could not be called, and the write goes on.
    pub fn failed_open(&self, webhook: &str, step: &'static str) {
        self.webhook_fail_opens.with_label_values(&[webhook, step]).inc();
    }

    /// Match conditions were evaluated, so many of them with an error.
    pub fn conditions(&self, of: ConditionsOf<'_>, operation: Operation, errors: usize, took: Duration) {
        let labels = [of.name, of.kind, of.step, operation.as_str()];
        if errors > 0 {
            self.condition_errors.with_label_values(&labels).inc_by(errors as u64);
        }
        self.condition_durations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// A webhook is not called because of its match conditions. Upstream names the step otherwise here than where it
    /// counts conditions and calls.
    pub fn excluded(&self, webhook: &str, step: Step, operation: Operation) {
        self.condition_exclusions.with_label_values(&[webhook, "webhook", step.name(), operation.as_str()]).inc();
    }

    /// A validation came to an `action`: `allow`, `deny`, `audit` or `warn`; `problem` is what it said.
    pub fn validated(&self, policy: &str, binding: &str, problem: &str, action: &str, took: Duration) {
        self.validations.add(&[policy, binding, error_type(problem), action], took);
    }

    /// A mutation was evaluated; `problem` is why in vain.
    pub fn mutated(&self, policy: &str, binding: &str, problem: Option<&str>, took: Duration) {
        self.mutations.add(&[policy, binding, problem.map_or("no_error", error_type)], took);
    }
}

impl Default for Metrics {
    /// Metrics that nobody sees.
    fn default() -> Self {
        Self::new(&Families::default()).expect("new families have no metrics yet")
    }
}

impl Checks {
    fn add(&self, labels: &[&str], took: Duration) {
        self.count.with_label_values(labels).inc();
        self.durations.with_label_values(labels).observe(took.as_secs_f64());
    }
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// What a problem's text says about its kind, as upstream tells them apart.
fn error_type(problem: &str) -> &'static str {
    if problem.starts_with("compilation") {
        "compile_error"
    } else if problem.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}
