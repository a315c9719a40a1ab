//! Tests of custom resources whose definition is in the same Spec.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_engine::Spec;
use stoa_engine::problem::reason;
use stoa_runtime::fake::Operation;
use stoa_runtime::{Level, RuntimeError, Validation};

use crate::fixtures::{Stack, config_map, id, spec};

const WIDGET: &str = "example.com/v1:Widget:shop:w";
const DEFINITION: &str = "apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.example.com";

/// A definition whose `spec` has this schema.
fn definition(schema: Value) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}});
    json!({"id": DEFINITION, "type": "Kubernetes", "attributes": {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Widget", "plural": "widgets"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}})
}

fn sized(max: u32) -> Value {
    json!({"type": "object", "required": ["size"], "properties": {"size": {"type": "integer", "maximum": max}}})
}

fn widget(spec: Value) -> Value {
    json!({"id": WIDGET, "type": "Kubernetes", "attributes": {
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "shop"}, "spec": spec}})
}

/// The problems of a Spec, with their reasons.
async fn refused(stack: &Stack, spec: &Spec) -> Vec<String> {
    let problems = stack.refusal(stack.runtime(), spec).await;
    problems.iter().map(|it| format!("{} {it}", it.reason)).collect()
}

#[tokio::test]
async fn invalid_custom_resource_is_rejected_before_definition() {
    let stack = Stack::default();
    let of = |size: Value| spec(vec![config_map("a", &[], json!({})), definition(sized(9)), widget(size)]);
    assert_eq!(
        refused(&stack, &of(json!({"size": "many", "sze": 1}))).await,
        [
            format!(
                "{} {WIDGET}: attributes.spec.size: must be a whole number, not a string",
                reason::INVALID_RESOURCE
            ),
            format!("{} {WIDGET}: attributes.spec.sze: its kind has no field of this name", reason::INVALID_RESOURCE),
        ]
    );
    assert_eq!(
        refused(&stack, &of(json!({}))).await,
        [format!("{} {WIDGET}: attributes.spec.size: its kind requires this field", reason::MISSING_FIELD)]
    );
    assert!(stack.cloud.ids().is_empty());
    stack.bring(&of(json!({"size": 3}))).await;
}

#[tokio::test]
async fn unknown_field_fails_strict_plans_only() {
    let stack = Stack::default();
    let at = |level: Level| stack.runtime().deferred().validated(Validation { level, ..Validation::default() });
    let of = |size: Value| spec(vec![definition(sized(9)), widget(json!({"size": size, "sze": 1}))]);
    let told = format!("{WIDGET}: attributes.spec.sze: its kind has no field of this name");
    let problems = stack.refusal(at(Level::Strict), &of(json!("1"))).await;
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["attributes.spec.size", "attributes.spec.sze"]);
    let planned = stack.planned(Arc::new(at(Level::Warn)), &of(json!(1)), false).await.unwrap();
    assert_eq!(planned.notes, [told]);
    let planned = stack.planned(Arc::new(at(Level::Off)), &of(json!("1")), false).await.unwrap();
    assert_eq!(planned.notes, [""; 0]);
    // A later plan compares it again, since nothing refuses it afterwards.
    stack.bring(&spec(vec![definition(sized(9)), widget(json!({"size": 1}))])).await;
    assert_eq!(stack.refusal(at(Level::Strict), &of(json!(10))).await.len(), 2);
}

#[tokio::test]
async fn changed_definition_decides_by_its_new_schema() {
    let stack = Stack::default();
    let of = |max: u32, size: u32, more: Value| {
        let schema = json!({"type": "object", "properties": {"more": {"type": "string"}, "size": sized(max)["properties"]["size"]}});
        spec(vec![definition(schema), widget(json!({"size": size, "more": more}))])
    };
    stack.bring(&of(9, 5, json!("a"))).await;
    let told = refused(&stack, &of(4, 6, json!("a"))).await;
    assert!(told.len() == 1 && told[0].contains("attributes.spec.size: must be at most 4"), "{told:?}");
    assert_eq!(refused(&stack, &of(4, 5, json!(7))).await.len(), 1);
    // What is too large and stays as it is may stay, as a server has it.
    stack.bring(&of(4, 5, json!("b"))).await;
    // The infrastructure has the definition, and took it.
    stack.bring(&of(4, 50, json!("b"))).await;
}

