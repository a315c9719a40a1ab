//! Which items of two lists belong together.

use std::collections::HashSet;

use serde_json::Value;

use crate::path::{FieldPath, Segment};
use crate::schema::{ListKey, Merge, Schema};

/// How the items of two lists are matched.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Matching {
    /// By the values of keys.
    ByKeys {
        /// The keys.
        keys: Vec<ListKey>,
        /// Whether others may add items of their own, as to `listType=map` lists.
        shared: bool,
    },
    /// By their value; others may add theirs.
    Set,
    /// First with first.
    ByPosition,
}

/// What an object is, as far as that says whose its lists are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lists<'a> {
    /// No object of Kubernetes: every list has one owner.
    Plain,
    /// Of a kind whose lists are known here.
    BuiltIn,
    /// Of another kind, with what its server says of it: what that does not tell of has one owner.
    Custom(Option<&'a Schema>),
}

/// Lists of the built-in kinds to which several owners contribute (`listType=map` or
/// `patchMergeKey` in the Kubernetes API), with the keys that tell their items apart.
const SHARED: [(&str, &[&str]); 15] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("ports", &["containerPort", "port", "name"]),
    ("imagePullSecrets", &["name"]),
    ("secrets", &["name"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey"]),
    ("conditions", &["type"]),
    ("ownerReferences", &["uid"]),
    ("webhooks", &["name"]),
];

/// Keys that tell items apart in lists of other kinds, if they happen to be unique.
const COMMON: [&str; 6] = ["name", "key", "id", "type", "host", "path"];

/// Decides how to match, by where the lists are and by what is in them.
pub(super) fn matching(lists: Lists<'_>, path: &FieldPath, want: &[Value], have: &[Value]) -> Matching {
    let field = match path.0.last() {
        Some(Segment::Key(field)) => field.as_str(),
        _ => "",
    };
    let is_of_metadata = matches!(path.0.as_slice(), [.., Segment::Key(parent), _] if parent == "metadata");
    let is_object = !matches!(lists, Lists::Plain);
    if is_object && is_of_metadata && field == "finalizers" {
        return Matching::Set;
    }
    let known = || SHARED.iter().find(|(name, _)| *name == field).map(|(_, keys)| alternatives(keys));
    let shared: Option<Vec<Vec<ListKey>>> = match lists {
        Lists::Plain => None,
        Lists::BuiltIn => known(),
        Lists::Custom(_) if path.0.len() == 2 && is_of_metadata => known(),
        Lists::Custom(schema) => match schema.and_then(|schema| schema.list(path)) {
            Some(Merge::Set) => return Matching::Set,
            // One key is easier to read where it is enough.
            Some(Merge::ByKeys(keys)) => Some(keys.iter().map(|key| vec![key.clone()]).chain([keys.clone()]).collect()),
            Some(Merge::AtomicMap) | None => None,
        },
    };
    if want.iter().chain(have).any(|item| !item.is_object()) {
        return Matching::ByPosition;
    }
    let is_shared = shared.is_some();
    let candidates = shared.unwrap_or_else(|| alternatives(&COMMON));
    match candidates.into_iter().find(|keys| is_unique(want, keys) && is_unique(have, keys)) {
        Some(keys) => Matching::ByKeys { keys, shared: is_shared },
        None => Matching::ByPosition,
    }
}

fn alternatives(names: &[&str]) -> Vec<Vec<ListKey>> {
    names.iter().map(|name| vec![ListKey { name: (*name).to_owned(), default: None }]).collect()
}

/// The text that tells an item apart: its values under the keys.
pub(super) fn key_of(item: &Value, keys: &[ListKey]) -> Option<String> {
    let values: Option<Vec<String>> = keys.iter().map(|key| key.of(item)).collect();
    values.map(|values| values.join(","))
}

/// The step to the item with this text.
pub(super) fn step_to(keys: &[ListKey], text: String) -> Segment {
    let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
    Segment::Item { key: names.join(","), value: text }
}

fn is_unique(items: &[Value], keys: &[ListKey]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| key_of(item, keys).is_some_and(|text| seen.insert(text)))
}
