//! Decoding as clients see it: one small kind, bodies in, objects and errors out.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;
use crate::{
    status::ApiError,
    testing::{Mode, Nested, Part, Widget, WidgetSpec, WidgetStatus},
};

fn decoder() -> Decoder {
    Decoder::new(&ResourceDefinition::from_crd(&Widget::crd())).unwrap()
}

/// A decoder of widgets with another spec.
fn decoder_of(spec: &Value) -> Decoder {
    let mut definition = ResourceDefinition::from_crd(&Widget::crd());
    let metadata = json!({ "type": "object" });
    definition.schema = Arc::new(json!({ "type": "object", "properties": { "metadata": metadata, "spec": spec } }));
    Decoder::new(&definition).unwrap()
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
fn decoder_defaults_missing_and_null_fields() {
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

#[test]
fn only_closed_struct_rejects_unknown_fields() {
    let decode = |properties: &Value| {
        let decoder = decoder_of(&json!({ "type": "object", "properties": properties }));
        decoder.decode(object(&json!({ "part": { "x": 1 } })).as_bytes(), Format::Json, FieldValidation::Strict)
    };
    assert!(decode(&json!({ "part": { "type": "object" } })).is_ok());
    let refused = decode(&json!({ "part": { "type": "object", "additionalProperties": false } })).unwrap_err();
    assert!(refused.message().ends_with(r#"strict decoding error: unknown field "spec.part.x""#), "{refused:?}");
}

#[test]
fn yaml_decoder_reports_lines_of_duplicate_keys() {
    let body = "apiVersion: test.example/v1\nkind: Widget\nmetadata: {name: w}\nspec:\n  size: 1\n  hue: 2\n  size: 0x10\n  \
                nested: {'on': yes}\n  hue: 3\n";
    let ignored = decode(body, Format::Yaml, FieldValidation::Ignore).unwrap();
    assert_eq!(ignored.object.0["spec"], json!({ "size": 16, "count": 3, "nested": { "on": true } }));
    let warned = decode(body, Format::Yaml, FieldValidation::Warn).unwrap();
    let texts = [
        r#"line 7: key "size" already set in map"#,
        r#"line 9: key "hue" already set in map"#,
        r#"unknown field "spec.hue""#,
    ];
    assert_eq!(warned.warnings, texts);
    assert_eq!(
        refusal(body, Format::Yaml),
        format!(
            "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: yaml: unmarshal errors:\n  {}\n  \
             {}, {}",
            texts[0], texts[1], texts[2]
        )
    );
}

#[test]
fn yaml_scalars_are_those_of_yaml_1_1() {
    let parsed = |text: &str| parse(text.as_bytes(), Format::Yaml).unwrap().value;
    for (text, expected) in [
        ("~", json!(null)),
        ("on", json!(true)),
        ("No", json!(false)),
        ("'no'", json!("no")),
        ("!!str 1", json!("1")),
        ("010", json!(8)),
        ("0o10", json!(8)),
        ("08", json!(8)),
        ("-0b11", json!(-3)),
        ("1_000", json!(1000)),
        ("18446744073709551615", json!(u64::MAX)),
        ("1.0", json!(1)),
        ("1.5e3", json!(1500)),
        ("1.25", json!(1.25)),
        ("-.5", json!(-0.5)),
        ("1.2.3", json!("1.2.3")),
        ("2001-12-14", json!("2001-12-14")),
        ("12e", json!("12e")),
        ("inf", json!("inf")),
        ("-", json!([null])),
        ("!!binary aGk=", json!("hi")),
        ("!!binary aGl=", json!("hi")),
        ("!!binary |\n  aG\n  k=\n", json!("hi")),
        ("", json!(null)),
        ("# nothing\n---\n", json!(null)),
        ("{1: a, true: b, 1.5: c}", json!({ "1": "a", "true": "b", "1.5": "c" })),
        ("a: &x {b: 1}\nc: *x", json!({ "a": { "b": 1 }, "c": { "b": 1 } })),
        ("a: &x {b: 1, d: 2}\nc: {<<: *x, b: 3}", json!({ "a": { "b": 1, "d": 2 }, "c": { "b": 3, "d": 2 } })),
        ("a: &x {b: 1}\nc: {b: 3, <<: *x}", json!({ "a": { "b": 1 }, "c": { "b": 1 } })),
        ("a: {<<: [{b: 1}, {b: 2, c: 3}]}", json!({ "a": { "b": 1, "c": 3 } })),
        ("a: 1\n---\n", json!({ "a": 1 })),
    ] {
        assert_eq!(parsed(text), expected, "{text}");
    }
}

#[test]
fn malformed_bodies_are_refused_in_the_words_of_go() {
    for (body, expected) in [
        ("", "unexpected end of JSON input (<empty>)"),
        ("{", "unexpected end of JSON input ({)"),
        ("x", "invalid character 'x' looking for beginning of value (78)"),
        ("nonsense", "invalid character 'o' in literal null (expecting 'u') (6e6f6e73656e7365)"),
        (r#"{"a":trux}"#, r#"invalid character 'x' in literal true (expecting 'e') ({"a":trux})"#),
        (r#"{"a" 1}"#, r#"invalid character '1' after object key ({"a" 1})"#),
        (r#"{"a":1 "b":2}"#, r#"invalid character '"' after object key:value pair ({"a":1 "b":2})"#),
        (r#"{"a":[1 2]}"#, r#"invalid character '2' after array element ({"a":[1 2]})"#),
        ("{}x", "invalid character 'x' after top-level value ({}x)"),
        (r#"{"kind":1}"#, r#"json: cannot unmarshal number into Go struct field .kind of type string ({"kind":1})"#),
    ] {
        let prefix = "the object provided is unrecognized (must be of type Widget): couldn't get version/kind; json parse error: ";
        assert_eq!(refusal(body, Format::Json), format!("{prefix}{expected}"), "{body}");
    }
    assert!(refusal("[]", Format::Json).contains("json: cannot unmarshal array into Go value of type struct"));
    for (body, expected) in [
        ("a: [", "yaml: "),
        ("a: *b", "yaml: "),
        ("b: 1\na: *b", "yaml: line 2: "),
        ("a: &a [*a]", "yaml: an anchor's value contains itself"),
        ("? [a]\n: b", "yaml: invalid map key"),
        ("a: .nan", "json: unsupported value: NaN"),
        ("a: !!int x", "yaml: cannot decode !!str `x` as a !!int"),
        ("a: !!binary aG k=", "yaml: !!binary value contains invalid base64 data"),
        ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
    ] {
        let message = refusal(body, Format::Yaml);
        let prefix = "the object provided is unrecognized (must be of type Widget): ";
        assert!(message.starts_with(&format!("{prefix}{expected}")), "{message}");
    }
}

#[test]
fn other_kinds_and_versions_are_refused() {
    assert_eq!(
        refusal(r#"{"apiVersion":"test.example/v2","kind":"Widget"}"#, Format::Json),
        "Widget in version \"v2\" cannot be handled as a Widget: no kind \"Widget\" is registered for version \
         \"test.example/v2\" in scheme \"pkg/runtime/scheme.go:111\""
    );
    assert_eq!(
        refusal(r#"{"apiVersion":"test.example/v1","kind":"Gadget"}"#, Format::Json),
        "Gadget in version \"v1\" cannot be handled as a Widget: no kind \"Gadget\" is registered for version \
         \"test.example/v1\" in scheme \"pkg/runtime/scheme.go:111\""
    );
    assert!(
        refusal(r#"{"apiVersion":"a/b/c","kind":"Widget"}"#, Format::Json)
            .contains("unexpected GroupVersion string: a/b/c")
    );
    let object = decode("{}", Format::Json, FieldValidation::Strict).unwrap().object;
    assert_eq!(Value::Object(object.0), json!({ "apiVersion": "test.example/v1", "kind": "Widget" }));
}

#[test]
fn decoder_rejects_wrong_type_with_path() {
    for (spec, expected) in [
        (json!({ "size": "1" }), "cannot unmarshal string into Go struct field WidgetSpec.spec.size of type int32"),
        (json!({ "size": 1.5 }), "cannot unmarshal number 1.5 into Go struct field WidgetSpec.spec.size of type int32"),
        (
            json!({ "size": 3_000_000_000_u32 }),
            "number 3000000000 into Go struct field WidgetSpec.spec.size of type int32",
        ),
        (json!({ "size": 1, "count": -1 }), "number -1 into Go struct field WidgetSpec.spec.count of type uint8"),
        (
            json!({ "size": 1, "parts": {} }),
            "cannot unmarshal object into Go struct field WidgetSpec.spec.parts of type []map[",
        ),
        (
            json!({ "size": 1, "parts": [{ "name": 1 }] }),
            "number into Go struct field WidgetSpec.spec.parts.name of type string",
        ),
        (
            json!({ "size": 1, "parameters": { "a": true } }),
            "bool into Go struct field WidgetSpec.spec.parameters of type string",
        ),
        (
            json!({ "size": 1, "parameters": [] }),
            "cannot unmarshal array into Go struct field WidgetSpec.spec.parameters of type map[string]string",
        ),
        (json!({ "size": 1, "when": "noon" }), r#"parsing time "noon" as "#),
        (json!([]), "cannot unmarshal array into Go struct field Widget.spec of type v1.WidgetSpec"),
    ] {
        let message = refusal(object(&spec), Format::Json);
        assert!(message.starts_with("Widget in version \"v1\" cannot be handled as a Widget: "), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let labels = r#"{"metadata":{"labels":{"a":1}}}"#;
    assert!(refusal(labels, Format::Json).contains("ObjectMeta.metadata.labels of type string"));
}

/// A widget with the spec that this text is.
fn with_spec(spec: &str) -> String {
    object(&json!("SPEC")).replace(r#""SPEC""#, spec)
}

#[test]
fn decoder_reports_first_of_several_wrong_types() {
    for (spec, expected) in [
        (r#"{"size":"x","code":1}"#, "string into Go struct field WidgetSpec.spec.size of type int32"),
        (r#"{"code":1,"size":"x"}"#, "number into Go struct field WidgetSpec.spec.code of type string"),
        (r#"{"parts":[{"weight":1,"name":1}],"code":1}"#, "WidgetSpec.spec.parts.name of type string"),
        (r#"{"parameters":{"z":1},"code":1}"#, "WidgetSpec.spec.parameters of type string"),
        (
            r#"{"parameters":[{"code":1}],"code":1}"#,
            "array into Go struct field WidgetSpec.spec.parameters of type map",
        ),
        // A time reads itself in Go, which ends the decoding.
        (r#"{"size":"x","when":5,"code":1}"#, "number into Go struct field WidgetSpec.spec.when of type string"),
        (r#"{"size":"x","when":"noon","code":1}"#, r#"parsing time "noon" as "#),
    ] {
        let message = refusal(with_spec(spec), Format::Json);
        assert!(message.contains(expected), "{spec}: {message}");
    }
    // YAML is made JSON first, with its keys in order.
    let message = refusal(with_spec(r#"{"size":"x","code":1}"#), Format::Yaml);
    assert!(message.contains("WidgetSpec.spec.code of type string"), "{message}");
}

#[test]
fn decoder_reports_wrong_type_of_duplicate_field() {
    use FieldValidation::{Ignore, Strict, Warn};
    for (spec, expected) in [
        (r#"{"size":"x","size":1}"#, "string into Go struct field WidgetSpec.spec.size of type int32"),
        (r#"{"size":1,"parts":[{"name":1}],"parts":[]}"#, "WidgetSpec.spec.parts.name of type string"),
        (r#"{"size":1,"parameters":{"a":1,"a":"x"}}"#, "WidgetSpec.spec.parameters of type string"),
        (r#"{"size":1,"code":1,"code":null}"#, "WidgetSpec.spec.code of type string"),
    ] {
        for validation in [Strict, Warn, Ignore] {
            let error = decode(with_spec(spec), Format::Json, validation).expect_err(spec);
            assert!(error.code() == 400 && error.message().contains(expected), "{spec}: {error:?}");
        }
    }
    for spec in [r#"{"size":1,"extra":{"a":1,"a":"x"}}"#, r#"{"size":1,"size":2}"#] {
        let decoded = decode(with_spec(spec), Format::Json, Warn).expect(spec);
        assert_eq!(decoded.warnings.len(), 1, "{spec}");
    }
}

#[test]
fn null_becomes_zero_only_in_typed_maps() {
    let spec = spec(&json!({
        "size": 1, "mode": null, "parameters": { "a": null }, "extra": { "x": null, "y": [{ "z": 1 }] }, "nested": { "deep": null },
    }));
    assert_eq!(
        spec,
        json!({
            "size": 1, "count": 3, "parameters": { "a": "" }, "extra": { "x": null, "y": [{ "z": 1 }] }, "nested": { "on": false },
        })
    );
}

#[test]
fn decoder_reports_untyped_duplicates_and_uses_last() {
    let body = object(&json!({ "size": 1, "extra": "EXTRA" })).replace(r#""EXTRA""#, r#"{"a":1,"a":{"b":1,"b":2}}"#);
    let decoded = decode(body, Format::Json, FieldValidation::Warn).unwrap();
    assert_eq!(decoded.warnings, [r#"duplicate field "spec.extra.a""#, r#"duplicate field "spec.extra.a.b""#]);
    assert_eq!(decoded.object.0["spec"]["extra"], json!({ "a": { "b": 2 } }));
}

/// Go reads the second one into what it made of the first: into structs, maps, and the items that a list has.
#[test]
fn what_is_known_and_stands_twice_is_merged() {
    let body = object(&json!({ "size": 1 }));
    let twice = |metadata: &str| {
        let body = body.replace(r#""metadata":{"#, &format!(r#""metadata":{{{metadata},"#));
        decode(body, Format::Json, FieldValidation::Ignore).unwrap().object.0["metadata"].clone()
    };
    let labels = twice(r#""labels":{"a":"1"},"labels":{"b":"2"}"#);
    assert_eq!(labels["labels"], json!({ "a": "1", "b": "2" }));
    let owners = twice(r#""ownerReferences":[{"kind":"K","name":"a"},{"kind":"L"}],"ownerReferences":[{"name":"b"}]"#);
    assert_eq!(owners["ownerReferences"], json!([{ "kind": "K", "name": "b" }]));
    let untyped = parse(br#"{"a":{"b":1},"a":{"c":2}}"#, Format::Json).unwrap();
    assert_eq!(untyped.value, json!({ "a": { "c": 2 } }));
}

#[test]
fn times_are_read_as_go_reads_them() {
    let body = |time: &str| {
        let time = format!(r#""metadata":{{"creationTimestamp":"{time}","#);
        object(&json!({ "size": 1 })).replace(r#""metadata":{"#, &time)
    };
    let decoded = decode(body("2020-01-02T3:04:05,5Z"), Format::Json, FieldValidation::Ignore).unwrap();
    assert_eq!(decoded.object.0["metadata"]["creationTimestamp"], "2020-01-02T03:04:05.5Z");
    let error = decode(body("2020-01-02t03:04:05z"), Format::Json, FieldValidation::Ignore).unwrap_err();
    let expected =
        "parsing time \"2020-01-02t03:04:05z\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"t03:04:05z\" as \"T\"";
    assert!(error.message().ends_with(expected), "{error}");
}

#[test]
fn owned_fields_are_anything() {
    for fields in ["1", "\"x\"", "[]", "{\"f:spec\":{}}"] {
        let entries = format!(r#""metadata":{{"managedFields":[{{"fieldsV1":{fields}}}],"#);
        let body = object(&json!({ "size": 1 })).replace(r#""metadata":{"#, &entries);
        assert!(decode(body, Format::Json, FieldValidation::Strict).is_ok(), "{fields}");
    }
}

#[test]
fn normalized_nulls_decode_to_themselves() {
    let list = |items: Value| json!({ "type": "array", "items": items });
    let decoder = decoder_of(&json!({
        "type": "object",
        "properties": {
            "times": list(json!({ "type": "string", "format": "date-time" })),
            "maybe": list(json!({ "type": "string", "format": "date-time", "nullable": true })),
            "parts": list(json!({ "type": "object", "properties": { "name": { "type": "string", "default": "a" } } })),
            "texts": list(json!({ "type": "string" })),
            "numbers": list(json!({ "type": "integer", "format": "int64" })),
            "lists": { "type": "object", "additionalProperties": list(json!({ "type": "string" })) },
        },
    }));
    let decode = |spec: &Value| {
        let body = json!({ "spec": spec }).to_string();
        let decoded = decoder.decode(body.as_bytes(), Format::Json, FieldValidation::Strict).unwrap();
        decoded.object.0["spec"].clone()
    };
    let fields = ["times", "maybe", "parts", "texts", "numbers"];
    let mut spec = json!({ "lists": { "a": null } });
    fields.iter().for_each(|field| spec[field] = json!([null]));
    let expected = json!({
        "times": [null], "maybe": [null], "parts": [{ "name": "a" }], "texts": [""], "numbers": [0], "lists": { "a": [] },
    });
    assert_eq!(decode(&spec), expected);
    assert_eq!(decode(&expected), expected);
}

/// Paths may be nearly as long as a body, and be met as often as there is room for in the rest of it.
#[test]
fn what_is_told_is_bounded() {
    let key = "k".repeat(1 << 20);
    let repeated = |item: &str| format!("{item}{}", format!(",{item}").repeat(100_000));
    let duplicates = format!(r#"{{"spec":{{"size":1,"extra":{{"{key}":{{{}}}}}}}}}"#, repeated(r#""a":1"#));
    let warned = decode(&duplicates, Format::Json, FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings.len(), 1);

    let part = r#"{"name":"a","weight":-1}"#;
    let body = format!(r#"{{"spec":{{"lists":{{"{key}":[{}]}}}}}}"#, repeated(part));
    let parts = json!({ "type": "array", "items": { "type": "object", "properties": {
        "name": { "type": "string" }, "weight": { "type": "number", "minimum": 0 },
    } } });
    let lists = json!({ "type": "object", "additionalProperties": parts });
    let decoder = decoder_of(&json!({ "type": "object", "properties": { "lists": lists } }));
    let decoded = decoder.decode(body.as_bytes(), Format::Json, FieldValidation::Ignore).unwrap();
    let errors = decoder.structural_errors(&decoded.object);
    assert!((1..20).contains(&errors.len()), "{}", errors.len());
}

#[test]
fn depth_is_bounded() {
    for depth in [200, 10_000, 100_000] {
        let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let json = object(&json!({ "extra": "EXTRA" })).replace(r#""EXTRA""#, &nested);
        assert!(refusal(json, Format::Json).contains("json parse error: invalid character '[' exceeded max depth ("));
        assert!(refusal(format!("spec: {{extra: {nested}}}"), Format::Yaml).contains("yaml: "));
        let blocks: String = (0..depth.min(2000)).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(refusal(blocks, Format::Yaml).contains("yaml: line "));
    }
    // Unknown fields are skipped as deep as Go's decoder goes, and no deeper.
    let unknown = |depth| format!(r#"{{"unknown":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(refusal(unknown(10_000), Format::Json).contains("invalid character '[' exceeded max depth"));
    let unknown = unknown(9_999);
    assert_eq!(decode(unknown, Format::Json, FieldValidation::Warn).unwrap().warnings, [r#"unknown field "unknown""#]);

    // The object, its spec and the field are three levels.
    for (levels, read) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let nested = format!(r#"{{"a":{}1{}}}"#, open.repeat(levels - 3), close.repeat(levels - 3));
            let json = object(&json!({ "extra": "EXTRA" })).replace(r#""EXTRA""#, &nested);
            for format in [Format::Json, Format::Yaml] {
                let decoded = decode(json.clone(), format, FieldValidation::Strict);
                assert_eq!(decoded.is_ok(), read, "{levels} levels of {open} in {format:?}: {decoded:?}");
                let Err(error) = decoded else { continue };
                let problem = match format {
                    Format::Json => {
                        format!("json parse error: invalid character '{}' exceeded max depth (", &open[..1])
                    }
                    Format::Yaml => "yaml: exceeded max depth of 127 (".to_owned(),
                };
                assert_eq!((error.code(), error.reason()), (400, "BadRequest"));
                assert!(error.message().contains(&problem), "{error}");
            }
        }
    }

    let mut deep = json!({});
    for _ in 0..MAX_DEPTH {
        deep = json!({ "nested": deep });
    }
    let mut object = Object(json!({ "spec": { "extra": deep } }).as_object().unwrap().clone());
    assert_eq!(decoder().conform(&mut object, FieldValidation::Strict), Ok(Vec::new()));
}

#[test]
fn aliases_do_not_blow_up() {
    let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..12 {
        let before = vec![format!("*a{}", level - 1); 9].join(", ");
        laughs += &format!("a{level}: &a{level} [{before}]\n");
    }
    assert!(refusal(laughs, Format::Yaml).ends_with(
        "yaml: document contains excessive aliasing (61303a20266130205b6c6f6c2c206c6f6c2c206c6f6c2c206c6f6c2c206c ...)"
    ));

    let mut chain = "a0: &a0 []\n".to_owned();
    for level in 1..300 {
        chain += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert!(refusal(chain, Format::Yaml).contains("exceeded max depth"));
}

#[test]
fn conform_prunes_checks_and_defaults_a_patched_object() {
    let mut object =
        Object(json!({ "metadata": { "name": "w" }, "spec": { "size": 1, "hue": 1 } }).as_object().unwrap().clone());
    let strict = decoder().conform(&mut object.clone(), FieldValidation::Strict).unwrap_err();
    assert_eq!((strict.code(), strict.reason()), (422, "Invalid"));
    assert!(strict.message().starts_with(" \"\" is invalid: patch: Invalid value: "), "{strict}");
    assert!(strict.message().ends_with(": strict decoding error: unknown field \"spec.hue\""), "{strict}");

    assert_eq!(decoder().conform(&mut object, FieldValidation::Warn).unwrap(), [r#"unknown field "spec.hue""#]);
    assert_eq!(object.0["spec"], json!({ "size": 1, "count": 3 }));

    object.0["spec"]["size"] = "x".into();
    let wrong = decoder().conform(&mut object, FieldValidation::Ignore).unwrap_err();
    assert!(
        wrong
            .message()
            .ends_with(": json: cannot unmarshal string into Go struct field WidgetSpec.spec.size of type int32"),
        "{wrong}"
    );
}

#[test]
fn refused_values_are_told_with_path_and_reason() {
    let body = object(&json!({
        "mode": "Warp", "code": "Seventeen", "nested": { "deep": { "weight": 1.5 } },
        "parts": [{ "name": "a" }, { "name": "a", "weight": 2 }, {}],
    }));
    let object = decode(body, Format::Json, FieldValidation::Strict).unwrap().object;
    let errors: Vec<String> = decoder()
        .structural_errors(&object)
        .iter()
        .map(|e| format!("{} {}: {}", e.kind.reason(), e.field, e.message))
        .collect();
    insta::assert_snapshot!(errors.join("\n"), @r#"
    FieldValueTooLong spec.code: Too long: may not be more than 5 bytes
    FieldValueInvalid spec.code: Invalid value: "Seventeen": spec.code in body should match '^[a-z]+$'
    FieldValueNotSupported spec.mode: Unsupported value: "Warp": supported values: "Fast", "Slow"
    FieldValueRequired spec.nested.deep.name: Required value
    FieldValueRequired spec.parts[2].name: Required value
    FieldValueDuplicate spec.parts[1]: Duplicate value: {"name":"a"}
    FieldValueRequired spec.size: Required value
    "#);
}

#[test]
fn kinds_with_references_decode() {
    let schema = schemars::schema_for!(k8s_openapi::api::core::v1::Event).to_value();
    let definition = ResourceDefinition {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Event".to_owned(),
        schema: std::sync::Arc::new(schema),
        ..ResourceDefinition::from_crd(&Widget::crd())
    };
    let decoder = Decoder::new(&definition).unwrap();
    let decode = |body: &Value| decoder.decode(body.to_string().as_bytes(), Format::Json, FieldValidation::Warn);
    let event = json!({ "metadata": { "name": "e" }, "involvedObject": { "kind": "Widget", "hue": 1 }, "count": 1, "eventTime": null });
    let decoded = decode(&event).unwrap();
    assert_eq!(decoded.warnings, [r#"unknown field "involvedObject.hue""#]);
    assert_eq!(decoder.structural_errors(&decoded.object), []);
    let error = decode(&json!({ "involvedObject": { "kind": 1 } })).unwrap_err();
    assert!(
        error.message().ends_with("number into Go struct field Event.involvedObject.kind of type string"),
        "{error}"
    );
    let missing = decode(&json!({ "metadata": {} })).unwrap();
    let errors = decoder.structural_errors(&missing.object);
    assert_eq!(errors, [FieldError::required("involvedObject", "")]);
}

#[test]
fn wrong_schemas_are_refused() {
    let wrong = CompiledSchema::new(&json!({ "$ref": "#/$defs/Missing" })).unwrap_err();
    assert_eq!(wrong.to_string(), r##"the schema refers to "#/$defs/Missing", which it does not define"##);
    let wrong =
        CompiledSchema::new(&json!({ "properties": { "a": { "type": "string", "pattern": "(" } } })).unwrap_err();
    assert_eq!(wrong.to_string(), r#"the pattern "(" is no regular expression"#);
    // Go's are right, which are not all the crate's.
    CompiledSchema::new(&json!({ "properties": { "a": { "type": "string", "pattern": "^[[{]{$" } } })).unwrap();
    // A kind may contain itself.
    let tree = json!({ "$ref": "#/$defs/T", "$defs": { "T": { "type": "object", "properties": { "t": { "$ref": "#/$defs/T" } } } } });
    CompiledSchema::new(&tree).unwrap();
}

mod properties {
    use kube::api::ObjectMeta;
    use proptest::prelude::*;

    use super::*;

    fn widget() -> impl Strategy<Value = Widget> {
        let part = ("[a-z]{1,4}", proptest::option::of(-1e9..1e9)).prop_map(|(name, weight)| Part { name, weight });
        let nested = (any::<bool>(), proptest::option::of(part.clone()))
            .prop_map(|(on, deep)| Nested { on, deep: deep.map(Box::new) });
        let mode = prop_oneof![Just(Mode::Slow), Just(Mode::Fast)];
        let spec = (
            any::<i32>(),
            any::<u8>(),
            proptest::collection::vec(part, 0..4),
            proptest::collection::btree_map(".{0,8}", ".{0,8}", 0..4),
            proptest::option::of(mode),
            proptest::option::of(nested),
            proptest::option::of(0..4_000_000_000_i64),
        );
        spec.prop_map(|(size, count, parts, parameters, mode, nested, when)| {
            let when = when.map(|seconds| Time(jiff::Timestamp::from_second(seconds).unwrap()));
            let spec = WidgetSpec {
                size,
                count,
                parts,
                parameters,
                mode,
                code: None,
                when,
                nested,
                extra: json!({ "any": [size] }),
            };
            let metadata = ObjectMeta { name: Some("w".to_owned()), ..ObjectMeta::default() };
            Widget { metadata, spec, status: Some(WidgetStatus { phase: None }) }
        })
    }

    proptest! {
        /// No bytes make decoding panic.
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            crate::schema::fuzzing::json(&bytes);
            crate::schema::fuzzing::yaml(&bytes);
        }

        /// Nor do bytes that look like YAML or JSON.
        #[test]
        fn any_text_decodes_or_is_refused(text in r#"[-:{}\[\],'"&*!<>|?#%@ \n~a-c0-9.]{0,60}"#) {
            crate::schema::fuzzing::json(text.as_bytes());
            crate::schema::fuzzing::yaml(text.as_bytes());
        }

        /// What a typed client sends passes strict decoding, in both formats, and comes out as it was.
        #[test]
        fn strict_takes_what_types_serialize_to(widget in widget()) {
            let decoder = decoder();
            for (body, format) in [
                (serde_json::to_string(&widget).unwrap(), Format::Json),
                (serde_saphyr::to_string(&widget).unwrap(), Format::Yaml),
            ] {
                let decoded = decoder.decode(body.as_bytes(), format, FieldValidation::Strict).unwrap();
                prop_assert_eq!(decoder.structural_errors(&decoded.object).len(), duplicates(&widget.spec.parts));
                let back: Widget = decoded.object.to_typed().unwrap();
                prop_assert_eq!(&back.spec, &widget.spec, "{}", body);
            }
        }
    }

    fn duplicates(parts: &[Part]) -> usize {
        let names: std::collections::BTreeSet<_> = parts.iter().map(|part| &part.name).collect();
        parts.len() - names.len()
    }
}

#[test]
fn decoder_replaces_lone_surrogates_like_go() {
    for (escaped, expected) in [
        (r"\ud800", "\u{fffd}"),
        (r"a\udc00b", "a\u{fffd}b"),
        (r"\ud83d\ude00", "\u{1f600}"),
        (r"\ud800\u0041", "\u{fffd}A"),
        (r"\\ud800", r"\ud800"),
    ] {
        let text = format!(r#"{{"a":"{escaped}"}}"#);
        assert_eq!(parse(text.as_bytes(), Format::Json).unwrap().value, json!({ "a": expected }), "{escaped}");
    }
}

#[test]
fn minus_nothing_is_nothing() {
    assert_eq!(parse(b"-0", Format::Json).unwrap().value, json!(0));
}
