//! Which items of two lists belong together.

use std::collections::HashSet;

use serde_json::Value;

use crate::path::scalar_text;

/// How the items of two lists are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matching {
    /// By the value of a key.
    ByKey {
        /// The key.
        key: &'static str,
        /// Whether others may add items of their own, as to `listType=map` lists.
        shared: bool,
    },
    /// By their value; others may add theirs.
    Set,
    /// First with first.
    ByPosition,
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

/// Decides how to match, by the field that holds the lists and by what is in them.
pub(super) fn matching(kubernetes: bool, field: &str, want: &[Value], have: &[Value]) -> Matching {
    if kubernetes && field == "finalizers" {
        return Matching::Set;
    }
    if want.iter().chain(have).any(|item| !item.is_object()) {
        return Matching::ByPosition;
    }
    let shared = kubernetes.then(|| SHARED.iter().find(|(name, _)| *name == field)).flatten();
    let candidates = shared.map_or(COMMON.as_slice(), |(_, keys)| keys);
    match candidates.iter().find(|key| is_unique(want, key) && is_unique(have, key)) {
        Some(key) => Matching::ByKey { key, shared: shared.is_some() },
        None => Matching::ByPosition,
    }
}

/// The text that tells an item apart.
pub(super) fn key_of(item: &Value, key: &str) -> Option<String> {
    item.get(key).and_then(scalar_text)
}

fn is_unique(items: &[Value], key: &str) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| key_of(item, key).is_some_and(|text| seen.insert(text)))
}
