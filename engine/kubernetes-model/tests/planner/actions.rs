//! Tests of actions and their order, with ConfigMaps.

use stoa_engine::{FieldChange, OpenCall, ResourceType};

use super::*;

fn object(name: &str, value: &str) -> Map<String, Value> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "n" },
        "data": { "value": value },
    });
    serde_json::from_value(object).unwrap()
}

/// Clusters with the scopes of built-in kinds.
fn clusters(names: Vec<String>) -> Clusters {
    Clusters::new(names).with_scopes(scopes([]))
}

/// The ids that precede a resource.
fn before(resources: &[Resource], clusters: &Clusters, id: &str) -> Vec<String> {
    let (spec, state) = (Spec { resources: resources.to_vec(), ..Spec::default() }, State::default());
    let (owner, keys) = (Owner::default(), keys());
    let outline = Outline::of(&PlanInput { clusters, ..blind(&spec, &state, &owner, &keys) }).unwrap();
    outline.before(&id.into()).map(|id| id.0.clone()).collect()
}

fn keys() -> DigestKeys {
    DigestKeys::new(&[7; 32], &[])
}

fn id(name: &str) -> ResourceId {
    ResourceId(format!("v1:ConfigMap:n:{name}"))
}

fn wanted(name: &str, value: &str, depends_on: &[&str]) -> Resource {
    Resource {
        id: id(name),
        kind: ResourceType::Kubernetes,
        attributes: object(name, value),
        depends_on: depends_on.iter().map(|name| id(name)).collect(),
        extensions: Map::new(),
    }
}

fn recorded(name: &str, value: &str, depends_on: &[&str]) -> StateResource {
    StateResource {
        id: id(name),
        kind: ResourceType::Kubernetes,
        attributes: object(name, value),
        live: object(name, value),
        depends_on: depends_on.iter().map(|name| id(name)).collect(),
        ..StateResource::default()
    }
}

/// A draft of what is wanted, recorded and live; what is not live is absent.
fn drafted(wanted: Vec<Resource>, recorded: Vec<StateResource>, live: &[(&str, &str)], destroy: bool) -> Draft {
    let absent = wanted.iter().map(|r| &r.id).chain(recorded.iter().map(|r| &r.id));
    let mut found: BTreeMap<ResourceId, Live> = absent.map(|id| (id.clone(), Live::Absent)).collect();
    found.extend(live.iter().map(|(name, value)| (id(name), Live::Present(object(name, value)))));
    let (spec, state) =
        (Spec { resources: wanted, ..Spec::default() }, State { resources: recorded, ..State::default() });
    let (owner, keys) = (Owner::default(), keys());
    let input = PlanInput { live: &found, destroy, ..blind(&spec, &state, &owner, &keys) };
    draft(&input).unwrap()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.actions.iter().map(|action| action.id.0.rsplit(':').next().unwrap()).collect()
}

/// The plan for one ConfigMap, whose live object bears the mark of another deployment.
fn planned_of_another(from: Option<&str>, is_wanted: bool, is_recorded: bool) -> Result<PlannedAction, Vec<Problem>> {
    let owner = |stack: &str| Owner {
        organization: "shop".to_owned(),
        stack: stack.to_owned(),
        workspace: "dev".to_owned(),
        stack_uid: format!("uid-of-{stack}"),
    };
    let mut wanted = wanted("x", "a", &[]);
    wanted.extensions.extend(from.map(|from| (stoa_engine::owner::TAKE_OVER_FROM.to_owned(), from.into())));
    let spec = Spec { resources: vec![wanted], ..Spec::default() };
    let resources = if is_recorded { vec![recorded("x", "a", &[])] } else { Vec::new() };
    let state = State { resources, ..State::default() };
    let live = BTreeMap::from([(id("x"), Live::Present(owner("api").marked(&object("x", "a"))))]);
    let (owner, keys) = (owner("web"), keys());
    let input = PlanInput { live: &live, destroy: !is_wanted, ..blind(&spec, &state, &owner, &keys) };
    plan(&input).map(|plan| plan.actions[0].clone())
}

