//! The Spec: the wanted resources, in Kusion's format.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::conflict::FORCE;
use crate::moved::MOVED_FROM;
use crate::problem::{Problem, reason};
use crate::provider::ResourceMode;

/// An engine id, unique in a Spec: `apiVersion:Kind:namespace:name`, `apiVersion:Kind:name`, or
/// `providerNamespace:provider:resourceType:name`. Ids may contain dots, slashes and colons.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceId(pub String);

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ResourceId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl std::borrow::Borrow<str> for ResourceId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Which family of runtimes drives a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceType {
    /// A Kubernetes object. The workspace decides whether the Kubernetes or the GitOps runtime
    /// brings it there.
    #[default]
    Kubernetes,
    /// A resource of a Terraform provider.
    Terraform,
}

impl ResourceType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::Kubernetes, Self::Terraform];

    pub(crate) fn is_kubernetes(&self) -> bool {
        *self == Self::Kubernetes
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One wanted resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// Its id.
    pub id: ResourceId,
    /// The resource type.
    #[serde(rename = "type")]
    pub kind: ResourceType,
    /// The object for Kubernetes, or the arguments for Terraform, with unresolved references.
    pub attributes: Map<String, Value>,
    /// The ids it depends on explicitly.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub depends_on: Vec<ResourceId>,
    /// All other settings: `GVK`, `kubeConfig`, `provider`, [`mode`](crate::provider::MODE),
    /// [`kusionstack.io/import-id`](crate::import::IMPORT_ID),
    /// [`stoa.dev/take-over-from`](crate::owner::TAKE_OVER_FROM), [`stoa.dev/force-conflicts`](crate::conflict::FORCE),
    /// [`stoa.dev/recreate`](RECREATE), [`stoa.dev/delete-contents`](DELETE_CONTENTS),
    /// [`stoa.dev/ignore-fields`](crate::ignore::IGNORE_FIELDS), [`stoa.dev/timeout`](crate::timeout::TIMEOUT),
    /// [`stoa.dev/sensitive`](crate::declared::SENSITIVE),
    /// `healthPolicy` ….
    #[serde(default, skip_serializing_if = "Map::is_empty", deserialize_with = "null_as_default")]
    pub extensions: Map<String, Value>,
}

/// The extension or annotation of a resource that allows to delete and recreate it for an immutable change: `"true"`. Its
/// contents are lost then.
pub const RECREATE: &str = "stoa.dev/recreate";

/// The extension or annotation of a Namespace or CustomResourceDefinition that allows its deletion together with objects of
/// other owners: `"true"` or `"false"`. Stoa reads it from the record or the live object, since a deleted resource is not in the
/// Spec any more.
pub const DELETE_CONTENTS: &str = "stoa.dev/delete-contents";

/// The extension with the source file of a resource.
pub const FILE: &str = "stoa.dev/file";

/// The extension with the line of a resource in its source file, from 1, for problem reports.
pub const LINE: &str = "stoa.dev/line";

impl Resource {
    /// The extensions that are recorded with what is applied: all but the line, which is another one whenever something changes
    /// before the resource, and the former id, which counts until the record has the new one.
    pub fn recorded_extensions(&self) -> Map<String, Value> {
        let recorded = self.extensions.iter().filter(|(name, _)| ![LINE, MOVED_FROM].contains(&name.as_str()));
        recorded.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The file of the source that the resource was read from and the line in it, such as `web/all.yaml:7`.
    pub fn origin(&self) -> Option<String> {
        let file = self.extensions.get(FILE)?.as_str()?;
        let line = self.extensions.get(LINE).and_then(Value::as_u64);
        Some(line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}")))
    }

    /// Its mode, if it is a resource of a provider. A wrong one is reported where its provider is needed.
    pub fn mode(&self) -> ResourceMode {
        let mode = Some(&self.extensions).filter(|_| self.kind == ResourceType::Terraform).map(ResourceMode::named);
        mode.flatten().unwrap_or_default()
    }

    /// Whether it is a data source or an ephemeral resource, whose values are only read.
    pub fn is_only_read(&self) -> bool {
        self.mode() != ResourceMode::Managed
    }

    /// Whether it is an ephemeral resource, whose values are stored nowhere.
    pub fn is_ephemeral(&self) -> bool {
        self.mode() == ResourceMode::Ephemeral
    }

    /// The resource as messages about another one name it: its id, and where it was read from.
    pub fn named(&self) -> String {
        match self.origin() {
            Some(origin) => format!("{} in {origin}", self.id),
            None => self.id.0.clone(),
        }
    }

    /// Whether the [`setting`](Self::setting) of a name is `true`, as a bool or a text.
    pub fn is_set(&self, name: &str) -> bool {
        self.setting(name).and_then(switch) == Some(true)
    }

    /// Problems of flags that are neither true nor false.
    pub(crate) fn check_switches(&self) -> impl Iterator<Item = Problem> {
        [RECREATE, FORCE, DELETE_CONTENTS].into_iter().filter_map(|name| {
            let value = self.setting(name).filter(|value| !value.is_null() && switch(value).is_none())?;
            let message = format!("must be \"true\" or \"false\", not {value}");
            Some(Problem::new(reason::INVALID_RESOURCE, message).of(&self.id).at(setting_field(&self.extensions, name)))
        })
    }

    /// The value of a name in the extensions, or else in the annotations, which manifests have.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        setting(&self.extensions, &self.attributes, name)
    }
}

fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(is_set) => Some(*is_set),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// The field of a setting, if it is set.
pub(crate) fn setting_field(extensions: &Map<String, Value>, name: &str) -> String {
    let holder = if extensions.contains_key(name) { "extensions" } else { "attributes.metadata.annotations" };
    format!("{holder}[\"{name}\"]")
}

/// The value of a name in extensions, or else in the annotations of attributes.
pub fn setting<'r>(
    extensions: &'r Map<String, Value>,
    attributes: &'r Map<String, Value>,
    name: &str,
) -> Option<&'r Value> {
    let annotated = || attributes.get("metadata")?.get("annotations")?.get(name);
    extensions.get(name).or_else(annotated)
}

/// All wanted resources of one stack in one workspace.
///
/// [`Spec::validate`] finds its problems; [`Spec::digest`] identifies it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// The resources, in the order of the file; the order has no meaning.
    #[serde(default, deserialize_with = "null_as_default")]
    pub resources: Vec<Resource>,
    /// The secret store, as in Kusion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_store: Option<Value>,
    /// Settings of the workspace, as in Kusion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
}

impl Spec {
    /// The digest of the canonical JSON: `sha256:<hex>`. Of a Spec that has sensitive values it is one of them itself,
    /// since guesses at short ones can be compared with it.
    pub fn digest(&self) -> String {
        crate::digest::digest(self)
    }
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
