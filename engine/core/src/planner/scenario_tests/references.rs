//! What references lead to, what of it is known when a plan is made, and which can lead nowhere.

use super::*;
use crate::path::FieldPath;

#[test]
fn references_that_can_lead_nowhere_are_told_with_their_place() {
    let mut world = World::applied(json!([config_map("a", &[], json!({"x": "1"}))]));
    world.put("a", json!({"x": "1"}));
    let to = |path: &str| json!({"v": format!("${{kusion_path.{}.{path}}}", id("a"))});
    let problems = world.problems(&spec(json!([
        config_map("a", &[], json!({"x": "1"})),
        config_map("through", &[], to("data.x.y")),
        config_map("typo", &[], to("metadata.nmae")),
        config_map("not-there", &[], to("data.z")),
        config_map("map", &[], to("data")),
    ])));
    assert_snapshot!(problems, @r"
    InvalidReference v1:ConfigMap:shop:map: attributes.data.v: v1:ConfigMap:shop:a.data is a map, which does not fit inside a string
    DanglingReference v1:ConfigMap:shop:not-there: attributes.data.v: v1:ConfigMap:shop:a has no data.z, neither as it is written nor as it is live
    DanglingReference v1:ConfigMap:shop:through: attributes.data.v: v1:ConfigMap:shop:a.data.x.y cannot exist: data.x of v1:ConfigMap:shop:a is a string
    DanglingReference v1:ConfigMap:shop:typo: attributes.data.v: v1:ConfigMap:shop:a.metadata.nmae cannot exist: objects have no field metadata.nmae
    ");
}

/// A ConfigMap with what one field of another resource is.
fn copy_of(field: &str) -> Value {
    config_map("copy", &[], json!({"v": format!("$kusion_path.{field}")}))
}

#[test]
fn what_goes_with_the_same_plan_cannot_be_referred_to() {
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
        let mut world = World::applied(json!([before, copy_of(field)]));
        // A server keeps no strings.
        if let Some(Live::Present(live)) = world.live.get_mut(target)
            && let Some(stored) = crate::object::secret_as_stored(live)
        {
            *live = stored;
        }
        let wanted = spec(json!([after, copy_of(field)]));
        let told = format!(
            "DanglingReference v1:ConfigMap:shop:copy: attributes.data.v: {target} will have no {path}: it was applied \
             before, and is not wanted any more\n"
        );
        assert_eq!(world.problems(&wanted), told);
        let made = after["attributes"].as_object().cloned().unwrap();
        world.previews.insert(target.into(), Preview::Changed(made));
        assert_eq!(world.problems(&wanted), told, "so says the server");
    }
}

#[test]
fn what_nobody_gives_cannot_be_referred_to() {
    let (secret, a) = (secret().0, config_map("a", &[], json!({"y": "1"})));
    for (wanted, target, path) in [
        (&a, "v1:ConfigMap:shop:a", "data.x"),
        (&a, "v1:ConfigMap:shop:a", "binaryData.x"),
        (&secret, "v1:Secret:shop:db", "data.user"),
        (&secret, "v1:Secret:shop:db", "stringData.user"),
    ] {
        let told = format!(
            "DanglingReference v1:ConfigMap:shop:copy: attributes.data.v: {target} will have no {path}: it is not wanted \
             so, and nobody else has given it that; name it in stoa.dev/ignore-fields there if somebody does once it is \
             there\n"
        );
        let wanted = spec(json!([wanted, copy_of(&format!("{target}.{path}"))]));
        assert_eq!(World::default().problems(&wanted), told);
    }
}

