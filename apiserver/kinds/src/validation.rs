//! Validation of shapes that several kinds share.

use std::{net::IpAddr, time::Duration};

use http::Uri;
use kube::Resource;
use stoa_machinery::{ApiError, RequestContext, content, registry::ORPHAN_DEPENDENTS, status::FieldError};
use stoa_types::{DeletionPolicy, DurationString, SecretReference, Subject, common::SecretKeyReference, labels};

use super::trigger::CAUSED_BY;
use crate::errors;

/// The most characters of a label's value.
const LABEL: usize = 63;
/// Whoever pushes a file to the control repository.
const PUSHER: &str = "stoa:git:";
/// Marks the user of a push by which a server begins anew from its repository.
const RESTORED: &str = "stoa.dev/restored";

/// Whether a file of the control repository is what is written.
pub(crate) fn is_pushed(context: &RequestContext) -> bool {
    context.user.name.starts_with(PUSHER)
}

/// Notes that a server begins anew from its repository, and makes the objects that it had again.
pub fn note_restored(context: &mut RequestContext) {
    context.user.extra.insert(RESTORED.to_owned(), vec!["true".to_owned()]);
}

/// Whether an object is made again that the control repository had before the log began.
pub(crate) fn is_restored(context: &RequestContext) -> bool {
    is_pushed(context) && context.user.extra.contains_key(RESTORED)
}

/// Refuses the name of an object that is longer than a label may be: what belongs to the object has it as one.
pub(crate) fn label_name(name: &str, errors: &mut Vec<FieldError>) {
    if name.len() > LABEL {
        errors.push(FieldError::invalid(
            "metadata.name",
            name,
            format_args!("must be no more than {LABEL} characters"),
        ));
    }
}

/// Finds what is wrong with a list of RBAC subjects.
pub fn subjects(path: &str, subjects: &[Subject], errors: &mut Vec<FieldError>) {
    for (i, subject) in subjects.iter().enumerate() {
        self::subject(&format!("{path}[{i}]"), subject, errors);
    }
}

/// Finds what is wrong with an RBAC subject.
pub fn subject(path: &str, subject: &Subject, errors: &mut Vec<FieldError>) {
    const RBAC: &str = "rbac.authorization.k8s.io";
    if subject.name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    match subject.kind.as_str() {
        "User" | "Group" => {
            if let Some(group) = subject.api_group.as_deref().filter(|g| *g != RBAC) {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[RBAC]));
            }
        }
        "ServiceAccount" => {
            if let Some(group) = subject.api_group.as_deref().filter(|g| !g.is_empty()) {
                errors.push(FieldError::not_supported(format!("{path}.apiGroup"), group, &[""]));
            }
            if subject.namespace.as_deref().unwrap_or("").is_empty() {
                errors.push(FieldError::required(format!("{path}.namespace"), ""));
            }
        }
        other => {
            errors.push(FieldError::not_supported(format!("{path}.kind"), other, &["Group", "ServiceAccount", "User"]))
        }
    }
}

/// Finds why there is no such ServiceAccount to be bound to a role. Its name kube-apiserver checks, too, and refuses the whole
/// binding for it.
pub(crate) fn account(path: &str, subject: &Subject, errors: &mut Vec<FieldError>) {
    if subject.kind != "ServiceAccount" {
        return;
    }
    let namespace = subject.namespace.as_deref().unwrap_or_default();
    let name = subject.name.as_str();
    let parts = [("name", name, content::dns_subdomain(name)), ("namespace", namespace, content::dns_label(namespace))];
    // What is empty is told to be required.
    for (field, text, complaints) in parts.into_iter().filter(|(_, text, _)| !text.is_empty()) {
        errors.extend(complaints.into_iter().map(|why| FieldError::invalid(format!("{path}.{field}"), text, why)));
    }
}

/// Finds what is wrong with a list of the names of objects: none is empty, or in it twice.
pub(crate) fn names(path: &str, names: &[String], errors: &mut Vec<FieldError>) {
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}[{i}]"), ""));
        } else if names[..i].contains(name) {
            errors.push(FieldError::duplicate(format!("{path}[{i}]"), name));
        }
    }
}

/// Reads a duration that must lie in a range.
pub fn duration(
    path: &str,
    text: &DurationString,
    range: std::ops::RangeInclusive<Duration>,
    errors: &mut Vec<FieldError>,
) {
    match text.parse() {
        Err(error) => errors.push(FieldError::invalid(path, text, error)),
        Ok(length) if !range.contains(&length) => errors.push(FieldError::invalid(
            path,
            text,
            format_args!("must be between {:?} and {:?}", range.start(), range.end()),
        )),
        Ok(_) => {}
    }
}

/// A path inside a repository: relative, with `/`, and without a way out.
pub(crate) fn repository_path(path: &str, value: &str, errors: &mut Vec<FieldError>) {
    let bad = value.starts_with('/')
        || value.contains('\\')
        || value.contains('\0')
        || value.split('/').any(|part| part == ".." || part == ".git");
    if bad {
        errors.push(FieldError::invalid(
            path,
            value,
            "must be a relative path with '/' between its parts and without '..' and '.git'",
        ));
    }
}

