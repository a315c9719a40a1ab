use serde_json::json;

use super::*;

fn object() -> Object {
    Object(json!({"metadata": {"name": "a"}, "spec": {"n": 1, "list": [1, 2]}}).as_object().unwrap().clone())
}

fn parse(kind: PatchType, body: &[u8]) -> Result<Patch, ApiError> {
    Patch::parse(kind, body, FieldValidation::Warn)
}

/// Applies a patch and compares what `spec` is then, or the code of the error.
#[track_caller]
fn check(kind: PatchType, patch: &Value, expected: Result<Value, u16>) {
    let result = parse(kind, patch.to_string().as_bytes()).and_then(|patch| patch.apply(&object(), &Value::Null));
    let got = result.map(|object| object.0.get("spec").cloned().unwrap_or_default()).map_err(|error| error.code());
    assert_eq!(got, expected, "{patch}");
}

#[test]
fn the_whole_is_replaced_by_what_has_parts() {
    let is_judged = |value: Value| {
        let patch = json!([{"op": "replace", "path": "", "value": value}]).to_string();
        let patch = parse(PatchType::Json, patch.as_bytes()).unwrap();
        let error = patch.apply(&object(), &Value::Null).expect_err("no object");
        error.0.details.as_ref().is_some_and(|details| details.causes.is_some())
    };
    assert_eq!([json!("x"), json!(1), json!(true), json!([])].map(is_judged), [false, false, false, true]);
}

#[test]
fn json_patches_apply_or_say_invalid() {
    use PatchType::Json;
    check(Json, &json!([{"op": "replace", "path": "/spec/n", "value": 2}]), Ok(json!({"n": 2, "list": [1, 2]})));
    check(Json, &json!([{"op": "add", "path": "/spec/list/-", "value": 3}]), Ok(json!({"n": 1, "list": [1, 2, 3]})));
    check(Json, &json!([{"op": "test", "path": "/spec/x", "value": null}]), Ok(json!({"n": 1, "list": [1, 2]})));
    check(Json, &json!([{"op": "test", "path": "/spec/n", "value": null}]), Err(422));
    check(Json, &json!([{"op": "test", "path": "/spec/x/y", "value": null}]), Err(422));
    check(Json, &json!([{"op": "test", "path": "/spec/n/y", "value": null}]), Err(422));
    check(Json, &json!([{"op": "test", "path": "/spec/n", "value": 2}]), Err(422));
    check(Json, &json!([{"op": "remove", "path": "/spec/x"}]), Err(422));
    check(
        Json,
        &json!([{"op": "replace", "path": "/spec/x", "value": 1}]),
        Ok(json!({"n": 1, "list": [1, 2], "x": 1})),
    );
    check(Json, &json!([{"op": "replace", "path": "/spec/x/y", "value": 1}]), Err(422));
    check(Json, &json!([{"op": "replace", "path": "/spec/list/7", "value": 1}]), Err(422));
    check(Json, &json!([{"op": "replace", "path": "/spec/n"}]), Ok(json!({"n": null, "list": [1, 2]})));
    check(Json, &json!([{"op": "multiply", "path": "/spec/n", "value": 1}]), Err(422));
    check(Json, &json!([{"op": "replace", "path": "", "value": []}]), Err(422));
    check(Json, &json!([{"op": "copy", "from": "/spec/x", "path": "/spec/list"}]), Ok(json!({"n": 1, "list": null})));
    check(Json, &json!([{"op": "copy", "from": "/spec/x/y", "path": "/spec/list"}]), Err(422));
    check(Json, &json!([{"op": "move", "from": "/spec/x", "path": "/spec/list"}]), Err(422));
    check(Json, &json!([null]), Err(422));
    check(Json, &json!({"op": "replace"}), Err(400));
    check(Json, &json!(["replace"]), Err(400));
}

