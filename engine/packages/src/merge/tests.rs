//! Cases and properties of merges. Each case has kpt's result where it differs.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn merged(origin: &Value, upstream: &Value, local: &Value) -> Merged {
    let lists = Definitions::default().lists(local);
    merge(&lists, Sides { origin: Some(origin), upstream: Some(upstream), local: Some(local) })
}

/// Merges `spec`, and expects a result and the fields of conflicts.
#[track_caller]
fn expect(kind: (&str, &str), [origin, upstream, local]: [Value; 3], expected: Value, conflicts: &[(&str, Cause)]) {
    let object = |spec: &Value| json!({"apiVersion": kind.0, "kind": kind.1, "spec": spec});
    let merged = merged(&object(&origin), &object(&upstream), &object(&local));
    assert_eq!(merged.value, Some(object(&expected)));
    let found: Vec<_> = merged.conflicts.iter().map(|it| (it.field.to_string(), it.cause)).collect();
    let conflicts: Vec<_> = conflicts.iter().map(|(field, cause)| ((*field).to_owned(), *cause)).collect();
    assert_eq!(found, conflicts);
}

const CUSTOM: (&str, &str) = ("example.com/v1", "Widget");
const POD: (&str, &str) = ("v1", "Pod");

#[test]
fn field_of_one_side_changes() {
    expect(
        CUSTOM,
        [json!({"a": 1, "b": 1}), json!({"a": 2, "b": 1}), json!({"a": 1, "b": 3})],
        json!({"a": 2, "b": 3}),
        &[],
    );
    expect(CUSTOM, [json!({}), json!({"a": 1}), json!({"b": 1})], json!({"a": 1, "b": 1}), &[]);
    expect(CUSTOM, [json!({"a": 1, "b": 1}), json!({"b": 1}), json!({"a": 1, "b": 2})], json!({"b": 2}), &[]);
    // kpt: a field that is null on one side is removed.
    expect(
        CUSTOM,
        [json!({"a": null, "b": 1}), json!({"a": null, "b": 2}), json!({"a": null, "b": 1})],
        json!({"a": null, "b": 2}),
        &[],
    );
}

#[test]
fn field_of_both_sides_is_upstreams() {
    // kpt: the same, and says nothing.
    let conflict = [("spec.a", Cause::ChangedOnBothSides)];
    expect(CUSTOM, [json!({"a": 1}), json!({"a": 2}), json!({"a": 3})], json!({"a": 2}), &conflict);
    expect(CUSTOM, [json!({}), json!({"a": 2}), json!({"a": 3})], json!({"a": 2}), &conflict);
    expect(CUSTOM, [json!({"a": 1}), json!({"a": {"b": 1}}), json!({"a": [1]})], json!({"a": {"b": 1}}), &conflict);
    expect(CUSTOM, [json!({"a": 1}), json!({"a": 2}), json!({"a": 2})], json!({"a": 2}), &[]);
}

#[test]
fn deleted_field_returns_when_upstream_changes_it() {
    // kpt: the same, and says nothing.
    expect(CUSTOM, [json!({"a": 1}), json!({"a": 2}), json!({})], json!({"a": 2}), &[("spec.a", Cause::DeletedHere)]);
    expect(CUSTOM, [json!({"a": 1, "b": 1}), json!({"a": 1, "b": 2}), json!({"b": 1})], json!({"b": 2}), &[]);
}

#[test]
fn changed_field_is_deleted_with_upstreams() {
    // kpt: the same, and says nothing.
    expect(CUSTOM, [json!({"a": 1}), json!({}), json!({"a": 2})], json!({}), &[("spec.a", Cause::DeletedUpstream)]);
}

#[test]
fn deleted_map_leaves_additions() {
    // kpt: the same, and says nothing.
    let (full, more) = (json!({"a": {"x": 1, "y": 1}}), json!({"a": {"x": 1, "y": 1, "z": 1}}));
    let rest = json!({"a": {"z": 1}});
    expect(CUSTOM, [full.clone(), json!({}), more.clone()], rest.clone(), &[("spec.a", Cause::DeletedUpstream)]);
    expect(CUSTOM, [full.clone(), more, json!({})], rest, &[("spec.a", Cause::DeletedHere)]);
    expect(CUSTOM, [full, json!({"a": {"x": 1}}), json!({})], json!({}), &[]);
}

