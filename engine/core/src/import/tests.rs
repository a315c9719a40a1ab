//! Tests of imports of ConfigMaps.

use serde_json::json;

use super::*;
use crate::planner::{PlanInput, draft};
use crate::secret_digest::DigestKeys;

fn id(name: &str) -> ResourceId {
    ResourceId(format!("v1:ConfigMap:shop:{name}"))
}

fn object(name: &str) -> Map<String, Value> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"password": "hunter2"},
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")}});
    object.as_object().cloned().unwrap()
}

fn owner(stack: &str) -> Owner {
    let [organization, workspace] = ["shop", "dev"].map(str::to_owned);
    Owner { organization, stack: stack.to_owned(), workspace, stack_uid: format!("uid-of-{stack}") }
}

fn spec(resources: Value) -> Spec {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

fn maps(names: &[&str]) -> Value {
    let of = |name: &&str| json!({"id": id(name), "type": "Kubernetes", "extensions": {"cluster": "main"}, "attributes": object(name)});
    names.iter().map(of).collect()
}

fn named(names: &[&str]) -> Selection {
    let resources = names.iter().map(|name| Selected { id: id(name), infrastructure_id: None }).collect();
    Selection { resources, ..Selection::default() }
}

/// What is decided about a selection, where these objects are live.
fn imported(
    spec: &Spec,
    state: &State,
    selection: &Selection,
    live: &[(&str, Map<String, Value>)],
) -> Result<Vec<PlannedAction>, Vec<String>> {
    let web = owner("web");
    let keys = DigestKeys::new(&[7; 32], &[]);
    let input = PlanInput::blind(spec, state, &web, &keys);
    let told = |problems: Vec<Problem>| problems.iter().map(|it| format!("{} {it}", it.reason)).collect::<Vec<_>>();
    let draft = draft(&input).map_err(told)?;
    let candidates = candidates(spec, &draft, state, selection, &Clusters::default()).map_err(told)?;
    let found = |id: &ResourceId| {
        let live = live.iter().find(|(name, _)| *id == self::id(name));
        live.map_or(Live::Absent, |(_, object)| Live::Present(object.clone()))
    };
    let live = candidates.keys().map(|id| (id.clone(), found(id))).collect();
    plan(&web, "sha256:x", &candidates, &live).map(|plan| plan.actions).map_err(told)
}

#[test]
fn selected_resource_is_recorded_unchanged() {
    let actions = imported(
        &spec(maps(&["a", "b"])),
        &State::default(),
        &named(&["a"]),
        &[("a", object("a")), ("b", object("b"))],
    )
    .unwrap();
    assert_eq!(actions.len(), 1);
    let found = actions[0].found.clone().unwrap();
    assert_eq!((actions[0].action, found.uid.as_deref()), (Action::Import, Some("uid-of-a")));
    assert_eq!(found.extensions["cluster"], "main");
    let plan = serde_json::to_string(&actions).unwrap();
    assert!(!plan.contains("hunter2"), "{plan}");
}

#[test]
fn selected_resource_must_exist_without_owner() {
    let others = owner("api").marked(&object("b"));
    let before = Owner { stack_uid: "uid-before".to_owned(), ..owner("web") }.marked(&object("c"));
    let selection = named(&["a", "b", "c", "z"]);
    let told = imported(&spec(maps(&["a", "b", "c"])), &State::default(), &selection, &[]).unwrap_err();
    assert_eq!(told, ["NotInSpec v1:ConfigMap:shop:z: the Spec of the stack has no resource with this id"]);
    let selection = named(&["a", "b", "c"]);
    let told = imported(&spec(maps(&["a", "b", "c"])), &State::default(), &selection, &[("b", others), ("c", before)])
        .unwrap_err();
    let begin = [
        "NotThere v1:ConfigMap:shop:a: the object does not exist",
        "OwnedByAnother v1:ConfigMap:shop:b: ConfigMap b in namespace shop is owned by shop/api/dev, not by",
        "OwnedByAnother v1:ConfigMap:shop:c: an earlier stack of the same name owns it (shop/web/dev/uid-before)",
    ];
    assert_eq!(told.len(), begin.len(), "{told:?}");
    assert!(told.iter().zip(begin).all(|(told, begin)| told.starts_with(begin)), "{told:#?}");
}

#[test]
fn import_all_takes_unowned_unrecorded_objects() {
    let recorded = StateResource::named_by(&id("d")).unwrap();
    let state = State { resources: vec![recorded], ..State::default() };
    let live = [("a", object("a")), ("b", owner("api").marked(&object("b"))), ("d", object("d"))];
    let selection = Selection { all: true, ..Selection::default() };
    let actions = imported(&spec(maps(&["a", "b", "c", "d"])), &state, &selection, &live).unwrap();
    assert_eq!(actions.iter().map(|action| action.id.clone()).collect::<Vec<_>>(), [id("a")]);
    // Once more, and named: nothing is left to do.
    let state = State { resources: vec![StateResource::named_by(&id("a")).unwrap()], ..State::default() };
    assert_eq!(imported(&spec(maps(&["a"])), &state, &named(&["a"]), &live), Ok(Vec::new()));
}

#[test]
fn foreign_records_are_imported_even_outside_spec() {
    let record = |name: &str| ForeignRecord {
        id: id(name),
        depends_on: vec![id("a")],
        extensions: Map::from_iter([(IMPORT_ID.to_owned(), "shop/old".into())]),
        unplaced: false,
        ..ForeignRecord::default()
    };
    let selection = Selection { records: vec![record("a"), record("old"), record("gone")], ..Selection::default() };
    let live = [("a", object("a")), ("old", object("old"))];
    let actions = imported(&spec(maps(&["a"])), &State::default(), &selection, &live).unwrap();
    let taken: Vec<_> = actions.iter().map(|it| (it.id.clone(), it.found.clone().unwrap().extensions)).collect();
    assert_eq!(taken[0], (id("a"), Map::from_iter([("cluster".to_owned(), "main".into())])), "as it is wanted");
    assert_eq!(taken[1], (id("old"), record("old").extensions));
    assert_eq!((taken.len(), actions[1].depends_on.as_slice()), (2, [id("a")].as_slice()));
    let told =
        imported(&spec(maps(&["a"])), &State::default(), &selection, &[("old", owner("api").marked(&object("old")))]);
    assert!(told.unwrap_err()[0].starts_with("OwnedByAnother v1:ConfigMap:shop:old: "));
}

#[test]
fn import_id_must_name_object() {
    for (name, is_its) in [
        ("shop/a", true),
        ("v1:ConfigMap:shop:a", true),
        ("", true),
        ("a", false),
        ("other/a", false),
        ("v1:ConfigMap:shop:b", false),
    ] {
        let mut wanted = maps(&["a"]);
        wanted[0]["extensions"] = json!({IMPORT_ID: name});
        let refused =
            spec(wanted).validate(&crate::kind_rules::NoRules).err().map(|problems| problems[0].field.clone());
        assert_eq!(refused.is_none(), is_its, "{name}: {refused:?}");
        let selected = Selected { id: id("a"), infrastructure_id: Some(name.to_owned()) };
        let selection = Selection { resources: vec![selected], ..Selection::default() };
        let result = imported(&spec(maps(&["a"])), &State::default(), &selection, &[("a", object("a"))]);
        assert_eq!(result.is_ok(), is_its && !name.is_empty(), "{name}: {result:?}");
    }
    let mut wanted = maps(&["a"]);
    wanted[0]["extensions"] = json!({IMPORT_ID: 7});
    assert_eq!(spec(wanted).validate(&crate::kind_rules::NoRules).unwrap_err()[0].message, "must be text");
}

#[test]
fn provider_resource_is_located_by_name_or_state() {
    let wanted = spec(json!([{"id": "a:b:c:d", "type": "Terraform", "attributes": {}}]));
    let import = |infrastructure_id: Option<&str>| {
        let selected = Selected { id: "a:b:c:d".into(), infrastructure_id: infrastructure_id.map(str::to_owned) };
        let selection = Selection { resources: vec![selected], ..Selection::default() };
        imported(&wanted, &State::default(), &selection, &[]).unwrap_err()
    };
    assert_eq!(import(Some("i-1")), ["NotThere a:b:c:d: the object does not exist, so it cannot be imported"]);
    assert!(import(None)[0].contains("`terraform import` takes"), "{:?}", import(None));

    let state = ProviderState::Open("state".to_owned());
    let record = ForeignRecord {
        id: "a:b:c:d".into(),
        kind: ResourceType::Terraform,
        provider_state: Some(state.clone()),
        ..ForeignRecord::default()
    };
    let selection = Selection { records: vec![record], ..Selection::default() };
    let located = selection.located(&"a:b:c:d".into(), &Map::new()).unwrap();
    assert_eq!((located.provider_state, located.extensions.len()), (Some(state), 0));
}
