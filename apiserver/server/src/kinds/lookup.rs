//! What strategies need to know of other objects, and of what the requester may do with them.

use std::sync::{Arc, OnceLock};

use stoa_machinery::{
    ApiError, RequestContext,
    auth::{self, Attributes},
    registry::{Api, Registry},
};

/// The registry as strategies see it.
///
/// Strategies are made before the registry that they are part of, so it is filled in afterwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    registry: Arc<OnceLock<Arc<Registry>>>,
}

impl Lookup {
    /// Fills the registry in.
    pub(crate) fn set(&self, registry: Arc<Registry>) {
        // A second registry for the same strategies would be a mistake of the wiring.
        self.registry.set(registry).expect("the registry is set once");
    }

    /// The objects of a kind.
    ///
    /// # Errors
    ///
    /// 503 while the server has not loaded them yet.
    pub(crate) fn api<K>(&self) -> Result<Api<K>, ApiError>
    where
        K: stoa_machinery::registry::ApiObject,
    {
        let registry =
            self.registry.get().ok_or_else(|| ApiError::service_unavailable("the server is starting"))?;
        Ok(registry.api::<K>())
    }
}

/// Requires the verb `use` on a cluster-scoped object of `platform.stoa.dev`.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub(crate) async fn require_use(context: &RequestContext, resource: &str, name: &str) -> Result<(), ApiError> {
    require(context, "use", "platform.stoa.dev", resource, "", "", name).await
}

/// Requires a verb on one object.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub(crate) async fn require(
    context: &RequestContext,
    verb: &str,
    group: &str,
    resource: &str,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    let attributes = Attributes {
        verb: verb.to_owned(),
        group: group.to_owned(),
        version: "v1alpha1".to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Attributes::default()
    };
    auth::require(&context.authorizer, &context.user, &attributes).await
}