#[test]
fn scalar_list_is_one_value() {
    // kpt: the same, and says nothing.
    let conflict = [("spec.args", Cause::ChangedOnBothSides)];
    let args = |args: &[&str]| json!({"args": args});
    expect(CUSTOM, [args(&["a"]), args(&["a", "b"]), args(&["c", "a"])], args(&["a", "b"]), &conflict);
    expect(CUSTOM, [args(&["a"]), args(&["a"]), args(&["c", "a"])], args(&["c", "a"]), &[]);
}

#[test]
fn containers_merge_by_name() {
    let containers = |texts: &[(&str, &str)]| {
        let items: Vec<Value> = texts.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
        json!({"containers": items})
    };
    let origin = containers(&[("web", "1"), ("log", "1")]);
    // kpt: the same, without the conflict.
    expect(
        POD,
        [
            origin.clone(),
            containers(&[("web", "2"), ("log", "1"), ("new", "1")]),
            containers(&[("mine", "1"), ("web", "3"), ("log", "1")]),
        ],
        containers(&[("mine", "1"), ("web", "2"), ("log", "1"), ("new", "1")]),
        &[("spec.containers[name=web].image", Cause::ChangedOnBothSides)],
    );
    // kpt: the same.
    expect(
        POD,
        [origin.clone(), containers(&[("web", "1")]), containers(&[("web", "1"), ("log", "1"), ("mine", "1")])],
        containers(&[("web", "1"), ("mine", "1")]),
        &[],
    );
    // kpt: leaves {name: log}, and {name: web, image: 2}.
    expect(
        POD,
        [origin, containers(&[("web", "2")]), containers(&[("log", "2")])],
        containers(&[("web", "2")]),
        &[("spec.containers[name=log]", Cause::DeletedUpstream), ("spec.containers[name=web]", Cause::DeletedHere)],
    );
}

#[test]
fn first_init_container_stays_first() {
    // kpt: comes last.
    let containers =
        |names: &[&str]| json!({"initContainers": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
    expect(
        POD,
        [containers(&["a", "b"]), containers(&["first", "a", "b"]), containers(&["a", "mine", "b"])],
        containers(&["first", "a", "mine", "b"]),
        &[],
    );
}

#[test]
fn ports_merge_by_port_and_protocol() {
    let ports = |ports: &[(u32, &str, &str)]| {
        let items: Vec<Value> = ports
            .iter()
            .map(|(port, protocol, name)| json!({"port": port, "protocol": protocol, "name": name}))
            .collect();
        json!({"ports": items})
    };
    // kpt: the same.
    expect(
        ("v1", "Service"),
        [
            ports(&[(53, "TCP", "a"), (53, "UDP", "b")]),
            ports(&[(53, "TCP", "a"), (53, "UDP", "c")]),
            ports(&[(53, "TCP", "d"), (53, "UDP", "b")]),
        ],
        ports(&[(53, "TCP", "d"), (53, "UDP", "c")]),
        &[],
    );
    // kpt: has the port twice, once without a protocol.
    expect(
        ("v1", "Service"),
        [
            json!({"ports": [{"port": 80}]}),
            json!({"ports": [{"port": 80, "name": "http"}]}),
            ports(&[(80, "TCP", "web")]),
        ],
        ports(&[(80, "TCP", "http")]),
        &[("spec.ports[port,protocol=80,TCP].name", Cause::ChangedOnBothSides)],
    );
}

#[test]
fn finalizers_merge_as_a_set() {
    // kpt: the same.
    let object = |finalizers: &[&str]| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"finalizers": finalizers}});
    let merged = merged(&object(&["a", "b"]), &object(&["b", "c"]), &object(&["a", "b", "d"]));
    assert_eq!(merged, Merged { value: Some(object(&["b", "d", "c"])), conflicts: vec![] });
}

#[test]
fn custom_list_merges_by_name() {
    // kpt: upstream's list, without the local item.
    let rules = |names: &[(&str, u32)]| json!({"rules": names.iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>()});
    expect(
        CUSTOM,
        [rules(&[("a", 1)]), rules(&[("a", 2)]), rules(&[("a", 1), ("b", 1)])],
        rules(&[("a", 2), ("b", 1)]),
        &[],
    );
    // Two items of one name.
    let conflict = [("spec.rules", Cause::ChangedOnBothSides)];
    expect(
        CUSTOM,
        [rules(&[("a", 1)]), rules(&[("a", 2)]), rules(&[("a", 1), ("a", 3)])],
        rules(&[("a", 2)]),
        &conflict,
    );
    // An item without a name.
    expect(
        CUSTOM,
        [rules(&[("a", 1)]), rules(&[("a", 2)]), json!({"rules": [{"x": 1}]})],
        rules(&[("a", 2)]),
        &conflict,
    );
}

