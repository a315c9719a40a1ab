use serde_json::json;

use super::*;

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
fn what_the_server_sets_is_left_alone() {
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
fn a_field_goes_only_when_it_was_recorded() {
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
fn drift_is_told_from_what_is_newly_wanted() {
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

#[test]
fn items_of_shared_lists_are_matched_by_their_key() {
    let desired = json!({"containers": [{"name": "log", "image": "l"}, {"name": "web", "image": "b", "env": [{"name": "A", "value": "1"}]}]});
    let live = json!({"containers": [
        {"name": "injected", "image": "i"},
        {"name": "log", "image": "l", "terminationMessagePath": "/dev/termination-log"},
        {"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}, {"name": "THEIRS", "value": "x"}]},
    ]});
    check(pod(desired), pod(live), "spec.containers[name=web].image: \"a\" > \"b\"");
}

#[test]
fn an_item_of_a_shared_list_goes_only_when_it_was_recorded() {
    let web = json!({"name": "web"});
    check_recorded(
        pod(json!({"containers": [web, {"name": "old"}]})),
        pod(json!({"containers": [web]})),
        pod(json!({"containers": [{"name": "theirs"}, web, {"name": "old"}]})),
        "spec.containers[name=old]: {\"name\":\"old\"} > -",
    );
}

#[test]
fn items_of_shared_lists_have_an_order() {
    let env = |names: &[&str]| {
        let items: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "x"})).collect();
        pod(json!({"containers": [{"name": "web", "env": items}]}))
    };
    let moved = r#"spec.containers[name=web].env: ["B","A"] > ["A","B"]"#;
    check(env(&["A", "B"]), env(&["B", "A"]), moved);
    check_recorded(env(&["B", "A"]), env(&["A", "B"]), env(&["B", "A"]), moved);
    check_recorded(env(&["A", "B"]), env(&["A", "B"]), env(&["B", "A"]), &format!("!{moved}"));
    // What others have is nobody's order.
    check(env(&["A", "B"]), env(&["THEIRS", "A", "OTHER", "B"]), "");
    let live = env(&["B", "A"]);
    assert_eq!(changes(None, env(&["A", "B"]), live.clone(), Some(live)), "", "the server may not mind");
}

#[test]
fn ports_are_matched_by_number_and_by_name_when_that_is_not_enough() {
    check(
        service(json!({"ports": [{"port": 80, "name": "http"}]})),
        service(json!({"ports": [{"port": 80, "protocol": "TCP", "name": "web"}]})),
        "spec.ports[port=80].name: \"web\" > \"http\"",
    );
    let both = json!([{"port": 53, "protocol": "TCP", "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "udp"}]);
    let mut other = both.clone();
    other[1]["targetPort"] = json!(5353);
    check(service(json!({"ports": both})), service(json!({"ports": other})), "");
    check(
        service(json!({"ports": other})),
        service(json!({"ports": both})),
        "spec.ports[name=udp].targetPort: - > 5353",
    );
}

#[test]
fn items_belong_together_by_all_their_keys() {
    let ports = |ports: Value| service(json!({ "ports": ports }));
    let (any, tcp, udp) =
        (json!({"port": 80}), json!({"port": 80, "protocol": "TCP"}), json!({"port": 80, "protocol": "UDP"}));
    check(ports(json!([any])), ports(json!([tcp])), "");
    let made = r#"spec.ports[port,protocol=80,TCP]: - > {"port":80}"#;
    check(ports(json!([any])), ports(json!([udp])), made);
    // And not by their names.
    let named = |tcp: &str, udp: &str| json!([{"name": tcp, "port": 53}, {"name": udp, "port": 53, "protocol": "UDP"}]);
    check(
        ports(named("a", "b")),
        ports(named("b", "a")),
        "spec.ports[port,protocol=53,TCP].name: \"b\" > \"a\"\nspec.ports[port,protocol=53,UDP].name: \"a\" > \"b\"",
    );
    // What was recorded is not what others have by now.
    check_recorded(ports(json!([udp])), ports(json!([])), ports(json!([tcp])), "");
    check_recorded(
        ports(json!([udp])),
        ports(json!([])),
        ports(json!([udp])),
        r#"spec.ports[port=80]: {"port":80,"protocol":"UDP"} > -"#,
    );
}

#[test]
fn other_lists_belong_to_one_owner() {
    check(
        json!({"rules": [{"host": "a"}, {"host": "b"}]}),
        json!({"rules": [{"host": "a"}, {"host": "b"}, {"host": "theirs"}]}),
        "rules[host=theirs]: {\"host\":\"theirs\"} > -",
    );
    check(
        json!({"rules": [{"host": "a"}, {"host": "b"}]}),
        json!({"rules": [{"host": "b"}, {"host": "a"}]}),
        "rules: [\"b\",\"a\"] > [\"a\",\"b\"]",
    );
    check(json!({"args": ["a", "b"]}), json!({"args": ["a", "c", "d"]}), "args[1]: \"c\" > \"b\"\nargs[2]: \"d\" > -");
}

/// Compares what is live with what is wanted and recorded so, without a look at what the server would make, and then with the
/// answer that it would make it as wanted.
fn check_drift(wanted: Value, live: Value, expected: &str) {
    check_recorded(wanted.clone(), wanted.clone(), live.clone(), expected);
    assert_eq!(changes(Some(wanted.clone()), wanted.clone(), live, Some(wanted)), expected);
}

#[test]
fn what_others_add_to_what_has_one_owner_is_drift() {
    let policy = |spec: Value| object("networking.k8s.io/v1", "NetworkPolicy", spec);
    check_drift(
        policy(json!({"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}]}], "podSelector": {}})),
        policy(json!({"ingress": [{"ports": [{"port": 80, "protocol": "TCP"}, {"port": 22, "protocol": "TCP"}]}],
            "podSelector": {"matchLabels": {"app": "web"}}})),
        "!spec.ingress[0].ports[1]: {\"port\":22,\"protocol\":\"TCP\"} > -\n\
         !spec.podSelector.matchLabels: {\"app\":\"web\"} > -",
    );
    check_drift(
        policy(json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]})),
        policy(json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}, "namespaceSelector": {}}]}]})),
        "!spec.ingress[0].from[0].namespaceSelector: {} > -",
    );
    for selector in [json!({"app": "web"}), json!({"app": "web", "track": null})] {
        check_drift(
            service(json!({ "selector": selector })),
            service(json!({"selector": {"app": "web", "track": "canary"}})),
            "!spec.selector.track: \"canary\" > -",
        );
    }
    let template = |selector: Value, key: Value| {
        let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": key}}]);
        let spec = json!({"containers": [{"name": "web", "env": env}], "nodeSelector": selector});
        object("apps/v1", "Deployment", json!({"template": {"spec": spec}}))
    };
    check_drift(
        template(json!({"disk": "ssd"}), json!({"name": "a", "key": "b"})),
        template(json!({"disk": "ssd", "zone": "a"}), json!({"name": "a", "key": "b", "optional": true})),
        "!spec.template.spec.containers[name=web].env[name=A].valueFrom.secretKeyRef.optional: true > -\n\
         !spec.template.spec.nodeSelector.zone: \"a\" > -",
    );
}

