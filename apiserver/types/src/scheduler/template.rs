//! Template: texts in the language of Go that become the files of an assignment.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EmptyStatus;

/// The desired state of a Template.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduler.kalypso.io",
    version = "v1alpha1",
    kind = "Template",
    namespaced,
    status = "EmptyStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Template has the manifests of a reconciler, a namespace or a configuration, as texts for the text/template of Go."
)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSpec {
    /// The purpose of the template: reconciler, namespace or config.
    #[serde(rename = "type")]
    pub type_: TemplateType,
    /// The type of the result of a config template: `sh` for a file of shell variables, else YAML.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// The texts. Each one is one manifest, or several with `---` in between.
    pub manifests: Vec<String>,
}

/// The purpose of a Template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateType {
    /// Points the clusters' reconciler to a workload's manifests.
    #[default]
    Reconciler,
    /// The namespace of a workload.
    Namespace,
    /// The configuration of a workload.
    Config,
}
