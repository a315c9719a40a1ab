//! The documents themselves.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use base64::Engine;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    definition::{ResourceDefinition, Scope, Subresource},
    document::Document,
};

/// The resources of one group, version by version, the preferred version first.
struct Group<'a> {
    name: &'a str,
    versions: Vec<(&'a str, Vec<&'a ResourceDefinition>)>,
}

fn groups(definitions: &[Arc<ResourceDefinition>]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for definition in definitions {
        let at = groups.iter().position(|group| group.name == definition.group).unwrap_or_else(|| {
            groups.push(Group { name: &definition.group, versions: Vec::new() });
            groups.len() - 1
        });
        let versions = &mut groups[at].versions;
        match versions.iter_mut().find(|(version, _)| *version == definition.version) {
            Some((_, resources)) => resources.push(definition),
            None => versions.push((&definition.version, vec![definition])),
        }
    }
    for group in &mut groups {
        group.versions.sort_by_key(|(version, _)| Reverse(priority(version)));
        for (_, resources) in &mut group.versions {
            resources.sort_by(|a, b| a.plural.cmp(&b.plural));
        }
    }
    groups
}

/// How much a version is preferred: `v2` over `v1` over `v1beta2` over `v1alpha1` over any other name.
///
/// The order of `k8s.io/apimachinery/pkg/version.CompareKubeAwareVersionStrings`.
fn priority(version: &str) -> (u8, u64, u64, Reverse<&str>) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..end].parse().ok()?;
        let (stability, minor) = match &rest[end..] {
            "" => (3, "0"),
            rest if rest.starts_with("beta") => (2, &rest[4..]),
            rest if rest.starts_with("alpha") => (1, &rest[5..]),
            _ => return None,
        };
        let minor = if minor.is_empty() { 0 } else { minor.parse().ok()? };
        Some((stability, major, minor))
    };
    let (stability, major, minor) = parse().unwrap_or((0, 0, 0));
    (stability, major, minor, Reverse(version))
}

fn line(value: &Value) -> Document {
    Document::new(value).with_line_end()
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

pub(super) fn legacy(definitions: &[Arc<ResourceDefinition>]) -> HashMap<String, Document> {
    let groups = groups(definitions);
    let mut documents = HashMap::new();
    for group in &groups {
        for (version, resources) in &group.versions {
            let path = match group.name {
                "" => format!("/api/{version}"),
                name => format!("/apis/{name}/{version}"),
            };
            documents.insert(path, line(&resource_list(group.name, version, resources)));
        }
        if group.name.is_empty() {
            let versions: Vec<&str> = group.versions.iter().map(|(version, _)| *version).collect();
            let root = json!({ "kind": "APIVersions", "apiVersion": "v1", "versions": versions, "serverAddressByClientCIDRs": [] });
            documents.insert("/api".to_owned(), line(&root));
        } else {
            let mut document = api_group(group);
            document["kind"] = "APIGroup".into();
            document["apiVersion"] = "v1".into();
            documents.insert(format!("/apis/{}", group.name), line(&document));
        }
    }
    let listed: Vec<Value> = groups.iter().filter(|group| !group.name.is_empty()).map(api_group).collect();
    let root = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": listed });
    documents.insert("/apis".to_owned(), line(&root));
    documents
}

fn api_group(group: &Group<'_>) -> Value {
    let version = |version: &str| json!({ "groupVersion": group_version(group.name, version), "version": version });
    let versions: Vec<Value> = group.versions.iter().map(|(name, _)| version(name)).collect();
    json!({ "name": group.name, "versions": versions, "preferredVersion": versions.first() })
}

fn resource_list(group: &str, version: &str, resources: &[&ResourceDefinition]) -> Value {
    let mut rows: Vec<Value> = resources.iter().flat_map(|definition| rows(definition)).collect();
    rows.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": rows,
    })
}

