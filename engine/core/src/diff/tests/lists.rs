//! Tests of lists: keyed items and atomic lists.

use super::*;

#[test]
fn shared_list_items_are_matched_by_key() {
    let desired = json!({"containers": [{"name": "log", "image": "l"}, {"name": "web", "image": "b", "env": [{"name": "A", "value": "1"}]}]});
    let live = json!({"containers": [
        {"name": "injected", "image": "i"},
        {"name": "log", "image": "l", "terminationMessagePath": "/dev/termination-log"},
        {"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}, {"name": "THEIRS", "value": "x"}]},
    ]});
    check(pod(desired), pod(live), "spec.containers[name=web].image: \"a\" > \"b\"");
}

#[test]
fn only_recorded_items_are_removed_from_shared_list() {
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
fn ports_match_by_number_then_name() {
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
fn items_match_by_all_keys() {
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
fn custom_resource_list_is_atomic() {
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
fn custom_resource_list_is_shared_by_schema() {
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
fn items_of_custom_resource_list_have_owners() {
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
