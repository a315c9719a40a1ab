//! Backend: the store of documents.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, SecretReference, Subject, conditions_schema};

/// The desired state of a Backend.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "Backend",
    shortname = "be",
    category = "stoa",
    status = "BackendStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Backend is a store for documents: the specs, plans and states of the deployments in the workspaces that name it."
)]
#[serde(rename_all = "camelCase")]
pub struct BackendSpec {
    /// A description of the backend for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The owners of the backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// The kind of the store. Local takes the field local, S3 and OSS take s3. Immutable.
    #[serde(rename = "type")]
    pub kind: BackendType,
    /// The directory of a Local store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalBackend>,
    /// The bucket of an S3-compatible object store, or of OSS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Backend>,
    /// The id of the key to the bucket. Write-only: the server moves it to a Secret in namespace stoa-system, and names
    /// that Secret in credentialsSecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<WriteOnly>,
    /// The key to the bucket. Write-only, as accessKey is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<WriteOnly>,
    /// The values just removed from the fields above, on their way to the Secret: access key, then secret key.
    #[serde(skip)]
    #[schemars(skip)]
    pub taken: Option<(WriteOnly, WriteOnly)>,
}

/// A write-only value.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, educe::Educe)]
#[educe(Debug)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct WriteOnly(#[educe(Debug(ignore))] pub String);

/// The kind of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackendType {
    /// A directory of the API server.
    #[default]
    Local,
    /// A bucket of an S3-compatible object store.
    S3,
    /// A bucket of Alibaba Cloud OSS.
    #[serde(rename = "OSS")]
    Oss,
}

/// A directory of the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalBackend {
    /// The directory, absolute or relative to the server's folder for documents, without `..`. Empty: a folder there
    /// with the Backend's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
}

/// The part of a request that names the bucket: Path, VirtualHosted or CustomDomain. Defaults to VirtualHosted for OSS
/// and without an endpoint, otherwise to Path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BucketAddressing {
    /// The path: `https://<endpoint>/<bucket>/<key>`. OSS does not accept it.
    Path,
    /// The host: `https://<bucket>.<endpoint>/<key>`.
    VirtualHosted,
    /// None: endpoint is a domain of this bucket.
    CustomDomain,
}

/// A bucket. Immutable, except for its region, addressing and credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Backend {
    /// The name of the bucket.
    pub bucket: String,
    /// The prefix of all keys: path segments of letters, digits, `-`, `_` and `.`, with `/` in between.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The region, such as `eu-central-1`, or `cn-hangzhou` of OSS. Optional if endpoint is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The URL of the service: https, or http of a loopback address. Empty: that of the provider.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The part of a request that names the bucket. Defaults to the host for OSS and without an endpoint, otherwise to
    /// the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing: Option<BucketAddressing>,
    /// The Secret with keys `accessKey` and `secretKey`, and `sessionToken` for temporary ones. Stoa reads it on each
    /// use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretReference>,
}

/// The observed state of a Backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendStatus {
    /// The conditions of the backend. Ready: the store is writable and readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
