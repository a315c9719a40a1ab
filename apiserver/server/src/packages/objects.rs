//! Objects of a namespace by kind: those of this server, and those of the cluster around it.

use serde_json::Value;
use stoa_kinds::package_objects::{refuse_secrets, store_of_kind};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_runs::Services;

/// The objects of a kind in a namespace, by label.
///
/// # Errors
///
/// 400 for a selector that does not parse, 403 for Secrets and where the server may not list them, and 404 for a kind that does
/// not exist.
pub(crate) async fn objects(
    services: &Services,
    namespace: &str,
    (api_version, kind): (&str, &str),
    label_selector: &str,
) -> Result<Vec<Value>, ApiError> {
    refuse_secrets((api_version, kind))?;
    let registry = services.lookup.registry()?;
    let Some(store) = store_of_kind(&registry, (api_version, kind)) else {
        return services.cluster.objects(namespace, api_version, kind, label_selector).await;
    };
    let options = ListOptions { label_selector: Some(label_selector.to_owned()), ..ListOptions::default() };
    let list = store.list(Some(namespace), &options).await?;
    list.items.iter().map(|stored| stored.decode::<Value>().map_err(ApiError::internal)).collect()
}
