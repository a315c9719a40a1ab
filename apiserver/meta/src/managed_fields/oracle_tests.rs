//! Sequences of writes by several managers, to kinds of all shapes, compared with what Kubernetes' own libraries say.

use std::cell::RefCell;

use proptest::{prelude::*, sample::select};
use serde_json::{Map, Value, json};

use super::{ApplyOptions, FieldManagers, manager::FieldManager};
use crate::{
    definition::Target,
    object::Object,
    openapi::components,
    oracle::{Oracle, Type, definition, empty, metadata, runner, types},
};

/// When the writes begin, in seconds since 1970: long before the oracle's clock.
const START: i64 = 1_000_000_000;

/// How many kinds there are to be, and how many sequences of some eight writes of each: what it takes to make a kind known
/// to both is most of the time.
const KINDS: u32 = 256;
const SEQUENCES: usize = 8;

/// One write.
#[derive(Clone, Debug)]
struct Step {
    apply: bool,
    status: bool,
    manager: &'static str,
    force: bool,
    metadata: Value,
    spec: Value,
    /// What the write itself says of `managedFields`.
    entries: Option<Value>,
}

fn steps(spec: &Type) -> impl Strategy<Value = Vec<Step>> + use<> {
    let entries = prop_oneof![
        20 => Just(None),
        1 => Just(Some(json!([]))),
        1 => Just(Some(json!([{}]))),
        1 => Just(Some(json!([{ "operation": "no", "apiVersion": "x" }]))),
        1 => Just(Some(json!([{
            "manager": "m", "operation": "Update", "apiVersion": "test.dev/v1", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:p": { ".": {}, "f:u": {} }, "f:r": {} } },
        }]))),
    ];
    let manager = select(&["m", "n", "kubectl", "o"][..]);
    let step = (any::<bool>(), prop::bool::weighted(0.2), manager, any::<bool>(), metadata(), spec.values(), entries)
        .prop_map(|(apply, status, manager, force, metadata, spec, entries)| Step {
            apply,
            status,
            manager,
            force,
            metadata,
            spec,
            entries,
        });
    prop::collection::vec(step, 4..12)
}

/// The object after an update, its managers in it.
fn updated(manager: &FieldManager, live: Option<&Object>, mut new: Object, name: &str, now: i64) -> Object {
    let live = live.cloned().map(|mut live| (live.metadata_mut().remove("managedFields"), live));
    let written = new.metadata_mut().remove("managedFields");
    let before = live.as_ref().map(|(entries, live)| (live, entries.as_ref()));
    if let Some(entries) = manager.update(before, (&new, written.as_ref()), name, now) {
        new.metadata_mut().insert("managedFields".to_owned(), entries);
    }
    new
}

/// The object with empty structs where upstream always has them.
fn filled(mut object: Object) -> Object {
    for (name, value) in empty().as_object().expect("a map") {
        object.0.entry(name.clone()).or_insert_with(|| value.clone());
    }
    object
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(without_nulls);
        }
        _ => {}
    }
}

/// Replaces what the oracle's clock said by what ours did.
fn retimed(mut object: Value, now: i64) -> Value {
    let ours = jiff::Timestamp::from_second(now).expect("a time").to_string();
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        // The order of members is no part of it.
        if entry.get("time").and_then(Value::as_str).is_some_and(|time| time > "2020") {
            entry.insert("time".to_owned(), ours.clone().into());
        }
    }
    object
}

/// What a failure comes to: its code, message and causes, in an order that is always the same.
fn failure(message: &str, code: i64, causes: &Value) -> Value {
    let mut lines: Vec<&str> = message.split('\n').collect();
    lines.sort_unstable();
    let mut causes: Vec<String> = causes.as_array().into_iter().flatten().map(Value::to_string).collect();
    causes.sort_unstable();
    json!({ "lines": lines, "code": code, "causes": causes })
}

