use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

fn secret(name: &str, data: Value) -> Value {
    json!({"id": format!("v1:Secret:shop:{name}"), "type": "Kubernetes", "attributes": {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop"}, "stringData": data}})
}

fn spec(resources: Value) -> Spec {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

/// Seals in a way that can be read and reversed: the place, and the value with its letters in another order.
fn sealed(spec: &Spec) -> Spec {
    seal(spec, &mut |place, value| format!("{} {}", place.to_json(), mirrored(&value.to_string())))
}

fn opened(spec: &Spec) -> Spec {
    let opened = open::<Infallible>(spec, &mut |place, text| {
        let place = place.to_json().to_string();
        let value = text.strip_prefix(&format!("{place} ")).expect("it is opened where it was sealed");
        Ok(serde_json::from_str(&mirrored(value)).unwrap())
    });
    opened.unwrap()
}

fn mirrored(text: &str) -> String {
    text.chars().rev().collect()
}

fn attributes(spec: &Spec, index: usize) -> Value {
    Value::Object(spec.resources[index].attributes.clone())
}

#[test]
fn only_secret_values_are_sealed() {
    let map = json!({"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": {"apiVersion": "v1",
        "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"password": "hunter2"}}});
    let spec = spec(json!([secret("db", json!({"password": "hunter2", "none": null})), map]));
    let kept = sealed(&spec);
    assert_eq!(
        attributes(&kept, 0),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"}, "stringData": {
            "password": {"$sealed": r#"["v1:Secret:shop:db","stringData","password"] "2retnuh""#}, "none": null}})
    );
    assert_eq!(kept.resources[1], spec.resources[1]);
    assert_eq!(opened(&kept), spec);
}

#[test]
fn declared_fields_are_sealed() {
    let map = json!({"id": "v1:ConfigMap:shop:a", "type": "Kubernetes", "attributes": {"apiVersion": "v1",
        "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"url": "db://hunter2", "copy": "db://hunter2", "plain": "x"}},
        "extensions": {"stoa.dev/sensitive": ["data.url", "data.none"]}});
    let spec = spec(json!([map]));
    let kept = sealed(&spec);
    let data = &attributes(&kept, 0)["data"];
    assert!(sealed_text(&data["url"]).is_some() && sealed_text(&data["copy"]).is_some(), "{data}");
    assert_eq!((&data["plain"], opened(&kept)), (&json!("x"), spec.clone()));
    assert_eq!(attributes(&shown(&spec), 0)["data"]["url"], MASK);
}

#[test]
fn reference_is_not_sealed_but_surrounding_text_is() {
    let spec = spec(json!([
        secret("a", json!({"x": "hunter2"})),
        secret(
            "b",
            json!({
                "whole": "$kusion_path.v1:Secret:shop:a.stringData.x",
                "within": "pg://app:hunter3@${kusion_path.v1:Secret:shop:a.stringData.x}",
                "unknown": "$kusion_path.hunter4",
            })
        )
    ]));
    let kept = sealed(&spec);
    let data = &attributes(&kept, 1)["stringData"];
    assert_eq!(data["whole"], "$kusion_path.v1:Secret:shop:a.stringData.x");
    assert!(sealed_text(&data["within"]).is_some() && sealed_text(&data["unknown"]).is_some(), "{data}");
    assert_eq!(opened(&kept), spec);
}

#[test]
fn copied_secret_value_is_sealed() {
    let mut db = secret("db", json!({"password": "hunter2", "user": "db"}));
    let copy = r#"{"stringData":{"password":"hunter2"}}"#;
    db["attributes"]["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": copy});
    let spec = spec(json!([db]));
    let kept = sealed(&spec);
    let metadata = &attributes(&kept, 0)["metadata"];
    assert!(sealed_text(&metadata["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]).is_some());
    assert_eq!(metadata["name"], "db", "what it is called is known");
    assert_eq!(opened(&kept), spec);
}

#[test]
fn possible_secrets_are_sealed() {
    for kind in [json!("$kusion_path.a.b"), Value::Null, json!(1)] {
        let mut db = secret("db", json!({"password": "hunter2"}));
        db["attributes"]["kind"] = kind;
        db["attributes"]["metadata"] = Value::Null;
        let kept = sealed(&spec(json!([db])));
        assert!(sealed_text(&attributes(&kept, 0)["stringData"]["password"]).is_some(), "{kept:?}");
    }
    let whole = json!({"id": "x", "type": "Kubernetes", "attributes": {"kind": "Secret", "data": ["hunter2"]}});
    assert!(sealed_text(&attributes(&sealed(&spec(json!([whole]))), 0)["data"]).is_some());
}

#[test]
fn credential_settings_are_sealed_whole() {
    let spec: Spec = serde_json::from_value(json!({"resources": [], "context": {"AWS_SECRET_ACCESS_KEY": "hunter2"},
        "secretStore": {"provider": {"fake": {"data": [{"key": "a", "value": "hunter2"}]}}}}))
    .unwrap();
    let kept = sealed(&spec);
    assert!(!serde_json::to_string(&kept).unwrap().contains("hunter2"));
    assert_eq!(opened(&kept), spec);
    let masked = shown(&spec);
    assert_eq!((masked.context, masked.secret_store), (Some(json!(MASK)), Some(json!(MASK))));
}

#[test]
fn lookalike_of_sealed_value_is_sealed() {
    let forged = json!({"$sealed": r#"["v1:Secret:shop:db","stringData","password"] "2retnuh""#});
    let mut map = secret("a", json!({"x": forged, "y": {"z": forged}}));
    map["attributes"]["kind"] = json!("ConfigMap");
    let spec = spec(json!([map]));
    let kept = sealed(&spec);
    assert_ne!(kept, spec);
    assert_eq!(opened(&kept), spec);
}

#[test]
fn sealed_values_are_shown_masked() {
    let spec = spec(json!([secret("db", json!({"password": "hunter2"}))]));
    let kept = sealed(&spec);
    assert_eq!(shown(&kept), kept);
    assert_eq!(attributes(&shown(&spec), 0)["stringData"], json!({"password": MASK}));
}

/// Values in which much means something here.
fn values() -> impl Strategy<Value = Value> {
    let texts =
        ["hunter2", "Secret", "ConfigMap", "v1", "$kusion_path.a.b", "${kusion_path.a.b}", "aHVudGVyMg==", "[] 1"];
    let leaves = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        prop::sample::select(texts.to_vec()).prop_map(Value::from)
    ];
    leaves.prop_recursive(4, 24, 4, |inner| {
        let keys = prop::sample::select(vec!["kind", "data", "stringData", "metadata", "name", SEALED_KEY, "a"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

#[test]
fn large_secret_is_scanned_once() {
    // To compare each of these with each would take minutes.
    let values = |from: usize| -> Map<String, Value> {
        (from..from + 100_000).map(|number| (number.to_string(), json!(format!("v{number}")))).collect()
    };
    let mut spec = spec(json!([secret("a", Value::Object(values(100_000)))]));
    spec.resources[0].attributes["metadata"]["annotations"] = Value::Object(values(200_000));
    spec.resources[0].attributes["metadata"]["annotations"]["copy"] = json!("it is v123456");
    let kept = sealed(&spec);
    let kept = &kept.resources[0].attributes;
    let is_sealed = |value: &Value| sealed_text(value).is_some();
    assert!(kept["stringData"].as_object().unwrap().values().all(is_sealed));
    let annotations = kept["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.values().filter(|value| is_sealed(value)).count(), 1);
    assert!(is_sealed(&annotations["copy"]));
}

proptest! {
    #[test]
    fn sealed_spec_opens_unchanged(all in prop::collection::vec(values(), 1..4), context in values()) {
        let resources = all.into_iter().enumerate().map(|(index, value)| Resource {
            id: if index == 0 { "a".into() } else { ResourceId(format!("r{index}")) },
            kind: crate::ResourceType::Kubernetes,
            attributes: match value { Value::Object(map) => map, other => Map::from_iter([("data".to_owned(), other)]) },
            depends_on: Vec::new(),
            extensions: Map::new(),
        });
        let spec = Spec { resources: resources.collect(), context: Some(context), secret_store: None };
        let kept = sealed(&spec);
        prop_assert_eq!(opened(&kept), spec);
        prop_assert_eq!(shown(&kept), kept);
    }
}