#[tokio::test]
async fn unknown_values_are_not_rejected_but_resolved_ones_are() {
    let stack = Stack::default();
    let of = |size: String| {
        spec(vec![config_map("a", &[], json!({"size": "3"})), definition(sized(9)), widget(json!({"size": size}))])
    };
    let told = refused(&stack, &of(format!("$kusion_path.{}.data.size", id("a")))).await;
    assert!(told.len() == 1 && told[0].contains("must be a whole number, not a string"), "{told:?}");
    let planned = stack.plan(&of(format!("$kusion_path.{}.metadata.uid", id("a")))).await.unwrap();
    assert_eq!(planned.summary.create, 3);
    // Nor is anything said by a definition that is not known itself.
    let mut later = definition(sized(9));
    later["attributes"]["metadata"]["labels"] = json!({"uid": format!("$kusion_path.{}.metadata.uid", id("a"))});
    let later = spec(vec![config_map("a", &[], json!({})), later, widget(json!({"size": "x"}))]);
    assert_eq!(stack.plan(&later).await.unwrap().summary.create, 3);
}

#[tokio::test]
async fn mutating_admission_of_same_spec_prevents_rejection() {
    let stack = Stack::default();
    let webhook = |group: &str| {
        let rules =
            json!([{"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["widgets"]}]);
        json!({"id": "admissionregistration.k8s.io/v1:MutatingWebhookConfiguration:w", "type": "Kubernetes", "attributes": {
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"},
            "webhooks": [{"name": "w.example.com", "rules": rules}]}})
    };
    let of = |group: &str, size: Value| spec(vec![webhook(group), definition(sized(9)), widget(size)]);
    for group in ["example.com", "*"] {
        stack.plan(&of(group, json!({}))).await.unwrap();
        assert_eq!(refused(&stack, &of(group, json!({"size": "1"}))).await.len(), 1);
    }
    assert_eq!(refused(&stack, &of("example.org", json!({}))).await.len(), 1);
}

#[tokio::test]
async fn new_schema_decides_about_server_rejection() {
    let stack = Stack::default();
    let of = |max: u32, size: u32| spec(vec![definition(sized(max)), widget(json!({"size": size}))]);
    stack.bring(&of(9, 5)).await;
    let refuse = |by_definition| {
        let field = Some("spec.size".to_owned());
        let refusal = RuntimeError::Rejected { message: "no".to_owned(), field, by_definition };
        stack.cloud.fail(Operation::Preview, WIDGET, refusal);
    };
    refuse(true);
    let planned = stack.plan(&of(20, 15)).await.unwrap();
    let unverified: Vec<_> = planned.plan.actions.iter().filter_map(|action| action.unverified.as_deref()).collect();
    assert_eq!(unverified, [format!("its kind changes when {DEFINITION} is applied")]);
    refuse(true);
    let told = refused(&stack, &of(20, 21)).await;
    assert!(told.len() == 1 && told[0].contains("attributes.spec.size: must be at most 20"), "{told:?}");
    // What others refuse is refused, and one that stays has decided.
    for (by_definition, max) in [(false, 20), (true, 9)] {
        refuse(by_definition);
        let told = refused(&stack, &of(max, 8)).await;
        assert!(told.len() == 1 && told[0].starts_with(reason::REJECTED), "{told:?}");
    }
    // So has one of which only words change, or that comes later.
    let mut described = definition(sized(9));
    described["attributes"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("told anew");
    let mut later = definition(sized(20));
    later["dependsOn"] = json!([WIDGET]);
    for definition in [described, later] {
        refuse(true);
        let told = refused(&stack, &spec(vec![definition, widget(json!({"size": 8}))])).await;
        assert!(told.len() == 1 && told[0].starts_with(reason::REJECTED), "{told:?}");
    }
    stack.bring(&of(20, 15)).await;
}

#[tokio::test]
async fn old_defaults_and_pruning_do_not_fail_new_schema() {
    let stack = Stack::default();
    let of = |mode: &str| {
        let mode = json!({"type": "string", "default": mode, "enum": [mode]});
        definition(json!({"type": "object", "properties": {"mode": mode}}))
    };
    stack.bring(&spec(vec![of("a")])).await;
    stack.cloud.admit(WIDGET, ["spec", "mode"], json!("a"));
    stack.plan(&spec(vec![of("b"), widget(json!({}))])).await.unwrap();
}

#[tokio::test]
async fn recreated_resource_is_validated_as_a_whole() {
    let stack = Stack::default();
    let of = |max: u32, kind: &str| {
        let mut widget = widget(json!({"size": 5}));
        widget["attributes"]["type"] = json!(kind);
        widget["extensions"] = json!({"stoa.dev/recreate": "true"});
        let mut definition = definition(sized(max));
        let schema = &mut definition["attributes"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["type"] = json!({"type": "string"});
        spec(vec![definition, widget])
    };
    stack.bring(&of(9, "a")).await;
    stack.cloud.fix("type");
    let told = refused(&stack, &of(4, "b")).await;
    assert!(told.len() == 1 && told[0].contains("attributes.spec.size: must be at most 4"), "{told:?}");
    // What is there may stay.
    stack.plan(&of(4, "a")).await.unwrap();
}

#[tokio::test]
async fn existing_admission_fills_in_required_fields() {
    let stack = Stack::default();
    stack.cloud.admit(WIDGET, ["spec", "size"], json!(7));
    let of = |max: u32| spec(vec![definition(sized(max)), widget(json!({}))]);
    stack.bring(&spec(vec![definition(sized(9))])).await;
    let told = refused(&stack, &of(4)).await;
    assert!(told.len() == 1 && told[0].contains("attributes.spec.size: must be at most 4"), "{told:?}");
    stack.bring(&of(8)).await;
}

#[tokio::test]
async fn field_pruned_by_old_schema_is_applied() {
    let stack = Stack::default();
    let of = |fields: Value, of_widget: Value| {
        spec(vec![definition(json!({"type": "object", "properties": fields})), widget(of_widget)])
    };
    let open = json!({"size": {"type": "object"}});
    let closed = json!({"size": {"type": "object", "properties": {"rooms": {"type": "integer"}}}});
    stack.bring(&of(open.clone(), json!({}))).await;
    stack.cloud.prune(WIDGET, Some(["spec", "size"]));
    // Where the definition stays, what it leaves out stays out.
    let planned = stack.plan(&of(open, json!({"size": {"rooms": 3}}))).await.unwrap();
    assert_eq!(planned.summary.unchanged, 2, "{}", planned.table);
    let wanted = of(closed, json!({"size": {"rooms": 3}}));
    let planned = stack.plan(&wanted).await.unwrap();
    let unverified: Vec<_> = planned.plan.actions.iter().filter_map(|action| action.unverified.as_deref()).collect();
    assert_eq!(unverified, [format!("its kind changes when {DEFINITION} is applied")]);
    assert_eq!(planned.summary.update, 2, "{}", planned.table);
    stack.cloud.prune(WIDGET, None);
    stack.bring(&wanted).await;
    assert_eq!(stack.cloud.live(WIDGET).unwrap()["spec"]["size"], json!({"rooms": 3}));
}

#[tokio::test]
async fn removed_default_does_not_satisfy_required_field() {
    let stack = Stack::default();
    let of = |size: Value| {
        let required: Vec<&str> = if size.get("default").is_some() { Vec::new() } else { vec!["size"] };
        definition(json!({"type": "object", "required": required, "properties": {"size": size}}))
    };
    let with_default = of(json!({"type": "integer", "default": 3}));
    let without = || spec(vec![of(json!({"type": "integer"})), widget(json!({}))]);
    stack.bring(&spec(vec![with_default])).await;
    stack.cloud.admit(WIDGET, ["spec", "size"], json!(3));
    assert_eq!(
        refused(&stack, &without()).await,
        [format!("{} {WIDGET}: attributes.spec.size: its kind requires this field", reason::MISSING_FIELD)]
    );
    // What others make of it than the default they may go on to make.
    stack.cloud.admit(WIDGET, ["spec", "size"], json!(7));
    stack.plan(&without()).await.unwrap();
}

#[tokio::test]
async fn definition_versions_change_independently() {
    let stack = Stack::default();
    let of = |max: u32| {
        let mut definition = definition(sized(9));
        let versions = definition["attributes"]["spec"]["versions"].as_array_mut().unwrap();
        let mut later = versions[0].clone();
        (later["name"], later["storage"]) = (json!("v2"), json!(false));
        later["schema"]["openAPIV3Schema"]["properties"]["spec"] = sized(max);
        versions.push(later);
        definition
    };
    let in_both = |size: u32| {
        let mut later = widget(json!({"size": size}));
        (later["id"], later["attributes"]["apiVersion"]) = (json!(LATER), json!("example.com/v2"));
        later["attributes"]["metadata"]["name"] = json!("later");
        [widget(json!({"size": 5})), later]
    };
    const LATER: &str = "example.com/v2:Widget:shop:later";
    stack.bring(&spec([vec![of(9)], in_both(5).to_vec()].concat())).await;
    for (id, is_taken) in [(WIDGET, false), (LATER, true)] {
        let field = Some("spec.size".to_owned());
        let refusal = RuntimeError::Rejected { message: "no".to_owned(), field, by_definition: true };
        stack.cloud.fail(Operation::Preview, id, refusal);
        let mut resources = in_both(15);
        resources[0]["attributes"]["spec"]["size"] = json!(8);
        let planned = stack.plan(&spec([vec![of(20)], resources.to_vec()].concat())).await;
        assert_eq!(planned.is_ok(), is_taken, "{id}: {planned:?}");
    }
}

#[tokio::test]
async fn version_that_definition_stops_serving_is_rejected() {
    let stack = Stack::default();
    let of = |is_served: bool, max: u32| {
        let mut definition = definition(sized(max));
        let versions = definition["attributes"]["spec"]["versions"].as_array_mut().unwrap();
        let mut later = versions[0].clone();
        (versions[0]["served"], later["name"]) = (json!(is_served), json!("v2"));
        versions.push(later);
        definition
    };
    let all = |is_served: bool, size: u32| spec(vec![of(is_served, 9), widget(json!({"size": size}))]);
    stack.bring(&all(true, 5)).await;
    let problem = format!(
        "{} {WIDGET}: attributes.apiVersion: {DEFINITION} in the Spec does not serve its kind in version \"v1\"",
        reason::UNKNOWN_KIND
    );
    for size in [5, 6] {
        assert_eq!(refused(&stack, &all(false, size)).await, std::slice::from_ref(&problem), "{size}");
    }
    // Without the object it may go, and with the object in another version.
    let mut later = widget(json!({"size": 5}));
    later["attributes"]["apiVersion"] = json!("example.com/v2");
    later["id"] = json!("example.com/v2:Widget:shop:w");
    stack.plan(&spec(vec![of(false, 9)])).await.unwrap();
    stack.plan(&spec(vec![of(false, 9), later])).await.unwrap();
}
