//! The Swagger document in protobuf, the only form of it that kubectl reads; versions up to 1.28
//! create and explain nothing without it.
//!
//! The messages are those of gnostic's `OpenAPIv2.proto`. Written by hand, since the generated
//! types would be many times as long as this and nothing here reads the form.

use serde_json::Value;

use super::message::{Message, entries, named, only};

/// Encodes a Swagger document; what the messages have no field for is left out.
pub(super) fn encode(swagger: &Value) -> Vec<u8> {
    let mut document = Message::default();
    document.text(1, &swagger["swagger"]);
    let mut info = Message::default();
    info.text(1, &swagger["info"]["title"]);
    info.text(2, &swagger["info"]["version"]);
    document.message(2, info);
    let mut paths = Message::default();
    for (path, item) in entries(&swagger["paths"]) {
        paths.message(2, named(path, path_item(item)));
    }
    document.message(8, paths);
    document.message(9, schemas(&swagger["definitions"]));
    let mut shared = Message::default();
    for (name, parameter) in entries(&swagger["parameters"]) {
        shared.message(1, named(name, one_parameter(parameter)));
    }
    document.message(10, shared);
    for required in swagger["security"].as_array().into_iter().flatten() {
        let mut message = Message::default();
        for (name, scopes) in entries(required) {
            let mut texts = Message::default();
            texts.texts(1, scopes);
            message.message(1, named(name, texts));
        }
        document.message(12, message);
    }
    let mut definitions = Message::default();
    for (name, definition) in entries(&swagger["securityDefinitions"]) {
        definitions.message(1, named(name, api_key(definition)));
    }
    document.message(13, definitions);
    document.0
}

/// A definition of security that is a key in a header, the only one that there is here.
fn api_key(definition: &Value) -> Message {
    let mut key = Message::default();
    for (field, name) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
        key.text(field, &definition[name]);
    }
    only(2, key)
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if item[method].is_object() {
            message.message(field, operation(&item[method]));
        }
    }
    parameters(&mut message, 9, &item["parameters"]);
    message
}

fn operation(operation: &Value) -> Message {
    let mut message = Message::default();
    message.texts(1, &operation["tags"]);
    message.text(3, &operation["description"]);
    message.text(5, &operation["operationId"]);
    message.texts(6, &operation["produces"]);
    message.texts(7, &operation["consumes"]);
    parameters(&mut message, 8, &operation["parameters"]);
    let mut responses = Message::default();
    for (code, answer) in entries(&operation["responses"]) {
        let mut response = Message::default();
        response.text(1, &answer["description"]);
        if answer["schema"].is_object() {
            response.message(2, only(1, schema(&answer["schema"])));
        }
        responses.message(1, named(code, only(1, response)));
    }
    message.message(9, responses);
    message.texts(10, &operation["schemes"]);
    message.extensions(13, operation);
    message
}

fn parameters(message: &mut Message, field: u64, list: &Value) {
    for parameter in list.as_array().into_iter().flatten() {
        let item = match &parameter["$ref"] {
            Value::Null => only(1, one_parameter(parameter)),
            target => {
                let mut reference = Message::default();
                reference.text(1, target);
                only(2, reference)
            }
        };
        message.message(field, item);
    }
}

fn one_parameter(parameter: &Value) -> Message {
    let mut message = Message::default();
    if parameter["in"] == "body" {
        message.text(2, &parameter["name"]);
        message.text(3, &parameter["in"]);
        message.flag(4, &parameter["required"]);
        message.message(5, schema(&parameter["schema"]));
        return only(1, message);
    }
    message.flag(1, &parameter["required"]);
    message.text(2, &parameter["in"]);
    message.text(3, &parameter["description"]);
    message.text(4, &parameter["name"]);
    // A query parameter may also be empty, which shifts what follows.
    let (alternative, text, unique) = if parameter["in"] == "path" { (4, 5, 19) } else { (3, 6, 20) };
    message.text(text, &parameter["type"]);
    message.flag(unique, &parameter["uniqueItems"]);
    only(2, only(alternative, message))
}

fn schemas(map: &Value) -> Message {
    let mut message = Message::default();
    for (name, value) in entries(map) {
        message.message(1, named(name, schema(value)));
    }
    message
}