#[test]
fn what_others_add_to_what_is_shared_stays() {
    check_recorded(
        service(json!({"ports": [{"port": 80}]})),
        service(json!({"ports": [{"port": 80}]})),
        service(json!({"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}, {"port": 81, "protocol": "TCP"}],
            "selector": {"theirs": "x"}})),
        "",
    );
}

#[test]
fn what_a_server_fills_in_is_no_drift() {
    let check = |api_version: &str, kind: &str, wanted: Value, live: Value, moved: Value| {
        let [wanted, live, moved] = [wanted, live, moved].map(|spec| object(api_version, kind, spec));
        check_recorded(wanted.clone(), wanted.clone(), live.clone(), "");
        assert_ne!(changes(Some(wanted.clone()), wanted, moved.clone(), None), "", "{moved}");
    };
    let ports = |port: Value| json!({"podSelector": {}, "egress": [{"ports": [port]}]});
    check(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        ports(json!({"port": 80})),
        ports(json!({"port": 80, "protocol": "TCP"})),
        ports(json!({"port": 80, "protocol": "UDP"})),
    );
    let claims = |claim: Value| json!({ "volumeClaimTemplates": [claim] });
    let wanted = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let mut live = wanted.clone();
    live["apiVersion"] = json!("v1");
    live["kind"] = json!("PersistentVolumeClaim");
    live["spec"]["volumeMode"] = json!("Filesystem");
    live["status"] = json!({"phase": "Pending"});
    let mut moved = live.clone();
    moved["spec"]["storageClassName"] = json!("fast");
    check("apps/v1", "StatefulSet", claims(wanted), claims(live), claims(moved));
    let limits = |limit: Value| json!({ "limits": [{"type": "Pod", "max": {"cpu": "4"}}, limit] });
    let wanted = json!({"type": "Container", "max": {"cpu": "2000m", "memory": "1Gi"}, "min": {"storage": "1Gi"},
        "default": {"memory": "512Mi"}});
    let live = json!({"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"storage": "1Gi"},
        "default": {"cpu": "2", "memory": "512Mi"}, "defaultRequest": {"cpu": "2", "memory": "512Mi", "storage": "1Gi"}});
    for (map, resource, quantity) in [
        ("default", "cpu", "1"),
        ("default", "storage", "1Gi"),
        ("defaultRequest", "memory", "1Gi"),
        ("defaultRequest", "pods", "1"),
    ] {
        let mut moved = live.clone();
        moved[map][resource] = json!(quantity);
        check("v1", "LimitRange", limits(wanted.clone()), limits(live.clone()), limits(moved));
    }
    let devices = |request: Value| json!({"devices": {"requests": [{"name": "gpu", "exactly": request}]}});
    let wanted = json!({"deviceClassName": "gpu", "tolerations": [{"key": "a"}]});
    let mut live = wanted.clone();
    live["allocationMode"] = json!("ExactCount");
    live["count"] = json!(1);
    live["tolerations"][0]["operator"] = json!("Equal");
    let mut moved = live.clone();
    moved["count"] = json!(2);
    for (kind, is_template) in [("ResourceClaim", false), ("ResourceClaimTemplate", true)] {
        let claim = |request: &Value| match is_template {
            true => json!({"spec": devices(request.clone())}),
            false => devices(request.clone()),
        };
        check("resource.k8s.io/v1", kind, claim(&wanted), claim(&live), claim(&moved));
    }
    let claim = |claim: Value| json!({ "claimRef": claim });
    check(
        "v1",
        "PersistentVolume",
        claim(json!({"name": "data", "namespace": "shop"})),
        claim(json!({"name": "data", "namespace": "shop", "uid": "u", "kind": "PersistentVolumeClaim"})),
        claim(json!({"name": "other", "namespace": "shop", "uid": "u"})),
    );
}

