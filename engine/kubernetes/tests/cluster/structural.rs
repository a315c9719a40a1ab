//! Tests of structural validation against that of a real server.

use std::collections::BTreeSet;

use stoa_apply::structural::{Fault, Instance, Validator};

use super::*;

/// The schema of the `spec`, with something of all that is looked at.
fn schema() -> Value {
    let (text, ruled) = (|| json!({"type": "string"}), ruled());
    let port = json!({"type": "object", "required": ["port", "protocol"], "properties": {
        "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
        "protocol": {"type": "string", "default": "TCP"}, "name": text()}});
    json!({"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100, "exclusiveMaximum": true, "multipleOf": 2},
        "ratio": {"type": "number", "minimum": 0.5}, "on": {"type": "boolean"},
        "name": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": r"^[a-z]\w*$"},
        "mode": {"type": "string", "enum": ["fast", "slow"], "nullable": true},
        "level": {"type": "integer", "enum": [1, 2], "default": 1},
        "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": "^[0-9]+%?$"},
        "labels": {"type": "object", "maxProperties": 2, "minProperties": 1, "additionalProperties": text()},
        "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": port},
        "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "inner": {"type": "object", "properties": {"a": text()}}}},
        "bare": {"type": "object"},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "from": {"type": "object", "oneOf": [{"required": ["file"]}, {"required": ["secret"]}],
            "not": {"properties": {"file": {"enum": ["/"]}}, "required": ["file"]},
            "properties": {"file": text(), "secret": text()}},
        "limits": {"type": "object", "default": {"most": 7}, "properties": {"most": {"type": "integer", "default": 7}},
            "x-kubernetes-validations": [{"rule": "self.most < 10"}]},
        "address": {"type": "string", "format": "ipv4"},
        "ttl": {"type": "string", "format": "duration"},
        "ruled": ruled}})
}

/// What rules are asked of. They are not where texts stand for times, or lists are sets.
fn ruled() -> Value {
    json!({"type": "object",
        "properties": {"half": {"type": "number"}, "whole": {"type": "number"},
            "tags": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 9}}},
        "x-kubernetes-validations": [
            {"rule": "!has(self.tags) || self.tags.all(t, t.startsWith('t'))", "message": "tags begin with a t"},
            {"rule": "!has(self.half) || !has(self.whole) || self.half / self.whole >= 0.5"}]})
}

/// What is left to a server: formats, and a null that is no default, which one takes that is created and not applied.
fn left_to_the_server() -> [Value; 3] {
    [json!({"size": 2, "address": "nowhere"}), json!({"size": 2, "name": null}), json!({"size": 2, "either": null})]
}

/// What is refused, and what is right. `size` is there where nothing is said of it.
fn specs() -> Vec<Value> {
    let written = r#"[
        {}, {"size": null}, {"size": "2"}, {"size": 2.0}, {"size": 2.5}, {"size": 3}, {"size": 0}, {"size": 100}, {"size": true},
        {"sze": 1}, {"ratio": 1}, {"ratio": 0.25}, {"ratio": "1"}, {"on": "true"}, {"on": false},
        {"ruled": {"whole": 4, "half": 2}}, {"ruled": {"whole": 4, "half": 1}}, {"ruled": {"whole": 3, "half": 2}},
        {"name": "ab"}, {"name": "a"}, {"name": "abcdef"}, {"name": "aöö"}, {"name": "öab"}, {"name": 7},
        {"mode": "fast"}, {"mode": "quick"}, {"level": 2}, {"level": 2.0}, {"level": 3}, {"level": null},
        {"either": 5}, {"either": "5%"}, {"either": "x"}, {"either": 1.5}, {"either": true}, {"either": {}},
        {"labels": {"a": "b"}}, {"labels": {}}, {"labels": {"a": 1}}, {"labels": {"a": "", "b": "", "c": ""}}, {"labels": []},
        {"items": [1]}, {"items": []}, {"items": [1, 2, 3]}, {"items": ["1"]}, {"items": [null]}, {"items": {}},
        {"set": ["a", "b"]}, {"set": ["a", "a"]}, {"ports": [{"port": 80}, {"port": 80, "protocol": "UDP"}]},
        {"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}, {"ports": [{"protocol": "TCP"}]}, {"ports": [{"port": 70000}]},
        {"ports": [{"port": 80, "nme": ""}]}, {"ports": [7]},
        {"kept": {"a": {"b": []}}}, {"kept": {"inner": {"a": 1}}}, {"bare": {}}, {"bare": 7},
        {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {}}},
        {"template": {"kind": "Pod"}}, {"template": {"apiVersion": "v1", "kind": 7}},
        {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}},
        {"from": {"file": "a"}}, {"from": {"file": "a", "secret": "b"}}, {"from": {}}, {"from": {"file": "/"}}, {"from": {"secret": "/"}},
        {"limits": {"most": 9}}, {"limits": {"most": 10}}, {"limits": {}}, {"limits": null},
        {"address": "10.0.0.1"}, {"ttl": "1h"},
        {"ruled": {"tags": ["t1", "t2"]}}, {"ruled": {"tags": ["t1", "x"]}}, {"ruled": {"tags": []}}
    ]"#;
    let mut specs: Vec<Value> = serde_json::from_str(written).unwrap();
    for spec in specs.iter_mut().skip(1) {
        spec.as_object_mut().unwrap().entry("size").or_insert(json!(2));
    }
    specs
}

