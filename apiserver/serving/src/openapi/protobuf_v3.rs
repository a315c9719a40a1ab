//! The OpenAPI v3 documents in protobuf.
//!
//! The messages are those of gnostic's `OpenAPIv3.proto`, written by hand as those of v2 are.

use serde_json::Value;

use super::message::{Message, entries, named, only};

/// Encodes a document; what the messages have no field for is left out.
pub(super) fn encode(v3: &Value) -> Vec<u8> {
    let mut document = Message::default();
    document.text(1, &v3["openapi"]);
    let mut info = Message::default();
    info.text(1, &v3["info"]["title"]);
    info.text(6, &v3["info"]["version"]);
    document.message(2, info);
    let mut paths = Message::default();
    for (path, item) in entries(&v3["paths"]) {
        paths.message(1, named(path, path_item(item)));
    }
    document.message(4, paths);
    let mut components = Message::default();
    components.message(1, schemas(&v3["components"]["schemas"]));
    document.message(5, components);
    document.0
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (field, method) in [(4, "get"), (5, "put"), (6, "post"), (7, "delete"), (10, "patch")] {
        if item[method].is_object() {
            message.message(field, operation(&item[method]));
        }
    }
    parameters(&mut message, 13, &item["parameters"]);
    message
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, &operation["tags"]);
    message.text(3, &operation["description"]);
    message.text(5, &operation["operationId"]);
    parameters(&mut message, 6, &operation["parameters"]);
    if operation["requestBody"].is_object() {
        let mut body = Message::default();
        body.message(2, content(&operation["requestBody"]["content"]));
        body.flag(3, &operation["requestBody"]["required"]);
        message.message(7, only(1, body));
    }
    let mut responses = Message::default();
    for (code, answer) in entries(&operation["responses"]) {
        let mut response = Message::default();
        response.text(1, &answer["description"]);
        if answer["content"].is_object() {
            response.message(3, content(&answer["content"]));
        }
        responses.message(2, named(code, only(1, response)));
    }
    message.message(8, responses);
    message.flag(10, &operation["deprecated"]);
    message.extensions(13, operation);
    message
}

fn parameters(message: &mut Message, field: u64, list: &Value) {
    for parameter in list.as_array().into_iter().flatten() {
        let mut one = Message::default();
        one.text(1, &parameter["name"]);
        one.text(2, &parameter["in"]);
        one.text(3, &parameter["description"]);
        one.flag(4, &parameter["required"]);
        if parameter["schema"].is_object() {
            one.message(10, schema_or_reference(&parameter["schema"]));
        }
        message.message(field, only(1, one));
    }
}

fn content(content: &Value) -> Message {
    let mut message = Message::default();
    for (media, value) in entries(content) {
        message.message(1, named(media, only(1, schema_or_reference(&value["schema"]))));
    }
    message
}

fn schemas(map: &Value) -> Message {
    let mut message = Message::default();
    for (name, value) in entries(map) {
        message.message(1, named(name, schema_or_reference(value)));
    }
    message
}

fn schema_or_reference(value: &Value) -> Message {
    if value["$ref"].is_string() {
        let mut reference = Message::default();
        reference.text(1, &value["$ref"]);
        return only(2, reference);
    }
    only(1, schema(value))
}

fn schema(value: &Value) -> Message {
    let mut message = Message::default();
    message.flag(1, &value["nullable"]);
    for (field, name) in [(10, "multipleOf"), (11, "maximum"), (13, "minimum")] {
        message.double(field, &value[name]);
    }
    for (field, name) in [(12, "exclusiveMaximum"), (14, "exclusiveMinimum"), (20, "uniqueItems")] {
        message.flag(field, &value[name]);
    }
    for (field, name) in [
        (15, "maxLength"),
        (16, "minLength"),
        (18, "maxItems"),
        (19, "minItems"),
        (21, "maxProperties"),
        (22, "minProperties"),
    ] {
        message.integer(field, &value[name]);
    }
    for (field, name) in [(17, "pattern"), (25, "type"), (34, "description"), (35, "format")] {
        message.text(field, &value[name]);
    }
    message.texts(23, &value["required"]);
    for allowed in value["enum"].as_array().into_iter().flatten() {
        message.any(24, allowed);
    }
    for (field, name) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        for one in value[name].as_array().into_iter().flatten() {
            message.message(field, schema_or_reference(one));
        }
    }
    if value["not"].is_object() {
        message.message(29, schema(&value["not"]));
    }
    if value["items"].is_object() {
        message.message(30, only(1, schema_or_reference(&value["items"])));
    }
    if value["properties"].is_object() {
        message.message(31, schemas(&value["properties"]));
    }
    match &value["additionalProperties"] {
        elements @ Value::Object(_) => message.message(32, only(1, schema_or_reference(elements))),
        Value::Bool(allowed) => {
            let mut item = Message::default();
            item.alternative(2, *allowed);
            message.message(32, item);
        }
        _ => {}
    }
    if let Some(default) = value.get("default") {
        message.message(33, default_value(default));
    }
    message.extensions(36, value);
    message
}

/// Only texts, numbers and booleans can be said here; another default is known to be, and no more.
fn default_value(value: &Value) -> Message {
    let mut message = Message::default();
    match value {
        Value::Number(_) => message.double(1, value),
        Value::Bool(value) => message.alternative(2, *value),
        Value::String(_) => message.text(3, value),
        Value::Null | Value::Array(_) | Value::Object(_) => {}
    }
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares the encoding with bytes written as field and length by hand.
    #[test]
    fn fields_are_numbered_as_in_the_protocol() {
        let encoded = encode(&json!({
            "openapi": "3.0.0",
            "info": { "title": "t", "version": "v" },
            "paths": { "/a": {
                "post": {
                    "operationId": "g",
                    "requestBody": { "content": { "*/*": { "schema": { "$ref": "#/r" } } }, "required": true },
                    "responses": { "200": { "description": "OK" } },
                },
                "parameters": [{ "in": "query", "name": "q", "schema": { "type": "string" } }],
            } },
            "components": { "schemas": { "A": {
                "type": "object",
                "default": {},
                "properties": { "b": { "allOf": [{ "$ref": "#/r" }], "default": true } },
            } } },
        }));
        let has = |part: &[u8]| encoded.windows(part.len()).any(|window| window == part);
        assert!(encoded.starts_with(b"\x0a\x053.0.0\x12\x06\x0a\x01t\x32\x01v\x22"));
        let reference = b"\x12\x05\x0a\x03#/r";
        let media = [b"\x0a\x10\x0a\x03*/*\x12\x09\x0a\x07".as_slice(), reference].concat();
        assert!(has(&[b"\x3a\x18\x0a\x16\x12\x12".as_slice(), &media, b"\x18\x01"].concat()), "a body");
        assert!(has(b"\x42\x0f\x12\x0d\x0a\x03200\x12\x06\x0a\x04\x0a\x02OK"), "answers");
        assert!(has(b"\x0a\x01q\x12\x05query\x52\x0b\x0a\x09\xca\x01\x06string"), "a parameter");
        let property = [b"\xd2\x01\x07".as_slice(), reference, b"\x8a\x02\x02\x10\x01"].concat();
        assert!(has(&property), "a property");
        assert!(encoded.ends_with(b"\x8a\x02\x00"), "a default that cannot be said");
    }
}
