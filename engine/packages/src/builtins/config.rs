//! The configurations of functions: a ConfigMap, or an object of a function's own kind.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use stoa_yaml_edit::{Form, Step};

use super::{Failure, fields::FieldSpec};
use crate::{resources::Resource, results::scalar_text};

/// The name of the ConfigMap that a package gets with `kpt pkg init`.
const PACKAGE_CONTEXT: &str = "kptfile.kpt.dev";

/// The configuration of a function.
pub(super) enum Config<'c> {
    /// The `data` of a ConfigMap.
    Data(BTreeMap<String, String>),
    /// An object of the function's kind.
    Object(&'c Resource),
}

/// Reads a configuration of `kind`, of group `fn.kpt.dev`, or a ConfigMap.
///
/// # Errors
///
/// [`Failure`] for another object, and for none.
pub(super) fn config<'c>(config: Option<&'c Resource>, kind: &str) -> Result<Config<'c>, Failure> {
    let Some(config) = config else {
        return Err(Failure::new(format!("functionConfig is missing; set a ConfigMap or a {kind}")));
    };
    match (config.group(), config.kind()) {
        ("", "ConfigMap") => Ok(Config::Data(data(config))),
        ("fn.kpt.dev", other) if other == kind || is_old_kind(other, kind) => Ok(Config::Object(config)),
        _ => Err(Failure::new(format!(
            "functionConfig is a {} of {:?}; it must be a ConfigMap or a {kind} of fn.kpt.dev/v1alpha1",
            config.kind(),
            config.api_version()
        ))),
    }
}

/// Whether a kind is that of old versions, such as `SetLabelConfig` for `SetLabels`.
fn is_old_kind(other: &str, kind: &str) -> bool {
    let stem = other.strip_suffix("Config");
    stem.is_some_and(|stem| stem == kind || Some(stem) == kind.strip_suffix('s'))
}

/// The `data` of a ConfigMap. Numbers and booleans are taken as they are written.
pub(super) fn data(config: &Resource) -> BTreeMap<String, String> {
    let Some(Value::Object(fields)) = config.value.get("data") else { return BTreeMap::new() };
    let has_scalars = fields.values().any(|value| value.is_number() || value.is_boolean());
    let written = if has_scalars { written_scalars(&config.text()) } else { BTreeMap::new() };
    let value = |(key, value): (&String, &Value)| match value {
        Value::Null => (key.clone(), String::new()),
        value => (key.clone(), written.get(key).cloned().unwrap_or_else(|| scalar_text(value))),
    };
    fields.iter().map(value).collect()
}

/// The text of the plain scalars in `data`.
fn written_scalars(text: &str) -> BTreeMap<String, String> {
    let nodes = stoa_yaml_edit::nodes(text).unwrap_or_default();
    let scalar = |node: stoa_yaml_edit::SourceNode| match node.path.as_slice() {
        [Step::Key(data), Step::Key(key)] if data == "data" && node.form == Form::Scalar => {
            let source = &text[node.range];
            (!source.starts_with(['"', '\''])).then(|| (key.clone(), source.to_owned()))
        }
        _ => None,
    };
    nodes.into_iter().filter_map(scalar).collect()
}

/// The name of the package, if the ConfigMap is that of `kpt pkg init`.
pub(super) fn package_name(config: &Resource) -> Option<String> {
    (config.name() == PACKAGE_CONTEXT).then(|| data(config).remove("name")).flatten().filter(|name| !name.is_empty())
}

/// A field of a configuration, or the default of its type.
///
/// # Errors
///
/// [`Failure`] when the field has another type.
pub(super) fn field<T: DeserializeOwned + Default>(config: &Resource, name: &str) -> Result<T, Failure> {
    match config.value.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => serde_json::from_value(value.clone())
            .map_err(|error| Failure::new(format!("functionConfig {}: {name}: {error}", config.name()))),
    }
}

/// A map of texts in a configuration.
///
/// # Errors
///
/// [`Failure`] when the field is no map.
pub(super) fn texts(config: &Resource, name: &str) -> Result<BTreeMap<String, String>, Failure> {
    let values: BTreeMap<String, Value> = field(config, name)?;
    Ok(values.into_iter().map(|(key, value)| (key, scalar_text(&value))).collect())
}

/// The fields that a configuration adds to the defaults, under its name or the one of old versions.
///
/// # Errors
///
/// [`Failure`] when the field is no list of fields.
pub(super) fn additional_fields(config: &Resource, name: &str) -> Result<Vec<FieldSpec>, Failure> {
    let current: Vec<FieldSpec> = field(config, name)?;
    let old: Vec<FieldSpec> = field(config, "fieldSpecs")?;
    match (current.is_empty(), old.is_empty()) {
        (false, false) => Err(Failure::new(format!("`fieldSpecs` is deprecated; rename it to `{name}`"))),
        (true, _) => Ok(old),
        (false, true) => Ok(current),
    }
}

/// Whether an object is of no interest to clusters.
pub(super) fn is_local(resource: &Resource) -> bool {
    resource.annotation("config.kubernetes.io/local-config") == Some("true")
}
