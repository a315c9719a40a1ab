//! The lists of kinds: which fields identify the items of a list.
//!
//! Built-in kinds have the rules of `stoa-engine`, and custom kinds those of their definition in the package.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use stoa_engine::FieldPath;
use stoa_engine::object::split_api_version;
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
}

impl Default for ListTypes {
    fn default() -> Self {
        Self { schema: Arc::default(), names: NAMES }
    }
}

impl ListTypes {
    /// The lists of a Kptfile.
    pub(crate) fn of_kptfile() -> Self {
        Self { names: &["name", "type", "conditionType"], ..Self::default() }
    }

    /// The identity of the items of these lists; `None` if the list is one value.
    pub(super) fn identity(&self, at: &FieldPath, lists: Sides<&[Value]>) -> Option<Identity> {
        let candidates = match self.schema.list(at) {
            Some(Merge::ByKeys(keys)) => vec![Identity::Fields(keys.clone())],
            Some(Merge::Set) => vec![Identity::Value],
            Some(Merge::AtomicMap) | None => self.names.iter().map(|name| by_name(name)).collect(),
        };
        let fits = |identity: &Identity| {
            [lists.origin, lists.upstream, lists.local].into_iter().all(|list| identity.of_all(list).is_some())
        };
        candidates.into_iter().find(fits)
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
        let lists = ListTypes { schema: Arc::new(schema.unwrap_or_default()), names: NAMES };
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
