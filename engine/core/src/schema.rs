//! What a server says of the lists and maps of a kind that is not built in: which of them have one owner, and how the items
//! of the others are told apart.
//!
//! [`Schema::of_kind`] reads it from the OpenAPI v3 document of a group and version. What no schema tells of counts as
//! atomic, as for a server: a list has one owner, and what others add to it is to go.
//!
//! Follows "Merge strategy" of server-side apply in the Kubernetes documentation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::object::{is_built_in, split_api_version};
use crate::path::{FieldPath, Segment, scalar_text};
use crate::spec::{Resource, ResourceId, ResourceType};

/// The schemas of resources that have one.
pub type Schemas = BTreeMap<ResourceId, Arc<Schema>>;

/// Schemas may refer to themselves; nobody looks deeper than that.
const DEPTH: usize = 48;
/// The step into any item of a list and any value of a map.
const ANY: &str = "*";

/// The lists and maps of a kind, as far as they are not what they would be without a schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// By path.
    fields: BTreeMap<Vec<String>, Merge>,
}

/// How a list or a map is merged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Merge {
    /// A list whose items are told apart by these keys (`x-kubernetes-list-type: map`).
    ByKeys(Vec<ListKey>),
    /// A list whose items are told apart by their values (`x-kubernetes-list-type: set`).
    Set,
    /// A map with one owner (`x-kubernetes-map-type: atomic`).
    AtomicMap,
}

/// A key of the items of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListKey {
    pub(crate) name: String,
    /// What an item has that does not say.
    pub(crate) default: Option<String>,
}

impl ListKey {
    /// The value of an item under the key, as text.
    pub(crate) fn of(&self, item: &Value) -> Option<String> {
        item.get(&self.name).and_then(scalar_text).or_else(|| self.default.clone())
    }
}

impl Resource {
    /// Whether what is live of it is compared along a schema: it is of a kind that is not built in.
    pub fn has_schema(&self) -> bool {
        let api_version = self.attributes.get("apiVersion").and_then(Value::as_str);
        self.kind == ResourceType::Kubernetes && api_version.is_some_and(|it| !is_built_in(split_api_version(it).0))
    }
}

impl Schema {
    /// Reads what the OpenAPI v3 document of a group and version says of a kind; `None` when it does not have the kind.
    pub fn of_kind(document: &Value, group: &str, version: &str, kind: &str) -> Option<Self> {
        let schemas = document.get("components")?.get("schemas")?.as_object()?;
        let is_kind = |schema: &&Value| {
            let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
            kinds.into_iter().flatten().any(|it| it["group"] == group && it["version"] == version && it["kind"] == kind)
        };
        let mut reader = Reader { schemas, open: Vec::new(), path: Vec::new(), fields: BTreeMap::new() };
        reader.read(schemas.values().find(is_kind)?);
        // What all kinds have is known, and what the server writes is not compared.
        reader.fields.retain(|path, _| !matches!(path.first().map(String::as_str), Some("metadata" | "status")));
        Some(Self { fields: reader.fields })
    }

    /// How the list at a path is merged; `None` for one with one owner.
    pub(crate) fn list(&self, path: &FieldPath) -> Option<&Merge> {
        self.fields.iter().find(|(field, _)| fits(field, &path.0)).map(|(_, merge)| merge)
    }

    /// Whether the map at a path, or one around it, has one owner.
    pub(crate) fn is_atomic_map(&self, path: &FieldPath) -> bool {
        self.fields.iter().any(|(field, merge)| {
            *merge == Merge::AtomicMap && path.0.get(..field.len()).is_some_and(|above| fits(field, above))
        })
    }
}

fn fits(field: &[String], path: &[Segment]) -> bool {
    field.len() == path.len()
        && field.iter().zip(path).all(|(step, segment)| match segment {
            Segment::Key(key) => step == ANY || step == key,
            Segment::Index(_) | Segment::Item { .. } => step == ANY,
        })
}

