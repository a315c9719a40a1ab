//! The Kptfile of a package.
//!
//! Start at [`Kptfile::parse`]. [`Kptfile::edit`] writes a changed Kptfile into the text of the old one, with its comments.
//! The rules of functions are in `check`.
//!
//! Follows `pkg/api/kptfile/v1` of kpt 1.0.0-beta.61.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stoa_yaml_edit::{Form, Step};

use crate::{
    resources::Resource,
    text::{self, TextError},
};

pub(crate) use check::config_file;
pub use check::{CheckError, full_image};

/// The apiVersion of a Kptfile.
pub const API_VERSION: &str = "kpt.dev/v1";

/// The annotation of the root Kptfile by which packages render before those in their folders.
pub const BFS_ANNOTATION: &str = "kpt.dev/bfs-rendering";

/// A Kptfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kptfile {
    /// `kpt.dev/v1`.
    pub api_version: String,
    /// `Kptfile`.
    pub kind: String,
    /// The name of the package, with labels and annotations.
    #[serde(default)]
    pub metadata: Metadata,
    /// The package that this one is cloned from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The revision of it that was fetched last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_lock: Option<UpstreamLock>,
    /// Documentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Info>,
    /// The functions of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// The identity of the package in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<Inventory>,
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The metadata of a Kptfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The package that another one is cloned from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Upstream {
    /// `git`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The package in Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// How an update changes this package; one of [`UpdateStrategy`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_strategy: String,
}

/// A package in Git.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Git {
    /// The URL of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The folder in the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// A branch, a tag or a commit.
    #[serde(default, rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
}

/// The revision of the upstream that was fetched last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpstreamLock {
    /// `git`.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The revision in Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitLock>,
}

/// A revision of a package in Git.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitLock {
    /// The URL of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The folder in the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The branch, tag or commit that was asked for.
    #[serde(default, rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// The commit; a short one stays as it was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
}

/// Documentation of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Info {
    /// The URL of its web page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub site: String,
    /// The addresses of its authors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emails: Vec<String>,
    /// The SPDX identifier of its licence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub license: String,
    /// The path of its licence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub license_file: String,
    /// A short description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// The path of its manual.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub man: String,
    /// The conditions that a package needs to be published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readiness_gates: Vec<ReadinessGate>,
}

/// A condition that a package needs to be published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadinessGate {
    /// The type of the condition.
    #[serde(default)]
    pub condition_type: String,
}

/// The functions of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pipeline {
    /// The functions that change objects, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutators: Vec<Function>,
    /// The functions that check the result, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validators: Vec<Function>,
}

/// One function of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Function {
    /// The container image; a short name is one of the catalog.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The command, instead of an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exec: String,
    /// The file in the package with the configuration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_path: String,
    /// The configuration, instead of a file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config_map: BTreeMap<String, String>,
    /// The name by which an update recognises the function.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The objects that the function gets; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<Selector>,
    /// The objects that it does not get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Selector>,
}

impl Function {
    /// The image, or else the command.
    pub fn command(&self) -> &str {
        if self.image.is_empty() { &self.exec } else { &self.image }
    }

    /// The configuration as an object; `None` without one in the Kptfile.
    pub(crate) fn config(&self) -> Option<Resource> {
        let value = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "function-input"},
            "data": self.config_map,
        });
        (!self.config_map.is_empty()).then(|| Resource::new("", "", value, None))
    }
}

/// A choice of objects. An empty field permits every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// The apiVersion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The identity of a package in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inventory {
    /// The namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The identifier.
    #[serde(default, rename = "inventoryID", skip_serializing_if = "String::is_empty")]
    pub inventory_id: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// The status of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Status {
    /// Its conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A condition of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// The type.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// The reason for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How an update changes a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateStrategy {
    /// A three-way merge of objects.
    #[default]
    ResourceMerge,
    /// Upstream's files, unless local ones differ.
    FastForward,
    /// Upstream's files.
    ForceDeleteReplace,
    /// Upstream's files over the local ones.
    CopyMerge,
}

impl UpdateStrategy {
    /// The strategy of a name; the empty name is the default.
    ///
    /// # Errors
    ///
    /// [`KptfileError::UnknownStrategy`].
    pub fn parse(name: &str) -> Result<Self, KptfileError> {
        match name {
            "" | "resource-merge" => Ok(Self::ResourceMerge),
            "fast-forward" => Ok(Self::FastForward),
            "force-delete-replace" => Ok(Self::ForceDeleteReplace),
            "copy-merge" => Ok(Self::CopyMerge),
            _ => Err(KptfileError::UnknownStrategy(name.to_owned())),
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ResourceMerge => "resource-merge",
            Self::FastForward => "fast-forward",
            Self::ForceDeleteReplace => "force-delete-replace",
            Self::CopyMerge => "copy-merge",
        }
    }
}