/// Compares a custom resource's `spec` with what is live, when the same is recorded as wanted.
fn check_custom(schema: Option<&Schema>, desired: Value, live: Value, expected: &str) {
    let object = |spec: Value| {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec});
        object.as_object().cloned().unwrap()
    };
    let prior = object(desired);
    assert_eq!(show_along(schema, Some(&prior), &Resolved::plain(&prior), &object(live), None), expected);
}

fn schema(spec: Value) -> Schema {
    let document = json!({"components": {"schemas": {"Widget": {
        "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
        "properties": {"spec": {"properties": spec}},
    }}}});
    Schema::of_kind(&document, "example.com", "v1", "Widget").unwrap()
}

#[test]
fn a_list_of_a_custom_resource_has_one_owner_whatever_it_is_called() {
    let added = json!([{"name": "http", "port": 80}, {"name": "theirs", "port": 81}]);
    for field in ["ports", "env", "volumes", "containers"] {
        let desired = json!({field: [{"name": "http", "port": 80}]});
        let expected = format!(r#"!spec.{field}[name=theirs]: {{"name":"theirs","port":81}} > -"#);
        check_custom(None, desired.clone(), json!({field: added}), &expected);
        let told = schema(json!({field: {"type": "array", "x-kubernetes-list-type": "atomic", "items": {}}}));
        check_custom(Some(&told), desired, json!({field: added}), &expected);
    }
}

#[test]
fn a_list_of_a_custom_resource_is_shared_where_its_schema_says_so() {
    let told = schema(json!({
        "routes": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"properties": {"protocol": {"default": "TCP"}}}},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {}},
        "selector": {"x-kubernetes-map-type": "atomic", "additionalProperties": {}},
        "labels": {"additionalProperties": {}},
    }));
    let desired = json!({"routes": [{"port": 53, "to": "a"}, {"port": 53, "protocol": "UDP", "to": "b"}],
        "tags": ["a"], "selector": {"app": "web"}, "labels": {"app": "web"}});
    let mut live = json!({
        "routes": [{"port": 9, "protocol": "TCP", "to": "theirs"}, {"port": 53, "protocol": "TCP", "to": "a"},
            {"port": 53, "protocol": "UDP", "to": "b"}],
        "tags": ["theirs", "a"], "selector": {"app": "web"}, "labels": {"app": "web", "theirs": "x"}});
    check_custom(Some(&told), desired.clone(), live.clone(), "");
    live["routes"][2]["to"] = json!("c");
    live["selector"]["theirs"] = json!("x");
    check_custom(
        Some(&told),
        desired,
        live,
        "!spec.routes[port,protocol=53,UDP].to: \"c\" > \"b\"\n!spec.selector.theirs: \"x\" > -",
    );
}

