//! Tasks: the operations that make the content of a new package revision, and functions that run once on a draft.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NameReference;
use crate::porchconfig::Selector;

/// An operation that makes or changes the content of a package revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// The type of the operation: init, clone, edit, upgrade or eval. The field of the same name has its arguments.
    #[serde(rename = "type")]
    pub kind: String,
    /// A new package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<InitTask>,
    /// A copy of another package, which receives updates from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone: Option<CloneTask>,
    /// The next revision of a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<EditTask>,
    /// The next revision of a package, with the changes of its upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<UpgradeTask>,
    /// One run of a function on a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<EvalTask>,
}

/// The arguments of a new package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InitTask {
    /// The folder of a package within the package.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpackage: String,
    /// A short description.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    /// The URL of the package's page.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub site: String,
}

/// The arguments of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloneTask {
    /// The package to copy.
    #[serde(default, rename = "upstreamRef")]
    pub upstream: UpstreamPackage,
    /// The strategy of updates: resource-merge (default), fast-forward, force-delete-replace or copy-merge.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub strategy: String,
}

/// A package of a registered or another repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamPackage {
    /// The type of a repository that is not registered: git.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// A folder of a Git repository that is not registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitPackage>,
    /// A package in an OCI registry that is not registered. The server rejects it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci: Option<OciPackage>,
    /// A PackageRevision of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_ref: Option<NameReference>,
}

/// A folder of a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitPackage {
    /// The address of the repository.
    #[serde(default)]
    pub repo: String,
    /// The branch, tag or commit.
    #[serde(default, rename = "ref")]
    pub reference: String,
    /// The folder.
    #[serde(default)]
    pub directory: String,
    /// The Secret with the credentials, in the namespace of the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<NameReference>,
}

/// A package in an OCI registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OciPackage {
    /// The address of the artifact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
}

/// The arguments of a next revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EditTask {
    /// The PackageRevision to begin with.
    #[serde(default, rename = "sourceRef", skip_serializing_if = "Option::is_none")]
    pub source: Option<NameReference>,
}

/// The arguments of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeTask {
    /// The PackageRevision of upstream that the package has now.
    #[serde(default, rename = "oldUpstreamRef")]
    pub old_upstream: NameReference,
    /// The PackageRevision of upstream that the package is to have.
    #[serde(default, rename = "newUpstreamRef")]
    pub new_upstream: NameReference,
    /// The PackageRevision that is upgraded.
    #[serde(default, rename = "localPackageRevisionRef")]
    pub local: NameReference,
    /// The merge strategy: resource-merge, fast-forward, force-delete-replace or copy-merge. Empty: that of the Kptfile.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub strategy: String,
}

/// The arguments of one run of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvalTask {
    /// The image of the function. A short name is one of kpt's catalog.
    #[serde(default)]
    pub image: String,
    /// The file in the package with the configuration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_path: String,
    /// The configuration, instead of a file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config_map: BTreeMap<String, String>,
    /// The objects that the function receives. Absent: all objects.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
}
