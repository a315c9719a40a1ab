//! The selectors of a resource in a review: their validation, and their text for authorizers.
//!
//! Follows `validateResourceAttributes` in `pkg/apis/authorization/validation` of `k8s.io/kubernetes`, and
//! `ResourceAttributesFrom` in its `pkg/registry/authorization/util`.

use k8s_openapi::{
    api::authorization::v1::ResourceAttributes,
    apimachinery::pkg::apis::meta::v1::{FieldSelectorRequirement, LabelSelectorRequirement},
};
use stoa_meta::{
    content,
    selector::{FieldSelector, LabelSelector},
    status::{FieldError, FieldErrors},
};

const ATTRIBUTES: &str = "spec.resourceAttributes";

/// Finds what is wrong with selectors. Operators that nobody knows are left to [`Selectors::read`].
pub(super) fn check(resource: &ResourceAttributes, errors: &mut FieldErrors) {
    if let Some(selector) = &resource.field_selector {
        let path = format!("{ATTRIBUTES}.fieldSelector");
        let requirements = selector.requirements.as_deref().unwrap_or_default();
        check_forms(&path, selector.raw_selector.as_deref(), requirements.len(), errors);
        for (index, requirement) in requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{index}]");
            let FieldSelectorRequirement { key, operator, values } = requirement;
            if key.is_empty() {
                errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
            }
            check_values(&path, operator, values.as_deref().unwrap_or_default(), errors);
        }
    }
    if let Some(selector) = &resource.label_selector {
        let path = format!("{ATTRIBUTES}.labelSelector");
        let requirements = selector.requirements.as_deref().unwrap_or_default();
        check_forms(&path, selector.raw_selector.as_deref(), requirements.len(), errors);
        for (index, requirement) in requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{index}]");
            let LabelSelectorRequirement { key, operator, values } = requirement;
            let values = values.as_deref().unwrap_or_default();
            check_values(&path, operator, values, errors);
            let invalid = |text: &String| FieldError::invalid(format!("{path}.key"), key, text);
            errors.extend(content::label_key(key).iter().map(invalid));
            for (index, value) in values.iter().enumerate() {
                let invalid = |text: &String| FieldError::invalid(format!("{path}.values[{index}]"), value, text);
                errors.extend(content::label_value(value).iter().map(invalid));
            }
        }
    }
}

/// A selector comes as text or as requirements.
fn check_forms(path: &str, raw: Option<&str>, requirements: usize, errors: &mut FieldErrors) {
    let raw = raw.unwrap_or("");
    match (raw.is_empty(), requirements == 0) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(format!("{path}.rawSelector"), raw, detail));
        }
        (true, true) => {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(format!("{path}.requirements"), detail));
        }
        (true, false) | (false, true) => {}
    }
}

fn check_values(path: &str, operator: &str, values: &[String], errors: &mut FieldErrors) {
    let field = || format!("{path}.values");
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(field(), "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(field(), detail));
        }
        _ => {}
    }
}

/// Selectors as an authorizer takes them.
///
/// All of a selector has to hold, so that leaving out what is not understood asks for more, and is safe.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selectors {
    pub(super) fields: String,
    pub(super) labels: String,
    /// What was left out, for `evaluationError`.
    pub(super) ignored: Vec<String>,
}

impl Selectors {
    /// Reads the selectors of attributes that passed [`check`].
    pub(super) fn read(resource: &ResourceAttributes) -> Self {
        let mut selectors = Self::default();
        if let Some(selector) = &resource.field_selector {
            let terms = selector.requirements.iter().flatten().map(field_term);
            let parses = |raw: &str| FieldSelector::is_well_formed(raw);
            selectors.fields = selectors.text("fieldSelector", selector.raw_selector.as_deref(), parses, terms);
        }
        if let Some(selector) = &resource.label_selector {
            let terms = selector.requirements.iter().flatten().map(label_term);
            let parses = |raw: &str| LabelSelector::parse(raw).is_ok();
            selectors.labels = selectors.text("labelSelector", selector.raw_selector.as_deref(), parses, terms);
        }
        selectors
    }

    /// The text of a selector: as it was sent, or that of its terms.
    fn text(
        &mut self,
        name: &str,
        raw: Option<&str>,
        parses: impl Fn(&str) -> bool,
        terms: impl Iterator<Item = Option<String>>,
    ) -> String {
        let raw = raw.unwrap_or("");
        if !raw.is_empty() && parses(raw) {
            return raw.to_owned();
        }
        let all: Vec<Option<String>> = terms.collect();
        let known: Vec<&str> = all.iter().flatten().map(String::as_str).collect();
        if !raw.is_empty() || known.len() < all.len() {
            let partially = if known.is_empty() { "" } else { "partially " };
            self.ignored.push(format!("{ATTRIBUTES}.{name} {partially}ignored due to parse error"));
        }
        known.join(",")
    }
}

