//! Tests of ignored fields in the wanted and the applied object.

use serde_json::json;

use super::*;

fn resource(fields: Value) -> Resource {
    serde_json::from_value(json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "extensions": {IGNORE_FIELDS: fields},
        "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}))
    .unwrap()
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

#[test]
fn ignored_fields_have_live_values() {
    let wanted = map(json!({"spec": {"replicas": 1, "paused": true, "containers": [
        {"name": "log", "image": "l1"}, {"name": "web", "image": "w1"}]}, "labels": {"a.b/c": "1"}}));
    let live = map(json!({"spec": {"replicas": 5, "extra": {"deep": 1}, "others": [{"name": "web", "image": "x"}],
        "containers": [{"name": "web", "image": "w2"}, {"name": "log", "image": "l2"}]}, "labels": {"a.b/c": "2"}}));
    let check = |fields: Value, changed: Value| {
        let mut expected = Value::Object(wanted.clone());
        for (pointer, value) in changed.as_object().unwrap() {
            *expected.pointer_mut(pointer).unwrap() = value.clone();
        }
        let ignored = Ignored::of(&resource(fields.clone())).unwrap();
        assert_eq!(Value::Object(ignored.as_live(wanted.clone(), &live)), expected, "{fields}");
    };
    check(json!(["spec.replicas"]), json!({"/spec/replicas": 5}));
    check(json!("spec.replicas, labels[\"a.b/c\"]"), json!({"/spec/replicas": 5, "/labels/a.b~1c": "2"}));
    check(json!(["spec.containers[name=web].image"]), json!({"/spec/containers/1/image": "w2"}));
    check(json!(["spec.containers.web.image"]), json!({"/spec/containers/1/image": "w2"}));
    // An index counts in what is wanted.
    check(json!(["spec.containers[0].image"]), json!({"/spec/containers/0/image": "l2"}));
    check(json!(["spec.containers.1.image"]), json!({"/spec/containers/1/image": "w2"}));
    check(json!([]), json!({}));
    check(json!(["spec.others.web.image", "spec.containers.gone.image"]), json!({}));
    let ignored = Ignored::of(&resource(json!(["spec.paused", "spec.extra.deep"]))).unwrap();
    let made = Value::Object(ignored.as_live(wanted.clone(), &live));
    assert_eq!((made["spec"].get("paused"), &made["spec"]["extra"]), (None, &json!({"deep": 1})));
}

#[test]
fn number_is_list_index_or_map_key() {
    let object = |value: &str| {
        map(json!({"data": {"0": value, "1": value}, "args": [value, value], "ports": [
            {"name": "a", "x": value}, {"name": "0", "x": value}, {"name": "8080", "x": value}]}))
    };
    let check = |field: &str, changed: &[&str]| {
        let mut expected = Value::Object(object("wanted"));
        changed.iter().for_each(|pointer| *expected.pointer_mut(pointer).unwrap() = "live".into());
        let ignored = Ignored::of(&resource(json!([field]))).unwrap();
        assert_eq!(Value::Object(ignored.as_live(object("wanted"), &object("live"))), expected, "{field}");
    };
    check("data.0", &["/data/0"]);
    check("data[\"1\"]", &["/data/1"]);
    check("data[0]", &[]);
    check("args.1", &["/args/1"]);
    check("args[1]", &["/args/1"]);
    check("ports.0.x", &["/ports/0/x"]);
    check("ports[1].x", &["/ports/1/x"]);
    check("ports[name=0].x", &["/ports/1/x"]);
    check("ports[name=8080].x", &["/ports/2/x"]);
    check("ports.8080.x", &[]);
    check("ports.a.x", &["/ports/0/x"]);
}

#[test]
fn every_spelling_of_path_touches_field() {
    let check = |field: &str, path: &str| {
        let ignored = Ignored::of(&resource(json!([field]))).unwrap();
        ignored.touches(&parse(path).unwrap())
    };
    for same in ["a.0.x", "a[0].x", "a[name=web].x", "a.web.x"] {
        for path in ["a", "a.0", "a[0].x", "a.web.x.y", "a[name=web].x", "a[name=web]"] {
            assert!(check(same, path), "{same} and {path}");
        }
    }
    for (one, other) in
        [("a.0.x", "a.1.x"), ("a[0].x", "a.1.x"), ("a.web.x", "a.log.x"), ("a[name=web]", "a[name=log]"), ("a", "b")]
    {
        assert!(!check(one, other) && !check(other, one), "{one} and {other}");
    }
}

#[test]
fn unknown_values_of_ignored_items_become_known() {
    let containers = |image: Value| map(json!({"spec": {"containers": [{"name": "web", "image": image}]}}));
    let image = FieldPath::of_keys(["spec", "containers"]).index(0).key("image");
    for field in ["spec.containers[0].image", "spec.containers.0.image", "spec.containers[name=web].image"] {
        let resolved = Resolved {
            attributes: Cow::Owned(containers(Value::Null)),
            unknown: BTreeSet::from([image.clone()]),
            sensitive: BTreeSet::new(),
        };
        let live = containers("live".into());
        let known = Ignored::of(&resource(json!([field]))).unwrap().resolved(resolved, &live);
        assert_eq!((known.unknown.len(), &*known.attributes), (0, &live), "{field}");
    }
}

#[test]
fn absent_ignored_items_are_removed() {
    let args = |args: &[&str]| map(json!({"args": args, "deep": [{"x": ["0", "1", "2"]}, {"x": ["0", "1", "2"]}]}));
    let (wanted, live) = (args(&["a", "b", "c", "d"]), map(json!({"args": ["x"], "deep": [{"x": []}, {"x": []}]})));
    let check = |fields: Value, expected: &[&str]| {
        let ignored = Ignored::of(&resource(fields.clone())).unwrap();
        assert_eq!(ignored.as_live(wanted.clone(), &live), args(expected), "{fields}");
        assert_eq!(ignored.applied(wanted.clone(), &live, "stoa"), args(expected), "{fields}");
    };
    check(json!(["args[1]", "args[2]"]), &["a", "d"]);
    check(json!(["args[2]", "args[1]"]), &["a", "d"]);
    check(json!(["args[3]", "args[0]", "args[1]"]), &["x", "c"]);
    check(json!(["args[1]", "args.1", "args[1]"]), &["a", "c", "d"]);
    let ignored = Ignored::of(&resource(json!(["deep[0].x[0]", "deep[0].x[1]", "deep[1].x[2]"]))).unwrap();
    let deep = ignored.as_live(wanted.clone(), &live)["deep"].clone();
    assert_eq!(deep, json!([{"x": ["2"]}, {"x": ["0", "1"]}]));

    // What is known of the others is known of where they are then.
    let at = |index: usize| FieldPath::of_keys(["args"]).index(index);
    let resolved =
        Resolved { attributes: Cow::Owned(wanted), unknown: [at(0), at(3)].into(), sensitive: [at(1), at(3)].into() };
    let resolved = Ignored::of(&resource(json!(["args[1]", "args[2]"]))).unwrap().resolved(resolved, &live);
    assert_eq!((resolved.unknown, resolved.sensitive), ([at(0), at(1)].into(), [at(1)].into()));
}

#[test]
fn new_item_has_all_fields() {
    let containers = |names: &[&str]| {
        let items: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": "wanted"})).collect();
        map(json!({"spec": {"containers": items}}))
    };
    let (wanted, live) = (containers(&["web", "new"]), containers(&["web"]));
    for field in ["spec.containers[name=new].image", "spec.containers.new.image", "spec.containers[1].image"] {
        let ignored = Ignored::of(&resource(json!([field]))).unwrap();
        assert_eq!(ignored.as_live(wanted.clone(), &live), wanted, "{field}");
        assert_eq!(ignored.applied(wanted.clone(), &live, "stoa"), wanted, "{field}");
    }
}

#[test]
fn invalid_ignored_field_is_reported() {
    for (fields, message) in [
        (json!(["spec..x"]), "`spec..x` is not a path: a name is missing"),
        (json!(["spec.x[a]"]), "`spec.x[a]` is not a path: [a] is neither [0] nor [name=web]"),
        (json!(["spec.x[0"]), "`spec.x[0` is not a path: a bracket is not closed"),
        (json!([""]), "`` is not a path: it is empty"),
        (json!("metadata.name"), "`metadata.name` identifies the object and cannot be ignored"),
        (json!(["metadata"]), "`metadata` identifies the object and cannot be ignored"),
        (json!({"spec": 1}), "must be a list of paths such as spec.replicas"),
        (json!([1]), "must be a list of paths such as spec.replicas"),
    ] {
        let problem = Ignored::of(&resource(fields)).unwrap_err();
        assert_eq!(problem.to_string(), format!("extensions[\"{IGNORE_FIELDS}\"]: {message}"));
    }
}

/// What is applied of `spec.containers[name=web].image` and `spec.replicas`, by who has them.
fn applied(entries: Value) -> Value {
    let object = |replicas: u32, image: &str| {
        map(json!({"spec": {"replicas": replicas, "containers": [{"name": "web", "image": image}]}}))
    };
    let mut live = object(5, "live");
    live.insert("metadata".to_owned(), json!({"managedFields": entries}));
    let fields = json!(["spec.replicas", "spec.containers.web.image"]);
    Value::Object(Ignored::of(&resource(fields)).unwrap().applied(object(1, "wanted"), &live, "stoa"))
}

fn entry(manager: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": if manager == "stoa" { "Apply" } else { "Update" }, "fieldsV1": fields})
}

#[test]
fn applied_object_omits_fields_of_others() {
    let containers = |fields: Value| json!({"f:containers": {"k:{\"name\":\"web\"}": fields}});
    let image = json!({".": {}, "f:name": {}, "f:image": {}});
    let ours = json!({"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"web\"}": image}}});
    let spec = |fields: Value| json!({"f:spec": fields});
    let left_out = json!({"spec": {"containers": [{"name": "web"}]}});
    let both = json!({"spec": {"replicas": 5, "containers": [{"name": "web", "image": "live"}]}});
    // Nobody else has them yet: left out, they would go.
    assert_eq!(applied(json!([entry("stoa", ours.clone())])), both);
    // The autoscaler does, with us or without.
    let theirs = spec(json!({"f:replicas": {}}));
    let one = json!({"spec": {"containers": [{"name": "web", "image": "live"}]}});
    assert_eq!(applied(json!([entry("stoa", ours.clone()), entry("hpa", theirs.clone())])), one);
    let without = spec(containers(json!({"f:name": {}})));
    assert_eq!(applied(json!([entry("stoa", without.clone()), entry("hpa", theirs)])), left_out);
    assert_eq!(applied(json!([entry("stoa", without)])), left_out, "what nobody has is not taken");
    // A list with one owner is taken whole.
    assert_eq!(applied(json!([entry("stoa", spec(json!({"f:containers": {}})))])), one);
}

