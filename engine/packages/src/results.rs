//! The results of functions: single findings, the list of all functions, and Porch's status of a render.
//!
//! Follows `pkg/api/fnresult/v1` of kpt and `fn/framework/result.go` of kyaml.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One finding of a function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// A message for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `error`, `warning` or `info`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub severity: String,
    /// The object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_ref: Option<ResourceRef>,
    /// The field of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<Field>,
    /// The file of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileRef>,
    /// Data of programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Value>,
}

/// The object of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRef {
    /// The apiVersion.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// The field of a finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// The path, such as `spec.replicas`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The value that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_value: Option<Value>,
    /// A value that corrects the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_value: Option<Value>,
}

/// The file of a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileRef {
    /// The path in the package.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The position of the object in the file, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub index: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(index: &usize) -> bool {
    *index == 0
}

impl Finding {
    /// A finding of severity `info`.
    pub fn info(message: impl Into<String>) -> Self {
        Self { message: message.into(), severity: "info".to_owned(), ..Self::default() }
    }

    /// A finding of severity `error`.
    pub fn error(message: impl Into<String>) -> Self {
        Self { message: message.into(), severity: "error".to_owned(), ..Self::default() }
    }
}

impl fmt::Display for Finding {
    /// `[error] v1/ConfigMap/name spec.field: message`, as kpt prints it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.severity.is_empty() { "info" } else { &self.severity };
        write!(formatter, "[{severity}]")?;
        if let Some(object) = &self.resource_ref {
            let parts = [&object.api_version, &object.kind, &object.namespace, &object.name];
            let parts: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            if !parts.is_empty() {
                write!(formatter, " {}", parts.join("/"))?;
            }
        }
        if let Some(field) = &self.field {
            write!(formatter, " {}", field.path)?;
        }
        write!(formatter, ": {}", self.message)
    }
}

/// Reads the `results` of an answer: a list, or a map with the list as `items`. Forms of old SDKs are converted.
///
/// # Errors
///
/// The problem in the words of serde.
pub(crate) fn parse(results: &Value) -> Result<Vec<Finding>, String> {
    let list = match results.get("items") {
        Some(items) => items,
        None => results,
    };
    let items = match list {
        Value::Array(items) => items.as_slice(),
        Value::Null | Value::Object(_) => &[],
        _ => return Err("results must be a list".to_owned()),
    };
    items.iter().map(|item| parse_item(item.clone())).collect()
}

/// The fields of a finding that are text.
const TEXTS: [&str; 8] = [
    "/message",
    "/severity",
    "/resourceRef/apiVersion",
    "/resourceRef/kind",
    "/resourceRef/name",
    "/resourceRef/namespace",
    "/field/path",
    "/file/path",
];

fn parse_item(mut item: Value) -> Result<Finding, String> {
    if let Some(metadata) = item.pointer("/resourceRef/metadata").cloned() {
        for key in ["name", "namespace"] {
            if let Some(text @ Value::String(_)) = metadata.get(key) {
                item["resourceRef"][key] = text.clone();
            }
        }
    }
    if let Some(value) = item.pointer("/field/suggestedValue").cloned() {
        item["field"]["proposedValue"] = value;
    }
    // kyaml writes an index as text in some versions.
    if let Some(index) = item.pointer("/file/index").and_then(Value::as_str).and_then(|text| text.parse::<usize>().ok())
    {
        item["file"]["index"] = index.into();
    }
    // YAML has words that are no text, such as `no`.
    for pointer in TEXTS {
        if let Some(field @ (Value::Bool(_) | Value::Number(_))) = item.pointer_mut(pointer) {
            *field = scalar_text(field).into();
        }
    }
    remove_nulls(&mut item);
    serde_json::from_value(item).map_err(|error| error.to_string())
}

fn remove_nulls(item: &mut Value) {
    if let Value::Object(fields) = item {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(remove_nulls);
    }
}

