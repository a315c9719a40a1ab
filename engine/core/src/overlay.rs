//! Overlays: changes of objects by partial objects, as strategic merge patches.
//!
//! Start at [`merged`]. Maps are merged, null removes a field, and lists with keys are merged by them, such as containers
//! by name. Other lists are replaced. `$patch: delete` removes a map or an item, `$patch: replace` replaces one.
//!
//! Follows "Use strategic merge patch to update a Deployment" in the documentation of Kubernetes. The keys of lists are
//! those of server-side apply ([`Schema`]), which differ for ports: by port and protocol.

use serde_json::{Map, Value};

use crate::path::{FieldPath, Segment};
use crate::schema::{ListKey, Merge, Schema};

/// The directive in a patch.
const DIRECTIVE: &str = "$patch";

/// The object with the patch in it. Without a schema, all lists are replaced.
///
/// # Errors
///
/// The field of a directive that has no meaning there, and why.
pub fn merged(
    object: &Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, (FieldPath, String)> {
    let mut merge = Merger { schema: Schema::built_in(object), at: FieldPath::default() };
    if let Some(directive) = patch.get(DIRECTIVE) {
        return Err((FieldPath::of_keys([DIRECTIVE]), format!("{directive} cannot change the object as a whole")));
    }
    let mut object = object.clone();
    merge.map(&mut object, patch)?;
    Ok(object)
}

/// The meaning of a map in a patch.
enum Directive {
    Merge,
    Replace,
    Delete,
}

struct Merger<'s> {
    schema: Option<&'s Schema>,
    at: FieldPath,
}

type Outcome = Result<(), (FieldPath, String)>;

impl Merger<'_> {
    fn directive(&self, patch: &Map<String, Value>) -> Result<Directive, (FieldPath, String)> {
        match patch.get(DIRECTIVE) {
            None => Ok(Directive::Merge),
            Some(Value::String(text)) if text == "merge" => Ok(Directive::Merge),
            Some(Value::String(text)) if text == "replace" => Ok(Directive::Replace),
            Some(Value::String(text)) if text == "delete" => Ok(Directive::Delete),
            Some(other) => Err((self.at.key(DIRECTIVE), format!("must be delete, merge or replace, not {other}"))),
        }
    }

    fn map(&mut self, map: &mut Map<String, Value>, patch: &Map<String, Value>) -> Outcome {
        for (key, new) in patch.iter().filter(|(key, _)| *key != DIRECTIVE) {
            self.at.0.push(Segment::Key(key.clone()));
            match new {
                Value::Null => drop(map.remove(key)),
                Value::Object(new) => match self.directive(new)? {
                    Directive::Delete => drop(map.remove(key)),
                    Directive::Replace => drop(map.insert(key.clone(), without_directive(new))),
                    Directive::Merge => {
                        if !map.get(key).is_some_and(Value::is_object) {
                            map.insert(key.clone(), Map::new().into());
                        }
                        if let Some(Value::Object(old)) = map.get_mut(key) {
                            self.map(old, new)?;
                        }
                    }
                },
                Value::Array(new) => {
                    let old = match map.remove(key) {
                        Some(Value::Array(old)) => old,
                        _ => Vec::new(),
                    };
                    let list = self.list(old, new)?;
                    map.insert(key.clone(), list.into());
                }
                Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(map.insert(key.clone(), new.clone())),
            }
            self.at.0.pop();
        }
        Ok(())
    }

    fn list(&mut self, mut items: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, (FieldPath, String)> {
        let Some(Merge::ByKeys(keys)) = self.schema.and_then(|schema| schema.list(&self.at)) else {
            return Ok(patch.to_vec());
        };
        let is_replaced = |item: &Value| {
            item.as_object().is_some_and(|it| it.len() == 1 && it.get(DIRECTIVE) == Some(&"replace".into()))
        };
        let patch: Vec<&Value> = if patch.iter().any(is_replaced) {
            items.clear();
            patch.iter().filter(|item| !is_replaced(item)).collect()
        } else {
            patch.iter().collect()
        };
        for (index, new) in patch.into_iter().enumerate() {
            let Value::Object(new) = new else {
                return Err((self.at.index(index), "must be a map with the keys of the list".to_owned()));
            };
            self.at.0.push(Segment::Index(index));
            let position = items.iter().position(|item| is_same(keys, item, &Value::Object(new.clone())));
            match (self.directive(new)?, position) {
                (Directive::Delete, Some(position)) => drop(items.remove(position)),
                (Directive::Delete, None) => {}
                (Directive::Replace, Some(position)) => items[position] = without_directive(new),
                (Directive::Merge, Some(position)) => {
                    if let Value::Object(old) = &mut items[position] {
                        self.map(old, new)?;
                    }
                }
                (Directive::Merge | Directive::Replace, None) => {
                    let mut item = Map::new();
                    self.map(&mut item, new)?;
                    items.push(item.into());
                }
            }
            self.at.0.pop();
        }
        Ok(items)
    }
}

