//! VariableSet: values of the platform for the generators of stacks.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::common::{SecretKeyReference, Subject, any_object_schema};

/// The desired state of a VariableSet.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "VariableSet",
    plural = "variablesets",
    singular = "variableset",
    shortname = "varset",
    category = "stoa",
    derive = "Default",
    derive = "PartialEq",
    doc = "VariableSet is a set of values for the generators of the stacks that it selects. Values of a more specific VariableSet override those of others, and those of the Workspace, the Stack and the Run override them in this order. Rendering a stack with a value of a VariableSet needs the verb use on it."
)]
#[serde(rename_all = "camelCase")]
pub struct VariableSetSpec {
    /// A description of the set for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The values, by name. A value is any JSON. Every reader of the set can read them; confidential ones belong to
    /// secrets.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub values: Map<String, Value>,
    /// The values that Secrets have, by name. A value is the text of one key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, SecretKeyReference>,
    /// The names of values here that no Workspace, Stack, Run or more specific set may override.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub final_values: Vec<String>,
    /// The organizations whose stacks receive the values. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub organizations: Vec<String>,
    /// The selector of organizations by the labels of the Organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub organization_selector: Option<LabelSelector>,
    /// The projects whose stacks receive the values. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub projects: Vec<String>,
    /// The selector of projects by the labels of the Project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub project_selector: Option<LabelSelector>,
    /// The stacks that receive the values. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub stacks: Vec<String>,
    /// The selector of stacks by the labels of the Stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub stack_selector: Option<LabelSelector>,
    /// The workspaces for which stacks receive the values. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub workspaces: Vec<String>,
    /// The selector of workspaces by the labels of the Workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub workspace_selector: Option<LabelSelector>,
}
