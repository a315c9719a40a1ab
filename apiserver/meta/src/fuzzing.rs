//! Properties of everything that reads bytes from outside, as functions for a fuzzer to call.
//!
//! Each target takes any bytes and panics when something does not hold that should: that nothing panics, that what
//! was read is read the same once it was written, that two readers agree, that limits are kept. The functions stand
//! beside what they are about; how they are run is in `tests/fuzz`.

use std::sync::{Arc, LazyLock};

use serde_json::json;

use crate::{
    definition::{ALL_VERBS, ResourceDefinition, SelectableField},
    managed_fields,
    object::Object,
    patch, schema, selector,
    status::ApiError,
};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    ("json", schema::fuzzing::json),
    ("yaml", schema::fuzzing::yaml),
    ("patches", patch::fuzzing::patches),
    ("selectors", selector::fuzzing::selectors),
    ("managed_fields", managed_fields::fuzzing::managed_fields),
    ("apply", managed_fields::fuzzing::apply),
];

/// A kind with a field of every sort that schemas know.
pub static WIDGET: LazyLock<Arc<ResourceDefinition>> = LazyLock::new(|| {
    let part = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": { "type": "string", "default": "" },
            "port": { "x-kubernetes-int-or-string": true },
            "weight": { "type": "number", "minimum": 0 },
            "tags": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        },
    });
    let spec = json!({
        "type": "object",
        "properties": {
            "size": { "type": "integer", "format": "int32", "minimum": 0, "maximum": 100 },
            "count": { "type": "integer", "format": "int64", "default": 3 },
            "on": { "type": "boolean" },
            "ratio": { "type": "number" },
            "code": { "type": "string", "pattern": "^[a-z]+$", "maxLength": 5 },
            "mode": { "type": "string", "enum": ["Slow", "Fast"] },
            "when": { "type": "string", "format": "date-time", "nullable": true },
            "data": { "type": "string", "format": "byte" },
            "parameters": { "type": "object", "additionalProperties": { "type": "string" } },
            "parts": {
                "type": "array", "items": part.clone(), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
            },
            "set": {
                "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "list": { "type": "array", "items": { "type": "integer", "format": "int64" } },
            "times": { "type": "array", "items": { "type": "string", "format": "date-time" } },
            "nested": { "type": "object", "properties": { "on": { "type": "boolean" }, "deep": part.clone() } },
            "whole": {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "additionalProperties": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            },
            "lists": { "type": "object", "additionalProperties": { "type": "array", "items": part } },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
    });
    Arc::new(ResourceDefinition {
        group: "test.example".to_owned(),
        version: "v1".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
        singular: "widget".to_owned(),
        schema: Arc::new(json!({
            "type": "object",
            "properties": {
                "metadata": { "type": "object" },
                "spec": spec,
                "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
            },
        })),
        selectable_fields: vec![SelectableField { name: "spec.mode", path: &["spec", "mode"] }],
        has_status: true,
        verbs: ALL_VERBS.to_vec(),
        ..ResourceDefinition::default()
    })
});

/// What patches are applied to when the input brings nothing.
pub static OBJECT: LazyLock<Object> = LazyLock::new(|| {
    let object = json!({
        "apiVersion": "test.example/v1",
        "kind": "Widget",
        "metadata": { "name": "w", "namespace": "default", "labels": { "a": "b" }, "finalizers": ["x/y"] },
        "spec": {
            "size": 1, "count": 2, "set": ["a", "b"], "list": [1, 2], "parameters": { "k": "v" },
            "parts": [{ "name": "a", "port": 80, "tags": ["x"] }, { "name": "b", "port": "http" }],
            "nested": { "on": true, "deep": { "name": "c" } }, "free": { "x": { "y": [1] } },
        },
    });
    Object(object.as_object().expect("a map").clone())
});

/// Refused as clients may expect it: as a Status with a code that fits and some words.
pub fn refused(error: &ApiError, codes: &[u16]) {
    assert!(codes.contains(&error.code()) && !error.message().is_empty(), "{error:?}");
}

/// The lines of an input, for targets that read several things; what is no UTF-8 is replaced.
pub fn lines(data: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(data).split('\n').map(str::to_owned).collect()
}
