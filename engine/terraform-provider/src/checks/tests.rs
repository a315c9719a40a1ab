//! Plans and results that break a promise, and those that do not.

use super::*;
use crate::schema::tests::{block, nested, nested_block};
use crate::schema::{Attribute, Nesting, Schema};
use crate::value::{Json, Type, Value};

fn schema() -> Schema {
    let string = || Attribute::optional(Type::String);
    let object = [("a", string()), ("b", Attribute::computed(Type::String))];
    Schema {
        version: 0,
        block: block(
            &[
                ("id", Attribute::computed(Type::String)),
                ("name", string()),
                ("size", Attribute { computed: true, ..string() }),
                ("secret", Attribute { write_only: true, ..string() }),
                ("tags", Attribute::optional(Type::set(Type::String))),
                ("list", nested(Nesting::List, &object)),
                ("set", nested(Nesting::Set, &object)),
            ],
            &[("rule", nested_block(Nesting::Set, block(&object, &[])))],
        ),
    }
}

/// A value from JSON; `"?"` is unknown, and what is missing is null or empty.
fn value(text: &str) -> Value {
    fn unknown(value: Value) -> Value {
        match value {
            Value::String(text) if text == "?" => Value::Unknown,
            Value::Tuple(it) => Value::Tuple(it.into_iter().map(unknown).collect()),
            Value::Object(it) => Value::object(it.into_iter().map(|(name, it)| (name, unknown(it)))),
            value => value,
        }
    }
    let mut schema = schema();
    for attribute in schema.block.attributes.values_mut() {
        attribute.optional = true;
        if let crate::schema::AttributeForm::Nested(nested) = &mut attribute.form {
            nested.attributes.values_mut().for_each(|it| it.optional = true);
        }
    }
    for nested in schema.block.blocks.values_mut() {
        nested.block.attributes.values_mut().for_each(|it| it.optional = true);
    }
    schema.configuration(unknown(Value::from_json(Json::parse(text.as_bytes()).unwrap()))).unwrap()
}

fn plan_faults(prior: &Value, config: &str, planned: &Value, legacy: bool) -> String {
    let config = if config == "null" { Value::Null } else { value(config) };
    let values = planned::Planned { prior, config: &config, planned };
    planned::check(&schema(), values, legacy).to_string()
}

#[track_caller]
fn check_plan(prior: &str, config: &str, planned: &str, expected: &str) {
    let prior = if prior == "null" { Value::Null } else { value(prior) };
    let planned = if planned == "null" { Value::Null } else { value(planned) };
    assert_eq!(plan_faults(&prior, config, &planned, false), expected);
}

