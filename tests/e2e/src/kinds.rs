//! The kinds of Stoa, as `tests/data/kinds.json` lists them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A kind as the server has to serve it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// The API group.
    pub group: String,
    /// The version, such as `v1alpha1`.
    pub version: String,
    /// The kind, such as `Stack`.
    pub kind: String,
    /// The resource, such as `stacks`.
    pub plural: String,
    /// The singular noun, such as `stack`.
    pub singular: String,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Categories for kubectl.
    pub categories: Vec<String>,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// The verbs, sorted.
    pub verbs: Vec<String>,
    /// The verbs of the subresources, sorted.
    pub subresources: BTreeMap<String, Vec<String>>,
    /// Verbs by ClusterRole and subresource; `""` is the objects themselves.
    pub rights: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// Returns all kinds, group by group.
///
/// # Panics
///
/// When the list does not decode.
pub fn kinds() -> Vec<Kind> {
    serde_json::from_str(include_str!("../../data/kinds.json")).expect("a list of kinds")
}
