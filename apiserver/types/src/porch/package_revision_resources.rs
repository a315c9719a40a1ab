//! PackageRevisionResources: the files of a PackageRevision.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{any_object_schema, is_zero};

/// The files of a package revision, and its address.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "porch.kpt.dev",
    version = "v1alpha1",
    kind = "PackageRevisionResources",
    plural = "packagerevisionresources",
    singular = "packagerevisionresources",
    namespaced,
    status = "PackageRevisionResourcesStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PackageRevisionResources has the files of the PackageRevision of the same name. An update renders the package."
)]
#[serde(rename_all = "camelCase")]
pub struct PackageRevisionResourcesSpec {
    /// The path of the package from the directory of its repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package_name: String,
    /// The workspace of the revision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace_name: String,
    /// The number of the revision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: i64,
    /// The name of the Repository that the package is in.
    #[serde(default, rename = "repository", skip_serializing_if = "String::is_empty")]
    pub repository_name: String,
    /// The files, by path from the folder of the package.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
}

/// The outcome of the last save.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageRevisionResourcesStatus {
    /// The results of the functions of the package at the last save: `result`, a FunctionResultList of kpt, and `error`.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    #[schemars(schema_with = "any_object_schema")]
    pub render_status: serde_json::Value,
}