fn is_same(keys: &[ListKey], one: &Value, other: &Value) -> bool {
    keys.iter().all(|key| key.of(one).is_some_and(|value| Some(value) == key.of(other)))
}

fn without_directive(map: &Map<String, Value>) -> Value {
    map.iter().filter(|(key, _)| *key != DIRECTIVE).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "1", "b": "2"}},
            "spec": {"replicas": 1, "template": {"spec": {
                "containers": [
                    {"name": "web", "image": "web:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                    {"name": "side", "image": "side:1"}],
                "tolerations": [{"key": "x"}]}}}})
    }

    fn merge(object: Value, patch: Value) -> Result<Value, String> {
        let result = merged(object.as_object().unwrap(), patch.as_object().unwrap());
        result.map(Value::Object).map_err(|(field, why)| format!("{field}: {why}"))
    }

    #[test]
    fn partial_object_changes_only_its_fields() {
        let patch = json!({"metadata": {"labels": {"b": null, "c": "3"}}, "spec": {"replicas": 3, "template": {"spec": {
            "containers": [{"name": "web", "args": ["c"], "env": [{"name": "B", "value": "x"}, {"name": "C", "value": "3"}]}],
            "tolerations": [{"key": "y"}]}}}});
        let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "1", "c": "3"}},
            "spec": {"replicas": 3, "template": {"spec": {
                "containers": [
                    {"name": "web", "image": "web:1", "args": ["c"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "x"}, {"name": "C", "value": "3"}]},
                    {"name": "side", "image": "side:1"}],
                "tolerations": [{"key": "y"}]}}}});
        assert_eq!(merge(deployment(), patch), Ok(expected));
    }

    #[test]
    fn directives_delete_and_replace() {
        let patch = json!({"metadata": {"labels": {"$patch": "replace", "z": "0"}}, "spec": {"template": {"spec": {
            "containers": [{"name": "side", "$patch": "delete"}, {"name": "none", "$patch": "delete"},
                {"name": "web", "$patch": "replace", "image": "web:2"}]}}}});
        let changed = merge(deployment(), patch).unwrap();
        assert_eq!(changed["metadata"]["labels"], json!({"z": "0"}));
        assert_eq!(changed["spec"]["template"]["spec"]["containers"], json!([{"name": "web", "image": "web:2"}]));
        let all = json!({"spec": {"template": {"spec": {"containers": [{"$patch": "replace"}, {"name": "new", "image": "new:1"}]}}}});
        let changed = merge(deployment(), all).unwrap();
        assert_eq!(changed["spec"]["template"]["spec"]["containers"], json!([{"name": "new", "image": "new:1"}]));
        let gone = merge(deployment(), json!({"spec": {"template": {"$patch": "delete"}}})).unwrap();
        assert_eq!(gone["spec"], json!({"replicas": 1}));
    }

    #[test]
    fn unknown_kind_has_its_lists_replaced() {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"items": [{"name": "a"}], "map": {"a": 1}}});
        let changed = merge(object, json!({"spec": {"items": [{"name": "b"}], "map": {"b": 2}}})).unwrap();
        assert_eq!(changed["spec"], json!({"items": [{"name": "b"}], "map": {"a": 1, "b": 2}}));
    }

    #[test]
    fn meaningless_patches_are_errors() {
        for (patch, why) in [
            (json!({"$patch": "delete"}), "$patch: \"delete\" cannot change the object as a whole"),
            (json!({"spec": {"$patch": "drop"}}), "spec.$patch: must be delete, merge or replace, not \"drop\""),
            (
                json!({"spec": {"template": {"spec": {"containers": ["web"]}}}}),
                "spec.template.spec.containers[0]: must be a map with the keys of the list",
            ),
        ] {
            assert_eq!(merge(deployment(), patch).unwrap_err(), why);
        }
    }
}
