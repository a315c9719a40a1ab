//! Stored objects as their files: the fields that people write, in the order of their documentation.

use std::{collections::BTreeMap, error::Error};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::GitPath;

/// Why an object cannot be written to Git.
pub type LayoutError = Box<dyn Error + Send + Sync>;

/// kubectl's own annotation. It could bring a secret back that is not in the object any more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether people write an annotation, so that it is in the file.
pub fn is_authored_annotation(name: &str) -> bool {
    name != LAST_APPLIED
}

/// The authored fields of an object, in the two forms in which the repository has them.
pub trait Document {
    /// The content of the file, in a canonical order: equal documents have equal texts.
    ///
    /// A write with an unchanged text makes no commit. Comments and the order of a file survive, since only differences are
    /// edited.
    ///
    /// # Errors
    ///
    /// When the object cannot be written as text.
    fn yaml(&self) -> Result<String, LayoutError>;

    /// The content of the file as JSON, which the history has.
    ///
    /// # Errors
    ///
    /// When the object cannot be written as text.
    fn json(&self) -> Result<Value, LayoutError>;
}

/// The fields that are read of a stored object.
#[derive(Deserialize)]
struct Stored<S> {
    metadata: Metadata,
    spec: S,
}

/// The fields of an object that people write, in the order in which they read it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<S> {
    api_version: String,
    kind: &'static str,
    metadata: Metadata,
    spec: S,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl<S: Serialize> Document for File<S> {
    /// The fields of the spec come in the order of their type, which is the order of its documentation.
    fn yaml(&self) -> Result<String, LayoutError> {
        Ok(serde_saphyr::to_string(self)?)
    }

    fn json(&self) -> Result<Value, LayoutError> {
        Ok(serde_json::to_value(self)?)
    }
}

/// The document of a stored object whose spec has the type `S`.
///
/// # Errors
///
/// When the object does not decode.
pub fn document<S: Serialize + DeserializeOwned + 'static>(
    kind: &'static GitPath,
    value: &[u8],
) -> Result<Box<dyn Document>, LayoutError> {
    let Stored { mut metadata, spec } = serde_json::from_slice::<Stored<S>>(value)?;
    metadata.annotations.retain(|name, _| is_authored_annotation(name));
    Ok(Box::new(File { api_version: kind.api_version(), kind: kind.kind, metadata, spec }))
}
