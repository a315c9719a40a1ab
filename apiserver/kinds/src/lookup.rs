//! Reads of other objects for strategies, as client-go's listers, and checks of the requester's permissions.

use std::sync::{Arc, OnceLock, Weak};

use futures_util::FutureExt as _;
use kube::core::object::{HasSpec, HasStatus};
use serde::de::{DeserializeOwned, IgnoredAny};
use stoa_controller::{
    index::Member,
    object::{Kind, ObjectKey},
};
use stoa_machinery::{
    ApiError, RequestContext,
    auth::{self, Attributes},
    log::Log,
    registry::{Api, BuildError, ListOptions, Registry, RegistryBuilder, Stored},
};
use stoa_types::{Workspace, names};

/// The reason for which there is no registry.
const UNAVAILABLE: &str = "the server is starting or stopping";

/// The registry as strategies see it.
///
/// Strategies exist before the registry that they are part of. A lookup answers 503 until [`build`](Self::build) has ended.
///
/// The registry owns the strategies, and they own their lookups. So a lookup does not own the registry: the server, or the
/// fixture of a test, keeps it.
#[derive(Clone, Debug, Default)]
pub struct Lookup {
    registry: Arc<OnceLock<Weak<Registry>>>,
}

impl Lookup {
    /// Reads a registry that exists already, for as long as its owner keeps it.
    pub fn of(registry: &Arc<Registry>) -> Self {
        Self { registry: Arc::new(OnceLock::from(Arc::downgrade(registry))) }
    }

    /// Builds the registry whose strategies have clones of this lookup. The caller owns it.
    ///
    /// # Errors
    ///
    /// Those of [`RegistryBuilder::build`].
    pub async fn build(&self, builder: RegistryBuilder) -> Result<Arc<Registry>, BuildError> {
        let registry = builder.build().await?;
        self.registry.get_or_init(|| Arc::downgrade(&registry));
        Ok(registry)
    }

    /// The objects of a kind.
    ///
    /// # Errors
    ///
    /// 503 while the server has not loaded them yet, and once it has stopped.
    pub fn api<K: Kind>(&self) -> Result<Api<K>, ApiError> {
        Ok(self.registry()?.api::<K>())
    }

    /// The registry itself.
    ///
    /// # Errors
    ///
    /// As for [`api`](Self::api).
    pub fn registry(&self) -> Result<Arc<Registry>, ApiError> {
        self.registry.get().and_then(Weak::upgrade).ok_or_else(|| ApiError::service_unavailable(UNAVAILABLE))
    }

    /// The log under the objects, for what the server keeps for itself.
    ///
    /// # Errors
    ///
    /// As for [`api`](Self::api).
    pub fn log(&self) -> Result<Arc<dyn Log>, ApiError> {
        Ok(self.registry()?.log().clone())
    }

    /// Whether there is no cluster around this server, so that it serves namespaces itself.
    pub fn is_standalone(&self) -> bool {
        self.registry().is_ok_and(|registry| registry.store("", "v1", "namespaces").is_some())
    }

    /// An object as the watch cache has it, without waiting: for defaults, never for decisions.
    pub fn cached<K: Kind>(&self, namespace: &str, name: &str) -> Option<K> {
        self.stored::<K>(namespace, name)?.decode().ok()
    }

    /// The spec of an object in the watch cache.
    pub fn cached_spec<K: Kind + HasSpec>(&self, namespace: &str, name: &str) -> Option<K::Spec>
    where
        K::Spec: DeserializeOwned,
    {
        self.cached_part::<K, Member<K::Spec, IgnoredAny>>(namespace, name).map(|part| part.spec)
    }

    /// The status of an object in the watch cache.
    pub fn cached_status<K: Kind + HasStatus>(&self, namespace: &str, name: &str) -> Option<K::Status>
    where
        K::Status: DeserializeOwned,
    {
        self.cached_part::<K, Member<IgnoredAny, K::Status>>(namespace, name)?.status
    }

    /// A part of an object in the watch cache, which costs less the fewer fields it has.
    pub(crate) fn cached_part<K: Kind, P: DeserializeOwned>(&self, namespace: &str, name: &str) -> Option<P> {
        self.stored::<K>(namespace, name)?.decode_part().ok()
    }

