//! The layout of a repository with one file for each object, for any list of kinds.
//!
//! Start at [`KindLayout`]. Elsewhere: [`crate::GitPaths`] knows which file stands for which object, and
//! [`crate::read_file`] reads a pushed file.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Value, value::RawValue};
use stoa_machinery::log::{Change, Key, Record};

use crate::{Document, GitPaths, Layout, LayoutError, Location, changed_fields, object_file::read_leniently};

/// One file for each object of some kinds.
#[derive(Clone, Copy, Debug)]
pub struct KindLayout {
    /// The kinds.
    pub paths: GitPaths,
    /// The user who writes pushed files; an administrator grants this user what pushes may do.
    pub ingest_user: &'static str,
}

impl Layout for KindLayout {
    fn key(&self, path: &str) -> Option<Key> {
        Some(self.paths.of_path(path)?.identity.key())
    }

    fn may_have_files(&self, folder: &str) -> bool {
        self.paths.may_be_under(folder)
    }

    fn location(&self, key: &Key, value: &[u8]) -> Location {
        // Most records are of other kinds, so the key comes before the value.
        let Some(identity) = self.paths.identity(key) else { return Location::Nowhere };
        let head = serde_json::from_slice::<Head>(value).ok();
        if head.is_some_and(|head| head.metadata.deletion_timestamp.is_some()) {
            return Location::Nowhere;
        }
        let mut spec_field = None;
        if let Some(field) = identity.kind.spec_field() {
            // An object that does not decode keeps its file. Its key does not say which that is, and its spec is not believed.
            if (identity.kind.document)(identity.kind, value).is_err() {
                return Location::Unknown;
            }
            spec_field = serde_json::from_slice::<Fields<'_>>(value).ok().and_then(|fields| fields.text(field));
        }
        match self.paths.of_identity(identity, spec_field.as_deref()) {
            Some(found) => Location::At(found.path()),
            None => Location::Nowhere,
        }
    }

    fn read(&self, key: &Key, value: &[u8]) -> Result<Box<dyn Document>, LayoutError> {
        let kind = self.paths.identity(key).ok_or("objects of this kind are not in Git")?.kind;
        (kind.document)(kind, value)
    }

    fn read_file(&self, path: &str, content: &[u8]) -> Option<Box<dyn Document>> {
        let found = self.paths.of_path(path)?;
        let object = read_leniently(&found, content)?;
        self.read(&found.identity.key(), &serde_json::to_vec(&object.0).ok()?).ok()
    }

    fn reads_alike(&self, key: &Key, old: &[u8], new: &[u8]) -> bool {
        let authored = |value| serde_json::from_slice::<Texts<'_>>(value).ok();
        self.paths.identity(key).is_some() && authored(old).is_some_and(|old| Some(old) == authored(new))
    }

    fn subject(&self, record: &Record, before: Option<&Value>, now: Option<&Value>) -> String {
        let object = match self.paths.identity(&record.key) {
            Some(identity) => format!("{} {identity}", identity.kind.singular),
            None => record.key.to_string(),
        };
        // A deletion that waits for finalizers is a write like any other; its verb says what it is.
        let verb = match (&record.change, record.origin.verb.as_str()) {
            (Change::Delete, _) => "delete",
            (Change::Put(_), "patch" | "") => "update",
            (Change::Put(_), verb) => verb,
        };
        let changed = match (before, now) {
            (Some(before), Some(now)) if !["create", "delete"].contains(&verb) => changed_fields::changed(before, now),
            _ => String::new(),
        };
        if changed.is_empty() { format!("{verb} {object}") } else { format!("{verb} {object}: {changed}") }
    }

    fn ingest_user(&self) -> &str {
        self.ingest_user
    }
}

/// The part of a stored object that decides whether it has a file.
#[derive(Deserialize)]
struct Head {
    metadata: HeadMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMetadata {
    deletion_timestamp: Option<IgnoredAny>,
}

/// The fields of a stored object's spec, as JSON.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    spec: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

impl Fields<'_> {
    /// The value of a field that is a text.
    fn text(&self, field: &str) -> Option<String> {
        serde_json::from_str(self.spec.get(field)?.get()).ok()
    }
}

/// The fields on which a file and its path depend, as they are stored: null differs from a field that is left out.
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

/// JSON as it is stored, or nothing.
#[derive(Default, PartialEq)]
struct Text<'a>(&'a str);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(|text| Self(text.get()))
    }
}
