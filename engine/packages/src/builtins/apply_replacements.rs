//! `apply-replacements`: copies fields of objects to fields of others, as kustomize's `replacements` do.
//!
//! The paths of fields are in `path`.

mod path;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use self::path::FieldPath;
use super::{
    Failure,
    budget::Budget,
    config::{Config, config, field},
};
use crate::{
    files::Limits,
    resources::{Resource, object_name},
    results::{Finding, scalar_text},
    text,
};

/// The field of a source or target that has none.
const DEFAULT_PATH: &str = "metadata.name";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Replacement {
    #[serde(default)]
    source: Option<Source>,
    #[serde(default)]
    source_value: Option<Value>,
    #[serde(default)]
    targets: Vec<Target>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    #[serde(flatten)]
    object: Select,
    #[serde(default)]
    field_path: String,
    #[serde(default)]
    options: Options,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Target {
    #[serde(default)]
    select: Option<Select>,
    #[serde(default)]
    reject: Vec<Select>,
    #[serde(default)]
    field_paths: Vec<String>,
    #[serde(default)]
    options: Options,
}

/// The choice of objects. An empty field permits every value.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Select {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    label_selector: String,
    #[serde(default)]
    annotation_selector: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Options {
    #[serde(default)]
    delimiter: String,
    #[serde(default)]
    index: i64,
    #[serde(default)]
    create: bool,
    #[serde(default, rename = "encoding")]
    _encoding: String,
}

/// Runs the function.
pub(super) fn run(items: &mut [Resource], source: Option<&Resource>, limits: &Limits) -> Result<Vec<Finding>, Failure> {
    let Config::Object(object) = config(source, "ApplyReplacements")? else {
        return Err(Failure::new(
            "functionConfig is a ConfigMap; it must be an ApplyReplacements of fn.kpt.dev/v1alpha1",
        ));
    };
    let replacements: Vec<Replacement> = field(object, "replacements")?;
    let mut budget = Budget::of(limits);
    for (position, replacement) in replacements.iter().enumerate() {
        apply(items, replacement, &mut budget)
            .map_err(|problem| Failure::new(format!("replacements[{position}]: {problem}")))?;
    }
    Ok(Vec::new())
}

fn apply(items: &mut [Resource], replacement: &Replacement, budget: &mut Budget) -> Result<(), String> {
    if replacement.targets.is_empty() {
        return Err("replacements must specify a source and at least one target".to_owned());
    }
    let value = match (&replacement.source, &replacement.source_value) {
        (Some(_), Some(_)) => return Err("`source` and `sourceValue` are mutually exclusive".to_owned()),
        (None, None) => return Err("replacements must specify a source and at least one target".to_owned()),
        (None, Some(value)) => value.clone(),
        (Some(source), None) => source_value(items, source)?,
    };
    let value = Copied { bytes: text::size(&value), depth: depth(&value), value };
    for target in &replacement.targets {
        let select = target.select.as_ref().ok_or("target must specify resources to select")?;
        let default = [DEFAULT_PATH.to_owned()];
        let paths = if target.field_paths.is_empty() { &default } else { target.field_paths.as_slice() };
        for resource in items.iter_mut() {
            let is_rejected = target.reject.iter().any(|it| *it != Select::default() && it.matches(resource));
            if !select.matches(resource) || is_rejected {
                continue;
            }
            for path in paths {
                set(resource, path, &value, &target.options, budget)?;
            }
        }
    }
    Ok(())
}

fn source_value(items: &[Resource], source: &Source) -> Result<Value, String> {
    let found: Vec<&Resource> = items.iter().filter(|resource| source.object.matches(resource)).collect();
    let resource = match found.as_slice() {
        [resource] => *resource,
        [] => return Err(format!("nothing selected by {}", source.object.name())),
        several => return Err(format!("{} objects match the selector {}", several.len(), source.object.name())),
    };
    let path = if source.field_path.is_empty() { DEFAULT_PATH } else { &source.field_path };
    let value = FieldPath::parse(path).get(&resource.value).filter(|value| !is_empty(value));
    let value = value
        .ok_or_else(|| format!("fieldPath `{path}` is missing for replacement source {}", object_name(resource)))?;
    if source.options.delimiter.is_empty() {
        return Ok(value.clone());
    }
    let text = scalar(value)?;
    let parts: Vec<&str> = text.split(source.options.delimiter.as_str()).collect();
    let part = usize::try_from(source.options.index).ok().and_then(|index| parts.get(index));
    let part =
        part.ok_or_else(|| format!("options.index {} is out of bounds for value {text}", source.options.index))?;
    Ok(Value::from(*part))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => false,
    }
}

fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::Array(_) | Value::Object(_) => Err("delimiter option can only be used with scalar nodes".to_owned()),
        scalar => Ok(scalar_text(scalar)),
    }
}

