//! PorchPackage: a package with its newest revision.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::is_zero;

/// The address of a package.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "porch.kpt.dev",
    version = "v1alpha1",
    kind = "PorchPackage",
    plural = "packages",
    singular = "package",
    namespaced,
    status = "PorchPackageStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PorchPackage is a package of a repository. The server writes it."
)]
#[serde(rename_all = "camelCase")]
pub struct PorchPackageSpec {
    /// The path of the package from the directory of its repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package_name: String,
    /// The name of the Repository that the package is in.
    #[serde(default, rename = "repository", skip_serializing_if = "String::is_empty")]
    pub repository_name: String,
}

/// The observed state of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PorchPackageStatus {
    /// The number of the newest published revision. 0 is none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub latest_revision: i64,
}
