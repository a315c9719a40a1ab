//! Merge schemas of kinds: which lists and maps are atomic, and the keys of list items.
//!
//! [`Schema::built_in`] has the built-in kinds. [`Schema::of_kind`] reads others from the OpenAPI v3 document of a
//! group and version. A list without a schema counts as atomic, as for a server: additions of others are removed. So do
//! lists that are nested too deeply, or in a document that is too large.
//!
//! Follows "Merge strategy" of server-side apply in the Kubernetes documentation.

mod built_in;
mod pods;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::path::{FieldPath, Segment, scalar_text};
use crate::spec::{Resource, ResourceId, ResourceType};
pub use pods::pod_spec;

/// The schemas of resources that have one.
pub type Schemas = BTreeMap<ResourceId, Arc<Schema>>;

/// The maximum depth of a schema, which may refer to itself.
const DEPTH: usize = 48;
/// The maximum number of nested parts and references up to the next field: more than any generator writes.
const NESTED: usize = 16;
/// The maximum cost of a document, in bytes, since nested references may expand without end. A visited part costs
/// [`VISIT`], and stored or searched texts cost their size.
const LARGEST: usize = 4 << 20;
const VISIT: usize = 16;
/// The step into any item of a list and any value of a map.
const ANY: &str = "*";

/// The lists and maps of a kind, as far as they are not what they would be without a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    fields: Paths<Merge>,
    /// Values that the server sets in fields of atomic lists and maps.
    filled: Paths<Filled>,
}

/// Finds values in the live object.
type Live<'f, 'l> = dyn Fn(&FieldPath) -> Option<&'l Value> + 'f;

/// A schema that is being put together, by path.
#[derive(Clone, Debug)]
struct Draft {
    fields: BTreeMap<Vec<String>, Merge>,
    filled: BTreeMap<Vec<String>, Filled>,
}

impl From<Draft> for Schema {
    fn from(Draft { fields, filled }: Draft) -> Self {
        Self { fields: Paths(fields.into_iter().collect()), filled: Paths(filled.into_iter().collect()) }
    }
}

/// Values by field, sorted by path for binary search.
#[derive(Clone, Debug, PartialEq)]
struct Paths<T>(Vec<(Vec<String>, T)>);

impl<T> Paths<T> {
    /// The value for the field at a path. A rule for any key does not apply to named ones.
    fn get(&self, path: &[Segment]) -> Option<&T> {
        let mut fitting = self.0.as_slice();
        for (depth, segment) in path.iter().enumerate() {
            let named = match segment {
                Segment::Key(key) => with_step(fitting, depth, key),
                Segment::Index(_) | Segment::Item { .. } => &[],
            };
            fitting = if named.is_empty() { with_step(fitting, depth, ANY) } else { named };
        }
        // The shortest comes first.
        fitting.first().filter(|(field, _)| field.len() == path.len()).map(|(_, said)| said)
    }
}

/// The fields with this step at a depth, among fields that share all earlier steps.
fn with_step<'f, T>(fields: &'f [(Vec<String>, T)], depth: usize, step: &str) -> &'f [(Vec<String>, T)] {
    let from = fields.partition_point(|(field, _)| field.get(depth).is_none_or(|it| it.as_str() < step));
    let rest = &fields[from..];
    &rest[..rest.partition_point(|(field, _)| field[depth] == step)]
}

/// How a list or map is merged.
#[derive(Clone, Debug, PartialEq)]
pub enum Merge {
    /// A list whose items are identified by these keys (`x-kubernetes-list-type: map`).
    ByKeys(Vec<ListKey>),
    /// A list whose items are identified by their values (`x-kubernetes-list-type: set`).
    Set,
    /// A map with one owner (`x-kubernetes-map-type: atomic`).
    AtomicMap,
}

/// The value that the server sets in an unset field.
#[derive(Clone, Debug, PartialEq)]
enum Filled {
    /// This value.
    With(Value),
    /// The value under the same key of the first sibling map that has one.
    Copied(&'static [&'static str]),
}

/// A key of the items of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListKey {
    /// The field of an item.
    pub name: String,
    /// The default of the key in an item without it.
    pub default: Option<String>,
}

impl ListKey {
    /// The value of an item under the key, as text.
    pub fn of(&self, item: &Value) -> Option<String> {
        item.get(&self.name).and_then(scalar_text).or_else(|| self.default.clone())
    }
}

impl Resource {
    /// Whether the comparison of a live object needs the schema of its server.
    pub fn needs_schema(&self) -> bool {
        let is_text = |key: &str| self.attributes.get(key).is_some_and(Value::is_string);
        let is_object = self.kind == ResourceType::Kubernetes && is_text("apiVersion") && is_text("kind");
        is_object && Schema::built_in(&self.attributes).is_none()
    }
}

impl Default for Schema {
    /// The schema of any kind.
    fn default() -> Self {
        Self::of_any_kind().clone()
    }
}

