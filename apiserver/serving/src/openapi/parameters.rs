//! The query and path parameters of operations.

use serde_json::{Value, json};

const PARAMETERS: &[(&str, &str, &str)] = &[
    ("allowWatchBookmarks", "boolean", "Asks a watch for events of type BOOKMARK, which carry only a resourceVersion."),
    ("continue", "string", "The token of the page before, from metadata.continue, when a list is read page by page."),
    ("dryRun", "string", "With the value All, everything is done but nothing is stored."),
    (
        "fieldManager",
        "string",
        "The name under which changes of fields are recorded, at most 128 printable characters. Required for apply \
         requests; otherwise the beginning of the user agent stands in.",
    ),
    ("fieldSelector", "string", "Restricts the objects to those with such values in their fields."),
    (
        "fieldValidation",
        "string",
        "What becomes of unknown and duplicate fields in the body: Ignore drops them, Warn (the default) drops them \
         with a warning each, Strict refuses the request.",
    ),
    ("force", "boolean", "Takes over fields of other managers. Only for apply requests."),
    ("gracePeriodSeconds", "integer", "The seconds that an object has before it is removed; 0 means at once."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Alpha upstream. Deletes what is stored and does not decode, of which nothing else can be asked; takes the verb \
         unsafe-delete-ignore-read-errors. What does decode is deleted as without it.",
    ),
    ("labelSelector", "string", "Restricts the objects to those with such labels."),
    ("limit", "integer", "The most objects that a list returns; metadata.continue then leads to the rest."),
    ("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
    ("pretty", "string", "With the value true, the response is indented."),
    (
        "propagationPolicy",
        "string",
        "What becomes of the objects that this one owns: Orphan leaves them, Background deletes them afterwards, \
         Foreground deletes them first.",
    ),
    (
        "resourceVersion",
        "string",
        "The version that is read, see resourceVersionMatch; for a watch, the version after which it starts.",
    ),
    ("resourceVersionMatch", "string", "How resourceVersion applies to a list: Exact or NotOlderThan."),
    (
        "sendInitialEvents",
        "boolean",
        "Begins a watch with the objects that exist, followed by a bookmark with the annotation \
         k8s.io/initial-events-end.",
    ),
    ("shardSelector", "string", "Alpha upstream, and without effect: lists and watches are of all objects."),
    ("timeoutSeconds", "integer", "How long a list may take or a watch lasts."),
    ("watch", "boolean", "Streams the changes instead of listing the objects."),
];

pub(super) const LIST: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
    "watch",
];
pub(super) const WRITE: &[&str] = &["dryRun", "fieldManager", "fieldValidation"];
pub(super) const PATCH: &[&str] = &["dryRun", "fieldManager", "fieldValidation", "force"];
pub(super) const DELETE: &[&str] = &[
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
pub(super) const DELETE_COLLECTION: &[&str] = &[
    "continue",
    "dryRun",
    "fieldSelector",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "labelSelector",
    "limit",
    "orphanDependents",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
];
pub(super) const COMMON: &[&str] = &["pretty"];

pub(super) fn query(names: &[&str]) -> Vec<Value> {
    PARAMETERS
        .iter()
        .filter(|(name, ..)| names.contains(name))
        .map(|(name, kind, description)| {
            json!({
                "name": name,
                "in": "query",
                "description": description,
                "schema": { "type": kind, "uniqueItems": true },
            })
        })
        .collect()
}

pub(super) fn path(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "description": description,
        "schema": { "type": "string", "uniqueItems": true },
    })
}
