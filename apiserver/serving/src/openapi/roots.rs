//! The operations of discovery and of `/version`.
//!
//! Follows the routes in `k8s.io/apiserver/pkg/endpoints/discovery` and `pkg/server/routes/version.go`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use stoa_meta::{definition::ResourceDefinition, openapi::meta};

use super::{
    names::{camel_group, camel_version, group_tag, tag},
    paths::{JSON, MEDIA, responses},
};

/// The paths above those of groups and versions, by the document that they are in.
pub(super) fn roots<'a>(
    definitions: impl Iterator<Item = &'a ResourceDefinition>,
) -> BTreeMap<String, Map<String, Value>> {
    let of = |path: &str, operation: Value| Map::from_iter([(format!("/{path}/"), json!({ "get": operation }))]);
    let mut roots = BTreeMap::new();
    let version = operation("version", "getCodeVersion", "get the version information for this server");
    roots.insert("version".to_owned(), of("version", answering(version, &meta::version_info(), JSON)));
    let groups = operation("apis", "getAPIVersions", "get available API versions");
    roots.insert("apis".to_owned(), of("apis", answering(groups, &meta::reference("APIGroupList"), MEDIA)));
    for definition in definitions {
        let group = definition.group.as_str();
        let (tag, word) = (group_tag(group), camel_group(group));
        let (path, operation, answer) = match group {
            "" => {
                let id = format!("get{word}APIVersions");
                ("api".to_owned(), operation(&tag, &id, "get available API versions"), "APIVersions")
            }
            _ => {
                let id = format!("get{word}APIGroup");
                (format!("apis/{group}"), operation(&tag, &id, "get information of a group"), "APIGroup")
            }
        };
        let paths = of(&path, answering(operation, &meta::reference(answer), MEDIA));
        roots.insert(path, paths);
    }
    roots
}

pub(super) fn resource_list(group: &str, version: &str) -> Value {
    let id = format!("get{}APIResources", camel_version(group, version));
    let operation = operation(&tag(group, version), &id, "get available resources");
    answering(operation, &meta::reference("APIResourceList"), MEDIA)
}

fn operation(tag: &str, id: &str, description: &str) -> Value {
    json!({ "tags": [tag], "description": description, "operationId": id })
}

fn answering(mut operation: Value, schema: &Value, media: &[&str]) -> Value {
    operation["responses"] = responses(200, schema, media);
    operation
}
