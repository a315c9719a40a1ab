//! Single directives, and patches of all shapes compared with what Kubernetes' own library makes of them.

use std::cell::RefCell;

use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::{Lookup, Refusal, merge};
use crate::{
    openapi::components,
    oracle::{Oracle, Type, definition, empty, metadata, runner, types},
};

/// A spec with a list of each kind.
fn spec() -> Type {
    Type::Struct(vec![
        ("merged", Type::Merged(vec![("n", Type::Count), ("tags", Type::Set(Box::new(Type::Text)))])),
        ("tags", Type::Set(Box::new(Type::Text))),
        ("atomic", Type::AtomicList(Box::new(Type::Text))),
        ("map", Type::MapOf(Box::new(Type::Text))),
    ])
}

fn patched(original: &Value, patch: &Value) -> Result<Value, Refusal> {
    let map = |value: &Value| value.as_object().expect("a map").clone();
    let definition = definition(&spec());
    let object = map(&json!({ "spec": original }));
    let merged = merge(object, map(&json!({ "spec": patch })), Lookup::of_object(&definition.schema))?;
    Ok(merged.get("spec").cloned().unwrap_or_default())
}

#[track_caller]
fn check(original: &Value, patch: &Value, expected: &Value) {
    assert_eq!(patched(original, patch).as_ref(), Ok(expected), "{patch}");
}

#[test]
fn lists_are_merged_by_key_or_replaced() {
    let original = json!({ "merged": [{ "name": "a", "n": 1 }, { "name": "b" }], "atomic": ["x"], "tags": ["x", "y"] });
    check(
        &original,
        &json!({ "merged": [{ "name": "a", "tags": ["t"] }, { "name": "c" }], "atomic": ["z"], "tags": ["z", "x"] }),
        &json!({
            "merged": [{ "name": "a", "n": 1, "tags": ["t"] }, { "name": "c" }, { "name": "b" }],
            "atomic": ["z"],
            "tags": ["z", "x", "y"],
        }),
    );
}

#[test]
fn directives_delete_replace_retain_and_order() {
    let original =
        json!({ "merged": [{ "name": "a", "n": 1 }, { "name": "b" }], "tags": ["x", "y"], "map": { "k": "v" } });
    let with = |field: &str, value: Value| {
        let mut all = original.clone();
        all[field] = value;
        all
    };
    check(
        &original,
        &json!({ "merged": [{ "name": "a", "$patch": "delete" }] }),
        &with("merged", json!([{ "name": "b" }])),
    );
    check(
        &original,
        &json!({ "merged": [{ "$patch": "replace" }, { "name": "c" }] }),
        &with("merged", json!([{ "name": "c" }])),
    );
    check(&original, &json!({ "map": { "$patch": "replace", "q": "w" } }), &with("map", json!({ "q": "w" })));
    check(&original, &json!({ "map": { "$patch": "delete" } }), &with("map", json!({})));
    check(&original, &json!({ "$deleteFromPrimitiveList/tags": ["x"] }), &with("tags", json!(["y"])));
    check(&original, &json!({ "$setElementOrder/tags": ["y", "x"] }), &with("tags", json!(["y", "x"])));
    check(
        &original,
        &json!({ "$setElementOrder/merged": [{ "name": "b" }, { "name": "a" }], "merged": [{ "name": "a", "n": null }] }),
        &with("merged", json!([{ "name": "b" }, { "name": "a" }])),
    );
    check(&original, &json!({ "$retainKeys": ["map"], "map": { "k": null } }), &json!({ "map": {} }));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let original = json!({ "merged": [{ "name": "a" }], "tags": ["x"] });
    let refused = |patch: Value| patched(&original, &patch).expect_err("it makes no sense");
    assert_eq!(refused(json!({ "$retainKeys": "x" })), super::BAD_RETAIN_KEYS);
    assert_eq!(refused(json!({ "$retainKeys": [], "tags": [] })), super::BAD_RETAIN_KEYS);
    assert_eq!(refused(json!({ "$deleteFromPrimitiveList": [] })), super::BAD_DELETE_LIST);
    assert_eq!(refused(json!({ "$setElementOrder": [] })), super::BAD_ORDER);
    assert_eq!(
        refused(json!({ "tags": [[]], "$setElementOrder/tags": [] })),
        failed("list element types are not identical: [[x] [[]]]")
    );
    assert_eq!(refused(json!({ "$patch": 1 })), failed("unknown patch type: %!s(int64=1) in map: map[$patch:1]"));
    assert_eq!(refused(json!({ "$patch": "merge" })), failed("unknown patch type: merge in map: map[$patch:merge]"));
    assert_eq!(
        refused(json!({ "merged": [{ "n": 1 }] })),
        failed("map: map[n:1] does not contain declared merge key: name")
    );
    assert_eq!(
        refused(json!({ "$setElementOrder/tags": "x" })),
        failed("expected a []interface {}, but received a string")
    );
}

