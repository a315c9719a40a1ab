//! The documents of discovery, legacy and aggregated.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use base64::Engine;
use serde::Serialize;
use sha2::{Digest, Sha256};
use stoa_meta::definition::{ResourceDefinition, Scope, Subresource};

use super::types::{
    APIGroup, APIGroupDiscovery, APIGroupDiscoveryList, APIGroupList, APIResource, APIResourceDiscovery,
    APIResourceList, APISubresourceDiscovery, APIVersionDiscovery, APIVersions, GroupVersionForDiscovery,
    GroupVersionKind, Metadata, TypeMeta,
};
use crate::document::Document;

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

fn line(value: &impl Serialize) -> Document {
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
            let versions = group.versions.iter().map(|(version, _)| *version).collect();
            let root =
                APIVersions { type_meta: TypeMeta::v1("APIVersions"), versions, server_address_by_client_cidrs: [] };
            documents.insert("/api".to_owned(), line(&root));
        } else {
            let document = APIGroup { type_meta: Some(TypeMeta::v1("APIGroup")), ..api_group(group) };
            documents.insert(format!("/apis/{}", group.name), line(&document));
        }
    }
    let listed = groups.iter().filter(|group| !group.name.is_empty()).map(api_group).collect();
    let root = APIGroupList { type_meta: TypeMeta::v1("APIGroupList"), groups: listed };
    documents.insert("/apis".to_owned(), line(&root));
    documents
}

fn api_group<'a>(group: &Group<'a>) -> APIGroup<'a> {
    let version =
        |version: &'a str| GroupVersionForDiscovery { group_version: group_version(group.name, version), version };
    let versions: Vec<_> = group.versions.iter().map(|(name, _)| version(name)).collect();
    let preferred_version = versions.first().cloned();
    APIGroup { type_meta: None, name: group.name, versions, preferred_version }
}

fn resource_list<'a>(group: &str, version: &str, resources: &[&'a ResourceDefinition]) -> APIResourceList<'a> {
    let mut rows: Vec<_> = resources.iter().flat_map(|definition| rows(definition)).collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    APIResourceList {
        type_meta: TypeMeta::v1("APIResourceList"),
        group_version: group_version(group, version),
        resources: rows,
    }
}

fn rows(definition: &ResourceDefinition) -> Vec<APIResource<'_>> {
    let row = APIResource {
        name: definition.plural.clone(),
        singular_name: &definition.singular,
        namespaced: definition.scope == Scope::Namespaced,
        kind: &definition.kind,
        verbs: sorted(&definition.verbs),
        short_names: &definition.short_names,
        categories: &definition.categories,
        // What is not kept is not stored in any version.
        storage_version_hash: definition.ephemeral.is_none().then(|| storage_version_hash(definition)),
        ..APIResource::default()
    };
    let subresource = |name: &str| APIResource {
        name: format!("{}/{name}", definition.plural),
        namespaced: row.namespaced,
        kind: &definition.kind,
        verbs: STATUS_VERBS.to_vec(),
        ..APIResource::default()
    };
    let parts = definition.parts.iter().map(|part| part.name);
    let mut subresources: Vec<_> =
        definition.has_status.then_some("status").into_iter().chain(parts).map(subresource).collect();
    if definition.scale.is_some() {
        let GroupVersionKind { group, version, kind } = SCALE;
        subresources.push(APIResource { group, version, kind, ..subresource("scale") });
    }
    for Subresource { name, kind, verbs, .. } in &definition.subresources {
        let (group, version, kind) = *kind;
        let own = (group, version) == (definition.group.as_str(), definition.version.as_str());
        let (group, version) = if own { ("", "") } else { (group, version) };
        subresources.push(APIResource { group, version, kind, verbs: sorted(verbs), ..subresource(name) });
    }
    std::iter::once(row).chain(subresources).collect()
}

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const SCALE: GroupVersionKind<'static> = GroupVersionKind { group: "autoscaling", version: "v1", kind: "Scale" };

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
        let type_meta = TypeMeta { kind: "APIGroupDiscoveryList", api_version: "apidiscovery.k8s.io/v2" };
        let items = groups.iter().filter(|group| group.name.is_empty() == core).map(group_discovery).collect();
        line(&APIGroupDiscoveryList { type_meta, metadata: Metadata::default(), items })
    };
    HashMap::from([("/api", list(true)), ("/apis", list(false))])
}

fn group_discovery<'a>(group: &Group<'a>) -> APIGroupDiscovery<'a> {
    let version = |(version, resources): &(&'a str, Vec<&'a ResourceDefinition>)| APIVersionDiscovery {
        version,
        resources: resources.iter().map(|definition| resource_discovery(definition)).collect(),
        freshness: "Current",
    };
    APIGroupDiscovery {
        metadata: Metadata { name: group.name },
        versions: group.versions.iter().map(version).collect(),
    }
}

fn resource_discovery(definition: &ResourceDefinition) -> APIResourceDiscovery<'_> {
    // Typed servers leave out what the group and version above say already.
    let own = GroupVersionKind { group: "", version: "", kind: &definition.kind };
    let subresource = |subresource, response_kind, verbs| APISubresourceDiscovery { subresource, response_kind, verbs };
    let parts = definition.parts.iter().map(|part| part.name);
    let mut subresources: Vec<_> = definition
        .has_status
        .then_some("status")
        .into_iter()
        .chain(parts)
        .map(|name| subresource(name, own, STATUS_VERBS.to_vec()))
        .chain(definition.subresources.iter().map(|Subresource { name, kind, verbs, .. }| {
            let (group, version, kind) = *kind;
            subresource(name, GroupVersionKind { group, version, kind }, sorted(verbs))
        }))
        .collect();
    if definition.scale.is_some() {
        subresources.push(subresource("scale", SCALE, STATUS_VERBS.to_vec()));
    }
    subresources.sort_by_key(|subresource| subresource.subresource);
    APIResourceDiscovery {
        resource: &definition.plural,
        response_kind: own,
        scope: match definition.scope {
            Scope::Cluster => "Cluster",
            Scope::Namespaced => "Namespaced",
        },
        singular_resource: &definition.singular,
        verbs: sorted(&definition.verbs),
        short_names: &definition.short_names,
        categories: &definition.categories,
        subresources,
    }
}