struct Reader<'a> {
    schemas: &'a Map<String, Value>,
    /// Those that are being read, by name.
    open: Vec<&'a str>,
    path: Vec<String>,
    fields: BTreeMap<Vec<String>, Merge>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, schema: &'a Value) {
        if self.path.len() > DEPTH {
            return;
        }
        if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next()) {
            if let Some(target) = self.schemas.get(name)
                && !self.open.contains(&name)
            {
                self.open.push(name);
                self.read(target);
                self.open.pop();
            }
            return;
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.read(part);
        }
        if let Some(items) = schema.get("items") {
            let merge = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("map") => Merge::ByKeys(self.keys(schema, items)),
                Some("set") => Merge::Set,
                // Whatever is in it has the owner of the list.
                Some(_) | None => return,
            };
            self.fields.insert(self.path.clone(), merge);
            return self.below(ANY, items);
        }
        if schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
            self.fields.insert(self.path.clone(), Merge::AtomicMap);
            return;
        }
        for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.below(key, property);
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            self.below(ANY, values);
        }
    }

    fn below(&mut self, step: &str, schema: &'a Value) {
        self.path.push(step.to_owned());
        self.read(schema);
        self.path.pop();
    }

    fn keys(&self, list: &Value, items: &'a Value) -> Vec<ListKey> {
        let names = list.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
        let properties = self.properties(items);
        names
            .filter_map(Value::as_str)
            .map(|name| {
                let default = properties.and_then(|all| all.get(name)?.get("default")).and_then(scalar_text);
                ListKey { name: name.to_owned(), default }
            })
            .collect()
    }

    /// The properties of what a list holds, which may be behind one reference.
    fn properties(&self, items: &'a Value) -> Option<&'a Value> {
        let part = items.get("allOf").and_then(|all| all.get(0)).unwrap_or(items);
        let target = match part.get("$ref").and_then(Value::as_str) {
            Some(name) => self.schemas.get(name.rsplit('/').next()?)?,
            None => items,
        };
        target.get("properties")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"components": {"schemas": {
            "com.example.v1.Widget": {
                "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Widget"}],
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/ObjectMeta"}]},
                    "spec": {"properties": {
                        "ports": {"type": "array", "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["port", "protocol"],
                            "items": {"properties": {"protocol": {"default": "TCP"}, "hosts":
                                {"type": "array", "x-kubernetes-list-type": "set", "items": {}}}}},
                        "env": {"type": "array", "items": {"properties": {"inner": {
                            "type": "array", "x-kubernetes-list-type": "set", "items": {}}}}},
                        "args": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {}},
                        "selector": {"x-kubernetes-map-type": "atomic", "properties": {"labels": {}}},
                        "by": {"additionalProperties": {"type": "array", "x-kubernetes-list-type": "set", "items": {}}},
                        "tree": {"$ref": "#/components/schemas/Tree"},
                    }},
                    "status": {"properties": {"x": {"type": "array", "x-kubernetes-list-type": "set", "items": {}}}},
                },
            },
            "Tree": {"properties": {"next": {"allOf": [{"$ref": "#/components/schemas/Tree"}], "default": {}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {}}}},
            "ObjectMeta": {"properties": {"finalizers": {
                "type": "array", "x-kubernetes-list-type": "set", "items": {}}}},
        }}})
    }

    #[test]
    fn lists_and_maps_are_merged_as_the_schema_says() {
        let schema = Schema::of_kind(&document(), "example.com", "v1", "Widget").unwrap();
        let spec = |keys: &[&str]| {
            FieldPath::of_keys(["spec"])
                .concat(&keys.iter().map(|key| Segment::Key((*key).to_owned())).collect::<Vec<_>>())
        };
        let Some(Merge::ByKeys(keys)) = schema.list(&spec(&["ports"])) else { panic!("{schema:?}") };
        let item = json!({"port": 80});
        let of: Vec<_> = keys.iter().map(|key| (key.name.as_str(), key.of(&item).unwrap())).collect();
        assert_eq!(of, [("port", "80".to_owned()), ("protocol", "TCP".to_owned())]);
        assert_eq!(schema.list(&spec(&["ports"]).index(3).key("hosts")), Some(&Merge::Set));
        assert_eq!(schema.list(&spec(&["by", "whatever"])), Some(&Merge::Set));
        assert_eq!(schema.list(&spec(&["tree", "tags"])), Some(&Merge::Set));
        for atomic in [spec(&["env"]), spec(&["env"]).index(0).key("inner"), spec(&["args"]), spec(&["unknown"])] {
            assert_eq!(schema.list(&atomic), None, "{atomic}");
        }
        assert!(schema.is_atomic_map(&spec(&["selector"])) && schema.is_atomic_map(&spec(&["selector", "labels"])));
        assert!(!schema.is_atomic_map(&spec(&[])) && !schema.is_atomic_map(&spec(&["by"])));
        assert_eq!(schema.list(&FieldPath::of_keys(["status", "x"])), None);
        assert_eq!(Schema::of_kind(&document(), "example.com", "v2", "Widget"), None);
    }
}