/// Makes writes to one kind, from nothing each time.
fn run(oracle: &mut Oracle, spec: &Type, sequences: &[Vec<Step>]) -> Result<(), TestCaseError> {
    let definition = definition(spec);
    let managers = FieldManagers::new(&definition);
    let schemas = components(&definition);
    oracle.define("main", &schemas, "", &json!([["status"]]));
    oracle.define("status", &schemas, "status", &json!([["metadata"], ["spec"]]));
    sequences.iter().try_for_each(|steps| write(oracle, &managers, steps))
}

fn write(oracle: &mut Oracle, managers: &FieldManagers, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut live: Option<Object> = None;
    for (index, step) in steps.iter().enumerate() {
        let now = START + i64::try_from(index).expect("few steps");
        let target = if step.status && live.is_some() { Target::Status } else { Target::Main };
        let mut object = Object(empty().as_object().expect("a map").clone());
        if step.apply {
            object.0.retain(|field, _| ["apiVersion", "kind"].contains(&field.as_str()));
        }
        object.0.insert("spec".to_owned(), step.spec.clone());
        if target == Target::Status {
            object.0.insert("status".to_owned(), step.spec.clone());
        }
        object.0.insert("metadata".to_owned(), step.metadata.clone());
        object.metadata_mut().insert("name".to_owned(), "x".into());
        if let (Some(entries), false) = (&step.entries, step.apply) {
            object.metadata_mut().insert("managedFields".to_owned(), entries.clone());
        }
        if let (Some(live), false) = (&live, step.apply) {
            object.metadata_mut().insert("uid".to_owned(), "1".into());
            if target == Target::Status {
                object.0.insert("spec".to_owned(), live.0["spec"].clone());
            }
        }
        let answer = oracle.ask(&json!({
            "kind": if target == Target::Status { "status" } else { "main" },
            "verb": if step.apply { "apply" } else { "update" },
            "live": live.as_ref().map_or_else(empty, |live| Value::Object(live.0.clone())),
            "new": object.0,
            "manager": step.manager,
            "force": step.force,
        }));
        let manager = managers.of(target);
        let result = if step.apply {
            let options = ApplyOptions { manager: step.manager, force: step.force, previous: None, now };
            let current = live.clone().unwrap_or_else(|| filled(Object::default()));
            manager.apply(Some(&current), &object, options)
        } else {
            Ok(updated(manager, live.as_ref(), object, step.manager, now))
        };
        let context = format!("step {index}: {step:?}\nlive {}", json!(live.as_ref().map(|live| &live.0)));
        match result {
            Err(error) => {
                let causes = json!(error.0.details.as_ref().and_then(|details| details.causes.clone()));
                let ours = failure(error.message(), i64::from(error.code()), &causes);
                let status = &answer["status"];
                let theirs = match status {
                    Value::Null => failure(answer["error"].as_str().unwrap_or(""), 500, &Value::Null),
                    status => failure(
                        status["message"].as_str().unwrap_or(""),
                        status["code"].as_i64().unwrap_or(0),
                        &status["details"]["causes"],
                    ),
                };
                prop_assert_eq!(ours, theirs, "{}", context);
            }
            Ok(object) => {
                // An update that fails upstream leaves nobody owning anything, and so does ours.
                let theirs = match answer["error"].as_str() {
                    Some(_) if !step.apply => {
                        object.0.get("metadata").map_or(Value::Null, |m| prop_null(m.get("managedFields")))
                    }
                    Some(error) => return Err(TestCaseError::fail(format!("{error}\n{context}"))),
                    None => retimed(answer["object"].clone(), now),
                };
                let ours = if answer["error"].is_null() { Value::Object(object.0.clone()) } else { Value::Null };
                prop_assert_eq!(&ours, &theirs, "{}\nours   {}\ntheirs {}", context, ours, theirs);
                let mut next = Value::Object(object.0);
                without_nulls(&mut next);
                let Value::Object(next) = next else { unreachable!("it was a map") };
                let mut next = filled(Object(next));
                next.metadata_mut().insert("uid".to_owned(), "1".into());
                live = Some(next);
            }
        }
    }
    Ok(())
}

