//! Tests of hooks.

use serde_json::json;

use super::*;

/// A resource of a kind and a name, with these annotations.
fn resource(kind: &str, name: &str, annotations: Value) -> Resource {
    let object = json!({"apiVersion": "batch/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations}});
    let id = format!("batch/v1:{kind}:shop:{name}");
    serde_json::from_value(json!({"id": id, "type": "Kubernetes", "attributes": object})).unwrap()
}

fn job(name: &str, events: &str, weight: &str) -> Resource {
    resource("Job", name, json!({HOOK: events, WEIGHT: weight}))
}

/// The hooks of an operation as `<event> <kind> <name>`.
fn order(resources: &[Resource], operation: HookOperation) -> Vec<String> {
    let planned = planned(&resources.iter().collect::<Vec<_>>(), operation).unwrap();
    planned
        .iter()
        .map(|hook| {
            let mut parts = hook.resource.0.split(':').skip(1);
            format!("{} {} {}", hook.event, parts.next().unwrap(), parts.nth(1).unwrap())
        })
        .collect()
}

#[test]
fn weight_kind_and_name_order_hooks() {
    let resources = [
        job("b", "pre-install", "0"),
        job("a", "pre-install", ""),
        job("late", "pre-install", "5"),
        job("first", "pre-install", "-5"),
        resource("ConfigMap", "z", json!({HOOK: "pre-install"})),
        resource("Widget", "c", json!({HOOK: "pre-install"})),
        resource("Gadget", "d", json!({HOOK: "pre-install"})),
        job("odd", "pre-install", "many"),
        job("after", "post-install", "-9"),
    ];
    let expected = [
        "pre-install Job first",
        "pre-install ConfigMap z",
        "pre-install Job a",
        "pre-install Job b",
        "pre-install Job odd",
        "pre-install Gadget d",
        "pre-install Widget c",
        "pre-install Job late",
        "post-install Job after",
    ];
    assert_eq!(order(&resources, HookOperation::Install), expected);
    assert!(order(&resources, HookOperation::Upgrade).is_empty());
}

#[test]
fn each_operation_has_its_events() {
    let resources = [
        job("both", "pre-install, Pre-Upgrade", "0"),
        job("around", "pre-delete,post-delete", "0"),
        job("back", "post-rollback", "0"),
        job("test", "test", "0"),
        job("unknown", "pre-install,crd-install", "0"),
    ];
    let all = |operation| order(&resources, operation);
    assert_eq!(all(HookOperation::Install), ["pre-install Job both"]);
    assert_eq!(all(HookOperation::Upgrade), ["pre-upgrade Job both"]);
    assert_eq!(all(HookOperation::Rollback), ["post-rollback Job back"]);
    assert_eq!(all(HookOperation::Delete), ["pre-delete Job around", "post-delete Job around"]);
}

#[test]
fn delete_policy_defaults_to_before_creation() {
    let policies =
        |policy: Value| delete_policies(&resource("Job", "a", json!({HOOK: "pre-install", DELETE_POLICY: policy})));
    assert_eq!(policies(json!(null)), [DeletePolicy::BeforeHookCreation]);
    assert_eq!(policies(json!("sometimes")), [DeletePolicy::BeforeHookCreation]);
    assert_eq!(policies(json!("hook-failed, Hook-Succeeded")), [DeletePolicy::HookSucceeded, DeletePolicy::HookFailed]);
}

#[test]
fn hooks_are_separated_from_other_resources() {
    let mut web = resource("Web", "web", json!({}));
    web.depends_on = vec![job("a", "", "").id, "v1:ConfigMap:shop:b".into()];
    let resources = vec![web, job("a", "pre-install", "0"), job("gone", "pre-delete", "0"), job("test", "test", "0")];
    let spec = Spec { resources, ..Spec::default() };
    let names = |spec: &Spec| spec.resources.iter().map(|it| it.id.0.clone()).collect::<Vec<_>>();
    let (others, hooks) = split(&spec, false);
    assert_eq!((names(&others), hooks.len()), (vec!["batch/v1:Web:shop:web".to_owned()], 3));
    assert_eq!(others.resources[0].depends_on, ["v1:ConfigMap:shop:b".into()], "hooks come first anyway");
    let (delivered, hooks) = split(&spec, true);
    assert_eq!((names(&delivered).len(), hooks.len()), (2, 2));
    assert_eq!(names(&of_deletion(spec.clone())), ["batch/v1:Job:shop:gone"]);
    let warnings = warnings_in_repository(&spec);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains("batch/v1:Job:shop:a;") && warnings[1].ends_with("batch/v1:Job:shop:gone"),
        "{warnings:?}"
    );
}

#[test]
fn hooks_that_refer_are_rejected() {
    let mut hook = job("a", "pre-install", "0");
    hook.attributes.insert("spec".to_owned(), json!({"x": "$kusion_path.v1:ConfigMap:shop:b.data.x"}));
    let problems = planned(&[&hook], HookOperation::Install).unwrap_err();
    assert!(problems[0].message.contains("cannot refer"), "{problems:?}");
}

#[test]
fn ids_of_hooks_name_event_and_resource() {
    let hook = planned(&[&job("a", "pre-install", "0")], HookOperation::Install).unwrap().remove(0);
    assert_eq!(hook.id().0, "helm.sh/hook:pre-install:batch/v1:Job:shop:a");
    assert!(is_hook_id(&hook.id()) && !is_hook_id(&hook.resource));
}

#[test]
fn resource_policy_keeps_objects() {
    for (policy, kept) in [("keep", true), (" Keep ", true), ("delete", false)] {
        assert_eq!(is_kept(&resource("Job", "a", json!({RESOURCE_POLICY: policy})).attributes), kept, "{policy}");
    }
}
