//! Schemas in OpenAPI 3.0's dialect, and in it as Go's generator writes them: `k8s.io/kube-openapi/pkg/generators/openapi.go`.

use serde_json::{Map, Value, json};

use super::schemas::reference;

/// Types that read their JSON themselves, null included, which therefore have no zero value.
const READ_THEMSELVES: &[&str] = &["FieldsV1", "IntOrString", "JSON", "MicroTime", "Quantity", "RawExtension", "Time"];

/// A schema in OpenAPI 3.0's dialect: references to components and with nothing beside them,
/// one type, `nullable` and `enum` for what JSON Schema says with null types and `const`.
pub(super) fn convert(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return json!({}) };
    let mut out = Map::new();
    for (key, value) in schema {
        match key.as_str() {
            "$schema" | "$id" | "$defs" | "definitions" | "title" | "examples" => {}
            "default" if value.is_null() => {}
            // A structural schema does not say it: fields that it does not name are not there.
            "additionalProperties" if *value == Value::Bool(false) => {}
            "const" => drop(out.insert("enum".to_owned(), json!([value]))),
            "properties" | "patternProperties" => drop(out.insert(key.clone(), convert_each(value))),
            "not" => drop(out.insert(key.clone(), convert(value))),
            "items" => drop(out.insert(key.clone(), convert_element(value))),
            "additionalProperties" if value.is_object() => drop(out.insert(key.clone(), convert_element(value))),
            "allOf" | "anyOf" | "oneOf" => convert_alternatives(key, value, &mut out),
            "type" => convert_type(value, &mut out),
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_number() => {
                out.insert(key.replace("exclusiveM", "m"), value.clone());
                out.insert(key.clone(), true.into());
            }
            _ => drop(out.insert(key.clone(), value.clone())),
        }
    }
    if let Some(Value::String(target)) = out.remove("$ref") {
        let target = reference(target.rsplit('/').next().unwrap_or_default());
        if out.is_empty() {
            return target;
        }
        out.insert("allOf".to_owned(), json!([target]));
    }
    Value::Object(out)
}

/// Fields. Null leaves any of them unset, so that none says so of itself.
fn convert_each(properties: &Value) -> Value {
    let convert_field = |schema: &Value| {
        let mut converted = convert(schema);
        if let Value::Object(field) = &mut converted
            && field.remove("nullable").is_some()
            && let Some(Value::Array(values)) = field.get_mut("enum")
        {
            values.retain(|value| !value.is_null());
        }
        converted
    };
    let each = properties.as_object().into_iter().flatten();
    Value::Object(each.map(|(name, schema)| (name.clone(), convert_field(schema))).collect())
}

/// What a list or a map has. In it, null stands for a zero value, which is the default.
fn convert_element(schema: &Value) -> Value {
    with_default(convert(schema))
}

/// The same schema with its zero value for a default, unless it has another or none.
pub(super) fn with_default(mut schema: Value) -> Value {
    if let Some(zero) = zero(&schema)
        && let Value::Object(map) = &mut schema
    {
        // Nothing may stand beside a reference.
        if let Some(target) = map.remove("$ref") {
            map.insert("allOf".to_owned(), json!([{ "$ref": target }]));
        }
        map.entry("default").or_insert(zero);
    }
    schema
}

/// What null stands for, as in `mustEnforceDefault` of the generator. A value that the schema itself refuses is none.
fn zero(schema: &Value) -> Option<Value> {
    if schema["nullable"] == true || schema.get("enum").is_some() {
        return None;
    }
    if let Some(target) = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")).and_then(Value::as_str) {
        let kind = target.rsplit('.').next().unwrap_or_default();
        return (!READ_THEMSELVES.contains(&kind)).then(|| json!({}));
    }
    match (schema["type"].as_str()?, schema["format"].as_str()) {
        ("string", Some("byte" | "date-time")) => None,
        ("string", _) => Some("".into()),
        ("integer" | "number", _) => Some(0.into()),
        ("boolean", _) => Some(false.into()),
        ("object", _) if schema.get("properties").is_some() => Some(json!({})),
        _ => None,
    }
}

fn convert_type(types: &Value, out: &mut Map<String, Value>) {
    let Some(names) = types.as_array() else {
        out.insert("type".to_owned(), types.clone());
        return;
    };
    let (null, others): (Vec<&Value>, Vec<&Value>) = names.iter().partition(|name| *name == "null");
    if !null.is_empty() {
        out.insert("nullable".to_owned(), true.into());
    }
    if let [only] = others[..] {
        out.insert("type".to_owned(), only.clone());
    }
}

/// Alternatives of which one is null are one nullable schema.
fn convert_alternatives(key: &str, alternatives: &Value, out: &mut Map<String, Value>) {
    let is_null = |schema: &&Value| schema["type"] == "null" || schema["enum"] == json!([null]);
    let all: Vec<&Value> = alternatives.as_array().into_iter().flatten().collect();
    let others: Vec<&Value> = all.iter().copied().filter(|schema| !is_null(schema)).collect();
    if others.len() < all.len() {
        out.insert("nullable".to_owned(), true.into());
    }
    match (convert_all(&others).as_slice(), others.len() < all.len()) {
        ([only], true) if only.get("$ref").is_some() => drop(out.insert("allOf".to_owned(), json!([only]))),
        ([Value::Object(only)], true) => {
            for (name, value) in only {
                out.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        (others, _) => drop(out.insert(key.to_owned(), others.into())),
    }
}

fn convert_all(schemas: &[&Value]) -> Vec<Value> {
    schemas.iter().map(|schema| convert(schema)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_zero_value_for_a_default() {
        let default = |element: Value| {
            let of = |field: &str| {
                let converted = convert(&json!({ field: element }));
                converted[field].get("default").cloned()
            };
            assert_eq!(of("items"), of("additionalProperties"));
            of("items")
        };
        assert_eq!(default(json!({ "type": "string" })), Some("".into()));
        assert_eq!(default(json!({ "type": "integer", "format": "int32" })), Some(0.into()));
        assert_eq!(default(json!({ "type": "boolean" })), Some(false.into()));
        assert_eq!(default(json!({ "type": "string", "default": "x" })), Some("x".into()));
        assert_eq!(default(json!({ "type": "object", "properties": {} })), Some(json!({})));
        for none in [
            json!({ "type": "string", "format": "date-time" }),
            json!({ "type": "string", "enum": ["A"] }),
            json!({ "type": ["string", "null"] }),
            json!({ "type": "array", "items": {} }),
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
            json!({ "$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.Time" }),
            json!({}),
        ] {
            assert_eq!(default(none.clone()), None, "{none}");
        }
        let referred = convert(&json!({ "items": { "$ref": "#/$defs/a.B" } }));
        let wrapped = json!({ "allOf": [{ "$ref": "#/components/schemas/a.B" }], "default": {} });
        assert_eq!(referred["items"], wrapped);
    }

    #[test]
    fn only_elements_say_that_they_may_be_null() {
        let converted = convert(&json!({
            "properties": {
                "a": { "type": ["string", "null"] },
                "b": { "enum": ["A", null], "nullable": true },
                "c": { "anyOf": [{ "$ref": "#/$defs/a.B" }, { "type": "null" }] },
                "d": { "items": { "type": ["string", "null"] } },
            },
        }));
        assert_eq!(
            converted["properties"],
            json!({
                "a": { "type": "string" },
                "b": { "enum": ["A"] },
                "c": { "allOf": [{ "$ref": "#/components/schemas/a.B" }] },
                "d": { "items": { "type": "string", "nullable": true } },
            })
        );
    }
}
