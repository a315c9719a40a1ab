//! Kinds and values for tests, also those of other crates (feature `testing`).

use std::collections::BTreeMap;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, schemars::JsonSchema};
use kube::CustomResource;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protobuf::MAGIC;

/// A thing to decode.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(group = "test.example", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
#[serde(rename_all = "camelCase")]
pub struct WidgetSpec {
    pub(crate) size: i32,
    #[serde(default = "three")]
    pub(crate) count: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parameters: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    #[schemars(regex(pattern = "^[a-z]+$"), length(max = 5))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) when: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nested: Option<Nested>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "anything")]
    pub(crate) extra: Value,
}

fn three() -> u8 {
    3
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Part {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) enum Mode {
    /// Not so fast.
    Slow,
    Fast,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Nested {
    #[serde(default)]
    pub(crate) on: bool,
    pub(crate) deep: Option<Box<Part>>,
}

/// The status of a widget.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct WidgetStatus {
    pub(crate) phase: Option<String>,
}

/// Any JSON value, with what has to be escaped in its texts.
pub fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é€\u{2028}\"\\\\{}\\[\\],:]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z\"\\\\]{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A field of a message in protobuf: bytes, a text or another message.
pub fn protobuf_field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(number, &bytes.to_vec(), &mut field);
    field
}

/// A body as a Go client sends it, with the fields of a message.
pub fn protobuf_body(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let kind = [protobuf_field(1, version.as_bytes()), protobuf_field(2, kind.as_bytes())].concat();
    let empty = [protobuf_field(3, b""), protobuf_field(4, b"")].concat();
    [MAGIC, &protobuf_field(1, &kind), &protobuf_field(2, message), &empty].concat()
}