#[tokio::test]
async fn validation_matches_server_validation() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let definition = resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema()}}}}]}}));
    let crd = test.apply(&definition, None).await.unwrap();
    assert_eq!(test.runtime.wait_healthy(&definition, &ignore).await.unwrap(), Health::Current);
    let version = &definition.attributes["spec"]["versions"][0];
    let (mut validator, unknown) = (Validator::default(), BTreeSet::new());
    let mut differences = Vec::new();
    let mut refused = 0;
    for spec in specs().into_iter().chain(left_to_the_server()) {
        let widget = resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": "w", "namespace": test.namespace}, "spec": spec}));
        let instance = Instance { attributes: &widget.attributes, live: None, unknown: &unknown };
        let mut found = validator.check(version, instance).await;
        found.retain(|finding| finding.fault != Fault::Dropped);
        let asked = test.runtime.preview(&ApplyRequest::new(&widget, None), None).await;
        match &asked {
            Ok(Preview::Changed(_)) if found.is_empty() => {}
            Err(RuntimeError::Rejected { .. }) if !found.is_empty() => refused += 1,
            Err(RuntimeError::Rejected { .. }) if left_to_the_server().contains(&spec) => {}
            _ => differences.push(format!("{spec}: {found:?}, but {asked:?}")),
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(refused > 30, "{refused}");
    test.runtime.delete(&recorded(&definition, crd.live)).await.unwrap();
}

#[tokio::test]
async fn pruned_field_is_applied_after_definition_changes() {
    let test = TestNamespace::new().await;
    let group = format!("{}.example.com", unique("g"));
    let definition = |config: Value| {
        resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("widgets.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"config": config}}}}}}]}}))
    };
    let crd = test.apply(&definition(json!({"type": "object"})), None).await.unwrap();
    assert_eq!(test.runtime.wait_healthy(&definition(json!({})), &ignore).await.unwrap(), Health::Current);
    let widgets: Vec<Resource> = (0..20)
        .map(|number| {
            resource(json!({"apiVersion": format!("{group}/v1"), "kind": "Widget",
                "metadata": {"name": format!("w{number}"), "namespace": test.namespace}, "spec": {"config": {"size": 3}}}))
        })
        .collect();
    let preview = test.runtime.preview(&ApplyRequest::new(&widgets[0], None), None).await.unwrap();
    let Preview::Changed(made) = &preview else { panic!("{preview:?}") };
    assert_eq!(made["spec"], json!({"config": {}}), "nobody complains");
    let closed = definition(json!({"type": "object", "properties": {"size": {"type": "integer"}}}));
    test.apply(&closed, Some(&recorded(&closed, crd.live))).await.unwrap();
    for widget in &widgets {
        let applied = test.apply(widget, None).await.unwrap();
        assert_eq!(applied.live["spec"], widget.attributes["spec"]);
    }
    let crd = test.apply(&closed, None).await.unwrap();
    test.runtime.delete(&recorded(&closed, crd.live)).await.unwrap();
}
