//! Validation of ConfigMaps and Secrets, with the messages of `k8s.io/kubernetes/pkg/apis/core/validation`.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use serde_json::{Map, Value};
use stoa_machinery::{
    content,
    status::{FieldError, FieldErrorKind},
};

/// So many bytes may all values together have.
const MOST_BYTES: usize = 1 << 20;

/// Finds what is wrong with the data of a ConfigMap, as `ValidateConfigMap` does.
pub(super) fn of_config_map(object: &ConfigMap) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut bytes = 0;
    for (name, value) in object.data.iter().flatten() {
        key("data", name, &mut errors);
        if object.binary_data.as_ref().is_some_and(|binary| binary.contains_key(name)) {
            let message = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{name}]"), name, message));
        }
        bytes += value.len();
    }
    for (name, value) in object.binary_data.iter().flatten() {
        key("binaryData", name, &mut errors);
        bytes += value.0.len();
    }
    if bytes > MOST_BYTES {
        // Upstream has an empty path for the whole object.
        errors.push(too_long("[]"));
    }
    errors
}

/// Finds what is wrong with the data of a Secret, as `ValidateSecret` does: some types have keys that have to be there.
pub(super) fn of_secret(object: &Secret) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = BTreeMap::new();
    let data = object.data.as_ref().unwrap_or(&empty);
    for name in data.keys() {
        key("data", name, &mut errors);
    }
    if data.values().map(|value| value.0.len()).sum::<usize>() > MOST_BYTES {
        errors.push(too_long("data"));
    }
    let has = |name: &str| data.contains_key(name);
    let missing = |names: &[&str]| -> Vec<FieldError> {
        names.iter().map(|name| FieldError::required(format!("data[{name}]"), "")).collect()
    };
    match object.type_.as_deref().unwrap_or_default() {
        "kubernetes.io/service-account-token" => {
            const NAME: &str = "kubernetes.io/service-account.name";
            let annotations = object.metadata.annotations.as_ref();
            if annotations.and_then(|all| all.get(NAME)).is_none_or(String::is_empty) {
                errors.push(FieldError::required(format!("metadata.annotations[{NAME}]"), ""));
            }
        }
        "kubernetes.io/dockercfg" => errors.extend(configuration(data, ".dockercfg")),
        "kubernetes.io/dockerconfigjson" => errors.extend(configuration(data, ".dockerconfigjson")),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.extend(missing(&["username", "password"]));
        }
        "kubernetes.io/ssh-auth" if data.get("ssh-privatekey").is_none_or(|value| value.0.is_empty()) => {
            errors.extend(missing(&["ssh-privatekey"]));
        }
        "kubernetes.io/tls" => {
            ["tls.crt", "tls.key"]
                .into_iter()
                .filter(|name| !has(name))
                .for_each(|name| errors.extend(missing(&[name])));
        }
        _ => {}
    }
    errors
}

/// Finds what changed although `immutable` was set before; each field comes with whether it is as it was.
pub(super) fn immutable((new, old): (Option<bool>, Option<bool>), fields: &[(&str, bool)]) -> Vec<FieldError> {
    if old != Some(true) {
        return Vec::new();
    }
    let all = [("immutable", new == Some(true))].into_iter().chain(fields.iter().copied());
    let changed = all.filter(|(_, is_same)| !is_same);
    changed.map(|(field, _)| FieldError::forbidden(field, "field is immutable when `immutable` is set")).collect()
}

fn key(field: &str, name: &str, errors: &mut Vec<FieldError>) {
    let complaints = content::config_map_key(name);
    errors.extend(complaints.iter().map(|text| FieldError::invalid(format!("{field}[{name}]"), name, text)));
}

/// A key that has to be there and be a JSON object. What is wrong with it is not told: that may have parts of it.
fn configuration(data: &BTreeMap<String, ByteString>, name: &str) -> Option<FieldError> {
    let field = format!("data[{name}]");
    let Some(value) = data.get(name) else { return Some(FieldError::required(field, "")) };
    let is_object = serde_json::from_slice::<Option<Map<String, Value>>>(&value.0).is_ok();
    (!is_object).then(|| FieldError::invalid(field, "<secret contents redacted>", "must be a JSON object"))
}

fn too_long(field: &str) -> FieldError {
    let kind = FieldErrorKind::TooLong;
    let message = format!("{}: may not be more than {MOST_BYTES} bytes", kind.prefix());
    FieldError { field: field.to_owned(), kind, message }
}
