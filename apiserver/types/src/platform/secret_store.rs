//! The secret stores of a Workspace that a value chooses by name, and the key for files of SOPS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::SecretReference;

/// A store of secrets with a name. A value `ref://<name>/<property>?store=<store>` is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretStore {
    /// The name of the store in this workspace: letters, digits and dashes.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The service or file with the secrets. Exactly one field is set.
    pub provider: SecretStoreProvider,
    /// The Secret with the credentials. Its keys are for vault `token`, and possibly `namespace`; for aws `accessKey` and
    /// `secretKey`, and possibly `sessionToken`; for azure `clientId` and `clientSecret`; for alicloud `accessKeyId` and
    /// `accessKeySecret`, and possibly `securityToken`; for file keys that end in `.agekey`. Services may have `ca.crt`
    /// for a private authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
}

/// The service or file with the secrets of a store, by its name in Kusion's workspace.yaml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretStoreProvider {
    /// Secrets in the cluster of Stoa.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesSecrets>,
    /// A KV engine of HashiCorp Vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<VaultStore>,
    /// AWS Secrets Manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsSecretsManager>,
    /// Azure Key Vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureKeyVault>,
    /// The secrets of Alibaba Cloud's KMS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alicloud: Option<AlibabaCloudKms>,
    /// A file of the source that age encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<EncryptedFile>,
}

/// Secrets in the cluster of Stoa. The requester of a run needs the verb use on each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubernetesSecrets {
    /// The namespace of the Secrets. Defaults to that of the organization.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The names of the Secrets that runs of triggers and pull requests may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub triggered: Vec<String>,
}

/// A KV engine of HashiCorp Vault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VaultStore {
    /// The address of the server, such as `https://vault.example.com:8200`: https, or http of a loopback address.
    pub server: String,
    /// The path of the engine. Defaults to secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The version of the engine, v1 or v2. Defaults to v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// AWS Secrets Manager. A version is a version id, or a label such as AWSPREVIOUS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AwsSecretsManager {
    /// The region, such as eu-central-1.
    pub region: String,
    /// The address of the service: https, or http of a loopback address. Defaults to that of the region.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// Ignored: the keys are in the Secret. Kusion reads a local profile.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
}

/// Azure Key Vault, opened by an application of Microsoft Entra ID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureKeyVault {
    /// The address of the vault, such as `https://shop.vault.azure.net`.
    pub vault_url: String,
    /// The id or domain of the tenant.
    pub tenant_id: String,
    /// The cloud: AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud. Defaults to AzurePublicCloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_type: Option<String>,
    /// The address that sells tokens: https, or http of a loopback address. Defaults to that of the cloud.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authority_host: String,
}

/// The secrets of Alibaba Cloud's KMS. A version is a version id, or a stage: ACSCurrent or ACSPrevious.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlibabaCloudKms {
    /// The region, such as cn-hangzhou.
    pub region: String,
    /// The address of the service: https, or http of a loopback address. Defaults to that of the region.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
}

/// An armored file of age in the source, at the commit of the run. It has a map of secrets in YAML or JSON, each a map of
/// properties or a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EncryptedFile {
    /// The path of the file, from the root of the source.
    pub path: String,
}

/// The decryption of manifests that SOPS encrypted to a recipient of age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SopsDecryption {
    /// The Secret with the age keys. Its keys end in `.agekey`, and have what `age-keygen` writes.
    pub age_key_secret_ref: SecretReference,
}