#[test]
fn what_is_in_a_list_of_a_custom_resource_has_its_owner() {
    let told = schema(json!({"rules": {"type": "array", "items": {"properties": {
        "match": {"default": {"path": "/"}, "properties": {"kind": {"default": "Prefix"}, "path": {}}},
        "weight": {"default": 1},
    }}}}));
    let desired = json!({"rules": [{"to": "a"}]});
    let mut live = json!({"rules": [{"match": {"kind": "Prefix", "path": "/"}, "to": "a", "weight": 1}]});
    check_custom(Some(&told), desired.clone(), live.clone(), "");
    live["rules"][0]["match"]["kind"] = json!("Exact");
    live["rules"][0]["weight"] = json!(2);
    let expected = "!spec.rules[0].match: {\"kind\":\"Exact\",\"path\":\"/\"} > -\n!spec.rules[0].weight: 2 > -";
    check_custom(Some(&told), desired, live, expected);
}

#[test]
fn finalizers_of_others_stay() {
    let finalizers = |all: &[&str]| json!({"metadata": {"finalizers": all}});
    check(finalizers(&["ours"]), finalizers(&["theirs", "ours"]), "");
    check(finalizers(&["ours"]), finalizers(&["theirs"]), "metadata.finalizers[0]: - > \"ours\"");
    check_recorded(
        finalizers(&["ours", "old"]),
        finalizers(&["ours"]),
        finalizers(&["ours", "old"]),
        "metadata.finalizers[1]: \"old\" > -",
    );
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
fn what_only_has_the_name_of_a_quantity_is_text() {
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
fn string_data_is_compared_with_the_data_a_server_keeps() {
    let secret = |field: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, field: {"password": value}});
    check(secret("stringData", "hunter2"), secret("data", "aHVudGVyMg=="), "");
    check(secret("stringData", "hunter2"), secret("data", "b2xk"), "data.password: \"(sensitive)\" > \"(sensitive)\"");
}

#[test]
fn values_that_sensitive_ones_flowed_into_are_masked() {
    let desired = Resolved {
        attributes: owned(json!({"data": {"url": "pg://hunter2@db", "list": ["a", "hunter2"]}})),
        sensitive: [FieldPath::of_keys(["data", "url"]), FieldPath::of_keys(["data", "list"]).index(1)].into(),
        ..Resolved::default()
    };
    let live = json!({"data": {"url": "pg://old@db"}});
    assert_eq!(
        show(None, &desired, live.as_object().unwrap(), None),
        "data.list: - > [\"a\",\"(sensitive)\"]\ndata.url: \"(sensitive)\" > \"(sensitive)\""
    );
}

