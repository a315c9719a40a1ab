//! Tests of validation without a cluster, by the schemas of a Kubernetes version.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_engine::problem::reason;
use stoa_runtime::fake::FakeRuntime;
use stoa_runtime::{Level, Validation};

use crate::fixtures::{Stack, spec};

const SERVICE: &str = "v1:Service:shop:web";
const INGRESS: &str = "extensions/v1beta1:Ingress:shop:web";
const DEPLOYMENT: &str = "apps/v1:Deployment:shop:web";
const WIDGET: &str = "example.com/v1:Widget:shop:w";

fn runtime(stack: &Stack, level: Level, definitions: &[Value]) -> FakeRuntime {
    let definitions = definitions.iter().map(|it| it.as_object().unwrap().clone()).collect();
    stack.runtime().deferred().validated(Validation { level, kubernetes: "1.36".to_owned(), definitions })
}

/// The object of an id, `<apiVersion>:<kind>:<namespace>:<name>`, with more fields.
fn object(id: &str, more: Value) -> Value {
    let [api_version, kind, namespace, name] = id.split(':').collect::<Vec<_>>()[..] else { panic!("{id}") };
    let metadata = json!({"name": name, "namespace": namespace});
    let mut attributes = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": id, "type": "Kubernetes", "attributes": attributes})
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

#[tokio::test]
async fn strict_plan_reports_all_problems() {
    let stack = Stack::default();
    let wanted = spec(vec![
        object(SERVICE, json!({"spec": {"ports": [{"port": 70000}], "selectors": {}}})),
        object(INGRESS, json!({})),
        object(DEPLOYMENT, json!({"spec": {"selector": {}}})),
    ]);
    let problems = stack.refusal(runtime(&stack, Level::Strict, &[]), &wanted).await;
    let found: Vec<(&str, String)> = problems.iter().map(|it| (it.reason.as_str(), it.to_string())).collect();
    let near = "its kind has no field of this name; did you mean selector?";
    let replaced = "Kubernetes 1.36 has no Ingress of extensions/v1beta1; write it as networking.k8s.io/v1";
    let expected = [
        (reason::INVALID_RESOURCE, format!("{SERVICE}: attributes.spec.ports[0].port: must be a port from 1 to 65535")),
        (reason::INVALID_RESOURCE, format!("{SERVICE}: attributes.spec.selectors: {near}")),
        (reason::MISSING_FIELD, format!("{DEPLOYMENT}: attributes.spec.template: its kind requires this field")),
        (reason::UNKNOWN_KIND, format!("{INGRESS}: attributes.apiVersion: {replaced}")),
    ];
    assert_eq!(found, expected);
    assert!(stack.cloud.ids().is_empty());

    let planned = stack.planned(Arc::new(runtime(&stack, Level::Warn, &[])), &wanted, false).await.unwrap();
    let mut notes = planned.notes;
    notes.sort();
    let mut warnings: Vec<String> = expected.into_iter().map(|(_, text)| text).collect();
    warnings.sort();
    assert_eq!(notes, warnings);
    let planned = stack.planned(Arc::new(runtime(&stack, Level::Off, &[])), &wanted, false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
}

#[tokio::test]
async fn custom_resource_is_validated_by_repository_definition() {
    let stack = Stack::default();
    let strict = |definitions: &[Value]| runtime(&stack, Level::Strict, definitions);
    let wrong = spec(vec![object(WIDGET, json!({"size": "large"}))]);
    let problems = stack.refusal(strict(&[definition()]), &wrong).await;
    assert_eq!(problems[0].field, "attributes.size");
    let unserved = "example.com/v2:Widget:shop:w";
    let problems = stack.refusal(strict(&[definition()]), &spec(vec![object(unserved, json!({"size": 1}))])).await;
    let expected = format!(
        "{unserved}: attributes.apiVersion: the CustomResourceDefinition of Widget in the repository does not serve \
         version \"v2\""
    );
    assert_eq!(problems[0].to_string(), expected);
    // Of equally near definitions, one is enough.
    let mut textual = definition();
    textual["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["size"]["type"] = json!("string");
    let planned = stack.planned(Arc::new(strict(&[definition(), textual])), &wrong, false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
    let right = spec(vec![object(WIDGET, json!({"size": 1}))]);
    let planned = stack.planned(Arc::new(strict(&[definition()])), &right, false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
}

#[tokio::test]
async fn kind_that_nothing_defines_is_one_warning() {
    let stack = Stack::default();
    let other = object("example.com/v1:Widget:shop:v", json!({"size": 2}));
    let wanted = spec(vec![object(WIDGET, json!({"size": "any"})), other]);
    let planned = stack.planned(Arc::new(runtime(&stack, Level::Strict, &[])), &wanted, false).await.unwrap();
    let expected = "example.com/v1:Widget:shop:v and 1 more: not validated: neither Kubernetes 1.36 nor a \
                    CustomResourceDefinition in the source or the repository defines Widget of example.com/v1";
    assert_eq!(planned.notes, [expected]);
}

#[tokio::test]
async fn sops_fields_are_not_validated() {
    let stack = Stack::default();
    let encrypted = "ENC[AES256_GCM,data:qX0=,iv:aa=,tag:bb=,type:int]";
    let wanted = |sops: Value| {
        spec(vec![
            object(SERVICE, json!({"spec": {"ports": [{"port": encrypted}]}, "sops": sops})),
            object(WIDGET, json!({"size": encrypted, "sops": sops})),
        ])
    };
    let sops = json!({"mac": "ENC[AES256_GCM,data:x]", "version": "3.9.0", "age": []});
    let strict = || runtime(&stack, Level::Strict, &[definition()]);
    let planned = stack.planned(Arc::new(strict()), &wanted(sops), false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
    // A block without a checksum is none of SOPS.
    assert_eq!(stack.refusal(strict(), &wanted(json!({}))).await.len(), 4);
}
