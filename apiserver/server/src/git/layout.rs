//! The layout of the control repository: a file for each object, and the records of destroyed deployments.
//!
//! Elsewhere: [`KindLayout`] lays out the objects of the kinds in [`GIT_PATHS`].

use serde_json::Value;
use stoa_control_repo::{Document, KindLayout, Layout, LayoutError, Location};
use stoa_machinery::log::{Key, Record};

use stoa_kinds::{
    GIT_PATHS,
    destroyed::{self, Destroyed},
};

/// The user who writes pushed files, and whom an administrator grants what pushes may do.
pub(super) const USER: &str = "stoa:git:control";

/// The files of objects.
fn objects() -> KindLayout {
    KindLayout { paths: *GIT_PATHS, ingest_user: USER }
}

/// The files of the control repository.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlLayout;

impl Layout for ControlLayout {
    fn key(&self, path: &str) -> Option<Key> {
        destroyed::Names::of_path(path).map_or_else(|| objects().key(path), |names| Some(names.key()))
    }

    fn may_have_files(&self, folder: &str) -> bool {
        objects().may_have_files(folder) || destroyed::may_be_under(folder)
    }

    fn location(&self, key: &Key, value: &[u8]) -> Location {
        match destroyed::Names::of_key(key) {
            Some(names) => Location::At(names.path()),
            None => objects().location(key, value),
        }
    }

    fn read(&self, key: &Key, value: &[u8]) -> Result<Box<dyn Document>, LayoutError> {
        match destroyed::Names::of_key(key) {
            Some(_) => Ok(Box::new(Recorded(serde_json::from_slice(value)?))),
            None => objects().read(key, value),
        }
    }

    fn read_file(&self, path: &str, content: &[u8]) -> Option<Box<dyn Document>> {
        objects().read_file(path, content)
    }

    fn outlives_log(&self, path: &str) -> bool {
        // No object can restore the record of a destroyed deployment.
        destroyed::Names::of_path(path).is_some()
    }

    fn reads_alike(&self, key: &Key, old: &[u8], new: &[u8]) -> bool {
        objects().reads_alike(key, old, new)
    }

    fn subject(&self, record: &Record, before: Option<&Value>, now: Option<&Value>) -> String {
        if let (Some(names), Some(now)) = (destroyed::Names::of_key(&record.key), now)
            && let Ok(destroyed) = serde_json::from_value::<Destroyed>(now.clone())
        {
            return destroyed.subject(&names.organization);
        }
        objects().subject(record, before, now)
    }

    fn ingest_user(&self) -> &str {
        USER
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
