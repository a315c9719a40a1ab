//! Hooks of Workflows: validation, and the permission to have the server call them.
//!
//! A hook makes the server call an address in a network that its author may have no access to, and sign with a
//! Secret that the author may not read. Each hook therefore takes the verb `use` on its host, as `hookhosts` of
//! `platform.stoa.dev`, and on the Secret. No objects of that resource exist; the name is the host of the URL.

use std::{collections::HashSet, time::Duration};

use http::Uri;
use stoa_machinery::{ApiError, RequestContext, status::FieldError};
use stoa_types::delivery::{Hook, HookRetry, HookScope, Step, StepHooks, When, WorkflowHooks, WorkflowSpec};

use super::validate::{NO_LABEL, is_label};
use crate::{lookup, notification_sink, validation};

/// So many hooks may come before the runs of a step, and so many after them.
const MOST: usize = 10;
/// So many may a workflow have: its status says of each how it fares.
const MOST_IN_ALL: usize = 100;
/// So many characters may a URL have.
const LONGEST_URL: usize = 2_000;

/// The hooks of a step, before and after its runs.
pub fn hooks_of(step: &Step) -> (&[Hook], &[Hook]) {
    step.hooks.as_ref().map_or((&[], &[]), |hooks| (hooks.pre.as_slice(), hooks.post.as_slice()))
}

/// A hook of a step by its name, and whether it comes before the runs.
pub fn find<'a>(step: &'a Step, name: &str) -> Option<(&'a Hook, bool)> {
    let (pre, post) = hooks_of(step);
    let with = |is_pre: bool| move |hook: &'a Hook| (hook, is_pre);
    pre.iter().map(with(true)).chain(post.iter().map(with(false))).find(|(hook, _)| hook.name == name)
}

/// The host that a hook calls, as permissions name it: in lower case, with the port where the URL has another than its scheme.
fn host_of(url: &str) -> String {
    let Ok(uri) = url.parse::<Uri>() else { return String::new() };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let usual = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    match uri.port_u16().filter(|port| *port != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// Requires what it takes to have a hook called.
///
/// # Errors
///
/// 403 that names the verb and the host or the Secret.
pub async fn require(context: &RequestContext, namespace: &str, hook: &Hook) -> Result<(), ApiError> {
    let host = host_of(&hook.url);
    lookup::require_host(context, namespace, &host).await?;
    lookup::require_secret(context, namespace, &hook.secret_ref.name).await
}

/// The same of all hooks of a workflow.
pub(super) async fn require_all(
    context: &RequestContext,
    namespace: &str,
    spec: &WorkflowSpec,
) -> Result<(), ApiError> {
    let mut asked = HashSet::new();
    for step in whole(spec).iter().chain(&spec.steps) {
        let (pre, post) = hooks_of(step);
        for hook in pre.iter().chain(post) {
            if asked.insert((host_of(&hook.url), &hook.secret_ref.name)) {
                require(context, namespace, hook).await?;
            }
        }
    }
    Ok(())
}

/// A step with the hooks of a workflow, in whose runs all steps are. It has no name.
pub fn whole(spec: &WorkflowSpec) -> Option<Step> {
    let WorkflowHooks { pre, post } = spec.hooks.clone()?;
    Some(Step { hooks: Some(StepHooks { pre, post }), ..Step::default() })
}

/// Finds what is wrong with the hooks of a workflow and of all steps.
pub(super) fn validate(spec: &WorkflowSpec, errors: &mut Vec<FieldError>) {
    let mut all = 0;
    if let Some(hooks) = whole(spec).and_then(|whole| whole.hooks) {
        of_step(&hooks, "spec.hooks", errors);
        for (field, list) in [("pre", &hooks.pre), ("post", &hooks.post)] {
            for (i, _) in list.iter().enumerate().filter(|(_, hook)| hook.each == HookScope::Wave) {
                let detail = "may not be Wave for hooks of the workflow; only steps have waves";
                errors.push(FieldError::forbidden(format!("spec.hooks.{field}[{i}].each"), detail));
            }
        }
        all += hooks.pre.len() + hooks.post.len();
    }
    for (i, step) in spec.steps.iter().enumerate() {
        let Some(hooks) = &step.hooks else { continue };
        let path = format!("spec.steps[{i}].hooks");
        if step.run.is_none() {
            errors.push(FieldError::forbidden(&path, "may only be set together with run"));
        }
        of_step(hooks, &path, errors);
        all += hooks.pre.len() + hooks.post.len();
    }
    if all > MOST_IN_ALL {
        let detail = format!("must have at most {MOST_IN_ALL} hooks in all");
        errors.push(FieldError::invalid("spec.steps", all, detail));
    }
}

fn of_step(hooks: &StepHooks, path: &str, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (field, list) in [("pre", &hooks.pre), ("post", &hooks.post)] {
        let at = format!("{path}.{field}");
        if list.len() > MOST {
            errors.push(FieldError::invalid(&at, list.len(), format!("must have at most {MOST} items")));
            continue;
        }
        for (i, hook) in list.iter().enumerate() {
            let at = format!("{at}[{i}]");
            if !is_label(&hook.name) {
                errors.push(FieldError::invalid(format!("{at}.name"), &hook.name, NO_LABEL));
            } else if !names.insert(hook.name.as_str()) {
                errors.push(FieldError::duplicate(format!("{at}.name"), &hook.name));
            }
            if field == "pre" && hook.when != When::Success {
                let detail = "may only be set for a hook in post";
                errors.push(FieldError::forbidden(format!("{at}.when"), detail));
            }
            self::hook(hook, &at, errors);
        }
    }
}

fn hook(hook: &Hook, path: &str, errors: &mut Vec<FieldError>) {
    let url = format!("{path}.url");
    if hook.url.len() > LONGEST_URL {
        let detail = format!("must be no more than {LONGEST_URL} characters");
        errors.push(FieldError::invalid(url, "<long>", detail));
    } else {
        notification_sink::url(&url, &hook.url, errors);
    }
    for (field, value) in [("name", &hook.secret_ref.name), ("key", &hook.secret_ref.key)] {
        if value.is_empty() {
            errors.push(FieldError::required(format!("{path}.secretRef.{field}"), ""));
        }
    }
    notification_sink::bundle(&format!("{path}.caBundle"), hook.ca_bundle.as_ref(), errors);
    let second = Duration::from_secs(1);
    validation::duration(&format!("{path}.timeout"), &hook.timeout, second..=second * 300, errors);
    let HookRetry { max_attempts, max_age, min_backoff, max_backoff } = &hook.retry;
    let path = format!("{path}.retry");
    notification_sink::attempts(&path, *max_attempts, errors);
    validation::duration(&format!("{path}.maxAge"), max_age, Duration::ZERO..=second * 24 * 3600, errors);
    notification_sink::backoff(&path, (min_backoff, max_backoff), errors);
}

/// The wave that a hook is called for, where it is for each.
pub fn wave_of(hook: &Hook, wave: usize) -> Option<i64> {
    (hook.each == HookScope::Wave).then_some(wave as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_includes_unusual_port() {
        for (url, host) in [
            ("https://Hooks.Example.com/a?b=c", "hooks.example.com"),
            ("https://hooks.example.com:443", "hooks.example.com"),
            ("https://hooks.example.com:80", "hooks.example.com:80"),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
            ("http://127.0.0.1:80/", "127.0.0.1"),
            ("http://[::1]:8080/", "[::1]:8080"),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
