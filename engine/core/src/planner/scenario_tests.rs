//! Plans as people read them, references and properties.

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::conflict::are_planned;
use crate::render::{Colour, render};
use crate::sensitive::{MASK, UNKNOWN};

mod contents;

struct World {
    state: State,
    live: BTreeMap<ResourceId, Live>,
    previews: BTreeMap<ResourceId, Preview>,
    schemas: Schemas,
    owner: Owner,
    keys: DigestKeys,
}

impl Default for World {
    fn default() -> Self {
        Self {
            state: State::default(),
            live: BTreeMap::new(),
            previews: BTreeMap::new(),
            schemas: Schemas::new(),
            owner: Owner::default(),
            keys: DigestKeys::new(&[7; 32], &[]),
        }
    }
}

fn id(name: &str) -> ResourceId {
    format!("v1:ConfigMap:shop:{name}").as_str().into()
}

fn config_map(name: &str, depends_on: &[&str], data: Value) -> Value {
    json!({"id": id(name), "type": "Kubernetes", "dependsOn": depends_on.iter().map(|name| id(name)).collect::<Vec<_>>(),
        "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": data}})
}

fn spec(resources: Value) -> Spec {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

/// The namespace that everything is in.
fn namespace() -> Value {
    json!({"id": "v1:Namespace:shop", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop"}}})
}

/// What defines the kind `Web` of `x.dev`.
fn definition() -> Value {
    json!({"id": "apiextensions.k8s.io/v1:CustomResourceDefinition:webs.x.dev", "type": "Kubernetes", "attributes": {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "webs.x.dev"},
        "spec": {"group": "x.dev", "names": {"kind": "Web", "plural": "webs"}, "versions": [{"name": "v1"}]}}})
}

/// What serves all kinds of `x.dev/v1`.
fn service() -> Value {
    json!({"id": "apiregistration.k8s.io/v1:APIService:v1.x.dev", "type": "Kubernetes", "attributes": {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.x.dev"},
        "spec": {"group": "x.dev", "version": "v1"}}})
}

/// One of that kind.
fn instance(name: &str) -> Value {
    json!({"id": format!("x.dev/v1:Web:shop:{name}"), "type": "Kubernetes", "attributes": {"apiVersion": "x.dev/v1",
        "kind": "Web", "metadata": {"name": name, "namespace": "shop"}}})
}

impl World {
    /// Everything that is neither recorded nor told to be live is not there.
    fn input<'a>(&'a self, spec: &'a Spec, live: &'a BTreeMap<ResourceId, Live>) -> PlanInput<'a> {
        PlanInput {
            live,
            previews: &self.previews,
            schemas: &self.schemas,
            ..PlanInput::blind(spec, &self.state, &self.owner, &self.keys)
        }
    }

    fn full(&self, spec: &Spec) -> BTreeMap<ResourceId, Live> {
        let mut live = self.live.clone();
        for id in spec.resources.iter().map(|it| &it.id).chain(self.state.resources.iter().map(|it| &it.id)) {
            live.entry(id.clone()).or_insert(Live::Absent);
        }
        crate::going::spread(&mut live, |_| "");
        live
    }

    fn plan(&self, spec: &Spec) -> Plan {
        plan(&self.input(spec, &self.full(spec))).unwrap()
    }

    fn problems(&self, spec: &Spec) -> String {
        let problems = plan(&self.input(spec, &self.full(spec))).unwrap_err();
        problems.iter().map(|it| format!("{} {it}\n", it.reason)).collect()
    }

    /// What a walk without faults leaves behind.
    fn carry_out(&mut self, spec: &Spec, plan: &Plan) {
        let live = self.full(spec);
        let draft = draft(&self.input(spec, &live)).unwrap();
        let wanted: HashMap<&ResourceId, &Resource> = spec.resources.iter().map(|it| (&it.id, it)).collect();
        let recorded = std::mem::take(&mut self.state.resources).into_iter();
        let mut recorded: BTreeMap<ResourceId, StateResource> = recorded.map(|it| (it.id.clone(), it)).collect();
        for action in &plan.actions {
            let id = &action.id;
            let Some(resource) = wanted.get(id) else {
                recorded.remove(id);
                self.live.insert(id.clone(), Live::Absent);
                continue;
            };
            let mut object = match self.live.remove(id) {
                Some(Live::Present(object)) => object,
                _ => Map::new(),
            };
            let resolved = &draft.desired[id];
            object.extend(resolved.attributes.clone().into_owned());
            self.live.insert(id.clone(), Live::Present(object.clone()));
            let record = StateResource::applied(resource, resolved, object, &self.keys);
            recorded.insert(id.clone(), record.depending_on(action.depends_on.clone()));
        }
        self.state.resources = recorded.into_values().collect();
    }

    fn put(&mut self, name: &str, data: Value) {
        let object = config_map(name, &[], data)["attributes"].as_object().cloned().unwrap();
        self.live.insert(id(name), Live::Present(object));
    }

    /// What was applied before.
    fn applied(resources: Value) -> Self {
        let mut world = Self::default();
        let spec = spec(resources);
        let plan = world.plan(&spec);
        world.carry_out(&spec, &plan);
        world
    }
}