#[test]
fn a_sensitive_value_that_was_recorded_is_not_drift_when_it_changes() {
    let desired = |password: &str| Resolved {
        attributes: owned(json!({"data": {"p": password}})),
        sensitive: [FieldPath::of_keys(["data", "p"])].into(),
        ..Resolved::default()
    };
    let recorded =
        |it: &Resolved<'_>| Sensitive::of(&it.attributes, &it.sensitive).recorded(&"x".into(), &it.attributes, &keys());
    let live = json!({"data": {"p": "one"}});
    let changed = show(Some(&recorded(&desired("one"))), &desired("two"), live.as_object().unwrap(), None);
    assert_eq!(changed, "data.p: \"(sensitive)\" > \"(sensitive)\"");
    let drifted = show(Some(&recorded(&desired("two"))), &desired("two"), live.as_object().unwrap(), None);
    assert_eq!(drifted, "!data.p: \"(sensitive)\" > \"(sensitive)\"");
}

/// What is recorded of a sensitive text.
fn mask(text: &str) -> Value {
    keys().mask(&"x".into(), &json!(text))
}

#[test]
fn what_was_sensitive_when_it_was_recorded_is_not_shown_wherever_it_is_by_now() {
    check_recorded(
        json!({"data": {"pw": mask("hunter2"), "plain": "x"}}),
        json!({"data": {"url": "pg://new"}}),
        json!({"data": {"pw": "hunter2", "plain": "x", "url": "pg://hunter2@db"}}),
        "data.url: \"(sensitive)\" > \"pg://new\"\ndata.plain: \"x\" > -\ndata.pw: \"(sensitive)\" > -",
    );
    // Also once it is another value, in the whole of what goes, and in what comes in its place.
    let recorded = json!({"data": {"pw": mask("hunter2"), "plain": "x"}});
    let live = json!({"data": {"pw": "moved", "plain": "x"}});
    let whole = "data: {\"plain\":\"x\",\"pw\":\"(sensitive)\"} > -";
    check_recorded(recorded.clone(), json!({}), live.clone(), whole);
    let replaced = json!({"data": {"pw": "y", "plain": "x"}});
    check_recorded(recorded, replaced, live, "data.pw: \"(sensitive)\" > \"(sensitive)\"");
}

#[test]
fn what_was_sensitive_in_an_item_is_found_by_its_key() {
    let web = |env: Value| json!({"name": "web", "env": env});
    let rest = json!({"name": "B", "value": "b"});
    check_recorded(
        pod(json!({"containers": [web(json!([{"name": "PW", "value": mask("hunter2")}, rest]))]})),
        pod(json!({"containers": [web(json!([rest]))]})),
        pod(json!({"containers": [{"name": "injected"}, web(json!([
            {"name": "THEIRS", "value": "t"}, {"name": "PW", "value": "moved"}, rest]))]})),
        "spec.containers[name=web].env[name=PW]: {\"name\":\"PW\",\"value\":\"(sensitive)\"} > -",
    );
}

#[test]
fn what_was_sensitive_in_a_list_without_keys_is_not_what_is_there_as_it_was_recorded() {
    let web = |args: Value| pod(json!({"containers": [{"name": "web", "args": args}]}));
    let check = |live: &[&str], expected: &str| {
        check_recorded(web(json!([mask("hunter2"), "b"])), web(json!(["b"])), web(json!(live)), expected);
    };
    let shown = |at: usize| format!("spec.containers[name=web].args[{at}]: ");
    check(&["hunter2", "b"], &format!("{}\"(sensitive)\" > \"(sensitive)\"\n{}\"b\" > -", shown(0), shown(1)));
    // Nobody knows which of two it is.
    check(
        &["x", "hunter2", "b"],
        &format!(
            "{}\"(sensitive)\" > \"(sensitive)\"\n{}\"(sensitive)\" > -\n!{}\"b\" > -",
            shown(0),
            shown(1),
            shown(2)
        ),
    );
}

#[test]
fn what_a_call_may_have_set_of_which_nothing_is_recorded_is_not_shown() {
    let map = |value: Value| value.as_object().cloned().unwrap();
    let wanted = map(json!({"data": {"a": "2"}}));
    let (desired, live) = (Resolved::plain(&wanted), map(json!({"data": {"a": "1", "pw": "hunter2"}})));
    let check = |prior: Value, expected: &str| {
        let (id, kind, keys, prior) = (&"x".into(), ResourceType::Kubernetes, &keys(), map(prior));
        let (prior, desired, live) = (Some(&prior), &desired, &live);
        let comparison = Comparison { id, kind, prior, records: &[], unsure: true, desired, live, keys, schema: None };
        assert_eq!(lines(&against_preview(&comparison, &wanted)), expected);
    };
    check(json!({}), "data.a: \"(sensitive)\" > \"2\"\ndata.pw: \"(sensitive)\" > -");
    check(json!({"data": {"a": "1"}}), "data.a: \"1\" > \"2\"\ndata.pw: \"(sensitive)\" > -");
}

