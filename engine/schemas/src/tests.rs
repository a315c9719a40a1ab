//! Tests of validation by the schemas of built-in kinds.

use serde_json::json;

use super::*;

/// What is found, a line each.
fn found_in(version: &str, object: Value) -> Vec<String> {
    let found = Catalogue::of(version).unwrap().check(object.as_object().unwrap(), &BTreeSet::new());
    found.iter().map(|it| format!("{:?} {}: {}", it.fault, it.field, it.message)).collect()
}

fn found(object: Value) -> Vec<String> {
    found_in("1.36", object)
}

fn fields(object: Value) -> Vec<String> {
    let mut fields: Vec<String> = found(object).iter().map(|it| it.split(": ").next().unwrap().to_owned()).collect();
    fields.sort();
    fields
}

fn deployment(container: Value) -> Value {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}})
}

#[test]
fn every_version_has_stable_kinds() {
    for version in KUBERNETES_VERSIONS {
        let catalogue = Catalogue::of(version).unwrap();
        for (api_version, kind) in [
            ("v1", "Pod"),
            ("apps/v1", "Deployment"),
            ("networking.k8s.io/v1", "Ingress"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("apiregistration.k8s.io/v1", "APIService"),
        ] {
            assert!(catalogue.has(api_version, kind), "{version} {api_version} {kind}");
        }
        assert!(!catalogue.has("v1", "PodList"), "it is no object of a manifest");
    }
    assert!(Catalogue::of("1.12").is_none());
}

#[test]
fn catalogue_is_shared_while_something_uses_it() {
    let first = Catalogue::of("1.33").unwrap();
    assert!(Arc::ptr_eq(&first, &Catalogue::of("1.33").unwrap()));
    let position = KUBERNETES_VERSIONS.iter().position(|it| *it == "1.33").unwrap();
    drop(first);
    let in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(in_use[position].strong_count(), 0);
}

#[test]
fn field_errors_are_reported_together() {
    let container = json!({"image": "a", "evn": [], "ports": [{"containerPort": "80"}], "stdin": "yes",
        "resources": {"limits": {"cpu": 1.5, "memory": "1Gb"}}, "env": {"A": "b"}});
    let at = |field: &str| format!("spec.template.spec.containers[0].{field}");
    let mut expected = vec![
        format!("Missing {}", at("name")),
        format!("Invalid {}", at("evn")),
        format!("Invalid {}", at("ports[0].containerPort")),
        format!("Invalid {}", at("stdin")),
        format!("Invalid {}", at("resources.limits.memory")),
        format!("Invalid {}", at("env")),
    ];
    expected.sort();
    assert_eq!(fields(deployment(container)), expected);
    assert_eq!(
        found(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {}})),
        ["Missing spec.selector: its kind requires this field", "Missing spec.template: its kind requires this field"]
    );
}

#[test]
fn names_ports_and_labels_have_their_formats() {
    let container = json!({"name": "Web", "image": "a", "ports": [{"containerPort": 0}, {"containerPort": 65536},
        {"containerPort": 80, "name": "a-name-of-16-chr"}], "livenessProbe": {"httpGet": {"port": 70000}}});
    let at = |field: &str| format!("Invalid spec.template.spec.containers[0].{field}");
    let mut expected = vec![
        at("name"),
        at("ports[0].containerPort"),
        at("ports[1].containerPort"),
        at("ports[2].name"),
        at("livenessProbe.httpGet.port"),
    ];
    expected.sort();
    assert_eq!(fields(deployment(container)), expected);
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a b": "c"}, "metadata": {
        "name": "My_Map", "namespace": "a.b", "labels": {"a": "b c", "-": "b"}, "annotations": {"a b": "c"}}});
    let expected = [
        "Invalid data[\"a b\"]",
        "Invalid metadata.annotations[\"a b\"]",
        "Invalid metadata.labels.-",
        "Invalid metadata.labels.a",
        "Invalid metadata.name",
        "Invalid metadata.namespace",
    ];
    assert_eq!(fields(config_map), expected);
}

#[test]
fn service_name_starts_with_letter_before_1_36() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "9web"}});
    assert_eq!(found_in("1.36", service.clone()), [""; 0]);
    assert_eq!(found_in("1.35", service).len(), 1);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "system:Node"}});
    assert_eq!(found(role), [""; 0]);
}

#[test]
fn missing_kind_names_its_replacement() {
    let of = |api_version: &str, kind: &str| {
        found(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}})).join("; ")
    };
    for (api_version, kind, replacement) in [
        ("extensions/v1beta1", "Ingress", "networking.k8s.io/v1"),
        ("apps/v1beta1", "Deployment", "apps/v1"),
        ("batch/v1beta1", "CronJob", "batch/v1"),
        ("autoscaling/v2beta2", "HorizontalPodAutoscaler", "autoscaling/v2"),
    ] {
        let expected =
            format!("Kind apiVersion: Kubernetes 1.36 has no {kind} of {api_version}; write it as {replacement}");
        assert_eq!(of(api_version, kind), expected);
    }
    let none = "Kind apiVersion: Kubernetes 1.36 has no PodSecurityPolicy of policy/v1beta1";
    assert_eq!(of("policy/v1beta1", "PodSecurityPolicy"), none);
    assert_eq!(of("example.com/v1", "Widget"), "");
}

#[test]
fn valid_objects_have_no_findings() {
    let container = json!({"name": "web", "image": "a", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"port": "http"}}, "command": null});
    for object in [
        deployment(container),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a.b", "creationTimestamp": null,
            "annotations": {"Example.com/X": "y"}}, "data": {"any.Key_1": "thing"}, "binaryData": {"b": "YQ=="}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [
            {"port": 80.0, "targetPort": "http"}, {"port": 81, "targetPort": 81, "nodePort": 0}]}}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"spec": {"type": "object", "default": {"any": 1}}}}}}]}}),
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"any": "thing"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "status": {"phase": 7, "x": 1}}),
    ] {
        assert_eq!(found(object.clone()), [""; 0], "{object}");
    }
}

#[test]
fn custom_object_metadata_and_size_are_checked() {
    let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "A", "lables": {}},
        "spec": "x".repeat(2 << 20)});
    let found = found(object).join("\n");
    for expected in [
        "Invalid metadata.lables: its kind has no field of this name; did you mean labels?",
        "metadata.name",
        "1.5 MiB",
    ] {
        assert!(found.contains(expected), "{found}");
    }
}

#[test]
fn unknown_values_are_skipped() {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"ports": [{"port": "${a.port}"}]}});
    let unknown = FieldPath::of_keys(["spec", "ports"]).index(0).key("port");
    let catalogue = Catalogue::of("1.36").unwrap();
    let check =
        |unknown: &[FieldPath]| catalogue.check(object.as_object().unwrap(), &unknown.iter().cloned().collect()).len();
    assert_eq!((check(&[]), check(&[unknown])), (1, 0));
}