fn table(plan: &Plan) -> String {
    render(plan, Colour::Never)
}

#[test]
fn the_table_of_actions() {
    let mut world = World::applied(json!([
        config_map("same", &[], json!({"a": "1"})),
        config_map("changed", &[], json!({"a": "1"})),
        config_map("drifted", &[], json!({"a": "1"})),
        config_map("lost", &[], json!({"a": "1"})),
        config_map("unwanted", &[], json!({"a": "1"})),
        config_map("unwanted-and-gone", &[], json!({"a": "1"})),
    ]));
    world.put("drifted", json!({"a": "by hand"}));
    world.put("there", json!({"a": "2"}));
    world.live.insert(id("lost"), Live::Absent);
    world.live.insert(id("unwanted-and-gone"), Live::Absent);
    world.live.insert(id("unsure"), Live::Unverified("its kind is not known".to_owned()));
    let plan = world.plan(&spec(json!([
        config_map("same", &[], json!({"a": "1"})),
        config_map("changed", &[], json!({"a": "2"})),
        config_map("drifted", &[], json!({"a": "1"})),
        config_map("lost", &[], json!({"a": "1"})),
        config_map("there", &[], json!({"a": "1"})),
        config_map("new", &[], json!({"a": "1"})),
        config_map("unsure", &[], json!({"a": "1"})),
    ])));
    assert_snapshot!(table(&plan), @r#"
    ~ update   v1:ConfigMap:shop:changed
        data.a: "1" → "2"
    ~ update   v1:ConfigMap:shop:drifted
        data.a: "by hand" → "1"  (drift)
    + create   v1:ConfigMap:shop:lost  (it was recorded, and is gone)
        + data: {"a":"1"}
    + create   v1:ConfigMap:shop:new
        + data: {"a":"1"}
    > adopt    v1:ConfigMap:shop:there
        data.a: "2" → "1"
    + create   v1:ConfigMap:shop:unsure  (unverified: its kind is not known)
        + data: {"a":"1"}
    - delete   v1:ConfigMap:shop:unwanted
    . forget   v1:ConfigMap:shop:unwanted-and-gone

    Plan: 3 to create, 2 to update, 1 to delete, 1 to adopt, 1 to forget; 1 unchanged; 1 unverified.
    "#);
}

#[test]
fn what_is_deleted_waits_for_what_no_longer_uses_it() {
    let world = World::applied(json!([config_map("user", &["used"], json!({})), config_map("used", &[], json!({}))]));
    let plan = world.plan(&spec(json!([config_map("user", &[], json!({"a": "1"}))])));
    let deletion = plan.actions.iter().find(|it| it.id == id("used")).unwrap();
    assert_eq!((deletion.action, deletion.after.as_slice()), (Action::Delete, [id("user")].as_slice()));
}

#[test]
fn deletions_whose_records_contradict_each_other_still_happen() {
    let mut world = World::applied(json!([config_map("a", &["b"], json!({})), config_map("b", &[], json!({}))]));
    world.state.resources.iter_mut().find(|it| it.id == id("b")).unwrap().depends_on = vec![id("a")];
    let plan = world.plan(&Spec::default());
    assert_eq!(plan.summary().delete, 2);
}

#[test]
fn cycles_are_told_with_their_path() {
    let world = World::default();
    let by_reference = json!({"x": format!("$kusion_path.{}.data.x", id("a"))});
    let problems = world.problems(&spec(json!([
        config_map("a", &["b"], json!({})),
        config_map("b", &["c"], json!({})),
        config_map("c", &[], by_reference),
    ])));
    assert_snapshot!(problems, @"CyclicDependency v1:ConfigMap:shop:a: resources depend on each other: v1:ConfigMap:shop:a → v1:ConfigMap:shop:b → v1:ConfigMap:shop:c → v1:ConfigMap:shop:a");
}

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
fn secrets_never_show() {
    let mut world = World::default();
    let (secret, password) = secret();
    let user = |prefix: &str| config_map("user", &[], json!({"url": format!("{prefix}{password}")}));
    let first = spec(json!([secret, user("a:")]));
    let plan = world.plan(&first);
    world.carry_out(&first, &plan);
    let second = world.plan(&spec(json!([secret, user("b:")])));
    assert_snapshot!(table(&second), @r"
    ~ update   v1:ConfigMap:shop:user
        data.url: (sensitive) → (sensitive)

    Plan: 1 to update; 1 unchanged.
    ");
    let state = serde_json::to_string(&world.state).unwrap();
    assert!(!state.contains("hunter2") && !serde_json::to_string(&second).unwrap().contains("hunter2"), "{state}");
    assert!(world.plan(&first).is_unchanged());
}

#[test]
fn a_secret_does_not_show_though_the_reference_to_it_has_left_the_spec() {
    let (secret, password) = secret();
    let user = |data: Value| config_map("user", &[], data);
    let mut world = World::applied(json!([secret, user(json!({"pw": password, "plain": "x"}))]));
    let masked = Some(json!(MASK));
    for (data, after) in [(json!({"plain": "x"}), None), (json!({"pw": "y", "plain": "x"}), masked.clone())] {
        let plan = world.plan(&spec(json!([secret, user(data)])));
        let changes = &plan.actions.iter().find(|it| it.id == id("user")).unwrap().changes;
        let change = FieldChange { path: "data.pw".to_owned(), before: masked.clone(), after, drift: false };
        assert_eq!(*changes, [change]);
    }
    // Nor where somebody copied it to, as the server says that it would be gone, nor once the object was made anew by others.
    let Some(Live::Present(live)) = world.live.get_mut(&id("user")) else { unreachable!() };
    live["metadata"]["labels"] = json!({"copy": "hunter2"});
    live["metadata"]["uid"] = json!("another");
    let wanted = user(json!({"plain": "x"}));
    let made = wanted["attributes"].as_object().cloned().unwrap();
    for preview in [None, Some(Preview::Changed(made))] {
        world.previews = preview.into_iter().map(|preview| (id("user"), preview)).collect();
        let plan = world.plan(&spec(json!([secret, wanted])));
        assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
    }
    world.state.resources.iter_mut().find(|it| it.id == id("user")).unwrap().live["metadata"]["uid"] = json!("first");
    let plan = world.plan(&spec(json!([secret, wanted])));
    let action = plan.actions.iter().find(|it| it.id == id("user")).unwrap();
    assert!(action.recreated && action.changes.iter().any(|change| change.path == "data.pw"), "{action:?}");
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
}

/// A Secret whose value is `hunter2`, and a reference to that.
fn secret() -> (Value, &'static str) {
    let secret = json!({"id": "v1:Secret:shop:db", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "db", "namespace": "shop"}, "stringData": {"password": "hunter2"}}});
    (secret, "${kusion_path.v1:Secret:shop:db.stringData.password}")
}