impl Schema {
    /// The schema of an object of a stable built-in kind.
    pub fn built_in(object: &Map<String, Value>) -> Option<&'static Self> {
        built_in::of_kind(object.get("apiVersion")?.as_str()?, object.get("kind")?.as_str()?)
    }

    /// The schema of any kind.
    pub(crate) fn of_any_kind() -> &'static Self {
        &built_in::ANY_KIND
    }

    /// Reads a kind from the OpenAPI v3 document of a group and version; `None` when the document lacks the kind.
    pub fn of_kind(document: &Value, group: &str, version: &str, kind: &str) -> Option<Self> {
        let schemas = document.get("components")?.get("schemas")?.as_object()?;
        let is_kind = |schema: &&Value| {
            let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
            kinds.into_iter().flatten().any(|it| it["group"] == group && it["version"] == version && it["kind"] == kind)
        };
        let (open, path, said) = (Vec::new(), Vec::new(), built_in::any_kind());
        let mut reader =
            Reader { schemas, open, nested: 0, left: LARGEST, path, is_owned: false, is_granular: false, said };
        reader.read(schemas.values().find(is_kind)?);
        Some(reader.said.into())
    }

    /// How lists and maps are merged, one line each: `spec.ports: by port=0,protocol=TCP`.
    pub fn merges(&self) -> Vec<String> {
        let keys = |keys: &[ListKey]| {
            let keys = keys.iter().map(|ListKey { name, default }| match default {
                Some(default) => format!("{name}={default}"),
                None => name.clone(),
            });
            keys.collect::<Vec<_>>().join(",")
        };
        let lines = self.fields.0.iter().map(|(path, merge)| match merge {
            Merge::ByKeys(by) => format!("{}: by {}", path.join("."), keys(by)),
            Merge::Set => format!("{}: a set", path.join(".")),
            Merge::AtomicMap => format!("{}: one value", path.join(".")),
        });
        lines.collect()
    }

    /// How the list at a path is merged; `None` for an atomic one.
    pub fn list(&self, path: &FieldPath) -> Option<&Merge> {
        self.fields.get(&path.0)
    }

    pub(crate) fn is_atomic_map(&self, path: &FieldPath) -> bool {
        self.fields.get(&path.0) == Some(&Merge::AtomicMap)
    }

    /// Whether an unset field in an atomic list or map has the value that the server sets. The path leads to the value in
    /// the live object, as `live` finds it.
    pub(crate) fn is_filled(&self, path: &FieldPath, value: &Value, live: &Live<'_, '_>) -> bool {
        match self.filled.get(&path.0) {
            Some(Filled::With(filled)) => self.is_filled_with(filled, path, value, live),
            Some(Filled::Copied(maps)) => beside(maps, path, live) == Some(value),
            None => false,
        }
    }

    fn is_filled_with(&self, filled: &Value, path: &FieldPath, value: &Value, live: &Live<'_, '_>) -> bool {
        let (Value::Object(filled), Value::Object(map)) = (filled, value) else { return filled == value };
        // In a map that was filled in, more may be.
        filled.keys().all(|key| map.contains_key(key))
            && map.iter().all(|(key, value)| match filled.get(key) {
                Some(filled) => self.is_filled_with(filled, &path.key(key), value, live),
                None => self.is_filled(&path.key(key), value, live),
            })
    }
}

/// The value under the last key of the path, in the first of these sibling maps that has it.
fn beside<'l>(maps: &[&str], path: &FieldPath, live: &Live<'_, 'l>) -> Option<&'l Value> {
    let [around @ .., _, Segment::Key(key)] = path.0.as_slice() else { return None };
    let around = FieldPath(around.to_vec());
    maps.iter().find_map(|map| live(&around.key(map).key(key)))
}

