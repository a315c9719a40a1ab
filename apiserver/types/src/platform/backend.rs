//! Backend: where documents are kept.

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
    /// Which kind of store; the field of its name says the rest. Immutable.
    #[serde(rename = "type")]
    pub kind: BackendType,
    /// A directory of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalBackend>,
    /// A bucket of an S3-compatible object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Backend>,
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

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3Backend {
    /// The bucket's name.
    pub bucket: String,
    /// What all keys begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The region.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The URL of the service, when it is not the provider's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The Secret with keys `accessKey` and `secretKey`.
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
