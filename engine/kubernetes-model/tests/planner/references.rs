//! Tests of references: resolved, unknown and dangling ones.

use stoa_engine::path::FieldPath;

use super::*;

#[test]
fn dangling_references_are_reported() {
    let mut scenario = Scenario::applied(json!([config_map("a", &[], json!({"x": "1"}))]));
    scenario.put("a", json!({"x": "1"}));
    let to = |path: &str| json!({"v": format!("${{kusion_path.{}.{path}}}", id("a"))});
    let problems = scenario.problems(&spec(json!([
        config_map("a", &[], json!({"x": "1"})),
        config_map("through", &[], to("data.x.y")),
        config_map("typo", &[], to("metadata.nmae")),
        config_map("not-there", &[], to("data.z")),
        config_map("map", &[], to("data")),
    ])));
    assert_snapshot!(problems, @r"
    InvalidReference v1:ConfigMap:shop:map: attributes.data.v: v1:ConfigMap:shop:a.data is a map, which does not fit inside a string
    DanglingReference v1:ConfigMap:shop:not-there: attributes.data.v: v1:ConfigMap:shop:a has no data.z, neither in the Spec nor in the live object
    DanglingReference v1:ConfigMap:shop:through: attributes.data.v: v1:ConfigMap:shop:a.data.x.y cannot exist: data.x of v1:ConfigMap:shop:a is a string
    DanglingReference v1:ConfigMap:shop:typo: attributes.data.v: v1:ConfigMap:shop:a.metadata.nmae cannot exist: objects have no field metadata.nmae
    ");
}

/// A ConfigMap with what one field of another resource is.
fn copy_of(field: &str) -> Value {
    config_map("copy", &[], json!({"v": format!("$kusion_path.{field}")}))
}

#[test]
fn deleted_field_cannot_be_referenced() {
    let (secret, _) = secret();
    let mut other = secret.clone();
    other["attributes"]["stringData"] = json!({"user": "u"});
    let a = |data: Value| config_map("a", &[], data);
    for (field, before, after) in [
        ("v1:ConfigMap:shop:a.data.x", a(json!({"x": "1", "y": "2"})), a(json!({"y": "2"}))),
        ("v1:Secret:shop:db.stringData.password", secret.clone(), other.clone()),
        ("v1:Secret:shop:db.data.password", secret, other),
    ] {
        let (target, path) = field.split_once('.').unwrap();
        let mut scenario = Scenario::applied(json!([before, copy_of(field)]));
        // A server keeps no strings.
        if let Some(Live::Present(live)) = scenario.live.get_mut(target)
            && let Some(stored) = stoa_engine::object::secret_as_stored(live)
        {
            *live = stored;
        }
        let wanted = spec(json!([after, copy_of(field)]));
        let told = format!(
            "DanglingReference v1:ConfigMap:shop:copy: attributes.data.v: {target} will have no {path}: the Spec \
             does not set it any more\n"
        );
        assert_eq!(scenario.problems(&wanted), told);
        let made = after["attributes"].as_object().cloned().unwrap();
        scenario.previews.insert(target.into(), Preview::Changed(made));
        assert_eq!(scenario.problems(&wanted), told, "so says the server");
    }
}

#[test]
fn unset_field_cannot_be_referenced() {
    let (secret, a) = (secret().0, config_map("a", &[], json!({"y": "1"})));
    for (wanted, target, path) in [
        (&a, "v1:ConfigMap:shop:a", "data.x"),
        (&a, "v1:ConfigMap:shop:a", "binaryData.x"),
        (&secret, "v1:Secret:shop:db", "data.user"),
        (&secret, "v1:Secret:shop:db", "stringData.user"),
    ] {
        let told = format!(
            "DanglingReference v1:ConfigMap:shop:copy: attributes.data.v: {target} will have no {path}: neither the \
             Spec nor another writer sets it; if another writer sets it later, add it to stoa.dev/ignore-fields \
             there\n"
        );
        let wanted = spec(json!([wanted, copy_of(&format!("{target}.{path}"))]));
        assert_eq!(Scenario::default().problems(&wanted), told);
    }
}

#[test]
fn field_of_other_writer_can_be_referenced() {
    let copy = copy_of("v1:ConfigMap:shop:a.data.x");
    let a = |data: Value| config_map("a", &[], data);
    let wanted = spec(json!([a(json!({"y": "2"})), copy]));
    let changing = || Scenario::applied(json!([a(json!({"y": "1"}))]));
    let is_refused =
        |scenario: &Scenario, wanted: &Spec| plan(&scenario.input(wanted, &scenario.full(wanted))).is_err();
    assert!(is_refused(&changing(), &wanted), "nobody does");

    let mut given = changing();
    given.put("a", json!({"y": "1", "x": "theirs"}));
    assert!(!is_refused(&given, &wanted));

    let mut was_given = changing();
    let record = was_given.state.resources.iter_mut().find(|it| it.id == id("a")).unwrap();
    record.live["data"]["x"] = json!("theirs");
    was_given.live.remove(&id("a"));
    assert!(!is_refused(&was_given, &wanted), "it was deleted, and whoever gave it that may do so again");

    let mut made = changing();
    let admitted = a(json!({"y": "2", "x": "admitted"}))["attributes"].as_object().cloned().unwrap();
    made.previews.insert(id("a"), Preview::Changed(admitted));
    assert!(!is_refused(&made, &wanted));

    let mut left = a(json!({"y": "2"}));
    left["extensions"] = json!({stoa_engine::ignore::IGNORE_FIELDS: ["data.x"]});
    assert!(!is_refused(&changing(), &spec(json!([left, copy]))));

    let token = json!({"id": "v1:Secret:shop:token", "type": "Kubernetes", "attributes": {"apiVersion": "v1",
        "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {"name": "token", "namespace": "shop",
        "annotations": {"kubernetes.io/service-account.name": "web"}}}});
    assert!(!is_refused(&Scenario::default(), &spec(json!([token, copy_of("v1:Secret:shop:token.data.token")]))));

    // Whoever makes it empty has somebody else fill it.
    let mut merged = secret().0;
    merged["attributes"].as_object_mut().unwrap().remove("stringData");
    for (empty, field) in [
        (a(json!({})), "v1:ConfigMap:shop:a.data.x"),
        (a(Value::Null), "v1:ConfigMap:shop:a.data.x"),
        (merged, "v1:Secret:shop:db.data.user"),
    ] {
        assert!(!is_refused(&Scenario::default(), &spec(json!([empty, copy_of(field)]))), "{empty}");
    }

    let mut gone = changing();
    gone.live.remove(&id("a"));
    assert!(is_refused(&gone, &wanted));
    assert!(plan(&gone.input(&wanted, &BTreeMap::new())).is_ok(), "nobody looked");
    let live = gone.full(&wanted);
    let refresh = PlanInput { refresh: true, ..gone.input(&wanted, &live) };
    assert!(plan(&refresh).is_ok(), "nothing is changed");
}

