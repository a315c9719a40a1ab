//! How objects read as files, and what their commits are called.

use std::{collections::BTreeMap, error::Error};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use stoa_machinery::log::{Change, Key, Record};
use stoa_storage::git::Layout;
use stoa_types::{config, platform};

use super::{
    fields,
    place::{Authored, Identity, Place},
};

/// The user as whom pushed files are written, and whom an administrator grants what pushes may do.
pub(super) const USER: &str = "stoa:git:control";

/// What kubectl keeps for itself, and what could bring a secret along that is gone from the object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether people write an annotation, so that it is in the file.
pub(super) fn is_authored_annotation(name: &str) -> bool {
    name != LAST_APPLIED
}

/// The files of the control repository.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlLayout;

impl Layout for ControlLayout {
    fn contains(&self, path: &str) -> bool {
        Place::of_path(path).is_some()
    }

    fn path(&self, key: &Key, value: &[u8]) -> Option<String> {
        // Most records are of other kinds, so the key is looked at before the value is read.
        Identity::of_key(key)?;
        let object: Value = serde_json::from_slice(value).ok()?;
        if is_deleting(&object) {
            return None;
        }
        Some(Place::of_object(key, &object)?.path())
    }

    fn render(&self, key: &Key, value: &[u8]) -> Result<String, Box<dyn Error + Send + Sync>> {
        written(key, value, &Yaml)
    }

    fn authored(&self, key: &Key, value: &[u8]) -> Result<Value, Box<dyn Error + Send + Sync>> {
        written(key, value, &Json)
    }

    fn subject(&self, record: &Record, previous: Option<&[u8]>) -> String {
        let what = match Identity::of_key(&record.key) {
            Some(identity) => format!("{} {identity}", identity.kind.singular()),
            None => record.key.to_string(),
        };
        // A deletion that waits for finalizers is a write like any other; its verb says what it is.
        let verb = match (&record.change, record.origin.verb.as_str()) {
            (Change::Delete, _) => "delete",
            (Change::Put(_), "patch" | "") => "update",
            (Change::Put(_), verb) => verb,
        };
        let changed = match (&record.change, previous) {
            (Change::Put(value), Some(previous)) if !["create", "delete"].contains(&verb) => {
                fields::changed(previous, value)
            }
            (Change::Put(_) | Change::Delete, _) => String::new(),
        };
        if changed.is_empty() { format!("{verb} {what}") } else { format!("{verb} {what}: {changed}") }
    }

    fn ingest_user(&self) -> &str {
        USER
    }
}

/// Whether an object waits for its finalizers.
pub(super) fn is_deleting(object: &Value) -> bool {
    object.get("metadata").and_then(|m| m.get("deletionTimestamp")).is_some_and(|time| !time.is_null())
}

/// What is read of a stored object.
#[derive(Deserialize)]
struct Stored<S> {
    metadata: Metadata,
    spec: S,
}

/// What people write of an object, in the order in which they read it.
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

/// A form in which a file is wanted.
trait Form {
    type Output;

    fn write<S: Serialize>(&self, file: &File<S>) -> Result<Self::Output, Box<dyn Error + Send + Sync>>;
}

/// The fields of the spec come in the order of their type, which is the order of its documentation.
struct Yaml;

impl Form for Yaml {
    type Output = String;

    fn write<S: Serialize>(&self, file: &File<S>) -> Result<String, Box<dyn Error + Send + Sync>> {
        Ok(serde_saphyr::to_string(file)?)
    }
}

struct Json;

impl Form for Json {
    type Output = Value;

    fn write<S: Serialize>(&self, file: &File<S>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_value(file)?)
    }
}

/// The file of a stored value.
fn written<F: Form>(key: &Key, value: &[u8], form: &F) -> Result<F::Output, Box<dyn Error + Send + Sync>> {
    let identity = Identity::of_key(key).ok_or("objects of this kind are not in Git")?;
    match identity.kind {
        Authored::Organization => file::<config::OrganizationSpec, F>(identity.kind, value, form),
        Authored::Project => file::<config::ProjectSpec, F>(identity.kind, value, form),
        Authored::Stack => file::<config::StackSpec, F>(identity.kind, value, form),
        Authored::Source => file::<config::SourceSpec, F>(identity.kind, value, form),
        Authored::Workspace => file::<platform::WorkspaceSpec, F>(identity.kind, value, form),
        Authored::Backend => file::<platform::BackendSpec, F>(identity.kind, value, form),
    }
}

fn file<S: Serialize + DeserializeOwned, F: Form>(
    kind: Authored,
    value: &[u8],
    form: &F,
) -> Result<F::Output, Box<dyn Error + Send + Sync>> {
    let Stored { mut metadata, spec } = serde_json::from_slice::<Stored<S>>(value)?;
    metadata.annotations.retain(|name, _| is_authored_annotation(name));
    form.write(&File { api_version: kind.api_version(), kind: kind.kind(), metadata, spec })
}

#[cfg(test)]
mod tests;