/// The address of a repository: not empty, and with no password in it.
pub(crate) fn repository_address(path: &str, value: &str, errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let authority = value.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""));
    if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        // The value is left out of the message, because it holds what should not be shown.
        errors.push(FieldError::forbidden(path, "the address must not contain a password; use secretRef"));
    }
    if value.starts_with('-') || value.chars().any(char::is_control) {
        errors.push(FieldError::invalid(path, value, "must be a URL or a path"));
    }
}

/// Whether the address of a repository holds what may let somebody in: a password, a query, or a user, who is as often as not a
/// token. SSH alone needs a user.
pub fn holds_credentials(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else { return false };
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let has_query = rest.contains('?') && matches!(scheme.as_str(), "http" | "https");
    has_query || user.contains(':') || (!user.is_empty() && scheme != "ssh")
}

/// An address without its password, query and user, as locks and other objects show it. SSH keeps its user, which it needs.
pub fn without_credentials(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://").filter(|_| holds_credentials(address)) else {
        return address.to_owned();
    };
    let is_http = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let rest = if is_http { rest.split('?').next().unwrap_or(rest) } else { rest };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = user.split(':').next().filter(|user| !user.is_empty() && scheme.eq_ignore_ascii_case("ssh"));
    let user = user.map_or(String::new(), |user| format!("{user}@"));
    format!("{scheme}://{user}{host}{path}")
}

/// Refuses a new address of a repository that [holds credentials](holds_credentials), besides a password, which
/// [`repository_address`] refuses. There may be some from before this was refused.
pub(crate) fn new_repository_address(path: &str, value: &str, errors: &mut Vec<FieldError>) {
    let mut told = Vec::new();
    repository_address(path, value, &mut told);
    if told.is_empty() && holds_credentials(value) {
        // The value is left out of the message, because it holds what should not be shown.
        let message = "the address must not contain a query, or a user outside ssh://, because either may be a token; \
                       use secretRef";
        errors.push(FieldError::forbidden(path, message));
    }
}

/// Whether a text has the form `HOST[:PORT]/NAME`, with a name of parts in lower case. The function-runner has the exact rules.
pub(crate) fn is_oci_repository(text: &str) -> bool {
    let is_host = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '-' | ':' | '[' | ']');
    let is_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, '.' | '_' | '-');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_name);
    text.split_once('/').is_some_and(|(host, name)| {
        !host.is_empty() && host.chars().all(is_host) && text.len() <= 255 && name.split('/').all(is_part)
    })
}

/// The URL of a service over HTTP, without credentials in it; nothing, with an error, if it is none.
pub(crate) fn service_url(
    path: &str,
    text: &str,
    example: &str,
    instead: &str,
    errors: &mut Vec<FieldError>,
) -> Option<Uri> {
    let parsed = text.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let Some((uri, authority)) = parsed.as_ref().and_then(|uri| Some((uri, uri.authority()?))) else {
        errors.push(FieldError::invalid(path, text, format_args!("must be a URL such as {example}")));
        return None;
    };
    if authority.as_str().contains('@') {
        // The value is left out of the message, because it holds what should not be shown.
        errors.push(FieldError::forbidden(path, format_args!("must not contain credentials; {instead}")));
        return None;
    }
    Some(uri.clone())
}

/// Refuses a URL that others on the way can read along.
pub(crate) fn not_in_clear(path: &str, text: &str, uri: &Uri, errors: &mut Vec<FieldError>) {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if uri.scheme_str() == Some("http") && !is_loopback {
        errors.push(FieldError::invalid(path, text, "must be https, unless it is a loopback address"));
    }
}

/// A Secret that an object in `namespace` may name: one beside it.
pub(crate) fn secret_beside(path: &str, secret: &SecretReference, errors: &mut Vec<FieldError>) {
    if secret.name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    if secret.namespace.is_some() {
        errors.push(FieldError::forbidden(
            format!("{path}.namespace"),
            "the Secret must be in the object's own namespace",
        ));
    }
}

/// A Secret that a cluster-scoped object may name: one in a namespace.
pub(crate) fn secret_anywhere(path: &str, secret: &SecretReference, errors: &mut Vec<FieldError>) {
    if secret.name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    if secret.namespace.as_deref().unwrap_or("").is_empty() {
        errors.push(FieldError::required(format!("{path}.namespace"), ""));
    }
}

/// A key of a Secret in a namespace: none of its parts is empty.
pub fn secret_key(path: &str, reference: &SecretKeyReference, errors: &mut Vec<FieldError>) {
    let SecretKeyReference { namespace, name, key } = reference;
    for (field, value) in [("namespace", namespace), ("name", name), ("key", key)] {
        if value.is_empty() {
            errors.push(FieldError::required(format!("{path}.{field}"), ""));
        }
    }
}

/// Whether an object allows its live deployment to move to another folder.
pub fn allows_move<K: kube::Resource>(object: &K) -> bool {
    let mut annotations = object.meta().annotations.iter().flatten();
    annotations.any(|(name, value)| name == labels::ALLOW_MOVE && value == "true")
}

