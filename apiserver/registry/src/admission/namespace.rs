//! The lookup of namespaces, on which `NamespaceLifecycle` decides.

use async_trait::async_trait;
use stoa_meta::status::ApiError;

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
    /// Fails when that could not be found out; the write is refused with this error.
    async fn phase(&self, namespace: &str) -> Result<Option<NamespacePhase>, ApiError>;
}
