use serde_json::json;

use super::{v2, v3};

/// Compares the encoding with bytes written as field and length by hand.
#[test]
fn fields_of_v2_are_numbered_as_in_the_protocol() {
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
    let encoded = v2(&swagger);
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

/// Compares the encoding with bytes written as field and length by hand.
#[test]
fn fields_of_v3_are_numbered_as_in_the_protocol() {
    let encoded = v3(&json!({
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