#[test]
fn object_follows_namespace_of_its_cluster() {
    let of = |id: &str, object: serde_json::Value, cluster: &str| Resource {
        id: id.into(),
        kind: ResourceType::Kubernetes,
        attributes: serde_json::from_value(object).unwrap(),
        depends_on: Vec::new(),
        extensions: serde_json::from_value(json!({ "cluster": cluster })).unwrap(),
    };
    let namespace = || json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let resources = [
        of("v1:ConfigMap:n:a/east", json!(object("a", "")), "east"),
        of("v1:ConfigMap:n:a", json!(object("a", "")), "main"),
        of("v1:Namespace:n/east", namespace(), "east"),
        wanted("b", "", &[]),
        // It goes to the first cluster, as what names that does.
        Resource { extensions: Map::new(), ..of("v1:Namespace:n", namespace(), "") },
    ];
    let clusters = clusters(vec!["main".to_owned(), "east".to_owned()]);
    let needs = |id: &str| before(&resources, &clusters, id);
    assert_eq!(needs("v1:ConfigMap:n:a/east"), ["v1:Namespace:n/east"]);
    assert_eq!(needs("v1:ConfigMap:n:a"), ["v1:Namespace:n"]);
    assert_eq!(needs("v1:ConfigMap:n:b"), ["v1:Namespace:n"]);
}

#[test]
fn object_follows_dependency_under_server_alias() {
    const NAMESPACE: &str = "v1:Namespace:n";
    const DEFINITION: &str = "apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.example.com";
    const A: &str = "example.com/v1:Widget:n:w/also";
    const B: &str = "example.com/v1:Widget:n:w/east";
    let of = |id: &str, api_version: &str, kind: &str, name: &str, rest: serde_json::Value, cluster: &str| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        Resource {
            id: id.into(),
            kind: ResourceType::Kubernetes,
            attributes: object.as_object().unwrap().clone(),
            depends_on: Vec::new(),
            extensions: json!({ "cluster": cluster }).as_object().unwrap().clone(),
        }
    };
    let defined = json!({"spec": {"group": "example.com", "names": {"kind": "Widget"}, "versions": [{"name": "v1"}]}});
    let inside = json!({"metadata": {"name": "w", "namespace": "n"}});
    let widget = |id: &str, cluster: &str| of(id, "example.com/v1", "Widget", "w", inside.clone(), cluster);
    let resources = [
        of(NAMESPACE, "v1", "Namespace", "n", json!({}), "main"),
        of(DEFINITION, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", defined, "also"),
        widget(A, "also"),
        widget(B, "east"),
    ];
    let places = [("main", "1"), ("east", "2"), ("also", "1")].map(|(name, place)| (name.to_owned(), place.to_owned()));
    let needs = |clusters: &Clusters, id: &str| before(&resources, clusters, id);
    let known = Clusters::at(places.clone()).with_scopes(scopes([]));
    assert_eq!((needs(&known, A), needs(&known, B)), (vec![DEFINITION.to_owned(), NAMESPACE.to_owned()], Vec::new()));
    // Where nothing tells that two names are one server, they are two.
    let apart = clusters(places.map(|(name, _)| name).to_vec());
    assert_eq!((needs(&apart, A), needs(&apart, B)), (vec![DEFINITION.to_owned()], Vec::new()));
}

#[test]
fn existing_object_at_new_location_is_taken_over() {
    let mut moved = wanted("a", "x", &[]);
    moved.extensions.insert("cluster".to_owned(), "east".into());
    let spec = Spec { resources: vec![moved], ..Spec::default() };
    let state = State { resources: vec![recorded("a", "x", &[]).in_cluster("main".to_owned())], ..State::default() };
    let (owner, keys, clusters) = (Owner::default(), keys(), clusters(vec!["main".to_owned(), "east".to_owned()]));
    for (there, takes_over) in [(Live::Present(object("a", "theirs")), true), (Live::Absent, false)] {
        let live = BTreeMap::from([(id("a"), there)]);
        let blind = blind(&spec, &state, &owner, &keys);
        let plan = plan(&PlanInput { live: &live, clusters: &clusters, ..blind }).unwrap();
        assert_eq!((plan.actions[0].action, plan.actions[0].takes_over), (Action::Replace, takes_over));
        let table = stoa_engine::render::render(&plan, stoa_engine::render::Colour::Never);
        assert_eq!(table.contains("(an object already exists there and is taken over)"), takes_over, "{table}");
    }
}

fn with_uid(mut object: Map<String, Value>, uid: &str) -> Map<String, Value> {
    object["metadata"]["uid"] = json!(uid);
    object
}

#[test]
fn moving_id_does_not_leave_object_to_other_id() {
    let (goes, stays) = (id("a"), ResourceId(format!("{}/main", id("a"))));
    let (owner, keys, clusters) = (Owner::default(), keys(), clusters(vec!["main".to_owned(), "east".to_owned()]));
    let record = StateResource {
        live: with_uid(object("a", "x"), "u-1"),
        ..recorded("a", "x", &[]).in_cluster("main".to_owned())
    };
    let state = State { resources: vec![record], ..State::default() };
    let of = |id: &ResourceId, cluster: &str| Resource {
        id: id.clone(),
        extensions: Map::from_iter([("cluster".to_owned(), cluster.into())]),
        ..wanted("a", "x", &[])
    };
    let spec = Spec { resources: vec![of(&goes, "east"), of(&stays, "main")], ..Spec::default() };
    let found = Live::Present(with_uid(object("a", "x"), "u-1"));
    let live = BTreeMap::from([(goes.clone(), Live::Absent), (stays.clone(), found)]);
    let blind = blind(&spec, &state, &owner, &keys);
    let problems = plan(&PlanInput { live: &live, clusters: &clusters, ..blind }).unwrap_err();
    let why = format!(
        "{goes}: it moves, but the Spec has its present object as {stays}; leave this id where it is, and give the new \
         object another id, such as {goes}/east"
    );
    assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [why]);
}