/// The error about a field that decides about the folder of what is live.
pub(crate) fn not_moved(path: &str, new: &str) -> FieldError {
    let message = format!(
        "the folder of a live stack must not change; to change it anyway, set the annotation {}: \"true\" in the same \
         write",
        labels::ALLOW_MOVE
    );
    FieldError::invalid(path, new, message)
}

/// Refuses a change of a field that may not change.
pub(crate) fn immutable<T: PartialEq + serde::Serialize>(path: &str, new: &T, old: &T, errors: &mut Vec<FieldError>) {
    if new != old {
        errors.push(FieldError::invalid(path, new, "field is immutable"));
    }
}

/// Finds an error where `spec.cancel` was true and is not.
pub(crate) fn cancel_is_final(new: bool, old: bool, errors: &mut Vec<FieldError>) {
    if old && !new {
        errors.push(FieldError::forbidden("spec.cancel", "may not become false again"));
    }
}

/// Refuses a value that is part of the API and cannot be served yet.
pub(crate) fn not_available(path: &str, what: &str, errors: &mut Vec<FieldError>) {
    errors.push(FieldError::forbidden(path, format_args!("{what} is not available yet")));
}

/// The 403 for a kind that the server alone writes.
pub(crate) fn written_by_server<K: Resource<DynamicType = ()>>(
    context: &RequestContext,
    name: &str,
) -> Result<(), ApiError> {
    part_written_by_server::<K>(context, name, "objects of this kind are")
}

/// Keeps who decided something, with the write that did; what Stoa does follows from what somebody else did, if it says who.
pub(crate) fn note_who(context: &RequestContext, who: &mut String) {
    if let Some(name) = self::who(context) {
        who.clone_from(name);
    }
}

/// Warns whoever deletes an object with `--cascade=orphan`, and may mean to leave what it deployed, that it is destroyed.
pub(crate) fn warn_of_destruction<K: kube::Resource>(context: &RequestContext, object: &K, policy: DeletionPolicy) {
    let orphans = object.meta().finalizers.iter().flatten().any(|finalizer| finalizer == ORPHAN_DEPENDENTS);
    if orphans && policy == DeletionPolicy::Destroy {
        context.warn(
            "deletionPolicy Destroy destroys the deployed infrastructure, and --cascade=orphan does not prevent it: \
             it spares only objects whose metadata.ownerReferences name this one. Set spec.deletionPolicy to Orphan \
             to leave the infrastructure",
        );
    }
}

/// Who does something, or has Stoa do it; nobody where it does that by itself.
pub fn who(context: &RequestContext) -> Option<&String> {
    match context.is_internal() {
        false => Some(&context.user.name),
        true => context.user.extra.get(CAUSED_BY).and_then(|names| names.first()),
    }
}

/// The same for a part of an object, such as `status.trigger is`.
pub(crate) fn part_written_by_server<K: Resource<DynamicType = ()>>(
    context: &RequestContext,
    name: &str,
    part_is: &str,
) -> Result<(), ApiError> {
    if context.is_internal() {
        return Ok(());
    }
    Err(errors::forbidden::<K>(name, format_args!("{part_is} written by Stoa alone")))
}

/// Gives an object the finalizer that keeps it until its controller lets it go, and gives it back where a write leaves it
/// out: a manifest does not name it. Once the object is being deleted, taking it away is how to let go what is stuck.
pub(crate) fn keep_finalizer<K: kube::Resource>(object: &mut K, finalizer: &str) {
    let metadata = object.meta_mut();
    let has_it = metadata.finalizers.iter().flatten().any(|found| found == finalizer);
    if metadata.deletion_timestamp.is_none() && !has_it {
        metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
    }
}

/// Brings the status of an object to its new spec: what follows from a write is in it, rather than in a second one of a
/// controller, which would come in the way of the client's next.
pub(crate) fn observe_change<K: kube::Resource>(new: &mut K, is_changed: bool, observe: impl FnOnce(&mut K)) {
    let metadata = new.meta_mut();
    if !is_changed || metadata.deletion_timestamp.is_some() {
        return;
    }
    // The version of the spec that this write makes.
    let generation = metadata.generation;
    metadata.generation = generation.map(|generation| generation + 1);
    observe(new);
    new.meta_mut().generation = generation;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_addresses_have_no_credentials() {
        for (address, shown) in [
            ("https://git.example.com/r.git", "https://git.example.com/r.git"),
            ("https://token@git.example.com/r.git", "https://git.example.com/r.git"),
            ("https://user:password@git.example.com:8443/r@1.git", "https://git.example.com:8443/r@1.git"),
            ("https://git.example.com/r.git?token=a", "https://git.example.com/r.git"),
            ("ssh://git@git.example.com/r.git", "ssh://git@git.example.com/r.git"),
            ("ssh://git:password@git.example.com/r.git", "ssh://git@git.example.com/r.git"),
            ("git@git.example.com:r.git", "git@git.example.com:r.git"),
            ("file:///r.git", "file:///r.git"),
        ] {
            assert_eq!(without_credentials(address), shown, "{address}");
            assert!(!holds_credentials(shown), "{shown}");
        }
    }
}