#[test]
fn what_somebody_else_gives_or_may_give_can_be_referred_to() {
    let copy = copy_of("v1:ConfigMap:shop:a.data.x");
    let a = |data: Value| config_map("a", &[], data);
    let wanted = spec(json!([a(json!({"y": "2"})), copy]));
    let changing = || World::applied(json!([a(json!({"y": "1"}))]));
    let is_refused = |world: &World, wanted: &Spec| plan(&world.input(wanted, &world.full(wanted))).is_err();
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
    left["extensions"] = json!({crate::ignore::IGNORE_FIELDS: ["data.x"]});
    assert!(!is_refused(&changing(), &spec(json!([left, copy]))));

    let token = json!({"id": "v1:Secret:shop:token", "type": "Kubernetes", "attributes": {"apiVersion": "v1",
        "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {"name": "token", "namespace": "shop",
        "annotations": {"kubernetes.io/service-account.name": "web"}}}});
    assert!(!is_refused(&World::default(), &spec(json!([token, copy_of("v1:Secret:shop:token.data.token")]))));

    // Whoever makes it empty has somebody else fill it.
    let mut merged = secret().0;
    merged["attributes"].as_object_mut().unwrap().remove("stringData");
    for (empty, field) in [
        (a(json!({})), "v1:ConfigMap:shop:a.data.x"),
        (a(Value::Null), "v1:ConfigMap:shop:a.data.x"),
        (merged, "v1:Secret:shop:db.data.user"),
    ] {
        assert!(!is_refused(&World::default(), &spec(json!([empty, copy_of(field)]))), "{empty}");
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
fn what_may_stay_though_it_is_not_wanted_any_more_is_known_after_apply() {
    let web = |spec: Value| {
        json!({"id": "apps/v1:Deployment:shop:web", "type": "Kubernetes", "attributes": {"apiVersion": "apps/v1",
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}})
    };
    let copy = copy_of("apps/v1:Deployment:shop:web.spec.replicas");
    let mut world = World::applied(json!([web(json!({"replicas": 3, "paused": true})), copy]));
    let wanted = spec(json!([web(json!({"paused": true})), copy]));
    let shown = |world: &World| {
        let plan = world.plan(&wanted);
        let change = plan.actions.iter().find(|it| it.id == id("copy")).unwrap().changes.first().cloned();
        change.map(|change| (change.before, change.after))
    };
    let later = Some((Some(json!(3)), Some(json!(UNKNOWN))));
    assert_eq!(shown(&world), later, "there may be a default");
    let preview = |world: &mut World, spec: Value| {
        let made = web(spec)["attributes"].as_object().cloned().unwrap();
        world.previews.insert("apps/v1:Deployment:shop:web".into(), Preview::Changed(made));
    };
    preview(&mut world, json!({"replicas": 1, "paused": true}));
    assert_eq!(shown(&world), later, "there is one");
    // Somebody else has it, so that it stays as it is.
    preview(&mut world, json!({"replicas": 3, "paused": true}));
    assert_eq!(shown(&world), None);
    preview(&mut world, json!({"paused": true}));
    assert!(world.problems(&wanted).contains("apps/v1:Deployment:shop:web will have no spec.replicas"));
}

#[test]
fn what_a_change_may_give_another_value_is_known_after_apply() {
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
    let mut world = World::applied(json!([web(json!({"port": 80}))]));
    world.live.insert(WEB.into(), Live::Present(given(30123)));
    let before = spec(json!([web(json!({"port": 80})), copy, uid]));
    let planned = world.plan(&before);
    world.carry_out(&before, &planned);
    world.live.insert(WEB.into(), Live::Present(given(30123)));
    assert!(world.plan(&before).is_unchanged());

    let wanted = spec(json!([web(json!({"port": 8080})), copy, uid]));
    let shown = |world: &World| {
        let planned = world.plan(&wanted);
        ["copy", "uid"].map(|name| {
            let action = planned.actions.iter().find(|it| it.id == id(name)).unwrap().clone();
            (action.action, action.unverified, action.changes.into_iter().next().and_then(|change| change.after))
        })
    };
    let stays = (Action::Unchanged, None, None);
    let later = (Action::Update, Some("data.v known after apply".to_owned()), Some(json!(UNKNOWN)));
    assert_eq!(shown(&world), [later.clone(), stays.clone()], "which object it is does not change");
    let preview = |world: &mut World, node_port: u16| {
        let mut made = given(node_port);
        made["spec"]["port"] = json!(8080);
        world.previews.insert(WEB.into(), Preview::Changed(made));
    };
    preview(&mut world, 30123);
    assert_eq!(shown(&world), [stays.clone(), stays.clone()], "the server says to keep it");
    // What it says otherwise need not be what comes of it, and what it made of the old value says nothing.
    preview(&mut world, 31999);
    assert_eq!(shown(&world), [later.clone(), stays.clone()]);
    let Some(Live::Present(old)) = world.live.get(&id("copy")).cloned() else { unreachable!() };
    world.previews.insert(id("copy"), Preview::Changed(old));
    assert_eq!(shown(&world), [later.clone(), stays.clone()]);
    // But for what cannot be changed in place, which is something else.
    world.previews.insert(id("copy"), Preview::Replaced(None));
    assert_eq!(shown(&world), [(Action::Replace, later.1, later.2), stays]);

    // Until the server is asked, what refers to it is asked about as it is.
    let live = world.full(&wanted);
    let asked = world.input(&wanted, &live);
    let none = BTreeMap::new();
    let outline = Outline::of(&asked).unwrap();
    let sketch = outline.sketch(&PlanInput { previews: &none, ..asked }).unwrap();
    assert!(sketch.desired[&id("copy")].unknown.is_empty());
    assert_eq!(outline.plan(&asked, sketch).unwrap(), world.plan(&wanted));
}

#[test]
fn whether_what_is_not_wanted_any_more_stays_the_infrastructure_is_asked_first() {
    let a = |data: Value| config_map("a", &[], data);
    let copy = copy_of("v1:ConfigMap:shop:a.data.x");
    let world = World::applied(json!([a(json!({"x": "1", "y": "2"})), copy]));
    let wanted = spec(json!([a(json!({"y": "3"})), copy]));
    let live = world.full(&wanted);
    let looked = world.input(&wanted, &live);
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
fn references_take_types_and_stand_in_keys_lists_and_texts() {
    let world = World::default();
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
    let live = world.full(&spec);
    let draft = draft(&world.input(&spec, &live)).unwrap();
    assert_eq!(
        draft.desired[&id("b")].attributes["data"],
        json!({"list": [[80, 443], 443], "text": "web:80 ${kusion_path.x}", "web-key": true})
    );
    assert_eq!(draft.plan.actions[1].depends_on, [id("a")]);
}

#[test]
fn what_is_known_after_apply_is_shown_as_such() {
    let mut world = World::applied(json!([config_map("b", &[], json!({"uid": "old"}))]));
    let spec = spec(json!([
        config_map("a", &[], json!({})),
        config_map("b", &[], json!({"uid": format!("$kusion_path.{}.metadata.uid", id("a"))})),
    ]));
    assert_snapshot!(table(&world.plan(&spec)), @r#"
    + create   v1:ConfigMap:shop:a
        + data: {}
    ~ update   v1:ConfigMap:shop:b  (unverified: data.uid known after apply)
        data.uid: "old" → (known after apply)

    Plan: 1 to create, 1 to update; 1 unverified.
    "#);
    // Once it is there the value is known.
    world.put("a", json!({}));
    let Some(Live::Present(live)) = world.live.get_mut(&id("a")) else { unreachable!() };
    live["metadata"]["uid"] = json!("u-1");
    assert!(table(&world.plan(&spec)).contains("data.uid: \"old\" → \"u-1\""));
}

#[test]
fn a_reference_that_makes_the_id_disagree_is_told() {
    let mut wrong = config_map("b", &[], json!({}));
    wrong["attributes"]["metadata"]["namespace"] = json!(format!("$kusion_path.{}.data.ns", id("a")));
    let problems = World::default().problems(&spec(json!([config_map("a", &[], json!({"ns": "other"})), wrong])));
    assert_eq!(
        problems,
        "InvalidResourceID v1:ConfigMap:shop:b: attributes.metadata.namespace: the id does not agree with metadata.namespace `other`\n"
    );
}
