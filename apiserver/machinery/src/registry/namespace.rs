//! Which namespaces there are, for admission.

use std::sync::Arc;

use async_trait::async_trait;

use super::Store;
use crate::status::ApiError;

/// The phase of a namespace that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    /// In use.
    Active,
    /// Being deleted with all that is in it.
    Terminating,
}

/// Knows the namespaces: a server's own, or those of the cluster in front of it.
#[async_trait]
pub trait NamespaceLookup: std::fmt::Debug + Send + Sync + 'static {
    /// The phase of a namespace, or nothing when it does not exist.
    ///
    /// # Errors
    ///
    /// When that could not be found out; the write is refused with this error.
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError>;
}

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
