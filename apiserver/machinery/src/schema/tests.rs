//! Decoding as clients see it: one small kind, bodies in, objects and errors out.

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, schemars::JsonSchema};
use kube::{CustomResource, CustomResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::status::ApiError;

/// A thing to decode.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "test.example", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct WidgetSpec {
    size: i32,
    #[serde(default = "three")]
    count: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parameters: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[schemars(regex(pattern = "^[a-z]+$"), length(max = 5))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nested: Option<Nested>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "anything")]
    extra: Value,
}

fn three() -> u8 {
    3
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Part {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
enum Mode {
    /// Not so fast.
    Slow,
    Fast,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
struct Nested {
    #[serde(default)]
    on: bool,
    deep: Option<Box<Part>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct WidgetStatus {
    phase: Option<String>,
}

fn decoder() -> Decoder {
    Decoder::new(&ResourceDefinition::from_crd(&Widget::crd())).unwrap()
}

fn decode(body: impl AsRef<str>, format: Format, validation: FieldValidation) -> Result<Decoded, ApiError> {
    decoder().decode(body.as_ref().as_bytes(), format, validation)
}

fn object(spec: &Value) -> String {
    json!({ "apiVersion": "test.example/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": spec }).to_string()
}

/// The spec that a JSON body decodes to.
fn spec(spec: &Value) -> Value {
    decode(object(spec), Format::Json, FieldValidation::Strict).unwrap().object.0["spec"].clone()
}

/// The message that a body is refused with.
fn refusal(body: impl AsRef<str>, format: Format) -> String {
    let error = decode(body, format, FieldValidation::Strict).unwrap_err();
    assert_eq!((error.code(), error.reason()), (400, "BadRequest"));
    error.message().to_owned()
}

#[test]
fn defaults_are_applied_where_a_field_is_missing_or_null() {
    assert_eq!(spec(&json!({ "size": 1 })), json!({ "size": 1, "count": 3 }));
    assert_eq!(spec(&json!({ "size": 1, "count": null })), json!({ "size": 1, "count": 3 }));
    assert_eq!(
        spec(&json!({ "size": 1, "count": 0, "nested": {} })),
        json!({ "size": 1, "count": 0, "nested": { "on": false } })
    );
}

#[test]
fn unknown_and_duplicate_fields_are_errors_warnings_or_dropped() {
    let body = r#"{"apiVersion":"test.example/v1","kind":"Widget","metadata":{"name":"w","nickname":"x"},
        "spec":{"size":1,"zise":{"a":1,"a":2},"size":2,"parts":[{"name":"a","hue":1},{"name":"b","hue":1}]},"extra":1}"#;
    let texts = [
        r#"unknown field "metadata.nickname""#,
        r#"unknown field "spec.zise""#,
        r#"duplicate field "spec.size""#,
        r#"unknown field "spec.parts[0].hue""#,
        r#"unknown field "spec.parts[1].hue""#,
        r#"unknown field "extra""#,
    ];
    let expected =
        format!("Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: {}", texts.join(", "));
    assert_eq!(refusal(body, Format::Json), expected);
    let warned = decode(body, Format::Json, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, texts);
    let ignored = decode(body, Format::Json, FieldValidation::Ignore).unwrap();
    assert_eq!(ignored.warnings, [""; 0]);
    assert_eq!(ignored.object, warned.object);
    assert_eq!(ignored.object.0["spec"], json!({ "size": 2, "count": 3, "parts": [{ "name": "a" }, { "name": "b" }] }));
}