#[test]
fn unknown_values_are_told_as_such() {
    let desired = Resolved {
        attributes: owned(json!({"data": {"uid": null}})),
        unknown: [FieldPath::of_keys(["data", "uid"])].into(),
        ..Resolved::default()
    };
    let live = json!({"data": {"uid": "u-1"}});
    assert_eq!(show(None, &desired, live.as_object().unwrap(), None), "data.uid: \"u-1\" > \"(known after apply)\"");
}

#[test]
fn a_preview_decides_and_shows_what_the_server_does_besides() {
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
fn resources_that_are_no_objects_have_no_server_fields() {
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

#[test]
fn whose_an_object_is_is_no_change() {
    let object =
        |annotations: Value| json!({"metadata": {"name": "web", "annotations": annotations}, "data": {"a": "1"}});
    let bare = json!({"metadata": {"name": "web"}, "data": {"a": "1"}});
    let marked = object(json!({crate::owner::MARK: "shop/web/dev/u"}));
    for (desired, live, preview) in [
        (&bare, &marked, None),
        (&bare, &bare, Some(&marked)),
        (&bare, &marked, Some(&marked)),
        (&bare, &object(json!({crate::owner::MARK: "shop/other/dev/u"})), Some(&marked)),
        (&marked, &object(json!({crate::owner::MARK: "shop/other/dev/u"})), None),
    ] {
        let prior = Some(bare.clone());
        assert_eq!(changes(prior, desired.clone(), live.clone(), preview.cloned()), "", "{live} {preview:?}");
    }
    let more = object(json!({"x": "y", crate::owner::MARK: "shop/web/dev/u"}));
    assert_eq!(
        changes(Some(bare.clone()), object(json!({"x": "y"})), bare, Some(more)),
        r#"metadata.annotations: - > {"x":"y"}"#,
        "what is wanted beside it is shown"
    );
}

/// Something that was applied, of which its server made this.
fn applied(attributes: Value, made: Value) -> StateResource {
    let map = |value: Value| value.as_object().cloned().unwrap();
    let resource = crate::spec::Resource {
        id: "x".into(),
        kind: ResourceType::Kubernetes,
        attributes: map(attributes),
        depends_on: Vec::new(),
        extensions: Map::new(),
    };
    StateResource::applied(&resource, &Resolved::plain(&resource.attributes), map(made), &keys())
}

fn check_moved(record: &StateResource, live: Value, expected: &str) {
    check_moved_from(None, record, live, expected);
}

/// The same where the last release has it like this.
fn check_moved_from(released: Option<&Resolved<'_>>, record: &StateResource, live: Value, expected: &str) {
    let (live, keys) = (live.as_object().unwrap(), &keys());
    let deployed = Deployed { record, released, unsure: false, live, keys, schema: None };
    assert_eq!(lines(&moved(&deployed)), expected);
}

#[test]
fn what_is_live_moved_where_it_is_neither_as_it_was_applied_nor_as_it_was_made() {
    let made = json!({"spec": {"text": "MADE", "other": "b", "filled": 1}, "status": {"at": 1}});
    let record = applied(json!({"spec": {"text": "a", "other": "b", "left out": "c"}}), made.clone());
    check_moved(&record, made, "");
    check_moved(&record, json!({"spec": {"text": "a", "other": "b", "filled": 2, "theirs": 3}}), "");
    let edited = json!({"spec": {"text": "MADE", "other": "edited", "left out": "set"}});
    check_moved(&record, edited, "!spec[\"left out\"]: \"set\" > \"c\"\n!spec.other: \"edited\" > \"b\"");
    check_moved(&record, json!({"spec": {"text": "edited"}}), "!spec.other: - > \"b\"\n!spec.text: \"edited\" > \"a\"");
    // Where nobody knows what was made of it, what was applied is all there is.
    let unknown = applied(json!({"spec": {"a": 1, "b": 2}}), json!({}));
    check_moved(&unknown, json!({"spec": {"a": 1}}), "!spec.b: - > 2");
}

#[test]
fn what_others_added_to_what_was_applied_with_one_owner_moved_unless_it_was_there() {
    let made =
        service(json!({"selector": {"app": "web", "by": "webhook"}, "ports": [{"port": 80, "protocol": "TCP"}]}));
    let record = applied(service(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})), made.clone());
    check_moved(&record, made.clone(), "");
    let mut live = made;
    live["spec"]["selector"]["track"] = json!("canary");
    check_moved(&record, live, "!spec.selector.track: \"canary\" > -");
}

