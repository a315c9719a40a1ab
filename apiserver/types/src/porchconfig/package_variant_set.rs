//! PackageVariantSet: one PackageVariant for each of many targets.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AdoptionPolicy, DownstreamDeletion, InjectionPoint, Selector, Upstream};
use crate::common::{Condition, conditions_schema};

/// The desired state of a PackageVariantSet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.porch.kpt.dev",
    version = "v1alpha2",
    kind = "PackageVariantSet",
    namespaced,
    status = "PackageVariantSetStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "PackageVariantSet has one PackageVariant of an upstream package for each of its targets. It owns them, and only their specs change."
)]
#[serde(rename_all = "camelCase")]
pub struct PackageVariantSetSpec {
    /// The package to copy. Required, with a revision or a workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// The targets. At least one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<Target>,
}

/// Targets: exactly one of `repositories`, `repositorySelector` and `objectSelector`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The Repositories by name, with the names of packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub repositories: Option<Vec<RepositoryTarget>>,
    /// The Repositories of the namespace by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub repository_selector: Option<LabelSelector>,
    /// The objects of the namespace by kind and label. The default repository has the name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub object_selector: Option<ObjectSelector>,
    /// The fields of the PackageVariants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PackageVariantTemplate>,
}

/// A Repository by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryTarget {
    /// The name of the Repository.
    #[serde(default)]
    pub name: String,
    /// The names of the packages there. Empty: the name of the upstream package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub package_names: Vec<String>,
}

/// The objects of a kind, by label or name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectSelector {
    /// The labels that the objects have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// The requirements that the labels fulfil.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
    /// The apiVersion of the objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind of the objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name of the object. Absent: every name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The fields of PackageVariants. Fields with `Expr` are expressions of CEL with the variables repoDefault, packageDefault,
/// upstream, repository and target. They override the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageVariantTemplate {
    /// The downstream package. Absent: the repository of the target, and the name of the upstream package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downstream: Option<DownstreamTemplate>,
    /// As in PackageVariants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adoption_policy: Option<AdoptionPolicy>,
    /// As in PackageVariants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DownstreamDeletion>,
    /// The labels of revisions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Further labels of revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub label_exprs: Vec<MapExpr>,
    /// The annotations of revisions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Further annotations of revisions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub annotation_exprs: Vec<MapExpr>,
    /// The changes of the ConfigMap in package-context.yaml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_context: Option<PackageContextTemplate>,
    /// The functions of the packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineTemplate>,
    /// The objects for injection points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub injectors: Vec<InjectionSelectorTemplate>,
}

/// The downstream package, by values or expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DownstreamTemplate {
    /// The name of the Repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The path of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The expression for the name of the Repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_expr: Option<String>,
    /// The expression for the path of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_expr: Option<String>,
}

/// An entry of a map, by values or expressions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MapExpr {
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The expression for the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_expr: Option<String>,
    /// The expression for the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_expr: Option<String>,
}

/// The changes of the ConfigMap in package-context.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageContextTemplate {
    /// The keys to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
    /// The keys to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub remove_keys: Vec<String>,
    /// Further keys to set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub data_exprs: Vec<MapExpr>,
    /// Expressions for further keys to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub remove_key_exprs: Vec<String>,
}

/// The functions of the packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PipelineTemplate {
    /// The functions that check objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub validators: Vec<FunctionTemplate>,
    /// The functions that change objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub mutators: Vec<FunctionTemplate>,
}

/// A function of the packages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionTemplate {
    /// The name of the function, without dots.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The image of the function.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The file in the package with the configuration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_path: String,
    /// The configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config_map: BTreeMap<String, String>,
    /// Further entries of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub config_map_exprs: Vec<MapExpr>,
    /// The objects that the function receives. Empty: all objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub selectors: Vec<Selector>,
    /// The objects that the function does not receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub exclude: Vec<Selector>,
}

/// A choice of an object for injection points: exactly one of `name` and `nameExpr`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionSelectorTemplate {
    /// The injection point.
    #[serde(flatten)]
    pub point: InjectionPoint,
    /// The name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The expression for the name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_expr: Option<String>,
}

/// The observed state of a PackageVariantSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PackageVariantSetStatus {
    /// The conditions. Stalled: the spec is invalid, upstream does not exist, or an expression fails. Ready: each target has
    /// its PackageVariant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