#[test]
fn atomic_value_keeps_ignored_live_part() {
    let service = |selector: Value| json!({"spec": {"selector": selector}}).as_object().unwrap().clone();
    let wanted = service(json!({"app": "web"}));
    let mut live = service(json!({"app": "web", "track": "canary"}));
    let entries = json!([entry("rollouts", json!({"f:spec": {"f:selector": {}}}))]);
    live.insert("metadata".to_owned(), json!({ "managedFields": entries }));
    let applied = |field: &str| {
        let ignored = Ignored(vec![parse(field).unwrap()]);
        Value::Object(ignored.applied(wanted.clone(), &live, "stoa"))
    };
    assert_eq!(applied("spec.selector.track")["spec"], live["spec"]);
    assert_eq!(applied("spec.selector"), json!({"spec": {}}), "all of it is left to who has it");

    // A map that is shared was empty when the first manager applied it.
    let part = entry("canary", json!({"f:spec": {"f:selector": {"f:track": {}}}}));
    live["metadata"]["managedFields"].as_array_mut().unwrap().push(part);
    let ignored = Ignored(vec![parse("spec.selector.track").unwrap()]);
    assert_eq!(ignored.applied(wanted.clone(), &live, "stoa")["spec"], wanted["spec"]);
}

#[test]
fn ignored_map_fields_stay_with_each_manager() {
    let fields = json!(["metadata.annotations", "data"]);
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let wanted = map(annotations(json!({"scrape": "true", "theirs": "1", "new": "1"})));
    let mut live = map(annotations(json!({"scrape": "live", "theirs": "2", "restartedAt": "now"})));
    let ours = json!({"f:metadata": {"f:annotations": {"f:scrape": {}, "f:theirs": {}}}});
    let theirs = json!({"f:metadata": {"f:annotations": {"f:theirs": {}, "f:restartedAt": {}}}});
    let entries = json!([entry("stoa", ours), entry("kubectl", theirs.clone())]);
    live["metadata"].as_object_mut().unwrap().insert("managedFields".to_owned(), entries);
    let ignored = Ignored::of(&resource(fields)).unwrap();
    // Ours stays as it is, or it would go; theirs is left to them; what nobody has is not taken.
    let applied = Value::Object(ignored.applied(wanted.clone(), &live, "stoa"));
    assert_eq!(applied, annotations(json!({"scrape": "live"})));
    live["metadata"]["managedFields"] = json!([entry("kubectl", theirs)]);
    assert_eq!(Value::Object(ignored.applied(wanted, &live, "stoa")), json!({"metadata": {}}));
}

