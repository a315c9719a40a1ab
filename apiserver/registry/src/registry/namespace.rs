//! The namespaces that a store serves, for `NamespaceLifecycle`.

use std::sync::Weak;

use async_trait::async_trait;
use stoa_meta::status::ApiError;

use super::Store;
use crate::admission::{NamespaceLookup, NamespacePhase};

/// Looks namespaces up in the store that serves them. That store has the admission with this lookup itself, and so owns it.
#[derive(Debug)]
pub(super) struct StoredNamespaces(pub(super) Weak<Store>);

#[async_trait]
impl NamespaceLookup for StoredNamespaces {
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError> {
        let store = self.0.upgrade().ok_or_else(|| ApiError::service_unavailable("the server is stopping"))?;
        match store.get("", namespace, None).await {
            Ok(found) if found.is_deleting() => Ok(Some(NamespacePhase::Terminating)),
            Ok(_) => Ok(Some(NamespacePhase::Active)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}
