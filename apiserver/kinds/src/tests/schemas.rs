//! The schemas of all kinds.

use crate::kinds;

/// The schema of each kind, by its name.
fn schemas() -> impl Iterator<Item = (String, serde_json::Value)> {
    kinds().map(|kind| {
        let crd = (kind.crd)();
        let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        (crd.spec.names.kind, serde_json::to_value(schema).unwrap())
    })
}

/// Looks at a schema and all in it, by path, such as `Stack.spec.workspaces[]`.
fn walk(path: &str, schema: &serde_json::Value, look: &mut dyn FnMut(&str, &serde_json::Value)) {
    look(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, look);
    }
    if let Some(items) = schema.get("items") {
        walk(&format!("{path}[]"), items, look);
    }
}

#[test]
fn every_field_of_every_kind_has_a_description() {
    let mut missing = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema, &mut |path, schema| {
            let is_said_elsewhere = [".metadata", ".spec", ".status", "[]"].iter().any(|end| path.ends_with(end));
            if schema.get("description").is_none() && !is_said_elsewhere {
                missing.push(path.to_owned());
            }
        });
    }
    assert!(missing.is_empty(), "without a description: {missing:#?}");
}

/// As Kubernetes' own type says of itself: half of a selector of each of two managers selects what neither means.
#[test]
fn selectors_have_one_owner() {
    let mut found = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema, &mut |path, schema| {
            if schema["properties"].get("matchExpressions").is_some() {
                assert_eq!(schema["x-kubernetes-map-type"], "atomic", "{path}");
                found.push(path.to_owned());
            }
        });
    }
    assert!(found.contains(&"NotificationSink.spec.organizationSelector".to_owned()), "{found:?}");
    assert!(found.iter().any(|path| path.ends_with(".workspaceSelector")), "{found:?}");
}

/// kubectl shows four values of an enumeration and leaves the others out.
#[test]
fn long_enumerations_are_in_the_description() {
    let mut found = Vec::new();
    for (kind, schema) in schemas() {
        walk(&kind, &schema, &mut |path, schema| {
            let values = schema["enum"].as_array().map(Vec::as_slice).unwrap_or_default();
            let description = schema["description"].as_str().unwrap_or_default();
            let words: Vec<&str> = description.split(|c: char| !c.is_alphanumeric()).collect();
            if values.len() > 4 {
                found.push(path.to_owned());
                for value in values.iter().filter_map(|value| value.as_str()) {
                    assert!(words.contains(&value), "{path} does not tell of {value}: {description}");
                }
            }
        });
    }
    assert!(found.contains(&"Run.spec.operation".to_owned()), "{found:?}");
}

#[test]
fn deletion_policy_has_no_default_and_says_who_wins() {
    for (kind, schema) in schemas().filter(|(kind, _)| ["Organization", "Project", "Stack"].contains(&kind.as_str())) {
        let policy = &schema["properties"]["spec"]["properties"]["deletionPolicy"];
        assert_eq!(policy.get("default"), None, "{kind}");
        let description = policy["description"].as_str().unwrap();
        assert!(description.contains("wins over"), "{kind}: {description}");
        let values: Vec<&str> = policy["enum"].as_array().unwrap().iter().filter_map(|value| value.as_str()).collect();
        assert_eq!(values, ["Refuse", "Destroy", "Orphan"], "{kind}");
    }
}

#[test]
fn defaults_stand_in_the_schema() {
    let (_, schema) = schemas().find(|(kind, _)| kind == "Stack").unwrap();
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["desiredVersion"]["default"], "latest");
    assert_eq!(spec["trigger"]["default"], "Manual");
    assert_eq!(spec["trigger"]["enum"], serde_json::json!(["Manual", "Preview", "Apply", "Workflow"]));
    assert_eq!(schema["required"], serde_json::json!(["spec"]));
}
