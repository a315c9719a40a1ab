//! The namespaces that a store serves, for `NamespaceLifecycle`.

use std::sync::Arc;

use async_trait::async_trait;
use stoa_meta::status::ApiError;

use super::Store;
use crate::admission::{NamespaceLookup, NamespacePhase};

/// Looks namespaces up in the store that serves them.
#[derive(Debug)]
pub(super) struct StoredNamespaces(pub(super) Arc<Store>);

#[async_trait]
impl NamespaceLookup for StoredNamespaces {
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError> {
        match self.0.get("", namespace, None).await {
            Ok(found) if found.is_deleting() => Ok(Some(NamespacePhase::Terminating)),
            Ok(_) => Ok(Some(NamespacePhase::Active)),
            Err(error) if error.code() == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}
