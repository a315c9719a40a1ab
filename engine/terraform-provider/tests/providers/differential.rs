//! Actions and states of Terraform 1.11.4 itself, for sequences of configurations of our own providers.
//!
//! `tests/data/changes.json` has for each configuration the actions and the planned values that `terraform show -json`
//! prints of the plan, and the values that it prints after the apply. Each sequence is one object, which is refreshed
//! before each plan.

use stoa_terraform_provider::change::plan;
use stoa_terraform_provider::checks::Action;
use stoa_terraform_provider::value::convert::convert;
use stoa_terraform_provider::value::{Json, Number, Value};

use crate::support::{self, changed, refreshed};

const RECORDED: &str = include_str!("../data/changes.json");

#[track_caller]
fn member<'a>(json: &'a Json, name: &str) -> &'a Json {
    let Json::Object(members) = json else { panic!("{json}") };
    &members[name]
}

#[track_caller]
fn elements(json: &Json) -> &[Json] {
    let Json::Array(elements) = json else { panic!("{json}") };
    elements
}

#[track_caller]
fn string(json: &Json) -> &str {
    let Json::String(text) = json else { panic!("{json}") };
    text
}

/// The value with the shortest decimal for each float, which Terraform prints.
fn printed(value: &Value) -> Value {
    match value {
        Value::Number(number) if !number.is_integer() => match number.exact_f64() {
            Some(float) => Value::Number(float.to_string().parse::<Number>().unwrap()),
            None => value.clone(),
        },
        Value::Object(it) => Value::object(it.iter().map(|(name, it)| (name, printed(it)))),
        value => value.clone(),
    }
}

/// Whether a planned value is the printed one. An unknown part is `true` in `unknown`, and null or missing in `after`.
fn is_planned(value: &Value, after: &Json, unknown: &Json) -> bool {
    let of = |json: &Json, name: &str| match json {
        Json::Object(members) => members.get(name).cloned().unwrap_or(Json::Null),
        _ => Json::Null,
    };
    let at = |json: &Json, index: usize| match json {
        Json::Array(elements) => elements.get(index).cloned().unwrap_or(Json::Null),
        _ => Json::Null,
    };
    if matches!(unknown, Json::Bool(true)) {
        return value.is_unknown();
    }
    match (value.plain(), after) {
        (Value::Unknown, _) => false,
        (Value::Object(all) | Value::Map(all), Json::Object(members)) => {
            members.keys().all(|name| all.contains_key(name))
                && all.iter().all(|(name, it)| is_planned(it, &of(after, name), &of(unknown, name)))
        }
        (Value::List(all) | Value::Tuple(all), Json::Array(elements)) => {
            all.len() == elements.len()
                && all.iter().enumerate().all(|(index, it)| is_planned(it, &elements[index], &at(unknown, index)))
        }
        // Sets have orders of their own.
        (Value::Set(all), Json::Array(elements)) => {
            let is_any = |it| (0..elements.len()).any(|index| is_planned(it, &elements[index], &at(unknown, index)));
            all.len() == elements.len() && all.iter().all(is_any)
        }
        (value, after) => printed(value) == printed(&Value::from_json(after.clone())),
    }
}

#[tokio::test]
async fn plans_and_states_are_those_of_terraform() {
    let recorded = Json::parse(RECORDED.as_bytes()).unwrap();
    let mut count = 0;
    for sequence in elements(&recorded) {
        let (name, case) = (string(member(sequence, "provider")), string(member(sequence, "name")));
        let Some(provider) = support::start(name).await else { return };
        let resource = format!("{name}_thing");
        let schema = &provider.schemas().resources[&resource];
        let mut object = None;
        for (index, step) in elements(member(sequence, "steps")).iter().enumerate() {
            let at = format!("step {index} of {name} {case}");
            let config = schema.configuration(Value::from_json(member(step, "config").clone())).unwrap();
            let current = match &object {
                Some(object) => refreshed(&provider, &resource, object).await,
                None => None,
            };
            let planned = plan(&provider, &resource, current.clone(), &config, None).await.unwrap().planned;
            let expected = member(step, "planned");
            let (known, unknown) = (member(expected, "after"), member(expected, "after_unknown"));
            assert!(is_planned(&planned, known, unknown), "{at}: {planned:?}, not {expected}");
            let (action, after) = changed(&provider, &resource, current, &config).await;
            let actions: Vec<&str> = elements(member(step, "actions")).iter().map(string).collect();
            let expected = match actions[..] {
                ["create"] => Action::Create,
                ["update"] => Action::Update,
                ["delete", "create"] => Action::Replace,
                ["no-op"] => Action::NoOp,
                _ => panic!("{actions:?}"),
            };
            assert_eq!(action, expected, "{at}");
            let expected = Value::from_json(member(step, "state").clone());
            let expected = convert(expected, &schema.block.implied_type()).unwrap();
            let found = &after.as_ref().unwrap().state;
            assert_eq!(printed(found), expected, "{at}");
            object = after;
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}
