//! NotificationSink: an HTTP endpoint that receives events, with the Secret that signs them.

use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use k8s_openapi::ByteString;
use stoa_machinery::{
    Object, ResourceDefinition,
    definition::{Cell, Column},
    outbound,
    selector::LabelSelector,
    status::FieldError,
    strategy::Strategy,
};
use stoa_types::{DurationString, NotificationSink, platform::RetryPolicy};

use super::{event_types, ready};
use crate::{
    kind::{InGit, Kind},
    rights::PUSHED,
    validation,
};

/// The kind NotificationSink.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, _| builder.register(definition, NotificationSinkStrategy),
    in_git: Some(InGit::at("platform/notificationsinks/{name}.yaml")),
    rights: &[PUSHED],
    ..Kind::of::<NotificationSink>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<NotificationSink>().columns(&[
        // Not the whole URL: some have in them what lets people post.
        Column::new("Host", Cell::Compute(host), "The host that events are posted to."),
        Column::new("Suspended", Cell::Path(&["spec", "suspend"]), "Whether delivery is suspended.").kind("boolean"),
        ready::status("Whether the endpoint accepted the last event."),
        Column::new("Dead", Cell::Path(&["status", "deadLetters"]), "The number of dead letters.").kind("integer"),
        Column::new(
            "Gaps",
            Cell::Path(&["status", "gaps"]),
            "The number of times that history expired before it was delivered.",
        )
        .kind("integer")
        .wide(),
        Column::age(),
        ready::reason(),
        ready::message(),
    ])
}

fn host(object: &Object) -> serde_json::Value {
    let url = object.get_path(&["spec", "url"]).and_then(serde_json::Value::as_str).unwrap_or_default();
    url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default().into()
}

#[derive(Debug)]
pub(crate) struct NotificationSinkStrategy;

#[async_trait]
impl Strategy for NotificationSinkStrategy {
    type Object = NotificationSink;

    fn validate(&self, object: &NotificationSink) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        url("spec.url", &spec.url, &mut errors);
        if !spec.source.is_empty() {
            let example = "https://stoa.example.com";
            validation::service_url(
                "spec.source",
                &spec.source,
                example,
                "every reader of the sink can see it",
                &mut errors,
            );
            if spec.source.ends_with('/') || spec.source.contains(['?', '#']) {
                let what = "must not end in '/' or have a query or a fragment";
                errors.push(FieldError::invalid("spec.source", &spec.source, what));
            }
        }
        validation::secret_key("spec.secretRef", &spec.secret_ref, &mut errors);
        bundle("spec.caBundle", spec.ca_bundle.as_ref(), &mut errors);
        for (i, pattern) in spec.events.iter().enumerate() {
            let path = format!("spec.events[{i}]");
            if spec.events[..i].contains(pattern) {
                errors.push(FieldError::duplicate(path, pattern));
            } else if !event_types::types().any(|event_type| event_types::matches(pattern, event_type)) {
                let types: Vec<&str> = event_types::types().collect();
                errors.push(FieldError::not_supported(path, pattern, &types));
            }
        }
        for (field, names) in [
            ("organizations", &spec.organizations),
            ("projects", &spec.projects),
            ("stacks", &spec.stacks),
            ("workspaces", &spec.workspaces),
        ] {
            validation::names(&format!("spec.{field}"), names, &mut errors);
        }
        if let Some(selector) = &spec.organization_selector {
            errors.extend(LabelSelector::validate("spec.organizationSelector", selector));
        }
        let second = Duration::from_secs(1);
        validation::duration("spec.timeout", &spec.timeout, second..=second * 60, &mut errors);
        retry("spec.retry", &spec.retry, &mut errors);
        errors
    }
}

/// Finds what is wrong with the authorities that an endpoint's certificate is checked with.
pub fn bundle(path: &str, bundle: Option<&ByteString>, errors: &mut Vec<FieldError>) {
    if bundle.is_some_and(|bundle| bundle.0.is_empty() || outbound::tls(&bundle.0).is_err()) {
        let what = "must be certificates, PEM in base64";
        errors.push(FieldError::invalid(path, "<certificates>", what));
    }
}

/// Finds what is wrong with where events are posted.
pub fn url(path: &str, text: &str, errors: &mut Vec<FieldError>) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let example = "https://hooks.example.com/stoa";
    let Some(uri) = validation::service_url(path, text, example, "events are signed with secretRef", errors) else {
        return;
    };
    if text.contains('#') {
        errors.push(FieldError::invalid(path, text, "must not have a fragment"));
    }
    validation::not_in_clear(path, text, &uri, errors);
}

/// Finds what is wrong with how often and how long events are tried.
fn retry(path: &str, policy: &RetryPolicy, errors: &mut Vec<FieldError>) {
    let day = Duration::from_secs(24 * 3600);
    attempts(path, policy.max_attempts, errors);
    validation::duration(&format!("{path}.maxAge"), &policy.max_age, Duration::from_secs(1)..=day * 30, errors);
    backoff(path, (&policy.min_backoff, &policy.max_backoff), errors);
}

/// Finds what is wrong with how often something is tried.
pub fn attempts(path: &str, most: Option<i64>, errors: &mut Vec<FieldError>) {
    if let Some(attempts) = most.filter(|attempts| *attempts < 1) {
        errors.push(FieldError::invalid(format!("{path}.maxAttempts"), attempts, "must be at least 1"));
    }
}

/// Finds what is wrong with how long is waited between tries.
pub fn backoff(path: &str, (least, most): (&DurationString, &DurationString), errors: &mut Vec<FieldError>) {
    let second = Duration::from_secs(1);
    validation::duration(&format!("{path}.minBackoff"), least, second / 10..=second * 3600, errors);
    validation::duration(&format!("{path}.maxBackoff"), most, second..=second * 24 * 3600, errors);
    if let (Ok(shortest), Ok(longest)) = (least.parse(), most.parse())
        && shortest > longest
    {
        errors.push(FieldError::invalid(format!("{path}.maxBackoff"), most, "must not be shorter than minBackoff"));
    }
}
