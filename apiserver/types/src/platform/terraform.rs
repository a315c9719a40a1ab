//! The Terraform providers of a Workspace: their packages, their configuration, and the references to their secrets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::common::{SecretReference, any_object_schema};

/// The Terraform providers of a workspace. Resources of type Terraform need them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TerraformTarget {
    /// The mirror that providers are installed from. Exactly one of directory, url and repositoryTemplate is set.
    pub mirror: ProviderMirror,
    /// The text of a .terraform.lock.hcl, as terraform init writes it: the version of each provider, and the checksums of
    /// its package. A provider is started only if it is in this text and its files match. Without it, the nearest
    /// .terraform.lock.hcl in the source counts: in the folder of the stack, or in one around it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock: String,
    /// Whether the processes of providers may use the network: Allow or Deny. Defaults to Allow.
    #[serde(default)]
    pub network: ProviderNetwork,
    /// The configuration of providers. A provider without an entry has no configuration but that of its resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub providers: Vec<TerraformProvider>,
}

/// A mirror with the packages of providers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderMirror {
    /// The absolute path of a filesystem mirror on every function-runner, such as /opt/stoa/providers. The layout is that
    /// of terraform providers mirror.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// The address of a network mirror, such as `https://mirror.example.com/providers/`: https, with a slash at the end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The repository of each provider in an OCI registry, as in OpenTofu's oci_mirror, such as
    /// `registry.example.com/providers/${namespace}/${type}`. The parts of the provider's address replace `${hostname}`,
    /// `${namespace}` and `${type}`; the last is required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repository_template: String,
    /// The Secret with the credentials of the network mirror or the registry: `token`, or `username` and `password`, and
    /// `ca.crt` for a private authority. For a registry, it may be of the type kubernetes.io/dockerconfigjson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// Whether the processes of providers may use the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderNetwork {
    /// They may. Most providers call an API.
    #[default]
    Allow,
    /// They may not.
    Deny,
}

/// The configuration of a Terraform provider. Secrets are in it by reference only.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerraformProvider {
    /// The name of the provider in this workspace.
    pub name: String,
    /// The address of the provider, such as hashicorp/aws, in the form `[[HOST/]NAMESPACE/]TYPE`. Each provider has at
    /// most one entry.
    pub source: String,
    /// The arguments of the provider's configuration, such as region. Those of a resource's extension providerMeta take
    /// precedence.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object_schema")]
    pub configuration: Map<String, Value>,
    /// The Secret whose keys are environment variables of the provider's process, such as AWS_ACCESS_KEY_ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_secret_ref: Option<SecretReference>,
    /// The Secret whose keys are arguments of the provider's configuration, such as password. The values are text. They
    /// take precedence over those in configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_secret_ref: Option<SecretReference>,
}
