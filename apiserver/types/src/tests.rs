//! What holds of every kind.

use super::*;

#[test]
fn durations_are_read_as_go_writes_them() {
    for (text, seconds) in [("30s", 30.0), ("1h30m", 5400.0), ("0s", 0.0), ("0", 0.0), ("1.5s", 1.5), ("250ms", 0.25)] {
        assert_eq!(DurationString(text.to_owned()).parse().unwrap().as_secs_f64(), seconds, "{text}");
    }
    for text in ["", "30", "s", "1d", "-1s", "1h30"] {
        assert!(DurationString(text.to_owned()).parse().is_err(), "{text:?} is no duration");
    }
}

#[test]
fn every_field_of_every_kind_has_a_description() {
    fn walk(path: &str, schema: &serde_json::Value, missing: &mut Vec<String>) {
        if let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) {
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                if property.get("description").is_none() && !path.ends_with(".metadata") {
                    missing.push(path.clone());
                }
                walk(&path, property, missing);
            }
        }
        if let Some(items) = schema.get("items") {
            walk(&format!("{path}[]"), items, missing);
        }
    }
    let mut missing = Vec::new();
    for crd in crds() {
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        let schema = serde_json::to_value(schema).unwrap();
        assert!(schema.get("description").is_some(), "{} has no description", crd.spec.names.kind);
        walk(&crd.spec.names.kind, &schema, &mut missing);
    }
    missing.retain(|p| !p.ends_with(".spec") && !p.ends_with(".status"));
    assert!(missing.is_empty(), "without a description: {missing:#?}");
}

/// As Kubernetes' own type says of itself: half of a selector of each of two managers selects what neither means.
#[test]
fn selectors_have_one_owner() {
    fn walk(path: &str, schema: &serde_json::Value, found: &mut Vec<String>) {
        if schema["properties"].get("matchExpressions").is_some() {
            assert_eq!(schema["x-kubernetes-map-type"], "atomic", "{path}");
            found.push(path.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, found);
        }
        if let Some(items) = schema.get("items") {
            walk(&format!("{path}[]"), items, found);
        }
    }
    let mut found = Vec::new();
    for crd in crds() {
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        walk(&crd.spec.names.kind, &serde_json::to_value(schema).unwrap(), &mut found);
    }
    assert!(found.contains(&"NotificationSink.spec.organizationSelector".to_owned()), "{found:?}");
    assert!(found.iter().any(|path| path.ends_with(".workspaceSelector")), "{found:?}");
}

/// kubectl shows four values of an enumeration and leaves the others out.
#[test]
fn long_enumerations_are_told_in_the_description() {
    fn walk(path: &str, schema: &serde_json::Value, found: &mut Vec<String>) {
        let values = schema["enum"].as_array().map(Vec::as_slice).unwrap_or_default();
        let description = schema["description"].as_str().unwrap_or_default();
        let words: Vec<&str> = description.split(|c: char| !c.is_alphanumeric()).collect();
        if values.len() > 4 {
            found.push(path.to_owned());
            for value in values.iter().filter_map(|value| value.as_str()) {
                assert!(words.contains(&value), "{path} does not tell of {value}: {description}");
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, found);
        }
        if let Some(items) = schema.get("items") {
            walk(&format!("{path}[]"), items, found);
        }
    }
    let mut found = Vec::new();
    for crd in crds() {
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        walk(&crd.spec.names.kind, &serde_json::to_value(schema).unwrap(), &mut found);
    }
    assert!(found.contains(&"Run.spec.operation".to_owned()), "{found:?}");
}

#[test]
fn defaults_stand_in_the_schema() {
    let stack = crds().into_iter().find(|c| c.spec.names.kind == "Stack").unwrap();
    let schema =
        serde_json::to_value(stack.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap())
            .unwrap();
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["desiredVersion"]["default"], "latest");
    assert_eq!(spec["trigger"]["default"], "Manual");
    assert_eq!(spec["trigger"]["enum"], serde_json::json!(["Manual", "Preview", "Apply"]));
    assert_eq!(spec["deletionPolicy"]["default"], "Refuse");
    assert_eq!(schema["required"], serde_json::json!(["spec"]));
}