fn schema(value: &Value) -> Message {
    let mut message = Message::default();
    for (field, name) in [(1, "$ref"), (2, "format"), (4, "description"), (13, "pattern")] {
        message.text(field, &value[name]);
    }
    message.any(5, &value["default"]);
    for (field, name) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        message.double(field, &value[name]);
    }
    for (field, name) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        message.flag(field, &value[name]);
    }
    for (field, name) in [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ] {
        message.integer(field, &value[name]);
    }
    message.texts(19, &value["required"]);
    for allowed in value["enum"].as_array().into_iter().flatten() {
        message.any(20, allowed);
    }
    match &value["additionalProperties"] {
        elements @ Value::Object(_) => message.message(21, only(1, schema(elements))),
        Value::Bool(allowed) => {
            let mut item = Message::default();
            item.alternative(2, *allowed);
            message.message(21, item);
        }
        _ => {}
    }
    if value["type"].is_string() {
        let mut types = Message::default();
        types.text(1, &value["type"]);
        message.message(22, types);
    }
    if value["items"].is_object() {
        message.message(23, only(1, schema(&value["items"])));
    }
    if value["properties"].is_object() {
        message.message(25, schemas(&value["properties"]));
    }
    message.extensions(31, value);
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares the encoding with bytes written as field and length by hand.
    #[test]
    fn fields_are_numbered_as_in_the_protocol() {
        let swagger = json!({
            "swagger": "2.0",
            "info": { "title": "t", "version": "v" },
            "paths": { "/a": { "get": {
                "operationId": "g",
                "parameters": [{ "in": "query", "name": "q", "type": "string" }],
                "responses": { "200": { "description": "OK" } },
                "schemes": ["https"],
                "x-kubernetes-action": "get",
            }, "parameters": [{ "$ref": "#/p" }] } },
            "definitions": { "A": { "type": "object", "properties": { "b": { "$ref": "#/definitions/B" } } } },
            "parameters": { "p": { "in": "query", "name": "q", "type": "string" } },
            "securityDefinitions": { "T": { "type": "apiKey", "name": "n", "in": "header", "description": "d" } },
            "security": [{ "T": [] }],
        });
        let query = b"\x12\x05query\x22\x01q\x32\x06string";
        let parameter = [b"\x42\x18\x0a\x16\x12\x14\x1a\x12".as_slice(), query].concat();
        let responses = b"\x4a\x0f\x0a\x0d\x0a\x03200\x12\x06\x0a\x04\x0a\x02OK";
        assert_eq!(parameter.len(), 2 + 0x18);
        let encoded = encode(&swagger);
        let has = |part: &[u8]| encoded.windows(part.len()).any(|window| window == part);
        assert!(encoded.starts_with(b"\x0a\x032.0\x12\x06\x0a\x01t\x12\x01v\x42"));
        assert!(has(b"\x2a\x01g"));
        assert!(has(&parameter));
        assert!(has(responses));
        assert!(has(b"\x0a\x13x-kubernetes-action\x12\x08\x12\x06\"get\"\n"));
        assert!(has(b"\x0a\x01A\x12"));
        assert!(has(b"\xb2\x01\x08\x0a\x06object"));
        assert!(has(b"\x0a\x01b\x12\x11\x0a\x0f#/definitions/B"));
        assert!(has(b"\x52\x05https"));
        assert!(has(b"\x4a\x07\x12\x05\x0a\x03#/p"), "a reference to a parameter");
        let shared = [b"\x52\x1d\x0a\x1b\x0a\x01p\x12\x16\x12\x14\x1a\x12".as_slice(), query].concat();
        assert!(has(&shared), "the parameter");
        assert!(has(b"\x62\x07\x0a\x05\x0a\x01T\x12\x00"), "what is required");
        let key = b"\x0a\x06apiKey\x12\x01n\x1a\x06header\x22\x01d";
        let definition = [b"\x6a\x1f\x0a\x1d\x0a\x01T\x12\x18\x12\x16".as_slice(), key].concat();
        assert!(encoded.ends_with(&definition));
    }
}
