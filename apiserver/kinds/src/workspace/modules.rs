//! The modules of a Workspace: their paths, versions and configurations, as in Kusion's workspace.yaml.
//!
//! Two patchers of one project that disagree are found by the function-runner, which knows the name that a project has in its source.

use serde_json::{Map, Value};
use stoa_machinery::status::FieldError;
use stoa_types::platform::WorkspaceSpec;

const PATH: &str = "spec.modules";
const FIELDS: [&str; 4] = ["path", "module", "version", "configs"];
/// The block of a configuration for all projects.
const DEFAULT: &str = "default";
const SELECTOR: &str = "projectSelector";

/// Finds what is wrong with modules that are new or changed. Values are in no message, because they may be confidential.
pub(super) fn validate_new(new: &WorkspaceSpec, old: Option<&WorkspaceSpec>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, module) in &new.modules {
        if old.is_none_or(|old| old.modules.get(name) != Some(module)) {
            validate(&format!("{PATH}[{name}]"), module, &mut errors);
        }
    }
    errors
}

fn is_segment(part: &str, more: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    !matches!(part, "" | "." | "..") && part.chars().all(|c| is_plain(c) || more.contains(c))
}

/// Whether a text is the path of a module in a registry, without credentials.
pub(crate) fn is_path(path: &str) -> bool {
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    path.split('/').all(|part| is_segment(part, ":"))
}

/// Whether a text is the version of a module.
pub(crate) fn is_version(version: &str) -> bool {
    is_segment(version, "")
}

fn validate(at: &str, module: &Value, errors: &mut Vec<FieldError>) {
    let Some(module) = module.as_object() else {
        errors.push(FieldError::invalid(at, "<module>", "must be a map with path and version"));
        return;
    };
    for field in module.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        let message = format!("is unknown; a module has {}, and configs has its configuration", FIELDS.join(", "));
        errors.push(FieldError::forbidden(format!("{at}.{field}"), message));
    }
    match module.get("module") {
        None | Some(Value::Null) => {
            let form = "must be a registry path without credentials, such as oci://ghcr.io/kusionstack/network";
            text(module, at, "path", (&is_path, form), errors);
        }
        Some(reference) => {
            if module.contains_key("path") {
                let message = "may not be set together with module, which has a path of its own";
                errors.push(FieldError::forbidden(format!("{at}.path"), message));
            }
            let fields = reference.as_object().filter(|fields| fields.keys().all(|field| field == "name"));
            let name = fields.and_then(|fields| fields.get("name")).and_then(Value::as_str);
            if name.is_none_or(str::is_empty) {
                let message = "must be the name of a Module, such as {name: network}";
                errors.push(FieldError::invalid(format!("{at}.module"), "<value>", message));
            }
        }
    }
    text(module, at, "version", (&is_version, "must be a version such as 0.2.0"), errors);
    match module.get("configs") {
        None | Some(Value::Null) => {}
        Some(Value::Object(blocks)) => configurations(&format!("{at}.configs"), blocks, errors),
        Some(_) => {
            let message = "must be a map: default, and patchers by name";
            errors.push(FieldError::invalid(format!("{at}.configs"), "<value>", message));
        }
    }
}

fn text(
    module: &Map<String, Value>,
    at: &str,
    field: &str,
    (is_valid, form): (&dyn Fn(&str) -> bool, &str),
    errors: &mut Vec<FieldError>,
) {
    let at = format!("{at}.{field}");
    match module.get(field) {
        None | Some(Value::Null) => errors.push(FieldError::required(at, "")),
        Some(Value::String(text)) if text.is_empty() => errors.push(FieldError::required(at, "")),
        Some(Value::String(text)) if is_valid(text) => {}
        Some(_) => errors.push(FieldError::invalid(at, "<value>", form)),
    }
}

fn configurations(at: &str, blocks: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    for (name, block) in blocks {
        let at = format!("{at}[{name}]");
        let block = match block {
            Value::Null if name == DEFAULT => continue,
            Value::Object(block) => block,
            _ => {
                errors.push(FieldError::invalid(at, "<value>", "must be a map"));
                continue;
            }
        };
        let at = format!("{at}.{SELECTOR}");
        match block.get(SELECTOR) {
            Some(_) if name == DEFAULT => {
                errors.push(FieldError::forbidden(at, "the block default is for all projects"))
            }
            None if name == DEFAULT => {}
            Some(Value::Array(projects)) if !projects.is_empty() && projects.iter().all(Value::is_string) => {}
            None => errors.push(FieldError::required(at, "must list the projects of the patcher")),
            Some(_) => errors.push(FieldError::invalid(at, "<value>", "must be a list of names of projects")),
        }
    }
}