#[test]
fn removed_field_with_default_is_known_after_apply() {
    let web = |spec: Value| {
        json!({"id": "apps/v1:Deployment:shop:web", "type": "Kubernetes", "attributes": {"apiVersion": "apps/v1",
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}})
    };
    let copy = copy_of("apps/v1:Deployment:shop:web.spec.replicas");
    let mut scenario = Scenario::applied(json!([web(json!({"replicas": 3, "paused": true})), copy]));
    let wanted = spec(json!([web(json!({"paused": true})), copy]));
    let shown = |scenario: &Scenario| {
        let plan = scenario.plan(&wanted);
        let change = plan.actions.iter().find(|it| it.id == id("copy")).unwrap().changes.first().cloned();
        change.map(|change| (change.before, change.after))
    };
    let later = Some((Some(json!(3)), Some(json!(UNKNOWN))));
    assert_eq!(shown(&scenario), later, "there may be a default");
    let preview = |scenario: &mut Scenario, spec: Value| {
        let made = web(spec)["attributes"].as_object().cloned().unwrap();
        scenario.previews.insert("apps/v1:Deployment:shop:web".into(), Preview::Changed(made));
    };
    preview(&mut scenario, json!({"replicas": 1, "paused": true}));
    assert_eq!(shown(&scenario), later, "there is one");
    // Somebody else has it, so that it stays as it is.
    preview(&mut scenario, json!({"replicas": 3, "paused": true}));
    assert_eq!(shown(&scenario), None);
    preview(&mut scenario, json!({"paused": true}));
    assert!(scenario.problems(&wanted).contains("apps/v1:Deployment:shop:web will have no spec.replicas"));
}