/// What is wanted of a ConfigMap that names no namespace.
fn unplaced(name: &str) -> Resource {
    let mut resource = Resource { id: format!("v1:ConfigMap:{name}").as_str().into(), ..wanted(name, "a", &[]) };
    resource.attributes["metadata"].as_object_mut().unwrap().remove("namespace");
    resource
}

#[test]
fn default_namespace_makes_ids_duplicates() {
    let (state, owner, keys) = (State::default(), Owner::default(), keys());
    let with_default = |namespace: &str, resources: Vec<Resource>| {
        let names = vec!["main".to_owned()];
        let clusters = clusters(names).with_default_namespaces([namespace.to_owned()]);
        let spec = Spec { resources, ..Spec::default() };
        let input = PlanInput { clusters: &clusters, ..blind(&spec, &state, &owner, &keys) };
        plan(&input).map(drop).map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let same = |id: &str, first: &str| {
        let why = "an object without a namespace goes to n in cluster main";
        Err(vec![format!("{id}: attributes.metadata.namespace: this is the same object as {first}: {why}")])
    };
    let (bare, full) = ("v1:ConfigMap:a", "v1:ConfigMap:n:a");
    assert_eq!(with_default("n", vec![unplaced("a"), wanted("a", "a", &[])]), same(full, bare));
    assert_eq!(with_default("n", vec![wanted("a", "a", &[]), unplaced("a")]), same(bare, full));
    assert_eq!(with_default("other", vec![unplaced("a"), wanted("a", "a", &[])]), Ok(()));
    assert_eq!(with_default("n", vec![unplaced("a"), wanted("b", "a", &[])]), Ok(()));
    // Whatever is not known to be in no namespace may be in the default one.
    let custom = |resource: Resource| {
        let id = resource.id.0.replacen("v1:ConfigMap", "x.dev/v1:Web", 1);
        let mut resource = Resource { id: id.as_str().into(), ..resource };
        resource.attributes.insert("apiVersion".to_owned(), "x.dev/v1".into());
        resource.attributes.insert("kind".to_owned(), "Web".into());
        resource
    };
    let both = vec![custom(unplaced("a")), custom(wanted("a", "a", &[]))];
    assert_eq!(with_default("n", both), same("x.dev/v1:Web:n:a", "x.dev/v1:Web:a"));
}

/// A cluster-scoped object, whose manifest may name a namespace.
fn cell(api_version: &str, kind: &str, namespace: &str) -> Resource {
    let metadata =
        if namespace.is_empty() { json!({"name": "a"}) } else { json!({"name": "a", "namespace": namespace}) };
    let id =
        [api_version, kind, namespace, "a"].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(":");
    let attributes = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
    let mut resource = Resource { id: ResourceId(id), ..wanted("a", "", &[]) };
    resource.attributes = attributes.as_object().unwrap().clone();
    resource
}

#[test]
fn cluster_scope_makes_custom_objects_duplicates() {
    let spec = Spec {
        resources: vec![cell("example.com/v1", "Cell", ""), cell("example.com/v1", "Cell", "n"), wanted("a", "", &[])],
        ..Spec::default()
    };
    let (state, owner, keys) = (State::default(), Owner::default(), keys());
    let clusters = clusters(vec!["main".to_owned()]);
    let asked: Vec<&str> =
        KubernetesRules.of_unknown_scope(&spec, &clusters).into_iter().map(|it| it.id.0.as_str()).collect();
    assert_eq!(asked, ["example.com/v1:Cell:a", "example.com/v1:Cell:n:a"]);
    let reported = scopes([]).with([("example.com", "Cell")]);
    let (namespaced, scoped) = (clusters.clone(), clusters.with_scopes(reported));
    assert!(KubernetesRules.of_unknown_scope(&spec, &scoped).is_empty());
    let input = blind(&spec, &state, &owner, &keys);
    assert!(plan(&PlanInput { clusters: &namespaced, ..input }).is_ok());
    let problems = plan(&PlanInput { clusters: &scoped, ..input }).unwrap_err();
    let told: Vec<String> = problems.iter().map(|problem| format!("{} {problem}", problem.reason)).collect();
    assert_eq!(
        told,
        [
            "DuplicateResource example.com/v1:Cell:n:a: attributes.metadata.namespace: Cell is cluster-scoped, so this is the \
             same object as example.com/v1:Cell:a"
        ]
    );
}

#[test]
fn second_record_of_cluster_scoped_object_merges() {
    let roles = "rbac.authorization.k8s.io/v1";
    let (first, second) = (cell(roles, "ClusterRole", ""), cell(roles, "ClusterRole", "n"));
    let live = with_uid(first.attributes.clone(), "u");
    let record = |resource: &Resource| StateResource {
        id: resource.id.clone(),
        attributes: resource.attributes.clone(),
        live: live.clone(),
        ..recorded("a", "", &[])
    };
    let state = State { resources: vec![record(&first), record(&second)], ..State::default() };
    let found = [&first, &second].map(|it| (it.id.clone(), Live::Present(live.clone()))).into();
    let (owner, keys) = (Owner::default(), keys());
    for (kept, removed) in [(&first, &second), (&second, &first)] {
        let spec = Spec { resources: vec![kept.clone()], ..Spec::default() };
        let plan = plan(&PlanInput { live: &found, ..blind(&spec, &state, &owner, &keys) }).unwrap();
        let action = plan.actions.iter().find(|action| action.id == removed.id).unwrap();
        assert_eq!((action.action, action.kept_as.as_ref()), (Action::Forget, Some(&kept.id)));
    }
}

#[test]
fn changed_default_namespace_recreates_object() {
    let (owner, keys) = (Owner::default(), keys());
    let planned = |default: &str, is_wanted: bool, import_id: Option<&str>| {
        let mut desired = unplaced("a");
        desired.extensions.extend(import_id.map(|id| (stoa_engine::import::IMPORT_ID.to_owned(), id.into())));
        let record = StateResource {
            id: desired.id.clone(),
            attributes: desired.attributes.clone(),
            extensions: desired.extensions.clone(),
            ..recorded("a", "a", &[]).in_cluster("main".to_owned())
        };
        let live = BTreeMap::from([(
            desired.id.clone(),
            if is_wanted { Live::Absent } else { Live::Present(object("a", "a")) },
        )]);
        let (spec, state) = (
            Spec { resources: vec![desired], ..Spec::default() },
            State { resources: vec![record], ..State::default() },
        );
        let clusters = clusters(vec!["main".to_owned()]).with_default_namespaces([default.to_owned()]);
        let blind = blind(&spec, &state, &owner, &keys);
        plan(&PlanInput { live: &live, clusters: &clusters, destroy: !is_wanted, ..blind }).unwrap().actions.remove(0)
    };
    // It was live in n.
    let moved = planned("other", true, None);
    let change = FieldChange {
        path: "metadata.namespace".to_owned(),
        before: Some(json!("n")),
        after: Some(json!("other")),
        ..FieldChange::default()
    };
    assert_eq!((moved.action, moved.changes.first(), moved.takes_over), (Action::Replace, Some(&change), false));
    assert_eq!(planned("n", true, None).action, Action::Create);
    assert_eq!(planned("", true, None).action, Action::Create, "nobody knows the default");
    assert_eq!(planned("other", false, None).action, Action::Delete);
    // What is never removed stays where it is.
    assert_eq!(planned("other", true, Some("a")).action, Action::Create);
}

#[test]
fn object_of_another_deployment_is_not_updated() {
    for is_recorded in [false, true] {
        let problems = planned_of_another(None, true, is_recorded).unwrap_err();
        let told: Vec<String> = problems.iter().map(|problem| format!("{} {problem}", problem.reason)).collect();
        let expected = "OwnedByAnother v1:ConfigMap:n:x: ConfigMap x in namespace n is owned by shop/api/dev, not by \
                        shop/web/dev; to take it over, set stoa.dev/take-over-from: shop/api/dev in the resource's \
                        extensions or annotations";
        assert_eq!(told, [expected]);
        planned_of_another(Some("shop/other/dev"), true, is_recorded).unwrap_err();
    }
}

#[test]
fn object_of_another_deployment_is_taken_over_explicitly() {
    for is_recorded in [false, true] {
        let action = planned_of_another(Some("shop/api/dev"), true, is_recorded).unwrap();
        assert_eq!((action.action, action.owned_by.as_deref()), (Action::Adopt, Some("shop/api/dev")));
        assert!(action.changes.is_empty(), "whose it is is no field: {:?}", action.changes);
    }
}

#[test]
fn object_of_another_deployment_is_not_deleted() {
    let action = planned_of_another(None, false, true).unwrap();
    assert_eq!((action.action, action.owned_by.as_deref()), (Action::Forget, Some("shop/api/dev")));
}

#[test]
fn recreated_object_is_adopted_or_left() {
    let owner = Owner { stack: "web".to_owned(), ..Owner::default() };
    let with_uid = |uid: &str| {
        let mut object = object("x", "a");
        object["metadata"]["uid"] = json!(uid);
        object
    };
    let of = |live: Map<String, Value>, is_wanted: bool| {
        let spec = Spec { resources: vec![wanted("x", "a", &[])], ..Spec::default() };
        let resources = vec![StateResource { live: with_uid("u-1"), ..recorded("x", "a", &[]) }];
        let state = State { resources, ..State::default() };
        let (live, keys) = (BTreeMap::from([(id("x"), Live::Present(live))]), keys());
        let blind = blind(&spec, &state, &owner, &keys);
        plan(&PlanInput { live: &live, destroy: !is_wanted, ..blind }).unwrap()
    };
    let decided = |live: Map<String, Value>, is_wanted: bool| {
        let action = of(live, is_wanted).actions.remove(0);
        (action.action, action.recreated, action.drift)
    };
    // All that is wanted is there, and it is not ours all the same.
    assert_eq!(decided(with_uid("u-2"), true), (Action::Adopt, true, true));
    assert_eq!(decided(with_uid("u-2"), false), (Action::Forget, true, false));
    assert_eq!(decided(with_uid("u-1"), true), (Action::Unchanged, false, false));
    assert_eq!(decided(with_uid("u-1"), false), (Action::Delete, false, false));
    // A run of ours made it, of which there is no record.
    assert_eq!(decided(owner.marked(&with_uid("u-2")), true), (Action::Update, false, false));
    assert_eq!(decided(owner.marked(&with_uid("u-2")), false), (Action::Delete, false, false));
    // It is about to be gone by itself.
    let mut going = with_uid("u-2");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(decided(going, true), (Action::Create, false, true));

    let table =
        |is_wanted| stoa_engine::render::render(&of(with_uid("u-2"), is_wanted), stoa_engine::render::Colour::Never);
    assert_eq!(
        table(true),
        "> adopt    v1:ConfigMap:n:x  (the applied object no longer exists; another object has its name and is taken \
         over)\n\nPlan: 1 to adopt.\n"
    );
    assert_eq!(
        table(false),
        ". forget   v1:ConfigMap:n:x  (the applied object no longer exists; another object has its name and is not \
         deleted)\n\nPlan: 1 to forget.\n"
    );
}

#[test]
fn object_recorded_under_another_id_is_not_recreated() {
    let with_uid = |uid: &str| {
        let mut object = object("x", "a");
        object["metadata"]["uid"] = json!(uid);
        object
    };
    let old = ResourceId("v1beta1:ConfigMap:n:x".to_owned());
    let spec = Spec { resources: vec![wanted("x", "a", &[])], ..Spec::default() };
    let own = StateResource { live: with_uid("u-1"), ..recorded("x", "a", &[]) };
    let resources = vec![own, StateResource { id: old, live: with_uid("u-2"), ..recorded("x", "a", &[]) }];
    let state = State { resources, ..State::default() };
    let live = BTreeMap::from(
        ["v1", "v1beta1"]
            .map(|version| (ResourceId(format!("{version}:ConfigMap:n:x")), Live::Present(with_uid("u-2")))),
    );
    let (owner, keys) = (Owner::default(), keys());
    let plan = plan(&PlanInput { live: &live, ..blind(&spec, &state, &owner, &keys) }).unwrap();
    assert!(plan.actions.iter().all(|action| !action.recreated), "{plan:?}");
}

#[test]
fn record_spec_and_live_object_decide_action() {
    for (prior, desired, live, expected, drift) in [
        (Some("a"), Some("a"), Some("a"), Action::Unchanged, false),
        (Some("a"), Some("b"), Some("a"), Action::Update, false),
        (Some("a"), Some("a"), Some("c"), Action::Update, true),
        (Some("a"), Some("a"), None, Action::Create, true),
        (Some("a"), None, Some("a"), Action::Delete, false),
        (Some("a"), None, None, Action::Forget, false),
        (None, Some("a"), Some("c"), Action::Adopt, false),
        (None, Some("a"), None, Action::Create, false),
    ] {
        let plan = drafted(
            desired.map(|value| wanted("x", value, &[])).into_iter().collect(),
            prior.map(|value| recorded("x", value, &[])).into_iter().collect(),
            live.map(|value| ("x", value)).as_slice(),
            false,
        )
        .plan;
        let decided: Vec<(Action, bool)> = plan.actions.iter().map(|action| (action.action, action.drift)).collect();
        assert_eq!(decided, [(expected, drift)], "recorded {prior:?}, wanted {desired:?}, live {live:?}");
    }
    // What is neither wanted nor recorded is nobody's business.
    assert!(drafted(Vec::new(), Vec::new(), &[("x", "a")], false).plan.actions.is_empty());
}

/// What a look that changes nothing says of one ConfigMap.
fn refreshed(
    wanted: Option<Resource>,
    recorded: Option<StateResource>,
    live: Live,
    preview: Option<Preview>,
) -> PlannedAction {
    let spec = Spec { resources: wanted.into_iter().collect(), ..Spec::default() };
    let state = State { resources: recorded.into_iter().collect(), ..State::default() };
    let (live, owner, keys) =
        (BTreeMap::from([(id("x"), live)]), Owner { stack: "web".to_owned(), ..Owner::default() }, keys());
    let previews = preview.map(|preview| (id("x"), preview)).into_iter().collect();
    let blind = blind(&spec, &state, &owner, &keys);
    let looked = PlanInput { live: &live, refresh: true, ..blind };
    let outline = Outline::of(&looked).unwrap();
    let sketch = outline.sketch(&looked).unwrap();
    let decided = PlanInput { previews: &previews, ..looked };
    let made = outline.plan(&decided, sketch).unwrap();
    assert_eq!(made, plan(&decided).unwrap(), "as if nothing had been sketched");
    made.actions[0].clone()
}

#[test]
fn refresh_compares_live_with_applied() {
    for (prior, desired, live, expected, drift) in [
        (Some("a"), Some("a"), Some("a"), Action::Unchanged, false),
        (Some("a"), Some("a"), Some("c"), Action::Update, true),
        (Some("a"), Some("a"), None, Action::Create, true),
        // A run that failed, or the source of an import, had another value.
        (Some("b"), Some("a"), Some("b"), Action::Unchanged, false),
        (Some("b"), Some("a"), Some("c"), Action::Update, true),
        (Some("b"), Some("a"), Some("a"), Action::Update, true),
        (Some("b"), Some("a"), None, Action::Create, true),
        // A run that failed made it.
        (Some("b"), None, Some("b"), Action::Unchanged, false),
        (Some("b"), None, Some("c"), Action::Update, true),
        (Some("b"), None, None, Action::Create, true),
        // Nothing was applied.
        (None, Some("a"), Some("c"), Action::Adopt, false),
        (None, Some("a"), None, Action::Create, false),
    ] {
        let found = refreshed(
            desired.map(|value| wanted("x", value, &[])),
            prior.map(|value| recorded("x", value, &[])),
            live.map_or(Live::Absent, |value| Live::Present(object("x", value))),
            None,
        );
        let told = format!("recorded {prior:?}, wanted {desired:?}, live {live:?}: {found:?}");
        assert_eq!((found.action, found.drift), (expected, drift), "{told}");
        let moved: Vec<&str> = found.changes.iter().filter(|it| it.drift).map(|it| it.path.as_str()).collect();
        assert_eq!(moved == ["data.value"], expected == Action::Update, "{told}");
    }
}

#[test]
fn refresh_reports_owner_and_rejection() {
    let api = Owner { stack: "api".to_owned(), ..Owner::default() };
    for desired in [Some(wanted("x", "a", &[])), Some(wanted("x", "b", &[])), None] {
        let found =
            refreshed(desired, Some(recorded("x", "a", &[])), Live::Present(api.marked(&object("x", "a"))), None);
        let refused = found.refused.as_deref().unwrap_or_default();
        assert_eq!((found.action, found.drift), (Action::Update, true), "{found:?}");
        assert!(refused.ends_with(" owns it now") && refused.contains("/api/"), "{refused}");
        assert_eq!(found.owned_by, None);
    }
    // Of what is not recorded nobody said that it is ours.
    let found = refreshed(Some(wanted("x", "a", &[])), None, Live::Present(api.marked(&object("x", "a"))), None);
    assert!(!found.drift && found.refused.is_none(), "{found:?}");

    let refused = || Some(Preview::Refused("flux has it".to_owned()));
    let said = |desired: &str, prior: &str, live: &str| {
        let live = Live::Present(object("x", live));
        let found = refreshed(Some(wanted("x", desired, &[])), Some(recorded("x", prior, &[])), live, refused());
        (found.drift, found.refused)
    };
    assert_eq!(said("a", "a", "c"), (true, Some("flux has it".to_owned())));
    assert_eq!(said("a", "b", "c"), (true, Some("flux has it".to_owned())));
    // It is as it was applied, whoever would refuse it now.
    assert_eq!(said("a", "b", "b"), (false, None));
    let gone = refreshed(Some(wanted("x", "a", &[])), Some(recorded("x", "a", &[])), Live::Absent, refused());
    assert_eq!((gone.action, gone.drift, gone.refused.as_deref()), (Action::Create, true, Some("flux has it")));
    let plan = Plan { actions: vec![gone], ..Plan::of("") };
    assert_eq!(
        stoa_engine::render::render(&plan, stoa_engine::render::Colour::Never),
        "+ create   v1:ConfigMap:n:x  (it was recorded, but no longer exists)  (an apply would be refused: flux has \
         it)\n\nPlan: 1 to create.\n"
    );
}

#[test]
fn refresh_reports_previous_owner() {
    let found = |from: &Owner, is_wanted: bool| {
        let mut desired = wanted("x", "a", &[]);
        desired.extensions.insert(stoa_engine::owner::TAKE_OVER_FROM.to_owned(), "/api/".into());
        let live = Live::Present(from.marked(&object("x", "c")));
        let found = refreshed(is_wanted.then_some(desired), Some(recorded("x", "a", &[])), live, None);
        assert!(found.drift && found.refused.is_none(), "{found:?}");
        (found.action, found.owned_by.unwrap_or_default())
    };
    let api = Owner { stack: "api".to_owned(), ..Owner::default() };
    assert_eq!(found(&api, true), (Action::Adopt, "/api/".to_owned()));
    // Of our name, and no more.
    let before = Owner { stack: "web".to_owned(), stack_uid: "before".to_owned(), ..Owner::default() };
    assert_eq!(found(&before, true), (Action::Adopt, before.mark()));
    assert_eq!(found(&before, false), (Action::Forget, before.mark()), "it would be left alone");
}

#[test]
fn refresh_reads_recorded_location() {
    let clusters = clusters(vec!["main".to_owned(), "east".to_owned()]);
    let spec = Spec { resources: vec![wanted("x", "a", &[])], ..Spec::default() };
    let record = recorded("x", "b", &[]).in_cluster("east".to_owned());
    let state = State { resources: vec![record], ..State::default() };
    let (owner, keys) = (Owner::default(), keys());
    for (live, action, drift) in [
        (Live::Present(object("x", "b")), Action::Unchanged, false),
        (Live::Present(object("x", "c")), Action::Update, true),
        (Live::Absent, Action::Create, true),
        (Live::Unverified("it does not answer".to_owned()), Action::Update, false),
    ] {
        let is_seen = !matches!(live, Live::Unverified(_));
        let live = BTreeMap::from([(id("x"), live)]);
        let blind = blind(&spec, &state, &owner, &keys);
        let input = PlanInput { live: &live, refresh: true, clusters: &clusters, ..blind };
        let found = plan(&input).unwrap().actions[0].clone();
        assert_eq!((found.action, found.drift, found.unverified.is_none()), (action, drift, is_seen), "{found:?}");
    }
}

#[test]
fn untracked_values_are_masked() {
    let owner = Owner { stack: "web".to_owned(), ..Owner::default() };
    let (spec, keys) = (Spec { resources: vec![wanted("x", "b", &[])], ..Spec::default() }, keys());
    let before = |record: StateResource, open: Vec<OpenCall>, live: Map<String, Value>| {
        let state = State { resources: vec![record], open };
        let live = BTreeMap::from([(id("x"), Live::Present(live))]);
        let found = plan(&PlanInput { live: &live, ..blind(&spec, &state, &owner, &keys) }).unwrap();
        found.actions[0].changes[0].before.clone().unwrap()
    };
    let place = stoa_engine::record::CallTarget::default();
    let call = OpenCall { id: id("x"), action: Action::Update, run: "run".to_owned(), place, retry: false };
    let (record, marked) = (recorded("x", "a", &[]), |value: &str| owner.marked(&object("x", value)));
    assert_eq!(before(record.clone(), Vec::new(), marked("hunter2")), "hunter2");
    assert_eq!(before(record.clone(), vec![call.clone()], marked("hunter2")), stoa_engine::sensitive::MASK);
    assert_eq!(before(record.clone(), vec![call], marked("a")), "a", "it is as it was recorded");
    assert_eq!(before(record.clone().as_found(), Vec::new(), marked("hunter2")), stoa_engine::sensitive::MASK);
    // As after an import: nobody of ours was there.
    assert_eq!(before(record.as_found(), Vec::new(), object("x", "theirs")), "theirs");
}

#[test]
fn update_shows_field_before_and_after() {
    let plan = drafted(vec![wanted("x", "b", &[])], vec![recorded("x", "a", &[])], &[("x", "a")], false).plan;
    let change = FieldChange {
        path: "data.value".to_owned(),
        before: Some(json!("a")),
        after: Some(json!("b")),
        ..FieldChange::default()
    };
    assert_eq!(plan.actions[0].changes, [change]);
}

#[test]
fn unrecorded_object_is_not_deleted() {
    let live = [("x", "a"), ("y", "a")];
    let without = drafted(vec![wanted("x", "a", &[])], vec![recorded("x", "a", &[])], &live, false).plan;
    assert_eq!(names(&without), ["x"]);
    let state = vec![recorded("x", "a", &[]), recorded("y", "a", &[])];
    let with = drafted(vec![wanted("x", "a", &[])], state, &live, false).plan;
    let deleted = with.actions.iter().find(|action| action.id == id("y")).map(|action| action.action);
    assert_eq!(deleted, Some(Action::Delete));
}

#[test]
fn dependencies_come_first_without_duplicates() {
    let to_b = "$kusion_path.v1:ConfigMap:n:b.data.value";
    // a after b, by reference; b after c; and a after c, which the way over b implies.
    let wanted = vec![wanted("a", to_b, &["c"]), wanted("b", "from b", &["c"]), wanted("c", "from c", &[])];
    let draft = drafted(wanted, Vec::new(), &[], false);
    assert_eq!(names(&draft.plan), ["c", "b", "a"]);
    assert_eq!(draft.plan.actions[2].after, [id("b")]);
    assert_eq!(draft.plan.actions[2].depends_on, [id("b"), id("c")]);
    assert_eq!(draft.desired[&id("a")].attributes["data"]["value"], "from b");
}

#[test]
fn destroy_deletes_dependents_first() {
    let state = vec![recorded("a", "x", &["b"]), recorded("b", "x", &["c"]), recorded("c", "x", &[])];
    let live = [("a", "x"), ("b", "x"), ("c", "x")];
    let plan = drafted(vec![wanted("a", "x", &[])], state, &live, true).plan;
    assert_eq!(names(&plan), ["a", "b", "c"]);
    assert!(plan.actions.iter().all(|action| action.action == Action::Delete));
    assert_eq!(plan.actions[2].after, [id("b")]);
}

#[test]
fn unknown_state_stops_plan() {
    let state =
        State { resources: vec![StateResource { unknown: true, ..recorded("x", "a", &[]) }], ..State::default() };
    let (spec, live) = (Spec::default(), BTreeMap::from([(id("x"), Live::Absent)]));
    let (owner, keys) = (Owner::default(), keys());
    let input = PlanInput { live: &live, ..blind(&spec, &state, &owner, &keys) };
    let problems = plan(&input).unwrap_err();
    assert_eq!(problems[0].reason, reason::UNKNOWN_STATE);
    assert_eq!(problems[0].resource_id, Some(id("x")));
}

#[test]
fn unpreviewed_action_stays_as_sketched() {
    let reference = "$kusion_path.v1:ConfigMap:n:a.metadata.resourceVersion";
    let resources = vec![wanted("a", "x", &[]), wanted("b", reference, &[]), wanted("c", "x", &["a"])];
    let spec = Spec { resources, ..Spec::default() };
    let on_record: [(&str, &str, &[&str]); 4] =
        [("a", "x", &[]), ("b", "7", &["a"]), ("c", "x", &["a"]), ("d", "x", &["c"])];
    let resources = on_record.iter().map(|(name, value, depends_on)| recorded(name, value, depends_on)).collect();
    let state = State { resources, ..State::default() };
    let there = |(name, value, _): &(&str, &str, &[&str])| (id(name), Live::Present(object(name, value)));
    let mut live: BTreeMap<ResourceId, Live> = on_record.iter().map(there).collect();
    if let Some(Live::Present(live)) = live.get_mut(&id("a")) {
        live["metadata"]["resourceVersion"] = json!("7");
    }
    let (owner, keys) = (Owner::default(), keys());
    let blind = blind(&spec, &state, &owner, &keys);
    let outline = Outline::of(&blind).unwrap();
    let looked = PlanInput { live: &live, ..blind };
    let sketch = outline.sketch(&looked).unwrap();
    let sketched: Vec<Action> = sketch.actions.values().map(|action| action.action).collect();
    assert_eq!(sketched, [Action::Unchanged, Action::Unchanged, Action::Unchanged, Action::Delete]);

    // The change of `a` leaves nobody knowing its version.
    let previews = BTreeMap::from([(id("a"), Preview::Changed(object("a", "y")))]);
    let decided = PlanInput { previews: &previews, ..looked };
    let made = outline.plan(&decided, sketch).unwrap();
    let of = |name: &str| made.actions.iter().find(|action| action.id == id(name)).unwrap().action;
    assert_eq!(["a", "b", "c", "d"].map(of), [Action::Update, Action::Update, Action::Unchanged, Action::Delete]);
    assert_eq!(made, plan(&decided).unwrap(), "as if nothing had been sketched");
}
