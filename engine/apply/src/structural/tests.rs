//! Tests of structural validation.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stoa_engine::FieldPath;

use super::*;

/// What is found in an object whose `spec` is this and has that schema: what is said of a value, or else the fault.
async fn found(spec_schema: Value, spec: Value, live: Option<Value>, unknown: &[&str]) -> Vec<String> {
    let version =
        json!({"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec_schema}}}});
    let object = |spec: Value| {
        let metadata = json!({"name": "w", "namespace": "shop"});
        let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec});
        object.as_object().unwrap().clone()
    };
    let live = live.map(object);
    let unknown = unknown.iter().map(|key| FieldPath::of_keys(["spec", key])).collect();
    let attributes = object(spec);
    let instance = Instance { attributes: &attributes, live: live.as_ref(), unknown: &unknown };
    let mut found: Vec<String> = Validator::default()
        .check(&version, instance)
        .await
        .iter()
        .map(|Finding { fault, field, message }| match fault {
            Fault::Mistyped | Fault::Refused => format!("{field}: {message}"),
            Fault::Unknown | Fault::Dropped | Fault::Missing => format!("{field} {fault:?}"),
        })
        .collect();
    found.sort();
    found
}

/// That this is found in a new object, all of which is known.
#[track_caller]
fn check(schema: Value, spec: Value, expected: &[&str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told = format!("{spec} by {schema}");
    assert_eq!(runtime.block_on(found(schema, spec, None, &[])), expected, "{told}");
}

fn fields(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn values_have_types_of_schema() {
    let schema = fields(json!({
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "list": {"type": "array", "items": fields(json!({"on": {"type": "boolean"}}))},
        "text": {"type": "string"}, "ratio": {"type": "number"}, "count": {"type": "integer", "format": "int32"},
        "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "maybe": {"type": "string", "nullable": true},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }));
    let good = json!({"map": {"a": 1, "b": 2.0}, "list": [{"on": true}, {}], "text": "", "ratio": 1, "count": 3,
        "either": "50%", "maybe": null, "any": [1, {"a": null}]});
    check(schema.clone(), good, &[]);
    // A null where there may be none is a field that is not set.
    check(schema.clone(), json!({"text": null, "either": 80, "any": null}), &[]);
    check(
        schema,
        json!({"map": {"a": "1", "b": null}, "list": [{"on": "yes"}, "x"], "text": 5, "ratio": "1", "count": 1.5, "either": 1.5,
            "maybe": {}}),
        &[
            "spec.count: must be a whole number, not a fraction",
            "spec.either: must be a whole number or text, not a number",
            "spec.list[0].on: must be true or false, not a string",
            "spec.list[1]: must be a map, not a string",
            "spec.map.a: must be a whole number, not a string",
            "spec.map.b: must be a whole number, not null",
            "spec.maybe: must be text, not a map",
            "spec.ratio: must be a number, not a string",
            "spec.text: must be text, not a number",
        ],
    );
}

#[test]
fn unknown_fields_are_found_unless_preserved() {
    let inner = fields(json!({"a": {"type": "string"}}));
    let mut keeping = inner.clone();
    keeping["x-kubernetes-preserve-unknown-fields"] = json!(true);
    keeping["properties"]["within"] = inner.clone();
    let schema = fields(json!({"plain": inner, "keeping": keeping, "empty": {"type": "object"},
        "free": {"type": "object", "additionalProperties": true}}));
    let spec = json!({"plain": {"a": "", "b": 1}, "keeping": {"b": 1, "within": {"b": 1}}, "empty": {"b": 1},
        "free": {"b": {"c": 1}}, "more": {}});
    check(
        schema,
        spec,
        &["spec.empty.b Dropped", "spec.keeping.within.b Dropped", "spec.more Unknown", "spec.plain.b Unknown"],
    );
}

#[test]
fn required_fields_are_there_or_have_defaults() {
    let port = json!({"type": "object", "required": ["port", "protocol"], "properties": {
        "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP", "enum": ["TCP", "UDP"]}}});
    let schema = json!({"type": "object", "required": ["ports", "mode"], "properties": {
        "ports": {"type": "array", "items": port}, "mode": {"type": "string"},
        "limits": {"type": "object", "default": {}, "required": ["most"], "properties": {
            "most": {"type": "integer", "default": 7, "maximum": 9}}}}});
    check(schema.clone(), json!({"ports": [{"port": 80}], "mode": "a"}), &[]);
    check(
        schema,
        json!({"ports": [{"protocol": null}, {"port": 1, "protocol": "SCTP"}], "mode": null}),
        &["spec.mode Missing", "spec.ports[0].port Missing", r#"spec.ports[1].protocol: must be one of "TCP", "UDP""#],
    );
}

#[test]
fn texts_numbers_and_sizes_have_limits() {
    let schema = fields(json!({
        "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": r"^[a-zö]+$"},
        "share": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 0.5},
        "count": {"type": "integer", "minimum": 1, "maximum": 10, "exclusiveMaximum": true, "multipleOf": 3},
        "small": {"type": "integer", "format": "int32"},
        "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
        "map": {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": {"type": "string"}},
    }));
    let good = json!({"name": "öööö", "share": 0.5, "count": 9, "small": -7, "list": [1, 1], "map": {"a": ""}});
    check(schema.clone(), good, &[]);
    check(
        schema.clone(),
        json!({"name": "A", "share": 0, "count": 0, "small": 3_000_000_000_u64, "list": [], "map": {}}),
        &[
            "spec.count: must be at least 1",
            "spec.list: must have at least 1 items",
            "spec.map: must have at least 1 entries",
            "spec.name: must have at least 2 characters",
            "spec.name: must match `^[a-zö]+$`",
            "spec.share: must be more than 0",
            "spec.small: must be a number from -2147483648 to 2147483647",
        ],
    );
    check(
        schema,
        json!({"name": "ööööö", "share": 0.75, "count": 10, "list": [1, 2, 3], "map": {"a": "", "b": ""}}),
        &[
            "spec.count: must be a multiple of 3",
            "spec.count: must be less than 10",
            "spec.list: must have at most 2 items",
            "spec.map: must have at most 1 entries",
            "spec.name: must have at most 4 characters",
            "spec.share: must be at most 0.5",
        ],
    );
}

#[test]
fn combined_schemas_decide_and_formats_are_skipped() {
    let needs = |name: &str| json!({ "required": [name] });
    let mut schema = fields(json!({"a": {"type": "string"}, "b": {"type": "string"},
        "address": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}}));
    schema["oneOf"] = json!([needs("a"), needs("b")]);
    schema["not"] = json!({"properties": {"a": {"enum": ["no"]}}, "required": ["a"]});
    schema["allOf"] = json!([{"properties": {"b": {"minLength": 2}}}]);
    check(schema.clone(), json!({"a": "yes", "address": "nowhere"}), &[]);
    check(schema.clone(), json!({}), &["spec: must match one of the schemas that its kind allows (oneOf)"]);
    let several = "spec: must match only one of the schemas that its kind allows (oneOf)";
    check(schema.clone(), json!({"a": "yes", "b": "yes"}), &[several]);
    check(schema.clone(), json!({"a": "no"}), &["spec: must not match the schema that its kind excludes (not)"]);
    check(schema, json!({"b": "x"}), &["spec.b: must have at least 2 characters"]);
    let any = json!({"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^x"}]});
    check(any.clone(), json!("xyz"), &[]);
    check(any, json!("yz"), &["spec: must match one of the schemas that its kind allows (anyOf)"]);
}

#[test]
fn items_of_sets_and_keyed_lists_are_unique() {
    let item = fields(
        json!({"name": {"type": "string"}, "side": {"type": "string", "default": "left"}, "x": {"type": "integer"}}),
    );
    let schema = fields(json!({
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "side"], "items": item},
        "list": {"type": "array", "items": {"type": "string"}},
    }));
    let good = json!({"set": ["a", "b"], "list": ["a", "a"], "map": [{"name": "a"}, {"name": "a", "side": "right"}]});
    check(schema.clone(), good, &[]);
    check(
        schema,
        json!({"set": ["a", "b", "a"], "map": [{"name": "a"}, {"name": "a", "side": "left", "x": 1}]}),
        &[
            "spec.map[1]: item 0 has the same name, side; items must be unique",
            "spec.set[2]: item 0 has the same value; items must be unique",
        ],
    );
}