/// Absent is null.
fn prop_null(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_default()
}

#[test]
fn writes_are_tracked_and_merged_as_upstream_does() {
    let Some(oracle) = Oracle::start() else { return };
    let oracle = RefCell::new(oracle);
    let cases = types().prop_flat_map(|spec| {
        let sequences = prop::collection::vec(steps(&spec), SEQUENCES);
        (Just(spec), sequences)
    });
    runner(KINDS)
        .run(&cases, |(spec, sequences)| run(&mut oracle.borrow_mut(), &spec, &sequences))
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn oldest_updates_become_one_as_upstream_does() {
    let Some(mut oracle) = Oracle::start() else { return };
    let definition = definition(&Type::Struct(vec![("p", Type::MapOf(Box::new(Type::Count)))]));
    let managers = FieldManagers::new(&definition);
    oracle.define("main", &components(&definition), "", &json!([["status"]]));
    let mut live = filled(Object::default());
    for step in 0..40 {
        let mut object = live.clone();
        object.metadata_mut().insert("uid".to_owned(), "1".into());
        object.0["spec"] = json!({ "p": { (step % 14).to_string(): step } });
        let manager = format!("m{}", step % 14);
        let answer = oracle.ask(&json!({
            "kind": "main", "verb": "update", "live": live.0, "new": object.0, "manager": manager,
        }));
        // Some seconds are shared, so that names decide.
        let now = START + step / 3;
        let object = updated(managers.of(Target::Main), Some(&live), object, &manager, now);
        assert_eq!(Value::Object(object.0.clone()), retimed(answer["object"].clone(), now), "step {step}");
        live = object;
    }
}

#[test]
fn apply_rejects_mismatched_types_like_upstream() {
    let Some(mut oracle) = Oracle::start() else { return };
    let spec = Type::Struct(vec![
        ("t", Type::Text),
        ("c", Type::Count),
        ("f", Type::Flag),
        ("s", Type::Set(Box::new(Type::Text))),
        ("k", Type::Keyed(vec![])),
        ("m", Type::MapOf(Box::new(Type::Text))),
        ("l", Type::AtomicList(Box::new(Type::Count))),
    ]);
    let definition = definition(&spec);
    let managers = FieldManagers::new(&definition);
    oracle.define("main", &components(&definition), "", &json!([["status"]]));
    let live = filled(Object::default());
    for (field, value) in [
        ("t", json!(1)),
        ("t", json!({ "a": [1, "x"] })),
        ("t", json!([true])),
        ("c", json!("1")),
        ("c", json!({})),
        ("f", json!("yes")),
        ("f", json!({ "a": 1 })),
        ("s", json!("a")),
        ("s", json!([[]])),
        ("s", json!([{}])),
        ("s", json!([null])),
        ("s", json!(["a", "a"])),
        ("k", json!([null])),
        ("k", json!(["a"])),
        ("k", json!([{ "name": "a" }, { "name": "a", "port": 80 }])),
        ("k", json!([{ "name": "a", "x": 1 }])),
        ("m", json!([1])),
        ("m", json!({ "a": 1 })),
        ("l", json!([1, "x", 2])),
        ("unknown", json!(1)),
    ] {
        let object = json!({
            "apiVersion": "test.dev/v1", "kind": "Thing", "metadata": { "name": "x", "namespace": "n" },
            "spec": Map::from_iter([(field.to_owned(), value.clone())]),
        });
        let answer = oracle.ask(&json!({
            "kind": "main", "verb": "apply", "live": live.0, "new": object, "manager": "m",
        }));
        let object = Object(object.as_object().expect("a map").clone());
        let options = ApplyOptions { manager: "m", force: false, previous: None, now: START };
        let error = managers.of(Target::Main).apply(Some(&live), &object, options).expect_err("it does not fit");
        assert_eq!(json!(error.message()), answer["error"], "{field}: {value}");
        assert_eq!((error.code(), error.reason()), (500, ""));
    }
}