/// A requirement as field selectors have it, which know one value at a time; nothing for others.
fn field_term(requirement: &FieldSelectorRequirement) -> Option<String> {
    let operator = match requirement.operator.as_str() {
        "In" => "=",
        "NotIn" => "!=",
        _ => return None,
    };
    // The text of a selector has no way to say such names.
    let is_name = !requirement.key.contains(['=', '!', ',', '\\']);
    match requirement.values.as_deref().unwrap_or_default() {
        [value] if is_name => {
            let value = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            Some(format!("{}{operator}{value}", requirement.key))
        }
        _ => None,
    }
}

/// A requirement as label selectors have it; nothing where the operator is unknown.
fn label_term(requirement: &LabelSelectorRequirement) -> Option<String> {
    let (key, values) = (&requirement.key, requirement.values.as_deref().unwrap_or_default().join(","));
    match requirement.operator.as_str() {
        "In" => Some(format!("{key} in ({values})")),
        "NotIn" => Some(format!("{key} notin ({values})")),
        "Exists" => Some(key.clone()),
        "DoesNotExist" => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn attributes(value: Value) -> ResourceAttributes {
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn wrong(value: Value, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        check(&attributes(value), &mut errors);
        let found: Vec<String> = errors.into_vec().iter().map(|e| format!("{}: {}", e.field, e.message)).collect();
        assert_eq!(found, expected);
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({ "key": key, "operator": operator, "values": values })
    }

    #[test]
    fn a_selector_is_text_or_requirements() {
        let both = json!({ "rawSelector": "a=b", "requirements": [requirement("a", "In", &["b"])] });
        wrong(
            json!({ "fieldSelector": both, "labelSelector": {} }),
            &[
                "spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: \"a=b\": may not specified at the same \
                 time as requirements",
                "spec.resourceAttributes.labelSelector.requirements: Required value: when \
                 spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
            ],
        );
        wrong(json!({ "fieldSelector": { "rawSelector": "a=b" }, "labelSelector": { "rawSelector": "!" } }), &[]);
    }

    #[test]
    fn requirements_have_a_key_and_the_values_of_their_operator() {
        let fields = [requirement("", "In", &[]), requirement("a", "Exists", &["b"]), requirement("a", "Near", &["b"])];
        wrong(
            json!({ "fieldSelector": { "requirements": fields } }),
            &[
                "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified",
                "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: must be specified when \
                 `operator` is 'In' or 'NotIn'",
                "spec.resourceAttributes.fieldSelector.requirements[1].values: Forbidden: may not be specified when \
                 `operator` is 'Exists' or 'DoesNotExist'",
            ],
        );
        let mut errors = FieldErrors::default();
        let labels = [requirement("-", "NotIn", &[]), requirement("a", "In", &["b", "-"])];
        check(&attributes(json!({ "labelSelector": { "requirements": labels } })), &mut errors);
        let found: Vec<String> = errors.into_vec().into_iter().map(|error| error.field).collect();
        let path = "spec.resourceAttributes.labelSelector.requirements";
        assert_eq!(found, ["[0].values", "[0].key", "[1].values[1]"].map(|rest| format!("{path}{rest}")));
    }

    #[track_caller]
    fn read(value: Value, fields: &str, labels: &str, ignored: &[&str]) {
        let found = Selectors::read(&attributes(value));
        assert_eq!((found.fields.as_str(), found.labels.as_str()), (fields, labels));
        assert_eq!(found.ignored, ignored);
    }

    #[test]
    fn requirements_become_the_text_of_a_selector() {
        let fields = [requirement("spec.a", "In", &["x,y"]), requirement("spec.b", "NotIn", &["z"])];
        let labels = [
            requirement("a", "In", &["x", "y"]),
            requirement("b", "NotIn", &["z"]),
            requirement("c", "Exists", &[]),
            requirement("d", "DoesNotExist", &[]),
        ];
        read(
            json!({ "fieldSelector": { "requirements": fields }, "labelSelector": { "requirements": labels } }),
            r"spec.a=x\,y,spec.b!=z",
            "a in (x,y),b notin (z),c,!d",
            &[],
        );
        LabelSelector::parse("a in (x,y),b notin (z),c,!d").unwrap();
    }

    #[test]
    fn what_is_not_understood_is_left_out_and_told() {
        let ignored = "spec.resourceAttributes.fieldSelector ignored due to parse error";
        read(json!({ "fieldSelector": { "rawSelector": "a" } }), "", "", &[ignored]);
        read(json!({ "fieldSelector": { "requirements": [requirement("a=b,c", "In", &["d"])] } }), "", "", &[ignored]);
        read(json!({ "fieldSelector": { "requirements": [requirement("a", "In", &["b", "c"])] } }), "", "", &[ignored]);
        let labels = [requirement("a", "Near", &["x"]), requirement("b", "Exists", &[])];
        read(
            json!({ "labelSelector": { "requirements": labels } }),
            "",
            "b",
            &["spec.resourceAttributes.labelSelector partially ignored due to parse error"],
        );
        read(
            json!({ "fieldSelector": { "rawSelector": "a=b" }, "labelSelector": { "rawSelector": "a in" } }),
            "a=b",
            "",
            &["spec.resourceAttributes.labelSelector ignored due to parse error"],
        );
    }
}
