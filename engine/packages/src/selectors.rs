//! The choice of objects that a function gets.

use crate::{
    kptfile::{Function, Selector},
    resources::Resource,
};

/// Whether a function gets only some of the objects.
pub fn is_selective(function: &Function) -> bool {
    !function.selectors.is_empty() || !function.exclude.is_empty()
}

/// Whether a function gets an object: some selector matches it, and no exclusion.
///
/// Values compare as exact text. An exclusion without any field excludes nothing.
pub fn selects(function: &Function, resource: &Resource) -> bool {
    let is_selected = function.selectors.is_empty() || function.selectors.iter().any(|it| matches(it, resource));
    let excludes = |selector: &Selector| *selector != Selector::default() && matches(selector, resource);
    is_selected && !function.exclude.iter().any(excludes)
}

/// Whether an object has all values of a selector.
pub fn matches(selector: &Selector, resource: &Resource) -> bool {
    let fields = [
        (&selector.api_version, resource.api_version()),
        (&selector.kind, resource.kind()),
        (&selector.name, resource.name()),
        (&selector.namespace, resource.namespace()),
    ];
    fields.iter().all(|(expected, actual)| expected.is_empty() || expected == actual)
        && selector.labels.iter().all(|(key, value)| resource.label(key) == Some(value))
        && selector.annotations.iter().all(|(key, value)| resource.annotation(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selected(selectors: &str) -> Vec<String> {
        let function: Function = serde_json::from_value(stoa_yaml_value(selectors)).unwrap();
        let object = |kind: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": "n", "labels": {"a": "1"}, "annotations": {"b": "2"}});
            Resource::new("", "", json!({"apiVersion": "v1", "kind": kind, "metadata": metadata}), None)
        };
        let kptfile = json!({"apiVersion": "kpt.dev/v1", "kind": "Kptfile", "metadata": {"name": "p"}});
        let objects = [object("A", "x"), object("B", "y"), Resource::new("", "Kptfile", kptfile, None)];
        objects.iter().filter(|it| selects(&function, it)).map(|it| it.name().to_owned()).collect()
    }

    fn stoa_yaml_value(text: &str) -> serde_json::Value {
        crate::text::read(text).unwrap()
    }

    #[test]
    fn selectors_compare_exact_text() {
        for (selectors, expected) in [
            ("{}", vec!["x", "y", "p"]),
            ("selectors: [{kind: A}]", vec!["x"]),
            ("selectors: [{kind: '*'}]", vec![]),
            ("selectors: [{kind: A}, {name: x}, {name: 'y'}]", vec!["x", "y"]),
            ("selectors: [{kind: A, name: 'y'}]", vec![]),
            ("selectors: [{apiVersion: v1, namespace: 'n', labels: {a: '1'}, annotations: {b: '2'}}]", vec!["x", "y"]),
            ("selectors: [{labels: {a: '2'}}]", vec![]),
            ("selectors: [{}]", vec!["x", "y", "p"]),
            ("exclude: [{kind: A}, {kind: B}]", vec!["p"]),
            ("exclude: [{}]", vec!["x", "y", "p"]),
            ("{selectors: [{kind: A}], exclude: [{name: x}]}", vec![]),
        ] {
            assert_eq!(selected(selectors), expected, "{selectors}");
        }
    }
}