#[test]
fn changed_field_is_known_after_apply() {
    const WEB: &str = "v1:Service:shop:web";
    let web = |spec: Value| {
        json!({"id": WEB, "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}})
    };
    let given = |node_port: u16| {
        let mut object = web(json!({"port": 80, "nodePort": node_port}))["attributes"].as_object().cloned().unwrap();
        object["metadata"]["uid"] = json!("u-1");
        object
    };
    let copy = copy_of(&format!("{WEB}.spec.nodePort"));
    let uid = config_map("uid", &[], json!({"v": format!("$kusion_path.{WEB}.metadata.uid")}));
    let mut scenario = Scenario::applied(json!([web(json!({"port": 80}))]));
    scenario.live.insert(WEB.into(), Live::Present(given(30123)));
    let before = spec(json!([web(json!({"port": 80})), copy, uid]));
    let planned = scenario.plan(&before);
    scenario.carry_out(&before, &planned);
    scenario.live.insert(WEB.into(), Live::Present(given(30123)));
    assert!(scenario.plan(&before).is_unchanged());

    let wanted = spec(json!([web(json!({"port": 8080})), copy, uid]));
    let shown = |scenario: &Scenario| {
        let planned = scenario.plan(&wanted);
        ["copy", "uid"].map(|name| {
            let action = planned.actions.iter().find(|it| it.id == id(name)).unwrap().clone();
            (action.action, action.unverified, action.changes.into_iter().next().and_then(|change| change.after))
        })
    };
    let stays = (Action::Unchanged, None, None);
    let later = (Action::Update, Some("data.v known after apply".to_owned()), Some(json!(UNKNOWN)));
    assert_eq!(shown(&scenario), [later.clone(), stays.clone()], "which object it is does not change");
    let preview = |scenario: &mut Scenario, node_port: u16| {
        let mut made = given(node_port);
        made["spec"]["port"] = json!(8080);
        scenario.previews.insert(WEB.into(), Preview::Changed(made));
    };
    preview(&mut scenario, 30123);
    assert_eq!(shown(&scenario), [stays.clone(), stays.clone()], "the server says to keep it");
    // What it says otherwise need not be what comes of it, and what it made of the old value says nothing.
    preview(&mut scenario, 31999);
    assert_eq!(shown(&scenario), [later.clone(), stays.clone()]);
    let Some(Live::Present(old)) = scenario.live.get(&id("copy")).cloned() else { unreachable!() };
    scenario.previews.insert(id("copy"), Preview::Changed(old));
    assert_eq!(shown(&scenario), [later.clone(), stays.clone()]);
    // But for what cannot be changed in place, which is something else.
    scenario.previews.insert(id("copy"), Preview::Replaced(None));
    assert_eq!(shown(&scenario), [(Action::Replace, later.1, later.2), stays]);

    // Until the server is asked, what refers to it is asked about as it is.
    let live = scenario.full(&wanted);
    let asked = scenario.input(&wanted, &live);
    let none = BTreeMap::new();
    let outline = Outline::of(&asked).unwrap();
    let sketch = outline.sketch(&PlanInput { previews: &none, ..asked }).unwrap();
    assert!(sketch.desired[&id("copy")].unknown.is_empty());
    assert_eq!(outline.plan(&asked, sketch).unwrap(), scenario.plan(&wanted));
}

#[test]
fn dry_run_decides_about_removed_field() {
    let a = |data: Value| config_map("a", &[], data);
    let copy = copy_of("v1:ConfigMap:shop:a.data.x");
    let scenario = Scenario::applied(json!([a(json!({"x": "1", "y": "2"})), copy]));
    let wanted = spec(json!([a(json!({"y": "3"})), copy]));
    let live = scenario.full(&wanted);
    let looked = scenario.input(&wanted, &live);
    let outline = Outline::of(&looked).unwrap();
    for (made, is_told) in [(json!({"x": "1", "y": "3"}), false), (json!({"y": "3"}), true)] {
        let sketch = outline.sketch(&looked).unwrap();
        assert_eq!(sketch.desired[&id("copy")].unknown, [FieldPath::of_keys(["data", "v"])].into());
        let made = a(made)["attributes"].as_object().cloned().unwrap();
        let previews = BTreeMap::from([(id("a"), Preview::Changed(made))]);
        let planned = outline.plan(&PlanInput { previews: &previews, ..looked }, sketch);
        assert_eq!(planned.is_err(), is_told, "{planned:?}");
    }
}

#[test]
fn references_work_in_keys_lists_and_texts() {
    let scenario = Scenario::default();
    let of = |path: &str| format!("kusion_path.{}.{path}", id("a"));
    let spec = spec(json!([
        config_map("a", &[], json!({"name": "web", "ports": [80, 443], "deep": {"a.b/c": true}})),
        config_map(
            "b",
            &[],
            json!({
                "list": [format!("${}", of("data.ports")), format!("${}", of("data.ports[1]"))],
                "text": format!("${{{}}}:${{{}}} $${{kusion_path.x}}", of("data.name"), of("data.ports[0]")),
                format!("${{{}}}-key", of("data.name")): format!("${}", of(r#"data.deep["a.b/c"]"#)),
            })
        ),
    ]));
    let live = scenario.full(&spec);
    let draft = draft(&scenario.input(&spec, &live)).unwrap();
    assert_eq!(
        draft.desired[&id("b")].attributes["data"],
        json!({"list": [[80, 443], 443], "text": "web:80 ${kusion_path.x}", "web-key": true})
    );
    assert_eq!(draft.plan.actions[1].depends_on, [id("a")]);
}

#[test]
fn unknown_values_are_shown_as_unknown() {
    let mut scenario = Scenario::applied(json!([config_map("b", &[], json!({"uid": "old"}))]));
    let spec = spec(json!([
        config_map("a", &[], json!({})),
        config_map("b", &[], json!({"uid": format!("$kusion_path.{}.metadata.uid", id("a"))})),
    ]));
    assert_snapshot!(table(&scenario.plan(&spec)), @r#"
    + create   v1:ConfigMap:shop:a
        + data: {}
    ~ update   v1:ConfigMap:shop:b  (unverified: data.uid known after apply)
        data.uid: "old" → (known after apply)

    Plan: 1 to create, 1 to update; 1 unverified.
    "#);
    // Once it is there the value is known.
    scenario.put("a", json!({}));
    let Some(Live::Present(live)) = scenario.live.get_mut(&id("a")) else { unreachable!() };
    live["metadata"]["uid"] = json!("u-1");
    assert!(table(&scenario.plan(&spec)).contains("data.uid: \"old\" → \"u-1\""));
}

#[test]
fn reference_that_contradicts_id_is_reported() {
    let mut wrong = config_map("b", &[], json!({}));
    wrong["attributes"]["metadata"]["namespace"] = json!(format!("$kusion_path.{}.data.ns", id("a")));
    let problems = Scenario::default().problems(&spec(json!([config_map("a", &[], json!({"ns": "other"})), wrong])));
    assert_eq!(
        problems,
        "InvalidResourceID v1:ConfigMap:shop:b: attributes.metadata.namespace: the id does not match \
         metadata.namespace `other`\n"
    );
}
