//! The patcher of an answer: changes of the workload, and patches of other resources.
//!
//! Modules of Kusion's framework write it from types of Go by a YAML library. So fields of Kubernetes' types are in lower case, with
//! embedded types as fields, and bytes are a list of numbers. Both that and the usual form are read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The changes that an answer makes to the resources of others.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Patcher {
    /// Variables of all containers of the workload, as Kubernetes has them.
    #[serde(deserialize_with = "variables")]
    pub environments: Vec<Map<String, Value>>,
    /// Labels of the workload.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    /// Labels of its Pods.
    #[serde(deserialize_with = "null_as_default")]
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the workload.
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
    /// Annotations of its Pods.
    #[serde(deserialize_with = "null_as_default")]
    pub pod_annotations: BTreeMap<String, String>,
    /// Patches of resources by their ids.
    #[serde(deserialize_with = "null_as_default", rename = "jsonPatcher")]
    pub json_patches: BTreeMap<String, JsonPatch>,
}

/// A patch of one resource.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JsonPatch {
    /// The form of the payload.
    #[serde(rename = "type")]
    pub kind: PatchType,
    /// The patch.
    #[serde(deserialize_with = "payload")]
    pub payload: Value,
}

/// The form of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum PatchType {
    /// RFC 7396.
    MergePatch,
    /// RFC 6902.
    JSONPatch,
}

fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn variables<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Map<String, Value>>, D::Error> {
    let list: Vec<Map<String, Value>> = null_as_default(deserializer)?;
    Ok(list.into_iter().map(usual).collect())
}

/// The names that a YAML library of Go writes for fields of a variable, and Kubernetes' own.
const FIELDS: [(&str, &str); 10] = [
    ("valuefrom", "valueFrom"),
    ("fieldref", "fieldRef"),
    ("resourcefieldref", "resourceFieldRef"),
    ("configmapkeyref", "configMapKeyRef"),
    ("secretkeyref", "secretKeyRef"),
    ("filekeyref", "fileKeyRef"),
    ("apiversion", "apiVersion"),
    ("fieldpath", "fieldPath"),
    ("containername", "containerName"),
    ("volumename", "volumeName"),
];
/// The embedded type with the name of a Secret or ConfigMap.
const EMBEDDED: &str = "localobjectreference";

/// A map with the usual names of its fields, without null and empty texts that Go writes for missing fields.
fn usual(map: Map<String, Value>) -> Map<String, Value> {
    let has_source = map.iter().any(|(name, value)| name.eq_ignore_ascii_case("valueFrom") && !value.is_null());
    let mut found = Map::new();
    for (name, value) in map {
        let value = match value {
            Value::Null => continue,
            Value::Object(map) if name == EMBEDDED => {
                found.extend(usual(map));
                continue;
            }
            Value::Object(map) => Value::Object(usual(map)),
            Value::String(text) if text.is_empty() && (has_source || name != "value") => continue,
            other => other,
        };
        let name = FIELDS.iter().find(|(lower, _)| *lower == name).map_or(name, |(_, usual)| (*usual).to_owned());
        found.insert(name, value);
    }
    found
}

/// The JSON of a payload: bytes as a list of numbers, a text, or JSON itself.
fn payload<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let wrong = |error: serde_json::Error| serde::de::Error::custom(format!("the payload is no JSON: {error}"));
    match Value::deserialize(deserializer)? {
        Value::String(text) => serde_json::from_str(&text).map_err(wrong),
        Value::Array(list) => {
            let bytes: Option<Vec<u8>> = list.iter().map(|it| u8::try_from(it.as_u64()?).ok()).collect();
            match bytes.filter(|bytes| !bytes.is_empty()) {
                Some(bytes) => serde_json::from_slice(&bytes).map_err(wrong),
                None => Ok(Value::Array(list)),
            }
        }
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Patcher {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn forms_of_go_and_kubernetes_are_equal() {
        let expected = json!([
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b"}}},
            {"name": "C", "value": ""},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]);
        let of_go = json!([
            {"name": "A", "value": "1", "valuefrom": null},
            {"name": "B", "value": "", "valuefrom": {
                "fieldref": null, "resourcefieldref": null, "configmapkeyref": null,
                "secretkeyref": {"localobjectreference": {"name": "keys"}, "key": "b", "optional": null},
            }},
            {"name": "C", "value": "", "valuefrom": null},
            {"name": "D", "value": "", "valuefrom": {"fieldref": {"apiversion": "", "fieldpath": "metadata.name"}}},
        ]);
        for environments in [&expected, &of_go] {
            let found = read(json!({"environments": environments})).environments;
            assert_eq!(json!(found), expected);
        }
    }

    #[test]
    fn payloads_are_bytes_texts_or_json() {
        let text = r#"[{"op":"remove","path":"/a"}]"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        for payload in [json!(text), json!(text.as_bytes()), expected.clone()] {
            let found = read(json!({"jsonPatcher": {"x": {"type": "JSONPatch", "payload": payload}}}));
            assert_eq!(found.json_patches["x"], JsonPatch { kind: PatchType::JSONPatch, payload: expected.clone() });
        }
        let wrong = json!({"jsonPatcher": {"x": {"type": "MergePatch", "payload": "{"}}});
        let error = serde_json::from_value::<Patcher>(wrong).unwrap_err();
        assert!(error.to_string().starts_with("the payload is no JSON: "), "{error}");
    }

    #[test]
    fn unknown_parts_are_errors() {
        for value in [json!({"label": {}}), json!({"jsonPatcher": {"x": {"type": "Patch", "payload": "{}"}}})] {
            serde_json::from_value::<Patcher>(value).unwrap_err();
        }
        assert_eq!(read(json!({"labels": null, "environments": null})), Patcher::default());
    }
}
