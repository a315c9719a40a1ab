//! Objects of a namespace by kind: those of this server, and those of the cluster around it.

use serde_json::Value;
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_runs::Services;

/// The objects of a kind in a namespace, by label.
///
/// # Errors
///
/// 400 for a selector that does not parse, 403 where the server may not list them, and 404 for a kind that does not exist.
pub(crate) async fn objects(
    services: &Services,
    namespace: &str,
    (api_version, kind): (&str, &str),
    label_selector: &str,
) -> Result<Vec<Value>, ApiError> {
    let registry = services.lookup.registry()?;
    let own = registry.stores().find(|store| {
        let definition = store.definition();
        definition.kind == kind && definition.api_version() == api_version
    });
    let Some(store) = own else {
        return services.cluster.objects(namespace, api_version, kind, label_selector).await;
    };
    let options = ListOptions { label_selector: Some(label_selector.to_owned()), ..ListOptions::default() };
    let list = store.list(Some(namespace), &options).await?;
    list.items.iter().map(|stored| stored.decode::<Value>().map_err(ApiError::internal)).collect()
}