    /// Whether the watch cache has an object.
    pub(crate) fn is_cached<K: Kind>(&self, namespace: &str, name: &str) -> bool {
        self.stored::<K>(namespace, name).is_some()
    }

    /// Whether an object is being deleted, as the watch cache has it.
    pub fn is_going<K: Kind>(&self, namespace: &str, name: &str) -> bool {
        self.stored::<K>(namespace, name).is_some_and(|stored| stored.is_deleting())
    }

    fn stored<K: Kind>(&self, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        // A read of whatever is at hand waits for nothing.
        self.api::<K>().ok()?.store().get(namespace, name, Some("0")).now_or_never()?.ok()
    }

    /// The keys of the objects in a namespace, or in all, in which a selectable field has this value, as the watch cache
    /// has them.
    pub fn cached_keys<K: Kind>(&self, namespace: &str, field: &str, value: &str) -> Vec<ObjectKey> {
        let Ok(api) = self.api::<K>() else { return Vec::new() };
        let options = ListOptions {
            resource_version: Some("0".to_owned()),
            field_selector: Some(format!("{field}={value}")),
            ..ListOptions::default()
        };
        let list = api.store().list(Some(namespace).filter(|n| !n.is_empty()), &options).now_or_never();
        let items = list.and_then(Result::ok).map(|l| l.items).unwrap_or_default();
        items.iter().map(|stored| (stored.namespace().to_owned(), stored.name().to_owned())).collect()
    }
}

/// Requires the verb `use` on a cluster-scoped object.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub async fn require_use<K: Kind>(context: &RequestContext, name: &str) -> Result<(), ApiError> {
    require::<K>(context, "use", "", "", name).await
}

/// Requires that the requester may have the server call a host from a namespace.
///
/// # Errors
///
/// 403 that names the verb and the host.
pub(crate) async fn require_host(context: &RequestContext, namespace: &str, host: &str) -> Result<(), ApiError> {
    require_verb(context, "use", [names::group::<Workspace>(), "hookhosts", ""], namespace, host).await
}

/// Requires that the requester may give somebody a role in a namespace.
///
/// # Errors
///
/// 403 that names the verb and the ClusterRole.
pub(crate) async fn require_bind(context: &RequestContext, namespace: &str, role: &str) -> Result<(), ApiError> {
    require_verb(context, "bind", ["rbac.authorization.k8s.io", "clusterroles", ""], namespace, role).await
}

/// Requires the permission to read an object of a resource in a namespace, by its group and its plural noun: the server uses its
/// content. An empty name stands for all objects.
///
/// # Errors
///
/// 403 that names the verb and the resource.
pub(crate) async fn require_get(
    context: &RequestContext,
    (group, plural): (&str, &str),
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    require_verb(context, "get", [group, plural, ""], namespace, name).await
}

/// Requires leave to have Stoa show a Secret to somebody else, such as to the server of a repository.
///
/// # Errors
///
/// 403 that names the Secret.
pub async fn require_secret(context: &RequestContext, namespace: &str, name: &str) -> Result<(), ApiError> {
    require_verb(context, "use", ["", "secrets", ""], namespace, name).await
}

/// Requires a verb on one object, or on a subresource of it.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub async fn require<K: Kind>(
    context: &RequestContext,
    verb: &str,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Result<(), ApiError> {
    require_verb(context, verb, [names::group::<K>(), names::plural::<K>(), subresource], namespace, name).await
}

async fn require_verb(
    context: &RequestContext,
    verb: &str,
    [group, resource, subresource]: [&str; 3],
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

#[cfg(test)]
mod tests {
    use stoa_machinery::log::MemoryLog;

    use super::*;
    use crate::testing::TestRegistry;

    #[tokio::test]
    async fn lookup_does_not_own_the_registry() {
        let world = TestRegistry::over(Arc::new(MemoryLog::new()), |builder| builder).await;
        assert_eq!(Arc::strong_count(&world.registry), 1, "its strategies do not own it");
        let lookup = Lookup::of(&world.registry);
        assert_eq!(Arc::strong_count(&world.registry), 1);
        assert!(lookup.registry().is_ok() && world.lookup.registry().is_ok());
        drop(world);
        assert_eq!(lookup.registry().expect_err("its owner dropped it").code(), 503);
    }
}