#[test]
fn what_is_made_is_shown_with_what_is_known_and_not_sensitive() {
    let (secret, password) = secret();
    let mut user = config_map(
        "user",
        &["a"],
        json!({"password": password, "uid": format!("$kusion_path.{}.metadata.uid", id("a"))}),
    );
    user["attributes"]["metadata"]["labels"] = json!({"app": "web"});
    user["attributes"]["spec"] = json!({"rules": [{"host": password, "uid": format!("$kusion_path.{}.metadata.uid", id("a"))},
        {"host": "b.example.org", "paths": ["/first", "/second"]}], "text": "one\ntwo\n", "after": null});
    let plan = World::default().plan(&spec(json!([secret, config_map("a", &[], json!({})), user])));
    assert_snapshot!(table(&plan), @r#"
    + create   v1:ConfigMap:shop:a
        + data: {}
    + create   v1:Secret:shop:db
        + data: {"password":"(sensitive)"}
    + create   v1:ConfigMap:shop:user
        + data: {"password":"(sensitive)","uid":"(known after apply)"}
        + metadata.labels: {"app":"web"}
        + spec:
            after: null
            rules:
              - {"host":"(sensitive)","uid":"(known after apply)"}
              - {"host":"b.example.org","paths":["/first","/second"]}
            text: |
              one
              two

    Plan: 3 to create.
    "#);
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"));
}

#[test]
fn items_that_sensitive_values_tell_apart_are_not_named() {
    let (secret, host) = secret();
    let rules = |path: &str| {
        let id = "networking.k8s.io/v1:Ingress:shop:web";
        let rule = json!({"host": host, "http": {"paths": [{"path": path}]}});
        json!({"id": id, "type": "Kubernetes", "attributes": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"rules": [rule]}}})
    };
    let mut world = World::applied(json!([secret, rules("/a")]));
    let changed = spec(json!([secret, rules("/b")]));
    let fields = vec![".spec.rules[host=\"hunter2\"].http".to_owned()];
    let conflict = FieldConflict { manager: "hand".to_owned(), applies: false, fields };
    let live = world.full(&changed);
    let made = draft(&world.input(&changed, &live))
        .unwrap()
        .desired
        .into_values()
        .find(|it| it.attributes["kind"] == "Ingress");
    let preview = Preview::Contested(made.unwrap().attributes.into_owned(), vec![conflict.clone()]);
    world.previews.insert("networking.k8s.io/v1:Ingress:shop:web".into(), preview);
    let plan = world.plan(&changed);
    // Records have digests, by which nobody finds an item: then what goes may be what somebody added.
    assert_snapshot!(table(&plan), @r#"
    ~ update   networking.k8s.io/v1:Ingress:shop:web
        + spec.rules[host=(sensitive)].http.paths[path=/b]: {"path":"/b"}
        - spec.rules[host=(sensitive)].http.paths[path=/a]: {"path":"/a"}  (drift)
        ! taken from hand, which changes them: .spec.rules[host="(sensitive)"].http

    Plan: 1 to update; 1 unchanged.
    "#);
    let taken = &plan.actions.iter().find(|it| it.action == Action::Update).unwrap().taken;
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
    let sensitive = Sensitive::at([FieldPath::of_keys(["a"])].into(), json!({"a": "hunter2"}).as_object().unwrap());
    assert!(are_planned(taken, &masked(&[conflict], &sensitive)));
}

