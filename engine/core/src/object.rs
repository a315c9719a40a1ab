//! Kubernetes objects: their identity, the fields that their server sets, and those that are secret.

use std::collections::BTreeMap;

use base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD};
use base64::{Engine as _, alphabet};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::encrypted::is_encrypted;
use crate::path::FieldPath;

/// The identity of a Kubernetes object, with its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The API group; empty for core.
    pub group: String,
    /// The version in the group.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty when the object names none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// Reads it from an object; `None` when apiVersion, kind or name is not there as text.
    pub fn of(object: &Map<String, Value>) -> Option<Self> {
        let api_version = object.get("apiVersion")?.as_str()?;
        let (group, version) = split_api_version(api_version);
        let metadata = object.get("metadata")?.as_object()?;
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: object.get("kind")?.as_str()?.to_owned(),
            namespace: metadata.get("namespace").and_then(Value::as_str).unwrap_or_default().to_owned(),
            name: metadata.get("name")?.as_str()?.to_owned(),
        })
    }

    /// `group/version`, or `version` for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether it is a v1 Secret.
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }

    /// Whether it is a v1 Namespace.
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.kind == "Namespace"
    }

    /// Whether it is a CustomResourceDefinition.
    pub fn is_custom_resource_definition(&self) -> bool {
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }
}

/// An object that has nothing but what it is called.
pub fn named(object: &Map<String, Value>) -> Map<String, Value> {
    let known = |(key, value): (&String, &Value)| (!value.is_null()).then(|| (key.clone(), value.clone()));
    let of = |object: &Map<String, Value>, keys: [&str; 2]| -> Map<String, Value> {
        keys.iter().filter_map(|key| known(object.get_key_value(*key)?)).collect()
    };
    let mut named = of(object, ["apiVersion", "kind"]);
    if let Some(metadata) = object.get("metadata").and_then(Value::as_object) {
        named.insert("metadata".to_owned(), of(metadata, ["name", "namespace"]).into());
    }
    named
}

/// The infrastructure's name of a Kubernetes object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesObject {
    /// The cluster's name in the workspace; empty for an object that is only in a Git repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The API group; empty for core.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Whether an object is a v1 Secret. The kind is checked first, since it excludes most objects.
pub fn is_secret(object: &Map<String, Value>) -> bool {
    object.get("kind").is_some_and(|kind| kind == "Secret") && ObjectRef::of(object).is_some_and(|it| it.is_secret())
}

/// Splits `apps/v1` into group and version; core has the empty group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Metadata fields that only the server writes.
const SERVER_METADATA: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Annotations that tools and controllers write, the first of them a copy of the whole object.
const SERVER_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// Every field of `metav1.ObjectMeta`.
const METADATA: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Whether `key` under the map at `parent` (keys from the root) is set by the server, so that
/// comparing it says nothing.
pub fn is_server_set(parent: &[&str], key: &str) -> bool {
    match parent {
        [] => key == "status",
        ["metadata"] => SERVER_METADATA.contains(&key),
        ["metadata", "annotations"] => SERVER_ANNOTATIONS.contains(&key),
        _ => false,
    }
}

/// Whether objects of any kind may have this field.
pub(crate) fn may_exist(path: &FieldPath) -> bool {
    match path.0.as_slice() {
        [crate::path::Segment::Key(first), crate::path::Segment::Key(second), ..] if first == "metadata" => {
            METADATA.contains(&second.as_str())
        }
        _ => true,
    }
}

/// Whether a server may change this field on any update.
pub(crate) fn is_volatile(path: &FieldPath) -> bool {
    match path.0.as_slice() {
        [crate::path::Segment::Key(first), ..] if first == "status" => true,
        [crate::path::Segment::Key(first), crate::path::Segment::Key(second), ..] => {
            first == "metadata" && matches!(second.as_str(), "resourceVersion" | "generation" | "managedFields")
        }
        _ => false,
    }
}

/// Whether this field never changes, since it is a part of the identity.
pub(crate) fn is_fixed(path: &FieldPath) -> bool {
    match path.0.as_slice() {
        [crate::path::Segment::Key(first), crate::path::Segment::Key(second)] => {
            first == "metadata" && matches!(second.as_str(), "name" | "namespace" | "uid" | "creationTimestamp")
        }
        _ => false,
    }
}

/// The type of Secrets that Kubernetes fills with data (k8s.io/kubernetes/pkg/controller/serviceaccount).
const ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";

/// Whether a field has no default: the data of ConfigMaps and Secrets, except for service account tokens.
pub(crate) fn has_no_default(object: &Map<String, Value>, path: &FieldPath) -> bool {
    let [crate::path::Segment::Key(field), crate::path::Segment::Key(_), ..] = path.0.as_slice() else { return false };
    let is_filled_in = object.get("type").is_some_and(|kind| kind == ACCOUNT_TOKEN);
    !is_filled_in
        && ObjectRef::of(object).is_some_and(|it| {
            let is_data = matches!(
                (it.kind.as_str(), field.as_str()),
                ("ConfigMap", "data" | "binaryData") | ("Secret", "data" | "stringData")
            );
            it.group.is_empty() && is_data
        })
}

/// Whether a ConfigMap or Secret has data.
pub(crate) fn has_data(object: &Map<String, Value>) -> bool {
    let has_any = |value: &Value| match value {
        Value::Object(data) => data.values().any(|value| !value.is_null()),
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => true,
    };
    ["data", "binaryData", "stringData"].iter().filter_map(|field| object.get(*field)).any(has_any)
}

