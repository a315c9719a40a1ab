//! `metav1.LabelSelector`, the form of selectors in configurations.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use serde_json::Value;
use stoa_meta::{object::Object, selector::LabelSelector};

/// The selector that a structured one means; none selects everything.
pub(super) fn parse(selector: Option<&v1::LabelSelector>) -> Result<LabelSelector, String> {
    selector.map_or_else(|| Ok(LabelSelector::default()), LabelSelector::structured)
}

pub(super) fn matches_object(selector: &LabelSelector, object: &Object) -> bool {
    let labels = object.metadata().and_then(|metadata| metadata.get("labels"));
    selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
}

/// Whether the object of a write has the labels that are selected, as it is to be or as it was.
pub(super) fn matches_either(selector: &LabelSelector, object: Option<&Object>, old: Option<&Object>) -> bool {
    selector.is_empty() || [object, old].into_iter().flatten().any(|object| matches_object(selector, object))
}

pub(super) fn matches_labels(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(selector: Value, labels: &[(&str, &str)], expected: Result<bool, &str>) {
        let selector: v1::LabelSelector = serde_json::from_value(selector).unwrap();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let found = parse(Some(&selector)).map(|selector| matches_labels(&selector, &labels));
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn all_operators_are_understood() {
        let expression = |operator: &str| {
            json!({"matchExpressions": [{"key": "env", "operator": operator, "values": if operator.ends_with("In") {
                json!(["prod", "test"])
            } else {
                json!([])
            }}]})
        };
        check(json!({}), &[], Ok(true));
        check(json!({"matchLabels": {"a": "b"}}), &[("a", "b")], Ok(true));
        check(json!({"matchLabels": {"a": "b"}}), &[("a", "c")], Ok(false));
        check(expression("In"), &[("env", "prod")], Ok(true));
        check(expression("In"), &[], Ok(false));
        check(expression("NotIn"), &[("env", "test")], Ok(false));
        check(expression("NotIn"), &[], Ok(true));
        check(expression("Exists"), &[("env", "")], Ok(true));
        check(expression("DoesNotExist"), &[("env", "")], Ok(false));
        check(expression("Near"), &[], Err("\"Near\" is not a valid label selector operator"));
    }
}