#[test]
fn custom_list_merges_by_the_keys_of_its_definition() {
    // kpt: upstream's list, without the local item.
    let mut definitions = Definitions::default();
    definitions.add(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
        "group": "example.com", "names": {"kind": "Widget"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {"routes": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["host", "port"],
                "items": {"type": "object", "properties": {"port": {"type": "integer", "default": 80}}}}}}}}}}]}}));
    let object = |routes: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"routes": routes}});
    let origin = object(json!([{"host": "a"}]));
    let upstream = object(json!([{"host": "a", "to": "x"}]));
    let local = object(json!([{"host": "a", "port": 80}, {"host": "a", "port": 81}]));
    let lists = definitions.lists(&local);
    let merged = merge(&lists, Sides { origin: Some(&origin), upstream: Some(&upstream), local: Some(&local) });
    let expected = object(json!([{"host": "a", "port": 80, "to": "x"}, {"host": "a", "port": 81}]));
    assert_eq!(merged, Merged { value: Some(expected), conflicts: vec![] });
}

#[test]
fn conflict_has_all_three_values() {
    let merged = merged(&json!({"a": 1}), &json!({"a": 2}), &json!({"a": 3}));
    let expected = json!([{"field": "a", "cause": "changedOnBothSides", "origin": 1, "upstream": 2, "local": 3}]);
    assert_eq!(serde_json::to_value(&merged.conflicts).unwrap(), expected);
}

/// Small objects with maps, keyed lists and other lists, so that random ones overlap.
fn object() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![(0..3_i32).prop_map(Value::from), Just(json!("a")), Just(Value::Null)];
    let map = |inner: BoxedStrategy<Value>| {
        proptest::collection::btree_map("[a-c]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect()))
    };
    let named = |inner: BoxedStrategy<Value>| {
        let item = |(name, value): (String, Value)| json!({"name": name, "value": value});
        let names = proptest::collection::btree_map("[a-d]", inner, 0..4);
        names.prop_map(move |items| Value::Array(items.into_iter().map(item).collect())).prop_shuffle_list()
    };
    let leaf = scalar.clone().boxed();
    let value = leaf.prop_recursive(3, 24, 4, move |inner| {
        let inner = inner.boxed();
        prop_oneof![
            map(inner.clone()),
            named(inner),
            proptest::collection::vec(scalar.clone(), 0..3).prop_map(Value::Array),
        ]
    });
    map(value.boxed())
}

trait ShuffleList {
    fn prop_shuffle_list(self) -> BoxedStrategy<Value>;
}

impl<S: Strategy<Value = Value> + 'static> ShuffleList for S {
    fn prop_shuffle_list(self) -> BoxedStrategy<Value> {
        self.prop_map(|list| list.as_array().cloned().unwrap_or_default()).prop_shuffle().prop_map(Value::Array).boxed()
    }
}

proptest! {
    #[test]
    fn unchanged_upstream_changes_nothing(origin in object(), local in object()) {
        prop_assert_eq!(merged(&origin, &origin, &local), Merged { value: Some(local), conflicts: vec![] });
    }

    #[test]
    fn unchanged_object_becomes_upstreams(origin in object(), upstream in object()) {
        prop_assert_eq!(merged(&origin, &upstream, &origin), Merged { value: Some(upstream), conflicts: vec![] });
    }

    #[test]
    fn second_merge_changes_nothing(origin in object(), upstream in object(), local in object()) {
        let once = merged(&origin, &upstream, &local).value.unwrap();
        let again = merged(&origin, &upstream, &once).value;
        prop_assert_eq!(again, Some(once));
    }

    #[test]
    fn merge_without_conflicts_has_no_sides(origin in object(), one in object(), other in object()) {
        let (merged, swapped) = (merged(&origin, &one, &other), merged(&origin, &other, &one));
        prop_assert_eq!(merged.conflicts.len(), swapped.conflicts.len());
        if merged.conflicts.is_empty() {
            prop_assert_eq!(merged.value.map(sorted), swapped.value.map(sorted));
        }
    }
}

/// The value with its lists of named items by name: the sides differ in the order of what both add.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, sorted(value))).collect()),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(sorted).collect();
            if items.iter().all(|item| item.get("name").is_some()) {
                items.sort_by_key(|item| item["name"].to_string());
            }
            Value::Array(items)
        }
        scalar => scalar,
    }
}
