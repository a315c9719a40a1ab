//! Schemas of built-in kinds, for manifests that no cluster checks before they are committed.
//!
//! Start at [`Catalogue::of`], which is one version of Kubernetes, and [`Catalogue::check`], which validates an object.
//! `data` has the schemas and their sources, `document` reads them, `formats` has names, ports and sizes, and `walk`
//! goes through an object.
//!
//! A catalogue is in memory only while it is used, and all users of a version share one.

mod document;
mod formats;
mod walk;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::{Map, Value};
use stoa_engine::FieldPath;
use stoa_engine::object::split_api_version;
use stoa_engine::validation::KUBERNETES_VERSIONS;
use stoa_kubernetes_model::kinds;

pub use document::{Definition, Document};

use document::{Fields, Kinds, read};
use walk::Walk;

/// The beginning of the message about a field that a kind does not have. A cluster ignores such a field unless it is strict.
pub const UNKNOWN_FIELD: &str = "its kind has no field of this name";

/// The most findings of one object.
const MOST: usize = 20;

/// The file of each version in [`KUBERNETES_VERSIONS`].
const FILES: [&[u8]; KUBERNETES_VERSIONS.len()] = [
    include_bytes!("../data/kubernetes-1.33.json.gz"),
    include_bytes!("../data/kubernetes-1.34.json.gz"),
    include_bytes!("../data/kubernetes-1.35.json.gz"),
    include_bytes!("../data/kubernetes-1.36.json.gz"),
];

/// The catalogues that are in use.
static IN_USE: Mutex<[Weak<Catalogue>; FILES.len()]> = Mutex::new([const { Weak::new() }; FILES.len()]);

/// The kinds of one version of Kubernetes.
#[derive(Debug)]
pub struct Catalogue {
    version: &'static str,
    /// The number after `1.`.
    minor: u32,
    kinds: Kinds,
    definitions: Vec<Fields>,
    /// The definition of `metadata`.
    meta: usize,
}

/// Something that a cluster refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of problem.
    pub fault: Fault,
    /// The field; empty for the whole object.
    pub field: FieldPath,
    /// A message for people, without the value.
    pub message: String,
}

/// In which way something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This version of Kubernetes does not have the kind.
    Kind,
    /// A required field is missing.
    Missing,
    /// A field that its kind does not have, or a value that is not allowed.
    Invalid,
}

impl Catalogue {
    /// The catalogue of a version such as `1.36`; `None` for one that is not shipped.
    pub fn of(version: &str) -> Option<Arc<Self>> {
        let position = KUBERNETES_VERSIONS.iter().position(|it| *it == version)?;
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(catalogue) = in_use[position].upgrade() {
            return Some(catalogue);
        }
        let version = KUBERNETES_VERSIONS[position];
        let minor = version.rsplit('.').next().and_then(|minor| minor.parse().ok()).unwrap_or_default();
        let (kinds, definitions) = read(FILES[position]);
        let meta = definitions.iter().position(|it| &*it.name == "meta.ObjectMeta").expect("every version has it");
        let catalogue = Arc::new(Self { version, minor, kinds, definitions, meta });
        in_use[position] = Arc::downgrade(&catalogue);
        Some(catalogue)
    }

    /// Whether the version has a kind.
    pub fn has(&self, api_version: &str, kind: &str) -> bool {
        self.definition(api_version, kind).is_some()
    }

    /// The rejections of a cluster of the version. For custom kinds these are only about `metadata` and size. `unknown`
    /// are fields with unknown values; nothing at or below them is reported.
    pub fn check(&self, object: &Map<String, Value>, unknown: &BTreeSet<FieldPath>) -> Vec<Finding> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let definition = self.definition(api_version, kind);
        let (group, _) = split_api_version(api_version);
        if definition.is_none() && kinds::is_built_in(group) {
            let message = self.missing(api_version, kind);
            return vec![Finding { fault: Fault::Kind, field: FieldPath::of_keys(["apiVersion"]), message }];
        }
        let mut walk = Walk::new(&self.definitions, unknown);
        match definition {
            Some(definition) => walk.root(definition, object),
            None => walk.meta(self.meta, object),
        }
        walk.name(formats::of_name(group, kind, self.minor), object);
        let has_data = group.is_empty() && matches!(kind, "ConfigMap" | "Secret");
        walk.sizes(formats::sizes(object, has_data));
        walk.found
    }

    fn definition(&self, api_version: &str, kind: &str) -> Option<usize> {
        self.kinds.get(api_version)?.get(kind).copied()
    }

    /// The message about a kind that the version lacks, with its successor.
    fn missing(&self, api_version: &str, kind: &str) -> String {
        let (group, _) = split_api_version(api_version);
        let served = self.kinds.iter().filter(|(_, kinds)| kinds.contains_key(kind)).map(|(served, _)| served.as_str());
        let rank = |served: &&str| {
            let (other, version) = split_api_version(served);
            (other != group, version.contains("alpha"), version.contains("beta"), std::cmp::Reverse(version.to_owned()))
        };
        let version = self.version;
        match served.min_by_key(rank) {
            Some(served) => format!("Kubernetes {version} has no {kind} of {api_version}; write it as {served}"),
            None => format!("Kubernetes {version} has no {kind} of {api_version}"),
        }
    }
}

#[cfg(test)]
mod tests;