fn failed(text: &str) -> Refusal {
    Refusal::Failed(text.to_owned())
}

/// To compare each item with each would take minutes.
#[test]
fn long_lists_are_merged() {
    let list = |count: usize| -> Vec<Value> { (0..count).rev().map(|n| json!(n.to_string())).collect() };
    let items = |count: usize| -> Vec<Value> { (0..count).rev().map(|n| json!({ "name": n.to_string() })).collect() };
    let patch = json!({ "tags": list(50_000), "merged": items(50_000) });
    let mut original = patch.clone();
    for list in original.as_object_mut().expect("a map").values_mut() {
        list.as_array_mut().expect("a list").reverse();
    }
    assert_eq!(patched(&original, &patch).as_ref(), Ok(&patch));
    let delete: Vec<Value> = (0..49_999)
        .map(|n| json!({ "name": n.to_string(), "$patch": "delete" }))
        .chain([json!({ "name": "x" })])
        .collect();
    let deleted = json!({ "$deleteFromPrimitiveList/tags": list(49_999), "merged": delete });
    let left = json!({ "tags": ["49999"], "merged": [{ "name": "x" }, { "name": "49999" }] });
    assert_eq!(patched(&original, &deleted), Ok(left));
}

#[test]
fn patch_limit_rejects_repeated_merges() {
    let tags: Vec<Value> = (0..2_000).map(|n| json!(n.to_string())).collect();
    let original = json!({ "merged": [{ "name": "a", "tags": tags }] });
    let patch = |count: usize| json!({ "merged": vec![json!({ "name": "a", "tags": ["0"] }); count] });
    assert_eq!(patched(&original, &patch(10)).as_ref(), Ok(&original));
    let refused = patched(&original, &patch(10_000)).expect_err("it is too much");
    assert!(matches!(refused, Refusal::Unprocessable(_)), "{refused:?}");
}

/// A few items can be long.
#[test]
fn patch_limit_rejects_repeated_long_texts() {
    let original = json!({ "merged": [{ "name": "a", "tags": ["t".repeat(1 << 20)] }] });
    let patch = |count: usize, item: Value| json!({ "merged": vec![item; count] });
    for item in [json!({ "name": "a", "tags": ["u"] }), json!({ "name": "a", "$setElementOrder/tags": [] })] {
        assert!(patched(&original, &patch(3, item.clone())).is_ok(), "{item}");
        let refused = patched(&original, &patch(5_000, item)).expect_err("it is too much");
        assert!(matches!(refused, Refusal::Unprocessable(_)), "{refused:?}");
    }
}

/// What is deleted and what is merged is decided item by item, as if each were looked for in turn.
#[test]
fn merge_handles_items_of_one_key_sequentially() {
    let original = json!({ "merged": [{ "name": "a", "n": 1 }, { "name": "b" }, { "name": "a", "n": 2 }] });
    check(
        &original,
        &json!({ "merged": [{ "name": "a", "n": 3 }, { "name": "a", "tags": ["t"] }] }),
        &json!({ "merged": [{ "name": "a", "n": 3, "tags": ["t"] }, { "name": "a", "n": 2 }, { "name": "b" }] }),
    );
    check(
        &original,
        &json!({ "merged": [{ "name": "a", "$patch": "delete" }, { "name": "a", "n": 4 }] }),
        &json!({ "merged": [{ "name": "a", "n": 4 }, { "name": "b" }] }),
    );
}