#[tokio::test]
async fn embedded_resource_identifies_itself() {
    let embedded =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"data": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}},
        "template": embedded, "status": {"type": "object"}}});
    let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}});
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "status": 7,
        "metadata": {"name": "widget", "labels": {"a": 1}, "annotations": {"b": null}, "finalizers": ["x"]},
        "template": {"kind": 1, "metadata": {"labels": []}, "dta": ""}});
    let unknown = BTreeSet::new();
    let instance = Instance { attributes: object.as_object().unwrap(), live: None, unknown: &unknown };
    let found = Validator::default().check(&version, instance).await;
    let told: BTreeSet<String> = found.iter().map(|it| format!("{} {:?}", it.field, it.fault)).collect();
    let expected = [
        "metadata.labels.a Mistyped",
        "metadata.name Refused",
        "template.apiVersion Missing",
        "template.dta Unknown",
        "template.kind Mistyped",
        "template.metadata.labels Mistyped",
    ];
    assert_eq!(told, expected.map(str::to_owned).into());
}

#[tokio::test]
async fn unknown_values_are_skipped() {
    let schema = json!({"type": "object", "required": ["size"], "maxProperties": 3, "enum": [{}], "properties": {
        "size": {"type": "integer"}, "other": {"type": "integer"},
        "labels": {"type": "object", "required": ["a"], "additionalProperties": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "self.size > 3"}]});
    let spec = json!({"size": null, "other": "x", "labels": {}});
    let wrong = "spec.other: must be a whole number, not a string";
    assert_eq!(found(schema.clone(), spec.clone(), None, &["size", "labels"]).await, [wrong]);
    assert_eq!(found(schema, spec, None, &["size"]).await, ["spec.labels.a Missing", wrong]);
}