#[test]
fn a_sensitive_value_cannot_be_what_an_object_is_called() {
    for (field, value) in [("name", "$P"), ("name", "web-$P"), ("namespace", "$P")] {
        let (secret, password) = secret();
        let mut wanted = config_map("user", &[], json!({}));
        wanted["attributes"]["metadata"][field] = json!(value.replace("$P", password));
        assert_eq!(
            World::default().problems(&spec(json!([secret, wanted]))),
            format!(
                "InvalidReference v1:ConfigMap:shop:user: attributes.metadata.{field}: a sensitive value cannot be part \
                 of what an object is called\n"
            )
        );
    }
}

#[test]
fn a_sensitive_value_cannot_be_a_key() {
    let (secret, password) = secret();
    let problems = World::default().problems(&spec(json!([secret, config_map("user", &[], json!({password: "x"})),])));
    assert!(problems.ends_with("a sensitive value cannot be a key\n") && !problems.contains("hunter2"), "{problems}");
}

#[test]
fn a_namespace_and_a_definition_come_before_what_needs_them() {
    let (namespace, instance) = (namespace(), instance("a"));
    for definition in [definition(), service()] {
        let plan = World::default().plan(&spec(json!([instance, namespace, definition])));
        let ids: Vec<_> = plan.actions.iter().map(|it| it.id.0.as_str()).collect();
        assert_eq!(ids, [definition["id"].as_str().unwrap(), "v1:Namespace:shop", "x.dev/v1:Web:shop:a"]);
        assert_eq!(plan.actions[2].after.len(), 2);
    }

    // What people wrote wins over what is implied.
    let mut backwards = namespace;
    backwards["dependsOn"] = json!(["v1:ConfigMap:shop:a"]);
    let plan = World::default().plan(&spec(json!([backwards, config_map("a", &[], json!({}))])));
    assert_eq!(plan.actions[0].id, id("a"));
}