/// The uid that its server gave a live object.
pub fn uid_of(live: &Map<String, Value>) -> Option<&str> {
    live.get("metadata")?.get("uid")?.as_str()
}

/// Whether a live object is being deleted, which no apply can stop.
pub fn is_terminating(live: &Map<String, Value>) -> bool {
    deletion_time(live).is_some()
}

/// Since when a live object is being deleted, if it is.
pub fn deletion_time(live: &Map<String, Value>) -> Option<&Value> {
    live.get("metadata")?.get("deletionTimestamp").filter(|time| !time.is_null())
}

/// Whether Kubernetes creates the object in every new namespace, so that it may exist before the namespace's owner applies
/// it (k8s.io/kubernetes/pkg/controller: serviceaccount, certificates/rootcacertpublisher).
pub fn is_auto_created(group: &str, kind: &str, name: &str) -> bool {
    matches!((group, kind, name), ("", "ServiceAccount", "default") | ("", "ConfigMap", "kube-root-ca.crt"))
}

/// The live object without what is no use to keep: managedFields, and the copy of itself that
/// `kubectl apply` leaves in an annotation (in clear, for a Secret).
#[must_use]
pub fn without_bookkeeping(mut live: Map<String, Value>) -> Map<String, Value> {
    if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(SERVER_ANNOTATIONS[0]);
        }
    }
    live
}

/// Whether an object is a ClusterRole with an `aggregationRule`: the control plane writes its `rules`
/// (k8s.io/kubernetes/pkg/controller/clusterroleaggregation).
pub fn is_aggregated_role(object: &Map<String, Value>) -> bool {
    object.get("aggregationRule").is_some_and(|rule| !rule.is_null())
        && ObjectRef::of(object).is_some_and(|it| it.group == "rbac.authorization.k8s.io" && it.kind == "ClusterRole")
}

/// The object for a creation: an aggregated ClusterRole without its `rules`.
#[must_use]
pub fn without_aggregated_rules(mut object: Map<String, Value>) -> Map<String, Value> {
    if is_aggregated_role(&object) {
        object.remove("rules");
    }
    object
}

/// A Secret as its server keeps it: `stringData` in base64 under `data`. `None` for anything else, such as one that is
/// encrypted and that no server has in this form.
pub fn secret_as_stored(object: &Map<String, Value>) -> Option<Map<String, Value>> {
    if !is_secret(object) || is_encrypted(object) {
        return None;
    }
    let Some(Value::Object(strings)) = object.get("stringData") else { return None };
    let encoded: BTreeMap<_, _> = strings
        .iter()
        .map(|(key, value)| {
            let value = match value {
                Value::String(text) => Value::from(STANDARD.encode(text)),
                // Go reads null as an empty text here, and as no bytes in `data`.
                Value::Null => Value::from(""),
                other => other.clone(),
            };
            (key.clone(), value)
        })
        .collect();
    let mut stored = object.clone();
    stored.remove("stringData");
    let data = stored.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    data.as_object_mut()?.extend(encoded);
    Some(stored)
}

/// Whether Go's decoder accepts a text as base64: it skips line ends, and ignores the unused bits of the last letter.
pub fn is_base64(text: &str) -> bool {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));
    let in_one_line: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    LENIENT.decode(in_one_line).is_ok()
}

/// The base64 of a text.
pub(crate) fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// The text behind base64, when it is both.
pub(crate) fn decoded(text: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn string_data_overrides_data() {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"},
            "data": {"user": "YQ==", "password": "b2xk"}, "stringData": {"password": "new", "empty": null},
        });
        let stored = secret_as_stored(secret.as_object().unwrap()).unwrap();
        assert_eq!(stored["data"], json!({"user": "YQ==", "password": "bmV3", "empty": ""}));
        assert!(!stored.contains_key("stringData"));
    }

    #[test]
    fn data_defaults_in_token_secrets_only() {
        let is_filled_by_nobody = |object: Value, path: [&str; 2]| {
            let mut object = object.as_object().unwrap().clone();
            object.insert("metadata".to_owned(), json!({"name": "a"}));
            has_no_default(&object, &FieldPath::of_keys(path))
        };
        let map = || json!({"apiVersion": "v1", "kind": "ConfigMap"});
        assert!(is_filled_by_nobody(map(), ["data", "a"]) && is_filled_by_nobody(map(), ["binaryData", "a"]));
        assert!(!is_filled_by_nobody(map(), ["metadata", "uid"]));
        let secret = |kind: &str| json!({"apiVersion": "v1", "kind": "Secret", "type": kind});
        assert!(is_filled_by_nobody(secret("Opaque"), ["data", "token"]));
        assert!(!is_filled_by_nobody(secret(ACCOUNT_TOKEN), ["data", "token"]));
        let other = json!({"apiVersion": "x.dev/v1", "kind": "Secret"});
        assert!(!is_filled_by_nobody(other, ["data", "token"]));
    }

    #[test]
    fn empty_data_counts_as_none() {
        let has = |object: Value| has_data(object.as_object().unwrap());
        for empty in [json!({}), json!({"data": {}}), json!({"data": null, "stringData": {"a": null}})] {
            assert!(!has(empty.clone()), "{empty}");
        }
        for field in ["data", "binaryData", "stringData"] {
            assert!(has(json!({field: {"a": ""}})), "{field}");
        }
    }

    #[test]
    fn last_applied_copy_is_removed() {
        let live = json!({"metadata": {"managedFields": [], "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{\"data\":…}", "a": "b"}}});
        let kept = without_bookkeeping(live.as_object().unwrap().clone());
        assert_eq!(Value::Object(kept), json!({"metadata": {"annotations": {"a": "b"}}}));
    }
}
