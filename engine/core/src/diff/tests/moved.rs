//! Tests of drift from what was applied, without the Spec.

use super::*;

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
fn live_value_drifts_from_applied_and_created_value() {
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
fn additions_to_atomic_value_drift_unless_recorded() {
    let made =
        service(json!({"selector": {"app": "web", "by": "webhook"}, "ports": [{"port": 80, "protocol": "TCP"}]}));
    let record = applied(service(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]})), made.clone());
    check_moved(&record, made.clone(), "");
    let mut live = made;
    live["spec"]["selector"]["track"] = json!("canary");
    check_moved(&record, live, "!spec.selector.track: \"canary\" > -");
}

#[test]
fn drifted_secrets_are_not_shown() {
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
fn sensitive_value_that_drifts_in_list_is_masked() {
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
fn value_sensitive_in_last_release_is_masked() {
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
fn ignored_fields_do_not_drift() {
    let map = json!({"spec": {"replicas": 1, "image": "a"}});
    let mut record = applied(map.clone(), map);
    record.extensions.insert(crate::ignore::IGNORE_FIELDS.to_owned(), json!("spec.replicas"));
    check_moved(&record, json!({"spec": {"replicas": 5, "image": "b"}}), "!spec.image: \"b\" > \"a\"");
}