/// Some values of a type, with directives and nulls among them.
fn patches(of: &Type) -> BoxedStrategy<Value> {
    let fields = |fields: &[(&'static str, Type)], item: bool| -> BoxedStrategy<Value> {
        let entries: Vec<_> = fields.iter().map(|(name, field)| entry(name, field)).collect();
        let directive = proptest::option::weighted(0.15, select(&["replace", "delete", "merge"][..]));
        let retain = proptest::option::weighted(0.1, Just(json!(["u", "v", "p", "name"])));
        (entries, directive, retain)
            .prop_map(move |(entries, directive, retain)| {
                let mut map: serde_json::Map<String, Value> = entries.into_iter().flatten().collect();
                map.extend(directive.map(|directive| ("$patch".to_owned(), directive.into())));
                if !item {
                    map.extend(retain.map(|keys| ("$retainKeys".to_owned(), keys)));
                }
                Value::Object(map)
            })
            .boxed()
    };
    match of {
        Type::Struct(all) | Type::AtomicStruct(all) => fields(all, false),
        Type::Merged(all) => {
            let name = select(&["a", "b", "c", "d"][..]);
            let item = (fields(all, true), name).prop_map(|(mut item, name)| {
                item["name"] = name.into();
                item
            });
            prop::collection::vec(item, 0..4).prop_map(Value::from).boxed()
        }
        other => other.values(),
    }
}

/// The entries of a patch that concern one field.
fn entry(name: &'static str, of: &Type) -> BoxedStrategy<Vec<(String, Value)>> {
    let value = prop_oneof![3 => patches(of).prop_map(Some), 1 => Just(Some(Value::Null)), 3 => Just(None)];
    let order = match of {
        Type::Set(item) => {
            proptest::option::weighted(0.3, prop::collection::vec(item.values(), 0..4).prop_map(Value::from)).boxed()
        }
        Type::Merged(_) => {
            let names = prop::collection::vec(select(&["a", "b", "c", "d"][..]), 0..4);
            let items =
                names.prop_map(|names| names.into_iter().map(|name| json!({ "name": name })).collect::<Value>());
            proptest::option::weighted(0.3, items).boxed()
        }
        _ => Just(None).boxed(),
    };
    let deletes = match of {
        Type::Set(item) => {
            proptest::option::weighted(0.3, prop::collection::vec(item.values(), 0..3).prop_map(Value::from)).boxed()
        }
        _ => Just(None).boxed(),
    };
    (value, order, deletes)
        .prop_map(move |(value, order, deletes)| {
            // Without an order, which of the two comes first is up to chance upstream.
            let deletes = deletes.filter(|_| value.is_none() || order.is_some());
            let entry = |key: String, value: Option<Value>| value.map(|value| (key, value));
            [
                entry(name.to_owned(), value),
                entry(format!("$setElementOrder/{name}"), order),
                entry(format!("$deleteFromPrimitiveList/{name}"), deletes),
            ]
            .into_iter()
            .flatten()
            .collect()
        })
        .boxed()
}

#[test]
fn patches_are_merged_as_upstream_does() {
    let Some(oracle) = Oracle::start() else { return };
    let oracle = RefCell::new(oracle);
    let cases = types().prop_flat_map(|spec| {
        let pairs = prop::collection::vec((metadata(), spec.values(), metadata(), patches(&spec)), 16);
        (Just(spec), pairs)
    });
    let result = runner(256).run(&cases, |(spec, pairs)| {
        let definition = definition(&spec);
        oracle.borrow_mut().define("main", &components(&definition), "", &json!([["status"]]));
        for (old_metadata, old, new_metadata, new) in pairs {
            let mut live = empty();
            (live["metadata"], live["spec"]) = (old_metadata, old);
            let patch = json!({ "metadata": new_metadata, "spec": new });
            let question = json!({ "kind": "main", "verb": "strategic", "live": live, "new": patch });
            let answer = oracle.borrow_mut().ask(&question);
            let map = |value: &Value| value.as_object().expect("a map").clone();
            let ours = merge(map(&live), map(&patch), Lookup::of_object(&definition.schema));
            match (&ours, answer["error"].as_str()) {
                (Ok(ours), None) => prop_assert_eq!(&Value::Object(ours.clone()), &answer["object"], "{}", question),
                // Which of several faults is found first is up to the order of a map.
                (Err(_), Some(_)) => {}
                // Where nothing is known, upstream gives up.
                (Ok(_), Some(error)) if error.starts_with("unable to find api field") => {}
                _ => return Err(TestCaseError::fail(format!("{question}\nours {ours:?}\ntheirs {answer}"))),
            }
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}
