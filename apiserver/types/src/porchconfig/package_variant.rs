//! PackageVariant: a package that follows another one, with changes of its own.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Pipeline;
use crate::common::{Condition, any_object_schema, conditions_schema, is_zero};

/// The desired state of a PackageVariant.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.porch.kpt.dev",
    version = "v1alpha1",
    kind = "PackageVariant",
    namespaced,
    status = "PackageVariantStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PackageVariant keeps a downstream package equal to an upstream package, apart from the changes that it names. The server writes drafts of the downstream package; people propose and approve them."
)]
#[serde(rename_all = "camelCase")]
pub struct PackageVariantSpec {
    /// The package to copy. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The package that is written. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downstream: Option<Downstream>,
    /// The policy for revisions of the downstream package that this object did not create: adoptExisting or adoptNone.
    /// Defaults to adoptNone.
    #[serde(default)]
    pub adoption_policy: AdoptionPolicy,
    /// The policy for owned revisions when this object is deleted, or leads to another package: delete or orphan. delete
    /// removes drafts and proposes the deletion of published revisions. Defaults to delete.
    #[serde(default)]
    pub deletion_policy: DownstreamDeletion,
    /// The labels of revisions that this object creates or adopts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations of revisions that this object creates or adopts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The changes of the ConfigMap in package-context.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_context: Option<PackageContext>,
    /// The functions that the downstream package has before its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Pipeline>,
    /// The objects of the cluster for injection points of the package. The first that fits an injection point is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub injectors: Vec<InjectionSelector>,
}

/// The package to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upstream {
    /// The name of the Repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The path of the package from the directory of its repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package: String,
    /// The number of the revision. -1 is the package on the branch of its repository, which 0 stands for, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub revision: i64,
    /// The workspace of the revision, which may be a draft. It overrides the number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace_name: String,
}

/// The package that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Downstream {
    /// The name of the Repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// The path of the package from the directory of its repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub package: String,
}

/// The policy for revisions that a PackageVariant did not create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AdoptionPolicy {
    /// It becomes their owner.
    AdoptExisting,
    /// It leaves them alone.
    #[default]
    AdoptNone,
}

/// The policy for owned revisions that are not wanted any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DownstreamDeletion {
    /// Drafts are deleted, and the deletion of published revisions is proposed.
    #[default]
    Delete,
    /// They stay without an owner.
    Orphan,
}

/// The changes of the ConfigMap in package-context.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageContext {
    /// The keys to set, other than name and package-path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// The keys to remove, other than name and package-path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub remove_keys: Vec<String>,
}

/// A choice of an object in the namespace for injection points. An absent field permits every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectionSelector {
    /// The injection point.
    #[serde(flatten)]
    pub point: InjectionPoint,
    /// The name of the object.
    #[serde(default)]
    pub name: String,
}

/// The type of an injection point. An absent field permits every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InjectionPoint {
    /// The group of the injection point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The version of the injection point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The kind of the injection point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The observed state of a PackageVariant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageVariantStatus {
    /// The conditions. Stalled: the spec is invalid, or upstream does not exist. Ready: the downstream package is as the spec
    /// wants it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// The drafts of the downstream package, or else its newest published revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub downstream_targets: Vec<DownstreamTarget>,
}

/// A revision of the downstream package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownstreamTarget {
    /// The name of the PackageRevision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The results of the functions at the last save: `result`, a FunctionResultList of kpt, and `error`.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    #[schemars(schema_with = "any_object_schema")]
    pub render_status: serde_json::Value,
}