/// Why a Kptfile is rejected. The caller says which package it is of.
#[derive(Debug, thiserror::Error)]
pub enum KptfileError {
    /// The package has none.
    #[error("the package has no Kptfile; add one, as `kpt pkg init` does")]
    Missing,
    /// The file is not UTF-8.
    #[error("Kptfile is not UTF-8; write it again")]
    NotText,
    /// The file is not YAML.
    #[error("Kptfile is no YAML")]
    Yaml(#[from] TextError),
    /// The file has several documents, or none.
    #[error("Kptfile has {0} documents; it must have one")]
    Documents(usize),
    /// The version is one of before 1.0.
    #[error("old resource version {0:?} found in Kptfile; migrate it to kpt.dev/v1")]
    OldVersion(String),
    /// The object is no Kptfile.
    #[error("unknown resource type {0:?} found in Kptfile; it must be Kptfile of kpt.dev/v1")]
    UnknownType(String),
    /// A field is unknown, or has the wrong type.
    #[error("Kptfile is invalid: {field}: {problem}")]
    Field {
        /// The path of the field.
        field: String,
        /// The problem, in the words of serde.
        problem: String,
    },
    /// The update strategy is unknown.
    #[error("unknown update strategy {0:?}; use resource-merge, fast-forward, force-delete-replace or copy-merge")]
    UnknownStrategy(String),
}

impl Kptfile {
    /// A new Kptfile.
    pub fn new(name: &str) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "Kptfile".to_owned(),
            metadata: Metadata { name: name.to_owned(), ..Metadata::default() },
            ..Self::default()
        }
    }

    /// Reads the text of a Kptfile.
    ///
    /// # Errors
    ///
    /// [`KptfileError`] for another version, unknown fields and fields of another type.
    pub fn parse(text: &str) -> Result<Self, KptfileError> {
        let documents = stoa_yaml_edit::documents(text);
        let [document] = documents.as_slice() else { return Err(KptfileError::Documents(documents.len())) };
        let lines = text[..document.start].matches('\n').count();
        let text = &text[document.clone()];
        let mut value = text::read(text).map_err(|error| error.below(lines))?;
        check_type(&value)?;
        take_as_written(&mut value, text);
        without_nulls(&mut value);
        fields(value)
    }

    /// The text of a new Kptfile.
    pub fn to_text(&self) -> String {
        text::written(&self.to_value())
    }

    /// The text of this Kptfile after its fields became those of `new`. Comments and untouched fields stay as they are.
    pub fn edit(&self, text: &str, new: &Self) -> String {
        let documents = stoa_yaml_edit::documents(text);
        let range = documents.first().cloned().unwrap_or(0..text.len());
        let edited = text::changed(&text[range.clone()], &self.to_value(), &new.to_value());
        format!("{}{edited}{}", &text[..range.start], &text[range.end..])
    }

    /// The Kptfile as an object.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }

    /// Whether packages render before those in their folders.
    pub fn renders_parents_first(&self) -> bool {
        self.metadata.annotations.get(BFS_ANNOTATION).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

fn check_type(value: &Value) -> Result<(), KptfileError> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        (API_VERSION, "Kptfile") => Ok(()),
        (version @ ("kpt.dev/v1alpha1" | "kpt.dev/v1alpha2"), "Kptfile") => {
            Err(KptfileError::OldVersion(version.trim_start_matches("kpt.dev/").to_owned()))
        }
        (version, kind) => Err(KptfileError::UnknownType(format!("{version}, Kind={kind}"))),
    }
}

/// Replaces numbers and booleans by their text, since every scalar of a Kptfile is text.
fn take_as_written(value: &mut Value, text: &str) {
    for node in stoa_yaml_edit::nodes(text).unwrap_or_default() {
        let target = node.path.iter().try_fold(&mut *value, |value, step| match step {
            Step::Key(key) => value.get_mut(key),
            Step::Item(position) => value.get_mut(position),
        });
        match target {
            Some(scalar @ (Value::Number(_) | Value::Bool(_))) if node.form == Form::Scalar => {
                *scalar = text[node.range].into();
            }
            _ => {}
        }
    }
}

/// Removes fields that are null, which is the same as no field.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reads the fields, with the path of a field that is wrong.
fn fields(value: Value) -> Result<Kptfile, KptfileError> {
    serde_json::from_value::<Kptfile>(value.clone()).map_err(|error| KptfileError::Field {
        field: check::wrong_field(&value).unwrap_or_else(|| "Kptfile".to_owned()),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests;
