//! Module: a registered module of Kusion, or package of KCL.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::common::{Condition, SecretReference, Subject, any_object_schema, conditions_schema};

/// The desired state of a Module.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "Module",
    category = "stoa",
    status = "ModuleStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Module is a registered module of Kusion, with its program, its KCL package or both. Workspaces name it in spec.modules. A workspace that names it needs the verb use on it."
)]
#[serde(rename_all = "camelCase")]
pub struct ModuleSpec {
    /// A description of the module for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the module.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The path of the module in its registry, such as `oci://ghcr.io/kusionstack/network`. Immutable.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// The origin of the module: Registry (the default), or Folder. Immutable.
    #[serde(default)]
    pub source: ModuleSource,
    /// The versions that workspaces may name.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<ModuleVersion>,
    /// The Secret with the credentials of the registry: `username` and `password`, `token`, or `.dockerconfigjson`, and
    /// `ca.crt` for a private authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The JSON schema of the module's configuration in a workspace. The default block has to satisfy it, alone and with
    /// the fields of each patcher. Absent: any configuration is permitted.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub schema: Map<String, Value>,
}

/// The origin of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModuleSource {
    /// An OCI registry. The version is a tag.
    #[default]
    Registry,
    /// The folder of the function-runner's --kusion-modules, in which each version has a folder.
    Folder,
}

/// A version of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleVersion {
    /// The version, such as 0.2.0. In a registry it is a tag.
    #[schemars(length(min = 1, max = 128))]
    pub version: String,
    /// The digest of the version, such as `sha256:0123…`: of the artifact in a registry, or of the program in a folder.
    /// Another digest makes the module not ready. Absent: the present one, which the status shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The observed state of a Module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleStatus {
    /// The versions that were found. Runs use these digests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub versions: Vec<FoundModuleVersion>,
    /// The conditions of the module. Ready: all versions were found, with the digests of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// A version of a module that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FoundModuleVersion {
    /// The version.
    pub version: String,
    /// The digest of the artifact in the registry. Absent for a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The SHA-256 of the program for the platform of the function-runner. Absent without a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The name of the KCL package in the artifact. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
}
