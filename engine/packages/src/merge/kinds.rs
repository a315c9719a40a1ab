//! The lists of kinds: which fields identify the items of a list.
//!
//! Built-in kinds have the rules of `stoa-engine`, and custom kinds those of their definition in the package.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use stoa_engine::FieldPath;
use stoa_engine::object::split_api_version;
use stoa_engine::path::Segment;
use stoa_engine::schema::{ListKey, Merge, Schema};

use super::Sides;
use super::lists::Identity;

/// The fields that identify the items of a list without a rule, if all items have one.
const NAMES: &[&str] = &["name"];

/// The lists of one kind.
#[derive(Clone, Debug)]
pub struct ListTypes {
    schema: Arc<Schema>,
    names: &'static [&'static str],
    /// Whether `pipeline` has lists of functions.
    has_functions: bool,
}

impl Default for ListTypes {
    fn default() -> Self {
        Self { schema: Arc::default(), names: NAMES, has_functions: false }
    }
}

impl ListTypes {
    /// The lists of a Kptfile.
    pub(crate) fn of_kptfile() -> Self {
        Self { names: &["name", "type", "conditionType"], has_functions: true, ..Self::default() }
    }

    /// The identity of the items of these lists; `None` if the list is one value.
    pub(super) fn identity(&self, at: &FieldPath, lists: Sides<&[Value]>) -> Option<Identity> {
        let candidates = match self.schema.list(at) {
            Some(Merge::ByKeys(keys)) => vec![Identity::Fields(keys.clone())],
            Some(Merge::Set) => vec![Identity::Value],
            Some(Merge::AtomicMap) | None => {
                let is_pipeline = self.has_functions && at.first_key() == Some("pipeline") && at.0.len() == 2;
                let function = is_pipeline.then_some(Identity::Function);
                self.names.iter().map(|name| by_name(name)).chain(function).collect()
            }
        };
        let fits = |identity: &Identity| {
            [lists.origin, lists.upstream, lists.local].into_iter().all(|list| identity.of_all(list).is_some())
        };
        candidates.into_iter().find(fits)
    }

    /// Which item of an old list each item of a new one was: that of the same identity, or else an equal one. The path has the
    /// keys to the list, and `*` for an item.
    pub fn pairs(&self, path: &[String], old: &[Value], new: &[Value]) -> Vec<Option<usize>> {
        let segment = |key: &String| if key == "*" { Segment::Index(0) } else { Segment::Key(key.clone()) };
        let at = FieldPath(path.iter().map(segment).collect());
        let identity = self.identity(&at, Sides { origin: old, upstream: new, local: &[] });
        let keys = |items: &[Value]| match &identity {
            Some(identity) => identity.of_all(items).unwrap_or_default(),
            None => items.iter().map(|item| vec![item.to_string()]).collect(),
        };
        let mut positions: HashMap<Vec<String>, VecDeque<usize>> = HashMap::new();
        for (position, key) in keys(old).into_iter().enumerate() {
            positions.entry(key).or_default().push_back(position);
        }
        keys(new).iter().map(|key| positions.get_mut(key)?.pop_front()).collect()
    }
}

fn by_name(name: &str) -> Identity {
    Identity::Fields(vec![ListKey { name: name.to_owned(), default: None }])
}

/// The definitions of custom kinds in a package.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    /// CustomResourceDefinitions by group and kind.
    custom: BTreeMap<(String, String), Value>,
    read: BTreeMap<(String, String), ListTypes>,
}

impl Definitions {
    /// Adds an object if it is a CustomResourceDefinition. The first one of a kind counts.
    pub fn add(&mut self, object: &Value) {
        if object["kind"] != "CustomResourceDefinition" {
            return;
        }
        let spec = &object["spec"];
        if let (Some(group), Some(kind)) = (spec["group"].as_str(), spec["names"]["kind"].as_str()) {
            let key = (group.to_owned(), kind.to_owned());
            self.custom.entry(key).or_insert_with(|| object.clone());
        }
    }

    /// The lists of an object's kind.
    pub fn lists(&mut self, object: &Value) -> ListTypes {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let key = (text("apiVersion"), text("kind"));
        if let Some(lists) = self.read.get(&key) {
            return lists.clone();
        }
        let built_in = object.as_object().and_then(Schema::built_in).cloned();
        let schema = built_in.or_else(|| self.custom_schema(&key.0, &key.1));
        let lists = ListTypes { schema: Arc::new(schema.unwrap_or_default()), ..ListTypes::default() };
        self.read.insert(key, lists.clone());
        lists
    }

    fn custom_schema(&self, api_version: &str, kind: &str) -> Option<Schema> {
        let (group, version) = split_api_version(api_version);
        let definition = self.custom.get(&(group.to_owned(), kind.to_owned()))?;
        let versions = definition["spec"]["versions"].as_array()?;
        let of_version = versions.iter().find(|it| it["name"] == version)?;
        let mut schema = of_version["schema"]["openAPIV3Schema"].clone();
        let named = json!([{"group": group, "version": version, "kind": kind}]);
        schema.as_object_mut()?.insert("x-kubernetes-group-version-kind".to_owned(), named);
        let document = json!({"components": {"schemas": {"it": schema}}});
        Schema::of_kind(&document, group, version, kind)
    }
}
