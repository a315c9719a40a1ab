//! Errors of providers as the engine has them.

use stoa_engine::Sensitive;
use stoa_runtime::{ApplyRequest, RuntimeError};
use stoa_terraform_provider::change::ChangeError;
use stoa_terraform_provider::checks::Faults;
use stoa_terraform_provider::protocol::{Call, CallError, Diagnostic, Diagnostics, Severity};
use stoa_terraform_provider::value::Path;
use stoa_terraform_provider::value::convert::ConvertError;

use crate::conversion::field_path;

/// The field of a resource at a path of its attributes.
fn field(path: &Path) -> String {
    format!("attributes.{}", field_path(path))
}

/// The rejection by a message, at an attribute.
pub(crate) fn rejected(message: String, path: Option<&Path>) -> RuntimeError {
    RuntimeError::Rejected { message, field: path.map(field), by_definition: false }
}

/// The rejection that the reports of a provider say.
pub(crate) fn reported(diagnostics: &Diagnostics) -> RuntimeError {
    let path = diagnostics.errors().find_map(|error| error.path.as_ref());
    rejected(diagnostics.to_string(), path)
}

/// An error without sensitive texts.
pub(crate) fn redacted(error: RuntimeError, texts: &Sensitive) -> RuntimeError {
    let hide = |message: String| texts.redact(&message);
    match error {
        RuntimeError::Rejected { message, field, by_definition } => {
            RuntimeError::Rejected { message: hide(message), field, by_definition }
        }
        RuntimeError::Partial { message, field, applied } => {
            RuntimeError::Partial { message: hide(message), field, applied }
        }
        RuntimeError::Invalid { message, field } => RuntimeError::Invalid { message: hide(message), field },
        RuntimeError::Lost { message } => RuntimeError::Lost { message: hide(message) },
        RuntimeError::Unread { message } => RuntimeError::Unread { message: hide(message) },
        RuntimeError::Stale(message) => RuntimeError::Stale(hide(message)),
        other => other,
    }
}

/// An error without the sensitive texts of a request.
pub(crate) fn redacted_for(error: RuntimeError, request: &ApplyRequest<'_>) -> RuntimeError {
    let no_texts = Sensitive::default();
    redacted(error, request.sensitive.unwrap_or(&no_texts))
}

/// The reports of a provider that has no errors.
///
/// # Errors
///
/// The provider reports errors.
pub(crate) fn accepted(diagnostics: Diagnostics) -> Result<Diagnostics, RuntimeError> {
    if diagnostics.has_errors() { Err(reported(&diagnostics)) } else { Ok(diagnostics) }
}

/// The warnings of a provider.
pub(crate) fn warnings(diagnostics: &Diagnostics) -> Vec<String> {
    let warnings = diagnostics.0.iter().filter(|it| it.severity == Severity::Warning);
    warnings.map(Diagnostic::to_string).collect()
}

/// A configuration that does not have the form of the schema.
pub(crate) fn misconfigured(errors: &[ConvertError]) -> RuntimeError {
    let message: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let field = errors.first().map(|error| field(&error.path)).unwrap_or_default();
    RuntimeError::Invalid { message: message.join("; "), field: Some(field.trim_end_matches('.').to_owned()) }
}

/// The broken promises of a provider.
pub(crate) fn faulty(faults: &Faults) -> String {
    format!("the provider broke its protocol: {faults}; report it to the provider")
}

/// A call without an answer that changes nothing, or that the provider did not begin. One that took too long is not made
/// again, since another try would take as long.
pub(crate) fn unanswered(error: &CallError) -> RuntimeError {
    match error {
        CallError::Crashed { .. } | CallError::Failed { .. } => RuntimeError::Unread { message: with_cause(error) },
        CallError::Reported { diagnostics, .. } => reported(diagnostics),
        _ => rejected(with_cause(error), None),
    }
}

/// The error of a change. Only a change that was begun may have been made.
pub(crate) fn of_change(error: &ChangeError) -> RuntimeError {
    match error {
        ChangeError::Call(call) if is_begun(call) => RuntimeError::Lost { message: with_cause(call) },
        ChangeError::Call(call) => unanswered(call),
        ChangeError::Rejected { diagnostics, .. } => reported(diagnostics),
        ChangeError::InvalidPlan { .. } => rejected(error.to_string(), None),
        ChangeError::PlanChanged { .. } => RuntimeError::Stale(error.to_string()),
    }
}

fn is_begun(error: &CallError) -> bool {
    let is_apply = |call: &Call| *call == Call::ApplyResourceChange;
    match error {
        CallError::Crashed { call, .. }
        | CallError::TimedOut { call, .. }
        | CallError::Failed { call, .. }
        | CallError::Decode { call, .. } => is_apply(call),
        _ => false,
    }
}

/// The message of an error with those of its causes.
fn with_cause(error: &CallError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn call_that_takes_too_long_is_not_made_again() {
        let (call, object) = (Call::ReadResource, String::new());
        let late = CallError::TimedOut { call, object: object.clone(), time: Duration::from_secs(600) };
        let RuntimeError::Rejected { message, .. } = unanswered(&late) else { panic!("{late}") };
        assert_eq!(message, "the provider did not answer ReadResource within 600 s");
        let crashed = CallError::Crashed { call, object, exit: "exit code 1".to_owned(), last_lines: Vec::new() };
        assert!(unanswered(&crashed).is_retryable());
    }
}