#[test]
fn a_preview_decides_between_update_replace_and_nothing() {
    let mut world = World::applied(json!([config_map("a", &[], json!({"a": "1"}))]));
    let wanted = spec(json!([config_map("a", &[], json!({"a": "2"}))]));
    let object = |data: Value| config_map("a", &[], data)["attributes"].as_object().cloned().unwrap();
    let mut action = |preview: Preview| {
        world.previews.insert(id("a"), preview);
        world.plan(&wanted).actions.remove(0)
    };
    assert_eq!(action(Preview::Changed(object(json!({"a": "2"})))).action, Action::Update);
    assert_eq!(action(Preview::Changed(object(json!({"a": "1"})))).action, Action::Unchanged);
    for made in [Some(object(json!({"a": "2"}))), None] {
        let replaced = action(Preview::Replaced(made));
        assert_eq!((replaced.action, replaced.changes.len()), (Action::Replace, 1));
    }
    let conflict = FieldConflict { manager: "hand".to_owned(), applies: false, fields: vec![".data.a".to_owned()] };
    let contested = action(Preview::Contested(object(json!({"a": "2"})), vec![conflict.clone()]));
    assert_eq!((contested.action, contested.taken), (Action::Update, vec![conflict.clone()]));
    let same = action(Preview::Contested(object(json!({"a": "1"})), vec![conflict]));
    assert_eq!((same.action, same.taken), (Action::Unchanged, vec![]));
    let unsure = action(Preview::Unverified("away".to_owned()));
    assert_eq!((unsure.action, unsure.unverified.as_deref()), (Action::Update, Some("away")));
}

#[test]
fn the_quick_start_of_kusion_is_planned() {
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "$kusion_path.v1:Namespace:quickstart.metadata.name"}});
    let spec = spec(json!([
        {"id": "apps/v1:Deployment:quickstart:web", "type": "Kubernetes", "attributes": workload},
        {"id": "v1:Namespace:quickstart", "type": "Kubernetes", "dependsOn": null, "extensions": null,
            "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quickstart"}}},
    ]));
    let world = World::default();
    let live = world.full(&spec);
    let draft = draft(&world.input(&spec, &live)).unwrap();
    let resolved = &draft.desired[&ResourceId::from("apps/v1:Deployment:quickstart:web")];
    assert_eq!(resolved.attributes["metadata"]["namespace"], "quickstart");
    assert_eq!(draft.plan.actions[0].id.0, "v1:Namespace:quickstart");
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

