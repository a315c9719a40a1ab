//! Objects of any kind that packages take values from, and the permissions of the users who name them.
//!
//! The server reads these objects by its own rights. So the author of a PackageVariant or a PackageVariantSet needs `get` on each
//! kind, and Secrets are never read.

use std::sync::Arc;

use stoa_machinery::{ApiError, Registry, RequestContext, definition::Scope, registry::Store};
use stoa_types::porchconfig::InjectionPoint;

use crate::{
    cluster::Cluster,
    lookup::{self, Lookup},
};

/// The apiVersion and the kind of ConfigMaps, which injectors name without saying so.
const CONFIG_MAP: (&str, &str) = ("v1", "ConfigMap");

/// The group of an apiVersion; that of core kinds is empty.
fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// Rejects kinds whose objects never become a part of a package.
///
/// # Errors
///
/// 403 for Secrets.
pub fn refuse_secrets((api_version, kind): (&str, &str)) -> Result<(), ApiError> {
    if kind == "Secret" && group(api_version).is_empty() {
        let why = "objects of kind Secret are never copied into packages; name a ConfigMap or another kind";
        return Err(ApiError::new(403, "Forbidden", why));
    }
    Ok(())
}

/// The store of a kind whose objects are in namespaces, if this server has it.
pub fn store_of_kind<'r>(registry: &'r Registry, (api_version, kind): (&str, &str)) -> Option<&'r Arc<Store>> {
    registry.stores().find(|store| {
        let definition = store.definition();
        definition.kind == kind && definition.api_version() == api_version && definition.scope != Scope::Cluster
    })
}

/// The apiVersion and the kind of the objects that an injector reads: ConfigMaps, or the kind that it names by group, version
/// and kind. Nothing where one of the three is absent.
pub fn kind_of_injector(point: &InjectionPoint) -> Option<(String, String)> {
    let InjectionPoint { group, version, kind } = point;
    match (group.as_deref(), version.as_deref(), kind.as_deref()) {
        (None | Some(""), None | Some("v1"), None | Some("ConfigMap")) => {
            let (version, kind) = CONFIG_MAP;
            Some((version.to_owned(), kind.to_owned()))
        }
        (Some(""), Some(version), Some(kind)) => Some((version.to_owned(), kind.to_owned())),
        (Some(group), Some(version), Some(kind)) => Some((format!("{group}/{version}"), kind.to_owned())),
        (_, _, _) => None,
    }
}

/// Requires the permission to read the objects of a kind in a namespace.
///
/// # Errors
///
/// 403 that names the verb and the resource, or for Secrets; 404 for a kind that does not exist.
pub(crate) async fn require_kind(
    context: &RequestContext,
    (lookup, cluster): (&Lookup, &dyn Cluster),
    namespace: &str,
    (api_version, kind): (&str, &str),
) -> Result<(), ApiError> {
    refuse_secrets((api_version, kind))?;
    let plural = plural((lookup, cluster), (api_version, kind)).await?;
    lookup::require_get(context, (group(api_version), &plural), namespace, "").await
}

/// The plural noun of a kind, by which permissions name it.
async fn plural((lookup, cluster): (&Lookup, &dyn Cluster), kind: (&str, &str)) -> Result<String, ApiError> {
    // A standalone server has no ConfigMaps, and asks for the permission nevertheless.
    if kind == CONFIG_MAP {
        return Ok("configmaps".to_owned());
    }
    let registry = lookup.registry()?;
    if let Some(store) = store_of_kind(&registry, kind) {
        return Ok(store.definition().plural.clone());
    }
    cluster.plural(kind.0, kind.1).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_rejected_by_any_spelling_of_their_group() {
        for (api_version, kind, expected) in [
            ("v1", "Secret", 403),
            ("/v1", "Secret", 403),
            ("v1", "ConfigMap", 0),
            ("platform.example.com/v1", "Secret", 0),
        ] {
            let code = refuse_secrets((api_version, kind)).map_or_else(|error| error.code(), |()| 0);
            assert_eq!(code, expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn injector_reads_config_maps_or_a_kind_in_full() {
        let of = |group: Option<&str>, version: Option<&str>, kind: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let (group, version, kind) = (text(group), text(version), text(kind));
            kind_of_injector(&InjectionPoint { group, version, kind })
        };
        let found = |version: &str, kind: &str| Some((version.to_owned(), kind.to_owned()));
        assert_eq!(of(None, None, None), found("v1", "ConfigMap"));
        assert_eq!(of(Some(""), Some("v1"), Some("ConfigMap")), found("v1", "ConfigMap"));
        assert_eq!(of(Some("example.com"), Some("v1"), Some("Network")), found("example.com/v1", "Network"));
        assert_eq!(of(Some(""), Some("v1"), Some("Service")), found("v1", "Service"));
        for absent in [of(None, None, Some("Secret")), of(None, Some("v1"), Some("Secret")), of(Some("a"), None, None)]
        {
            assert_eq!(absent, None);
        }
    }
}
