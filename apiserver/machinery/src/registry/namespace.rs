//! NamespaceLifecycle: nothing is created in a namespace that is missing or going.

use std::sync::Arc;

use async_trait::async_trait;

use super::Store;
use crate::{definition::ResourceDefinition, request::RequestContext, status::ApiError};

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

/// Refuses to create an object in a namespace that is missing (404) or terminating (403).
///
/// Components of the server itself may still create in a terminating one: what has to be done
/// for it to go is theirs to do.
pub(super) async fn check_create(
    lookup: &dyn NamespaceLookup,
    context: &RequestContext,
    definition: &ResourceDefinition,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    match lookup.phase(namespace).await? {
        Some(NamespacePhase::Active) => Ok(()),
        Some(NamespacePhase::Terminating) if context.user.is_internal() => Ok(()),
        None => Err(ApiError::not_found("", "namespaces", namespace)),
        Some(NamespacePhase::Terminating) => Err(ApiError::forbidden(
            &definition.group,
            &definition.plural,
            if name.is_empty() { "Unknown" } else { name },
            format_args!("unable to create new content in namespace {namespace} because it is being terminated"),
        )
        .with_cause(
            "NamespaceTerminating",
            "metadata.namespace",
            format!("namespace {namespace} is being terminated"),
        )),
    }
}