#[test]
fn three_thousand_resources_are_planned_in_no_time() {
    let resources: Vec<Value> = (0..3_000)
        .map(|n| {
            let before: Vec<String> = if n == 0 { vec![] } else { vec![format!("m{}", n / 2)] };
            config_map(&format!("m{n}"), &before.iter().map(String::as_str).collect::<Vec<_>>(), json!({"a": "1"}))
        })
        .collect();
    let mut world = World::applied(Value::Array(resources.clone()));
    let wanted = spec(Value::Array(resources));
    world.put("m77", json!({"a": "by hand"}));
    let live = world.full(&wanted);
    let start = std::time::Instant::now();
    let plan = plan(&world.input(&wanted, &live)).unwrap();
    // Unoptimised and on a busy machine; optimised it takes a twentieth.
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    assert_eq!((plan.summary().update, plan.summary().unchanged), (1, 2_999));
}

/// Resources by number: whether each is wanted, its value, and which smaller ones it depends on.
fn wanted() -> impl Strategy<Value = Vec<Option<(u8, Vec<usize>)>>> {
    prop::collection::vec(prop::option::weighted(0.7, (0..3_u8, prop::collection::vec(0..12_usize, 0..4))), 12)
}

fn spec_of(wanted: &[Option<(u8, Vec<usize>)>]) -> Spec {
    let resources = wanted.iter().enumerate().filter_map(|(n, it)| {
        let (value, before) = it.as_ref()?;
        let before: Vec<String> =
            before.iter().filter(|to| **to < n && wanted[**to].is_some()).map(|to| format!("m{to}")).collect();
        let mut data = json!({"v": value.to_string()});
        if let Some(first) = before.first() {
            data["of"] = json!(format!("$kusion_path.{}.data.v", id(first)));
        }
        Some(config_map(&format!("m{n}"), &before.iter().skip(1).map(String::as_str).collect::<Vec<_>>(), data))
    });
    spec(resources.collect())
}

proptest! {
    #[test]
    fn a_plan_applied_to_its_state_leaves_nothing_to_plan(steps in prop::collection::vec(wanted(), 1..4)) {
        let mut world = World::default();
        for step in steps {
            let spec = spec_of(&step);
            let plan = world.plan(&spec);
            world.carry_out(&spec, &plan);
            let again = world.plan(&spec);
            prop_assert!(again.is_unchanged(), "{}", table(&again));
            prop_assert_eq!(again.actions.len(), spec.resources.len());
        }
    }

    #[test]
    fn order_respects_dependencies_and_deletions_come_after_what_used_them(first in wanted(), second in wanted()) {
        let mut world = World::default();
        let before = spec_of(&first);
        let plan = world.plan(&before);
        world.carry_out(&before, &plan);
        let records = world.state.resources.clone();
        let plan = world.plan(&spec_of(&second));
        let at = |id: &ResourceId| plan.actions.iter().position(|it| it.id == *id);
        for (position, action) in plan.actions.iter().enumerate() {
            for id in &action.after {
                prop_assert!(at(id).unwrap() < position);
            }
            if action.action.keeps() {
                for id in &action.depends_on {
                    prop_assert!(at(id).unwrap() < position);
                }
            } else {
                for user in records.iter().filter(|it| it.depends_on.contains(&action.id)) {
                    prop_assert!(at(&user.id).unwrap() < position);
                }
            }
        }
    }

    #[test]
    fn a_plan_and_a_state_survive_their_documents(first in wanted(), second in wanted()) {
        let mut world = World::default();
        let spec = spec_of(&first);
        let plan = world.plan(&spec);
        world.carry_out(&spec, &plan);
        let plan = world.plan(&spec_of(&second));
        let read: Plan = serde_json::from_slice(&crate::digest::canonical_json(&plan)).unwrap();
        prop_assert_eq!(read.digest(), plan.digest());
        prop_assert_eq!(read, plan);
        let read: State = serde_json::from_slice(&crate::digest::canonical_json(&world.state)).unwrap();
        prop_assert_eq!(read, world.state);
    }
}
