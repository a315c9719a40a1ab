//! DeploymentQuery: a question to the history of deployments. Its subresource `rows` has the answer as a table in JSON.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The definition of a query.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "hub.kalypso.io",
    version = "v1alpha1",
    kind = "DeploymentQuery",
    plural = "deploymentqueries",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "DeploymentQuery is a question to the history of deployments. The subresource rows has the answer as a table."
)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentQuerySpec {
    /// The content of the table.
    pub description: String,
    /// The parameters of the subresource rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<QueryParameter>,
}

/// A parameter of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryParameter {
    /// The name in the query of the URL.
    pub name: String,
    /// The meaning.
    pub description: String,
}
