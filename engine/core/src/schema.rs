//! What a server says of the lists and maps of a kind that is not built in: which of them have one owner, and how the items
//! of the others are told apart.
//!
//! [`Schema::of_kind`] reads it from the OpenAPI v3 document of a group and version. What no schema tells of counts as
//! atomic, as for a server: a list has one owner, and what others add to it is to go. So does what is nested deeper, or of
//! a larger document, than anybody looks.
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
/// How many parts, references among them, may be within each other until the next step down: more than any generator
/// writes.
const NESTED: usize = 16;
/// How much of a document is read, since a cluster may say what it likes: what a few definitions refer to over and over
/// grows without end. A visit of a part costs [`VISIT`], and what is kept or looked through costs as many bytes as it has.
const LARGEST: usize = 4 << 20;
const VISIT: usize = 16;
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
        let mut reader =
            Reader { schemas, open: Vec::new(), nested: 0, left: LARGEST, path: Vec::new(), fields: BTreeMap::new() };
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
    /// How many parts are within each other since the last step down.
    nested: usize,
    /// How much may still be read.
    left: usize,
    path: Vec<String>,
    fields: BTreeMap<Vec<String>, Merge>,
}

impl<'a> Reader<'a> {
    fn read(&mut self, schema: &'a Value) {
        if self.path.len() > DEPTH || self.nested > NESTED || !self.may_spend(VISIT) {
            return;
        }
        self.nested += 1;
        self.read_part(schema);
        self.nested -= 1;
    }

    /// Whether so much may still be read; it counts as read then.
    fn may_spend(&mut self, cost: usize) -> bool {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    fn keep(&mut self, merge: Merge) {
        let cost: usize = self.path.iter().map(|step| step.len() + VISIT).sum();
        if self.may_spend(cost) {
            self.fields.insert(self.path.clone(), merge);
        }
    }

    fn read_part(&mut self, schema: &'a Value) {
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
                Some("map") => match self.keys(schema, items) {
                    Some(keys) => Merge::ByKeys(keys),
                    None => return,
                },
                Some("set") => Merge::Set,
                // Whatever is in it has the owner of the list.
                Some(_) | None => return,
            };
            self.keep(merge);
            return self.below(ANY, items);
        }
        if schema.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic") {
            return self.keep(Merge::AtomicMap);
        }
        for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.below(key, property);
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            self.below(ANY, values);
        }
    }

    fn below(&mut self, step: &str, schema: &'a Value) {
        if !self.may_spend(step.len()) {
            return;
        }
        let nested = std::mem::take(&mut self.nested);
        self.path.push(step.to_owned());
        self.read(schema);
        self.path.pop();
        self.nested = nested;
    }

    /// The keys of a list; `None` when there are more than may be read.
    fn keys(&mut self, list: &Value, items: &'a Value) -> Option<Vec<ListKey>> {
        let names = list.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
        let properties = self.properties(items);
        names
            .filter_map(Value::as_str)
            .map(|name| {
                let default = properties.and_then(|all| all.get(name)?.get("default")).and_then(scalar_text);
                let cost = VISIT + name.len() + default.as_ref().map_or(0, String::len);
                self.may_spend(cost).then(|| ListKey { name: name.to_owned(), default })
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

    /// What is read of a kind whose `spec` is this, with these schemas besides.
    fn of(spec: Value, others: impl IntoIterator<Item = (String, Value)>) -> Schema {
        let kind = json!([{"group": "example.com", "version": "v1", "kind": "Widget"}]);
        let widget = json!({"x-kubernetes-group-version-kind": kind, "properties": {"spec": spec}});
        let schemas: Map<String, Value> = [("Widget".to_owned(), widget)].into_iter().chain(others).collect();
        Schema::of_kind(&json!({"components": {"schemas": schemas}}), "example.com", "v1", "Widget").unwrap()
    }

    fn reference(name: impl std::fmt::Display) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
    }

    /// Where lists are that are sets.
    fn sets(schema: &Schema) -> Vec<String> {
        let is_set = |(_, merge): &(_, &Merge)| **merge == Merge::Set;
        schema.fields.iter().filter(is_set).map(|(path, _)| path.join(".")).collect()
    }

    fn set() -> Value {
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {}})
    }

    #[test]
    fn references_behind_references_are_followed_as_far_as_generators_write_them() {
        let chain = |length: usize| {
            let link = |n: usize| if n == length { json!({"properties": {"tags": set()}}) } else { reference(n + 1) };
            let others = (1..=length).map(|n| (n.to_string(), json!({ "allOf": [link(n)] })));
            sets(&of(reference(1), others))
        };
        assert_eq!(chain(4), ["spec.tags"]);
        assert_eq!(chain(100_000), [""; 0], "nobody goes so far, nor is the stack used up");
    }

    #[test]
    fn schemas_that_contain_themselves_end() {
        let others = [
            (
                "A".to_owned(),
                json!({"allOf": [reference("B")], "properties": {"tags": set(), "again": reference("A")}}),
            ),
            (
                "B".to_owned(),
                json!({"allOf": [reference("A"), reference("B")], "additionalProperties": reference("B")}),
            ),
        ];
        assert_eq!(sets(&of(reference("A"), others)), ["spec.tags"]);
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": reference("List")});
        assert_eq!(of(reference("List"), [("List".to_owned(), list)]).fields.len(), 1);
        assert!(of(reference("Missing"), []).fields.is_empty());
    }

    #[test]
    fn what_grows_without_end_is_read_as_far_as_is_worth_it() {
        // Each refers to the next twice: all paths are 2^40.
        let name = "n".repeat(100);
        let twice =
            |n: usize| json!({"properties": {"a": reference(n + 1), "tags": set(), (name.clone()): reference(n + 1)}});
        let others = (1..=40).map(|n| (n.to_string(), twice(n)));
        let schema = of(reference(1), others);
        let kept: usize = schema.fields.keys().flatten().map(String::len).sum();
        assert!((1..LARGEST).contains(&kept), "{kept} bytes are kept");

        // A list whose keys are too many has none, rather than some of them.
        let keys: Vec<String> = (0..LARGEST / VISIT).map(|n| n.to_string()).collect();
        let list =
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": {}});
        assert!(of(list, []).fields.is_empty());
    }
}
