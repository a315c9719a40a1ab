//! The components that all groups share: `ObjectMeta`, `Status` and the like.
//!
//! Their types describe themselves, though only with what OpenAPI v2 has. What v3 has besides, defaults and how lists are
//! merged, is as in `k8s.io/kubernetes/pkg/generated/openapi`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use k8s_openapi::apimachinery::pkg::{apis::meta::v1, version};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    dialect::{convert, with_default},
    schemas::{self, gvk},
};
use crate::definition::ResourceDefinition;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const KIND: &str = "x-kubernetes-group-version-kind";
/// The kinds that every group and version has for itself.
const IN_EVERY_GROUP: [&str; 2] = ["DeleteOptions", "WatchEvent"];
/// The kinds that are of no group, which is to say of core.
const IN_NO_GROUP: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// A reference to one of the components, such as `Status`.
pub fn reference(kind: &str) -> Value {
    schemas::reference(&format!("{META}{kind}"))
}

/// A reference to what `/version` answers.
pub fn version_info() -> Value {
    schemas::reference("io.k8s.apimachinery.pkg.version.Info")
}

/// The schema of `ObjectMeta` with all it refers to, and with what merging has to know of it.
pub fn object_meta() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let mut schema = reference("ObjectMeta");
        schema["components"] = json!({ "schemas": described() });
        schema
    });
    &SCHEMA
}

/// The components, with the groups and versions that these resources are of.
pub fn components(definitions: &[Arc<ResourceDefinition>]) -> BTreeMap<String, Value> {
    let mut components = described().clone();
    let mut versions: BTreeSet<(&str, &str)> =
        definitions.iter().map(|d| (d.group.as_str(), d.version.as_str())).collect();
    versions.insert(("", "v1"));
    for kind in IN_EVERY_GROUP {
        let kinds = versions.iter().map(|(group, version)| gvk(group, version, kind)).collect();
        tag(&mut components, kind, kinds);
    }
    for kind in IN_NO_GROUP {
        tag(&mut components, kind, vec![gvk("", "v1", kind)]);
    }
    components
}

/// Leaves out of the schemas of one group and version that kinds which every group has are of the others, too.
///
/// Follows `filterScopedGVKs` in `k8s.io/apiserver/pkg/server/routes/openapi.go`.
pub fn scope(schemas: &mut Map<String, Value>, group: &str, version: &str) {
    for kind in IN_EVERY_GROUP {
        let kinds = schemas.get_mut(&format!("{META}{kind}")).and_then(|schema| schema.get_mut(KIND));
        if let Some(Value::Array(kinds)) = kinds {
            kinds.retain(|is| *is == gvk(group, version, kind) || *is == gvk("", "v1", kind));
        }
    }
}

fn tag(components: &mut BTreeMap<String, Value>, kind: &str, kinds: Vec<Value>) {
    if let Some(schema) = components.get_mut(&format!("{META}{kind}")) {
        schema[KIND] = kinds.into();
    }
}

fn described() -> &'static BTreeMap<String, Value> {
    static COMPONENTS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(describe);
    &COMPONENTS
}

fn describe() -> BTreeMap<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    fn add<T: JsonSchema>(generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }
    add::<v1::APIGroupList>(&mut generator);
    add::<v1::APIResourceList>(&mut generator);
    add::<v1::APIVersions>(&mut generator);
    add::<v1::DeleteOptions>(&mut generator);
    add::<v1::ListMeta>(&mut generator);
    add::<v1::ObjectMeta>(&mut generator);
    add::<v1::Patch>(&mut generator);
    add::<v1::Status>(&mut generator);
    add::<v1::WatchEvent<()>>(&mut generator);
    add::<version::Info>(&mut generator);
    let types = generator.take_definitions(true);
    let mut components: BTreeMap<String, Value> =
        types.into_iter().map(|(name, schema)| (name, complete(convert(&schema)))).collect();
    for (pointer, extensions) in [
        (
            "ObjectMeta/properties/finalizers",
            json!({ "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge" }),
        ),
        (
            "ObjectMeta/properties/ownerReferences",
            json!({
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "uid",
            }),
        ),
        ("OwnerReference", json!({ "x-kubernetes-map-type": "atomic" })),
        // Structs that are always there.
        ("APIGroup/properties/preferredVersion", json!({ "default": {} })),
        ("Status/properties/metadata", json!({ "default": {} })),
        // The one field whose type says nothing of it.
        (
            "WatchEvent/properties/object",
            json!({ "description": "The object as it is now, or was when it was deleted; of an ERROR, its Status." }),
        ),
    ] {
        if let Some(schema) = at(&mut components, pointer) {
            if let (Value::Object(schema), Value::Object(extensions)) = (&mut *schema, extensions) {
                schema.extend(extensions);
            }
            // Nothing may stand beside a reference.
            *schema = convert(schema);
        }
    }
    // The two that Go's types have otherwise: a list with a type of its own, and a struct that may be left out.
    for (pointer, name) in [("APIResource/properties/verbs", "x-kubernetes-list-type"), ("Status", "required")] {
        if let Some(Value::Object(schema)) = at(&mut components, pointer) {
            schema.remove(name);
        }
    }
    components
}

/// What is at `<kind>/<pointer into its schema>`.
fn at<'a>(components: &'a mut BTreeMap<String, Value>, pointer: &str) -> Option<&'a mut Value> {
    let (kind, rest) = pointer.split_at(pointer.find('/').unwrap_or(pointer.len()));
    components.get_mut(&format!("{META}{kind}"))?.pointer_mut(rest)
}

/// Adds to a type what Go says of each of its fields: lists are atomic, and scalars that are always written have their
/// zero value when they were not.
fn complete(mut schema: Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if field["type"] == "array" {
            field["x-kubernetes-list-type"] = "atomic".into();
        } else if field["type"].is_string() && required.iter().any(|required| required == name) {
            *field = with_default(field.take());
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(kind: &str) -> &'static Value {
        &described()[&format!("{META}{kind}")]
    }

    #[test]
    fn fields_have_the_defaults_of_go() {
        let owner = &meta("OwnerReference")["properties"];
        assert_eq!(owner["uid"]["default"], "");
        assert!(owner["controller"].get("default").is_none());
        assert_eq!(meta("APIResource")["properties"]["namespaced"]["default"], false);
        let object = &meta("ObjectMeta")["properties"];
        assert_eq!(object["labels"]["additionalProperties"], json!({ "type": "string", "default": "" }));
        assert_eq!(object["ownerReferences"]["items"]["default"], json!({}));
        assert!(object["creationTimestamp"].get("default").is_none());
        let status = meta("Status");
        assert_eq!(status["properties"]["metadata"]["default"], json!({}));
        assert!(status["properties"]["details"].get("default").is_none());
        assert!(status.get("required").is_none());
    }

    #[test]
    fn lists_say_how_they_are_merged() {
        let list_type =
            |kind: &str, field: &str| meta(kind)["properties"][field].get("x-kubernetes-list-type").cloned();
        assert_eq!(list_type("DeleteOptions", "dryRun"), Some("atomic".into()));
        assert_eq!(list_type("ObjectMeta", "managedFields"), Some("atomic".into()));
        assert_eq!(list_type("ObjectMeta", "finalizers"), Some("set".into()));
        assert_eq!(list_type("ObjectMeta", "ownerReferences"), Some("map".into()));
        assert_eq!(list_type("APIResource", "verbs"), None);
    }
}
