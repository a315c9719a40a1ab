//! Backend: where documents are kept.

use std::fmt;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{Condition, SecretReference, Subject, conditions_schema};

/// What a Backend is to be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "platform.stoa.dev",
    version = "v1alpha1",
    kind = "Backend",
    plural = "backends",
    singular = "backend",
    shortname = "be",
    category = "stoa",
    status = "BackendStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Backend is a store for documents: the specs, plans and states of what is deployed to the workspaces that name it."
)]
#[serde(rename_all = "camelCase")]
pub struct BackendSpec {
    /// What the backend is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who is responsible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Subject>,
    /// Which kind of store. Local takes the field local, S3 and OSS take s3. Immutable.
    #[serde(rename = "type")]
    pub kind: BackendType,
    /// A directory of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalBackend>,
    /// A bucket of an S3-compatible object store, or of OSS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Backend>,
    /// The id of the key to the bucket. Write-only: it is moved to a Secret in namespace stoa-system, which credentialsSecretRef names from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key: Option<WriteOnly>,
    /// The key to the bucket. Write-only, as accessKey is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key: Option<WriteOnly>,
    /// What was just taken out of the fields above, on its way to the Secret: access key, then secret key.
    #[serde(skip)]
    #[schemars(skip)]
    pub taken: Option<(WriteOnly, WriteOnly)>,
}

/// A value that is taken and never shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct WriteOnly(pub String);

impl fmt::Debug for WriteOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteOnly(..)")
    }
}

/// A kind of store.
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

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LocalBackend {
    /// The directory, absolute or relative to the server's folder for documents, without `..`; empty: a folder of the Backend's name there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
}

/// How a service is told the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BucketAddressing {
    /// In the path: `https://<endpoint>/<bucket>/<key>`. Not by OSS.
    Path,
    /// In the host's name: `https://<bucket>.<endpoint>/<key>`.
    VirtualHosted,
    /// Not at all: endpoint is a domain that leads to this bucket.
    CustomDomain,
}

/// A bucket. Immutable, but for its region, addressing and credentials.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Backend {
    /// The bucket's name.
    pub bucket: String,
    /// What all keys begin with: path segments of letters, digits, `-`, `_` and `.`, with `/` in between.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The region, such as `eu-central-1`, or `cn-hangzhou` of OSS; where endpoint is set it may be left out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The URL of the service, when it is not the provider's own: https, or http of a loopback address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// How the service is told the bucket. Without it: in the host's name by OSS, and where endpoint is not set; else in the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing: Option<BucketAddressing>,
    /// The Secret with keys `accessKey` and `secretKey`, and `sessionToken` for temporary ones. It is read whenever it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretReference>,
}

/// What a Backend is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendStatus {
    /// Ready: the store can be written and read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