#[test]
fn secret_value_is_ignored_under_both_names() {
    let mut secret = resource(json!(["stringData.password"]));
    secret.attributes.insert("kind".to_owned(), "Secret".into());
    let ignored = Ignored::of(&secret).unwrap();
    let wanted = map(json!({"stringData": {"password": "a", "user": "u"}}));
    let live = map(json!({"data": {"password": "Yg==", "user": "dQ=="}}));
    let made = json!({"stringData": {"user": "u"}, "data": {"password": "Yg=="}});
    assert_eq!(Value::Object(ignored.as_live(wanted, &live)), made);
}

#[test]
fn aggregated_role_rules_are_ignored() {
    let role = |rule: Value, extensions: Value| -> Resource {
        let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "a"},
            "aggregationRule": rule, "rules": []});
        let role = json!({"id": "a", "type": "Kubernetes", "attributes": object, "extensions": extensions});
        serde_json::from_value(role).unwrap()
    };
    let aggregated = role(json!({"clusterRoleSelectors": []}), json!({}));
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let live = |managers: Value| {
        let mut live = aggregated.attributes.clone();
        live["metadata"]["managedFields"] = managers;
        live["rules"] = rules.clone();
        live
    };
    let applied = |managers: Value| {
        let ignored = Ignored::of(&aggregated).unwrap();
        ignored.applied(aggregated.attributes.clone(), &live(managers), "stoa").get("rules").cloned()
    };
    let of = |manager: &str| entry(manager, json!({"f:rules": {}}));
    assert_eq!(applied(json!([of("clusterrole-aggregation-controller")])), None);
    // Rules that we alone have stay until the control plane sets its own.
    assert_eq!(applied(json!([of("stoa")])), Some(rules.clone()));
    let fields = json!({IGNORE_FIELDS: "metadata.labels"});
    assert_eq!(Ignored::of(&role(json!({}), fields)).unwrap().0.len(), 2);
    assert!(Ignored::of(&role(Value::Null, json!({}))).unwrap().is_empty());
}
