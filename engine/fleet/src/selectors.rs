//! Label selectors of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::objects::Labels;

/// A selector by labels. The empty one matches everything.
///
/// Follows `LabelSelectorAsSelector` of `k8s.io/apimachinery/pkg/apis/meta/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

/// A selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator is unknown.
    #[error("matchExpressions[{at}].operator: {operator:?} is unknown; use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// The position of the expression.
        at: usize,
        /// The operator.
        operator: String,
    },
    /// `In` and `NotIn` need values.
    #[error("matchExpressions[{at}].values: the operator {operator} needs at least one value")]
    NoValues {
        /// The position of the expression.
        at: usize,
        /// The operator.
        operator: String,
    },
    /// `Exists` and `DoesNotExist` take no values.
    #[error("matchExpressions[{at}].values: the operator {operator} takes no values")]
    Values {
        /// The position of the expression.
        at: usize,
        /// The operator.
        operator: String,
    },
    /// A key is empty.
    #[error("matchExpressions[{at}].key: the key is empty")]
    NoKey {
        /// The position of the expression.
        at: usize,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    match_labels: Option<BTreeMap<String, String>>,
    match_expressions: Option<Vec<Expression>>,
}

#[derive(Deserialize)]
struct Expression {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

impl TryFrom<Written> for Selector {
    type Error = SelectorError;

    fn try_from(written: Written) -> Result<Self, SelectorError> {
        let labels = written.match_labels.unwrap_or_default();
        let mut requirements: Vec<Requirement> = labels
            .into_iter()
            .map(|(key, value)| Requirement { key, condition: Condition::In([value].into()) })
            .collect();
        for (at, Expression { key, operator, values }) in
            written.match_expressions.unwrap_or_default().into_iter().enumerate()
        {
            let values: BTreeSet<String> = values.unwrap_or_default().into_iter().collect();
            if key.is_empty() {
                return Err(SelectorError::NoKey { at });
            }
            let condition = match (operator.as_str(), values.is_empty()) {
                ("In" | "NotIn", true) => return Err(SelectorError::NoValues { at, operator }),
                ("Exists" | "DoesNotExist", false) => return Err(SelectorError::Values { at, operator }),
                ("In", false) => Condition::In(values),
                ("NotIn", false) => Condition::NotIn(values),
                ("Exists", true) => Condition::Exists,
                ("DoesNotExist", true) => Condition::DoesNotExist,
                _ => return Err(SelectorError::Operator { at, operator }),
            };
            requirements.push(Requirement { key, condition });
        }
        Ok(Self(requirements))
    }
}

impl Selector {
    /// Whether the selector matches an object with these labels.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.condition.holds(labels.get(&requirement.key)))
    }
}

impl Condition {
    fn holds(&self, value: Option<&String>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            // A missing label is not one of the values either.
            Self::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn selector(written: &Value) -> Result<Selector, String> {
        serde_json::from_value(written.clone()).map_err(|error| error.to_string())
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_operator_means_what_kubernetes_says() {
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        for (written, with_1, with_2, without) in [
            (json!({}), true, true, true),
            (json!({"matchLabels": null, "matchExpressions": null}), true, true, true),
            (json!({"matchLabels": {"a": "1"}}), true, false, false),
            (expression("In", &["1", "3"]), true, false, false),
            (expression("NotIn", &["1", "3"]), false, true, true),
            (expression("Exists", &[]), true, true, false),
            (expression("DoesNotExist", &[]), false, false, true),
        ] {
            let selector = selector(&written).unwrap();
            let found =
                [labels(&[("a", "1")]), labels(&[("a", "2")]), labels(&[("b", "1")])].map(|it| selector.matches(&it));
            assert_eq!(found, [with_1, with_2, without], "{written}");
        }
    }

    #[test]
    fn invalid_selectors_name_the_field() {
        for (operator, values, expected) in [
            (
                "Gt",
                json!(["1"]),
                "matchExpressions[0].operator: \"Gt\" is unknown; use In, NotIn, Exists or DoesNotExist",
            ),
            ("In", json!([]), "matchExpressions[0].values: the operator In needs at least one value"),
            ("NotIn", json!(null), "matchExpressions[0].values: the operator NotIn needs at least one value"),
            ("Exists", json!(["1"]), "matchExpressions[0].values: the operator Exists takes no values"),
        ] {
            let written = json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
            assert_eq!(selector(&written).unwrap_err(), expected);
        }
        let no_key = json!({"matchExpressions": [{"key": "", "operator": "Exists"}]});
        assert_eq!(selector(&no_key).unwrap_err(), "matchExpressions[0].key: the key is empty");
    }

    fn any_labels() -> impl Strategy<Value = Labels> {
        prop::collection::btree_map("[ab]", "[12]", 0..3)
    }

    proptest! {
        /// The conditions of one selector narrow each other, and opposites divide all objects.
        #[test]
        fn requirements_narrow_and_opposites_divide(
            first in any_labels(), second in any_labels(), labels in any_labels(), key in "[abc]",
            values in prop::collection::btree_set("[12]", 1..3),
        ) {
            let of = |matched: &Labels, operator: &str, values: &BTreeSet<String>| {
                let expression = json!({"key": key, "operator": operator, "values": values});
                selector(&json!({"matchLabels": matched, "matchExpressions": [expression]})).unwrap()
            };
            let of_labels = |matched: &Labels| selector(&json!({"matchLabels": matched})).unwrap();
            let both: Labels = first.clone().into_iter().chain(second.clone()).collect();
            if second.iter().all(|(key, value)| first.get(key).is_none_or(|it| it == value)) {
                let each = of_labels(&first).matches(&labels) && of_labels(&second).matches(&labels);
                prop_assert_eq!(of_labels(&both).matches(&labels), each);
            }
            let (none, empty) = (Labels::new(), BTreeSet::new());
            prop_assert_ne!(of(&none, "In", &values).matches(&labels), of(&none, "NotIn", &values).matches(&labels));
            prop_assert_ne!(of(&none, "Exists", &empty).matches(&labels), of(&none, "DoesNotExist", &empty).matches(&labels));
            // An object matches a selector of its own labels.
            prop_assert!(of_labels(&labels).matches(&labels));
            prop_assert_eq!(
                of(&first, "In", &values).matches(&labels),
                of_labels(&first).matches(&labels) && labels.get(&key).is_some_and(|it| values.contains(it))
            );
        }
    }
}
