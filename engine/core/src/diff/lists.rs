//! Matching of items in two lists.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::path::Segment;
use crate::schema::{ListKey, Merge};

/// How two lists are matched.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Matching {
    /// By the values of keys.
    ByKeys {
        /// The keys.
        keys: Vec<ListKey>,
        /// Whether others may add items, as in `listType=map` lists.
        shared: bool,
    },
    /// By their value; others may add theirs.
    Set,
    /// First with first.
    ByPosition,
}

/// Common keys of items in lists without a schema, if their values are unique.
const COMMON: [&str; 6] = ["name", "key", "id", "type", "host", "path"];

/// Decides how to match, by how the list is merged, if others may add to it, and by what is in it.
pub(super) fn matching(merge: Option<&Merge>, prior: Option<&[Value]>, want: &[Value], have: &[Value]) -> Matching {
    let shared = match merge {
        Some(Merge::Set) => return Matching::Set,
        Some(Merge::ByKeys(keys)) => Some(keys),
        Some(Merge::AtomicMap) | None => None,
    };
    if want.iter().chain(have).any(|item| !item.is_object()) {
        return Matching::ByPosition;
    }
    let is_enough = |keys: &[ListKey]| is_unique(want, keys) && is_unique(have, keys);
    let prior = prior.unwrap_or_default();
    let pairing = |keys: &[ListKey]| [(want, have), (prior, have), (prior, want)].map(|(a, b)| pairs(a, b, keys));
    // A single key is easier to read, if it matches the same items as all keys of the server.
    let by_all = shared.filter(|keys| keys.len() > 1 && is_enough(keys)).map(|keys| pairing(keys));
    let common = COMMON.map(|name| ListKey { name: name.to_owned(), default: None });
    let first = shared.and_then(|keys| keys.first()).cloned();
    let alone = first.into_iter().chain(common).map(|key| vec![key]);
    let mut candidates = alone.chain(shared.cloned());
    match candidates.find(|keys| is_enough(keys) && by_all.as_ref().is_none_or(|all| *all == pairing(keys))) {
        Some(keys) => Matching::ByKeys { keys, shared: shared.is_some() },
        None => Matching::ByPosition,
    }
}

/// The values of an item under the keys, as one text.
pub(super) fn key_of(item: &Value, keys: &[ListKey]) -> Option<String> {
    let values: Option<Vec<String>> = keys.iter().map(|key| key.of(item)).collect();
    values.map(|values| values.join(","))
}

/// The step to the item with this text.
pub(super) fn step_to(keys: &[ListKey], text: String) -> Segment {
    let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
    Segment::Item { key: names.join(","), value: text }
}

/// The position of the first item with each key.
pub(super) fn positions(items: &[Value], keys: &[ListKey]) -> HashMap<String, usize> {
    let mut places = HashMap::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        if let Some(text) = key_of(item, keys) {
            places.entry(text).or_insert(place);
        }
    }
    places
}

/// For each item, the position of its counterpart.
fn pairs(items: &[Value], others: &[Value], keys: &[ListKey]) -> Vec<Option<usize>> {
    let places = positions(others, keys);
    items.iter().map(|item| places.get(&key_of(item, keys)?).copied()).collect()
}

fn is_unique(items: &[Value], keys: &[ListKey]) -> bool {
    let mut seen = HashSet::with_capacity(items.len());
    items.iter().all(|item| key_of(item, keys).is_some_and(|text| seen.insert(text)))
}
