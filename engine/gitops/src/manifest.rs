//! The file of an object: its path and its content.

use std::fmt::Write as _;

use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use stoa_engine::{ObjectRef, Owner, Resource, sensitive};
use stoa_kubernetes_model::default_namespace::lacks_namespace;
use stoa_kubernetes_model::normalize::remove_server_fields;
use stoa_runtime::{RuntimeError, SECRET_IN_THE_OPEN};
use stoa_yaml::{Document, Limits};

use crate::bounded::LARGEST_FILE;

/// API groups of Kubernetes itself, in which no two kinds have the same name. Groups of others are
/// part of the file's name.
const BUILT_IN: [&str; 17] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// The longest name of a file, in bytes, that can be checked out everywhere.
const LONGEST_FILE_NAME: usize = 255;
/// The folder of namespaced objects without a namespace.
const DEFAULT: &str = "_default";
/// The folder of other objects that name no namespace.
const CLUSTER: &str = "_cluster";

/// The path of an object: `<directory>/<namespace>/<kind>-<name>.yaml`. Without a namespace the folder is `_cluster`,
/// or `_default` for a namespaced kind. For groups that are not built in the file is `<kind>_<group>_<name>.yaml`.
///
/// Kinds are letters and digits, and groups contain no underscore, so that no two objects share a file.
pub(crate) fn path(directory: &str, object: &ObjectRef) -> String {
    let unnamed = if lacks_namespace(object) { DEFAULT } else { CLUSTER };
    let mut path = String::new();
    if !directory.is_empty() {
        path.push_str(directory);
        path.push('/');
    }
    path.push_str(if object.namespace.is_empty() { unnamed } else { &object.namespace });
    path.push('/');
    path.push_str(&object.kind.to_lowercase());
    if BUILT_IN.contains(&object.group.as_str()) {
        path.push('-');
    } else {
        let _ = write!(path, "_{}_", object.group);
    }
    for byte in object.name.bytes() {
        // Names of roles contain colons and capitals, which not every file system distinguishes.
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_') {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path.push_str(".yaml");
    path
}

/// An object that may be written.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The object with its owner annotation, without status and other server fields.
    pub(crate) object: Map<String, Value>,
    /// Its identity.
    pub(crate) reference: ObjectRef,
}

impl Manifest {
    pub(crate) fn of(resource: &Resource, owner: &Owner) -> Result<Self, RuntimeError> {
        let invalid = |message: &str, field: &str| RuntimeError::Invalid {
            message: message.to_owned(),
            field: Some(field.to_owned()),
        };
        let reference = ObjectRef::of(&resource.attributes)
            .ok_or_else(|| invalid("an object needs apiVersion, kind and metadata.name", "attributes"))?;
        if reference.kind.is_empty() || !reference.kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(invalid("a kind is made of letters and digits", "attributes.kind"));
        }
        let is_path = |text: &str| text == "." || text == ".." || text.contains(['/', '\\', '\0']);
        for (text, field) in [
            (&reference.group, "attributes.apiVersion"),
            (&reference.namespace, "attributes.metadata.namespace"),
            (&reference.name, "attributes.metadata.name"),
        ] {
            if is_path(text) {
                return Err(invalid("this cannot be part of a file's name", field));
            }
        }
        if reference.group.contains('_') || reference.namespace.contains(['_', '.']) || reference.name.is_empty() {
            return Err(invalid("the group, namespace or name is not valid in Kubernetes", "attributes"));
        }
        if path("", &reference).rsplit('/').next().is_some_and(|file| file.len() > LONGEST_FILE_NAME) {
            let message = "the name of its file would be too long; each colon and capital letter counts three times";
            return Err(invalid(message, "attributes.metadata.name"));
        }
        let open = sensitive::inherent(&resource.attributes);
        if let Some(field) = open.first().filter(|_| reference.is_secret()) {
            return Err(invalid(SECRET_IN_THE_OPEN, &format!("attributes.{field}")));
        }
        let mut object = owner.marked(&resource.attributes);
        remove_server_fields(&mut object);
        Ok(Self { object, reference })
    }
}

/// The file of an object: YAML with what identifies it first and all other keys sorted.
pub(crate) fn render(object: &Map<String, Value>) -> Result<Vec<u8>, RuntimeError> {
    let unfit = |message: String| RuntimeError::Invalid { message, field: None };
    let text = serde_saphyr::to_string(&Ordered::Object(object, &["apiVersion", "kind", "metadata"]))
        .map_err(|err| unfit(format!("the object cannot be written as YAML: {err}")))?;
    Ok(text.into_bytes())
}

/// The maximum size of a document: that of a manifest in a source.
const LIMITS: Limits = Limits { depth: 100, values: 3_000_000, documents: 1, copied: 8 << 20 };

/// The object in a document, as kubectl reads it.
pub(crate) fn parse(path: &str, bytes: &[u8]) -> Result<Map<String, Value>, RuntimeError> {
    let invalid = |why: String| RuntimeError::Invalid { message: format!("{path} {why}"), field: None };
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not text".to_owned()))?;
    match stoa_yaml::first(text, &LIMITS) {
        Ok(Some(Document { value: Value::Object(object), .. })) => Ok(object),
        Ok(_) => Err(invalid("is not an object: it is not a map".to_owned())),
        Err(err) => Err(invalid(format!("is not an object: {err}"))),
    }
}

/// The error of an oversized file.
pub(crate) fn too_large(path: &str) -> RuntimeError {
    RuntimeError::Invalid { message: format!("{path} is larger than {} MiB", LARGEST_FILE >> 20), field: None }
}

/// JSON with some keys first and the others in the order of their bytes.
enum Ordered<'a> {
    Object(&'a Map<String, Value>, &'static [&'static str]),
    Value(&'a Value, &'static [&'static str]),
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(map, first) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| {
                    (first.iter().position(|it| it == key).unwrap_or(first.len()), key.as_bytes())
                });
                let mut out = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    // Below metadata the names come first, below everything else nothing does.
                    let inner: &'static [&'static str] =
                        if key == "metadata" && !first.is_empty() { &["name", "namespace"] } else { &[] };
                    out.serialize_entry(key, &Ordered::Value(value, inner))?;
                }
                out.end()
            }
            Self::Value(Value::Object(map), first) => Ordered::Object(map, first).serialize(serializer),
            Self::Value(Value::Array(items), _) => {
                let mut out = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    out.serialize_element(&Ordered::Value(item, &[]))?;
                }
                out.end()
            }
            Self::Value(scalar, _) => scalar.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests;
