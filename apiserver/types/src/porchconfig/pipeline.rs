//! The functions of a package, as in a Kptfile.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The functions of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pipeline {
    /// The functions that change objects, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mutators: Vec<Function>,
    /// The functions that check the result, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub validators: Vec<Function>,
}

/// A function of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// The name of the function in its pipeline.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The image of the function. A short name is one of kpt's catalog.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// A command, instead of an image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exec: String,
    /// The file in the package with the configuration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_path: String,
    /// The configuration, instead of a file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config_map: BTreeMap<String, String>,
    /// The objects that the function receives. Empty: all objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub selectors: Vec<Selector>,
    /// The objects that the function does not receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub exclude: Vec<Selector>,
}

/// A choice of objects. An empty field permits every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
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
    /// The labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
