//! Tests of changes between recorded, wanted and live objects.
//!
//! Elsewhere: `lists` is about items, `others` about other writers, `sensitive` about masked values, `moved` about
//! drift.

use serde_json::json;

use super::*;

mod lists;
mod moved;
mod others;
mod sensitive;

pub(super) fn keys() -> DigestKeys {
    DigestKeys::new(&[7; 32], &[])
}

fn owned(attributes: Value) -> Cow<'static, Map<String, Value>> {
    Cow::Owned(attributes.as_object().cloned().unwrap())
}

/// Shows the changes, one a line, with `!` for drift.
fn changes(prior: Option<Value>, desired: Value, live: Value, preview: Option<Value>) -> String {
    let map = |value: Value| value.as_object().cloned().unwrap();
    let (prior, desired, live) = (prior.map(map), map(desired), map(live));
    let resolved = Resolved::plain(&desired);
    show(prior.as_ref(), &resolved, &live, preview.map(map).as_ref())
}

fn show(
    prior: Option<&Map<String, Value>>,
    desired: &Resolved<'_>,
    live: &Map<String, Value>,
    preview: Option<&Map<String, Value>>,
) -> String {
    show_along(None, prior, desired, live, preview)
}

/// The same where the server says this of the kind.
fn show_along(
    schema: Option<&Schema>,
    prior: Option<&Map<String, Value>>,
    desired: &Resolved<'_>,
    live: &Map<String, Value>,
    preview: Option<&Map<String, Value>>,
) -> String {
    let (id, kind, keys) = (&"x".into(), ResourceType::Kubernetes, &keys());
    let records = prior.as_slice();
    let comparison = Comparison { id, kind, prior, records, unsure: false, desired, live, keys, schema };
    match preview {
        Some(preview) => lines(&against_preview(&comparison, preview)),
        None => lines(&three_way(&comparison)),
    }
}

fn lines(found: &[FieldChange]) -> String {
    let text = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let lines: Vec<_> = found
        .iter()
        .map(|it| format!("{}{}: {} > {}", if it.drift { "!" } else { "" }, it.path, text(&it.before), text(&it.after)))
        .collect();
    lines.join("\n")
}

/// Compares what is wanted with what is live, when nothing is recorded.
fn check(desired: Value, live: Value, expected: &str) {
    assert_eq!(changes(None, desired, live, None), expected);
}

/// The same when this was recorded.
fn check_recorded(prior: Value, desired: Value, live: Value, expected: &str) {
    assert_eq!(changes(Some(prior), desired, live, None), expected);
}

#[test]
fn equal_objects_have_no_changes() {
    let object = json!({"apiVersion": "v1", "spec": {"a": [1, {"b": null}]}});
    check(object.clone(), object, "");
}

