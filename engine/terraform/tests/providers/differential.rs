//! Plans and states of Terraform 1.11.4 itself, for sequences of configurations, through the whole engine.
//!
//! The recording of the provider's client has for each configuration the actions of `terraform plan` and the values of
//! `terraform show -json` after the apply. Each sequence is one resource.

use serde_json::{Map, Value, json};
use stoa_engine::Action;

use crate::support::{Deployment, action, id, resource, spec};

const RECORDED: &str = include_str!("../../../terraform-provider/tests/data/changes.json");

/// A value without the differences of the two printed forms: Terraform leaves out the types of dynamic values, and
/// prints a float with its shortest decimal.
fn printed(value: &Value) -> Value {
    match value {
        Value::Object(it) if it.len() == 2 && it.contains_key("type") && it.contains_key("value") => {
            printed(&it["value"])
        }
        Value::Object(it) => Value::Object(it.iter().map(|(key, it)| (key.clone(), printed(it))).collect()),
        // Sets have orders of their own.
        Value::Array(it) => {
            let mut all: Vec<Value> = it.iter().map(printed).collect();
            all.sort_by_key(Value::to_string);
            all.into()
        }
        Value::Number(it) => it.as_f64().into(),
        value => value.clone(),
    }
}

#[tokio::test]
async fn plans_and_states_are_those_of_terraform() {
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    let mut count = 0;
    for sequence in recorded {
        let (provider, case) = (sequence["provider"].as_str().unwrap(), sequence["name"].as_str().unwrap());
        let provider = if provider == "frame" { "frame" } else { "legacy" };
        let Some(deployment) = Deployment::without_folder(&[provider]) else { return };
        let kind = format!("{provider}_thing");
        let id = id(&kind, "a");
        for (index, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
            let at = format!("step {index} of {provider} {case}");
            let wanted = spec(vec![resource(&kind, "a", step["config"].clone())]);
            let planned = deployment.plan(&wanted).await;
            let expected = match &step["actions"] {
                it if *it == json!(["create"]) => Action::Create,
                it if *it == json!(["update"]) => Action::Update,
                it if *it == json!(["delete", "create"]) => Action::Replace,
                it if *it == json!(["no-op"]) => Action::Unchanged,
                other => panic!("{other}"),
            };
            let found = action(&planned, &id);
            assert_eq!(found.action, expected, "{at}: {}", planned.table);
            let before = deployment.attributes(&id);
            let outcome = deployment.execute(&wanted, &planned).await;
            assert!(outcome.succeeded, "{at}: {:?}", outcome.problems);
            let after = deployment.attributes(&id).unwrap();
            assert_eq!(printed(&Value::Object(after.clone())), printed(&step["state"]), "{at}");
            check_shown(&planned.plan.actions[0].changes, before.unwrap_or_default(), &after, &at);
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

/// Each attribute that differs after the apply is in the plan.
fn check_shown(changes: &[stoa_engine::FieldChange], before: Map<String, Value>, after: &Map<String, Value>, at: &str) {
    for (name, value) in after {
        let had = before.get(name).unwrap_or(&Value::Null);
        let is_empty = |value: &Value| value.is_null() || *value == json!([]) || *value == json!({});
        if printed(had) == printed(value) || is_empty(had) && is_empty(value) {
            continue;
        }
        let is_shown = changes.iter().any(|change| change.path.strip_prefix(name.as_str()).is_some());
        assert!(is_shown, "{at}: {name} is not in the plan: {changes:?}");
    }
}