#[test]
fn secrets_moved_where_their_digests_are_others_and_are_not_shown() {
    let secret = |field: &str, password: &str| {
        let metadata = json!({"name": "db"});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, field: {"password": password}})
    };
    let stored = |password: &str| secret("data", password);
    for attributes in [secret("stringData", "hunter2"), stored("aHVudGVyMg==")] {
        let record = applied(attributes, stored("aHVudGVyMg=="));
        assert!(!format!("{record:?}").contains("hunter2"));
        // Also where it is on record under another id by now.
        for record in [record.clone(), record.under("y".into())] {
            check_moved(&record, stored("aHVudGVyMg=="), "");
            check_moved(&record, stored("b3RoZXI="), "!data.password: \"(sensitive)\" > \"(sensitive)\"");
        }
    }
}

#[test]
fn what_is_sensitive_is_not_shown_where_it_moved_within_a_list() {
    let args = |args: Value| json!({"spec": {"args": args}}).as_object().cloned().unwrap();
    let resource = crate::spec::Resource {
        id: "x".into(),
        kind: ResourceType::Kubernetes,
        attributes: args(json!(["--login", "hunter2"])),
        depends_on: Vec::new(),
        extensions: Map::new(),
    };
    let sensitive = BTreeSet::from([FieldPath::of_keys(["spec", "args"]).index(1)]);
    let resolved = Resolved { sensitive, ..Resolved::plain(&resource.attributes) };
    let record = StateResource::applied(&resource, &resolved, resource.attributes.clone(), &keys());
    check_moved(&record, resource.attributes.clone().into(), "");
    let hidden = "\"(sensitive)\"";
    let expected =
        format!("!spec.args[0]: {hidden} > {hidden}\n!spec.args[1]: {hidden} > {hidden}\n!spec.args[2]: {hidden} > -");
    check_moved(&record, args(json!(["--quiet", "--login", "hunter2"])).into(), &expected);
}

#[test]
fn what_the_last_release_says_to_be_sensitive_is_not_shown_where_it_is_live_again() {
    let web = |env: Value| pod(json!({"containers": [{"name": "web", "env": env}]}));
    let (rest, password) = (json!({"name": "A", "value": "a"}), |text: &str| json!({"name": "PW", "value": text}));
    let run = web(json!([rest, password("plain")]));
    let record = applied(run.clone(), run);
    let variable = FieldPath::of_keys(["spec", "containers"]).index(0).key("env").index(0).key("value");
    let released = Resolved {
        attributes: owned(web(json!([password("hunter2"), rest]))),
        sensitive: [variable].into(),
        ..Resolved::default()
    };
    // Also once the Secret has another value.
    for text in ["hunter2", "before"] {
        let live = web(json!([rest, password(text)]));
        let expected = "!spec.containers[name=web].env[name=PW].value: \"(sensitive)\" > \"(sensitive)\"";
        check_moved_from(Some(&released), &record, live, expected);
    }
}

#[test]
fn what_is_left_to_others_moves_nowhere() {
    let map = json!({"spec": {"replicas": 1, "image": "a"}});
    let mut record = applied(map.clone(), map);
    record.extensions.insert(crate::ignore::IGNORE_FIELDS.to_owned(), json!("spec.replicas"));
    check_moved(&record, json!({"spec": {"replicas": 5, "image": "b"}}), "!spec.image: \"b\" > \"a\"");
}