/// The outcome of one function.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionResult {
    /// The image with its registry; empty for a command.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The whole command; empty for an image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub exec: String,
    /// Its standard error.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Its exit code.
    pub exit_code: i32,
    /// Its findings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Finding>,
}

/// The outcome of all functions: the object `FunctionResultList` of `kpt.dev/v1`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionResultList {
    /// 0, or 1 when a function failed.
    pub exit_code: i32,
    /// The functions in the order in which they ran.
    pub items: Vec<FunctionResult>,
}

impl FunctionResultList {
    /// The list as an object, as kpt writes it to `results.yaml`.
    pub fn to_value(&self) -> Value {
        let mut object = json!({
            "apiVersion": "kpt.dev/v1",
            "kind": "FunctionResultList",
            "metadata": {"name": "fnresults"},
            "exitCode": self.exit_code,
        });
        if !self.items.is_empty() {
            object["items"] = json!(self.items);
        }
        object
    }

    /// Porch's `status.renderStatus`: this list and the error. Values of fields are text in it.
    pub fn to_render_status(&self, error: &str) -> Value {
        let mut result = self.to_value();
        for item in result.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            for finding in item.get_mut("results").and_then(Value::as_array_mut).into_iter().flatten() {
                for key in ["currentValue", "proposedValue"] {
                    if let Some(value) = finding.get_mut("field").and_then(|field| field.get_mut(key)) {
                        *value = scalar_text(value).into();
                    }
                }
            }
        }
        json!({"result": result, "error": error})
    }
}

/// A value as text; what is no text is JSON.
pub(crate) fn scalar_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_every_sdk_are_read() {
        let full = json!({
            "message": "m",
            "severity": "error",
            "resourceRef": {"apiVersion": "v1", "kind": "A", "name": "n", "namespace": "s"},
            "field": {"path": "spec.x", "currentValue": 1, "proposedValue": "2"},
            "file": {"path": "a.yaml", "index": 1},
        });
        let old = json!({
            "message": "m",
            "severity": "error",
            "resourceRef": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "n", "namespace": "s"}},
            "field": {"path": "spec.x", "currentValue": 1, "suggestedValue": "2"},
            "file": {"path": "a.yaml", "index": "1"},
        });
        let found = parse(&json!([full])).unwrap();
        assert_eq!(parse(&json!({"metadata": {"name": "x"}, "items": [old]})), Ok(found.clone()));
        assert_eq!(found[0].to_string(), "[error] v1/A/s/n spec.x: m");
        assert_eq!(serde_json::to_value(&found[0]).unwrap(), full);
        assert_eq!(parse(&Value::Null), Ok(Vec::new()));
        assert_eq!(parse(&json!([{"message": "a", "resourceRef": null}])).unwrap()[0].to_string(), "[info]: a");
        assert!(parse(&json!("a")).is_err());
    }

    #[test]
    fn list_leaves_out_index_zero() {
        let mut finding = Finding::info("m");
        finding.file = Some(FileRef { path: "a.yaml".to_owned(), index: 0 });
        finding.field = Some(Field { current_value: Some(json!(3)), ..Field::default() });
        let item = FunctionResult { exec: "fn a".to_owned(), results: vec![finding], ..FunctionResult::default() };
        let list = FunctionResultList { exit_code: 0, items: vec![item] };
        let expected = json!({
            "apiVersion": "kpt.dev/v1",
            "kind": "FunctionResultList",
            "metadata": {"name": "fnresults"},
            "exitCode": 0,
            "items": [{
                "exec": "fn a",
                "exitCode": 0,
                "results": [{
                    "message": "m",
                    "severity": "info",
                    "file": {"path": "a.yaml"},
                    "field": {"currentValue": 3},
                }],
            }],
        });
        assert_eq!(list.to_value(), expected);
        let status = list.to_render_status("e");
        assert_eq!(status["error"], "e");
        assert_eq!(status["result"]["items"][0]["results"][0]["field"]["currentValue"], "3");
    }
}
