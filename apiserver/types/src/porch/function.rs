//! Function: a function for packages, as a repository of functions offers it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NameReference;

/// The description of a Function.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "porch.kpt.dev",
    version = "v1alpha1",
    kind = "Function",
    namespaced,
    status = "FunctionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Function is a function that the pipelines of packages may name. The server writes it."
)]
#[serde(rename_all = "camelCase")]
pub struct FunctionSpec {
    /// The image of the function.
    #[serde(default)]
    pub image: String,
    /// The Repository of content Function that offers the function.
    #[serde(default)]
    pub repository_ref: NameReference,
    /// The types: mutator, validator or generator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub function_types: Vec<String>,
    /// The kinds of the function's configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub function_configs: Vec<FunctionConfig>,
    /// Keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// A short description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The URL of the documentation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub documentation_url: String,
    /// The kinds that the function works on. Empty: all kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_types: Vec<FunctionConfig>,
    /// Whether a second run changes nothing. Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
}

/// A kind of a function's configuration, or a kind that it works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionConfig {
    /// The apiVersion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

/// The observed state of a Function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionStatus {}