#[test]
fn tests_compare_values_however_they_are_written() {
    for (value, tested, holds) in [
        (r#""x<yé""#, r#""x<yé""#, true),
        (r#""x<yé""#, r#""\u0078\u003cy\u00e9""#, true),
        (r#""x<yé""#, r#""x<y\\u00e9""#, false),
        ("0.5", "0.50", true),
        ("0.5", "5e-1", true),
        (r#"{"a":["<"],"b":0.5}"#, r#"{"b":0.50,"a":["\u003c"]}"#, true),
        (r#"{"a":["<"]}"#, r#"{"a":[">"]}"#, false),
    ] {
        let patch = format!(
            r#"[{{"op":"add","path":"/spec/n","value":{value}}},{{"op":"test","path":"/spec/n","value":{tested}}}]"#
        );
        let applied = parse(PatchType::Json, patch.as_bytes()).unwrap().apply(&object(), &Value::Null);
        assert_eq!(applied.is_ok(), holds, "{patch}");
    }
}

#[test]
fn a_tilde_that_escapes_nothing_is_one() {
    let add = |key: &str| json!([{"op": "add", "path": format!("/spec/{key}"), "value": {}}]);
    for (key, name) in [("~2", "~2"), ("a~", "a~"), ("~01", "~1"), ("~0~1~", "~/~")] {
        check(PatchType::Json, &add(key), Ok(json!({"n": 1, "list": [1, 2], name: {}})));
        let moved = json!([{"op": "move", "from": "/spec/n", "path": format!("/spec/{key}")}]);
        check(PatchType::Json, &moved, Ok(json!({"list": [1, 2], name: 1})));
    }
}

#[test]
fn patch_decoder_checks_operation_types_unless_ignored() {
    let says = |patch: Value, validation: FieldValidation| {
        let parsed = Patch::parse(PatchType::Json, patch.to_string().as_bytes(), validation);
        parsed.map(drop).map_err(|error| error.message().to_owned())
    };
    for (patch, typed, untyped) in [
        (json!([{"op": 1}]), Some("struct field jsonPatchOp.op of type string"), None),
        (
            json!([{"op": "test", "path": "/a"}, {"from": 1}]),
            Some("struct field jsonPatchOp.from of type string"),
            None,
        ),
        (json!([1]), Some("value of type handlers.jsonPatchOp"), Some("value of type jsonpatch.Operation")),
        (json!(1), Some("value of type []handlers.jsonPatchOp"), Some("value of type jsonpatch.Patch")),
        (json!([{"op": null}, null]), None, None),
    ] {
        let said = |prefix: &str, place: Option<&str>| {
            place.map_or(Ok(()), |place| Err(format!("{prefix}json: cannot unmarshal number into Go {place}")))
        };
        assert_eq!(says(patch.clone(), FieldValidation::Warn), said("error decoding patch: ", typed));
        assert_eq!(says(patch, FieldValidation::Ignore), said("", untyped));
    }
}

/// As `json-patch.v4` does it, with which upstream patches.
#[test]
fn negative_indices_count_from_the_end() {
    let list = |operations: Value, expected: Value| {
        let expected = if expected.is_null() { Err(422) } else { Ok(json!({"n": 1, "list": expected})) };
        check(PatchType::Json, &operations, expected);
    };
    let one = |op: &str, index: &str, expected: Value| {
        let operation = json!({"op": op, "path": format!("/spec/list/{index}"), "value": 3});
        list(json!([operation]), expected);
    };
    for (op, index, expected) in [
        ("remove", "-1", json!([1])),
        ("remove", "-2", json!([2])),
        ("remove", "-3", Value::Null),
        ("remove", "-", Value::Null),
        ("remove", "2", Value::Null),
        ("add", "-1", json!([1, 2, 3])),
        ("add", "-3", json!([3, 1, 2])),
        ("add", "-4", Value::Null),
        ("add", "2", json!([1, 2, 3])),
        ("add", "3", Value::Null),
        ("add", "x", Value::Null),
        ("replace", "-1", json!([1, 3])),
        ("replace", "01", json!([1, 3])),
        ("replace", "-3", Value::Null),
        ("replace", "-", Value::Null),
        ("test", "-1", Value::Null),
    ] {
        one(op, index, expected);
    }
    list(json!([{"op": "test", "path": "/spec/list/-1", "value": 2}]), json!([1, 2]));
    list(json!([{"op": "test", "path": "/spec/list/-3", "value": null}]), Value::Null);
    list(json!([{"op": "copy", "from": "/spec/list/-1", "path": "/spec/list/0"}]), json!([2, 1, 2]));
    // The place is one in what is left.
    list(json!([{"op": "move", "from": "/spec/list/0", "path": "/spec/list/-1"}]), json!([2, 1]));
    list(json!([{"op": "move", "from": "/spec/list/-1", "path": "/spec/list/-2"}]), json!([2, 1]));
    list(json!([{"op": "move", "from": "/spec/list/0", "path": "/spec/list/-"}]), json!([2, 1]));
    list(json!([{"op": "move", "from": "/spec/list/0", "path": "/spec/list/2"}]), Value::Null);
    list(json!([{"op": "move", "from": "/spec/list", "path": "/spec/list/0"}]), Value::Null);
    // On the way to something, too.
    list(
        json!([
            {"op": "add", "path": "/spec/list/-", "value": {"-1": [{}]}},
            {"op": "add", "path": "/spec/list/-1/-1/-1/a~1b", "value": 7},
        ]),
        json!([1, 2, {"-1": [{"a/b": 7}]}]),
    );
}

#[test]
fn the_whole_document_is_replaced_and_nothing_else() {
    let whole = json!({"spec": {"n": 9}});
    check(PatchType::Json, &json!([{"op": "replace", "path": "", "value": whole}]), Ok(json!({"n": 9})));
    for operation in [
        json!({"op": "add", "path": "", "value": whole}),
        json!({"op": "copy", "from": "/spec", "path": ""}),
        json!({"op": "copy", "from": "", "path": "/spec"}),
        json!({"op": "move", "from": "/spec", "path": ""}),
        json!({"op": "move", "from": "", "path": "/spec"}),
        json!({"op": "remove", "path": ""}),
    ] {
        check(PatchType::Json, &json!([operation]), Err(422));
    }
}

#[test]
fn merge_patches_apply() {
    use PatchType::Merge;
    check(Merge, &json!({"spec": {"n": null, "m": {"k": null}}}), Ok(json!({"list": [1, 2], "m": {}})));
    check(Merge, &json!([1]), Err(400));
    assert_eq!(parse(Merge, b"{").unwrap_err().code(), 400);
}

/// As `json-patch.v4` does it: RFC 7386 leaves lists as they are sent.
#[test]
fn merge_patch_prunes_nulls_within_new_lists() {
    use PatchType::Merge;
    let sent = json!([{"a": null, "b": 1}, null, [{"c": null}]]);
    let pruned = json!([{"b": 1}, null, [{}]]);
    check(Merge, &json!({"spec": {"new": sent}}), Ok(json!({"n": 1, "list": [1, 2], "new": pruned})));
    check(Merge, &json!({"spec": {"new": {"x": sent}}}), Ok(json!({"n": 1, "list": [1, 2], "new": {"x": pruned}})));
    check(Merge, &json!({"spec": {"list": sent}}), Ok(json!({"n": 1, "list": pruned})));
    check(Merge, &json!({"spec": {"n": {"x": sent}}}), Ok(json!({"n": {"x": pruned}, "list": [1, 2]})));
    // Where a map was it is all as it was sent.
    check(Merge, &json!({"spec": sent}), Ok(sent));
}

#[test]
fn operations_are_limited() {
    let operation = json!({"op": "test", "path": "/spec/n", "value": 1});
    check(PatchType::Json, &Value::Array(vec![operation.clone(); MAX_OPERATIONS]), Ok(json!({"n": 1, "list": [1, 2]})));
    let error = parse(PatchType::Json, Value::Array(vec![operation; 10_001]).to_string().as_bytes()).unwrap_err();
    assert_eq!((error.code(), error.reason()), (413, "RequestEntityTooLarge"));
    assert_eq!(
        error.message(),
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn copies_that_double_are_stopped() {
    let double = json!({"op": "copy", "from": "/spec", "path": "/spec/again"});
    let nest: Vec<_> = (0..64)
        .flat_map(|n| [json!({"op": "copy", "from": "/spec", "path": format!("/spec/{n}")}), double.clone()])
        .collect();
    check(PatchType::Json, &Value::Array(nest), Err(422));
}

/// What is nested without end would end the process when it is walked.
#[test]
fn nesting_without_end_is_stopped() {
    let chain = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({ "a": inner }));
    let double = (1..30).map(|n| {
        let below = "/a".repeat(1 << n.min(17));
        json!({"op": "copy", "from": "/spec/c", "path": format!("/spec/c{below}")})
    });
    let copies = [json!({"op": "add", "path": "/spec/c", "value": chain(2)})].into_iter().chain(double);
    let grow = |op: &'static str| {
        let value = chain(100);
        (0..100).map(move |n| {
            let path = format!("/spec/free{}", "/a".repeat(n * 100));
            match op {
                "add" => json!([{"op": "add", "path": path, "value": value}]),
                _ => json!([
                    {"op": "add", "path": "/spec/spare", "value": value},
                    {"op": "move", "from": "/spec/spare", "path": path},
                ]),
            }
        })
    };
    let flat = |lists: Vec<Value>| -> Vec<Value> {
        lists.into_iter().flat_map(|list| list.as_array().cloned().unwrap_or_default()).collect()
    };
    for patch in [copies.collect(), flat(grow("add").collect()), flat(grow("move").collect())] {
        check(PatchType::Json, &Value::Array(patch), Err(422));
    }
    // What is deeper than an object may be, and no deeper, is left to whoever checks objects.
    let patch = json!([{"op": "add", "path": "/spec", "value": chain(100)}]);
    check(PatchType::Json, &patch, Ok(chain(100)));
}

#[test]
fn lists_are_not_shifted_without_end() {
    let mut object = object();
    object.0.insert("spec".to_owned(), json!({ "list": vec![1; 500_000] }));
    let apply = |op: &str, count: usize| {
        let operation = json!({"op": op, "path": "/spec/list/0", "value": 1});
        let patch = Value::Array(vec![operation; count]).to_string();
        let patch = parse(PatchType::Json, patch.as_bytes()).unwrap();
        patch.apply(&object, &Value::Null).map(drop).map_err(|error| error.code())
    };
    assert_eq!((apply("add", 100), apply("add", MAX_OPERATIONS)), (Ok(()), Err(422)));
    // What stays in its place shifts nothing.
    assert_eq!((apply("replace", MAX_OPERATIONS), apply("test", MAX_OPERATIONS)), (Ok(()), Ok(())));
}

#[test]
fn unknown_fields_of_operations_are_told() {
    let patch = parse(PatchType::Json, br#"[{"op":"test","path":"/spec/n","value":1,"why":"x"}]"#).unwrap();
    let warnings = patch.check_strictly(|| Ok(object()), Vec::new(), FieldValidation::Warn).unwrap();
    assert_eq!(warnings, [r#"json patch unknown field "[0].why""#]);
    let error = patch.check_strictly(|| Ok(Object::default()), Vec::new(), FieldValidation::Strict).unwrap_err();
    assert_eq!(
        error.message(),
        r#" "" is invalid: patch: Invalid value: "{}": strict decoding error: json patch unknown field "[0].why""#
    );
    assert!(patch.check_strictly(|| Ok(object()), Vec::new(), FieldValidation::Ignore).unwrap().is_empty());
}

#[test]
fn a_hundred_unknown_fields_are_told() {
    let fields: String = (0..350_000).map(|n| format!(r#","x{n}":1"#)).collect();
    let patch = format!(r#"[{{"op":"test","path":"/spec/n","value":1{fields}}},{{"op":"test","path":"","why":1}}]"#);
    let patch = parse(PatchType::Json, patch.as_bytes()).unwrap();
    assert_eq!(patch.check_strictly(|| Ok(object()), Vec::new(), FieldValidation::Warn).unwrap().len(), 100);
}
