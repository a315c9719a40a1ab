//! How objects read as files, and what their commits are called.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, value::RawValue};
use stoa_kinds::destroyed::{self, Destroyed};
use stoa_machinery::log::{Change, Key, Record};
use stoa_storage::git::{Document, Layout, LayoutError, Location};
use stoa_types::{config, platform};

use super::{
    fields,
    file::said,
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
    fn key(&self, path: &str) -> Option<Key> {
        match destroyed::Names::of_path(path) {
            Some(names) => Some(names.key()),
            None => Some(Place::of_path(path)?.identity.key()),
        }
    }

    fn may_have_files(&self, folder: &str) -> bool {
        Place::may_be_under(folder) || destroyed::may_be_under(folder)
    }

    fn location(&self, key: &Key, value: &[u8]) -> Location {
        if let Some(names) = destroyed::Names::of_key(key) {
            return Location::At(names.path());
        }
        // Most records are of other kinds, so the key is looked at before the value is read.
        let Some(identity) = Identity::of_key(key) else { return Location::Nowhere };
        let head = serde_json::from_slice::<Head>(value).ok();
        if head.as_ref().is_some_and(|head| head.metadata.deletion_timestamp.is_some()) {
            return Location::Nowhere;
        }
        // What does not decode keeps its file. The key says which that is, but for a stack, of which nothing is believed
        // then.
        let project = match identity.kind {
            Authored::Stack if serde_json::from_slice::<Stored<config::StackSpec>>(value).is_err() => {
                return Location::Unknown;
            }
            _ => head.and_then(|head| head.spec?.project),
        };
        match Place::of_key(key, project.as_deref()) {
            Some(place) => Location::At(place.path()),
            None => Location::Nowhere,
        }
    }

    fn read(&self, key: &Key, value: &[u8]) -> Result<Box<dyn Document>, LayoutError> {
        if destroyed::Names::of_key(key).is_some() {
            return Ok(Box::new(Recorded(serde_json::from_slice(value)?)));
        }
        let identity = Identity::of_key(key).ok_or("objects of this kind are not in Git")?;
        match identity.kind {
            Authored::Organization => file::<config::OrganizationSpec>(identity.kind, value),
            Authored::Project => file::<config::ProjectSpec>(identity.kind, value),
            Authored::Stack => file::<config::StackSpec>(identity.kind, value),
            Authored::Source => file::<config::SourceSpec>(identity.kind, value),
            Authored::Workspace => file::<platform::WorkspaceSpec>(identity.kind, value),
            Authored::Backend => file::<platform::BackendSpec>(identity.kind, value),
            Authored::NotificationSink => file::<platform::NotificationSinkSpec>(identity.kind, value),
        }
    }

    fn read_file(&self, path: &str, content: &[u8]) -> Option<Box<dyn Document>> {
        let place = Place::of_path(path)?;
        let said = said(&place, content)?;
        self.read(&place.identity.key(), &serde_json::to_vec(&said.0).ok()?).ok()
    }

    fn outlives_log(&self, path: &str) -> bool {
        // No object can restore the record of a destroyed deployment.
        destroyed::Names::of_path(path).is_some()
    }

    fn reads_alike(&self, key: &Key, old: &[u8], new: &[u8]) -> bool {
        let authored = |value| serde_json::from_slice::<Texts<'_>>(value).ok();
        Identity::of_key(key).is_some() && authored(old).is_some_and(|old| Some(old) == authored(new))
    }

    fn subject(&self, record: &Record, before: Option<&Value>, now: Option<&Value>) -> String {
        if let (Some(names), Some(now)) = (destroyed::Names::of_key(&record.key), now)
            && let Ok(destroyed) = serde_json::from_value::<Destroyed>(now.clone())
        {
            return destroyed.subject(&names.organization);
        }
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
        let changed = match (before, now) {
            (Some(before), Some(now)) if !["create", "delete"].contains(&verb) => fields::changed(before, now),
            _ => String::new(),
        };
        if changed.is_empty() { format!("{verb} {what}") } else { format!("{verb} {what}: {changed}") }
    }

    fn ingest_user(&self) -> &str {
        USER
    }
}

/// What of a stored object says where its file is.
#[derive(Deserialize)]
struct Head<'a> {
    metadata: HeadMetadata,
    #[serde(borrow)]
    spec: Option<HeadSpec<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct HeadSpec<'a> {
    #[serde(borrow)]
    project: Option<Cow<'a, str>>,
}

/// All that a file or its place can depend on, as it is stored: null is not what is not there.
#[derive(PartialEq, Deserialize)]
struct Texts<'a> {
    #[serde(borrow)]
    metadata: MetadataTexts<'a>,
    #[serde(borrow, default)]
    spec: Text<'a>,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataTexts<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    labels: Text<'a>,
    #[serde(borrow, default)]
    annotations: Text<'a>,
    #[serde(borrow, default)]
    deletion_timestamp: Text<'a>,
}

/// JSON as it stands there, or nothing.
#[derive(Default, PartialEq)]
struct Text<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(|text| Self(text.get()))
    }
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

impl<S: Serialize> Document for File<S> {
    /// The fields of the spec come in the order of their type, which is the order of its documentation.
    fn yaml(&self) -> Result<String, LayoutError> {
        Ok(serde_saphyr::to_string(self)?)
    }

    fn json(&self) -> Result<Value, LayoutError> {
        Ok(serde_json::to_value(self)?)
    }
}

/// The record of a destroyed deployment, which stands for no object.
struct Recorded(Destroyed);

impl Document for Recorded {
    fn yaml(&self) -> Result<String, LayoutError> {
        Ok(serde_saphyr::to_string(&self.0)?)
    }

    fn json(&self) -> Result<Value, LayoutError> {
        Ok(serde_json::to_value(&self.0)?)
    }
}

/// The file of a stored value.
fn file<S: Serialize + DeserializeOwned + 'static>(
    kind: Authored,
    value: &[u8],
) -> Result<Box<dyn Document>, LayoutError> {
    let Stored { mut metadata, spec } = serde_json::from_slice::<Stored<S>>(value)?;
    metadata.annotations.retain(|name, _| is_authored_annotation(name));
    Ok(Box::new(File { api_version: kind.api_version(), kind: kind.kind(), metadata, spec }))
}

#[cfg(test)]
mod tests;
