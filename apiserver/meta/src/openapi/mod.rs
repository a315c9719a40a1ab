//! Components of OpenAPI documents: the schemas of kinds, of their lists, and of the kinds that all groups share.
//!
//! Start at [`schemas::components`]. Server-side apply and strategic merge patches read [`object_meta`]. Follows
//! `k8s.io/kube-openapi/pkg/common` and `pkg/generators`. The documents with their paths are in `stoa-serving`.

mod dialect;
pub mod meta;
pub mod schemas;

pub use self::meta::object_meta;

/// The components that a kind and its list need, for tests that pass them to Kubernetes' own libraries.
#[cfg(test)]
pub fn components(
    definition: &std::sync::Arc<crate::definition::ResourceDefinition>,
) -> serde_json::Map<String, serde_json::Value> {
    let (group, version, kind) = (&definition.group, &definition.version, &definition.kind);
    let roots = [kind.clone(), format!("{kind}List")]
        .map(|kind| (kind.clone(), schemas::reference(&schemas::name(group, version, &kind))));
    schemas::components(std::slice::from_ref(definition)).referred_to(&roots.into_iter().collect())
}