#[test]
fn plans_are_configured_prior_or_computed() {
    check_plan("null", r#"{"name":"n"}"#, r#"{"id":"?","name":"n","size":"?"}"#, "");
    check_plan(r#"{"name":"N"}"#, r#"{"name":"n"}"#, r#"{"name":"N"}"#, "");
    check_plan("null", r#"{"secret":"s"}"#, "{}", "");
    check_plan("null", r#"{"size":"?"}"#, r#"{"size":"?"}"#, "");
    let list = r#"{"list":[{"a":"1"}],"set":[{"a":"1"},{"a":"2"}],"rule":[{"a":"1"}]}"#;
    check_plan(
        "null",
        list,
        r#"{"list":[{"a":"1","b":"?"}],"set":[{"a":"2","b":"?"},{"a":"1","b":"B"}],"rule":[{"a":"1","b":"?"}]}"#,
        "",
    );
    check_plan(r#"{"name":"n"}"#, "null", "null", "");
}

#[test]
fn plans_that_differ_from_configuration_have_faults() {
    let not_configured = "the plan differs from the configuration, and the provider may not choose the value";
    check_plan("null", r#"{"name":"n"}"#, r#"{"name":"m"}"#, &format!("name: {not_configured}"));
    check_plan("null", r#"{"name":"n"}"#, r#"{"name":"?"}"#, &format!("name: {not_configured}"));
    check_plan(r#"{"name":"n"}"#, "{}", r#"{"name":"n"}"#, &format!("name: {not_configured}"));
    check_plan("null", r#"{"size":"1"}"#, r#"{"size":"2"}"#, &format!("size: {not_configured}"));
    check_plan("null", r#"{"secret":"s"}"#, r#"{"secret":"s"}"#, "secret: a write-only value is not null");
    check_plan("null", r#"{"list":[{"a":"1"}]}"#, r#"{"list":[{"a":"2"}]}"#, &format!("list[0].a: {not_configured}"));
    check_plan("null", r#"{"list":[]}"#, r#"{"list":[{}]}"#, "list: the plan has 1 elements, and the configuration 0");
    check_plan("null", r#"{"set":[{"a":"1"}]}"#, r#"{"set":[{"a":"2"}]}"#, &format!("set: {not_configured}"));
    check_plan("null", r#"{"rule":[{"a":"1"}]}"#, "{}", "rule: the plan has 0 elements, and the configuration 1");
    check_plan(r#"{"name":"n"}"#, "null", "{}", "the object is present, and should be absent");
    check_plan("null", "{}", "null", "the object is absent, and should be present");
}

#[test]
fn older_libraries_are_tolerated_except_for_types() {
    let planned = value(r#"{"name":"m"}"#);
    assert_eq!(plan_faults(&Value::Null, r#"{"name":"n"}"#, &planned, true), "");
    let config = value("{}");
    let values = planned::Planned { prior: &Value::Null, config: &config, planned: &planned };
    assert_eq!(planned::check(&schema(), values, true).tolerated.len(), 1);
    let mistyped = Value::object([("name", Value::Bool(true))]);
    assert_eq!(plan_faults(&Value::Null, "{}", &mistyped, true), "the value does not have the type of the schema");
}

#[track_caller]
fn check_applied(planned: &str, state: &str, expected: &str) {
    let of = |text: &str| if text == "null" { Value::Null } else { value(text) };
    assert_eq!(applied::check(&schema(), &of(planned), &of(state), false).to_string(), expected);
}

#[test]
fn results_have_known_values_and_any_for_unknown_ones() {
    check_applied(r#"{"id":"?","name":"n"}"#, r#"{"id":"1","name":"n"}"#, "");
    check_applied(r#"{"tags":"?"}"#, r#"{"tags":["a"]}"#, "");
    check_applied(r#"{"tags":["a","?","?"]}"#, r#"{"tags":["a","b"]}"#, "");
    check_applied(
        r#"{"rule":[{"a":"1","b":"?"},{"a":"2","b":"?"}]}"#,
        r#"{"rule":[{"a":"2","b":"x"},{"a":"1","b":"y"}]}"#,
        "",
    );
    check_applied("null", "null", "");
}

#[test]
fn results_that_differ_from_the_plan_have_faults() {
    let not_planned = "the value after the apply differs from the plan";
    check_applied(r#"{"name":"n"}"#, r#"{"name":"m"}"#, &format!("name: {not_planned}"));
    check_applied(r#"{"name":"n"}"#, "{}", &format!("name: {not_planned}"));
    check_applied(r#"{"tags":["a"]}"#, r#"{"tags":["a","b"]}"#, &format!("tags: {not_planned}"));
    check_applied(r#"{"tags":["?"]}"#, r#"{"tags":["a","b"]}"#, &format!("tags: {not_planned}"));
    check_applied(r#"{"list":[{"a":"1"}]}"#, r#"{"list":[]}"#, &format!("list: {not_planned}"));
    check_applied(r#"{"rule":[{"a":"1"}]}"#, r#"{"rule":[{"a":"2"}]}"#, &format!("rule: {not_planned}"));
    check_applied(r#"{"name":"n"}"#, "null", not_planned);
    check_applied(r#"{"id":"?"}"#, r#"{"id":"?","tags":null}"#, "id: the value is unknown after the apply");
    check_applied(
        "{}",
        r#"{"secret":"s"}"#,
        "secret: the value after the apply differs from the plan; secret: a write-only value is not null",
    );
}

#[test]
fn unknown_results_are_errors_of_older_libraries_too() {
    let (planned, state) = (value(r#"{"id":"?","name":"n"}"#), value(r#"{"id":"?","name":"m"}"#));
    let faults = applied::check(&schema(), &planned, &state, true);
    assert_eq!(faults.to_string(), "id: the value is unknown after the apply");
    assert_eq!(faults.tolerated.len(), 1);
    assert_eq!(state.without_unknowns(), value(r#"{"name":"m"}"#));
}

#[test]
fn only_paths_that_change_need_another_object() {
    let schema = schema();
    let of = |prior: &Value, planned: &Value, paths: &[Path]| Replacement::of(&schema, prior, planned, paths);
    let (prior, planned) = (value(r#"{"id":"1","name":"a","size":"s"}"#), value(r#"{"id":"?","name":"b","size":"s"}"#));
    let [id, name, size, secret] = ["id", "name", "size", "secret"].map(Path::attribute);
    let nowhere = Path::attribute("list").index(3).name("a");
    let all = [id.clone(), name.clone(), size, secret.clone()];
    assert_eq!(of(&prior, &planned, &all).paths, [id, name.clone(), secret]);
    assert_eq!(of(&Value::Null, &planned, &all), Replacement::default());
    assert_eq!(of(&prior, &planned, &[Path::attribute("other")]).faults.len(), 1);
    assert_eq!(of(&prior, &planned, &[nowhere]).faults.len(), 1);

    let replacement = of(&prior, &planned, &[name]);
    assert_eq!(Action::of(&prior, &planned, &replacement), Action::Replace);
    let none = Replacement::default();
    assert_eq!(Action::of(&prior, &planned, &none), Action::Update);
    assert_eq!(Action::of(&prior, &prior, &none), Action::NoOp);
    assert_eq!(Action::of(&Value::Null, &planned, &none), Action::Create);
    assert_eq!(Action::of(&prior, &Value::Null, &none), Action::Delete);
}