/// A value that is copied.
#[derive(Debug)]
struct Copied {
    value: Value,
    /// Its size as JSON.
    bytes: usize,
    /// The number of maps and lists around its innermost value.
    depth: usize,
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Sets the fields of an object at a path.
fn set(
    resource: &mut Resource,
    path: &str,
    value: &Copied,
    options: &Options,
    budget: &mut Budget,
) -> Result<(), String> {
    let object = object_name(resource);
    let steps = FieldPath::parse(path);
    if steps.len() + value.depth > text::DEPTH {
        return Err(format!("{object} would have more than {} levels; choose a shorter path", text::DEPTH));
    }
    let mut outcome = Ok(());
    let count =
        steps.visit(&mut resource.value, options.create, &mut |field| match replaced(field, value, options, budget) {
            Ok(new) => *field = new,
            Err(problem) => outcome = Err(format!("{object} {path}: {problem}")),
        });
    outcome?;
    match (count, options.create) {
        (0, true) => Err(format!("unable to find or create field {path:?} in replacement target {object}")),
        (0, false) => Err(format!("unable to find field {path:?} in replacement target {object}")),
        _ => Ok(()),
    }
}

/// The new value of a field. A text stays text, and another scalar gets the type of the new text.
fn replaced(field: &Value, copied: &Copied, options: &Options, budget: &mut Budget) -> Result<Value, String> {
    budget.take(copied.bytes)?;
    let value = if options.delimiter.is_empty() {
        copied.value.clone()
    } else {
        let (current, new) = (scalar(field)?, scalar(&copied.value)?);
        budget.take(current.len())?;
        let mut parts: Vec<&str> = current.split(options.delimiter.as_str()).collect();
        match usize::try_from(options.index) {
            Err(_) => parts.insert(0, &new),
            Ok(index) if index >= parts.len() => parts.push(&new),
            Ok(index) => parts[index] = &new,
        }
        Value::from(parts.join(&options.delimiter))
    };
    Ok(match (field, value) {
        (_, value @ (Value::Array(_) | Value::Object(_))) => value,
        (Value::String(_), value) => scalar_text(&value).into(),
        (Value::Number(_) | Value::Bool(_), Value::String(text)) => match text::read(&text) {
            Ok(scalar @ (Value::Number(_) | Value::Bool(_))) => scalar,
            _ => text.into(),
        },
        (_, value) => value,
    })
}

impl Select {
    fn matches(&self, resource: &Resource) -> bool {
        let api_version = resource.api_version();
        let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
        let fields = [
            (&self.group, resource.group()),
            (&self.version, version),
            (&self.kind, resource.kind()),
            (&self.name, resource.name()),
            (&self.namespace, resource.namespace()),
        ];
        fields.iter().all(|(expected, actual)| expected.is_empty() || expected == actual)
            && selects(&self.label_selector, &texts(resource, "labels"))
            && selects(&self.annotation_selector, &texts(resource, "annotations"))
    }

    fn name(&self) -> String {
        let parts = [&self.group, &self.version, &self.kind, &self.namespace, &self.name];
        let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        parts.join("/")
    }
}

fn texts<'r>(resource: &'r Resource, field: &str) -> BTreeMap<&'r str, &'r str> {
    let map = resource.value.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

/// Whether labels match a selector of `a=b`, `a==b`, `a!=b`, `a`, `!a`, `a in (b, c)` and `a notin (b, c)`.
fn selects(selector: &str, labels: &BTreeMap<&str, &str>) -> bool {
    let mut depth = 0_usize;
    let requirements = selector.split(|character| {
        depth = match character {
            '(' => depth + 1,
            ')' => depth.saturating_sub(1),
            _ => depth,
        };
        character == ',' && depth == 0
    });
    requirements.map(str::trim).filter(|it| !it.is_empty()).all(|requirement| meets(requirement, labels))
}

fn meets(requirement: &str, labels: &BTreeMap<&str, &str>) -> bool {
    let has = |key: &str, value: &str| labels.get(key.trim()) == Some(&value.trim());
    let is_among = |key: &str, values: &str| {
        values.trim().trim_start_matches('(').trim_end_matches(')').split(',').any(|value| has(key, value))
    };
    if let Some((key, values)) = requirement.split_once(" notin ") {
        return !is_among(key, values);
    }
    if let Some((key, values)) = requirement.split_once(" in ") {
        return is_among(key, values);
    }
    if let Some((key, value)) = requirement.split_once("!=") {
        return !has(key, value);
    }
    if let Some((key, value)) = requirement.split_once("==").or_else(|| requirement.split_once('=')) {
        return has(key, value);
    }
    match requirement.strip_prefix('!') {
        Some(key) => !labels.contains_key(key.trim()),
        None => labels.contains_key(requirement),
    }
}