#[tokio::test]
async fn live_values_of_others_remain() {
    let item = json!({"type": "object", "required": ["name", "port"], "properties": {
        "name": {"type": "string"}, "port": {"type": "integer", "maximum": 9}, "x": {"type": "string"}}});
    let schema = json!({"type": "object", "required": ["mode", "kept"], "minProperties": 3, "properties": {
        "mode": {"type": "string", "enum": ["a"]}, "kept": {"type": "integer", "maximum": 5}, "more": {"type": "integer"},
        "ports": {"type": "array", "minItems": 2, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": item}},
        "x-kubernetes-validations": [{"rule": "self.kept < 3"}]});
    let live = json!({"mode": "a", "kept": 70, "ports": [{"name": "p", "port": 80}, {"name": "q", "port": 1}]});
    // What is kept is too large, `mode` and a port are set by others, and there are enough fields with theirs.
    let spec = json!({"kept": 70, "ports": [{"name": "p", "x": ""}]});
    assert_eq!(found(schema.clone(), spec.clone(), Some(live.clone()), &[]).await, [""; 0]);
    assert_eq!(found(schema.clone(), spec, None, &[]).await.len(), 5);
    let changed = json!({"kept": 71, "ports": [{"name": "p", "port": 81}, {"name": "r"}]});
    assert_eq!(
        found(schema, changed, Some(live), &[]).await,
        ["spec.kept: must be at most 5", "spec.ports[0].port: must be at most 9", "spec.ports[1].port Missing",]
    );
}

#[test]
fn rules_see_defaults_and_schema_types() {
    let rules = |rules: &[&str]| -> Value { rules.iter().map(|rule| json!({ "rule": rule })).collect() };
    let mut schema = fields(json!({"min": {"type": "integer", "default": 1}, "max": {"type": "integer"},
        "a": {"type": "number"}, "b": {"type": "number"}}));
    schema["x-kubernetes-validations"] = json!([{"rule": "self.min <= self.max", "message": " min is more than max "}]);
    check(schema.clone(), json!({"max": 2.0}), &[]);
    check(schema.clone(), json!({"max": 0}), &["spec: min is more than max"]);
    // One that is wrong, or of another type, is told alone.
    check(schema.clone(), json!({"max": 0, "a": ""}), &["spec.a: must be a number, not a string"]);
    schema["x-kubernetes-validations"] = rules(&["self.a / self.b > 0.2"]);
    check(schema.clone(), json!({"a": 1, "b": 4}), &[]);
    check(schema.clone(), json!({"a": 1, "b": 8}), &["spec: `self.a / self.b > 0.2` does not hold"]);
    // What is about a change, does not compile or fails is left to the server.
    schema["x-kubernetes-validations"] = rules(&["self.a == oldSelf.a", "self.c > 1", "nonsense(", "self.a"]);
    check(schema, json!({"a": 1, "b": 4}), &[]);
}

#[test]
fn ambiguous_rules_are_left_to_server() {
    let ruled = |mut schema: Value, rule: &str| {
        schema["x-kubernetes-validations"] = json!([{ "rule": rule }]);
        schema
    };
    let time = fields(json!({"at": {"type": "string", "format": "duration"}}));
    check(ruled(time, "self.at == duration('1h')"), json!({"at": "60m"}), &[]);
    let set = fields(json!({"of": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}));
    check(ruled(set.clone(), "self.of == ['a', 'b']"), json!({"of": ["b", "a"]}), &[]);
    let rule = "self.of.all(it, it.startsWith('x'))";
    check(ruled(set, rule), json!({"of": ["b"]}), &[&format!("spec: `{rule}` does not hold")]);
    let escaped = fields(json!({"a-b": {"type": "string"}}));
    check(ruled(escaped, "has(self.a__dash__b)"), json!({"a-b": ""}), &[]);
    let nullable = fields(json!({"a": {"type": "string", "nullable": true}}));
    check(ruled(nullable, "!has(self.a)"), json!({"a": null}), &[]);
}

#[test]
fn expensive_checks_are_left_to_server() {
    let start = std::time::Instant::now();
    let long = "a".repeat(1 << 14);
    for pattern in
        [r"(a*)*a", r"(?i)[\pL\pN]{1000}\pL{1000}", &"(?i)\\pL".repeat(500), &"x".repeat(1 << 20), "(", "(?=a)"]
    {
        check(json!({"type": "string", "pattern": pattern}), json!(long), &[]);
    }
    // A default in each of very many items, and very many alternatives for each.
    let large: Value = (0..10_000).map(|n| (n.to_string(), json!(n))).collect::<Map<_, _>>().into();
    let item = json!({"type": "object", "properties": {"a": {"type": "object", "default": large,
        "x-kubernetes-preserve-unknown-fields": true}}});
    check(json!({"type": "array", "items": item}), json!(vec![json!({}); 10_000]), &[]);
    let many: Value = (0..10_000).map(|n| json!({ "maxLength": n })).collect();
    let item = json!({"type": "string", "not": {"anyOf": many}});
    check(json!({"type": "array", "items": item}), json!(vec![long; 100]), &[]);
    // The machine may be busy; without limits it is hours.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[tokio::test]
async fn step_budget_is_shared_by_all_objects() {
    let text = json!({"type": "string", "pattern": "^".to_owned() + &"a".repeat(100)});
    let version = json!({"schema": {"openAPIV3Schema": fields(json!({ "a": text }))}});
    // To search it takes more steps than one object may.
    let large = json!({"apiVersion": "v1", "kind": "X", "a": "b".repeat(1 << 18)});
    let unknown = BTreeSet::new();
    let mut validator = Validator::default();
    let instance = Instance { attributes: large.as_object().unwrap(), live: None, unknown: &unknown };
    while validator.left > 0 {
        assert_eq!(validator.check(&version, instance).await, []);
    }
    let wrong = json!({"apiVersion": "v1", "kind": "X", "a": 7});
    let instance = Instance { attributes: wrong.as_object().unwrap(), ..instance };
    assert_eq!(validator.check(&version, instance).await, []);
    assert_eq!(Validator::default().check(&version, instance).await.len(), 1);
}