/// The rows of a resource and its subresources.
fn rows(definition: &ResourceDefinition) -> Vec<Value> {
    let namespaced = definition.scope == Scope::Namespaced;
    let mut row = json!({
        "name": definition.plural,
        "singularName": definition.singular,
        "namespaced": namespaced,
        "kind": definition.kind,
        "verbs": sorted(&definition.verbs),
    });
    // What is not kept is not stored in any version.
    if definition.answered_by.is_none() {
        row["storageVersionHash"] = storage_version_hash(definition).into();
    }
    add_names(&mut row, definition);
    let mut rows = vec![row];
    let parts = definition.parts.iter().map(|part| part.name);
    for name in definition.has_status.then_some("status").into_iter().chain(parts) {
        rows.push(json!({
            "name": format!("{}/{name}", definition.plural),
            "singularName": "",
            "namespaced": namespaced,
            "kind": definition.kind,
            "verbs": STATUS_VERBS,
        }));
    }
    if definition.scale.is_some() {
        rows.push(json!({
            "name": format!("{}/scale", definition.plural),
            "singularName": "",
            "namespaced": namespaced,
            "group": "autoscaling",
            "version": "v1",
            "kind": "Scale",
            "verbs": STATUS_VERBS,
        }));
    }
    for subresource in &definition.subresources {
        let (group, version, kind) = subresource.kind;
        let mut row = json!({
            "name": format!("{}/{}", definition.plural, subresource.name),
            "singularName": "",
            "namespaced": namespaced,
            "kind": kind,
            "verbs": sorted(subresource.verbs),
        });
        if (group, version) != (definition.group.as_str(), definition.version.as_str()) {
            row["group"] = group.into();
            row["version"] = version.into();
        }
        rows.push(row);
    }
    rows
}

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

fn add_names(row: &mut Value, definition: &ResourceDefinition) {
    for (field, names) in [("shortNames", &definition.short_names), ("categories", &definition.categories)] {
        if !names.is_empty() {
            row[field] = names.as_slice().into();
        }
    }
}

fn sorted(verbs: &[&'static str]) -> Vec<&'static str> {
    let mut verbs = verbs.to_vec();
    verbs.sort_unstable();
    verbs
}

/// Tells clients whether two servers store the kind in the same version; as upstream's
/// `StorageVersionHash`.
fn storage_version_hash(definition: &ResourceDefinition) -> String {
    let kind = format!("{}/{}/{}", definition.group, definition.version, definition.kind);
    base64::engine::general_purpose::STANDARD.encode(&Sha256::digest(kind)[..8])
}

pub(super) fn aggregated(definitions: &[Arc<ResourceDefinition>]) -> HashMap<&'static str, Document> {
    let groups = groups(definitions);
    let list = |core: bool| {
        let items: Vec<Value> =
            groups.iter().filter(|group| group.name.is_empty() == core).map(group_discovery).collect();
        line(&json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }))
    };
    HashMap::from([("/api", list(true)), ("/apis", list(false))])
}

fn group_discovery(group: &Group<'_>) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|(version, resources)| {
            let resources: Vec<Value> = resources.iter().map(|definition| resource_discovery(definition)).collect();
            json!({ "version": version, "resources": resources, "freshness": "Current" })
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({ "name": group.name }) };
    json!({ "metadata": metadata, "versions": versions })
}

fn resource_discovery(definition: &ResourceDefinition) -> Value {
    // Typed servers leave out what the group and version above say already.
    let kind = json!({ "group": "", "version": "", "kind": definition.kind });
    let mut row = json!({
        "resource": definition.plural,
        "responseKind": kind,
        "scope": match definition.scope {
            Scope::Cluster => "Cluster",
            Scope::Namespaced => "Namespaced",
        },
        "singularResource": definition.singular,
        "verbs": sorted(&definition.verbs),
    });
    add_names(&mut row, definition);
    let mut subresources: Vec<Value> = definition.subresources.iter().map(subresource_discovery).collect();
    let parts = definition.parts.iter().map(|part| part.name);
    for name in definition.has_status.then_some("status").into_iter().chain(parts) {
        subresources.push(json!({ "subresource": name, "responseKind": kind, "verbs": STATUS_VERBS }));
    }
    if definition.scale.is_some() {
        let kind = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
        subresources.push(json!({ "subresource": "scale", "responseKind": kind, "verbs": STATUS_VERBS }));
    }
    if !subresources.is_empty() {
        subresources.sort_by(|a, b| a["subresource"].as_str().cmp(&b["subresource"].as_str()));
        row["subresources"] = subresources.into();
    }
    row
}

fn subresource_discovery(subresource: &Subresource) -> Value {
    let (group, version, kind) = subresource.kind;
    json!({
        "subresource": subresource.name,
        "responseKind": { "group": group, "version": version, "kind": kind },
        "verbs": sorted(subresource.verbs),
    })
}
