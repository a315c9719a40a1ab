//! The fields that functions change: a choice of kinds, and a path in their objects.
//!
//! Follows the field specifications of kustomize (`api/filters/fieldspec`).

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::resources::Resource;

/// A field of some kinds. An empty group, version or kind permits every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct FieldSpec {
    /// The API group.
    #[serde(default)]
    pub(super) group: String,
    /// The version without its group.
    #[serde(default)]
    pub(super) version: String,
    /// The kind.
    #[serde(default)]
    pub(super) kind: String,
    /// The keys from the root with `/` between them; `\/` is a slash in a key. Items of lists need no `[]`.
    pub(super) path: String,
    /// Whether a missing field is added.
    #[serde(default)]
    pub(super) create: bool,
}

impl FieldSpec {
    /// A field of a table: group, version, kind and path.
    pub(super) fn of([group, version, kind, path]: [&str; 4], create: bool) -> Self {
        let [group, version, kind, path] = [group, version, kind, path].map(str::to_owned);
        Self { group, version, kind, path, create }
    }

    pub(super) fn matches(&self, resource: &Resource) -> bool {
        let api_version = resource.api_version();
        let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
        [(&self.group, resource.group()), (&self.version, version), (&self.kind, resource.kind())]
            .iter()
            .all(|(expected, actual)| expected.is_empty() || expected == actual)
    }

    /// Calls a function with each value at the path. With `create`, missing maps are added, and `default` at the end.
    pub(super) fn visit(&self, value: &mut Value, default: &Value, change: &mut dyn FnMut(&mut Value)) {
        let keys = keys(&self.path);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        visit(value, &keys, self.create.then_some(default), change);
    }
}

/// The keys of a path.
fn keys(path: &str) -> Vec<String> {
    let escaped = path.replace("\\/", "\u{0}");
    escaped.split('/').filter(|key| !key.is_empty()).map(|key| key.replace('\u{0}', "/")).collect()
}

fn visit(value: &mut Value, keys: &[&str], default: Option<&Value>, change: &mut dyn FnMut(&mut Value)) {
    let Some((key, rest)) = keys.split_first() else {
        return match value {
            Value::Array(items) => items.iter_mut().for_each(change),
            value => change(value),
        };
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, keys, default, change)),
        Value::Object(fields) => {
            let (key, is_list) = key.strip_suffix("[]").map_or((*key, false), |key| (key, true));
            let is_missing = fields.get(key).is_none_or(Value::is_null);
            // A missing list has no items that lack the field.
            if let (true, false, Some(default)) = (is_missing, is_list, default) {
                let new = if rest.is_empty() { default.clone() } else { Map::new().into() };
                fields.insert(key.to_owned(), new);
            }
            if let Some(field) = fields.get_mut(key).filter(|field| !field.is_null()) {
                visit(field, rest, default, change);
            }
        }
        _ => {}
    }
}

/// The number of entries that changed after a map got entries.
pub(super) fn set_entries<'e>(
    target: &mut Value,
    entries: impl IntoIterator<Item = (&'e String, &'e String)>,
) -> usize {
    let Value::Object(fields) = target else { return 0 };
    let mut changed = 0;
    for (key, value) in entries {
        if fields.get(key).and_then(Value::as_str) != Some(value) {
            fields.insert(key.clone(), value.clone().into());
            changed += 1;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_through_lists_and_make_maps() {
        for (path, create, before, after) in [
            ("a/b", false, json!({"a": {"b": 1}}), json!({"a": {"b": "x"}})),
            ("a/b", false, json!({"a": {}}), json!({"a": {}})),
            ("a/b", true, json!({}), json!({"a": {"b": "x"}})),
            ("a[]/b", true, json!({"a": [{"b": 1}, {}]}), json!({"a": [{"b": "x"}, {"b": "x"}]})),
            ("a[]/b", true, json!({}), json!({})),
            ("a/b", false, json!({"a": [{"b": 1}, {}]}), json!({"a": [{"b": "x"}, {}]})),
            ("a/b\\/c", false, json!({"a": {"b/c": 1}}), json!({"a": {"b/c": "x"}})),
            ("a/b", true, json!({"a": null}), json!({"a": {"b": "x"}})),
            ("a/b", true, json!({"a": "text"}), json!({"a": "text"})),
        ] {
            let mut value = before.clone();
            let spec = FieldSpec::of(["", "", "", path], create);
            spec.visit(&mut value, &json!(""), &mut |field| *field = json!("x"));
            assert_eq!(value, after, "{path} {before}");
        }
    }

    #[test]
    fn kinds_match_by_group_version_and_kind() {
        let value = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}});
        let resource = Resource::new("", "", value, None);
        for (spec, expected) in [
            (["", "", "", "a"], true),
            (["apps", "v1", "Deployment", "a"], true),
            (["", "v1beta1", "", "a"], false),
            (["batch", "", "", "a"], false),
            (["", "", "Job", "a"], false),
        ] {
            assert_eq!(FieldSpec::of(spec, false).matches(&resource), expected, "{spec:?}");
        }
    }
}