#[test]
fn server_fields_are_ignored() {
    check(
        json!({"metadata": {"name": "web", "labels": {"a": "b"}, "creationTimestamp": null}, "spec": {"replicas": 1}, "status": {}}),
        json!({
            "metadata": {"name": "web", "uid": "u", "resourceVersion": "1", "generation": 2, "managedFields": [{}],
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b", "theirs": "x"},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"replicas": 1, "defaulted": true}, "status": {"replicas": 1},
        }),
        "",
    );
}

#[test]
fn fields_are_added_and_changed() {
    check(
        json!({"spec": {"replicas": 2, "paused": true, "text": null}}),
        json!({"spec": {"replicas": 1}}),
        "spec.paused: - > true\nspec.replicas: 1 > 2",
    );
}

#[test]
fn only_recorded_fields_are_removed() {
    check_recorded(
        json!({"data": {"a": "1", "b": "2"}}),
        json!({"data": {"a": "1"}}),
        json!({"data": {"a": "1", "b": "2", "theirs": "3"}}),
        "data.b: \"2\" > -",
    );
    check_recorded(json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1"}}), json!({"data": {"a": "1"}}), "");
    check_recorded(
        json!({"data": {"b": "2"}}),
        json!({"data": {"b": null}}),
        json!({"data": {"b": "2"}}),
        "data.b: \"2\" > -",
    );
    check_recorded(json!({"data": {"b": "2"}}), json!({}), json!({"data": {"b": "2"}}), "data: {\"b\":\"2\"} > -");
}

#[test]
fn drift_differs_from_new_values() {
    check_recorded(
        json!({"spec": {"replicas": 1, "image": "a"}}),
        json!({"spec": {"replicas": 1, "image": "b"}}),
        json!({"spec": {"replicas": 3, "image": "a"}}),
        "spec.image: \"a\" > \"b\"\n!spec.replicas: 3 > 1",
    );
    check_recorded(json!({"data": {"a": "1"}}), json!({"data": {"a": "1"}}), json!({}), "!data: - > {\"a\":\"1\"}");
}

/// An object of a kind with this `spec`.
fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
}

fn pod(spec: Value) -> Value {
    object("v1", "Pod", spec)
}

fn service(spec: Value) -> Value {
    object("v1", "Service", spec)
}

/// An object of a kind with one value at a path, in which a digit stands for an item of a list.
fn object_with(api_version: &str, kind: &str, path: &str, value: Value) -> Value {
    let below = path.rsplit('.').fold(value, |below, step| match step.parse::<usize>() {
        Ok(_) => json!([below]),
        Err(_) => json!({ step: below }),
    });
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    object.as_object_mut().unwrap().extend(below.as_object().unwrap().clone());
    object
}

#[test]
fn quantities_are_equal_where_quantities_are() {
    for (api_version, kind, path) in [
        ("v1", "Pod", "spec.containers.0.resources.limits.cpu"),
        ("v1", "Pod", "spec.overhead.cpu"),
        ("v1", "Pod", "spec.resources.requests.cpu"),
        ("v1", "PodTemplate", "template.spec.initContainers.0.resources.requests.cpu"),
        ("v1", "LimitRange", "spec.limits.0.default.cpu"),
        ("v1", "ResourceQuota", "spec.hard.cpu"),
        ("v1", "PersistentVolume", "spec.capacity.storage"),
        ("v1", "PersistentVolumeClaim", "spec.resources.requests.storage"),
        ("apps/v1", "Deployment", "spec.template.spec.containers.0.resources.limits.nvidia/gpu"),
        ("apps/v1", "Deployment", "spec.template.spec.containers.0.env.0.valueFrom.resourceFieldRef.divisor"),
        ("apps/v1", "DaemonSet", "spec.template.spec.volumes.0.emptyDir.sizeLimit"),
        ("apps/v1", "StatefulSet", "spec.volumeClaimTemplates.0.spec.resources.requests.storage"),
        ("batch/v1", "CronJob", "spec.jobTemplate.spec.template.spec.containers.0.resources.limits.cpu"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "spec.metrics.0.resource.target.averageValue"),
        ("node.k8s.io/v1", "RuntimeClass", "overhead.podFixed.cpu"),
    ] {
        let object = |value: Value| object_with(api_version, kind, path, value);
        check(object(json!("1000m")), object(json!("1")), "");
        check(object(json!(0.5)), object(json!("500m")), "");
        assert_ne!(changes(None, object(json!("2")), object(json!("1")), None), "", "{kind} {path}");
    }
}

#[test]
fn quantity_field_names_do_not_convert_text() {
    for (api_version, kind, path) in [
        ("example.com/v1", "Widget", "spec.values.default.tag"),
        ("example.com/v1", "Deployment", "spec.template.spec.containers.0.resources.limits.cpu"),
        ("argoproj.io/v1alpha1", "Rollout", "spec.template.spec.containers.0.resources.limits.cpu"),
        ("gateway.networking.k8s.io/v1", "Gateway", "spec.max.version"),
        ("v1", "ConfigMap", "data.limits.cpu"),
        ("v1", "Pod", "metadata.labels.max.version"),
        ("v1", "ResourceQuota", "metadata.annotations.hard"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "spec.scaleTargetRef.target.value"),
    ] {
        let object = |value: Value| object_with(api_version, kind, path, value);
        let (old, new) = (object(json!("1.1")), object(json!("1.10")));
        let shown = |changes: String| {
            assert!(changes.ends_with(r#": "1.1" > "1.10""#), "{kind} {path}: {changes:?}");
        };
        shown(changes(Some(old.clone()), new.clone(), old.clone(), None));
        shown(changes(Some(old.clone()), new.clone(), old.clone(), Some(new.clone())));
        let map = |value: Value| value.as_object().cloned().unwrap();
        let between = between(&"x".into(), ResourceType::Kubernetes, &map(old), &map(new));
        assert_eq!(between.len(), 1, "{kind} {path}");
    }
}

#[test]
fn string_data_is_compared_with_stored_data() {
    let secret = |field: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, field: {"password": value}});
    check(secret("stringData", "hunter2"), secret("data", "aHVudGVyMg=="), "");
    check(secret("stringData", "hunter2"), secret("data", "b2xk"), "data.password: \"(sensitive)\" > \"(sensitive)\"");
}

/// What is recorded of a sensitive text.
fn mask(text: &str) -> Value {
    keys().mask(&"x".into(), &json!(text))
}

#[test]
fn unknown_values_are_shown() {
    let desired = Resolved {
        attributes: owned(json!({"data": {"uid": null}})),
        unknown: [FieldPath::of_keys(["data", "uid"])].into(),
        ..Resolved::default()
    };
    let live = json!({"data": {"uid": "u-1"}});
    assert_eq!(show(None, &desired, live.as_object().unwrap(), None), "data.uid: \"u-1\" > \"(known after apply)\"");
}

#[test]
fn preview_decides_and_shows_server_changes() {
    let mut live = service(json!({"type": "ClusterIP", "ports": [{"port": 80}]}));
    live["metadata"]["resourceVersion"] = json!("1");
    let mut preview = service(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]}));
    preview["metadata"] = json!({"name": "x", "resourceVersion": "2", "generation": 2});
    assert_eq!(
        changes(None, service(json!({"type": "NodePort"})), live.clone(), Some(preview)),
        "spec.ports[port=80].nodePort: - > 30000\nspec.type: \"ClusterIP\" > \"NodePort\""
    );
    // The server reads `4Gi` as it had it.
    assert_eq!(changes(None, json!({"spec": {"size": "4096Mi"}}), live.clone(), Some(live)), "");
}

#[test]
fn non_kubernetes_resources_have_no_server_fields() {
    let map = |value: Value| value.as_object().cloned().unwrap();
    let wanted = map(json!({"status": "on"}));
    let desired = Resolved::plain(&wanted);
    let (id, live) = ("x".into(), map(json!({"status": "off"})));
    let comparison = Comparison {
        id: &id,
        kind: ResourceType::Terraform,
        prior: None,
        records: &[],
        unsure: false,
        desired: &desired,
        live: &live,
        keys: &keys(),
        schema: None,
    };
    assert_eq!(three_way(&comparison).len(), 1);
}
