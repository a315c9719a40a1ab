//! NotificationSink: an endpoint that takes events, named so that what is sent to it can be checked and kept secret.

use std::time::Duration;

use async_trait::async_trait;
use http::Uri;
use kube::{CustomResourceExt as _, core::Selector};
use stoa_machinery::{
    Object, ResourceDefinition,
    definition::{Cell, Column},
    outbound,
    status::FieldError,
    strategy::Strategy,
};
use stoa_types::{NotificationSink, platform::RetryPolicy};

use super::check;
use crate::{notifications::events, subresources::Subresources};

pub(crate) fn definition(subresources: &Subresources) -> ResourceDefinition {
    let definition = ResourceDefinition::from_crd(&NotificationSink::crd()).columns(&[
        // Not the whole URL: some have in them what lets people post.
        Column::new("Host", Cell::Compute(host), "Where events are posted."),
        Column::new("Suspended", Cell::Path(&["spec", "suspend"]), "Whether nothing is sent for now.").kind("boolean"),
        Column::new(
            "Ready",
            Cell::Compute(|o| check::condition_status(o.get_path(&["status", "conditions"]), "Ready")),
            "Whether the last event was taken.",
        ),
        Column::new("Dead", Cell::Path(&["status", "deadLetters"]), "How many events were given up and are kept.")
            .kind("integer"),
        Column::new("Gaps", Cell::Path(&["status", "gaps"]), "How many times history was gone before it was told.")
            .kind("integer")
            .wide(),
        Column::age(),
    ]);
    subresources.of_notification_sinks().into_iter().fold(definition, ResourceDefinition::subresource)
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
        check::subjects("spec.owners", &spec.owners, &mut errors);
        url("spec.url", &spec.url, &mut errors);
        if !spec.source.is_empty() {
            let example = "https://stoa.example.com";
            check::service_url("spec.source", &spec.source, example, "everybody reads it", &mut errors);
            if spec.source.ends_with('/') || spec.source.contains(['?', '#']) {
                let what = "must not end in '/', and have neither a query nor a fragment";
                errors.push(FieldError::invalid("spec.source", &spec.source, what));
            }
        }
        for (field, value) in
            [("namespace", &spec.secret_ref.namespace), ("name", &spec.secret_ref.name), ("key", &spec.secret_ref.key)]
        {
            if value.is_empty() {
                errors.push(FieldError::required(format!("spec.secretRef.{field}"), ""));
            }
        }
        if let Some(bundle) = &spec.ca_bundle
            && (bundle.0.is_empty() || outbound::tls(&bundle.0).is_err())
        {
            let what = "must be certificates, PEM in base64";
            errors.push(FieldError::invalid("spec.caBundle", "<certificates>", what));
        }
        for (i, pattern) in spec.events.iter().enumerate() {
            let path = format!("spec.events[{i}]");
            if spec.events[..i].contains(pattern) {
                errors.push(FieldError::duplicate(path, pattern));
            } else if !events::types().any(|event_type| events::matches(pattern, event_type)) {
                let types: Vec<&str> = events::types().collect();
                errors.push(FieldError::not_supported(path, pattern, &types));
            }
        }
        for (field, names) in [
            ("organizations", &spec.organizations),
            ("projects", &spec.projects),
            ("stacks", &spec.stacks),
            ("workspaces", &spec.workspaces),
        ] {
            for (i, name) in names.iter().enumerate() {
                if name.is_empty() {
                    errors.push(FieldError::required(format!("spec.{field}[{i}]"), ""));
                } else if names[..i].contains(name) {
                    errors.push(FieldError::duplicate(format!("spec.{field}[{i}]"), name));
                }
            }
        }
        if let Some(selector) = &spec.organization_selector
            && let Err(error) = Selector::try_from(selector.clone())
        {
            errors.push(FieldError::invalid("spec.organizationSelector", selector, error));
        }
        let second = Duration::from_secs(1);
        check::duration("spec.timeout", &spec.timeout, second..=second * 60, &mut errors);
        retry("spec.retry", &spec.retry, &mut errors);
        errors
    }
}

/// Finds what is wrong with where events are posted.
fn url(path: &str, text: &str, errors: &mut Vec<FieldError>) {
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let example = "https://hooks.example.com/stoa";
    let Some(uri) = check::service_url(path, text, example, "events are signed with secretRef", errors) else { return };
    if text.contains('#') {
        errors.push(FieldError::invalid(path, text, "must not have a fragment"));
    }
    check::not_in_clear(path, text, &uri, errors);
}

/// Finds what is wrong with how often and how long events are tried.
fn retry(path: &str, policy: &RetryPolicy, errors: &mut Vec<FieldError>) {
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
    if let Some(attempts) = policy.max_attempts.filter(|attempts| *attempts < 1) {
        errors.push(FieldError::invalid(format!("{path}.maxAttempts"), attempts, "must be at least 1"));
    }
    check::duration(&format!("{path}.maxAge"), &policy.max_age, second..=day * 30, errors);
    check::duration(&format!("{path}.minBackoff"), &policy.min_backoff, second / 10..=second * 3600, errors);
    check::duration(&format!("{path}.maxBackoff"), &policy.max_backoff, second..=day, errors);
    if let (Ok(least), Ok(most)) = (policy.min_backoff.parse(), policy.max_backoff.parse())
        && least > most
    {
        errors.push(FieldError::invalid(
            format!("{path}.maxBackoff"),
            &policy.max_backoff,
            "must not be shorter than minBackoff",
        ));
    }
}
