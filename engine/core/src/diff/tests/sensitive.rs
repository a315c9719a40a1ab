//! Tests of sensitive values, which no change shows.

use super::*;

#[test]
fn values_derived_from_sensitive_ones_are_masked() {
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
fn changed_recorded_secret_is_not_drift() {
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

#[test]
fn formerly_sensitive_value_is_masked() {
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
fn formerly_sensitive_item_is_matched_by_key() {
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
fn sensitive_list_without_keys_matches_nothing() {
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
fn untracked_values_of_lost_call_are_masked() {
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