struct Reader<'a> {
    schemas: &'a Map<String, Value>,
    /// The definitions that are being read, by name.
    open: Vec<&'a str>,
    /// The number of nested parts since the last field.
    nested: usize,
    /// The remaining cost.
    left: usize,
    path: Vec<String>,
    /// Whether the path is within an atomic list or map.
    is_owned: bool,
    /// Whether the field says that its map is granular, whatever the referenced schema says.
    is_granular: bool,
    said: Draft,
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

    /// Spends a cost if it remains.
    fn may_spend(&mut self, cost: usize) -> bool {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Spends the cost of a stored path and `more`, if it remains.
    fn may_keep(&mut self, more: usize) -> bool {
        let cost: usize = self.path.iter().map(|step| step.len() + VISIT).sum();
        self.may_spend(cost + more)
    }

    fn keep(&mut self, merge: Merge) {
        if !self.is_owned && self.may_keep(0) {
            self.said.fields.insert(self.path.clone(), merge);
        }
    }

    fn keep_default(&mut self, value: &Value) {
        if self.is_owned && self.may_keep(value.to_string().len()) {
            self.said.filled.insert(self.path.clone(), Filled::With(value.clone()));
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
        let around = (self.is_owned, self.is_granular);
        match schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
            Some("granular") => self.is_granular = true,
            Some("atomic") if !self.is_granular => {
                self.keep(Merge::AtomicMap);
                self.is_owned = true;
            }
            Some(_) | None => {}
        }
        self.read_below(schema);
        (self.is_owned, self.is_granular) = around;
    }

    fn read_below(&mut self, schema: &'a Value) {
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.read(part);
        }
        if let Some(items) = schema.get("items") {
            match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("map") => match self.keys(schema, items) {
                    Some(keys) => self.keep(Merge::ByKeys(keys)),
                    None => return,
                },
                Some("set") => self.keep(Merge::Set),
                Some(_) | None => self.is_owned = true,
            }
            return self.below(ANY, items);
        }
        for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            // Metadata is the same for all kinds, and status is not compared.
            if !self.path.is_empty() || !matches!(key.as_str(), "metadata" | "status") {
                self.below(key, property);
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            self.below(ANY, values);
        }
    }

    fn below(&mut self, step: &str, schema: &'a Value) {
        if !self.may_spend(step.len()) {
            return;
        }
        let (nested, is_granular) = (std::mem::take(&mut self.nested), std::mem::take(&mut self.is_granular));
        self.path.push(step.to_owned());
        // Items and values have no defaults.
        if let Some(default) = schema.get("default").filter(|_| step != ANY) {
            self.keep_default(default);
        }
        self.read(schema);
        self.path.pop();
        (self.nested, self.is_granular) = (nested, is_granular);
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

    /// The properties of list items, which may be behind one reference.
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
    fn schema_decides_how_lists_and_maps_merge() {
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
        assert!(schema.is_atomic_map(&spec(&["selector"])));
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
        let own = schema.fields.0.iter().filter(|(path, merge)| path[0] == "spec" && *merge == Merge::Set);
        own.map(|(path, _)| path.join(".")).collect()
    }

    fn set() -> Value {
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {}})
    }

    #[test]
    fn nested_schema_references_are_followed() {
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
        let schema = of(reference("List"), [("List".to_owned(), list)]);
        assert_eq!(schema.fields.0.len(), Schema::default().fields.0.len() + 1);
        assert_eq!(of(reference("Missing"), []), Schema::default());
    }

    #[test]
    fn field_overrides_map_type_of_schema() {
        let pair = json!({"x-kubernetes-map-type": "atomic", "properties": {"inner": reference("Pair")}});
        let shared = json!({"allOf": [reference("Pair")], "x-kubernetes-map-type": "granular"});
        let spec = json!({"properties": {"own": {"allOf": [reference("Pair")]}, "shared": shared}});
        let schema = of(spec, [("Pair".to_owned(), pair)]);
        let is_atomic = |key: &str| schema.is_atomic_map(&FieldPath::of_keys(["spec", key]));
        assert!(is_atomic("own") && !is_atomic("shared"));
    }

    #[test]
    fn recursive_schema_is_read_to_limit() {
        // Each refers to the next twice: all paths are 2^40.
        let name = "n".repeat(100);
        let twice =
            |n: usize| json!({"properties": {"a": reference(n + 1), "tags": set(), (name.clone()): reference(n + 1)}});
        let others = (1..=40).map(|n| (n.to_string(), twice(n)));
        let schema = of(reference(1), others);
        let kept: usize = schema.fields.0.iter().flat_map(|(path, _)| path).map(String::len).sum();
        assert!((1..LARGEST).contains(&kept), "{kept} bytes are kept");

        // A list whose keys are too many has none, rather than some of them.
        let keys: Vec<String> = (0..LARGEST / VISIT).map(|n| n.to_string()).collect();
        let list =
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": {}});
        assert_eq!(of(list, []), Schema::default());
    }

    #[test]
    fn additional_properties_do_not_apply_to_named_ones() {
        let schema = of(
            json!({"properties": {"named": {"properties": {"own": set()}}, "plain": {}},
                "additionalProperties": {"properties": {"any": set()}}}),
            [],
        );
        let is_set = |keys: [&str; 3]| schema.list(&FieldPath::of_keys(keys)) == Some(&Merge::Set);
        assert!(is_set(["spec", "named", "own"]) && is_set(["spec", "other", "any"]));
        assert!(!is_set(["spec", "named", "any"]) && !is_set(["spec", "other", "own"]));
        assert_eq!(schema.list(&FieldPath::of_keys(["spec", "named"])), None);
        assert_eq!(schema.list(&FieldPath::of_keys(["spec", "named", "own"]).index(0)), None);
    }

    #[test]
    fn map_lookup_is_fast() {
        let atomic = json!({"x-kubernetes-map-type": "atomic"});
        let many: Map<String, Value> = (0..30_000).map(|n| (format!("f{n:05}"), atomic.clone())).collect();
        let schema = of(json!({ "properties": many }), []);
        let path = |key: &str| FieldPath::of_keys(["spec", key]);
        let start = std::time::Instant::now();
        for n in 0..30_000 {
            assert!(schema.is_atomic_map(&path(&format!("f{n:05}"))) && !schema.is_atomic_map(&path(&format!("g{n}"))));
        }
        // One after the other takes minutes.
        assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
    }
}
