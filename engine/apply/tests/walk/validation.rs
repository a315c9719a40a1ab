//! Plans of runtimes that ask no cluster: the schemas of a version of Kubernetes decide.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_engine::problem::reason;
use stoa_runtime::fake::FakeRuntime;
use stoa_runtime::{Level, Validation};

use crate::support::{Stack, spec};

fn runtime(stack: &Stack, level: Level, definitions: &[Value]) -> FakeRuntime {
    let definitions = definitions.iter().map(|it| it.as_object().unwrap().clone()).collect();
    stack.runtime().deferred().validated(Validation { level, kubernetes: "1.36".to_owned(), definitions })
}

fn object(attributes: Value) -> Value {
    let metadata = &attributes["metadata"];
    let parts = [&attributes["apiVersion"], &attributes["kind"], &metadata["namespace"], &metadata["name"]];
    let id = parts.into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join(":");
    json!({"id": id, "type": "Kubernetes", "attributes": attributes})
}

fn widget(api_version: &str, name: &str, size: Value) -> Value {
    object(
        json!({"apiVersion": api_version, "kind": "Widget", "metadata": {"name": name, "namespace": "shop"}, "size": size}),
    )
}

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

#[tokio::test]
async fn strict_plan_is_refused_with_all_problems_at_once() {
    let stack = Stack::default();
    let wanted = spec(vec![
        object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ports": [{"port": 70000}], "selectors": {}}})),
        object(json!({"apiVersion": "extensions/v1beta1", "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"}})),
        object(json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"selector": {}}})),
    ]);
    let problems = stack.refusal(runtime(&stack, Level::Strict, &[]), &wanted).await;
    let found: Vec<(&str, String)> = problems.iter().map(|it| (it.reason.as_str(), it.to_string())).collect();
    let invalid = |text: &str| (reason::INVALID_RESOURCE, text.to_owned());
    let replaced = "extensions/v1beta1:Ingress:shop:web: attributes.apiVersion: Kubernetes 1.36 has no Ingress of extensions/v1beta1; write it as \
                    networking.k8s.io/v1";
    let expected = [
        invalid("v1:Service:shop:web: attributes.spec.ports[0].port: must be a port from 1 to 65535"),
        invalid(
            "v1:Service:shop:web: attributes.spec.selectors: its kind has no field of this name; did you mean selector?",
        ),
        (
            reason::MISSING_FIELD,
            "apps/v1:Deployment:shop:web: attributes.spec.template: its kind requires this field".to_owned(),
        ),
        (reason::UNKNOWN_KIND, replaced.to_owned()),
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
async fn custom_resource_is_validated_by_a_definition_in_the_repository() {
    let stack = Stack::default();
    let strict = |definitions: &[Value]| runtime(&stack, Level::Strict, definitions);
    let wrong = spec(vec![widget("example.com/v1", "w", json!("large"))]);
    let problems = stack.refusal(strict(&[definition()]), &wrong).await;
    assert_eq!(problems[0].field, "attributes.size");
    let unserved = spec(vec![widget("example.com/v2", "w", json!(1))]);
    let problems = stack.refusal(strict(&[definition()]), &unserved).await;
    let expected = "example.com/v2:Widget:shop:w: attributes.apiVersion: the CustomResourceDefinition of Widget in the \
                    repository does not serve version \"v2\"";
    assert_eq!(problems[0].to_string(), expected);
    let right = spec(vec![widget("example.com/v1", "w", json!(1))]);
    let planned = stack.planned(Arc::new(strict(&[definition()])), &right, false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
}

#[tokio::test]
async fn kind_that_nothing_defines_is_one_warning() {
    let stack = Stack::default();
    let wanted = spec(["w", "v"].map(|name| widget("example.com/v1", name, json!("any"))).to_vec());
    let planned = stack.planned(Arc::new(runtime(&stack, Level::Strict, &[])), &wanted, false).await.unwrap();
    let expected = "example.com/v1:Widget:shop:v and 1 more: not validated: neither Kubernetes 1.36 nor a \
                    CustomResourceDefinition in the source or the repository defines Widget of example.com/v1";
    assert_eq!(planned.notes, [expected]);
}

#[tokio::test]
async fn block_and_values_of_sops_are_no_fields_of_an_object() {
    let stack = Stack::default();
    let encrypted = "ENC[AES256_GCM,data:qX0=,iv:aa=,tag:bb=,type:int]";
    let wanted = |sops: Value| {
        let spec_of = json!({"ports": [{"port": encrypted}]});
        spec(vec![
            object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
                "spec": spec_of, "sops": sops})),
            object(json!({"apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"name": "w", "namespace": "shop"}, "size": encrypted, "sops": sops})),
        ])
    };
    let sops = json!({"mac": "ENC[AES256_GCM,data:x]", "version": "3.9.0", "age": []});
    let strict = || runtime(&stack, Level::Strict, &[definition()]);
    let planned = stack.planned(Arc::new(strict()), &wanted(sops), false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
    assert_eq!(
        stack.refusal(strict(), &wanted(json!({}))).await.len(),
        4,
        "a block without a checksum is none of SOPS"
    );
}
